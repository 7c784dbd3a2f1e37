//! Holds the real entries and the real slab to the model of the life of a slot ([`catcache_model::lifetime`]).
//!
//! A [`Scenario`] is a handful of calls of the shared layer, a thread each. The code runs under loom, to the end of what there is,
//! and under shuttle; of each run the model must be able to take every step, in the order in which they took effect, and to see
//! what they saw. At the end nothing may have leaked. On the way the threads look at what they refer to, and the simulated segment
//! itself refuses to read or write a slot that is not the thread's to read or write.

use crate::acceptance::Rejected;
use crate::quiet;
use crate::refinement::Saw;
use crate::rules::Rule;
use catcache_model::lifetime::{Action, Op, Pc, Program, Seen, State, Step, columns};
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Do {
    /// Find the entry of a key, look at it, let it go.
    Get(u8),
    /// Publish an entry of a key, look at what is there, let it go.
    Put(u8),
    /// Evict the entry of a key.
    Evict(u8),
    /// A commit that changes a key: its entry is not valid any more. Not an operation of the model, which lets every entry be bad.
    Change(u8),
}

impl Do {
    fn of_model(self) -> Option<Op> {
        match self {
            Do::Get(key) => Some(Op::Get(key)),
            Do::Put(key) => Some(Op::Put(key)),
            Do::Evict(key) => Some(Op::Evict(key)),
            Do::Change(_) => None,
        }
    }
}

/// What some threads do with a small segment.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// Slots.
    pub slots: u8,
    /// Keys that have an entry at first.
    pub linked: u8,
    /// What each thread does.
    pub threads: Vec<Vec<Do>>,
    /// loom's bound of preemptions; `None`: none, so that it explores all there is.
    pub bound: Option<usize>,
}

impl Scenario {
    /// All of them.
    pub fn all() -> Vec<Scenario> {
        use Do::{Change, Evict, Get, Put};
        let scenario = |name, slots, linked, threads: &[&[Do]], bound| {
            let threads = threads.iter().map(|ops| ops.to_vec()).collect();
            Scenario { name, slots, linked, threads, bound }
        };
        vec![
            scenario("reader-and-replacer", 2, 1, &[&[Get(0)], &[Change(0), Put(0)]], Some(4)),
            scenario("reader-and-evictor", 1, 1, &[&[Get(0)], &[Evict(0), Put(1)]], None),
            scenario("slot-used-again", 1, 1, &[&[Get(0), Get(1)], &[Put(1)]], None),
            scenario("both-find-it-bad", 1, 1, &[&[Change(0), Get(0)], &[Get(0)]], Some(4)),
            scenario("both-publish", 2, 0, &[&[Put(0)], &[Put(0)]], None),
            scenario("readers-and-evictor", 1, 1, &[&[Get(0)], &[Get(0)], &[Evict(0)]], Some(3)),
            scenario("readers-and-replacer", 2, 1, &[&[Get(0)], &[Get(0)], &[Change(0), Put(0)]], Some(2)),
        ]
    }

    /// Its program of the model.
    pub fn program(&self) -> Program {
        let ops = |ops: &Vec<Do>| ops.iter().filter_map(|op| op.of_model()).collect();
        Program {
            name: self.name,
            about: "",
            slots: self.slots,
            linked: self.linked,
            threads: self.threads.iter().map(ops).collect(),
            fault: None,
            pinned: (0, 0),
        }
    }
}

/// What happened in a run, in order.
#[derive(Debug, Default)]
pub struct Log(Mutex<Vec<Event>>);

#[derive(Clone, Copy, Debug)]
enum Event {
    Begins { thread: u8, op: Do },
    Took { thread: u8, step: Step, saw: Saw },
}

impl Log {
    /// A thread begins an operation.
    pub fn begins(&self, thread: u8, op: Do) {
        self.push(Event::Begins { thread, op });
    }

    /// A thread has taken a step.
    pub fn took(&self, thread: u8, step: Step, saw: Saw) {
        self.push(Event::Took { thread, step, saw });
    }

    fn push(&self, event: Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

/// What was accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Runs.
    pub executions: usize,
    /// Different edges of the model that they took,
    pub edges: usize,
    /// of so many.
    pub of: usize,
}

/// A run on its way through the model.
struct Run<'p> {
    program: &'p Program,
    state: State,
    actions: Vec<Action>,
    /// Where the slots lie.
    places: BTreeMap<u8, u32>,
    /// Operations that each thread has begun.
    begun: Vec<u8>,
}

impl Run<'_> {
    /// Ends what a thread was doing: to publish nothing, because the token was not good, takes no step of the code.
    fn end(&mut self, thread: u8, taken: &mut HashSet<(State, Action)>) {
        let t = self.state.threads[usize::from(thread)];
        let op = self.program.threads[usize::from(thread)].get(usize::from(t.op));
        let begun = self.begun[usize::from(thread)] > t.op;
        if begun && t.pc == Pc::Start && matches!(op, Some(Op::Put(_))) {
            self.take(Action { thread, step: Step::Refuse, choice: 0 }, taken);
        }
    }

    fn take(&mut self, action: Action, taken: &mut HashSet<(State, Action)>) {
        if let Some((next, _)) = self.program.step(&self.state, action) {
            taken.insert((self.state.clone(), action));
            self.actions.push(action);
            self.state = next;
        }
    }

    /// Does a slot lie there, as far as is known?
    fn lies(&self, slot: u8, at: u32) -> bool {
        match self.places.get(&slot) {
            Some(place) => *place == at,
            None => !self.places.values().any(|place| *place == at),
        }
    }

    /// Are these the same? If so, where the slots lie.
    fn same(&self, saw: Saw, seen: Seen) -> Option<Vec<(u8, u32)>> {
        let pair = |slot: Option<u8>, at: Option<u32>| match (slot, at) {
            (None, None) => Some(Vec::new()),
            (Some(slot), Some(at)) => self.lies(slot, at).then(|| vec![(slot, at)]),
            _ => None,
        };
        match (saw, seen) {
            (Saw::Found(at), Seen::Found(slot))
            | (Saw::Slot(at), Seen::Slot(slot))
            | (Saw::Evicted(at), Seen::Evicted(slot)) => pair(slot, at),
            (Saw::Published { entry, replaced, existing }, Seen::Published { slot, replaced: out, stays })
                if existing == stays =>
            {
                Some([pair(Some(slot), Some(entry))?, pair(out, replaced)?].concat())
            }
            (Saw::Unlinked { entry, free } | Saw::Released { entry, free }, Seen::Dropped { slot, free: last })
                if free == last =>
            {
                pair(Some(slot), Some(entry))
            }
            (Saw::Freed(at), Seen::Freed(slot)) => pair(Some(slot), Some(at)),
            _ => None,
        }
    }

    fn follow(&mut self, thread: u8, step: Step, saw: Saw, taken: &mut HashSet<(State, Action)>) -> Result<(), String> {
        let choices = self.program.choices(&self.state, usize::from(thread));
        for (_, choice) in choices.iter().filter(|(s, _)| *s == step) {
            let action = Action { thread, step, choice: *choice };
            let Some((_, seen)) = self.program.step(&self.state, action) else { continue };
            let Some(places) = self.same(saw, seen) else { continue };
            self.places.extend(places);
            if let Seen::Freed(slot) = seen {
                self.places.remove(&slot);
            }
            self.take(action, taken);
            return match self.state.broken {
                None => Ok(()),
                Some(property) => Err(format!("{thread}, by {step:?}: breaks {}", property.name())),
            };
        }
        Err(format!("{thread} did {step:?}, which saw {saw:?}; the model allows it {choices:?}"))
    }
}

/// Takes runs through the model.
struct Acceptor {
    program: Program,
    taken: HashSet<(State, Action)>,
    executions: usize,
}

impl Acceptor {
    fn accept(&mut self, log: &Log, ended: Result<(u32, u32), String>) -> Result<(), Rejected> {
        let Acceptor { program, taken, .. } = self;
        let mut run = Run {
            program,
            state: State::initial(program),
            actions: Vec::new(),
            places: BTreeMap::new(),
            begun: vec![0; program.threads.len()],
        };
        let events = log.0.lock().unwrap_or_else(PoisonError::into_inner);
        let followed = events.iter().try_for_each(|event| match *event {
            Event::Begins { thread, op } => {
                run.end(thread, taken);
                let t = run.state.threads[usize::from(thread)];
                let next = program.threads[usize::from(thread)].get(usize::from(t.op)).copied();
                match op.of_model() {
                    Some(op) if t.pc != Pc::Start || next != Some(op) => {
                        Err(format!("{thread} begins {op:?}, the model is at {:?} of {next:?}", t.pc))
                    }
                    Some(_) => {
                        run.begun[usize::from(thread)] = t.op + 1;
                        Ok(())
                    }
                    None => Ok(()),
                }
            }
            Event::Took { thread, step, saw } => run.follow(thread, step, saw, taken),
        });
        let followed = followed.and_then(|()| {
            (0..program.threads.len() as u8).for_each(|thread| run.end(thread, taken));
            let (free, quiet) = ended?;
            match run.state.finished(program) {
                false => Err("the code has ended, the model has not".to_owned()),
                true if free + quiet != u32::from(program.slots) => {
                    Err(format!("{free} slots are free, {quiet} entries linked and not referred to: the others leaked"))
                }
                true => Ok(()),
            }
        });
        self.executions += usize::from(followed.is_ok());
        let after = self.executions;
        followed.map_err(|what| Rejected { what, columns: columns(program, &run.actions), after })
    }
}

/// Edges of the model's graph.
fn edges(program: &Program) -> usize {
    let (mut seen, mut front, mut count) = (HashSet::new(), vec![State::initial(program)], 0);
    while let Some(state) = front.pop() {
        if !seen.insert(state.clone()) {
            continue;
        }
        for thread in 0..state.threads.len() {
            for (step, choice) in program.choices(&state, thread) {
                count += 1;
                front.extend(program.step(&state, Action { thread: thread as u8, step, choice }).map(|(next, _)| next));
            }
        }
    }
    count
}

/// Runs a scenario in one build: slots that are free then, and entries that are linked and not referred to.
type RunIn = dyn Fn(&Scenario, &Arc<Log>) -> Result<(u32, u32), String>;

/// A fixed seed: what was seen once is seen again.
const SEED: u64 = 0x0005_1075_0fca_7ca6;

/// The simulator that the code runs under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Under {
    /// loom, with the scenario's bound, to the end.
    Loom,
    /// shuttle, each step random, so many runs.
    Shuttle(usize),
}

/// Lets the code run a scenario in every way that the simulator knows, and the model accept each run.
///
/// # Errors
/// The first run that the model does not accept, or in which the code panics or blocks.
pub fn explore(scenario: &Scenario, under: Under, broken: Option<Rule>) -> Result<Accepted, Rejected> {
    use crate::runtimes::{under_loom, under_shuttle};
    let program = scenario.program();
    let of = edges(&program);
    let acceptor = Arc::new(Mutex::new(Acceptor { program, taken: HashSet::new(), executions: 0 }));
    let failure: Arc<Mutex<Option<Rejected>>> = Arc::default();
    let one = {
        let (acceptor, failure, scenario) = (Arc::clone(&acceptor), Arc::clone(&failure), scenario.clone());
        move |run: &RunIn| {
            if failure.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
                return;
            }
            let log = Arc::new(Log::default());
            let ended = run(&scenario, &log);
            let verdict = acceptor.lock().unwrap_or_else(PoisonError::into_inner).accept(&log, ended);
            if let Err(rejected) = verdict {
                *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(rejected);
                // Ends loom's exploration: what comes after a failure says nothing.
                assert!(under != Under::Loom, "a run was not accepted");
            }
        }
    };
    let shuttled = move |scenario: &Scenario, log: &Arc<Log>| under_shuttle::slots::run(scenario, log, broken);
    let loomed = move |scenario: &Scenario, log: &Arc<Log>| under_loom::slots::run(scenario, log, broken);
    let bound = scenario.bound;
    let mut config = shuttle::Config::new();
    config.failure_persistence = shuttle::FailurePersistence::None;
    config.silence_warnings = true;
    let ran = quiet::catch(move || match under {
        Under::Shuttle(n) => {
            let scheduler = shuttle::scheduler::RandomScheduler::new_from_seed(SEED, n);
            shuttle::Runner::new(scheduler, config).run(move || one(&shuttled));
        }
        Under::Loom => {
            let mut model = loom::model::Builder::new();
            model.preemption_bound = bound;
            model.max_branches = 20_000;
            model.check(move || one(&loomed));
        }
    });
    let acceptor = acceptor.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(rejected) = failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(rejected);
    }
    match ran {
        Ok(()) => Ok(Accepted { executions: acceptor.executions, edges: acceptor.taken.len(), of }),
        Err(panic) => {
            let what = format!("the code panicked or blocked: {panic}");
            Err(Rejected { what, columns: String::new(), after: acceptor.executions })
        }
    }
}

/// What a scenario said: under loom and under shuttle.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Its name.
    pub name: &'static str,
    /// Under loom.
    pub loom: Accepted,
    /// Under shuttle.
    pub shuttle: Accepted,
    /// The first run that was not accepted.
    pub failure: Option<String>,
}

/// Random runs of each scenario under shuttle.
const RANDOM_RUNS: usize = 300;

/// Runs every scenario. Stops early when `stop` says so: the verdicts are then fewer than the scenarios.
pub fn run_all(stop: &std::sync::atomic::AtomicBool) -> Vec<Verdict> {
    let (next, scenarios) = (AtomicUsize::new(0), Scenario::all());
    let work = || {
        let mut mine = Vec::new();
        // Relaxed: a counter that hands out work, and a flag that asks to stop; neither guards data.
        while !stop.load(Ordering::Relaxed) {
            let Some(scenario) = scenarios.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let mut verdict =
                Verdict { name: scenario.name, loom: Accepted::default(), shuttle: Accepted::default(), failure: None };
            let ran = explore(scenario, Under::Loom, None)
                .map_err(|rejected| format!("loom: {}\n{}", rejected.what, rejected.columns))
                .and_then(|loom| {
                    verdict.loom = loom;
                    explore(scenario, Under::Shuttle(RANDOM_RUNS), None)
                        .map_err(|rejected| format!("shuttle: {}\n{}", rejected.what, rejected.columns))
                });
            match ran {
                Ok(shuttle) => verdict.shuttle = shuttle,
                Err(why) => verdict.failure = Some(why),
            }
            mine.push(verdict);
        }
        mine
    };
    let mut all: Vec<Verdict> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.flatten().collect()
    });
    all.sort_by_key(|verdict| scenarios.iter().position(|scenario| scenario.name == verdict.name));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_is_accepted_and_many_edges_are_taken() {
        for verdict in run_all(&std::sync::atomic::AtomicBool::new(false)) {
            println!("{verdict:?}");
            assert_eq!(verdict.failure, None, "{}", verdict.name);
            assert!(verdict.loom.executions > 10 && verdict.shuttle.executions == RANDOM_RUNS, "{verdict:?}");
            // The model lets a thread find bad what nobody has changed; beside that, loom takes all.
            assert!(verdict.loom.edges * 4 > verdict.loom.of, "{verdict:?}");
        }
    }

    #[test]
    fn a_rule_that_is_switched_off_is_noticed() {
        for (rule, name) in [
            (Rule::TakeReference, "reader-and-evictor"),
            (Rule::UnlinkBeforeFree, "reader-and-evictor"),
            (Rule::TakeReference, "readers-and-replacer"),
        ] {
            let scenario = Scenario::all().into_iter().find(|scenario| scenario.name == name).unwrap();
            let loom = explore(&scenario, Under::Loom, Some(rule));
            assert!(loom.is_err(), "{rule:?} in {name}: loom accepts it");
            let shuttle = explore(&scenario, Under::Shuttle(RANDOM_RUNS), Some(rule));
            assert!(shuttle.is_err(), "{rule:?} in {name}: shuttle accepts it");
        }
    }
}
