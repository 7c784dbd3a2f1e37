//! A worker: one backend of each litmus file that it is told to run.
//!
//! Its standard input is lines of JSON, a [`Task`] each; to each it answers with one line. When the input ends it ends, at
//! once and wherever it is: so it can't outlive the process that started it.

use super::ledger::{ANOTHER, Entry, Ledger, Meeting, Share};
use crate::desk::Desk;
use crate::litmus::Litmus;
use crate::quiet;
use crate::refinement::Map;
use crate::rules::Rule;
use crate::runtimes::real::body;
use serde::{Deserialize, Serialize};
use shared_catcache::Shared;
use shared_catcache::backend::MemoryCatalog;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Stands before what a worker says, whatever else its output holds.
pub const SAYS: &str = "catcache worker: ";

/// Is set for a worker.
pub const WORKER: &str = "CATCACHE_WORKER";

/// Some runs of one litmus file.
#[derive(Debug, Serialize, Deserialize)]
pub struct Task {
    /// The file's name.
    pub file: String,
    /// The file.
    pub text: String,
    /// The backend to be.
    pub me: u8,
    /// Number of the first run, over all tasks: the runs differ in how often the processes pause.
    pub first: usize,
    /// The rule that is switched off.
    pub broken: Option<String>,
    /// Segment and catalog of each run.
    pub places: Vec<(PathBuf, PathBuf)>,
    /// The ledger of all.
    pub ledger: PathBuf,
    /// How long to wait for the others.
    pub patience: Duration,
}

/// What a worker answers: nothing, or what went wrong.
pub type Answer = Result<(), String>;

/// Serves until standard input ends, and then ends the process.
pub fn serve() -> ! {
    let (send, tasks) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                break;
            }
        }
        std::process::exit(0);
    });
    for line in tasks {
        let answer: Answer =
            serde_json::from_str(&line).map_err(|e| format!("not a task: {e}")).and_then(|task: Task| {
                quiet::catch(|| work(&task)).unwrap_or_else(|panic| Err(format!("panicked: {panic}")))
            });
        let said = serde_json::to_string(&answer).unwrap_or_default();
        let mut out = std::io::stdout();
        if writeln!(out, "{SAYS}{said}").and_then(|()| out.flush()).is_err() {
            break;
        }
    }
    std::process::exit(0);
}

fn work(task: &Task) -> Answer {
    let litmus = Litmus::parse(&task.file, &task.text).map_err(|e| e.to_string())?;
    let named = |name: &String| Rule::ALL.iter().copied().find(|rule| rule.name() == name);
    let broken = match &task.broken {
        Some(name) => Some(named(name).ok_or_else(|| format!("{name} is not a rule"))?),
        None => None,
    };
    let mut ledger = Ledger::open(&task.ledger).map_err(|e| format!("the ledger: {e}"))?;
    for run in 0..task.places.len() {
        let number = (task.first + run) as u64;
        let seed = number << 8 | u64::from(task.me);
        let share = Arc::new(Share::new(ledger, run as u16, task.me, ONE_IN[number as usize % ONE_IN.len()], seed));
        let ran = quiet::catch(|| once(task, &litmus, run, &share, broken));
        let ran = ran.unwrap_or_else(|panic| Err(format!("panicked: {panic}")));
        if ran.is_err() {
            // The others must not wait for this one.
            share.append(Entry::Failed);
        }
        ran?;
        ledger = Arc::into_inner(share).ok_or("a backend has outlived its run")?.into_ledger()?;
    }
    Ok(())
}

/// In the runs in turn, processes pause before one step in so many; 0: never, so that the kernel alone decides.
const ONE_IN: [u64; 6] = [2, 0, 4, 8, 3, 32];

/// One run of the program.
fn once(task: &Task, litmus: &Litmus, run: usize, share: &Arc<Share>, broken: Option<Rule>) -> Answer {
    let (segment, catalog) = &task.places[run];
    let shared = Shared::attach(segment).map_err(|e| e.to_string())?;
    let catalog = MemoryCatalog::in_file(catalog).map_err(|e| format!("the catalog: {e}"))?;
    let backends = litmus.backends.len();
    let desk = Desk::of_process(&Map::new(litmus).program, Arc::<Share>::clone(share));
    let actor = body::actor(litmus, task.me.into(), &shared, &catalog, &desk, broken)?;
    share.append(Entry::Ready);
    meet(share, Meeting::Ready, backends, task.patience)?;
    // Not in step: a different head start in each run.
    for _ in 0..((task.first + run) * (usize::from(task.me) + 1) * 37) % 400 {
        std::hint::spin_loop();
    }
    let actor = actor.run();
    let board = desk.board();
    if let Some(failure) = &board.failure {
        return Err(failure.clone());
    }
    for answered in &board.places[usize::from(task.me)].answers {
        share.append(Entry::Answered(*answered));
    }
    drop(board);
    share.append(Entry::Finished);
    // They detach when all have ended: it belongs to no program.
    meet(share, Meeting::Finished, backends, task.patience)?;
    drop(actor);
    Ok(())
}

fn meet(share: &Share, meeting: Meeting, all: usize, patience: Duration) -> Answer {
    let start = Instant::now();
    while !share.met(meeting, all as u32)? {
        if start.elapsed() > patience {
            return Err(format!("{ANOTHER}: the others are not {meeting:?}"));
        }
        std::thread::yield_now();
    }
    Ok(())
}
