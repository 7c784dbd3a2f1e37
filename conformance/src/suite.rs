//! The whole suite: each litmus file through outcomes, replay, shuttle, loom, real threads and real processes; each fault
//! of the code; and what all of that is pinned to.
//!
//! Everything but what real threads and processes happen to do is deterministic, so its counts are pinned in `conformance/pins.json`.
//! A count that changes is a changed model, code or simulator; look at why, then `catcache conform --pin`.

use crate::acceptance::{Accepted, Explore, explore};
use crate::litmus::Litmus;
use crate::outcomes::{self, Outcome, Seen};
use crate::refinement::Map;
use crate::replay::{self, Replayed};
use crate::rules::Rule;
use crate::runtimes::processes::Pool;
use catcache_model::graph::Graph;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Largest graph that a litmus file may have, in states.
pub const STATES_MAX: usize = 200_000;

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// What `verify` and CI run.
    Quick,
    /// Many times more random runs, and loom with its bound raised by one, up to 30,000 runs a file.
    Full,
}

impl Form {
    fn random_runs(self) -> usize {
        match self {
            Form::Quick => 150,
            Form::Full => 20_000,
        }
    }

    fn thread_runs(self) -> usize {
        match self {
            Form::Quick => 200,
            Form::Full => 10_000,
        }
    }
}

/// The counts of one file that must not change unnoticed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// States of its graph.
    pub states: usize,
    /// Edges of its graph.
    pub edges: usize,
    /// Outcomes that the model allows.
    pub outcomes: usize,
    /// Preemptions that loom may make in a run; `None`: any number.
    pub loom_bound: Option<usize>,
    /// Runs of loom with that bound.
    pub loom_executions: usize,
    /// Edges that they take.
    pub loom_edges: usize,
    /// Edges that the random runs of the quick form take.
    pub shuttle_edges: usize,
}

/// Everything pinned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pins {
    /// By file.
    pub litmus: BTreeMap<String, Pin>,
    /// For each rule that can be switched off in the code, the file that catches it.
    pub faults: BTreeMap<String, String>,
}

impl Pins {
    /// Those that this crate was built with.
    ///
    /// # Errors
    /// The file is not what it should be; with the place.
    pub fn shipped() -> Result<Pins, String> {
        serde_json::from_str(include_str!("../pins.json")).map_err(|e| format!("conformance/pins.json: {e}"))
    }
}

/// What the suite says of one file.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The file.
    pub file: String,
    /// Its title.
    pub title: String,
    /// Counts, to be compared with the pinned ones.
    pub counts: Pin,
    /// What replay covered.
    pub replayed: Replayed,
    /// What loom covered.
    pub loom: Accepted,
    /// loom's bound there.
    pub loom_bound: Option<usize>,
    /// What shuttle covered: random, walks and PCT together.
    pub shuttle: Accepted,
    /// What real threads did.
    pub threads: Seen,
    /// What real processes did, if [`run_all`] has let them.
    pub processes: Seen,
    /// Wall time.
    pub took: Duration,
    /// The first thing that did not hold.
    pub failure: Option<String>,
}

impl Verdict {
    /// Did everything hold?
    pub fn held(&self) -> bool {
        self.failure.is_none()
    }
}

/// A file that is ready to be run: its graph and its outcomes.
pub struct Prepared {
    /// The file.
    pub litmus: Litmus,
    /// Its program.
    pub map: Arc<Map>,
    /// Its graph.
    pub graph: Arc<Graph>,
    /// What the model allows.
    pub allowed: BTreeSet<Outcome>,
}

impl Prepared {
    /// Explores a file.
    ///
    /// # Errors
    /// Its graph is too large.
    pub fn new(litmus: Litmus) -> Result<Prepared, String> {
        let map = Arc::new(Map::new(&litmus));
        let graph = Graph::explore(&map.program, STATES_MAX).map_err(|e| e.to_string())?;
        let allowed = outcomes::allowed(&graph);
        Ok(Prepared { litmus, map, graph: Arc::new(graph), allowed })
    }

    /// A shortest run to a state, as columns.
    fn columns_to(&self, state: u32) -> String {
        let actions: Vec<_> = self.graph.path_to(state).iter().map(|e| self.graph.edges[*e].action).collect();
        catcache_model::diagram::columns(&self.map.program, &actions)
    }

    /// The model's side: properties, clauses, deadlock, progress.
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn model_holds(&self) -> Result<(), String> {
        if let Some(state) = self.graph.states.iter().position(|s| s.broken.is_some()) {
            return Err(format!("the model itself breaks a property\n{}", self.columns_to(state as u32)));
        }
        if let Some(state) = self.graph.deadlock() {
            let columns = self.columns_to(state);
            return Err(format!("the model deadlocks: nobody can go on, and not all have finished\n{columns}"));
        }
        if let Some(state) = self.graph.cycle() {
            return Err(format!(
                "the model need not end: it can come back to where it is now\n{}",
                self.columns_to(state)
            ));
        }
        outcomes::clauses(&self.litmus, &self.allowed)
    }

    /// Runs the file through everything.
    pub fn run(&self, form: Form, pin: Option<&Pin>) -> Verdict {
        let start = Instant::now();
        let bound = pin.map_or(Some(1), |p| p.loom_bound);
        let mut verdict = Verdict {
            file: self.litmus.name.clone(),
            title: self.litmus.title.clone(),
            counts: Pin {
                states: self.graph.states.len(),
                edges: self.graph.edges.len(),
                outcomes: self.allowed.len(),
                loom_bound: bound,
                ..Pin::default()
            },
            replayed: Replayed::default(),
            loom: Accepted::default(),
            loom_bound: bound,
            shuttle: Accepted::default(),
            threads: Seen::default(),
            processes: Seen::default(),
            took: Duration::ZERO,
            failure: None,
        };
        verdict.failure = self.fill(&mut verdict, form, bound).err();
        if verdict.failure.is_none() && form == Form::Quick {
            verdict.failure = pinned(&verdict.counts, pin).err();
        }
        verdict.took = start.elapsed();
        verdict
    }

    fn fill(&self, verdict: &mut Verdict, form: Form, bound: Option<usize>) -> Result<(), String> {
        self.model_holds()?;
        let Prepared { litmus, map, graph, allowed } = self;
        verdict.replayed = replay::every_edge(litmus, map, graph, None)
            .map_err(|d| format!("replay: the code left the model: {d}"))?;
        let n = form.random_runs();
        // Where nobody can be preempted PCT has nothing to do, and says so by a panic.
        let pct = (litmus.backends.len() > 1).then_some(Explore::Pct(3, n));
        for how in [Explore::Random(n), Explore::Walks(n)].into_iter().chain(pct) {
            let ran = explore(litmus, map, graph, how, None).map_err(|r| format!("shuttle, {how:?}: {r}"))?;
            verdict.shuttle.executions += ran.executions;
            verdict.shuttle.edges = verdict.shuttle.edges.max(ran.edges);
        }
        let loom = |how| explore(litmus, map, graph, how, None).map_err(|r| format!("{how:?}: {r}"));
        verdict.loom = loom(Explore::Loom(bound))?;
        verdict.counts.loom_executions = verdict.loom.executions;
        verdict.counts.loom_edges = verdict.loom.edges;
        if let (Form::Full, Some(bound)) = (form, bound) {
            // From bound to bound the runs are some ten times as many, in some files a thousand times.
            verdict.loom_bound = Some(bound + 1);
            verdict.loom = loom(Explore::LoomFirst(verdict.loom_bound, FULL_LOOM_EXECUTIONS))?;
        }
        verdict.threads = outcomes::on_threads(litmus, map, allowed, form.thread_runs())?;
        verdict.counts.shuttle_edges = verdict.shuttle.edges;
        Ok(())
    }

    /// Runs the file on real processes, too, if all else held.
    fn run_processes(&self, form: Form, pool: &mut Pool, verdict: &mut Verdict) {
        if !verdict.held() {
            return;
        }
        let start = Instant::now();
        match pool.run(&self.litmus, &self.map, &self.allowed, form.thread_runs(), None) {
            Ok(seen) => verdict.processes = seen,
            Err(why) => verdict.failure = Some(why),
        }
        verdict.took += start.elapsed();
    }

    /// Is a fault of the code caught by this file? By which part, if so.
    pub fn catches(&self, rule: Rule) -> Option<&'static str> {
        let Prepared { litmus, map, graph, .. } = self;
        if replay::every_edge(litmus, map, graph, Some(rule)).is_err() {
            return Some("replay");
        }
        explore(litmus, map, graph, Explore::Walks(200), Some(rule)).is_err().then_some("shuttle")
    }
}

fn pinned(counts: &Pin, pin: Option<&Pin>) -> Result<(), String> {
    match pin {
        None => Err("the file is not pinned: look at its counts, then run `catcache conform --pin`".into()),
        Some(pin) if pin == counts => Ok(()),
        Some(pin) => Err(format!(
            "its counts have changed: pinned {pin:?}, now {counts:?}; find out why, then run `catcache conform --pin`"
        )),
    }
}

/// Where the pins lie, for [`Pins::write`]: a developer's call, made from a checkout.
const PINS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/pins.json");

/// So many runs of loom with the raised bound, a file.
const FULL_LOOM_EXECUTIONS: usize = 30_000;

/// loom's bound is raised while a file stays below so many runs.
const LOOM_EXECUTIONS: usize = 2_500;

impl Pins {
    /// Writes them into the checkout that this crate was built from. They hold from the next build on.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write(&self) -> Result<&'static str, String> {
        let text = serde_json::to_string_pretty(self).map_err(|e| e.to_string())? + "\n";
        std::fs::write(PINS, text).map_err(|e| format!("{PINS}: {e}"))?;
        Ok(PINS)
    }
}

impl Prepared {
    /// The largest of loom's bounds with which the file stays small.
    pub fn loom_bound(&self) -> Option<usize> {
        let mut bound = Some(1);
        for next in [Some(2), Some(3), None] {
            match explore(&self.litmus, &self.map, &self.graph, Explore::Loom(bound), None) {
                Ok(ran) if ran.executions < LOOM_EXECUTIONS / 8 => bound = next,
                _ => break,
            }
        }
        bound
    }
}

/// Runs files on `workers` threads, each with a pool of processes (this program must serve as one of them: see
/// [`processes`](crate::runtimes::processes)); `tell` hears of each verdict as it comes. Stops early when `stop` says so: the
/// verdicts are then fewer than the files.
pub fn run_all(
    files: &[Prepared],
    form: Form,
    pins: &Pins,
    workers: usize,
    stop: &AtomicBool,
    tell: &(dyn Fn(&Verdict) + Sync),
) -> Vec<Verdict> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut mine = Vec::new();
        let mut pool = Pool::default();
        // Relaxed: a counter that hands out work, and a flag that asks to stop; neither guards data.
        while !stop.load(Ordering::Relaxed) {
            let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let mut verdict = file.run(form, pins.litmus.get(&file.litmus.name));
            file.run_processes(form, &mut pool, &mut verdict);
            tell(&verdict);
            mine.push(verdict);
        }
        mine
    };
    let mut all: Vec<Verdict> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers.max(1)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap_or_default()).collect()
    });
    all.sort_by(|a, b| a.file.cmp(&b.file));
    all
}

/// What catches a fault of the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultVerdict {
    /// The rule that was switched off.
    pub rule: Rule,
    /// The file that caught it and the part that did; `None`: nothing did.
    pub caught_by: Option<(String, &'static str)>,
}

/// Switches each rule off in the code, one after the other, and looks whether the file that is pinned for it catches it;
/// if none is pinned, or that fails, all files are tried.
pub fn faults(
    files: &[Prepared],
    pins: &Pins,
    workers: usize,
    stop: &AtomicBool,
    tell: &(dyn Fn(&FaultVerdict) + Sync),
) -> Vec<FaultVerdict> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut mine = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let Some(rule) = Rule::ALL.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let pinned = |f: &&Prepared| pins.faults.get(rule.name()) == Some(&f.litmus.name);
            let order = files.iter().filter(pinned).chain(files.iter().filter(|f| !pinned(f)));
            let caught_by =
                order.into_iter().find_map(|file| file.catches(*rule).map(|part| (file.litmus.name.clone(), part)));
            let verdict = FaultVerdict { rule: *rule, caught_by };
            tell(&verdict);
            mine.push(verdict);
        }
        mine
    };
    let mut all: Vec<FaultVerdict> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers.max(1)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap_or_default()).collect()
    });
    all.sort_by_key(|v| v.rule);
    all
}
