//! Litmus files on real processes: what is seen of them, and that a fault, a death and a process that hangs are noticed.

use catcache_conformance::litmus::{self, Litmus};
use catcache_conformance::rules::Rule;
use catcache_conformance::runtimes::processes::{self, Pool};
use catcache_conformance::suite::Prepared;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// No test: the pools of this program start it as their workers.
#[test]
fn this_program_serves_as_a_worker() {
    if processes::is_worker() {
        processes::serve();
    }
}

fn prepared(name: &str) -> Prepared {
    let files = litmus::shipped().expect("the shipped files parse");
    let file = files.into_iter().find(|file| file.name == name).expect("it is shipped");
    Prepared::new(file).expect("it is small")
}

fn run(pool: &mut Pool, file: &Prepared, runs: usize, broken: Option<Rule>) -> Result<usize, String> {
    pool.run(&file.litmus, &file.map, &file.allowed, runs, broken).map(|seen| seen.seen)
}

fn signal(id: u32, name: &str) {
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {id}")]).status();
    assert!(status.expect("there is a shell").success());
}

/// The workers are gone, not merely told to go.
fn assert_gone(ids: &[u32]) {
    assert!(!ids.is_empty());
    assert!(ids.iter().all(|id| !Path::new(&format!("/proc/{id}")).exists()), "{ids:?}");
}

/// The processes work side by side: a reader gets the old row in one run and the new one in another.
#[test]
fn different_outcomes_are_seen() {
    let file = prepared("b01-stale-published");
    assert!(run(&mut Pool::default(), &file, 300, None).expect("it holds") > 1);
}

/// Each with the file that shows it on processes, too. There is no lock step here, so most of the runs go well; rules whose breach
/// shows in a few steps only (`OpenStripe`: between the bracket's opening and its end) are left to replay and the simulators.
#[test]
fn a_rule_that_is_switched_off_in_the_processes_is_noticed() {
    for (rule, name) in [
        (Rule::CheckStripe, "a01-accepted-messages-bind"),
        (Rule::DropLocalOnAccept, "a01-accepted-messages-bind"),
        (Rule::SendMessages, "a01-accepted-messages-bind"),
    ] {
        let file = prepared(name);
        let mut pool = Pool::default();
        run(&mut pool, &file, 200, None).expect("the code as it is holds");
        let failure = run(&mut pool, &file, 20_000, Some(rule)).expect_err(rule.name());
        assert!(failure.contains("what the model does not allow"), "{}: {failure}", rule.name());
    }
}

/// An outcome that is taken out of the allowed set is seen, and is then a failure.
#[test]
fn an_outcome_that_is_not_allowed_is_a_failure() {
    let mut file = prepared("b01-stale-published");
    file.allowed.clear();
    let failure = run(&mut Pool::default(), &file, 1, None).expect_err("nothing is allowed");
    assert!(failure.starts_with("real processes ended with what the model does not allow: "), "{failure}");
}

#[test]
fn a_process_that_dies_is_a_failure_and_the_next_run_has_new_ones() {
    let file = prepared("b01-stale-published");
    let mut pool = Pool::default();
    run(&mut pool, &file, 1, None).expect("it holds");
    let ids = pool.ids();
    signal(ids[1], "KILL");
    let failure = run(&mut pool, &file, 100, None).expect_err("one is dead");
    assert!(failure.contains("it has died: signal: 9 (SIGKILL)"), "{failure}");
    assert_gone(&ids);
    run(&mut pool, &file, 1, None).expect("these live");
}

#[test]
fn a_process_that_hangs_is_a_failure_after_a_bounded_wait() {
    let file = prepared("b01-stale-published");
    let mut pool = Pool::new(Duration::from_secs(2));
    run(&mut pool, &file, 1, None).expect("it holds");
    let ids = pool.ids();
    signal(ids[0], "STOP");
    let failure = run(&mut pool, &file, 100, None).expect_err("one stands still");
    assert!(failure.contains("have not answered within 2s; killed"), "{failure}");
    assert!(failure.contains(&file.litmus.backends[0].name), "{failure}");
    assert_gone(&ids);
}

#[test]
fn a_pool_that_is_dropped_leaves_no_process() {
    let mut pool = Pool::default();
    pool.grow(3).expect("they can be started");
    let ids = pool.ids();
    drop(pool);
    assert_gone(&ids);
}

/// A backend that fails says why, for all.
#[test]
fn what_a_backend_fails_with_is_told() {
    let text = "# A5: a transaction that a rule lets go wrong.\nlayer backend\nkeys k1 = rel/7\n\
                backend reader: lookup k1; lookup k1\nbackend writer: begin; update k1; commit fails\n";
    let litmus = Litmus::parse("fails.litmus", text).expect("it parses");
    let file = Prepared::new(litmus).expect("it is small");
    run(&mut Pool::default(), &file, 50, None).expect("the commit fails as it should");
}
