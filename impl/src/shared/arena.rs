//! The only way into the segment.
//!
//! `word` is an atomic; `get` and `set` are plain data, guarded by a lock or by ownership of a slot; `read` and `write` are
//! bytes; `lock` is a lock; `peek` is for a harness that has parked everybody. In production the arena is mapped memory
//! (`mapped.rs`), over a simulator a small buffer whose every access is checked (`modelled.rs`). All `unsafe` of the
//! crate is here.

pub(crate) use crate::sync::{Arena, WriteGuard};

pub(crate) use super::segment::LockAt;
use super::segment::{At, LINE};

/// Where the message ring and the backends' slots are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingArea {
    /// Number of the next message: an atomic, changed under the ring's exclusive lock.
    pub(crate) tail: At,
    /// Lower bound of all positions: plain, guarded by the ring's lock, and not in the tail's cache line.
    pub(crate) floor: At,
    /// How many messages there is room for; a power of two.
    pub(crate) capacity: u32,
    /// How many backends there is room for.
    pub(crate) backends: u32,
    cells: At,
    slots: At,
}

impl RingArea {
    pub(crate) fn new(tail: At, floor: At, cells: At, capacity: u32, slots: At, backends: u32) -> RingArea {
        RingArea { tail, floor, capacity, backends, cells, slots }
    }

    /// The two units of the cell of message `number`: plain, guarded by the ring's lock.
    #[inline]
    pub(crate) fn cell(&self, number: u64) -> [At; 2] {
        let cell = (number & u64::from(self.capacity - 1)) as u32;
        [self.cells + cell * 2, self.cells + (cell * 2 + 1)]
    }

    /// A backend's state: plain, guarded by the ring's lock; its own backend may write it under the lock held shared.
    #[inline]
    pub(crate) fn state(&self, backend: u32) -> At {
        self.slots + backend * LINE
    }

    /// A backend's position: plain, guarded as its state.
    #[inline]
    pub(crate) fn position(&self, backend: u32) -> At {
        self.slots + (backend * LINE + 1)
    }
}
