//! `conform`: the code, held to the model.

use super::record::{Explored, FaultField, LitmusField, OracleField, Record, SlotField};
use super::{bar, workers};
use anyhow::{Context, Result, anyhow};
use catcache_conformance::lifetime;
use catcache_conformance::litmus::{self, Litmus};
use catcache_conformance::oracle::{self, Plan};
use catcache_conformance::outcomes;
use catcache_conformance::seal::{self, Passed, Seal};
use catcache_conformance::suite::{self, Form, Pins, Prepared, Verdict};
use comfy_table::{Table, presets};
use std::sync::atomic::{AtomicBool, Ordering};

/// Rounds of the oracle's plans, each backend.
const ORACLE_ROUNDS: [u32; 2] = [2_000, 200_000];

/// Runs the suite: all shipped files, all faults, the oracle, and then the seal; or, if `chosen` is not empty, those files
/// alone, without a seal.
pub fn run(record: &mut Record, chosen: Vec<Litmus>, full: bool, stop: &AtomicBool) -> Result<()> {
    let pins = Pins::shipped().map_err(|e| anyhow!(e))?;
    let whole = chosen.is_empty();
    let shipped = litmus::shipped().context("a shipped litmus file is broken")?;
    let own: Vec<String> =
        chosen.iter().filter(|l| !pins.litmus.contains_key(&l.name)).map(|l| l.name.clone()).collect();
    let texts = if whole { shipped } else { chosen };
    let files = texts
        .into_iter()
        .map(|l| {
            let name = l.name.clone();
            Prepared::new(l).map_err(|e| anyhow!("{name}: {e}"))
        })
        .collect::<Result<Vec<_>>>()?;
    if whole {
        seal::Place::here().of_one_checkout()?;
        // A seal speaks of the last run; until this one has passed there is none.
        Seal::revoke()?;
    }
    let form = if full { Form::Full } else { Form::Quick };
    let progress = bar(files.len() as u64, "conform");
    let verdicts = suite::run_all(&files, form, &pins, workers(), stop, &|v: &Verdict| {
        progress.set_message(v.file.clone());
        progress.inc(1);
    });
    progress.finish_and_clear();
    skipped(record, "litmus files", verdicts.len(), files.len());
    for v in verdicts {
        // A file that is not one of ours has no pins to compare with.
        let failure = v.failure.clone().filter(|e| !(own.contains(&v.file) && e.starts_with("the file is not pinned")));
        if let Some(failure) = &failure {
            record.fail(format!("{}: {failure}", v.file));
        }
        let allowed = files.iter().find(|f| f.litmus.name == v.file);
        record.litmus.push(LitmusField {
            file: v.file.clone(),
            title: v.title.clone(),
            allowed: v.counts.outcomes,
            seen_threads: [v.threads.seen, v.threads.allowed],
            seen_processes: [v.processes.seen, v.processes.allowed],
            edges: v.counts.edges,
            replayed: v.replayed.edges,
            loom: Explored {
                bound: v.loom_bound,
                complete: failure.is_none() && !v.loom.broken_off,
                executions: v.loom.executions,
                edges: v.loom.edges,
            },
            shuttle: Explored {
                bound: None,
                complete: false,
                executions: v.shuttle.executions,
                edges: v.shuttle.edges,
            },
            verdict: failure.as_deref().map_or("held", |f| f.lines().next().unwrap_or("failed")).to_owned(),
            outcomes: allowed
                .map(|f| f.allowed.iter().map(|o| outcomes::text(&f.litmus, o)).collect())
                .unwrap_or_default(),
        });
    }
    if !whole {
        return Ok(());
    }
    slots(record, stop);
    faults(record, &files, &pins, stop);
    run_oracle(record, full, stop);
    // Relaxed: see `stop_on_interrupt`.
    if record.held() && !stop.load(Ordering::Relaxed) {
        seal_it(record, full)?;
    }
    Ok(())
}

/// The real entries and the real slab, held to the model of the life of a slot.
fn slots(record: &mut Record, stop: &AtomicBool) {
    let verdicts = lifetime::run_all(stop);
    let of = lifetime::Scenario::all();
    skipped(record, "scenarios of the life of a slot", verdicts.len(), of.len());
    for (v, scenario) in verdicts.into_iter().zip(of) {
        if let Some(why) = &v.failure {
            record.fail(format!("{}: {why}", v.name));
        }
        let explored = |a: lifetime::Accepted, bound, complete| Explored {
            bound,
            complete,
            executions: a.executions,
            edges: a.edges,
        };
        record.slots.push(SlotField {
            scenario: v.name,
            loom: explored(v.loom, scenario.bound, v.failure.is_none()),
            shuttle: explored(v.shuttle, None, false),
            edges: v.loom.of,
            verdict: v.failure.map_or("held".into(), |why| why.lines().next().unwrap_or("failed").to_owned()),
        });
    }
}

fn faults(record: &mut Record, files: &[Prepared], pins: &Pins, stop: &AtomicBool) {
    let progress = bar(catcache_conformance::rules::Rule::ALL.len() as u64, "faults");
    let verdicts = suite::faults(files, pins, workers(), stop, &|v| {
        progress.set_message(v.rule.name());
        progress.inc(1);
    });
    progress.finish_and_clear();
    skipped(record, "faults of the code", verdicts.len(), catcache_conformance::rules::Rule::ALL.len());
    for v in verdicts {
        if v.caught_by.is_none() {
            record.fail(format!("the rule {} was switched off in the code, and no litmus file noticed", v.rule.name()));
        }
        record.faults.push(FaultField {
            name: v.rule.name().into(),
            side: "code",
            caught_by: v.caught_by.map(|(file, part)| format!("{file} ({part})")),
            columns: String::new(),
        });
    }
}

fn run_oracle(record: &mut Record, full: bool, stop: &AtomicBool) {
    let plans = Plan::all(ORACLE_ROUNDS[usize::from(full)], 1);
    let count = plans.len();
    let progress = bar(count as u64, "oracle");
    for plan in plans {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("{} readers, {} writers", plan.readers, plan.writers);
        let verdict = match oracle::run(&plan) {
            Ok(outcome) => format!("held: {}, {} resets, {} restarts", outcome.tally, outcome.resets, outcome.restarts),
            Err(error) => {
                record.fail(format!("oracle, {name}: {error}"));
                error.to_string()
            }
        };
        record.oracle.push(OracleField { plan: name, verdict });
        progress.inc(1);
    }
    progress.finish_and_clear();
    skipped(record, "plans of the oracle", record.oracle.len(), count);
}

/// Notes how many were not run. Only an interruption can be the reason.
fn skipped(record: &mut Record, what: &str, run: usize, of: usize) {
    if run < of {
        record.skip(&format!("{} of {of} {what} (interrupted)", of - run));
    }
}

fn seal_it(record: &Record, full: bool) -> Result<()> {
    let count = |what: &str, done: usize, of: usize| Passed { what: what.into(), done: done as u64, of: of as u64 };
    let files = record.litmus.len();
    let (replayed, edges) = record.litmus.iter().fold((0, 0), |(r, e), l| (r + l.replayed, e + l.edges));
    let code = record.faults.iter().filter(|f| f.side == "code").count();
    let passed = vec![
        count("litmus files", files, files),
        count("edges replayed", replayed, edges),
        count("faults of the code caught", code, code),
        count("scenarios of the life of a slot", record.slots.len(), record.slots.len()),
        count("oracle plans", record.oracle.len(), record.oracle.len()),
    ];
    let form = if full { seal::Form::Full } else { seal::Form::Quick };
    Seal::new(form, passed).write()?;
    Ok(())
}

/// Finds the bounds and counts to be pinned, and writes them into the checkout.
pub fn pin(chosen: &[Litmus], stop: &AtomicBool) -> Result<bool> {
    let mut pins = Pins::shipped().map_err(|e| anyhow!(e))?;
    let texts = if chosen.is_empty() { litmus::shipped()? } else { chosen.to_vec() };
    let mut held = true;
    let mut files = Vec::new();
    for text in texts {
        // Relaxed: see `stop_on_interrupt`.
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let file = Prepared::new(text).map_err(|e| anyhow!(e))?;
        // A bound that was chosen stays: it may have been raised by hand.
        let bound = pins.litmus.get(&file.litmus.name).map_or_else(|| file.loom_bound(), |pin| pin.loom_bound);
        let verdict = file.run(Form::Quick, Some(&suite::Pin { loom_bound: bound, ..suite::Pin::default() }));
        match verdict.failure.filter(|e| !e.starts_with("its counts have changed")) {
            Some(failure) => {
                held = false;
                say!("{}: not pinned: {failure}", verdict.file);
            }
            None => {
                say!("{}: {:?}", verdict.file, verdict.counts);
                pins.litmus.insert(verdict.file, verdict.counts);
            }
        }
        files.push(file);
    }
    if chosen.is_empty() {
        pins.litmus.retain(|name, _| files.iter().any(|f| f.litmus.name == *name));
        for v in suite::faults(&files, &pins, workers(), stop, &|_| {}) {
            match v.caught_by {
                Some((file, part)) => {
                    say!("fault {}: caught by {file} ({part})", v.rule.name());
                    pins.faults.insert(v.rule.name().into(), file);
                }
                None => {
                    held = false;
                    say!("fault {}: nothing catches it", v.rule.name());
                }
            }
        }
    }
    if stop.load(Ordering::Relaxed) {
        say!("interrupted; nothing was pinned");
        return Ok(false);
    }
    say!("pinned in {}; build again to use them", pins.write().map_err(|e| anyhow!(e))?);
    Ok(held)
}

/// Prints it; `one`: a single file, with its outcomes.
pub fn show(record: &Record, one: bool) {
    if record.litmus.is_empty() {
        return;
    }
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY).set_header([
        "litmus file",
        "outcomes",
        "on threads",
        "on processes",
        "replayed",
        "loom: bound, runs, edges",
        "shuttle: runs, edges",
        "verdict",
    ]);
    for l in &record.litmus {
        let bound = l.loom.bound.map_or("none".into(), |b| b.to_string());
        table.add_row([
            l.file.clone(),
            l.allowed.to_string(),
            format!("{}/{}", l.seen_threads[0], l.seen_threads[1]),
            format!("{}/{}", l.seen_processes[0], l.seen_processes[1]),
            format!("{}/{}", l.replayed, l.edges),
            format!("{bound}, {}{}, {}", if l.loom.complete { "" } else { "first " }, l.loom.executions, l.loom.edges),
            format!("{}, {}", l.shuttle.executions, l.shuttle.edges),
            l.verdict.chars().take(60).collect(),
        ]);
    }
    say!("{table}");
    if one {
        for l in &record.litmus {
            say!("{}\nthe model allows:", l.title);
            for outcome in &l.outcomes {
                say!("  {outcome}");
            }
        }
    }
    let (replayed, edges) = record.litmus.iter().fold((0, 0), |(r, e), l| (r + l.replayed, e + l.edges));
    let held = record.litmus.iter().filter(|l| l.verdict == "held").count();
    say!("litmus files held: {held}/{}; edges replayed in lock step: {replayed}/{edges}", record.litmus.len());
    if !record.slots.is_empty() {
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY).set_header([
            "life of a slot",
            "loom: bound, runs, edges",
            "shuttle: runs, edges",
            "edges of the model",
            "verdict",
        ]);
        for s in &record.slots {
            let bound = s.loom.bound.map_or("none".into(), |b| b.to_string());
            table.add_row([
                s.scenario.to_owned(),
                format!("{bound}, {}, {}", s.loom.executions, s.loom.edges),
                format!("{}, {}", s.shuttle.executions, s.shuttle.edges),
                s.edges.to_string(),
                s.verdict.chars().take(60).collect(),
            ]);
        }
        say!("{table}");
    }
    let code: Vec<&FaultField> = record.faults.iter().filter(|f| f.side == "code").collect();
    if !code.is_empty() {
        let caught = code.iter().filter(|f| f.caught_by.is_some()).count();
        say!("faults of the code caught: {caught}/{}", code.len());
        for fault in &code {
            say!("  {:<30} {}", fault.name, fault.caught_by.as_deref().unwrap_or("NOT CAUGHT"));
        }
    }
    for o in &record.oracle {
        say!("oracle, {}: {}", o.plan, o.verdict);
    }
}
