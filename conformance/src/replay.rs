//! Replay: the model drives the code, step by step, along every edge of a litmus file's graph.
//!
//! The code runs under a shuttle scheduler of our own. Each backend stops before each step; the scheduler lets the one
//! go on whose step the path names, until it stands before its next step, and compares: what the step saw, the shared
//! state, the backend's private state, its answers. A step that the model forbids, one that it allows and the code
//! blocks in, one too many or too few: each ends the replay with both sides' view.

use crate::desk::{Arrival, Board, Desk, Mode};
use crate::litmus::Litmus;
use crate::quiet;
use crate::refinement::{Correspondence, Map, SharedView};
use crate::rules::Rule;
use crate::runtimes::under_shuttle::body;
use catcache_model::coherence::Action;
use catcache_model::diagram;
use catcache_model::graph::Graph;
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a replay has covered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Runs.
    pub paths: usize,
    /// Steps in all of them.
    pub steps: usize,
    /// Different edges taken.
    pub edges: usize,
}

/// Where the code left the model.
#[derive(Clone, Debug)]
pub struct Divergence {
    /// What each side says.
    pub what: String,
    /// The steps up to there, as columns.
    pub columns: String,
}

impl std::fmt::Display for Divergence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\n{}", self.what, self.columns)
    }
}

/// The run that is being driven.
struct Drive {
    graph: Arc<Graph>,
    map: Arc<Map>,
    paths: Vec<Vec<usize>>,
    /// The path, and how many of its edges have been granted.
    path: usize,
    at: usize,
    started: bool,
    /// The backend that was let go on.
    running: Option<u8>,
    link: Correspondence,
    desk: Option<Arc<Desk>>,
    failure: Option<Divergence>,
    done: Replayed,
}

impl Drive {
    fn actions(&self) -> Vec<Action> {
        self.paths[self.path][..self.at].iter().map(|e| self.graph.edges[*e].action).collect()
    }

    fn fail(&mut self, what: String) {
        if self.failure.is_none() {
            let columns = diagram::columns(&self.map.program, &self.actions());
            self.failure = Some(Divergence { what, columns });
        }
    }

    /// A backend stands before its next step, or has finished: has the last one done what the model does?
    fn arrived(&mut self, board: &mut Board, me: u8, shared: &dyn Fn() -> SharedView) {
        let place = &mut board.places[me as usize];
        let (took, steps) = (place.took.take(), std::mem::take(&mut place.steps));
        if self.running != Some(me) {
            if let Some((step, _)) = took {
                self.fail(format!("{} took {step:?} before the model let it", self.name(me)));
            }
            return;
        }
        self.running = None;
        let edge = self.graph.edges[self.paths[self.path][self.at - 1]];
        let name = self.name(me).to_owned();
        let Some((step, saw)) = took.filter(|_| steps == 1) else {
            return self.fail(format!("{name}: the model does {:?}, the code took {steps} steps", edge.action.step));
        };
        let state = self.graph.states[edge.to as usize].clone();
        let map = Arc::clone(&self.map);
        self.link.learn(&self.graph.states[edge.from as usize], &state, me);
        let place = &board.places[me as usize];
        let mut check = || {
            if step != edge.action.step {
                let what = format!("the model does {:?}, the code {step:?}", edge.action.step);
                return Err(crate::refinement::Mismatch(what));
            }
            self.link.seen(&map.program, step, saw, edge.seen)?;
            self.link.shared(&map, &shared(), &state)?;
            self.link.private(&map, &place.private, &state, me)?;
            let answers = &state.backends[me as usize].answers;
            if answers.len() != place.answers.len() {
                let what =
                    format!("the model has answered {} lookups, the code {}", answers.len(), place.answers.len());
                return Err(crate::refinement::Mismatch(what));
            }
            answers.iter().zip(&place.answers).try_for_each(|(model, code)| self.link.answer(&map, code, model))
        };
        if let Err(mismatch) = check() {
            self.fail(format!("{name}, after {step:?}: {mismatch}"));
        }
    }

    fn name(&self, me: u8) -> &str {
        &self.map.program.plans[me as usize].name
    }

    /// Which backend goes on; `None`: the main task.
    fn next(&mut self, board: &mut Board, runnable: &dyn Fn(u8) -> bool) -> Option<u8> {
        let standing = |p: &crate::desk::Place| p.pending.is_some() || p.finished;
        if let Some(me) = self.running {
            if !runnable(me) {
                let step = self.graph.edges[self.paths[self.path][self.at - 1]].action.step;
                self.fail(format!("{} is blocked inside {step:?}, which the model allows", self.name(me)));
                return None;
            }
            return Some(me);
        }
        if let Some(me) = board.places.iter().position(|p| !standing(p)) {
            return Some(me as u8);
        }
        if self.at == self.paths[self.path].len() {
            if let Some(me) = board.places.iter().position(|p| !p.finished) {
                let step = board.places[me].pending;
                self.fail(format!("the model has ended, {} stands before {step:?}", self.name(me as u8)));
            }
            return None;
        }
        let action = self.graph.edges[self.paths[self.path][self.at]].action;
        self.at += 1;
        self.done.steps += 1;
        let place = &mut board.places[action.backend as usize];
        let pending = place.pending.take();
        if pending != Some(action.step) {
            let name = self.name(action.backend).to_owned();
            self.at -= 1;
            self.fail(format!("the model lets {name} do {:?}, the code stands before {pending:?}", action.step));
            return None;
        }
        self.running = Some(action.backend);
        Some(action.backend)
    }
}

#[derive(Clone)]
struct Handle(Arc<Mutex<Drive>>);

impl Handle {
    fn lock(&self) -> MutexGuard<'_, Drive> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Scheduler for Handle {
    fn new_execution(&mut self) -> Option<Schedule> {
        let mut drive = self.lock();
        if drive.started {
            drive.path += 1;
        }
        drive.started = true;
        if drive.failure.is_some() || drive.path == drive.paths.len() {
            return None;
        }
        drive.at = 0;
        drive.running = None;
        drive.link = Correspondence::default();
        drive.desk = None;
        drive.done.paths += 1;
        Some(Schedule::new(0))
    }

    fn next_task(&mut self, runnable: &[&Task], _current: Option<TaskId>, _yielding: bool) -> Option<TaskId> {
        let mut drive = self.lock();
        // Backend i is task i + 1; the main task is 0.
        let task = |wanted: usize| runnable.iter().map(|t| t.id()).find(|id| usize::from(*id) == wanted);
        if let Some(main) = task(0) {
            return Some(main);
        }
        let first = runnable.first().map(|t| t.id());
        let Some(desk) = drive.desk.clone() else { return first };
        if drive.failure.is_none() {
            let mut board = desk.board();
            if let Some(what) = board.failure.clone() {
                drive.fail(what);
            }
            let next = drive.next(&mut board, &|me| task(me as usize + 1).is_some());
            if let Some(id) = next.and_then(|me| task(me as usize + 1)) {
                return Some(id);
            }
            if drive.failure.is_some() {
                board.failure.get_or_insert_with(String::new);
            }
        }
        first
    }

    fn next_u64(&mut self) -> u64 {
        0
    }
}

/// Drives the code along paths that take every edge of the graph, each path from the start to an end.
///
/// # Errors
/// The first place where the code and the model differ.
pub fn every_edge(
    litmus: &Litmus,
    map: &Arc<Map>,
    graph: &Arc<Graph>,
    broken: Option<Rule>,
) -> Result<Replayed, Divergence> {
    along(litmus, map, graph, graph.edge_cover(), broken)
}

/// Drives the code along given paths.
///
/// # Errors
/// The first place where the code and the model differ.
pub fn along(
    litmus: &Litmus,
    map: &Arc<Map>,
    graph: &Arc<Graph>,
    paths: Vec<Vec<usize>>,
    broken: Option<Rule>,
) -> Result<Replayed, Divergence> {
    let mut taken = vec![false; graph.edges.len()];
    paths.iter().flatten().for_each(|e| taken[*e] = true);
    let drive = Drive {
        graph: Arc::clone(graph),
        map: Arc::clone(map),
        paths,
        path: 0,
        at: 0,
        started: false,
        running: None,
        link: Correspondence::default(),
        desk: None,
        failure: None,
        done: Replayed::default(),
    };
    let handle = Handle(Arc::new(Mutex::new(drive)));
    let mut config = shuttle::Config::new();
    config.failure_persistence = shuttle::FailurePersistence::None;
    config.silence_warnings = true;
    let (scheduler, inside) = (handle.clone(), handle.clone());
    let litmus = litmus.clone();
    let (program, sizes) = (map.program.clone(), map.sizes());
    let run = quiet::catch(move || {
        shuttle::Runner::new(scheduler, config).run(move || {
            let arriving = inside.clone();
            let arrival: Arc<Arrival> = Arc::new(move |board, me, shared| {
                let mut drive = arriving.lock();
                drive.arrived(board, me, shared);
                if drive.failure.is_some() {
                    board.failure.get_or_insert_with(String::new);
                }
            });
            let desk = Desk::new(&program, Mode::Gated, Some(arrival));
            match body::world(&litmus, sizes, &desk, broken) {
                Ok(actors) => {
                    inside.lock().desk = Some(Arc::clone(&desk));
                    if let Err(what) = body::run(actors) {
                        inside.lock().fail(what);
                    }
                }
                Err(what) => inside.lock().fail(what),
            }
        })
    });
    let mut drive = handle.lock();
    if let Err(panic) = run {
        drive.fail(format!("the code panicked: {panic}"));
    }
    match drive.failure.take() {
        Some(divergence) => Err(divergence),
        None => Ok(Replayed { edges: taken.iter().filter(|t| **t).count(), ..drive.done }),
    }
}
