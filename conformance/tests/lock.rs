//! The suite of the product's own lock, by itself: in the models above it stands a simulator's lock, so that what is
//! explored there is the cache and not the lock.
//!
//! | runtime | what is asked | how far |
//! | --- | --- | --- |
//! | loom | exclusion under weak memory, no lost wake-up (loom calls it a deadlock) | two threads exhaustively, three within a bound; executions pinned |
//! | shuttle | the same with sequential consistency, more threads and more rounds | random and PCT schedules |
//! | threads | the futex of the kernel, spinning, timeouts | a fixed number of rounds; parking_lot's lock is put through the same |
//!
//! Each kind of verdict has a known-bad twin: a futex that forgets its sleepers, one that sleeps without looking, a thread
//! that forgets the lock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The message of the panic that `run` must end in.
fn complaint(run: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("the fault was not noticed");
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default()
}

mod under_loom {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::thread;
    use shared_catcache_under_loom::lock_suite::{Futex, Patience, RwLock, TestFutex};
    use std::time::Duration;

    /// The lock and what it guards; loom panics if two accesses of `guarded` are not ordered, unless both read.
    struct Subject<F> {
        lock: RwLock<F>,
        guarded: UnsafeCell<()>,
    }

    impl<F: Futex> Subject<F> {
        fn read(&self) {
            let _guard = self.lock.read(Patience::Forever).expect("patience is unlimited");
            self.guarded.with(|_| ());
        }

        fn write(&self, owner: u32) {
            let _guard = self.lock.write(owner, Patience::Forever).expect("patience is unlimited");
            self.guarded.with_mut(|_| ());
        }
    }

    /// One thread's part; the first is run by the main thread.
    type Part<F> = fn(&Subject<F>);

    /// Explores all schedules of `parts` within `bound` preemptions; answers with how many there were.
    fn explore<F: Futex + 'static>(bound: Option<usize>, futex: fn() -> F, parts: &'static [Part<F>]) -> u64 {
        let executions = Arc::new(AtomicU64::new(0));
        let count = executions.clone();
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = bound;
        builder.check(move || {
            // Relaxed: loom runs one execution after the other, on one thread.
            count.fetch_add(1, Ordering::Relaxed);
            let subject = Subject { lock: RwLock::new(futex()), guarded: UnsafeCell::new(()) };
            let subject = loom::sync::Arc::new(subject);
            let spawn = |part: &'static Part<F>| {
                let subject = subject.clone();
                thread::spawn(move || part(&subject))
            };
            let others: Vec<_> = parts[1..].iter().map(spawn).collect();
            parts[0](&subject);
            for other in others {
                other.join().expect("a part has panicked");
            }
        });
        executions.load(Ordering::Relaxed)
    }

    #[test]
    fn two_threads_exclude_each_other_and_both_get_in() {
        let writers: &[Part<TestFutex>] = &[|s| s.write(1), |s| s.write(2)];
        let writer_and_reader: &[Part<TestFutex>] = &[|s| s.write(1), |s| s.read()];
        let readers: &[Part<TestFutex>] = &[|s| s.read(), |s| s.read()];
        let twice: &[Part<TestFutex>] = &[
            |s| {
                s.write(1);
                s.read();
            },
            |s| s.write(2),
        ];
        let counts = [writers, writer_and_reader, readers, twice].map(|p| explore(None, TestFutex::new, p));
        assert_eq!(counts, [95, 174, 140, 12_339], "executions: another number is another algorithm, or another loom");
    }

    #[test]
    fn three_threads_within_a_bound() {
        let mixed: &[Part<TestFutex>] = &[|s| s.write(1), |s| s.write(2), |s| s.read()];
        let readers: &[Part<TestFutex>] = &[|s| s.write(1), |s| s.read(), |s| s.read()];
        let counts = [mixed, readers].map(|p| explore(Some(3), TestFutex::new, p));
        assert_eq!(counts, [48_437, 46_090], "executions: another number is another algorithm, or another loom");
    }

    #[test]
    fn who_gives_up_owes_nothing() {
        // One sleeps at most once and may go away with the waiting bit set; the others must get in all the same.
        let impatient: &[Part<TestFutex>] = &[
            |s| s.write(1),
            |s| {
                if let Some(_guard) = s.lock.write(2, Patience::Sleeps(0)) {
                    s.guarded.with_mut(|_| ());
                }
            },
            |s| s.write(3),
        ];
        let count = explore(Some(3), TestFutex::new, impatient);
        assert_eq!(count, 16_622, "executions: another number is another algorithm, or another loom");
    }

    #[test]
    fn readers_share() {
        let both = Arc::new(AtomicU64::new(0));
        let seen = both.clone();
        loom::model(move || {
            let lock = loom::sync::Arc::new(RwLock::new(TestFutex::new()));
            let inside = loom::sync::Arc::new(loom::sync::atomic::AtomicU32::new(0));
            let (other, count, seen) = (lock.clone(), inside.clone(), seen.clone());
            let read = move || {
                let _guard = other.read(Patience::Forever);
                if count.fetch_add(1, Ordering::Relaxed) == 1 {
                    seen.fetch_add(1, Ordering::Relaxed);
                }
                count.fetch_sub(1, Ordering::Relaxed);
            };
            let thread = thread::spawn(read.clone());
            read();
            thread.join().expect("a reader has panicked");
        });
        assert!(both.load(Ordering::Relaxed) > 0, "in no schedule were two readers inside");
    }

    /// Known bad: forgets to wake.
    struct NoWake(TestFutex);

    impl Futex for NoWake {
        const SPINS: u32 = 0;
        fn word(&self) -> &loom::sync::atomic::AtomicU32 {
            self.0.word()
        }
        fn wait(&self, expected: u32, timeout: Option<Duration>) {
            self.0.wait(expected, timeout);
        }
        fn wake_all(&self) {}
    }

    /// Known bad: sleeps whatever the word is, so a wake-up between look and sleep is lost.
    struct BlindWait(TestFutex);

    impl Futex for BlindWait {
        const SPINS: u32 = 0;
        fn word(&self) -> &loom::sync::atomic::AtomicU32 {
            self.0.word()
        }
        fn wait(&self, _expected: u32, timeout: Option<Duration>) {
            // Relaxed: whatever it is.
            let now = self.0.word().load(Ordering::Relaxed);
            self.0.wait(now, timeout);
        }
        fn wake_all(&self) {
            self.0.wake_all();
        }
    }

    /// Which fault the process that this test starts is to run into: loom unwinds from a deadlock into its own cells, and
    /// ends the process.
    const FAULT: &str = "CATCACHE_TEST_FAULT";

    #[test]
    fn a_lost_wake_up_is_noticed() {
        let forgets: &[Part<NoWake>] = &[|s| s.write(1), |s| s.write(2)];
        let blind: &[Part<BlindWait>] = &[|s| s.write(1), |s| s.write(2)];
        match std::env::var(FAULT).as_deref() {
            Ok("forgets") => _ = explore(None, || NoWake(TestFutex::new()), forgets),
            Ok(_) => _ = explore(None, || BlindWait(TestFutex::new()), blind),
            Err(_) => {
                for fault in ["forgets", "blind"] {
                    let exe = std::env::current_exe().expect("a test has a path");
                    let mut child = std::process::Command::new(exe);
                    child.args(["--exact", "under_loom::a_lost_wake_up_is_noticed", "--nocapture"]).env(FAULT, fault);
                    let ended = child.output().expect("a test can start itself");
                    let text = String::from_utf8_lossy(&ended.stderr);
                    assert!(!ended.status.success() && text.contains("deadlock; threads"), "{fault}: {text}");
                }
            }
        }
    }

    #[test]
    fn a_thread_that_forgets_the_lock_is_noticed() {
        let careless: &[Part<TestFutex>] = &[|s| s.write(1), |s| s.guarded.with_mut(|_| ())];
        let text = complaint(|| _ = explore(None, TestFutex::new, careless));
        assert!(text.contains("Causality violation") || text.contains("concurrent"), "{text}");
    }
}

mod under_shuttle {
    use super::*;
    use shared_catcache_under_shuttle::lock_suite::{Futex, Patience, RwLock, TestFutex};
    use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
    use shuttle::thread;
    use std::time::Duration;

    /// Schedules of each scheduler.
    const SCHEDULES: usize = 3_000;

    /// The lock, and who is inside: readers in the low half, writers in the high half. Of std: to look is no scheduling point.
    struct Subject<F> {
        lock: RwLock<F>,
        inside: AtomicU64,
    }

    const WRITER: u64 = 1 << 32;

    impl<F: Futex> Subject<F> {
        fn stay(&self, weight: u64) {
            let before = self.inside.fetch_add(weight, Ordering::Relaxed);
            let alone = if weight == WRITER { before == 0 } else { before < WRITER };
            assert!(alone, "{before:#x} were inside already");
            thread::yield_now();
            self.inside.fetch_sub(weight, Ordering::Relaxed);
        }

        fn read(&self) {
            let _guard = self.lock.read(Patience::Forever).expect("patience is unlimited");
            self.stay(1);
        }

        fn write(&self, owner: u32) {
            let guard = self.lock.write(owner, Patience::Forever).expect("patience is unlimited");
            assert_eq!(self.lock.owner(), Some(owner));
            self.stay(WRITER);
            drop(guard);
        }

        fn try_write(&self, owner: u32) {
            if let Some(_guard) = self.lock.write(owner, Patience::Sleeps(1)) {
                self.stay(WRITER);
            }
        }
    }

    fn everybody<F: Futex + Send + Sync + 'static>(futex: fn() -> F) {
        let subject = Subject { lock: RwLock::new(futex()), inside: AtomicU64::new(0) };
        let subject = Arc::new(subject);
        let parts: [fn(&Subject<F>); 4] = [
            |s| {
                s.write(1);
                s.read();
            },
            |s| {
                s.read();
                s.write(2);
            },
            |s| {
                s.read();
                s.read();
            },
            |s| {
                s.try_write(4);
                s.write(4);
            },
        ];
        let threads = parts.map(|part| {
            let subject = subject.clone();
            thread::spawn(move || part(&subject))
        });
        for thread in threads {
            thread.join().expect("a part has panicked");
        }
        // Everything was given back: the next one need not wait.
        let free = subject.lock.write(9, Patience::Sleeps(0));
        assert!(free.is_some(), "the lock is held by nobody and not free");
    }

    fn explore<F: Futex + Send + Sync + 'static>(scheduler: impl Scheduler + 'static, futex: fn() -> F) {
        shuttle::Runner::new(scheduler, shuttle::Config::default()).run(move || everybody(futex));
    }

    #[test]
    fn four_threads_in_random_order() {
        explore(RandomScheduler::new_from_seed(7, SCHEDULES), TestFutex::new);
    }

    #[test]
    fn four_threads_by_priorities() {
        explore(PctScheduler::new_from_seed(7, 3, SCHEDULES), TestFutex::new);
    }

    /// Known bad: forgets to wake.
    struct NoWake(TestFutex);

    impl Futex for NoWake {
        const SPINS: u32 = 0;
        fn word(&self) -> &shuttle::sync::atomic::AtomicU32 {
            self.0.word()
        }
        fn wait(&self, expected: u32, timeout: Option<Duration>) {
            self.0.wait(expected, timeout);
        }
        fn wake_all(&self) {}
    }

    #[test]
    fn a_lost_wake_up_is_noticed() {
        let random = RandomScheduler::new_from_seed(7, SCHEDULES);
        let text = complaint(|| explore(random, || NoWake(TestFutex::new())));
        assert!(text.contains("deadlock"), "{text}");
    }
}

mod on_threads {
    use super::*;
    use shared_catcache::lock_suite::{Patience, RwLock, TestFutex, lock};
    use std::thread;
    use std::time::Duration;

    /// A reader-writer lock that can be put through the stress.
    trait Subject: Send + Sync {
        fn reading(&self, stay: &mut dyn FnMut());
        fn writing(&self, owner: u32, stay: &mut dyn FnMut());
    }

    impl Subject for RwLock<TestFutex> {
        fn reading(&self, stay: &mut dyn FnMut()) {
            let _guard = self.read(Patience::Forever).expect("patience is unlimited");
            stay();
        }

        fn writing(&self, owner: u32, stay: &mut dyn FnMut()) {
            let _guard = self.write(owner, Patience::Forever).expect("patience is unlimited");
            stay();
        }
    }

    impl Subject for parking_lot::RwLock<()> {
        fn reading(&self, stay: &mut dyn FnMut()) {
            let _guard = self.read();
            stay();
        }

        fn writing(&self, _owner: u32, stay: &mut dyn FnMut()) {
            let _guard = self.write();
            stay();
        }
    }

    const ROUNDS: u64 = 20_000;

    /// Two counters that are equal whenever the lock is free; every seventh round writes.
    fn stress(subject: &dyn Subject) {
        let (one, two) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for number in 1..=4 {
                let (one, two) = (&one, &two);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        if (round + u64::from(number)) % 7 == 0 {
                            subject.writing(number, &mut || {
                                // Relaxed, and two steps each: only the lock keeps others out in between.
                                let was = one.load(Ordering::Relaxed);
                                one.store(was + 1, Ordering::Relaxed);
                                if round % 512 == 0 {
                                    thread::yield_now();
                                }
                                two.store(was + 1, Ordering::Relaxed);
                            });
                        } else {
                            subject.reading(&mut || {
                                assert_eq!(
                                    one.load(Ordering::Relaxed),
                                    two.load(Ordering::Relaxed),
                                    "a writer was inside"
                                );
                            });
                        }
                    }
                });
            }
        });
        let writes: u64 = (1..=4).map(|number| (0..ROUNDS).filter(|r| (r + number) % 7 == 0).count() as u64).sum();
        assert_eq!(one.load(Ordering::Relaxed), writes, "a write was lost");
        assert_eq!(two.load(Ordering::Relaxed), writes);
    }

    #[test]
    fn our_lock_and_parking_lots_keep_the_same_promises() {
        let ours = lock();
        stress(&ours);
        assert!(ours.write(1, Patience::Sleeps(0)).is_some(), "the lock is held by nobody and not free");
        stress(&parking_lot::RwLock::new(()));
    }

    #[test]
    fn patience_ends_and_leaves_the_lock_as_it_was() {
        let lock = lock();
        let soon = Patience::For(Duration::from_millis(2));
        let writer = lock.write(7, Patience::Forever);
        assert!(writer.is_some());
        thread::scope(|scope| {
            scope.spawn(|| {
                assert!(lock.read(soon).is_none());
                assert!(lock.write(8, soon).is_none());
                assert!(lock.read(Patience::Sleeps(0)).is_none());
                assert_eq!(lock.owner(), Some(7));
            });
        });
        drop(writer);
        assert_eq!(lock.owner(), None);
        let reader = lock.read(soon);
        assert!(reader.is_some());
        thread::scope(|scope| {
            scope.spawn(|| assert!(lock.write(8, soon).is_none()));
        });
        drop(reader);
        assert!(lock.write(8, soon).is_some());
    }
}
