//! `check`: the models.

use super::record::{FaultField, ModelField, Record, write_json};
use super::{bar, listed, meant, workers};
use anyhow::{Result, bail};
use catcache_benches::plots;
use catcache_model::check;
use catcache_model::coherence::scope::{Feature, Form};
use catcache_model::coherence::{Fault, Property, Scope};
use catcache_model::coverage::Coverage;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The scopes and faults that are meant: `names` may be either, `named` are faults. All quick scopes and all faults if there
/// are none; a name that is said twice counts once.
pub fn select(names: &[String], named: &[String], full: bool) -> Result<(Vec<Scope>, Vec<Fault>)> {
    let all = Scope::all();
    if names.is_empty() && named.is_empty() {
        let scopes = all.into_iter().filter(|s| full || s.form == Form::Quick).collect();
        return Ok((scopes, Fault::ALL.to_vec()));
    }
    let (mut scopes, mut faults): (Vec<Scope>, Vec<Fault>) = (Vec::new(), Vec::new());
    for name in names {
        if let Some(scope) = all.iter().find(|s| s.name == name) {
            if !scopes.iter().any(|s| s.name == name) {
                scopes.push(scope.clone());
            }
        } else if let Some(fault) = fault_named(name) {
            faults.push(fault);
        } else {
            bail!("`{name}` is neither a scope nor a fault{}\n  {}", meant(name, known()), known_names());
        }
    }
    for name in named {
        let Some(fault) = fault_named(name) else {
            let known = Fault::ALL.iter().map(|f| f.name());
            bail!("there is no fault `{name}`{}\n  {}", meant(name, known.clone()), listed("faults", known));
        };
        faults.push(fault);
    }
    let mut once: Vec<Fault> = Vec::new();
    for fault in faults {
        if !once.contains(&fault) {
            once.push(fault);
        }
    }
    Ok((scopes, once))
}

/// The fault of a name, in capital letters or small ones.
pub fn fault_named(name: &str) -> Option<Fault> {
    Fault::ALL.iter().copied().find(|f| f.name().eq_ignore_ascii_case(name))
}

/// The names of scopes and faults.
pub fn known() -> impl Iterator<Item = &'static str> + Clone {
    Scope::all().into_iter().map(|s| s.name).chain(Fault::ALL.iter().map(|f| f.name()))
}

/// The names that there are.
pub fn known_names() -> String {
    let scopes = listed("scopes", Scope::all().into_iter().map(|s| s.name));
    format!("{scopes}\n  {}", listed("faults", Fault::ALL.iter().map(|f| f.name())))
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
    let list = Faults { faults: Fault::ALL.iter().map(one).collect() };
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["fault", "scope", "property", "what is broken"]);
    for f in &list.faults {
        table.add_row([f.name, f.scope, f.property, f.about]);
    }
    say!("{table}");
    say!(
        "{} faults (`catcache check --fault NAME` looks for one and prints the shortest counterexample)",
        Fault::ALL.len()
    );
    write_json(json, &list)
}

/// Runs them. `whole`: all quick scopes run, so every branch of every step must have been taken.
pub fn run(record: &mut Record, scopes: &[Scope], faults: &[Fault], whole: bool, stop: &Arc<AtomicBool>) {
    let coverage = Coverage::default();
    let progress = bar((scopes.len() + faults.len()) as u64, "check");
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
    for (done, fault) in faults.iter().enumerate() {
        // Relaxed: see `stop_on_interrupt`.
        if stop.load(Ordering::Relaxed) {
            record.skip(&format!("{} of {} faults of the model (interrupted)", faults.len() - done, faults.len()));
            break;
        }
        progress.set_message(fault.name());
        let verdict = check::fault(*fault);
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
        progress.inc(1);
    }
    progress.finish_and_clear();
    let missing: Vec<&str> = coverage.missing().into_iter().map(|b| b.name()).collect();
    if whole && !missing.is_empty() && !stop.load(Ordering::Relaxed) {
        record.fail(format!("no scope takes these branches of the model: {}", missing.join("; ")));
    }
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

/// The pairs of features that meet in no scope.
fn pairs() -> String {
    let scopes = Scope::all();
    let meet = |a, b| scopes.iter().any(|s| s.features.contains(&a) && s.features.contains(&b));
    let all = Feature::ALL;
    let mut apart = Vec::new();
    for (i, a) in all.iter().enumerate() {
        apart.extend(all[i + 1..].iter().filter(|b| !meet(*a, **b)).map(|b| format!("{a:?}+{b:?}")));
    }
    let of = all.len() * (all.len() - 1) / 2;
    format!("pairs of features that meet in some scope: {}/{of}; apart: {}", of - apart.len(), apart.join(" "))
}
