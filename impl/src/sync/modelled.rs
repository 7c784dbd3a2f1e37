//! Over a simulator. The locks have parking_lot's shape; atomics keep a copy of their value that a harness can read
//! without a scheduling point.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use super::simulator;
use crate::shared::lock::Futex;
use std::time::Duration;

pub use simulator::sync::atomic::AtomicU32;
pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::Ordering;

/// Threads.
pub mod thread {
    pub use super::simulator::thread::{JoinHandle, spawn, yield_now};
}

/// Lets the simulator run another thread.
pub fn model_yield() {
    thread::yield_now();
}

/// An atomic of the simulator, and beside it the newest value.
///
/// Both simulators run one thread at a time and switch *before* an operation, so the copy changes together with the
/// operation. It is the newest value in modification order, whatever a weakly ordered load may return.
#[derive(Debug)]
pub(crate) struct AtomicU64 {
    inner: simulator::sync::atomic::AtomicU64,
    newest: std::sync::atomic::AtomicU64,
}

#[allow(dead_code, reason = "the same surface as the standard library's, as far as this crate may want it")]
impl AtomicU64 {
    pub(crate) fn new(value: u64) -> AtomicU64 {
        AtomicU64 {
            inner: simulator::sync::atomic::AtomicU64::new(value),
            newest: std::sync::atomic::AtomicU64::new(value),
        }
    }

    fn keep(&self, value: u64) {
        self.newest.store(value, Ordering::Relaxed);
    }

    /// The newest value. No scheduling point, no synchronisation: for harnesses and hints.
    pub(crate) fn peek(&self) -> u64 {
        self.newest.load(Ordering::Relaxed)
    }

    pub(crate) fn load(&self, order: Ordering) -> u64 {
        self.inner.load(order)
    }

    pub(crate) fn store(&self, value: u64, order: Ordering) {
        self.inner.store(value, order);
        self.keep(value);
    }

    pub(crate) fn swap(&self, value: u64, order: Ordering) -> u64 {
        let old = self.inner.swap(value, order);
        self.keep(value);
        old
    }

    pub(crate) fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        let old = self.inner.fetch_add(value, order);
        self.keep(old.wrapping_add(value));
        old
    }

    pub(crate) fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        let old = self.inner.fetch_sub(value, order);
        self.keep(old.wrapping_sub(value));
        old
    }

    pub(crate) fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
        let old = self.inner.fetch_and(value, order);
        self.keep(old & value);
        old
    }

    pub(crate) fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
        let old = self.inner.fetch_or(value, order);
        self.keep(old | value);
        old
    }

    pub(crate) fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        let result = self.inner.compare_exchange(current, new, success, failure);
        if result.is_ok() {
            self.keep(new);
        }
        result
    }

    pub(crate) fn compare_exchange_weak(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.compare_exchange(current, new, success, failure)
    }
}

/// A mutex without poison.
#[derive(Debug)]
pub(crate) struct Mutex<T>(simulator::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(simulator::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> simulator::sync::MutexGuard<'_, T> {
        // A harness that has caught a panic throws the whole execution away.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A futex made of a mutex and a condition variable: as the kernel's, it compares and queues in one section, and a wake-up
/// takes the same section. It never times out.
#[derive(Debug)]
pub struct TestFutex {
    word: AtomicU32,
    /// How many wake-ups there were.
    wakes: simulator::sync::Mutex<u64>,
    sleepers: simulator::sync::Condvar,
}

impl TestFutex {
    /// A word of 0.
    #[must_use]
    pub fn new() -> TestFutex {
        TestFutex {
            word: AtomicU32::new(0),
            wakes: simulator::sync::Mutex::new(0),
            sleepers: simulator::sync::Condvar::new(),
        }
    }
}

impl Default for TestFutex {
    fn default() -> TestFutex {
        TestFutex::new()
    }
}

impl Futex for TestFutex {
    const SPINS: u32 = 0;

    fn word(&self) -> &AtomicU32 {
        &self.word
    }

    fn wait(&self, expected: u32, _timeout: Option<Duration>) {
        let mut wakes = self.wakes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Relaxed: who changed the word and then woke has left this mutex before; who has not yet will find us queued.
        if self.word.load(Ordering::Relaxed) != expected {
            return;
        }
        let before = *wakes;
        while *wakes == before {
            wakes = self.sleepers.wait(wakes).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    fn wake_all(&self) {
        let mut wakes = self.wakes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *wakes += 1;
        self.sleepers.notify_all();
    }
}

/// The reader-writer lock that stands for ours in the segment.
#[derive(Debug)]
pub(crate) struct FacadeRwLock(simulator::sync::RwLock<()>);

pub(crate) type FacadeReadGuard<'a> = simulator::sync::RwLockReadGuard<'a, ()>;
pub(crate) type FacadeWriteGuard<'a> = simulator::sync::RwLockWriteGuard<'a, ()>;

impl FacadeRwLock {
    pub(crate) fn new() -> FacadeRwLock {
        FacadeRwLock(simulator::sync::RwLock::new(()))
    }

    pub(crate) fn read(&self) -> FacadeReadGuard<'_> {
        self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> FacadeWriteGuard<'_> {
        self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Which thread of the simulator is running.
pub(crate) type ThreadId = simulator::thread::ThreadId;

pub(crate) fn current_thread() -> ThreadId {
    simulator::thread::current().id()
}
