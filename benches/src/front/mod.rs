//! What the commands do, and what they print.
//!
//! Each part fills its fields of one [`Record`]; the record becomes the screen and the JSON.

#[macro_use]
mod screen;

mod bench;
mod check;
mod conform;
mod explain;
mod record;

use anyhow::{Context, Result, bail};
use catcache_benches::plots;
use catcache_benches::suite::Stage;
use catcache_conformance::litmus::{self, Litmus};
use catcache_model::coherence::{Program, Scope};
use catcache_model::explorer::Coherent;
use indicatif::{ProgressBar, ProgressStyle};
use record::Record;
pub use screen::said;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that Ctrl-C or a termination signal sets; a second one ends the process at once.
pub fn stop_on_interrupt() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    // Nothing of a run outlives the process: segments are anonymous memory, children are waited for or killed.
    let set = ctrlc::set_handler(move || {
        // Relaxed: a flag that asks to stop; it guards no data.
        if flag.swap(true, Ordering::Relaxed) {
            catcache_benches::children::end_all();
            std::process::exit(130);
        }
        eprintln!("\ninterrupted: finishing what is running; once more to end at once");
    });
    if let Err(error) = set {
        eprintln!("catcache: Ctrl-C will end this process at once ({error})");
    }
    stop
}

/// A report that can't be written should be known before the work, not after it.
fn writable(json: Option<&Path>) -> Result<()> {
    can_write("report", json)
}

fn can_write(what: &str, path: Option<&Path>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    if path.as_os_str() == "-" {
        bail!("the {what} goes to a file, not to `-`: the screen is for people");
    }
    let there = path.exists();
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("the {what} can't be written to {}", path.display()))?;
    if !there {
        // No report is better than an empty one, should this run be cut short.
        std::fs::remove_file(path).ok();
    }
    Ok(())
}

fn interrupted(stop: &AtomicBool) -> bool {
    // Relaxed: see `stop_on_interrupt`.
    stop.load(Ordering::Relaxed)
}

fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// "; did you mean `tuple`?" if there is a name near enough to ask, or a few that have this one within.
fn meant<'k>(name: &str, known: impl Iterator<Item = &'k str> + Clone) -> String {
    const MOST: usize = 6;
    let within = |k: &&str| name.len() > 1 && k.to_ascii_lowercase().contains(&name.to_ascii_lowercase());
    let found: Vec<String> = match litmus::nearest(name, known.clone()) {
        Some(near) => vec![format!("`{near}`")],
        None => known.filter(within).map(|k| format!("`{k}`")).collect(),
    };
    if found.is_empty() || found.len() > MOST {
        String::new()
    } else {
        format!("; did you mean {}?", found.join(" or "))
    }
}

/// "scopes: tuple, collision, ..." in lines that fit a screen, those that follow indented.
fn listed<'k>(what: &str, names: impl Iterator<Item = &'k str>) -> String {
    const WIDTH: usize = 100;
    let (mut text, mut width) = (format!("{what}:"), what.len() + 1);
    for (i, name) in names.enumerate() {
        let comma = if i == 0 { "" } else { "," };
        if width + name.len() + 2 > WIDTH {
            text += &format!("{comma}\n    {name}");
            width = 4 + name.len();
        } else {
            text += &format!("{comma} {name}");
            width += name.len() + 2;
        }
    }
    text
}

fn bar(length: u64, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:>10} [{bar:30}] {pos}/{len} {elapsed} {msg}");
    let bar = ProgressBar::new(length).with_prefix(what);
    style.map_or_else(|_| bar.clone(), |style| bar.clone().with_style(style))
}

/// Says which plots there are now, and which are not.
fn say_plots(drawn: &plots::Drawn) {
    for path in &drawn.files {
        say!("plot: {}", path.display());
    }
    for missing in &drawn.missing {
        say!("not drawn: {missing}");
    }
}

/// `catcache check`.
pub fn check_command(
    names: &[String],
    faults: &[String],
    full: bool,
    plots: Option<&Path>,
    json: Option<&Path>,
    stop: &Arc<AtomicBool>,
) -> Result<bool> {
    writable(json)?;
    plots.map(plots::folder).transpose()?;
    let all = names.is_empty() && faults.is_empty();
    let chosen = check::select(names, faults, full)?;
    let mut record = Record::new(&["conform", "bench"]);
    check::run(&mut record, &chosen, all, stop);
    check::show(&record, !all);
    check::draw(&record, plots)?;
    record.finish(stop, json)
}

/// `catcache check --faults`.
pub fn list_faults(json: Option<&Path>) -> Result<bool> {
    writable(json)?;
    check::list_faults(json)?;
    Ok(true)
}

/// `catcache conform`.
pub fn conform_command(
    files: &[String],
    full: bool,
    pin: bool,
    json: Option<&Path>,
    stop: &AtomicBool,
) -> Result<bool> {
    writable(json)?;
    let chosen = files.iter().map(|f| find_litmus(f)).collect::<Result<Vec<_>>>()?;
    if pin {
        return conform::pin(&chosen, stop);
    }
    let mut record = Record::new(&["check", "bench"]);
    conform::run(&mut record, chosen, full, stop)?;
    conform::show(&record, files.len() == 1);
    record.finish(stop, json)
}

/// `catcache conform FILE --explain OUTCOME`.
pub fn explain_command(
    files: &[String],
    outcome: &str,
    svg: Option<&Path>,
    json: Option<&Path>,
    stop: &AtomicBool,
) -> Result<bool> {
    let [file] = files else { bail!("--explain speaks of the outcomes of one litmus file, not of {}", files.len()) };
    writable(json)?;
    can_write("diagram", svg)?;
    if svg.is_some() && svg == json {
        bail!("report and diagram can't be one file");
    }
    explain::run(&find_litmus(file)?, outcome, svg, json, stop)
}

/// `catcache bench`.
pub fn bench_command(
    names: &[String],
    full: bool,
    unverified: bool,
    plots: Option<&Path>,
    json: Option<&Path>,
    stop: &AtomicBool,
) -> Result<bool> {
    let stages = bench::select(names)?;
    writable(json)?;
    plots.map(plots::folder).transpose()?;
    let mut record = Record::new(&["check", "conform"]);
    bench::run(&mut record, &bench::Wish { stages: &stages, full, unverified, plots }, stop)?;
    bench::show(&record);
    record.finish(stop, json)
}

/// `catcache verify`.
pub fn verify_command(
    scope: &[String],
    plots: Option<&Path>,
    json: Option<&Path>,
    stop: &Arc<AtomicBool>,
) -> Result<bool> {
    writable(json)?;
    plots.map(plots::folder).transpose()?;
    let chosen = check::select(scope, &[], false)?;
    let mut record = Record::new(&[]);
    check::run(&mut record, &chosen, scope.is_empty(), stop);
    if !scope.is_empty() {
        record.skip("model scopes and faults that --scope leaves out");
    }
    if record.held() && !interrupted(stop) {
        conform::run(&mut record, Vec::new(), false, stop)?;
    } else {
        record.skip("conform");
    }
    if record.held() && !interrupted(stop) {
        // What was checked so far is worth its report, whatever becomes of the measurements.
        let wish = bench::Wish { stages: &Stage::ALL, full: false, unverified: false, plots };
        if let Err(error) = bench::run(&mut record, &wish, stop) {
            record.fail(format!("bench: {error:#}"));
        }
    } else {
        record.skip("bench (nothing is measured that has not passed)");
    }
    check::show(&record, false);
    conform::show(&record, false);
    bench::show(&record);
    check::draw(&record, plots)?;
    record.finish(stop, json)
}

fn find_litmus(name: &str) -> Result<Litmus> {
    let shipped = litmus::shipped().context("a shipped litmus file is broken")?;
    let stem = name.strip_suffix(".litmus").unwrap_or(name);
    if let Some(found) = shipped.iter().find(|l| l.name == stem) {
        return Ok(found.clone());
    }
    if !Path::new(name).exists() {
        let known = shipped.iter().map(|l| l.name.as_str());
        bail!(
            "there is no file `{name}`, and no shipped litmus file of that name{}\n  {}",
            meant(stem, known.clone()),
            listed("shipped", known)
        );
    }
    // Its text says the cause already; as a chain it would say it twice.
    Litmus::load(Path::new(name)).map_err(|e| anyhow::anyhow!("{e}"))
}

/// `catcache explore`.
pub fn explore(name: &str, port: u16) -> Result<bool> {
    let mut counterexample = None;
    if check::is_of_slots(name) {
        bail!("the model of the life of a slot has no Explorer; `catcache check {name}` checks it and prints its runs");
    }
    let program = if let Some(scope) = Scope::named(name) {
        scope.program
    } else if let Some(fault) = check::fault_named(name) {
        let scope = Scope::named(fault.scope()).context("the fault names a scope that does not exist")?;
        counterexample = catcache_model::check::fault(fault).map(|v| v.counterexample);
        Program { fault: Some(fault), ..scope.program }
    } else if looks_like_a_name(name) {
        let files: Vec<String> = litmus::shipped()?.into_iter().map(|l| l.name).collect();
        let files = files.iter().map(String::as_str);
        let mut known: Vec<&str> = check::known().collect();
        known.extend(files.clone());
        bail!(
            "`{name}` is neither a scope, nor a fault, nor a litmus file{}\n  {}\n  {}",
            meant(name, known.iter().copied()),
            check::known_names(),
            listed("litmus files", files)
        );
    } else {
        catcache_conformance::refinement::Map::new(&find_litmus(name)?).program
    };
    // The server ends the process if it can't have the port, and says nothing of use: look first.
    let address = format!("127.0.0.1:{port}");
    std::net::TcpListener::bind(&address)
        .with_context(|| format!("can't serve on {address}; choose another port with --port"))?;
    let model = Coherent::new(program);
    say!("exploring `{name}` on http://{address}/ (Ctrl-C ends it)");
    if let Some(run) = counterexample {
        say!("the shortest counterexample: http://{address}/{}", model.place(&run));
    }
    use stateright::Model as _;
    model.checker().serve(address);
    Ok(true)
}

/// No shipped litmus file, and nothing that lies on the disk.
fn looks_like_a_name(name: &str) -> bool {
    !Path::new(name).exists() && find_litmus(name).is_err()
}
