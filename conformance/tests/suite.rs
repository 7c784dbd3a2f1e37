//! The suite over every shipped litmus file, with its pinned counts; and that it can fail.

use catcache_conformance::litmus::{self, Litmus};
use catcache_conformance::replay;
use catcache_conformance::rules::Rule;
use catcache_conformance::runtimes::processes;
use catcache_conformance::suite::{self, Form, Pins, Prepared};
use catcache_model::coherence::State;
use catcache_model::coherence::state::{Life, Pc};
use std::sync::atomic::AtomicBool;

/// No test: the suite starts this program as its worker processes.
#[test]
fn this_program_serves_as_a_worker() {
    if processes::is_worker() {
        processes::serve();
    }
}

fn prepared() -> Vec<Prepared> {
    let files = litmus::shipped().expect("the shipped files parse");
    files.into_iter().map(|l| Prepared::new(l).expect("the shipped files are small")).collect()
}

#[test]
fn every_file_holds_with_its_pinned_counts_and_every_edge_is_replayed() {
    let files = prepared();
    assert!(files.len() >= 40, "files have been lost");
    let pins = Pins::shipped().expect("the pins parse");
    let verdicts = suite::run_all(&files, Form::Quick, &pins, 2, &AtomicBool::new(false), &|_| {});
    assert_eq!(verdicts.len(), files.len());
    for v in verdicts {
        assert!(v.held(), "{}: {}", v.file, v.failure.unwrap_or_default());
        assert_eq!(v.replayed.edges, v.counts.edges, "{}", v.file);
        assert!(v.processes.runs >= v.threads.runs && v.processes.seen > 0, "{}: {:?}", v.file, v.processes);
    }
}

#[test]
fn every_rule_that_is_switched_off_in_the_code_is_noticed() {
    let files = prepared();
    let pins = Pins::shipped().expect("the pins parse");
    let verdicts = suite::faults(&files, &pins, 2, &AtomicBool::new(false), &|_| {});
    assert_eq!(verdicts.len(), Rule::ALL.len());
    for v in verdicts {
        let Some((file, _)) = v.caught_by else { panic!("nothing notices that {} is switched off", v.rule.name()) };
        // Others are tried too where it does not: the pin would then say something that is not so.
        assert_eq!(pins.faults.get(v.rule.name()), Some(&file), "{}", v.rule.name());
    }
}

/// A rule is pinned to the file whose story it is; one that anything notices is no reason to pin all to the first file.
#[test]
fn every_rule_is_pinned_to_a_file_and_few_rules_share_one() {
    let pins = Pins::shipped().expect("the pins parse");
    let mut rules: Vec<&str> = Rule::ALL.iter().map(|rule| rule.name()).collect();
    rules.sort_unstable();
    assert!(pins.faults.keys().eq(rules), "{:?}", pins.faults.keys());
    for file in pins.faults.values() {
        let sharing: Vec<&String> = pins.faults.iter().filter(|(_, f)| *f == file).map(|(rule, _)| rule).collect();
        assert!(pins.litmus.contains_key(file) && sharing.len() <= 3, "{file}: {sharing:?}");
    }
}

#[test]
fn a_file_that_forbids_what_the_model_allows_does_not_hold() {
    let text = "# A5: wrong on purpose.\nlayer backend\nkeys k1 = rel/7\nbackend reader: lookup k1\n\
                backend writer: begin; update k1; commit\nnever reader = v1\n";
    let file = Prepared::new(Litmus::parse("wrong.litmus", text).expect("it parses")).expect("it is small");
    let failure = file.model_holds().expect_err("the reader may well see the new row");
    assert!(failure.contains("never reader.1 = v1"), "{failure}");
}

#[test]
fn a_file_without_a_pin_is_no_verdict() {
    let files = prepared();
    let verdict = files[0].run(Form::Quick, None);
    assert!(verdict.failure.is_some_and(|f| f.contains("not pinned")));
}

/// Only the reader's reference, which its hit took, keeps the one slot from the row that another backend wants; and who has
/// made room may find it taken by somebody else.
///
/// Not a shipped file: an eviction that finds nothing to go reports that after it has looked, and the references that it looks
/// at are dropped without a lock, so a free run may report a release in between. In lock step it can't.
const EVICTED_AFTER_A_HIT: &str = "# A39, B33, D24: what a backend has found stays while it refers to it.\nlayer backend\n\
    keys k1 = rel/6, k2 = rel/7 absent\nentries 1   local 0\nbackend loader: lookup k1; accept\n\
    backend reader: lookup k1; lookup k1\nbackend other: lookup k2\nnever reader.2 = none\n";

#[test]
fn eviction_and_the_reference_of_a_hit_are_replayed_edge_by_edge_and_the_reference_matters() {
    let litmus = Litmus::parse("evicted.litmus", EVICTED_AFTER_A_HIT).expect("it parses");
    let file = Prepared::new(litmus).expect("it is small");
    let again = |s: &State| s.backends.iter().any(|b| b.pc == Pc::Allocate(true));
    let full = |s: &&State| again(s) && !s.slots.iter().any(|slot| slot.life == Life::Free);
    assert!(file.graph.states.iter().any(|s| full(&s)), "somebody makes room, and another takes it");
    let replayed = replay::every_edge(&file.litmus, &file.map, &file.graph, None);
    assert_eq!(replayed.expect("the code does what the model does").edges, file.graph.edges.len());
    assert_eq!(file.catches(Rule::TakeReference), Some("replay"));
}
