//! Worker processes: they share one segment, and one that dies or hangs is told of and leaves nothing behind.

use catcache_benches::rivals::Failure;
use catcache_benches::work::hits::Mix;
use catcache_benches::work::processes::{WorkerError, Workers};
use catcache_benches::worker::Duty;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::path::Path;
use std::time::Duration;

const MOMENT: Duration = Duration::from_millis(5);

/// Long enough for any machine; the test of a worker that hangs has a shorter one.
const PATIENCE: Duration = Duration::from_secs(120);

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_catcache"))
}

fn workers(patience: Duration) -> Workers {
    Workers::start(program(), 2, &Mix::zipf(), patience).unwrap()
}

fn gone(pids: &[Pid]) -> bool {
    pids.iter().all(|pid| test_kill_process(*pid).is_err())
}

fn worker_error(failure: &Failure) -> &WorkerError {
    failure.downcast_ref().unwrap_or_else(|| panic!("{failure}"))
}

/// That the workers' lookups were answered by the segment, none of them by a load, they have checked themselves.
#[test]
fn two_processes_hit_and_touch_one_segment() {
    let mut workers = workers(PATIENCE);
    let pids = workers.pids();
    assert_eq!(pids.len(), 2);
    for duty in [Duty::Hits, Duty::Touches, Duty::Hits] {
        let costs = workers.round(duty, MOMENT, MOMENT).unwrap();
        assert!(costs.slices >= 2, "{duty:?}: {costs:?}");
    }
    assert!(!gone(&pids[..1]));
    drop(workers);
    assert!(gone(&pids));
}

#[test]
fn a_worker_that_dies_is_told_of() {
    let mut workers = workers(PATIENCE);
    let pids = workers.pids();
    kill_process(pids[1], Signal::KILL).unwrap();
    let error = workers.round(Duty::Hits, MOMENT, MOMENT).unwrap_err();
    assert!(matches!(worker_error(&error), WorkerError::Ended { worker: 2, .. }), "{error}");
    assert!(error.to_string().contains("signal: 9"), "{error}");
    drop(workers);
    assert!(gone(&pids));
}

#[test]
fn a_worker_that_hangs_is_told_of_and_killed() {
    let mut workers = workers(PATIENCE);
    workers.set_patience(Duration::from_millis(300));
    let pids = workers.pids();
    kill_process(pids[0], Signal::STOP).unwrap();
    let error = workers.round(Duty::Touches, MOMENT, MOMENT).unwrap_err();
    assert!(matches!(worker_error(&error), WorkerError::Silent { worker: 1, .. }), "{error}");
    drop(workers);
    assert!(gone(&pids));
}

/// A program that is no worker, and none at all.
#[test]
fn what_is_no_worker_is_told_of() {
    let mix = Mix::zipf();
    let start = |program: &str| match Workers::start(Path::new(program), 1, &mix, PATIENCE) {
        Ok(_) => panic!("{program} is no worker"),
        Err(error) => error,
    };
    let error = start("/bin/false");
    assert!(matches!(worker_error(&error), WorkerError::Ended { worker: 1, .. }), "{error}");
    let error = start("/bin/echo");
    assert!(matches!(worker_error(&error), WorkerError::Nonsense { worker: 1, .. }), "{error}");
    let error = start("/no/such/program");
    assert!(matches!(worker_error(&error), WorkerError::Start { worker: 1, .. }), "{error}");
}

/// A worker whose segment is not there says so, and the error passes it on.
#[test]
fn a_worker_says_why_it_can_not_work() {
    let words = ["__worker", "/no/such/segment"];
    let output = std::process::Command::new(program()).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("/no/such/segment"), "{said}");
}
