//! `conform FILE --explain OUTCOME`: how an outcome comes about, or which rules forbid it.

use super::record::{write_json, write_whole};
use super::{bar, workers};
use anyhow::{Context, Result, anyhow};
use catcache_conformance::explain::{self, Explanation, Forbidden, Run};
use catcache_conformance::litmus::{Clause, Condition, Litmus, Wanted};
use catcache_conformance::outcomes::{self, Outcome};
use catcache_conformance::suite::Prepared;
use catcache_model::coherence::Fault;
use catcache_model::diagram::{self, Told};
use catcache_model::search::Undecided;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// The report, one object.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// The litmus file.
    file: String,
    /// The outcome that was asked for, as it was typed.
    outcome: String,
    /// Does the model allow it? null: not known.
    allowed: Option<bool>,
    /// The shortest run to it; of the model, or with `fault`.
    steps: Vec<StepField>,
    /// What that run answers.
    ends_with: Option<String>,
    /// The broken rule with which the run comes about; null: none is broken, or none was found.
    fault: Option<&'static str>,
    /// All broken rules with which it comes about, the shortest run first.
    faults: Vec<Broken>,
    /// Broken rules whose search was given up at its bound.
    given_up: Vec<&'static str>,
    /// The same answers as the model does allow them, where only an `after` stands in the way.
    otherwise: Option<String>,
    /// "allowed", "forbidden", "undecided" or "interrupted".
    verdict: &'static str,
}

/// A step of the run.
#[derive(Debug, Serialize)]
struct StepField {
    backend: String,
    operation: Option<String>,
    step: String,
    saw: Option<String>,
    answer: Option<String>,
    breaks: Option<&'static str>,
}

/// A rule whose breaking lets the outcome come about.
#[derive(Debug, Serialize)]
struct Broken {
    name: &'static str,
    about: &'static str,
    steps: usize,
}

/// Explains, prints, and writes what is wanted. True if there is an answer, be it "allowed" or "forbidden".
pub fn run(litmus: &Litmus, text: &str, svg: Option<&Path>, json: Option<&Path>, stop: &AtomicBool) -> Result<bool> {
    let wanted = Wanted::parse(litmus, text).map_err(|error| anyhow!("{error}\n{}", looks_like(litmus)))?;
    let progress = bar(1 + Fault::ALL.len() as u64, "explain");
    let found = explain::explain(litmus, &wanted, explain::STATES_MAX, workers(), stop, &|fault| {
        progress.set_message(fault.map_or("the model", Fault::name));
        progress.inc(1);
    });
    progress.finish_and_clear();
    let mut report = Report { file: litmus.name.clone(), outcome: text.trim().to_owned(), ..Report::default() };
    say!("{}: {}\noutcome: {}", litmus.name, litmus.title, report.outcome);
    let (shown, answered) = match &found {
        Explanation::Allowed(run) => {
            report.verdict = "allowed";
            report.allowed = Some(true);
            say!("\nallowed: the model can end so. The shortest run, {} steps:", run.actions.len());
            (Some(run), true)
        }
        Explanation::Forbidden(why) => {
            report.verdict = "forbidden";
            report.allowed = Some(false);
            forbidden(&mut report, litmus, why)
        }
        Explanation::Undecided(why) => {
            report.verdict = if *why == Undecided::Interrupted { "interrupted" } else { "undecided" };
            let advice = "ask for more of the outcome, or take operations or backends away";
            match why {
                Undecided::Interrupted => say!("\ninterrupted; no answer"),
                why => say!("\nFAILED: whether the model allows it is not known: {why}; {advice}"),
            }
            (None, false)
        }
    };
    if let Some(run) = shown {
        let steps = diagram::told(&run.program, &run.actions);
        let unnoticed = run.program.fault.is_some() && steps.iter().all(|s| s.breaks.is_none());
        say!("\n{}", diagram::columns(&run.program, &run.actions).trim_end());
        if unnoticed {
            say!("     breaks no property");
        }
        let ends_with = outcomes::text(litmus, &run.outcome);
        say!("     ends with  {ends_with}");
        if run.stuck {
            say!("     in a deadlock: nobody can go on, and not all have finished");
        }
        report.ends_with = Some(ends_with);
        report.steps = steps.into_iter().map(StepField::from).collect();
        if let Some(path) = svg {
            write_whole(path, &diagram::svg(&run.program, &run.actions))
                .with_context(|| format!("the diagram could not be written to {}", path.display()))?;
        }
    } else if let Some(path) = svg {
        say!("there is no run to draw; {} was not written", path.display());
    }
    say!("\nverdict: {}", report.verdict);
    write_json(json, &report)?;
    Ok(answered)
}

/// Says why not; the run to be shown, and whether that is an answer.
fn forbidden<'w>(report: &mut Report, litmus: &Litmus, why: &'w Forbidden) -> (Option<&'w Run>, bool) {
    say!("\nforbidden: no run of the model ends so.");
    report.otherwise = why.otherwise.as_ref().map(|o| outcomes::text(litmus, o));
    if let Some(otherwise) = &report.otherwise {
        say!(
            "Only its `after`s stand in the way; the model does end with:\n  {otherwise}\n(conditions such as `{}` leave \
             them open)",
            why.otherwise.as_ref().map(|o| litmus.clause_text(&as_clause(o))).unwrap_or_default()
        );
    }
    report.given_up = why.given_up.iter().map(|f| f.name()).collect();
    let given_up = format!(
        "with these broken rules the search was given up after {} states: {}",
        explain::STATES_MAX,
        report.given_up.join(", ")
    );
    let Some((fault, run)) = why.by.first() else {
        if why.given_up.is_empty() && report.otherwise.is_none() {
            say!(
                "No single broken rule lets it come about either: the programs themselves rule it out, it takes two \
                 broken rules, or the breach does not show in these answers."
            );
        } else if !why.given_up.is_empty() {
            say!("\nFAILED: which rule forbids it is not known: {given_up}");
        }
        return (None, why.given_up.is_empty());
    };
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["fault", "what is broken", "steps"]);
    for (fault, run) in &why.by {
        table.add_row([fault.name().to_owned(), fault.about().trim().to_owned(), run.actions.len().to_string()]);
        report.faults.push(Broken { name: fault.name(), about: fault.about().trim(), steps: run.actions.len() });
    }
    say!("It takes all of these rules to forbid it; each fault, alone, lets it come about:\n{table}");
    if !why.given_up.is_empty() {
        say!("Perhaps others: {given_up}");
    }
    report.fault = Some(fault.name());
    say!("\nThe shortest run is with {}, {} steps:", fault.name(), run.actions.len());
    (Some(run), true)
}

impl From<Told> for StepField {
    fn from(told: Told) -> StepField {
        StepField {
            backend: told.backend,
            operation: told.operation,
            step: told.step,
            saw: Some(told.saw).filter(|saw| !saw.is_empty()),
            answer: told.answer,
            breaks: told.breaks.map(|p| p.name()),
        }
    }
}

/// What an outcome of this file looks like, for somebody who has typed something else.
fn looks_like(litmus: &Litmus) -> String {
    const SHOWN: usize = 4;
    if litmus.lookups() == 0 {
        return format!("the backends of `{}` look nothing up; their only outcome is `no lookups`", litmus.name);
    }
    let Ok(file) = Prepared::new(litmus.clone()) else {
        return "an outcome looks like `reader: v0, v1 after writer   writer: v1`, or in part like \
                `reader.1 = v0 and writer = v1`"
            .into();
    };
    let (shown, left) = (file.allowed.iter().take(SHOWN), file.allowed.len().saturating_sub(SHOWN));
    let mut text = format!("an outcome of `{}` looks like one of these, or some of its backends:\n", litmus.name);
    for outcome in shown {
        text += &format!("  {}\n", outcomes::text(litmus, outcome));
    }
    if left > 0 {
        text += &format!("  (`catcache conform {}` prints {left} more)\n", litmus.name);
    }
    let clause = litmus.never.iter().chain(&litmus.sometimes).next().cloned();
    let clause = clause.or_else(|| file.allowed.first().map(as_clause));
    text += "or says of some lookups what they answered:\n";
    text + &clause.map(|c| format!("  {}", litmus.clause_text(&c))).unwrap_or_default()
}

/// The answers of an outcome, as conditions.
fn as_clause(outcome: &Outcome) -> Clause {
    let answers = |(backend, answers): (usize, &Vec<catcache_conformance::litmus::Answer>)| {
        let one = |(lookup, a): (usize, &catcache_conformance::litmus::Answer)| Condition {
            backend,
            lookup,
            value: a.value,
            after: None,
        };
        answers.iter().enumerate().map(one).collect::<Vec<_>>()
    };
    Clause { conditions: outcome.iter().enumerate().flat_map(answers).collect() }
}
