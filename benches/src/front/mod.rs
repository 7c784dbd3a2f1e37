//! What the commands do, and what they print.
//!
//! Each part fills its fields of one [`Record`]; the record becomes the screen and the JSON.

#[macro_use]
mod screen;

mod bench;
mod check;
mod conform;
mod record;

use anyhow::{Context, Result, bail};
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
            catcache_benches::counted::end_children();
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
    let Some(path) = json else { return Ok(()) };
    let there = path.exists();
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("the report can't be written to {}", path.display()))?;
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

fn bar(length: u64, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:>10} [{bar:30}] {pos}/{len} {elapsed} {msg}");
    let bar = ProgressBar::new(length).with_prefix(what);
    style.map_or_else(|_| bar.clone(), |style| bar.clone().with_style(style))
}

/// `catcache check`.
pub fn check_command(names: &[String], full: bool, json: Option<&Path>, stop: &Arc<AtomicBool>) -> Result<bool> {
    writable(json)?;
    let (scopes, faults) = check::select(names, full)?;
    let mut record = Record::new(&["conform", "bench"]);
    check::run(&mut record, &scopes, &faults, names.is_empty(), stop);
    check::show(&record, !names.is_empty());
    record.finish(stop, json)
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

/// `catcache bench`.
pub fn bench_command(full: bool, unverified: bool, json: Option<&Path>, stop: &AtomicBool) -> Result<bool> {
    writable(json)?;
    let mut record = Record::new(&["check", "conform"]);
    bench::run(&mut record, full, unverified, stop)?;
    bench::show(&record);
    record.finish(stop, json)
}

/// `catcache verify`.
pub fn verify_command(scope: &[String], json: Option<&Path>, stop: &Arc<AtomicBool>) -> Result<bool> {
    writable(json)?;
    let (scopes, faults) = check::select(scope, false)?;
    let mut record = Record::new(&[]);
    check::run(&mut record, &scopes, &faults, scope.is_empty(), stop);
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
        if let Err(error) = bench::run(&mut record, false, false, stop) {
            record.fail(format!("bench: {error:#}"));
        }
    } else {
        record.skip("bench (nothing is measured that has not passed)");
    }
    check::show(&record, false);
    conform::show(&record, false);
    bench::show(&record);
    record.finish(stop, json)
}

fn find_litmus(name: &str) -> Result<Litmus> {
    let shipped = litmus::shipped().context("a shipped litmus file is broken")?;
    let stem = name.strip_suffix(".litmus").unwrap_or(name);
    if let Some(found) = shipped.iter().find(|l| l.name == stem) {
        return Ok(found.clone());
    }
    if !Path::new(name).exists() {
        let known: Vec<&str> = shipped.iter().map(|l| l.name.as_str()).collect();
        bail!("there is no file `{name}`, and no shipped litmus file of that name; shipped are: {}", known.join(", "));
    }
    // Its text says the cause already; as a chain it would say it twice.
    Litmus::load(Path::new(name)).map_err(|e| anyhow::anyhow!("{e}"))
}

/// `catcache explore`.
pub fn explore(name: &str, port: u16) -> Result<bool> {
    let mut counterexample = None;
    let program = if let Some(scope) = Scope::named(name) {
        scope.program
    } else if let Some(fault) = check::fault_named(name) {
        let scope = Scope::named(fault.scope()).context("the fault names a scope that does not exist")?;
        counterexample = catcache_model::check::fault(fault).map(|v| v.counterexample);
        Program { fault: Some(fault), ..scope.program }
    } else if looks_like_a_name(name) {
        let known: Vec<String> = litmus::shipped()?.into_iter().map(|l| l.name).collect();
        bail!(
            "`{name}` is neither a scope, nor a fault, nor a litmus file\n  {}\n  litmus files: {}",
            check::known_names(),
            known.join(", ")
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
