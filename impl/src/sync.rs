//! The only door to synchronisation.
//!
//! One source is built three times: over the operating system (`shared-catcache`), over shuttle
//! (`shared-catcache-under-shuttle`) and over loom (`shared-catcache-under-loom`). Every `cfg` that tells the three
//! apart stands in this file; clippy bars atomics, locks and threads of any other origin from the rest of the crate.
//!
//! What is called *modelled* is a build over a simulator. It differs from production in three things only: the
//! primitives exported here, the arena behind the segment (`Arena`: a small tracked buffer in place of a mapping), and
//! constants (sizes of a few entries). Our own process-shared lock is replaced by the simulator's reader-writer lock
//! there, because it has a suite of its own (`lock_suite`), and a lock of many atomic accesses would multiply the
//! schedules of everything above it.

/// Is this a build over a simulator?
pub const MODELLED: bool = cfg!(any(feature = "shuttle", feature = "loom"));

pub(crate) use chosen::*;
pub use chosen::{TestFutex, model_yield, thread};

/// Reader-writer locks, futexes and cells as the rest of the crate sees them: over the operating system.
#[cfg(not(any(feature = "shuttle", feature = "loom")))]
#[path = "sync/real.rs"]
mod chosen;

/// The same names over shuttle or loom.
#[cfg(any(feature = "shuttle", feature = "loom"))]
#[path = "sync/modelled.rs"]
mod chosen;

/// The simulator of this build; both offer the same paths.
#[cfg(feature = "loom")]
use loom as simulator;
#[cfg(feature = "shuttle")]
use shuttle as simulator;

/// What tells shuttle from loom: how an access to plain memory is checked.
#[cfg(feature = "loom")]
#[path = "sync/tracker_loom.rs"]
mod tracker;
#[cfg(feature = "shuttle")]
#[path = "sync/tracker_shuttle.rs"]
mod tracker;

/// The bytes of the segment: mapped memory.
#[cfg(not(any(feature = "shuttle", feature = "loom")))]
#[path = "shared/arena/mapped.rs"]
mod arena;

/// What tells a segment's file from any other.
#[cfg(not(any(feature = "shuttle", feature = "loom")))]
#[path = "shared/arena/header.rs"]
mod header;

/// The bytes of the segment: a buffer whose every access is checked.
#[cfg(any(feature = "shuttle", feature = "loom"))]
#[path = "shared/arena/modelled.rs"]
mod arena;

pub(crate) use arena::*;

/// Is this thread unwinding? A simulator must not be used then.
pub(crate) fn panicking() -> bool {
    std::thread::panicking()
}
#[cfg(any(feature = "shuttle", feature = "loom"))]
pub(crate) use tracker::Tracker;
