//! Acceptance: the code drives the model. Every run under shuttle and loom reports its steps, and the model must be able
//! to take them, in that order, seeing the same.
//!
//! Shuttle is sequentially consistent and random; loom is systematic and has weak memory: a load may return an old
//! value. What an old value may be: never older than what the same backend has read from the same place before; anything
//! else is left to the properties, which must hold on the accepted run (that is how a weakened ordering is caught).
//! loom prunes commuting orders, so it need not reach every edge: that is the duty of [`replay`](crate::replay).

use crate::desk::{Board, Desk, Mode};
use crate::litmus::Litmus;
use crate::quiet;
use crate::refinement::{Correspondence, Map, Saw, Sizes};
use crate::rules::Rule;
use catcache_model::coherence::state::{NONE, Stamp};
use catcache_model::coherence::{Action, Reading, Seen, State, Step};
use catcache_model::diagram;
use catcache_model::graph::Graph;
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What an exploration of the code has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Runs of the code.
    pub executions: usize,
    /// Different edges of the model's graph that they took.
    pub edges: usize,
    /// Runs in which some load returned an old value.
    pub old_reads: usize,
    /// Was it ended before it had seen all? Only [`Explore::LoomFirst`] is.
    pub broken_off: bool,
}

/// A run that the model does not accept.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// What each side says.
    pub what: String,
    /// The steps up to there, as columns.
    pub columns: String,
    /// How many runs were accepted before.
    pub after: usize,
}

impl std::fmt::Display for Rejected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "after {} accepted runs: {}\n{}", self.after, self.what, self.columns)
    }
}

/// Follows runs through a graph, and counts its edges.
pub struct Acceptor {
    map: Arc<Map>,
    graph: Arc<Graph>,
    taken: Vec<bool>,
    weak: bool,
    accepted: Accepted,
}

impl Acceptor {
    /// An acceptor for a file's graph. `weak`: may loads return old values?
    pub fn new(map: Arc<Map>, graph: Arc<Graph>, weak: bool) -> Acceptor {
        let taken = vec![false; graph.edges.len()];
        Acceptor { map, graph, taken, weak, accepted: Accepted::default() }
    }

    /// What was accepted so far.
    pub fn accepted(&self) -> Accepted {
        Accepted { edges: self.taken.iter().filter(|t| **t).count(), ..self.accepted }
    }

    /// Takes a finished run through the model.
    ///
    /// # Errors
    /// The first step that the model can't take, or the first property that the run breaks.
    pub fn accept(&mut self, board: &Board) -> Result<(), Rejected> {
        let mut run = Run {
            state: self.graph.states[0].clone(),
            at: Some(0),
            link: Correspondence::default(),
            actions: Vec::new(),
            stamps: vec![vec![Stamp::default()]; self.map.program.stamps()],
            last: BTreeMap::new(),
            old: false,
        };
        let result = board.events.iter().try_for_each(|event| {
            let step = event.step.ok_or_else(|| "a step without a name".to_owned())?;
            self.follow(&mut run, event.backend, step, event.saw)
        });
        let result = result.and_then(|()| {
            if run.state.finished() { Ok(()) } else { Err("the code has ended, the model has not".to_owned()) }
        });
        let result = result.and_then(|()| {
            let answers = run.state.backends.iter().zip(&board.places);
            for (b, place) in answers {
                if b.answers.len() != place.answers.len() {
                    return Err(format!(
                        "{} answers of the model, {} of the code",
                        b.answers.len(),
                        place.answers.len()
                    ));
                }
                for (model, code) in b.answers.iter().zip(&place.answers) {
                    run.link.answer(&self.map, code, model).map_err(|m| m.to_string())?;
                }
            }
            Ok(())
        });
        if let Err(what) = result {
            let columns = diagram::columns(&self.map.program, &run.actions);
            return Err(Rejected { what, columns, after: self.accepted.executions });
        }
        self.accepted.executions += 1;
        self.accepted.old_reads += usize::from(run.old);
        Ok(())
    }

    fn follow(&mut self, run: &mut Run, backend: u8, step: Step, saw: Saw) -> Result<(), String> {
        if matches!(step, Step::Write | Step::Lock) && saw == Saw::Fail {
            // Somebody else holds the key: the code asks again, the model waits.
            return Ok(());
        }
        let program = &self.map.program;
        let name = &program.plans[backend as usize].name;
        let choices = program.choices(&run.state, backend as usize);
        let Some((_, choice)) = choices.iter().copied().find(|(s, choice)| {
            *s == step
                && match (step, saw) {
                    (Step::Evict, Saw::Evicted(at)) if *choice != u16::from(NONE) && choices.len() > 1 => {
                        at.is_some() && run.link.slot_at(at) == Some(*choice as u8)
                    }
                    _ => true,
                }
        }) else {
            let could: Vec<Step> = choices.iter().map(|(s, _)| *s).collect();
            return Err(format!("{name} did {step:?}; the model allows it {could:?}"));
        };
        let (reading, choice) = self.reading(run, backend, step, choice, saw)?;
        let action = Action { backend, step, choice };
        run.actions.push(action);
        let stale_clock = step == Step::Token && u64::from(choice) != u64::from(run.state.clock);
        let (next, seen) = if stale_clock {
            let mut program = program.clone();
            program.stale_tokens = true;
            program.step(&run.state, action)
        } else {
            program.step_reading(&run.state, action, reading)
        }
        .ok_or_else(|| format!("{name} did {step:?}, which saw {saw:?}; the model can't"))?;
        run.link.learn(&run.state, &next, backend);
        run.link.seen(program, step, saw, seen).map_err(|m| format!("{name}: {m}"))?;
        if let Some(broken) = next.broken {
            return Err(format!("{name}, by {step:?}: breaks {}: {}", broken.name(), broken.about().trim()));
        }
        if let (Step::Open | Step::Close | Step::Withdraw, Seen::Stamp(stamp)) = (step, seen) {
            let stripe = (0..next.stamps.len()).find(|i| next.stamps[*i] != run.state.stamps[*i]);
            run.stamps[stripe.unwrap_or(0)].push(stamp);
        }
        let current = reading == Reading::Current && !stale_clock;
        run.old |= !current;
        run.at = run.at.filter(|_| current).and_then(|at| self.graph.edge(at, action)).map(|edge| {
            self.taken[edge] = true;
            self.graph.edges[edge].to
        });
        run.state = next;
        Ok(())
    }

    /// Was the value that a load returned an old one, and may it have been?
    fn reading(&self, run: &mut Run, backend: u8, step: Step, choice: u16, saw: Saw) -> Result<(Reading, u16), String> {
        let program = &self.map.program;
        let b = &run.state.backends[backend as usize];
        match (step, saw) {
            (Step::Check, Saw::Stamp { mark, open }) => {
                let Some(stripe) = program.checking(b) else { return Err("a check outside a lookup".into()) };
                let stamp = Stamp { mark: mark as u16, open: open as u8 };
                let history = &run.stamps[stripe];
                let last = run.last.entry((backend, stripe)).or_insert(0);
                // The newest value that fits: the most the backend may have read.
                let found = (*last..history.len()).rev().find(|i| history[*i] == stamp);
                let Some(found) = found else {
                    return Err(format!(
                        "a check read {stamp:?}, which the stamp never was, or not after the last read"
                    ));
                };
                *last = found;
                if found + 1 == history.len() {
                    return Ok((Reading::Current, choice));
                }
                self.old(format!("an old stamp, {stamp:?}"))?;
                Ok((Reading::Old(stamp), choice))
            }
            (Step::Accept, Saw::Messages { count: 0, reset: false })
                if b.reset || b.position != run.state.ring.tail =>
            {
                self.old("an old tail of the ring".into())?;
                Ok((Reading::NoMessages, choice))
            }
            (Step::Token, Saw::Clock(clock)) => {
                if clock != u64::from(run.state.clock) {
                    self.old(format!("an old clock, {clock}"))?;
                }
                Ok((Reading::Current, clock as u16))
            }
            _ => Ok((Reading::Current, choice)),
        }
    }

    fn old(&self, what: String) -> Result<(), String> {
        if self.weak {
            Ok(())
        } else {
            Err(format!("a load returned {what}, though memory is sequentially consistent"))
        }
    }
}

struct Run {
    state: State,
    /// The state's index in the graph, as long as nothing old was read.
    at: Option<u32>,
    link: Correspondence,
    actions: Vec<Action>,
    /// The values of each stamp, in order.
    stamps: Vec<Vec<Stamp>>,
    /// For each backend and stripe, the newest value that it may have read.
    last: BTreeMap<(u8, usize), usize>,
    old: bool,
}

/// How the code is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Explore {
    /// Shuttle, each step random, so many runs.
    Random(usize),
    /// Shuttle, uniform random walks.
    Walks(usize),
    /// Shuttle, probabilistic concurrency testing with this depth, so many runs.
    Pct(usize, usize),
    /// loom, with a bound on preemptions (`None`: without), to the end.
    Loom(Option<usize>),
    /// The same, but at most so many runs.
    LoomFirst(Option<usize>, usize),
}

/// Builds the world of a file in these sizes, and runs it.
type World = dyn Fn(&Litmus, Sizes, &Arc<Desk>) -> Result<(), String>;

/// A scheduler of shuttle's that stops at the first run that was not accepted.
struct UntilRejected<S> {
    inner: S,
    failure: Arc<Mutex<Option<Rejected>>>,
}

impl<S: Scheduler> Scheduler for UntilRejected<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        let rejected = self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if rejected { None } else { self.inner.new_execution() }
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, yielding: bool) -> Option<TaskId> {
        self.inner.next_task(runnable, current, yielding)
    }

    fn next_u64(&mut self) -> u64 {
        self.inner.next_u64()
    }
}

/// A fixed seed: what was seen once is seen again.
const SEED: u64 = 0x0005_eed0_fca7_ca6e;

/// Lets the code run in every way that the exploration knows, and the model accept each run.
///
/// # Errors
/// The first run that the model does not accept, or in which the code panics or blocks.
pub fn explore(
    litmus: &Litmus,
    map: &Arc<Map>,
    graph: &Arc<Graph>,
    how: Explore,
    broken: Option<Rule>,
) -> Result<Accepted, Rejected> {
    let weak = matches!(how, Explore::Loom(_) | Explore::LoomFirst(..));
    let acceptor = Arc::new(Mutex::new(Acceptor::new(Arc::clone(map), Arc::clone(graph), weak)));
    let failure: Arc<Mutex<Option<Rejected>>> = Arc::default();
    let runs = Arc::new(AtomicUsize::new(0));
    let (program, sizes) = (map.program.clone(), map.sizes());
    let one = {
        let (litmus, acceptor, failure) = (litmus.clone(), Arc::clone(&acceptor), Arc::clone(&failure));
        let runs = Arc::clone(&runs);
        move |world: &World| {
            runs.fetch_add(1, Ordering::Relaxed);
            if failure.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
                return;
            }
            let desk = Desk::new(&program, Mode::Recorded, None);
            let ran = world(&litmus, sizes, &desk);
            let board = desk.board();
            let mut acceptor = acceptor.lock().unwrap_or_else(PoisonError::into_inner);
            let verdict = match ran.and_then(|()| board.failure.clone().map_or(Ok(()), Err)) {
                Ok(()) => acceptor.accept(&board),
                Err(what) => Err(Rejected { what, columns: String::new(), after: acceptor.accepted.executions }),
            };
            if let Err(rejected) = verdict {
                *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(rejected);
                // Ends loom's exploration: what comes after a failure says nothing. Shuttle's scheduler ends by itself.
                drop((board, acceptor));
                assert!(!weak, "a run was not accepted");
            }
        }
    };
    let shuttled = move |litmus: &Litmus, sizes: Sizes, desk: &Arc<Desk>| {
        crate::runtimes::under_shuttle::body::world(litmus, sizes, desk, broken)
            .and_then(crate::runtimes::under_shuttle::body::run)
    };
    let loomed = move |litmus: &Litmus, sizes: Sizes, desk: &Arc<Desk>| {
        crate::runtimes::under_loom::body::world(litmus, sizes, desk, broken)
            .and_then(crate::runtimes::under_loom::body::run)
    };
    let mut config = shuttle::Config::new();
    config.failure_persistence = shuttle::FailurePersistence::None;
    config.silence_warnings = true;
    let seen = Arc::clone(&failure);
    let ran = quiet::catch(move || match how {
        Explore::Random(n) => {
            let inner = shuttle::scheduler::RandomScheduler::new_from_seed(SEED, n);
            shuttle::Runner::new(UntilRejected { inner, failure: seen }, config).run(move || one(&shuttled));
        }
        Explore::Walks(n) => {
            let inner = shuttle::scheduler::UrwRandomScheduler::new_from_seed(SEED, n);
            shuttle::Runner::new(UntilRejected { inner, failure: seen }, config).run(move || one(&shuttled));
        }
        Explore::Pct(depth, n) => {
            let inner = shuttle::scheduler::PctScheduler::new_from_seed(SEED, depth, n);
            shuttle::Runner::new(UntilRejected { inner, failure: seen }, config).run(move || one(&shuttled));
        }
        Explore::Loom(bound) | Explore::LoomFirst(bound, _) => {
            let mut model = loom::model::Builder::new();
            model.preemption_bound = bound;
            model.max_branches = 20_000;
            if let Explore::LoomFirst(_, most) = how {
                // It looks at the one only every so many runs that the other says.
                model.max_permutations = Some(most);
                model.checkpoint_interval = most;
            }
            model.check(move || one(&loomed));
        }
    });
    let acceptor = acceptor.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(rejected) = failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(rejected);
    }
    if let Err(panic) = ran {
        let what = format!("the code panicked or blocked: {panic}");
        return Err(Rejected { what, columns: String::new(), after: acceptor.accepted.executions });
    }
    let accepted = acceptor.accepted();
    let broken_off = matches!(how, Explore::LoomFirst(_, most) if accepted.executions + 1 >= most);
    Ok(Accepted { broken_off, ..accepted })
}
