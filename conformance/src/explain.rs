//! Why an outcome of a litmus file comes about, or why not.
//!
//! If the model allows it: the shortest run that ends with it. If not: the rules of the protocol that forbid it. They are
//! found by breaking them one by one, as `check` does ([`Fault`]), and looking whether the outcome then comes about; a rule
//! that matters has a run to show for it.
//!
//! The search is bounded. Beyond its bound there is no answer, and least of all that the outcome is forbidden.

use crate::litmus::{Answer, Litmus, Wanted};
use crate::outcomes::Outcome;
use crate::refinement::Map;
use catcache_model::coherence::{Action, Fault, Program, State};
use catcache_model::graph;
use catcache_model::search::{self, Undecided};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// States that one search may look at; as many as the graph of a file may have.
pub const STATES_MAX: usize = crate::suite::STATES_MAX;

/// A run of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Of this program; it may have a broken rule.
    pub program: Program,
    /// Its steps.
    pub actions: Vec<Action>,
    /// What it answers.
    pub outcome: Outcome,
    /// Does it end because nobody can go on, although not all have finished?
    pub stuck: bool,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Explanation {
    /// The model allows the outcome, for instance so.
    Allowed(Run),
    /// It does not.
    Forbidden(Forbidden),
    /// Neither could be shown.
    Undecided(Undecided),
}

/// Why not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forbidden {
    /// The rules each of which, broken alone, lets the outcome come about, and the shortest run of each; the shortest first.
    pub by: Vec<(Fault, Run)>,
    /// Broken rules whose search was given up at its bound.
    pub given_up: Vec<Fault>,
    /// The same answers as the model allows them, after other commits and aborts than those that were asked for.
    pub otherwise: Option<Outcome>,
}

/// Explains an outcome. `limit`: states that one search may look at. `tell` hears of each rule that has been broken.
pub fn explain(
    litmus: &Litmus,
    wanted: &Wanted,
    limit: usize,
    workers: usize,
    stop: &AtomicBool,
    tell: &(dyn Fn(Option<Fault>) + Sync),
) -> Explanation {
    let program = Map::new(litmus).program;
    let allowed = shortest(&program, wanted, limit, stop);
    tell(None);
    match allowed {
        Err(undecided) => Explanation::Undecided(undecided),
        Ok(Some(run)) => Explanation::Allowed(run),
        Ok(None) => {
            let found = forbidden(&program, wanted, limit, workers, stop, tell);
            let whenever = wanted.whenever();
            let otherwise = if whenever == *wanted { Ok(None) } else { shortest(&program, &whenever, limit, stop) };
            match (found, otherwise) {
                (Err(undecided), _) | (_, Err(undecided @ Undecided::Interrupted)) => Explanation::Undecided(undecided),
                (Ok(found), otherwise) => {
                    let otherwise = otherwise.ok().flatten().map(|run| run.outcome);
                    Explanation::Forbidden(Forbidden { otherwise, ..found })
                }
            }
        }
    }
}

fn forbidden(
    program: &Program,
    wanted: &Wanted,
    limit: usize,
    workers: usize,
    stop: &AtomicBool,
    tell: &(dyn Fn(Option<Fault>) + Sync),
) -> Result<Forbidden, Undecided> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut mine = Vec::new();
        // Relaxed: a counter that hands out work; it guards no data.
        while let Some(fault) = Fault::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
            let broken = Program { fault: Some(*fault), ..program.clone() };
            mine.push((*fault, shortest(&broken, wanted, limit, stop)));
            tell(Some(*fault));
        }
        mine
    };
    let mut all: Vec<(Fault, Result<Option<Run>, Undecided>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers.max(1)).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.flatten().collect()
    });
    all.sort_by_key(|(fault, _)| *fault);
    let mut found = Forbidden::default();
    for (fault, result) in all {
        match result {
            Ok(Some(run)) => found.by.push((fault, run)),
            Ok(None) => {}
            Err(Undecided::TooLarge(_)) => found.given_up.push(fault),
            Err(Undecided::Interrupted) => return Err(Undecided::Interrupted),
        }
    }
    // Stable: of equally short ones the first in the order of the rules.
    found.by.sort_by_key(|(_, run)| run.actions.len());
    Ok(found)
}

/// The shortest run of a program that ends with the outcome, if there is one.
///
/// # Errors
/// See [`search::shortest`].
pub fn shortest(program: &Program, wanted: &Wanted, limit: usize, stop: &AtomicBool) -> Result<Option<Run>, Undecided> {
    let may = |s: &State| wanted.may_hold(|backend, lookup| answer(s, backend, lookup));
    let holds = |s: &State| wanted.holds(|backend, lookup| answer(s, backend, lookup));
    let found = search::shortest(program, may, holds, limit, stop)?;
    Ok(found.map(|actions| {
        let (outcome, stuck) = end(program, &actions);
        Run { program: program.clone(), actions, outcome, stuck }
    }))
}

fn answer(state: &State, backend: usize, lookup: usize) -> Option<Answer> {
    let a = state.backends.get(backend)?.answers.get(lookup)?;
    Some(Answer { value: Map::value(a.row, a.second), after: a.after })
}

/// What a run answers, and whether somebody has not finished then.
fn end(program: &Program, actions: &[Action]) -> (Outcome, bool) {
    let mut state = State::initial(program);
    for action in actions {
        let Some((next, _)) = search::step_on(program, state.clone(), *action) else { break };
        state = next;
    }
    let answers = |answers: Vec<catcache_model::coherence::state::Answer>| {
        answers.into_iter().map(|a| Answer { value: Map::value(a.row, a.second), after: a.after }).collect()
    };
    (graph::outcome(&state).into_iter().map(answers).collect(), !state.finished())
}
