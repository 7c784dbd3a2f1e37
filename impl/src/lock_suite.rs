//! What the lock's own suite needs (conformance crate): the algorithm of [`RwLock`] over the futex of this build.
//!
//! Over the operating system [`TestFutex`] is the very futex of the segment. Over shuttle and loom it is an emulation that
//! never times out, so that their exploration decides mutual exclusion and lost wake-ups; [`Patience::Sleeps`] stands
//! for running out of patience.

pub use crate::shared::lock::{Futex, OWNER_MAX, Patience, ReadGuard, RwLock, WriteGuard};
pub use crate::sync::TestFutex;

/// A free lock over the futex of this build.
#[must_use]
pub fn lock() -> RwLock<TestFutex> {
    RwLock::new(TestFutex::new())
}
