//! Outcomes: what the model allows, what a file's clauses say of it, and what real threads and processes are seen to do.

use crate::desk::{Answered, Board, Desk, Mode, Place};
use crate::litmus::{Answer, Clause, Litmus, Value};
use crate::refinement::{Map, Writer};
use crate::runtimes::real::body;
use catcache_model::graph::Graph;
use std::collections::BTreeSet;
use std::sync::{Arc, Barrier};

/// What one run answered: each backend's answers in the order of its lookups.
pub type Outcome = Vec<Vec<Answer>>;

/// The outcomes that the model allows.
pub fn allowed(graph: &Graph) -> BTreeSet<Outcome> {
    let answers = |backend: Vec<catcache_model::coherence::state::Answer>| {
        backend.into_iter().map(|a| Answer { value: Map::value(a.row, a.second), after: a.after }).collect()
    };
    graph.outcomes().into_iter().map(|outcome| outcome.into_iter().map(answers).collect()).collect()
}

/// Does a clause hold in an outcome?
pub fn holds(clause: &Clause, outcome: &Outcome) -> bool {
    clause.holds(|backend, lookup| outcome.get(backend).and_then(|b| b.get(lookup)).copied())
}

/// The first clause of a file that the model does not bear out, in words.
///
/// # Errors
/// A `never` that the model allows, or a `sometimes` that it does not.
pub fn clauses(litmus: &Litmus, allowed: &BTreeSet<Outcome>) -> Result<(), String> {
    for clause in &litmus.never {
        if let Some(outcome) = allowed.iter().find(|o| holds(clause, o)) {
            return Err(format!(
                "the model allows what the file forbids: never {}; it can end with {}",
                litmus.clause_text(clause),
                text(litmus, outcome)
            ));
        }
    }
    for clause in &litmus.sometimes {
        if !allowed.iter().any(|o| holds(clause, o)) {
            return Err(format!(
                "the model never does what the file says it can: sometimes {}",
                litmus.clause_text(clause)
            ));
        }
    }
    Ok(())
}

/// An outcome as one line: `reader: v0 v1  writer: v1`.
pub fn text(litmus: &Litmus, outcome: &Outcome) -> String {
    let name = |b: usize| litmus.backends[b].name.as_str();
    let one = |a: &Answer| {
        let after: Vec<&str> = (0..litmus.backends.len()).filter(|b| a.after & (1 << b) != 0).map(name).collect();
        if after.is_empty() { a.value.to_string() } else { format!("{} after {}", a.value, after.join("+")) }
    };
    let backend = |(b, answers): (usize, &Vec<Answer>)| {
        (!answers.is_empty())
            .then(|| format!("{}: {}", name(b), answers.iter().map(one).collect::<Vec<_>>().join(", ")))
    };
    let said: Vec<String> = outcome.iter().enumerate().filter_map(backend).collect();
    if said.is_empty() { "no lookups".into() } else { said.join("   ") }
}

/// The values alone, without the `after`s.
pub fn values(outcome: &Outcome) -> Vec<Vec<Value>> {
    outcome.iter().map(|b| b.iter().map(|a| a.value).collect()).collect()
}

/// What real threads, or processes, were seen to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Runs.
    pub runs: usize,
    /// Different combinations of values that were seen,
    pub seen: usize,
    /// of so many that the model allows.
    pub allowed: usize,
}

/// Runs a file on real threads, and holds every outcome against those that the model allows.
///
/// # Errors
/// An outcome that the model does not allow, or what the code refused.
pub fn on_threads(litmus: &Litmus, map: &Map, allowed: &BTreeSet<Outcome>, runs: usize) -> Result<Seen, String> {
    let mut seen = BTreeSet::new();
    for run in 0..runs {
        let desk = Desk::new(&map.program, Mode::Free, None);
        let actors = body::world(litmus, map.sizes(), &desk, None)?;
        let start = Arc::new(Barrier::new(actors.len()));
        let threads: Vec<_> = actors
            .into_iter()
            .enumerate()
            .map(|(me, actor)| {
                let start = Arc::clone(&start);
                std::thread::spawn(move || {
                    start.wait();
                    // Not in step: a different head start in each run.
                    for _ in 0..(run * (me + 1) * 37) % 400 {
                        std::hint::spin_loop();
                    }
                    drop(actor.run());
                })
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| "a backend panicked on a real thread".to_owned())?;
        }
        let board = desk.board();
        if let Some(failure) = &board.failure {
            return Err(failure.clone());
        }
        seen.insert(judge(litmus, allowed, &board, "threads")?);
    }
    Ok(Seen { runs, seen: seen.len(), allowed: combinations(allowed) })
}

/// The answers of one run, if the model allows its outcome; `who` ran it.
///
/// # Errors
/// It does not.
pub fn judge(
    litmus: &Litmus,
    allowed: &BTreeSet<Outcome>,
    board: &Board,
    who: &str,
) -> Result<Vec<Vec<Value>>, String> {
    let outcome = outcome(litmus, board)?;
    // The code notes who had finished when a lookup was called, the model when it took its first step: no earlier.
    let fits = |model: &Outcome| {
        values(model) == values(&outcome)
            && model.iter().flatten().zip(outcome.iter().flatten()).all(|(m, c)| c.after & !m.after == 0)
    };
    if !allowed.iter().any(fits) {
        return Err(format!("real {who} ended with what the model does not allow: {}", text(litmus, &outcome)));
    }
    Ok(values(&outcome))
}

/// How many different combinations of answers the model allows.
pub fn combinations(allowed: &BTreeSet<Outcome>) -> usize {
    allowed.iter().map(values).collect::<BTreeSet<_>>().len()
}

fn outcome(litmus: &Litmus, board: &Board) -> Result<Outcome, String> {
    let version = |key: u8, writer: Option<Writer>| match writer {
        None => Ok(None),
        Some(Writer::FIRST) => Ok(Some(0)),
        Some(writer) => board
            .writes
            .iter()
            .filter(|(k, _)| *k == key)
            .position(|(_, w)| *w == writer)
            .map(|n| Some(n as u32 + 1))
            .ok_or_else(|| format!("a lookup answered a row that nobody wrote: {writer:?}")),
    };
    let value = |a: &Answered| -> Result<Value, String> {
        let Some(list) = litmus.list(usize::from(a.key)) else {
            return Ok(version(a.key, a.writer)?.map_or(Value::None, Value::Version));
        };
        let [first, second] = list.members.map(|key| key as u8);
        Ok(Value::List([version(first, a.writer)?, version(second, a.second)?]))
    };
    let answers = |p: &Place| p.answers.iter().map(|a| Ok(Answer { value: value(a)?, after: a.after })).collect();
    board.places.iter().map(answers).collect()
}
