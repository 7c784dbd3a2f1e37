//! `check`: the models.

use super::record::{FaultField, ModelField, Record, write_json};
use super::{bar, listed, meant, workers};
use anyhow::{Result, bail};
use catcache_benches::plots;
use catcache_model::check;
use catcache_model::coherence::scope::{Feature, Form};
use catcache_model::coherence::{Fault, Property, Scope};
use catcache_model::coverage::Coverage;
use catcache_model::lifetime;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What is to be checked.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    /// Scopes of the coherence model,
    pub scopes: Vec<Scope>,
    /// and faults of it.
    pub faults: Vec<Fault>,
    /// Scopes of the model of the life of a slot,
    pub slots: Vec<lifetime::Program>,
    /// and faults of it.
    pub slot_faults: Vec<lifetime::Fault>,
}

/// Adds what is not there yet.
fn once<T: PartialEq>(list: &mut Vec<T>, one: T) {
    if !list.contains(&one) {
        list.push(one);
    }
}

impl Chosen {
    /// All faults, and all quick scopes, or all scopes.
    fn all(full: bool) -> Chosen {
        let scopes = Scope::all().into_iter().filter(|s| full || s.form == Form::Quick).collect();
        let (slots, slot_faults) = (lifetime::Program::all(), lifetime::Fault::ALL.to_vec());
        Chosen { scopes, faults: Fault::ALL.to_vec(), slots, slot_faults }
    }

    fn fault(&mut self, name: &str) -> bool {
        if let Some(fault) = fault_named(name) {
            once(&mut self.faults, fault);
            return true;
        }
        let fault = lifetime::Fault::ALL.into_iter().find(|f| f.name().eq_ignore_ascii_case(name));
        fault.map(|fault| once(&mut self.slot_faults, fault)).is_some()
    }

    fn scope(&mut self, name: &str) -> bool {
        if let Some(scope) = Scope::all().into_iter().find(|s| s.name == name) {
            if !self.scopes.iter().any(|s| s.name == name) {
                self.scopes.push(scope);
            }
            return true;
        }
        let slots: Vec<_> =
            lifetime::Program::all().into_iter().filter(|p| p.name == name || name == "lifetime").collect();
        let any = !slots.is_empty();
        slots.into_iter().for_each(|program| once(&mut self.slots, program));
        any
    }
}

/// The scopes and faults that are meant: `names` may be either, `named` are faults. All quick scopes and all faults if there
/// are none; a name that is said twice counts once.
pub fn select(names: &[String], named: &[String], full: bool) -> Result<Chosen> {
    if names.is_empty() && named.is_empty() {
        return Ok(Chosen::all(full));
    }
    let mut chosen = Chosen::default();
    for name in names {
        if !chosen.scope(name) && !chosen.fault(name) {
            bail!("`{name}` is neither a scope nor a fault{}\n  {}", meant(name, known()), known_names());
        }
    }
    for name in named {
        if !chosen.fault(name) {
            bail!("there is no fault `{name}`{}\n  {}", meant(name, fault_names()), listed("faults", fault_names()));
        }
    }
    Ok(chosen)
}

/// Is it the name of a scope or a fault of the model of the life of a slot?
pub fn is_of_slots(name: &str) -> bool {
    let fault = |f: lifetime::Fault| f.name().eq_ignore_ascii_case(name);
    name == "lifetime"
        || lifetime::Program::all().iter().any(|p| p.name == name)
        || lifetime::Fault::ALL.into_iter().any(fault)
}

/// The fault of a name, in capital letters or small ones.
pub fn fault_named(name: &str) -> Option<Fault> {
    Fault::ALL.iter().copied().find(|f| f.name().eq_ignore_ascii_case(name))
}

fn scope_names() -> impl Iterator<Item = &'static str> + Clone {
    Scope::all().into_iter().map(|s| s.name).chain(lifetime::Program::all().into_iter().map(|p| p.name))
}

fn fault_names() -> impl Iterator<Item = &'static str> + Clone {
    Fault::ALL.iter().map(|f| f.name()).chain(lifetime::Fault::ALL.into_iter().map(lifetime::Fault::name))
}

/// The names of scopes and faults.
pub fn known() -> impl Iterator<Item = &'static str> + Clone {
    scope_names().chain(fault_names())
}

/// The names that there are.
pub fn known_names() -> String {
    format!("{}\n  {}", listed("scopes", scope_names()), listed("faults", fault_names()))
}

/// The list of faults.
#[derive(Serialize)]
struct Faults {
    faults: Vec<Listed>,
}

/// A fault: the rule that is broken, where that is looked for, and what it breaks there.
#[derive(Serialize)]
struct Listed {
    name: &'static str,
    scope: &'static str,
    property: &'static str,
    about: &'static str,
}

/// Prints the list of faults, and writes it.
pub fn list_faults(json: Option<&Path>) -> Result<()> {
    let one =
        |f: &Fault| Listed { name: f.name(), scope: f.scope(), property: f.breaks().name(), about: f.about().trim() };
    let slot = |f: lifetime::Fault| {
        let found = lifetime::fault(f);
        let (scope, property) = found.map_or(("-", "-"), |(program, property, _)| (program.name, property.name()));
        Listed { name: f.name(), scope, property, about: f.about() }
    };
    let faults = Fault::ALL.iter().map(one).chain(lifetime::Fault::ALL.into_iter().map(slot)).collect();
    let list = Faults { faults };
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["fault", "scope", "property", "what is broken"]);
    for f in &list.faults {
        table.add_row([f.name, f.scope, f.property, f.about]);
    }
    say!("{table}");
    say!(
        "{} faults (`catcache check --fault NAME` looks for one and prints the shortest counterexample)",
        list.faults.len()
    );
    write_json(json, &list)
}

/// Runs them. `whole`: all quick scopes run, so every branch of every step must have been taken.
pub fn run(record: &mut Record, chosen: &Chosen, whole: bool, stop: &Arc<AtomicBool>) {
    let Chosen { scopes, faults, slots, slot_faults } = chosen;
    let coverage = Coverage::default();
    let all = scopes.len() + faults.len() + slots.len() + slot_faults.len();
    let progress = bar(all as u64, "check");
    for program in slots {
        progress.set_message(program.name);
        run_slots(record, program);
        progress.inc(1);
    }
    for (done, scope) in scopes.iter().enumerate() {
        progress.set_message(scope.name);
        let Some(verdict) = check::scope_unless(scope, workers(), &coverage, stop) else {
            let left: Vec<&str> = scopes[done..].iter().map(|s| s.name).collect();
            record.skip(&format!("the scopes {} (interrupted)", left.join(", ")));
            break;
        };
        let text = if !verdict.broken.is_empty() {
            let names: Vec<&str> = verdict.broken.iter().map(|(name, _)| name.as_str()).collect();
            for (name, columns) in &verdict.broken {
                record.fail(format!("scope {}: {name} does not hold\n{columns}", scope.name));
            }
            format!("broken: {}", names.join(", "))
        } else if !verdict.counts_pinned() {
            let text = format!("counts changed: pinned {:?}", verdict.pinned);
            record.fail(format!(
                "scope {}: {} unique and {} generated states, pinned are {:?}; a changed count is a changed model: say why \
                 in the commit and pin it in model/src/coherence/scope.rs",
                scope.name, verdict.unique, verdict.generated, verdict.pinned
            ));
            text
        } else {
            "held".into()
        };
        record.models.push(ModelField {
            name: "coherence",
            scope: scope.name.into(),
            unique: verdict.unique,
            generated: verdict.generated,
            seconds: verdict.took.as_secs_f64(),
            verdict: text,
        });
        progress.inc(1);
    }
    let verdicts = find_faults(faults, stop, &progress);
    if verdicts.len() < faults.len() {
        let left = faults.len() - verdicts.len();
        record.skip(&format!("{left} of {} faults of the model (interrupted)", faults.len()));
    }
    for (fault, verdict) in verdicts {
        let caught = verdict.as_ref().filter(|v| v.caught());
        if caught.is_none() {
            let broke = verdict.as_ref().and_then(|v| v.broke).map_or("nothing", Property::name);
            record.fail(format!(
                "fault {} of the model breaks {broke} in scope {}, expected was {}",
                fault.name(),
                fault.scope(),
                fault.breaks().name()
            ));
        }
        record.faults.push(FaultField {
            name: fault.name().into(),
            side: "model",
            caught_by: caught
                .map(|v| format!("{}: {}, {} steps", v.scope, fault.breaks().name(), v.counterexample.len())),
            columns: verdict.map(|v| v.columns).unwrap_or_default(),
        });
    }
    for fault in slot_faults {
        progress.set_message(fault.name());
        let found = lifetime::fault(*fault);
        if found.is_none() {
            record.fail(format!("fault {} of the model breaks nothing", fault.name()));
        }
        let told = |(program, property, actions): &(lifetime::Program, lifetime::Property, Vec<lifetime::Action>)| {
            format!("{}: {}, {} steps", program.name, property.name(), actions.len())
        };
        record.faults.push(FaultField {
            name: fault.name().into(),
            side: "model",
            caught_by: found.as_ref().map(told),
            columns: found.map(|(program, _, actions)| lifetime::columns(&program, &actions)).unwrap_or_default(),
        });
        progress.inc(1);
    }
    progress.finish_and_clear();
    let missing: Vec<&str> = coverage.missing().into_iter().map(|b| b.name()).collect();
    if whole && !missing.is_empty() && !stop.load(Ordering::Relaxed) {
        record.fail(format!("no scope takes these branches of the model: {}", missing.join("; ")));
    }
}

/// Looks for faults, several at a time. Fewer than were asked for if it is interrupted.
fn find_faults(
    faults: &[Fault],
    stop: &AtomicBool,
    progress: &indicatif::ProgressBar,
) -> Vec<(Fault, Option<check::FaultVerdict>)> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut mine = Vec::new();
        // Relaxed: see `stop_on_interrupt`; and a counter that hands out work, which guards no data.
        while !stop.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(fault) = faults.get(at) else { break };
            progress.set_message(fault.name());
            mine.push((at, (*fault, check::fault(*fault))));
            progress.inc(1);
        }
        mine
    };
    let mut all: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers()).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.flatten().collect()
    });
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, verdict)| verdict).collect()
}

/// A scope of the model of the life of a slot: small, so that it is not interrupted.
fn run_slots(record: &mut Record, program: &lifetime::Program) {
    let verdict = lifetime::check(program);
    let broken: Vec<&str> = verdict.broken.iter().map(|(name, _)| name.as_str()).collect();
    for (name, columns) in &verdict.broken {
        record.fail(format!("scope {}: {name} does not hold\n{columns}", program.name));
    }
    let text = if !broken.is_empty() {
        format!("broken: {}", broken.join(", "))
    } else if verdict.held(program) {
        "held".into()
    } else {
        record.fail(format!(
            "scope {}: {} unique and {} generated states, pinned are {:?}; a changed count is a changed model: say why in the \
             commit and pin it in model/src/lifetime.rs",
            program.name, verdict.unique, verdict.generated, program.pinned
        ));
        format!("counts changed: pinned {:?}", program.pinned)
    };
    record.models.push(ModelField {
        name: "lifetime",
        scope: program.name.into(),
        unique: verdict.unique,
        generated: verdict.generated,
        seconds: verdict.took.as_secs_f64(),
        verdict: text,
    });
}

/// Prints them; `columns`: with the counterexamples.
pub fn show(record: &Record, columns: bool) {
    if !record.models.is_empty() {
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY).set_header([
            "scope",
            "unique",
            "generated",
            "seconds",
            "odds missed",
            "verdict",
        ]);
        for m in &record.models {
            table.add_row([
                m.scope.clone(),
                m.unique.to_string(),
                m.generated.to_string(),
                format!("{:.1}", m.seconds),
                format!("{:.0e}", check::collision_odds(m.unique)),
                m.verdict.clone(),
            ]);
        }
        say!("{table}");
        let (unique, seconds) = record.models.iter().fold((0, 0.0), |(u, s), m| (u + m.unique, s + m.seconds));
        let scopes = record.models.len();
        let s = if scopes == 1 { "" } else { "s" };
        say!("models: {scopes} scope{s}, {unique} distinct states, {seconds:.1} s");
        if record.models.len() > 1 {
            say!("{}", pairs());
        }
    }
    let faults: Vec<&FaultField> = record.faults.iter().filter(|f| f.side == "model").collect();
    if faults.is_empty() {
        return;
    }
    let caught = faults.iter().filter(|f| f.caught_by.is_some()).count();
    if columns {
        for fault in &faults {
            say!(
                "\nfault {}: caught by {}\n{}",
                fault.name,
                fault.caught_by.as_deref().unwrap_or("nothing"),
                fault.columns
            );
        }
    }
    say!(
        "model faults caught: {caught}/{} (`catcache check --fault NAME` prints the shortest counterexample)",
        faults.len()
    );
}

/// Draws the scopes.
pub fn draw(record: &Record, folder: Option<&Path>) -> Result<()> {
    let Some(folder) = folder else { return Ok(()) };
    let scopes = record.models.iter();
    let scopes: Vec<plots::Scope> =
        scopes.map(|m| plots::Scope { name: m.scope.clone(), states: m.unique, seconds: m.seconds }).collect();
    let held = record.models.iter().all(|m| m.verdict == "held");
    super::say_plots(&plots::of_models(folder, &scopes, !held)?);
    Ok(())
}

/// The table of pairs: in how many scopes each two features meet.
fn pairs() -> String {
    let scopes = Scope::all();
    let meet = |a, b| scopes.iter().filter(|s| s.features.contains(&a) && s.features.contains(&b)).count();
    let all = Feature::ALL;
    let mut table = format!("in how many scopes two features meet\n{:21}", "");
    for n in 1..all.len() {
        let _ = write!(table, "{n:3}");
    }
    let mut together = 0;
    for (i, a) in all.iter().enumerate() {
        let _ = write!(table, "\n{:2} {:18}", i + 1, format!("{a:?}"));
        for b in &all[..i] {
            let scopes = meet(*a, *b);
            together += usize::from(scopes > 0);
            let _ = if scopes > 0 { write!(table, "{scopes:3}") } else { write!(table, "  ·") };
        }
    }
    let of = all.len() * (all.len() - 1) / 2;
    format!("{table}\npairs of features that meet in some scope: {together}/{of} (· in none)")
}
