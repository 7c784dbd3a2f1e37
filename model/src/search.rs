//! The shortest run of a program to an end that somebody asks for.
//!
//! A run that breaks a property is at an end for a check, since it has said all that it can say. Here it goes on: a broken
//! rule is first noticed by a property, and only later, if at all, by an answer; and it is the answer that is asked for.

use crate::coherence::{Action, Program, State};
use rustc_hash::FxHashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};

/// The search came to no result: neither is there such a run, nor is there none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecided {
    /// More states than the caller's bound.
    TooLarge(
        /// The bound.
        usize,
    ),
    /// Somebody asked to stop.
    Interrupted,
}

impl fmt::Display for Undecided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Undecided::TooLarge(limit) => write!(f, "the search was given up after {limit} states"),
            Undecided::Interrupted => f.write_str("the search was interrupted"),
        }
    }
}

impl std::error::Error for Undecided {}

/// Takes a step as [`Program::step`] does, also where a property was broken before.
pub fn step_on(program: &Program, mut state: State, action: Action) -> Option<(State, crate::coherence::Seen)> {
    state.broken = None;
    program.step(&state, action)
}

/// A shortest run to a state in which nobody can do anything any more and that is `wanted`; `None`: there is none. States
/// of which `may` is false lead to none that is wanted, and are not followed.
///
/// Breadth first, one thread; of equally short runs always the same.
///
/// # Errors
/// More than `limit` states, or `stop` was set.
pub fn shortest(
    program: &Program,
    may: impl Fn(&State) -> bool,
    wanted: impl Fn(&State) -> bool,
    limit: usize,
    stop: &AtomicBool,
) -> Result<Option<Vec<Action>>, Undecided> {
    let initial = State::initial(program);
    // For each state the one that it was reached from, and how.
    let mut from: Vec<(u32, Option<Action>)> = vec![(0, None)];
    let mut seen = FxHashSet::from_iter([fingerprint(&initial)]);
    let (mut front, mut behind) = (vec![(0_u32, initial)], Vec::new());
    let mut actions = Vec::new();
    while !front.is_empty() {
        for (at, state) in front.drain(..) {
            // Relaxed: a flag that asks to stop; it guards no data.
            if stop.load(Ordering::Relaxed) {
                return Err(Undecided::Interrupted);
            }
            actions.clear();
            program.actions_of(&state, &mut actions);
            if actions.is_empty() && wanted(&state) {
                return Ok(Some(run_to(&from, at)));
            }
            for action in actions.iter().copied() {
                let Some((mut next, _)) = step_on(program, state.clone(), action) else { continue };
                next.broken = None;
                if !may(&next) || !seen.insert(fingerprint(&next)) {
                    continue;
                }
                if from.len() >= limit {
                    return Err(Undecided::TooLarge(limit));
                }
                behind.push((from.len() as u32, next));
                from.push((at, Some(action)));
            }
        }
        std::mem::swap(&mut front, &mut behind);
    }
    Ok(None)
}

/// What stands for a state once it has been looked at: a state takes some kilobytes. Among a million states the odds that
/// two share their 128 bits are below 1 : 10²⁶.
fn fingerprint(state: &impl Hash) -> u128 {
    u128::from(half(state, 0)) << 64 | u128::from(half(state, 1))
}

/// Half of it: enough where a state that is missed makes a run longer, or a fault go uncaught, which is then told.
fn half(state: &impl Hash, salt: u8) -> u64 {
    let mut hasher = DefaultHasher::new();
    salt.hash(&mut hasher);
    state.hash(&mut hasher);
    hasher.finish()
}

/// The shortest run after which something is broken, as `broken` tells and orders it: of equally short runs, one of the least. `None`:
/// there is none. Breadth first, one thread, level by level; a state that is broken has no successors.
///
/// stateright's own search ends with a block of states, and keeps the last discovery in it, not the first. Beside the run, the number of
/// states that were reached.
pub fn first_broken<S: Clone + Hash, A: Copy, B: Ord>(
    initial: S,
    actions: impl Fn(&S, &mut Vec<A>),
    step: impl Fn(&S, A) -> Option<S>,
    broken: impl Fn(&S) -> Option<B>,
) -> (Option<(B, Vec<A>)>, usize) {
    let mut from: Vec<(u32, Option<A>)> = vec![(0, None)];
    let mut seen = FxHashSet::from_iter([half(&initial, 0)]);
    let (mut front, mut behind) = (vec![(0_u32, initial)], Vec::new());
    let mut may = Vec::new();
    while !front.is_empty() {
        let mut found: Option<(B, u32)> = None;
        for (at, state) in front.drain(..) {
            may.clear();
            actions(&state, &mut may);
            for action in may.iter().copied() {
                let Some(next) = step(&state, action).filter(|next| seen.insert(half(next, 0))) else { continue };
                let number = from.len() as u32;
                from.push((at, Some(action)));
                match broken(&next) {
                    Some(what) if found.as_ref().is_none_or(|(least, _)| what < *least) => found = Some((what, number)),
                    Some(_) => {}
                    None => behind.push((number, next)),
                }
            }
        }
        if let Some((what, at)) = found {
            return (Some((what, run_to(&from, at))), from.len());
        }
        std::mem::swap(&mut front, &mut behind);
    }
    (None, from.len())
}

fn run_to<A: Copy>(from: &[(u32, Option<A>)], mut at: u32) -> Vec<A> {
    let mut run = Vec::new();
    while let (before, Some(action)) = from[at as usize] {
        run.push(action);
        at = before;
    }
    run.reverse();
    run
}
