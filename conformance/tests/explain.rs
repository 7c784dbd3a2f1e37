//! How outcomes come about, and which rules forbid them: held against the graph, which is walked by other code.

use catcache_conformance::explain::{self, Explanation, Forbidden, STATES_MAX};
use catcache_conformance::litmus::{self, Litmus, Wanted};
use catcache_conformance::outcomes;
use catcache_conformance::suite::Prepared;
use catcache_model::coherence::{Fault, Property};
use catcache_model::diagram;
use catcache_model::search::Undecided;
use std::sync::atomic::AtomicBool;

fn shipped(name: &str) -> Litmus {
    litmus::shipped().expect("the shipped files parse").into_iter().find(|l| l.name == name).expect("it is shipped")
}

fn explained(litmus: &Litmus, outcome: &str) -> Explanation {
    let wanted = Wanted::parse(litmus, outcome).unwrap_or_else(|e| panic!("{e}"));
    explain::explain(litmus, &wanted, STATES_MAX, 2, &AtomicBool::new(false), &|_| {})
}

fn forbidden(name: &str, outcome: &str) -> Forbidden {
    match explained(&shipped(name), outcome) {
        Explanation::Forbidden(why) => why,
        other => panic!("{name}, {outcome}: {other:?}"),
    }
}

#[test]
fn every_outcome_as_it_is_printed_is_reached_by_a_run_as_short_as_the_graph_has_one() {
    for name in
        ["d01-late-publication", "a26-two-deep", "a27-subabort-unlocks", "b67-table-full", "a10-window-is-legal"]
    {
        let file = Prepared::new(shipped(name)).expect("it is small");
        for outcome in &file.allowed {
            let text = outcomes::text(&file.litmus, outcome);
            let Explanation::Allowed(run) = explained(&file.litmus, &text) else { panic!("{name}: {text}") };
            assert_eq!(run.outcome, *outcome, "{name}");
            let ends = file.graph.ends().filter(|end| {
                let answers = catcache_model::graph::outcome(&file.graph.states[*end as usize]);
                let of = |b: usize, l: usize| Some((answers.get(b)?.get(l)?, outcome.get(b)?.get(l)?));
                let same = |b: usize, l: usize| {
                    of(b, l).is_some_and(|(model, file)| {
                        model.after == file.after
                            && catcache_conformance::refinement::Map::value(model.row, model.second) == file.value
                    })
                };
                (0..outcome.len()).all(|b| (0..outcome[b].len()).all(|l| same(b, l)))
            });
            let shortest = ends.map(|end| file.graph.path_to(end).len()).min();
            assert_eq!(Some(run.actions.len()), shortest, "{name}: {text}");
            assert!(!run.stuck);
        }
    }
}

#[test]
fn what_the_files_say_of_their_outcomes_is_what_the_search_says() {
    for litmus in litmus::shipped().expect("the shipped files parse") {
        for clause in &litmus.sometimes {
            let text = format!("sometimes {}", litmus.clause_text(clause));
            let Explanation::Allowed(run) = explained(&litmus, &text) else { panic!("{}: {text}", litmus.name) };
            assert!(outcomes::holds(clause, &run.outcome), "{}: {text}", litmus.name);
        }
        for clause in &litmus.never {
            let wanted = Wanted::parse(&litmus, &litmus.clause_text(clause)).expect("a clause is an outcome");
            let program = catcache_conformance::refinement::Map::new(&litmus).program;
            let found = explain::shortest(&program, &wanted, STATES_MAX, &AtomicBool::new(false));
            assert_eq!(found, Ok(None), "{}: {}", litmus.name, litmus.clause_text(clause));
        }
    }
}

/// Each story with the rule that it is about.
#[test]
fn the_rules_that_forbid_an_outcome_are_those_that_its_file_stands_for() {
    for (name, outcome, rule) in [
        ("d11-half-of-a-commit", "reader.2 = v1 and reader.3 = v0", Fault::OpenLeftOut),
        ("d11-half-of-a-commit", "reader.2 = v1 and reader.3 = v0", Fault::SnapshotKeptOnNewerHit),
        ("d08-own-delete-not-hidden", "writer.1 = v0", Fault::DirtyNotConsultedAtProbe),
        ("a12-reused-snapshot-old-token", "writer = v0", Fault::TokenAtMiss),
        ("b01-stale-after-toast", "loader.2 = v0 after writer and loader.3 = v0", Fault::LoadNotDoomed),
        ("b38-reset-keeps-own-changes", "mine = v0", Fault::ResetClearsDirty),
        ("a27-subabort-goes-back", "writer.2 = v1", Fault::SubAbortKeepsLocal),
    ] {
        let why = forbidden(name, outcome);
        assert!(why.by.iter().any(|(fault, _)| *fault == rule), "{name}: {:?} is not among the rules", rule);
        assert!(why.given_up.is_empty());
        for (fault, run) in &why.by {
            assert_eq!(run.program.fault, Some(*fault));
            assert!(Wanted::parse(&shipped(name), outcome).unwrap().holds(|b, l| run.outcome.get(b)?.get(l).copied()));
        }
        assert!(why.by.is_sorted_by_key(|(_, run)| run.actions.len()));
    }
}

/// Only one rule stands between a reader and an uncommitted row; and the run to it goes on past the property that it breaks.
#[test]
fn a_run_goes_on_past_a_broken_property_and_says_where_that_was() {
    let why = forbidden("a24-uncommitted-stays-private", "reader = v1");
    let [(Fault::DirtyNotConsultedAtPublish, run)] = &why.by[..] else { panic!("{:?}", why.by) };
    let told = diagram::told(&run.program, &run.actions);
    assert_eq!(told.len(), run.actions.len());
    let broken: Vec<usize> = (0..told.len()).filter(|i| told[*i].breaks == Some(Property::I1)).collect();
    let [at] = broken[..] else { panic!("I1 is broken once, not {broken:?}") };
    assert!(at + 1 < told.len(), "it is the answer that is asked for, and that comes later");
    assert_eq!(told.last().unwrap().answer.as_deref(), Some("k1 = v1"));
    let columns = diagram::columns(&run.program, &run.actions);
    assert!(columns.contains(&format!("step {} breaks I1: Every", at + 1)), "{columns}");
    assert!(!columns.contains("not possible here"), "{columns}");
    assert_eq!(diagram::svg(&run.program, &run.actions).matches("#c00").count(), 4, "one step, and what it breaks");
}

#[test]
fn what_no_rule_alone_forbids_is_said_to_be_so() {
    assert!(forbidden("a26-two-deep", "reader = v1").by.is_empty());
    // The faults of brackets meet a bracket that is withdrawn.
    assert!(forbidden("b71-failed-commit-withdraws", "reader = v1").by.is_empty());
}

#[test]
fn answers_that_only_an_after_forbids_are_shown_as_they_are_allowed() {
    let why = forbidden("d01-late-publication", "loader: v0   writer: v1");
    let litmus = shipped("d01-late-publication");
    let otherwise = why.otherwise.map(|o| outcomes::text(&litmus, &o));
    assert_eq!(otherwise.as_deref(), Some("loader: v0   writer: v1 after writer"));
    assert_eq!(forbidden("d01-late-publication", "writer = v0").otherwise, None);
}

#[test]
fn a_search_that_is_given_up_forbids_nothing() {
    let litmus = shipped("d01-late-publication");
    let wanted = Wanted::parse(&litmus, "writer = v0").unwrap();
    let stop = AtomicBool::new(false);
    let with = |limit| explain::explain(&litmus, &wanted, limit, 1, &stop, &|_| {});
    assert_eq!(with(10), Explanation::Undecided(Undecided::TooLarge(10)));
    // Enough for the model, not for every broken rule.
    let enough = (10..STATES_MAX).find(|limit| matches!(with(*limit), Explanation::Forbidden(_))).unwrap();
    let Explanation::Forbidden(why) = with(enough) else { unreachable!() };
    assert!(!why.given_up.is_empty(), "with {enough} states");
    let whole = forbidden("d01-late-publication", "writer = v0");
    for (fault, _) in whole.by {
        assert!(why.given_up.contains(&fault) || why.by.iter().any(|(f, _)| *f == fault), "{fault:?} was lost");
    }
}

#[test]
fn a_search_that_is_interrupted_says_so() {
    let litmus = shipped("d01-late-publication");
    let wanted = Wanted::parse(&litmus, "writer = v0").unwrap();
    let stopped = explain::explain(&litmus, &wanted, STATES_MAX, 1, &AtomicBool::new(true), &|_| {});
    assert_eq!(stopped, Explanation::Undecided(Undecided::Interrupted));
}

#[test]
fn an_end_in_a_deadlock_is_told_from_others() {
    let text = "# A5: crossed locks.\nlayer backend\nkeys k = rel/1, l = rel/2\n\
                backend a: begin; update k; update l; commit\nbackend b: begin; update l; update k; commit\n";
    let litmus = Litmus::parse("dead.litmus", text).unwrap();
    let Explanation::Allowed(run) = explained(&litmus, "no lookups") else { panic!() };
    assert!(run.stuck);
    let failure = Prepared::new(litmus).unwrap().model_holds().unwrap_err();
    assert!(failure.contains("deadlocks") && failure.contains("[update l] Write"), "{failure}");
}

#[test]
fn what_is_no_outcome_is_refused_with_its_place() {
    let litmus = shipped("a08-never-backwards");
    for (text, column, message) in [
        ("", 1, "expected a backend, found the end of the line"),
        ("redaer.1 = v0", 1, "unknown backend `redaer`"),
        ("reader = v0", 1, "`reader` has 2 lookups, not just one"),
        ("reader.3 = v0", 8, "`reader` has 2 lookups, counted from 1"),
        ("reader.1 = v2", 12, "`k1` is written once: its last version is v1"),
        ("reader: v0", 11, "`reader` has 2 lookups: an answer is missing"),
        ("loader: v0, v1", 11, "`loader` has 1 lookup: an answer too many"),
        ("writer: v0", 9, "`writer` has 0 lookups: an answer too many"),
        ("loader: v0   loader: v1", 14, "the answers of `loader` are there already"),
        ("loader: v0 after reader", 18, "`reader` never commits or aborts"),
        ("loader: v0 after writer+", 25, "expected a backend, found the end of the line"),
        ("loader: v0 and reader.1 = v0", 12, "unknown backend `and`"),
        ("loader: none   no", 16, "unknown backend `no`"),
        ("loader = v0 reader.1 = v0", 13, "expected `and`, `after` or the end of the line, found `reader`"),
        ("never", 1, "unknown backend `never`"),
        ("no lookups", 1, "unknown backend `no`"),
    ] {
        let error = Wanted::parse(&litmus, text).expect_err(text);
        assert_eq!((error.column, &*error.message), (column, message), "{text}");
        let _ = error.to_string();
    }
}

#[test]
fn both_ways_to_say_an_outcome_mean_what_they_say() {
    let litmus = shipped("a08-never-backwards");
    let whole = "reader: v0, v1 after writer\n   loader: v1";
    let answers = |text: &str| {
        let wanted = Wanted::parse(&litmus, text).unwrap_or_else(|e| panic!("{e}"));
        let file = Prepared::new(litmus.clone()).expect("it is small");
        file.allowed.iter().filter(|o| wanted.holds(|b, l| o.get(b)?.get(l).copied())).count()
    };
    assert_eq!(answers(whole), 1);
    // Left open: who had committed before the loader's lookup.
    assert!(answers("reader: v0, v1 after writer") > 1);
    assert!(answers("never reader.2 = v1 and loader = v1") > answers("reader.2 = v1 after writer and loader = v1"));
}
