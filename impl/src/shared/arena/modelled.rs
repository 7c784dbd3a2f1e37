//! The segment over a simulator: a small buffer, every access to which is checked.
//!
//! Words are the simulator's atomics. Plain data lies in a raw buffer beside *trackers*, one for each unit of ownership:
//! the table's chains, the slab's records, the ring's cells, each backend's position, each slot's content. Two kinds of check:
//!
//! * **rules** (both simulators): chains are read under a partition's lock and written under it exclusively; likewise slab
//!   and ring; a slot's content is written only while nobody refers to it, and read only by who may. The lock table knows
//!   who holds what, and refuses a second lock to a holder (locks are leaves).
//! * **happens-before** (loom): every access of a tracker must be ordered with every write of it.
//!
//! A breach panics, and the simulator shows the schedule.

#![allow(unsafe_code, clippy::disallowed_types, clippy::disallowed_methods)]

use crate::error::Error;
use crate::shared::arena::RingArea;
use crate::shared::entry;
use crate::shared::segment::{
    At, CLASS_RECORD, ENTRY_HEADER, LINE, Layout, LockAt, UNIT_BYTES, Uniform, counter, partition, slab,
};
use crate::sync::{AtomicU64, FacadeReadGuard, FacadeRwLock, FacadeWriteGuard, ThreadId, Tracker, current_thread};
use std::cell::UnsafeCell;
use std::fs::File;
use std::path::{Path, PathBuf};

/// What a unit of the buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// Header, locks, padding: not accessed through the arena.
    Nothing,
    /// The atomic of this number.
    Word(u32),
    /// A statistic: no part of the protocol, invisible to the simulator.
    Counter,
    /// Plain data.
    Plain(Region),
}

/// Plain data that one rule guards together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Region {
    /// Bucket heads and links: the partition's lock.
    Chains,
    /// Lists and records of the slab: its lock.
    Slab,
    /// Messages: the ring's lock.
    Ring,
    /// One backend's state and position: the ring's lock, in either mode by the backend itself.
    Backend(u32),
    /// One slot's content: by reference and ownership.
    Content(u32),
}

/// The segment.
pub(crate) struct Arena {
    layout: Layout,
    units: Vec<Unit>,
    words: Vec<AtomicU64>,
    /// Plain data, by unit.
    plain: Box<[UnsafeCell<u64>]>,
    /// By [`Arena::tracker`].
    trackers: Vec<Tracker>,
    locks: [FacadeRwLock; 3],
    /// Who holds which lock: (thread, lock, exclusively).
    holders: std::sync::Mutex<Vec<(ThreadId, usize, bool)>>,
}

// SAFETY: a simulator runs one thread at a time, and switches only inside its own primitives, never inside an access to
// `plain`; what crosses threads unordered is found by the trackers.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena").field("layout", &self.layout).finish_non_exhaustive()
    }
}

/// A lock of the segment.
#[derive(Clone, Copy)]
pub(crate) struct Lock<'a> {
    arena: &'a Arena,
    index: usize,
}

/// Shared access.
#[must_use]
pub(crate) struct ReadGuard<'a> {
    arena: &'a Arena,
    me: ThreadId,
    _guard: FacadeReadGuard<'a>,
}

impl Drop for ReadGuard<'_> {
    /// Out of the lock table first; then the guard lets go.
    fn drop(&mut self) {
        self.arena.forget_holder(self.me);
    }
}

/// Exclusive access.
#[must_use]
pub(crate) struct WriteGuard<'a> {
    arena: &'a Arena,
    me: ThreadId,
    _guard: FacadeWriteGuard<'a>,
}

impl Drop for WriteGuard<'_> {
    /// Out of the lock table first; then the guard lets go.
    fn drop(&mut self) {
        self.arena.forget_holder(self.me);
    }
}

impl<'a> Lock<'a> {
    /// Shared access; never `None` here.
    pub(crate) fn read(self) -> Option<ReadGuard<'a>> {
        let me = self.about_to_wait();
        let guard = self.arena.locks[self.index].read();
        self.arena.holders().push((me, self.index, false));
        Some(ReadGuard { arena: self.arena, me, _guard: guard })
    }

    /// Exclusive access; never `None` here.
    pub(crate) fn write(self) -> Option<WriteGuard<'a>> {
        Some(self.write_patiently())
    }

    /// Exclusive access.
    pub(crate) fn write_patiently(self) -> WriteGuard<'a> {
        let me = self.about_to_wait();
        let guard = self.arena.locks[self.index].write();
        self.arena.holders().push((me, self.index, true));
        WriteGuard { arena: self.arena, me, _guard: guard }
    }

    fn about_to_wait(self) -> ThreadId {
        let me = current_thread();
        let held = self.arena.holders().iter().find(|holder| holder.0 == me).copied();
        assert!(held.is_none(), "locks are leaves: lock {} wanted while {held:?} is held", self.index);
        me
    }
}

const SLAB: usize = 1;
const RING: usize = 2;

impl Arena {
    /// A buffer for the smallest tables.
    ///
    /// # Errors
    /// [`Error::Config`]: over a simulator there is one partition, and the slots are uniform.
    pub(crate) fn anonymous(layout: Layout) -> Result<Arena, Error> {
        let wrong =
            |field, found: u32, expected: &str| Error::Config { field, found: found.into(), expected: expected.into() };
        if layout.config.partitions != 1 {
            return Err(wrong("partitions", layout.config.partitions, "must be 1 over a simulator"));
        }
        let Some(uniform) = layout.config.uniform else {
            return Err(wrong("uniform", 0, "must be given over a simulator: start from Config::tiny()"));
        };
        let (units, words) = map_units(&layout, uniform);
        let trackers = 3 + layout.config.backends + uniform.slots;
        Ok(Arena {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            plain: (0..layout.units).map(|_| UnsafeCell::new(0)).collect(),
            trackers: (0..trackers).map(|_| Tracker::new()).collect(),
            locks: [FacadeRwLock::new(), FacadeRwLock::new(), FacadeRwLock::new()],
            holders: std::sync::Mutex::new(Vec::new()),
            units,
            layout,
        })
    }

    /// Not over a simulator.
    pub(crate) fn memfd(_name: &str, _layout: Layout) -> Result<(Arena, File), Error> {
        Err(Error::Modelled { what: "a segment with a descriptor" })
    }

    /// Not over a simulator.
    pub(crate) fn create(_path: &Path, _layout: Layout) -> Result<Arena, Error> {
        Err(Error::Modelled { what: "a named segment" })
    }

    /// Not over a simulator.
    pub(crate) fn attach(_path: &Path) -> Result<Arena, Error> {
        Err(Error::Modelled { what: "a named segment" })
    }

    /// Not over a simulator.
    pub(crate) fn attach_file(_file: &File, _path: &Path) -> Result<Arena, Error> {
        Err(Error::Modelled { what: "a segment with a descriptor" })
    }

    /// Not over a simulator.
    pub(crate) fn unlink_on_drop(&mut self, _path: PathBuf) {}

    /// Where everything is.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    fn holders(&self) -> std::sync::MutexGuard<'_, Vec<(ThreadId, usize, bool)>> {
        self.holders.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Locks are leaves, so there is one entry at most.
    fn forget_holder(&self, thread: ThreadId) {
        self.holders().retain(|holder| holder.0 != thread);
    }

    fn unit(&self, at: At) -> Unit {
        self.units[at.0 as usize]
    }

    fn tracker(&self, region: Region) -> &Tracker {
        let backends = self.layout.config.backends;
        let index = match region {
            Region::Chains => 0,
            Region::Slab => 1,
            Region::Ring => 2,
            Region::Backend(backend) => 3 + backend,
            Region::Content(slot) => 3 + backends + slot,
        };
        &self.trackers[index as usize]
    }

    fn plain(&self, at: At) -> Region {
        match self.unit(at) {
            Unit::Plain(region) => region,
            other => panic!("{at:?} is not plain data, but {other:?}"),
        }
    }

    /// How the running thread holds the lock of this number.
    fn held(&self, lock: usize) -> Option<bool> {
        let me = current_thread();
        self.holders().iter().find(|holder| holder.0 == me && holder.1 == lock).map(|holder| holder.2)
    }

    /// The newest value of a slot's word.
    fn entry_word(&self, slot: u32) -> entry::Word {
        let units = self.layout.page_units / self.layout.config.uniform.map_or(1, |uniform| uniform.slots);
        entry::Word(self.peek_word(self.layout.pages + slot * units + entry::WORD))
    }

    fn may_read(&self, at: At) {
        let region = self.plain(at);
        match region {
            Region::Chains => assert!(self.held(0).is_some(), "{at:?}: a chain is read without the partition's lock"),
            Region::Slab => assert!(self.held(SLAB).is_some(), "{at:?}: the slab is read without its lock"),
            Region::Ring | Region::Backend(_) => {
                assert!(self.held(RING).is_some(), "{at:?}: the ring is read without its lock");
            }
            Region::Content(slot) => {
                let word = self.entry_word(slot);
                let allowed = word.references() > 0
                    || word.linked() && self.held(0).is_some()
                    || !word.linked() && self.held(SLAB).is_some();
                assert!(allowed, "{at:?}: slot {slot} is read, but is {word:?}: use after free");
            }
        }
        self.tracker(region).read();
    }

    /// The slot is nobody else's: neither found nor referred to. That it is not in the slab is not seen here, but the slab's
    /// writes, or those of the next owner, are then not ordered after this read.
    fn may_read_owned(&self, at: At) {
        let region = self.plain(at);
        let Region::Content(slot) = region else { panic!("{at:?} is not of a slot, but {region:?}") };
        let word = self.entry_word(slot);
        assert!(word.references() == 0 && !word.linked(), "{at:?}: slot {slot} is not owned, but {word:?}");
        self.tracker(region).read();
    }

    fn may_write(&self, at: At) {
        let region = self.plain(at);
        match region {
            Region::Chains => {
                assert!(
                    self.held(0) == Some(true),
                    "{at:?}: a chain is written without the partition's exclusive lock"
                );
            }
            Region::Slab => {
                assert!(self.held(SLAB) == Some(true), "{at:?}: the slab is written without its exclusive lock")
            }
            Region::Ring => {
                assert!(self.held(RING) == Some(true), "{at:?}: the ring is written without its exclusive lock")
            }
            Region::Backend(_) => {
                assert!(self.held(RING).is_some(), "{at:?}: a backend's slot is written without the ring's lock")
            }
            Region::Content(slot) => {
                let word = self.entry_word(slot);
                assert!(
                    word.references() == 0 && !word.linked(),
                    "{at:?}: slot {slot} is written, but is {word:?}: a referenced entry is never changed"
                );
            }
        }
        self.tracker(region).write();
    }

    /// An atomic.
    pub(crate) fn word(&self, at: At) -> &AtomicU64 {
        match self.unit(at) {
            Unit::Word(index) => &self.words[index as usize],
            other => panic!("{at:?} is not an atomic, but {other:?}"),
        }
    }

    /// Plain data, guarded by a lock or by ownership of the slot.
    pub(crate) fn get(&self, at: At) -> u64 {
        self.may_read(at);
        self.peek(at)
    }

    /// Plain data, guarded by a lock or by ownership of the slot.
    pub(crate) fn set(&self, at: At, value: u64) {
        self.may_write(at);
        // SAFETY: one thread at a time; no slice of a unit that may be written is alive (`may_write`).
        unsafe { *self.plain[at.0 as usize].get() = value }
    }

    /// The slot of an entry that is referenced, or whose chain is locked.
    pub(crate) fn slot(&self, at: At) -> Slot<'_> {
        Slot { arena: self, at }
    }

    /// Plain data, whoever may be writing it: a hint.
    pub(crate) fn hint(&self, at: At) -> u64 {
        self.peek(at)
    }

    /// Sets what is only ever used as a hint, and may be set by others at the same time.
    pub(crate) fn set_hint(&self, at: At, value: u64) {
        // SAFETY: one thread at a time, and no reference to it is ever given out.
        unsafe { *self.plain[at.0 as usize].get() = value }
    }

    /// Bytes of a slot that is referenced, or whose chain is locked.
    pub(crate) fn read(&self, at: At, bytes: usize) -> &[u8] {
        self.bytes(at, bytes, Arena::may_read)
    }

    fn bytes(&self, at: At, bytes: usize, may_read: fn(&Arena, At)) -> &[u8] {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES as usize)).unwrap_or(u32::MAX);
        for unit in 0..units {
            may_read(self, at + unit);
        }
        let run = &self.plain[at.0 as usize..][..units as usize];
        // SAFETY: `run` is contiguous and covers the bytes; nobody writes them while the reference lasts, which
        // `may_write` checks.
        unsafe { std::slice::from_raw_parts(run.as_ptr().cast(), bytes) }
    }

    /// Plain data of a slot that is owned.
    pub(crate) fn get_owned(&self, at: At) -> u64 {
        self.may_read_owned(at);
        self.peek(at)
    }

    /// Bytes of a slot that is owned.
    pub(crate) fn read_owned(&self, at: At, bytes: usize) -> &[u8] {
        self.bytes(at, bytes, Arena::may_read_owned)
    }

    /// Bytes of a slot that is owned.
    pub(crate) fn write(&self, at: At, bytes: &[u8]) {
        for (unit, chunk) in (0..).zip(bytes.chunks(UNIT_BYTES as usize)) {
            let mut value = [0; UNIT_BYTES as usize];
            value[..chunk.len()].copy_from_slice(chunk);
            self.set(at + unit, u64::from_ne_bytes(value));
        }
    }

    /// A lock.
    pub(crate) fn lock(&self, which: LockAt) -> Lock<'_> {
        let index = match which {
            LockAt::Partition(_) => 0,
            LockAt::Slab => SLAB,
            LockAt::Ring => RING,
        };
        Lock { arena: self, index }
    }

    /// Adds to a counter.
    pub(crate) fn count(&self, at: At, more: u64) {
        assert!(self.unit(at) == Unit::Counter, "{at:?} is not a counter");
        // SAFETY: one thread at a time, and no reference to it is ever given out.
        unsafe { *self.plain[at.0 as usize].get() += more }
    }

    /// A counter.
    pub(crate) fn counter(&self, at: At) -> u64 {
        self.peek(at)
    }

    /// An atomic's newest value, for hints and for harnesses. No scheduling point.
    pub(crate) fn peek_word(&self, at: At) -> u64 {
        self.word(at).peek()
    }

    /// Plain data while everybody is parked.
    pub(crate) fn peek(&self, at: At) -> u64 {
        // SAFETY: one thread at a time.
        unsafe { *self.plain[at.0 as usize].get() }
    }

    /// Bytes while everybody is parked.
    pub(crate) fn peek_bytes(&self, at: At, bytes: usize) -> Vec<u8> {
        let units = bytes.div_ceil(UNIT_BYTES as usize) as u32;
        let mut copy: Vec<u8> = (0..units).flat_map(|unit| self.peek(at + unit).to_ne_bytes()).collect();
        copy.truncate(bytes);
        copy
    }

    /// A number that tells this segment from others.
    pub(crate) fn identity(&self) -> u32 {
        self.units.as_ptr() as usize as u32 | 1 << 31
    }

    /// Where the ring is.
    pub(crate) fn ring(&self) -> RingArea {
        self.layout.ring()
    }
}

/// An entry's slot.
#[derive(Clone, Copy)]
pub(crate) struct Slot<'a> {
    arena: &'a Arena,
    at: At,
}

impl<'a> Slot<'a> {
    /// A unit of the header.
    pub(crate) fn unit(self, offset: u32) -> u64 {
        assert!(offset < ENTRY_HEADER, "not a unit of the header");
        self.arena.get(self.at + offset)
    }

    /// The key and the row, which lie behind the header in this order, the key padded to units. `row_field` is the row's
    /// length plus one; 0: there is no row.
    pub(crate) fn content(self, key_bytes: u16, row_field: u32) -> (&'a [u8], Option<&'a [u8]>) {
        let key = self.at + ENTRY_HEADER;
        let row = key + u32::from(key_bytes).div_ceil(UNIT_BYTES);
        let row_bytes = row_field.checked_sub(1);
        (self.arena.read(key, key_bytes.into()), row_bytes.map(|bytes| self.arena.read(row, bytes as usize)))
    }
}

/// What each unit is, and how many atomics there are.
fn map_units(layout: &Layout, uniform: Uniform) -> (Vec<Unit>, u32) {
    let mut units = vec![Unit::Nothing; layout.units as usize];
    let mut words = 0;
    let mut fill = |at: At, count: u32, unit: Unit| {
        for offset in 0..count {
            units[(at + offset).0 as usize] = unit;
        }
    };
    let mut word = |fill: &mut dyn FnMut(At, u32, Unit), at: At| {
        fill(at, 1, Unit::Word(words));
        words += 1;
    };
    let config = &layout.config;
    word(&mut fill, layout.clock);
    for (first, count) in [
        (layout.stripes, config.stripes),
        (layout.lists, config.lists),
        (layout.catalogs, config.catalogs),
        (layout.databases, config.databases),
    ] {
        for number in 0..count {
            word(&mut fill, first + number);
        }
    }
    fill(layout.partitions, partition::UNITS, Unit::Counter);
    fill(layout.partitions + partition::LOCK, 1, Unit::Nothing);
    fill(layout.slab + 1, slab::UNITS - 1, Unit::Plain(Region::Slab));
    fill(layout.ring_lock + 1, 1, Unit::Plain(Region::Ring));
    word(&mut fill, layout.ring_tail);
    fill(layout.counters, counter::UNITS, Unit::Counter);
    fill(layout.heads, layout.buckets.div_ceil(2), Unit::Plain(Region::Chains));
    fill(layout.ring_cells, config.ring * 2, Unit::Plain(Region::Ring));
    for backend in 0..config.backends {
        let slot = layout.backends + backend * LINE;
        fill(slot, 2, Unit::Plain(Region::Backend(backend)));
    }
    fill(layout.classes, CLASS_RECORD, Unit::Plain(Region::Slab));
    fill(layout.bitmap, 1, Unit::Plain(Region::Slab));
    fill(layout.page_table, 2, Unit::Plain(Region::Slab));
    for slot in 0..uniform.slots {
        let at = layout.pages + slot * (uniform.bytes / UNIT_BYTES);
        fill(at, uniform.bytes / UNIT_BYTES, Unit::Plain(Region::Content(slot)));
        word(&mut fill, at + entry::WORD);
        fill(at + entry::CHAIN, 1, Unit::Plain(Region::Chains));
        const _: () = assert!(entry::WORD < ENTRY_HEADER && entry::CHAIN < ENTRY_HEADER);
    }
    (units, words)
}
