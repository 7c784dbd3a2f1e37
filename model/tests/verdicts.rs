//! The model's verdicts: every quick scope holds and has the states that it pins, every fault is caught where it is said
//! to be, every branch of every step is taken, and the check itself can fail.

use catcache_model::check;
use catcache_model::coherence::scope::{Feature, Form};
use catcache_model::coherence::{Fault, KeySpec, Op, Plan, Program, Property, Scope};
use catcache_model::coverage::Coverage;
use catcache_model::graph::{Graph, TooLarge};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn every_quick_scope_holds_with_its_pinned_counts_and_together_they_take_every_branch() {
    let coverage = Coverage::default();
    let mut unique = 0;
    for scope in Scope::all().into_iter().filter(|s| s.form == Form::Quick) {
        let verdict = check::scope(&scope, 2, &coverage);
        assert!(verdict.broken.is_empty(), "{}: {:?}", scope.name, verdict.broken);
        assert!(verdict.counts_pinned(), "{}: {} {}", scope.name, verdict.unique, verdict.generated);
        unique += verdict.unique;
    }
    assert!(unique <= 10_000_000, "the quick form has a budget of ten million states, not {unique}");
    assert_eq!(coverage.missing(), []);
}

#[test]
fn every_fault_is_caught_by_the_property_that_it_names() {
    for fault in Fault::ALL {
        let verdict = check::fault(*fault).expect("the fault names a scope that exists");
        assert_eq!(verdict.broke, Some(fault.breaks()), "{} in {}\n{}", fault.name(), verdict.scope, verdict.columns);
        assert!(!verdict.counterexample.is_empty());
    }
}

/// A property that no fault breaks first might be vacuous; A7 and A8 follow from others here, and the rest must show.
#[test]
fn nearly_every_property_is_broken_first_by_some_fault() {
    let broken: Vec<Property> = Fault::ALL.iter().map(|f| f.breaks()).collect();
    let unbroken: Vec<Property> = Property::ALL.iter().copied().filter(|p| !broken.contains(p)).collect();
    assert_eq!(unbroken, [Property::A7, Property::A8]);
}

#[test]
fn a_changed_count_is_no_verdict() {
    let mut scope = Scope::named("withdraw").expect("a shipped scope");
    scope.unique += 1;
    assert!(!check::scope(&scope, 1, &Coverage::default()).held());
}

#[test]
fn a_run_that_was_broken_off_gives_no_verdict() {
    let scope = Scope::named("withdraw").expect("a shipped scope");
    let stop = Arc::new(AtomicBool::new(true));
    assert!(check::scope_unless(&scope, 1, &Coverage::default(), &stop).is_none());
    stop.store(false, Ordering::Relaxed);
    assert!(check::scope_unless(&scope, 1, &Coverage::default(), &stop).is_some_and(|v| v.held()));
}

#[test]
fn every_scope_has_a_feature_and_a_name_of_its_own() {
    let scopes = Scope::all();
    let mut names: Vec<&str> = scopes.iter().map(|s| s.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), scopes.len());
    assert!(Feature::ALL.iter().all(|f| scopes.iter().any(|s| s.features.contains(f))));
}

fn small(ops: &[&[Op]]) -> Program {
    Program {
        keys: vec![KeySpec::new("k", 0, 0)],
        lists: Vec::new(),
        stripes: 1,
        ring: 2,
        entries: None,
        local: None,
        escalate: None,
        plans: ops.iter().enumerate().map(|(i, ops)| Plan::script(&format!("b{i}"), ops)).collect(),
        stale_tokens: false,
        record: true,
        fault: None,
    }
}

/// The graph of one lookup and one commit: acyclic, ends only where both have finished, covered edge by edge.
#[test]
fn a_small_graph_makes_progress_and_its_cover_takes_every_edge() {
    let graph = Graph::explore(&small(&[&[Op::Lookup(0)], &[Op::Begin, Op::Update(0), Op::Commit]]), 10_000)
        .expect("it is small");
    assert_eq!((graph.cycle(), graph.deadlock()), (None, None));
    let mut taken = vec![false; graph.edges.len()];
    for run in graph.edge_cover() {
        let mut at = 0;
        for edge in run {
            assert_eq!(graph.edges[edge].from, at, "a run is a path from the start");
            at = graph.edges[edge].to;
            taken[edge] = true;
        }
        assert!(graph.leaving(at).is_empty(), "a run goes on to an end");
    }
    assert!(taken.iter().all(|t| *t));
}

/// Two transactions that lock two keys in opposite order deadlock: the walk says so.
#[test]
fn a_deadlock_of_heavyweight_locks_is_found() {
    let mut program = small(&[
        &[Op::Begin, Op::Update(0), Op::Update(1), Op::Commit],
        &[Op::Begin, Op::Update(1), Op::Update(0), Op::Commit],
    ]);
    program.keys.push(KeySpec::new("l", 0, 1));
    let graph = Graph::explore(&program, 10_000).expect("it is small");
    assert!(graph.deadlock().is_some());
}

#[test]
fn a_graph_beyond_its_bound_is_refused() {
    let program = small(&[&[Op::Lookup(0)], &[Op::Begin, Op::Update(0), Op::Commit]]);
    assert_eq!(Graph::explore(&program, 10).err(), Some(TooLarge(10)));
}
