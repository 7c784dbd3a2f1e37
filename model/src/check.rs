//! Runs scopes and faults, and gives verdicts that can be trusted.
//!
//! A verdict comes from a run without time-out, target or boundary, whose counts equal the pinned ones. A fault's run
//! must find a counterexample, the shortest (breadth first, one thread).

use crate::coherence::{Action, Coherence, Fault, Program, Property, Scope, State};
use crate::coverage::Coverage;
use crate::search;
use stateright::{Checker, HasDiscoveries, Model, Path};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What the run of a scope said.
#[derive(Clone, Debug)]
pub struct ScopeVerdict {
    /// The scope.
    pub scope: &'static str,
    /// Distinct states.
    pub unique: usize,
    /// States generated.
    pub generated: usize,
    /// Wall time.
    pub took: Duration,
    /// Properties that were broken, with a shortest run that breaks each as columns.
    pub broken: Vec<(String, String)>,
    /// The counts that were pinned.
    pub pinned: (usize, usize),
}

impl ScopeVerdict {
    /// Did everything hold, and was all of it explored?
    pub fn held(&self) -> bool {
        self.broken.is_empty() && self.counts_pinned()
    }

    /// Are the counts those that the scope pins?
    pub fn counts_pinned(&self) -> bool {
        self.pinned == (self.unique, self.generated)
    }
}

/// The odds that two states shared a fingerprint, and one was therefore missed: n² / 2⁶⁵.
pub fn collision_odds(unique: usize) -> f64 {
    (unique as f64).powi(2) / 2f64.powi(65)
}

/// Explores a scope to its end. `coverage` collects the branches taken.
pub fn scope(scope: &Scope, threads: usize, coverage: &Coverage) -> ScopeVerdict {
    explored(scope, threads, coverage, Arc::default())
}

/// As [`scope`], but can be broken off by setting `stop`; there is no verdict then.
pub fn scope_unless(
    scope: &Scope,
    threads: usize,
    coverage: &Coverage,
    stop: &Arc<AtomicBool>,
) -> Option<ScopeVerdict> {
    let verdict = explored(scope, threads, coverage, Arc::clone(stop));
    // Relaxed: the checker's threads have been joined, and whoever has seen the flag has left states out.
    (!stop.load(Ordering::Relaxed)).then_some(verdict)
}

fn explored(scope: &Scope, threads: usize, coverage: &Coverage, stop: Arc<AtomicBool>) -> ScopeVerdict {
    let model = Coherence { stop: Arc::clone(&stop), ..Coherence::new(scope.program.clone()) };
    let taken = Arc::clone(&model.coverage);
    let start = Instant::now();
    let checker = model.checker().threads(threads).spawn_dfs().join();
    let took = start.elapsed();
    coverage.merge(&taken);
    let shown = |(name, path): (&'static str, Path<State, Action>)| {
        // Found depth first it may be of any length.
        let run = shortest(&scope.program, &[name], &stop).remove(name).unwrap_or(path);
        (name.to_owned(), crate::diagram::columns(&scope.program, &run.into_actions()))
    };
    let broken = checker.discoveries().into_iter().map(shown).collect();
    ScopeVerdict {
        scope: scope.name,
        unique: checker.unique_state_count(),
        generated: checker.state_count(),
        took,
        broken,
        pinned: (scope.unique, scope.generated),
    }
}

/// Looks, breadth first, for a shortest run to a state that breaks one of these properties.
fn shortest(
    program: &Program,
    names: &[&'static str],
    stop: &Arc<AtomicBool>,
) -> HashMap<&'static str, Path<State, Action>> {
    let model = Coherence { stop: Arc::clone(stop), ..Coherence::new(program.clone()) };
    let any = HasDiscoveries::AnyOf(names.iter().copied().collect());
    model.checker().threads(1).finish_when(any).spawn_bfs().join().discoveries()
}

/// What the run of a fault said.
#[derive(Clone, Debug)]
pub struct FaultVerdict {
    /// The fault.
    pub fault: Fault,
    /// The scope in which it was looked for.
    pub scope: &'static str,
    /// The property that it broke first, if any.
    pub broke: Option<Property>,
    /// The shortest counterexample.
    pub counterexample: Vec<Action>,
    /// As columns, one per backend.
    pub columns: String,
    /// States looked at.
    pub unique: usize,
    /// Wall time.
    pub took: Duration,
}

impl FaultVerdict {
    /// Was it caught, by the property that it is expected to break?
    pub fn caught(&self) -> bool {
        self.broke == Some(self.fault.breaks())
    }
}

/// Looks for the shortest counterexample to a fault, in the scope that the fault names. `None` if there is no such scope.
pub fn fault(fault: Fault) -> Option<FaultVerdict> {
    let scope = Scope::named(fault.scope())?;
    Some(fault_in(fault, &scope))
}

/// Looks for the shortest counterexample to a fault in a given scope.
pub fn fault_in(fault: Fault, scope: &Scope) -> FaultVerdict {
    let mut program = scope.program.clone();
    program.fault = Some(fault);
    let start = Instant::now();
    let (found, unique) = search::first_broken(
        State::initial(&program),
        |s, out| program.actions_of(s, out),
        |s, action| program.step(s, action).map(|(next, _)| next),
        |s| s.broken,
    );
    let took = start.elapsed();
    let (broke, counterexample) = found.map_or((None, Vec::new()), |(property, run)| (Some(property), run));
    let columns = crate::diagram::columns(&program, &counterexample);
    FaultVerdict { fault, scope: scope.name, broke, counterexample, columns, unique, took }
}
