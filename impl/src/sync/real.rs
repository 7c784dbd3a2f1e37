//! Over the operating system.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use crate::shared::lock::Futex;
use rustix::thread::futex;
use std::time::Duration;

pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::Ordering;

// Names of our own: clippy bars the originals wherever they come from.
/// A mutex of this process.
pub(crate) type Mutex<T> = parking_lot::Mutex<T>;
/// An atomic.
pub type AtomicU32 = std::sync::atomic::AtomicU32;
/// An atomic.
pub(crate) type AtomicU64 = std::sync::atomic::AtomicU64;

/// Threads.
pub mod thread {
    pub use std::thread::JoinHandle;

    /// As in the standard library.
    pub fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        std::thread::spawn(body)
    }

    /// As in the standard library.
    pub fn yield_now() {
        std::thread::yield_now();
    }
}

/// Lets a simulator run another thread; nothing here.
#[inline(always)]
pub fn model_yield() {}

/// The futex of the segment: a word that processes sleep on together.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct TestFutex {
    word: AtomicU32,
}

impl TestFutex {
    /// A word of 0.
    #[must_use]
    pub const fn new() -> TestFutex {
        TestFutex { word: AtomicU32::new(0) }
    }
}

impl Futex for TestFutex {
    /// About the length of the longest section, so that a waiter seldom sleeps while the owner is running.
    const SPINS: u32 = 100;

    #[inline]
    fn word(&self) -> &AtomicU32 {
        &self.word
    }

    #[cold]
    fn wait(&self, expected: u32, timeout: Option<Duration>) {
        let timeout = timeout.and_then(|left| futex::Timespec::try_from(left).ok());
        // Without PRIVATE: sleepers are found by the page, not by the address, so they may be of other processes.
        // Errors are: the word has changed, a signal, the time is up. The caller looks at the word in every case.
        let _ = futex::wait(&self.word, futex::Flags::empty(), expected, timeout.as_ref());
    }

    #[cold]
    fn wake_all(&self) {
        // The only error is a bad address, and this one is a reference.
        let _ = futex::wake(&self.word, futex::Flags::empty(), i32::MAX as u32);
    }
}
