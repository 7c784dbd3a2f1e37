//! The suite over every shipped litmus file, with its pinned counts; and that it can fail.

use catcache_conformance::litmus::{self, Litmus};
use catcache_conformance::rules::Rule;
use catcache_conformance::suite::{self, Form, Pins, Prepared};
use std::sync::atomic::AtomicBool;

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
    }
}

#[test]
fn every_rule_that_is_switched_off_in_the_code_is_noticed() {
    let files = prepared();
    let pins = Pins::shipped().expect("the pins parse");
    let verdicts = suite::faults(&files, &pins, 2, &AtomicBool::new(false), &|_| {});
    assert_eq!(verdicts.len(), Rule::ALL.len());
    for v in verdicts {
        assert!(v.caught_by.is_some(), "nothing notices that {} is switched off", v.rule.name());
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
