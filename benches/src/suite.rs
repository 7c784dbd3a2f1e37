//! The whole benchmark: what is measured, how often, and what the figures are to reach.
//!
//! Subjects are measured side by side: in each round the workloads come in a new order, and for each workload all subjects
//! take their turns one right after the other, in a new order too, each with a new cache. Ratios are formed within the
//! round. A stage makes as many rounds as its time allows, at least one; every figure
//! of a stage has the same number of rounds, and its note says how many. Between two turns somebody may break it off.

mod counts;
mod hits;
pub(crate) mod memory;
mod processes;
mod runner;
mod storms;
mod strategies;
mod traces;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use runner::{Bounds, Runner};

use crate::random::Random;
use crate::report::{NotPlayed, Report};
use crate::rivals::Failure;
use crate::script::Script;
use crate::trace::{Trace, packed};
use crate::work::hits::Mix;

/// Numbers of backends that replay a trace.
pub const BACKENDS: [u32; 4] = [1, 2, 8, 48];

/// Lookups of a turn of a trace in the quick form, all backends together: longer traces are cut.
const LOOKUPS_MOST: usize = 48_000;

/// How much is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Less than a minute on two cores.
    Quick,
    /// Ten rounds of everything, or as many as a quarter of an hour for each stage allows; no trace is cut.
    Full,
}

impl Form {
    const fn bounds(self, quick_rounds: usize, quick_seconds: u64) -> Bounds {
        match self {
            Form::Quick => Bounds { rounds: quick_rounds, time: Duration::from_secs(quick_seconds) },
            Form::Full => Bounds { rounds: 10, time: Duration::from_secs(900) },
        }
    }

    /// How many lookups each of so many backends makes at most.
    const fn lookups(self, backends: u32) -> usize {
        match self {
            Form::Quick => LOOKUPS_MOST / backends as usize,
            Form::Full => usize::MAX,
        }
    }

    /// How long one thread and two threads hit in one turn.
    const fn turn(self) -> (Duration, Duration) {
        match self {
            Form::Quick => (Duration::from_millis(40), Duration::from_millis(120)),
            Form::Full => (Duration::from_millis(100), Duration::from_millis(400)),
        }
    }
}

/// What to measure, and with what.
pub struct Options<'a> {
    /// How much.
    pub form: Form,
    /// Which parts, in whatever order; they run in the order of [`Stage::ALL`].
    pub stages: &'a [Stage],
    /// This program, for the runs under valgrind and the worker processes. It must pass its words to [`hidden`](crate::hidden).
    pub program: PathBuf,
    /// Set to break off; looked at between two turns.
    pub stop: &'a AtomicBool,
}

/// How far the benchmark is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Which part is running.
    pub stage: &'static str,
    /// Of the whole, from 0 to 1.
    pub done: f64,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Instructions and stores, counted.
    Instructions,
    /// Hits, by one thread and by two.
    Hits,
    /// Hits of everything that one could take.
    Rivals,
    /// The locks of the shared table.
    Strategies,
    /// Hits and shared answers by processes.
    Processes,
    /// A connection storm.
    Storm,
    /// What PostgreSQL asked, replayed.
    Traces,
    /// What backends hold.
    Memory,
}

impl Stage {
    /// All of them, in the order in which they run.
    pub const ALL: [Stage; 8] = [
        Stage::Instructions,
        Stage::Hits,
        Stage::Rivals,
        Stage::Strategies,
        Stage::Processes,
        Stage::Storm,
        Stage::Traces,
        Stage::Memory,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Instructions => "instructions",
            Stage::Hits => "hits",
            Stage::Rivals => "rivals",
            Stage::Strategies => "strategies",
            Stage::Processes => "processes",
            Stage::Storm => "storm",
            Stage::Traces => "traces",
            Stage::Memory => "memory",
        }
    }

    /// The stage of that name.
    pub fn named(name: &str) -> Option<Stage> {
        Stage::ALL.into_iter().find(|stage| stage.name() == name)
    }

    /// How long it takes in the quick form, about: for the progress bar.
    const fn seconds(self) -> f64 {
        match self {
            Stage::Instructions => 11.0,
            Stage::Hits => 12.0,
            Stage::Rivals => 6.0,
            Stage::Strategies => 5.0,
            Stage::Processes => 4.0,
            Stage::Storm => 3.0,
            Stage::Traces => 10.0,
            Stage::Memory => 4.0,
        }
    }
}

/// Measures what is asked for.
///
/// # Errors
/// A subject failed or answered wrongly, a worker process died or hung, or the archive of traces is broken. That valgrind is
/// not installed, or failed, is no error: the rows say so.
pub fn run(options: &Options<'_>, progress: &mut dyn FnMut(&Progress)) -> Result<Report, Failure> {
    let start = Instant::now();
    let form = options.form;
    let stages: Vec<Stage> = Stage::ALL.into_iter().filter(|stage| options.stages.contains(stage)).collect();
    let mut runner =
        Runner { stop: options.stop, progress, stages: stages.clone(), at: 0, random: Random::new(start_seed()) };
    let (traces, zipf) = (packed()?, Mix::zipf());
    let scripts: Vec<Script> = traces.iter().map(Script::new).collect();
    let mut rows = Vec::new();
    for (at, stage) in stages.iter().enumerate() {
        if runner.stopped() {
            break;
        }
        runner.at = at;
        runner.tell(0.0);
        rows.extend(match stage {
            Stage::Instructions => counts::rows(&options.program, &mut runner),
            Stage::Hits => hits::rows(&mut runner, form, &[&zipf, &Mix::hot()])?,
            Stage::Rivals => hits::rival_rows(&mut runner, form, &zipf)?,
            Stage::Strategies => strategies::rows(&mut runner, form, &zipf)?,
            Stage::Processes => processes::rows(&options.program, &mut runner, form, &zipf)?,
            Stage::Storm => storms::rows(&mut runner, form, &traces)?,
            Stage::Traces => traces::rows(&mut runner, form, &traces)?,
            Stage::Memory => memory::rows(&mut runner, &scripts, &zipf)?,
        });
        runner.tell(1.0);
    }
    let played = stages.contains(&Stage::Traces) || stages.contains(&Stage::Memory);
    let not_played = if played { scripts.iter().map(NotPlayed::of).collect() } else { Vec::new() };
    Ok(Report { rows, not_played, broken_off: runner.stopped(), seconds: start.elapsed().as_secs_f64() })
}

/// A seed of its own for each run, so that orders differ; no figure depends on it.
fn start_seed() -> u64 {
    crate::measure::wall_ns()
}

/// The name of a trace's row.
fn trace_name(script: &Script, backends: u32) -> String {
    format!("trace {}, {backends} backend{}", script.name, if backends == 1 { "" } else { "s" })
}

/// The trace of that name.
fn trace_named<'a>(traces: &'a [Trace], name: &str) -> Result<&'a Trace, Failure> {
    traces.iter().find(|trace| trace.name == name).ok_or_else(|| format!("there is no trace {name}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_name_stages() {
        for stage in Stage::ALL {
            assert_eq!(Stage::named(stage.name()), Some(stage));
            assert!(stage.seconds() > 0.0);
        }
        assert_eq!(Stage::named("everything"), None);
    }

    /// What is not asked for is not measured.
    #[test]
    fn only_the_stages_asked_for_run() {
        let stop = AtomicBool::new(false);
        let options =
            Options { form: Form::Quick, stages: &[Stage::Memory], program: PathBuf::from("none"), stop: &stop };
        let mut told = Vec::new();
        let report = run(&options, &mut |progress: &Progress| told.push(progress.clone())).unwrap();
        assert!(told.iter().all(|progress| progress.stage == "memory") && told.last().unwrap().done == 1.0);
        assert!(report.rows.iter().any(|row| row.metric == memory::MEMORY));
        assert!(!report.rows.iter().any(|row| row.metric.starts_with("hit") || row.metric == "lookup"));
        assert!(!report.not_played.is_empty());
        let nothing = run(&Options { stages: &[], ..options }, &mut |_| {}).unwrap();
        assert!(nothing.rows.is_empty() && nothing.not_played.is_empty());
    }
}
