//! The product's lock between threads. Between processes: `segment.rs`; all its interleavings: the conformance suite.
#![allow(clippy::disallowed_types, reason = "a plain counter that the lock under test is to guard")]

use shared_catcache::lock_suite::{OWNER_MAX, Patience, lock};
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn a_writer_excludes_all_and_readers_exclude_writers_only() {
    let lock = lock();
    let reader = lock.read(Patience::Forever).unwrap();
    let other = lock.read(Patience::Sleeps(0)).expect("readers share");
    assert!(lock.write(7, Patience::Sleeps(0)).is_none());
    assert_eq!(lock.owner(), None);
    drop((reader, other));
    let writer = lock.write(7, Patience::Sleeps(0)).expect("it is free, whatever who gave up has left behind");
    assert_eq!(lock.owner(), Some(7));
    assert!(lock.read(Patience::Sleeps(0)).is_none());
    assert!(lock.write(OWNER_MAX, Patience::Sleeps(0)).is_none());
    drop(writer);
    assert_eq!(lock.owner(), None);
    drop(lock.write(OWNER_MAX, Patience::Sleeps(0)).expect("free"));
    drop(lock.read(Patience::Sleeps(0)).expect("free"));
}

/// New readers wait when somebody waits: a writer is not starved by readers who keep coming.
#[test]
fn a_reader_does_not_overtake_a_waiting_writer() {
    let lock = lock();
    let reader = lock.read(Patience::Forever).unwrap();
    assert!(lock.write(1, Patience::Sleeps(0)).is_none());
    assert!(lock.read(Patience::Sleeps(0)).is_none(), "somebody has said that he waits");
    drop(reader);
    drop(lock.read(Patience::Sleeps(0)).expect("the last reader has cleared the word"));
}

#[test]
fn patience_runs_out() {
    let lock = lock();
    let writer = lock.write(1, Patience::Forever).unwrap();
    assert!(lock.read(Patience::For(std::time::Duration::from_millis(5))).is_none());
    assert!(lock.write(2, Patience::For(std::time::Duration::from_millis(5))).is_none());
    drop(writer);
}

#[test]
fn threads_lose_neither_an_update_nor_a_wake_up() {
    let lock = lock();
    let (first, second) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for thread in 1..=3 {
            let (lock, first, second) = (&lock, &first, &second);
            scope.spawn(move || {
                for n in 0..20_000 {
                    if n % 3 == 0 {
                        let guard = lock.write(thread, Patience::Forever);
                        // Relaxed, and not read-modify-write: only the lock makes the sums come out right.
                        first.store(first.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                        second.store(second.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                        drop(guard);
                    } else {
                        let guard = lock.read(Patience::Forever);
                        assert_eq!(first.load(Ordering::Relaxed), second.load(Ordering::Relaxed));
                        drop(guard);
                    }
                }
            });
        }
    });
    assert_eq!(first.load(Ordering::Relaxed), 3 * 6667);
}
