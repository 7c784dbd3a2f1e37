//! Walks the whole graph of a small program: its states, its edges, an edge cover, its outcomes, and its progress.
//!
//! stateright keeps fingerprints, not states and edges, and has neither a deadlock check nor fairness. A program whose
//! graph has no cycle and whose only ends are those in which every backend has finished makes progress under any
//! scheduler that lets somebody run: no fairness has to be assumed.

use crate::coherence::state::Answer;
use crate::coherence::{Action, Program, Seen, State};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// One step between two states, by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// From this state.
    pub from: u32,
    /// By this action,
    pub action: Action,
    /// which saw this,
    pub seen: Seen,
    /// to this state.
    pub to: u32,
}

/// The states and edges of a program.
pub struct Graph {
    /// States; the first is the initial one.
    pub states: Vec<State>,
    /// Edges, grouped by their source, in the order of the states.
    pub edges: Vec<Edge>,
    /// `edges[first[i]..first[i + 1]]` leave state `i`.
    first: Vec<u32>,
}

/// The graph is larger than the caller's bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge(
    /// The bound, in states.
    pub usize,
);

impl std::fmt::Display for TooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the program has more than {} states; take operations or backends away", self.0)
    }
}

impl std::error::Error for TooLarge {}

/// What one run answers: the answers of each backend, in the order of the backends.
pub type Outcome = Vec<Vec<Answer>>;

impl Graph {
    /// Explores a program, breadth first. Fails if it has more than `limit` states.
    pub fn explore(program: &Program, limit: usize) -> Result<Graph, TooLarge> {
        let initial = State::initial(program);
        let mut index: FxHashMap<State, u32> = FxHashMap::default();
        index.insert(initial.clone(), 0);
        let mut states = vec![initial];
        let (mut edges, mut first) = (Vec::new(), Vec::new());
        let mut actions = Vec::new();
        let mut at = 0;
        while at < states.len() {
            first.push(edges.len() as u32);
            actions.clear();
            program.actions_of(&states[at], &mut actions);
            for action in actions.iter().copied() {
                let Some((next, seen)) = program.step(&states[at], action) else { continue };
                let to = match index.get(&next) {
                    Some(to) => *to,
                    None => {
                        if states.len() == limit {
                            return Err(TooLarge(limit));
                        }
                        let to = states.len() as u32;
                        index.insert(next.clone(), to);
                        states.push(next);
                        to
                    }
                };
                edges.push(Edge { from: at as u32, action, seen, to });
            }
            at += 1;
        }
        first.push(edges.len() as u32);
        Ok(Graph { states, edges, first })
    }

    /// The edges that leave a state.
    pub fn leaving(&self, state: u32) -> &[Edge] {
        &self.edges[self.first[state as usize] as usize..self.first[state as usize + 1] as usize]
    }

    /// The index of the edge that leaves `state` by `action`.
    pub fn edge(&self, state: u32, action: Action) -> Option<usize> {
        let base = self.first[state as usize] as usize;
        self.leaving(state).iter().position(|e| e.action == action).map(|i| base + i)
    }

    /// Runs from the initial state, each to an end, that together take every edge.
    ///
    /// Greedy: a run goes to the nearest edge not taken yet by a shortest prefix, then prefers edges not taken.
    pub fn edge_cover(&self) -> Vec<Vec<usize>> {
        let reach = self.shortest_prefixes();
        let mut taken = vec![false; self.edges.len()];
        let mut left: Vec<u32> = (0..self.states.len() as u32).map(|s| self.leaving(s).len() as u32).collect();
        let mut runs = Vec::new();
        for target in 0..self.edges.len() {
            if taken[target] {
                continue;
            }
            let mut run = prefix(&reach, &self.edges, self.edges[target].from);
            run.push(target);
            let mut at = self.edges[target].to;
            while !self.leaving(at).is_empty() {
                let base = self.first[at as usize] as usize;
                let next = (base..base + self.leaving(at).len())
                    .max_by_key(|e| (!taken[*e], left[self.edges[*e].to as usize] > 0))
                    .unwrap_or(base);
                run.push(next);
                at = self.edges[next].to;
            }
            for e in &run {
                if !std::mem::replace(&mut taken[*e], true) {
                    left[self.edges[*e].from as usize] -= 1;
                }
            }
            runs.push(run);
        }
        runs
    }

    /// For each state the edge by which a breadth-first walk reached it first.
    fn shortest_prefixes(&self) -> Vec<u32> {
        let mut by = vec![u32::MAX; self.states.len()];
        for (i, e) in self.edges.iter().enumerate() {
            if e.to != 0 && by[e.to as usize] == u32::MAX {
                by[e.to as usize] = i as u32;
            }
        }
        by
    }

    /// A shortest run to a state, as edges.
    pub fn path_to(&self, state: u32) -> Vec<usize> {
        prefix(&self.shortest_prefixes(), &self.edges, state)
    }

    /// What the states without a leaving edge answer.
    pub fn outcomes(&self) -> BTreeSet<Outcome> {
        self.ends().map(|s| outcome(&self.states[s as usize])).collect()
    }

    /// The states without a leaving edge.
    pub fn ends(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.states.len() as u32).filter(|s| self.leaving(*s).is_empty())
    }

    /// A state that is an end although somebody has not finished, if there is one.
    pub fn deadlock(&self) -> Option<u32> {
        self.ends().find(|s| !self.states[*s as usize].finished() && self.states[*s as usize].broken.is_none())
    }

    /// A state that can be reached from itself, if there is one: a run that need not end.
    pub fn cycle(&self) -> Option<u32> {
        let mut entering = vec![0_u32; self.states.len()];
        for e in &self.edges {
            entering[e.to as usize] += 1;
        }
        // Kahn: what can't be taken away from the front lies on a cycle or behind one.
        let mut free: Vec<u32> = (0..self.states.len() as u32).filter(|s| entering[*s as usize] == 0).collect();
        let mut gone = 0;
        while let Some(s) = free.pop() {
            gone += 1;
            for e in self.leaving(s) {
                entering[e.to as usize] -= 1;
                if entering[e.to as usize] == 0 {
                    free.push(e.to);
                }
            }
        }
        if gone == self.states.len() { None } else { entering.iter().position(|n| *n > 0).map(|s| s as u32) }
    }
}

/// What a finished state has answered.
pub fn outcome(state: &State) -> Outcome {
    state.backends.iter().map(|b| b.answers.to_vec()).collect()
}

fn prefix(reach: &[u32], edges: &[Edge], mut state: u32) -> Vec<usize> {
    let mut run = Vec::new();
    while state != 0 {
        let e = reach[state as usize] as usize;
        run.push(e);
        state = edges[e].from;
    }
    run.reverse();
    run
}
