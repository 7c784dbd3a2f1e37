//! The segment in production: mapped memory.
//!
//! **Invariants.**
//! * M1: `base..base + units` is mapped, readable and writable, for as long as the arena lives; `base` is aligned to a page.
//! * M2: no reference into the segment other than those given out here exists in this process, and none of them is
//!   exclusive: words are atomics, bytes are read as shared slices.
//! * M3: bytes are written only by who owns their slot (taken from the slab, not yet published), and read only by who
//!   holds a reference to it or the lock of its chain. So no slice given out is ever written to, as long as every process
//!   that maps the segment keeps to the protocol: it is theirs together, as any shared memory is.
//!
//! Plain units are accessed as relaxed atomics, which costs nothing, so that a sweep may look at a header that is being
//! written.

#![allow(unsafe_code)]

use crate::error::Error;
use crate::shared::arena::RingArea;
use crate::shared::lock::{self, OWNER_MAX, Patience};
use crate::shared::segment::{At, ENTRY_HEADER, HEADER_UNITS, LINE, Layout, LockAt, UNIT_BYTES, partition};
use crate::sync::header::{self, BadHeader, field};
use crate::sync::{AtomicU64, Ordering, TestFutex};
use memmap2::{MmapMut, MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a lock of the segment is waited for, all in all, before the caller goes private.
const PATIENCE: Duration = Duration::from_millis(100);

/// Bytes of an entry's header.
const HEADER_BYTES: u64 = ENTRY_HEADER as u64 * UNIT_BYTES as u64;

type RawLock = lock::RwLock<TestFutex>;

/// The segment.
#[derive(Debug)]
pub(crate) struct Arena {
    layout: Layout,
    /// The mapping's first byte.
    base: *mut u8,
    /// The mapping's length in bytes, a multiple of a unit, and one more: what ends before it is inside.
    limit: u64,
    /// Who writes into lock words.
    owner: u32,
    /// The file to be removed at the end, if it is ours.
    unlink: Option<PathBuf>,
    _map: Mapping,
}

/// What keeps the memory mapped.
#[derive(Debug)]
enum Mapping {
    Anonymous(#[allow(dead_code, reason = "held for its Drop")] MmapMut),
    File(#[allow(dead_code, reason = "held for its Drop")] MmapRaw),
}

// SAFETY: M2: all access goes through atomics, or through bytes that M3 keeps from changing; the rest is immutable.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Drop for Arena {
    fn drop(&mut self) {
        if let Some(path) = &self.unlink {
            // Nobody is left to be told; the file may have been removed by hand.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A lock of the segment, and who wants it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lock<'a> {
    raw: &'a RawLock,
    owner: u32,
}

pub(crate) type ReadGuard<'a> = lock::ReadGuard<'a, TestFutex>;
pub(crate) type WriteGuard<'a> = lock::WriteGuard<'a, TestFutex>;

impl<'a> Lock<'a> {
    /// Shared access, or `None` after 100 ms of waiting.
    #[inline]
    pub(crate) fn read(self) -> Option<ReadGuard<'a>> {
        self.raw.read(Patience::For(PATIENCE))
    }

    /// Exclusive access, or `None` after 100 ms of waiting.
    #[inline]
    pub(crate) fn write(self) -> Option<WriteGuard<'a>> {
        self.raw.write(self.owner, Patience::For(PATIENCE))
    }

    /// Exclusive access, however long it takes: for what can't be left undone.
    #[inline]
    pub(crate) fn write_patiently(self) -> WriteGuard<'a> {
        loop {
            if let Some(guard) = self.write() {
                return guard;
            }
        }
    }
}

impl Arena {
    /// Memory of this process alone.
    pub(crate) fn anonymous(layout: Layout) -> Result<Arena, Error> {
        let refused = |source| refused("map", Path::new("(anonymous)"), source);
        let bytes = usize_of(layout.bytes(), Path::new("(anonymous)"))?;
        let mut map = MmapOptions::new().len(bytes).map_anon().map_err(refused)?;
        let base = map.as_mut_ptr();
        let limit = bytes as u64 + 1;
        let arena = Arena { layout, base, limit, owner: owner(), unlink: None, _map: Mapping::Anonymous(map) };
        arena.write_header();
        Ok(arena)
    }

    /// A file without a name, for processes that inherit or receive its descriptor.
    pub(crate) fn memfd(name: &str, layout: Layout) -> Result<(Arena, File), Error> {
        let path = PathBuf::from(format!("memfd:{name}"));
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file: File =
            rustix::fs::memfd_create(name, flags).map_err(|error| refused("create", &path, error.into()))?.into();
        let arena = Arena::fill(&file, &path, layout)?;
        // Nobody can truncate it under us.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(|error| refused("seal", &path, error.into()))?;
        Ok((arena, file))
    }

    /// A new file of mode 0600; an existing one is an error.
    pub(crate) fn create(path: &Path, layout: Layout) -> Result<Arena, Error> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(|error| refused("create", path, error))?;
        Arena::fill(&file, path, layout).inspect_err(|_| {
            // What could not be finished must not be in the way of the next attempt.
            let _ = std::fs::remove_file(path);
        })
    }

    /// Gives a new file its size and its header.
    fn fill(file: &File, path: &Path, layout: Layout) -> Result<Arena, Error> {
        // Memory is reserved now: a write into a hole of a full file system would be a SIGBUS.
        rustix::fs::fallocate(file, FallocateFlags::empty(), 0, layout.bytes())
            .map_err(|error| refused("reserve the memory of", path, error.into()))?;
        let arena = Arena::map(file, path, layout)?;
        arena.write_header();
        Ok(arena)
    }

    /// An existing segment, by the path of its file.
    pub(crate) fn attach(path: &Path) -> Result<Arena, Error> {
        // The type first: to open a pipe would wait for its other end.
        let metadata = std::fs::metadata(path).map_err(|error| refused("attach", path, error))?;
        require_file(path, &metadata)?;
        let file =
            OpenOptions::new().read(true).write(true).open(path).map_err(|error| refused("attach", path, error))?;
        Arena::attach_file(&file, path)
    }

    /// An existing segment, by its open file.
    pub(crate) fn attach_file(file: &File, path: &Path) -> Result<Arena, Error> {
        let metadata = file.metadata().map_err(|error| refused("attach", path, error))?;
        require_file(path, &metadata)?;
        let found = metadata.len();
        let least = u64::from(HEADER_UNITS * UNIT_BYTES);
        if found < least {
            return Err(Error::Size { path: path.into(), found, expected: least });
        }
        // The header is judged as bytes of the file, before anything is mapped.
        let mut bytes = [0; (HEADER_UNITS * UNIT_BYTES) as usize];
        let read = rustix::io::pread(file, &mut bytes, 0).map_err(|error| refused("read", path, error.into()))?;
        if read < bytes.len() {
            return Err(Error::Size { path: path.into(), found: read as u64, expected: least });
        }
        let mut units = [0; HEADER_UNITS as usize];
        for (unit, bytes) in units.iter_mut().zip(bytes.as_chunks::<{ UNIT_BYTES as usize }>().0) {
            *unit = u64::from_ne_bytes(*bytes);
        }
        let layout = header::judge(&units, found).map_err(|bad| explain(bad, path, found))?;
        let arena = Arena::map(file, path, layout)?;
        // Acquire: pairs with the Release in `write_header`; what the creator wrote before is seen through the mapping.
        if arena.word(field::READY).load(Ordering::Acquire) != 1 {
            return Err(Error::NotReady { path: path.into() });
        }
        Ok(arena)
    }

    fn map(file: &File, path: &Path, layout: Layout) -> Result<Arena, Error> {
        let bytes = usize_of(layout.bytes(), path)?;
        let map = MmapOptions::new().len(bytes).map_raw(file).map_err(|error| refused("map", path, error))?;
        let base = map.as_mut_ptr();
        let limit = bytes as u64 + 1;
        Ok(Arena { layout, base, limit, owner: owner(), unlink: None, _map: Mapping::File(map) })
    }

    fn write_header(&self) {
        for (unit, value) in (0..).zip(header::header_of(&self.layout)) {
            if At(unit) != field::READY {
                self.set(At(unit), value);
            }
        }
        // Release: pairs with the Acquire of `attach_file`.
        self.word(field::READY).store(1, Ordering::Release);
    }

    /// Removes `path` when this arena is dropped.
    pub(crate) fn unlink_on_drop(&mut self, path: PathBuf) {
        self.unlink = Some(path);
    }

    /// Where everything is.
    #[inline(always)]
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The address of `units` units at `at`.
    #[inline(always)]
    fn address(&self, at: At, units: u32) -> *mut u8 {
        let end = u64::from(at.0) + u64::from(units);
        assert!(end <= u64::from(self.layout.units), "outside the segment: the segment was damaged by another process");
        // SAFETY: `end` is within the mapping (M1), and so is `at`.
        unsafe { self.base.add(at.0 as usize * UNIT_BYTES as usize) }
    }

    /// An atomic.
    #[inline(always)]
    pub(crate) fn word(&self, at: At) -> &AtomicU64 {
        // SAFETY: in bounds by `address`; aligned, since `base` is (M1) and units have 8 bytes; only atomics are ever made
        // of a unit that is used as a word (M2).
        unsafe { AtomicU64::from_ptr(self.address(at, 1).cast()) }
    }

    /// Plain data, guarded by a lock or by ownership of the slot.
    #[inline(always)]
    pub(crate) fn get(&self, at: At) -> u64 {
        // Relaxed: the lock, or the slab's lock that the slot went through, orders it.
        self.word(at).load(Ordering::Relaxed)
    }

    /// Plain data, guarded by a lock or by ownership of the slot.
    #[inline(always)]
    pub(crate) fn set(&self, at: At, value: u64) {
        // Relaxed: as in `get`.
        self.word(at).store(value, Ordering::Relaxed);
    }

    /// The slot of an entry that is referenced, or whose chain is locked: checked once for the whole header.
    #[inline(always)]
    pub(crate) fn slot(&self, at: At) -> Slot<'_> {
        let content = u64::from(at.0) * u64::from(UNIT_BYTES) + HEADER_BYTES;
        assert!(content < self.limit, "outside the segment: the segment was damaged by another process");
        Slot { arena: self, content }
    }

    /// Plain data, whoever may be writing it: a hint.
    #[inline(always)]
    pub(crate) fn hint(&self, at: At) -> u64 {
        self.get(at)
    }

    /// Sets what is only ever used as a hint, and may be set by others at the same time.
    #[inline(always)]
    pub(crate) fn set_hint(&self, at: At, value: u64) {
        self.set(at, value);
    }

    /// Bytes of a slot that is referenced, or whose chain is locked.
    #[inline(always)]
    pub(crate) fn read(&self, at: At, bytes: usize) -> &[u8] {
        // In bytes, not in units: to round would cost more than the rest of the check.
        let begin = u64::from(at.0) * u64::from(UNIT_BYTES);
        assert!(begin + (bytes as u64) < self.limit, "outside the segment: the segment was damaged by another process");
        // SAFETY: both ends are within the mapping by the line above (M1); the sum does not wrap, for lengths come from 24
        // bits or from slices. Nobody writes the bytes while the slice lives (M3).
        unsafe { std::slice::from_raw_parts(self.base.add(begin as usize), bytes) }
    }

    /// Plain data of a slot that is owned.
    #[inline(always)]
    pub(crate) fn get_owned(&self, at: At) -> u64 {
        self.get(at)
    }

    /// Bytes of a slot that is owned.
    #[inline(always)]
    pub(crate) fn read_owned(&self, at: At, bytes: usize) -> &[u8] {
        self.read(at, bytes)
    }

    /// Bytes of a slot that is owned.
    #[inline]
    pub(crate) fn write(&self, at: At, bytes: &[u8]) {
        let base = self.address(at, units_of(bytes.len()));
        // SAFETY: in bounds by `address`; the slot is ours alone (M3), and `bytes` is not in it, for nobody can have a slice
        // of a slot that nobody refers to.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), base, bytes.len()) }
    }

    /// A lock.
    #[inline(always)]
    pub(crate) fn lock(&self, which: LockAt) -> Lock<'_> {
        let base = self.address(lock_at(&self.layout, which), LINE);
        // SAFETY: in bounds by `address`, aligned; `RawLock` is transparent over an atomic of 32 bits, for which any value is
        // valid; these bytes are never used as anything else (M2).
        Lock { raw: unsafe { &*base.cast::<RawLock>() }, owner: self.owner }
    }

    /// Adds to a counter.
    #[inline(always)]
    pub(crate) fn count(&self, at: At, more: u64) {
        // Relaxed: statistics order nothing.
        self.word(at).fetch_add(more, Ordering::Relaxed);
    }

    /// A counter.
    pub(crate) fn counter(&self, at: At) -> u64 {
        // Relaxed: statistics order nothing.
        self.word(at).load(Ordering::Relaxed)
    }

    /// An atomic's newest value, for hints and for harnesses.
    #[inline(always)]
    pub(crate) fn peek_word(&self, at: At) -> u64 {
        // Relaxed: a hint, or everybody is parked.
        self.word(at).load(Ordering::Relaxed)
    }

    /// Plain data while everybody is parked.
    pub(crate) fn peek(&self, at: At) -> u64 {
        self.get(at)
    }

    /// Bytes while everybody is parked. Copied unit by unit, so that no slice exists even if somebody is not.
    pub(crate) fn peek_bytes(&self, at: At, bytes: usize) -> Vec<u8> {
        let mut copy: Vec<u8> = (0..units_of(bytes)).flat_map(|unit| self.get(at + unit).to_ne_bytes()).collect();
        copy.truncate(bytes);
        copy
    }

    /// A number that tells this mapping from others of this process.
    #[inline]
    pub(crate) fn identity(&self) -> u32 {
        // Pages are of 4 KiB or more, so different mappings give different numbers; 0 is nobody's.
        (self.base as usize >> 12) as u32 | 1 << 31
    }

    /// Where the ring is.
    pub(crate) fn ring(&self) -> RingArea {
        self.layout.ring()
    }
}

/// An entry's slot, whose header lies within the segment. What is behind the header is checked when it is read.
///
/// A hit in a local view goes through here: two comparisons with the mapping's end, whatever the header says. They are of
/// bytes: to round to units would cost more than to compare.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<'a> {
    arena: &'a Arena,
    /// Where the header ends: bytes from `base`, a multiple of a unit, not less than the header's and within the mapping.
    content: u64,
}

impl<'a> Slot<'a> {
    /// A unit of the header.
    #[inline(always)]
    pub(crate) fn unit(self, offset: u32) -> u64 {
        assert!(offset < ENTRY_HEADER, "not a unit of the header");
        let begin = self.content - HEADER_BYTES + u64::from(offset) * u64::from(UNIT_BYTES);
        // SAFETY: within the header by the assertion, hence within the mapping (`content`, M1); aligned, as in `word`, since
        // all terms are multiples of a unit; only atomics are ever made of a unit that is used as a word (M2).
        let word = unsafe { AtomicU64::from_ptr(self.arena.base.add(begin as usize).cast()) };
        // Relaxed: as in `get`.
        word.load(Ordering::Relaxed)
    }

    /// The key and the row, which lie behind the header in this order, the key padded to units. `row_field` is the row's
    /// length plus one; 0: there is no row.
    #[inline(always)]
    pub(crate) fn content(self, key_bytes: u16, row_field: u32) -> (&'a [u8], Option<&'a [u8]>) {
        // `next_multiple_of` would be three instructions more.
        let padding = u64::from(UNIT_BYTES) - 1;
        let row = self.content + ((u64::from(key_bytes) + padding) & !padding);
        // One more than the row's end; sums of so short numbers don't wrap.
        let end = row + u64::from(row_field);
        assert!(end <= self.arena.limit, "outside the segment: the segment was damaged by another process");
        // SAFETY: the key begins at `content` and ends at `row` at the latest, which is within the mapping (M1): by the line
        // above it is at most one byte behind the mapping's end, and both are multiples of a unit. Nobody writes the bytes
        // while the slice lives (M3).
        let key = unsafe { std::slice::from_raw_parts(self.arena.base.add(self.content as usize), key_bytes.into()) };
        if row_field == 0 {
            std::hint::cold_path();
            return (key, None);
        }
        let row_bytes = row_field as usize - 1;
        // SAFETY: it ends at `end - 1`, which is within the mapping by the assertion (M1); else as above.
        (key, Some(unsafe { std::slice::from_raw_parts(self.arena.base.add(row as usize), row_bytes) }))
    }
}

/// Where a lock is.
#[inline]
fn lock_at(layout: &Layout, which: LockAt) -> At {
    match which {
        LockAt::Partition(number) => layout.partition(number) + partition::LOCK,
        LockAt::Slab => layout.slab,
        LockAt::Ring => layout.ring_lock,
    }
}

/// The owner that this process writes into lock words.
fn owner() -> u32 {
    let id = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
    id.clamp(1, OWNER_MAX)
}

#[inline(always)]
fn units_of(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES as usize)).unwrap_or(u32::MAX)
}

fn usize_of(bytes: u64, path: &Path) -> Result<usize, Error> {
    usize::try_from(bytes).map_err(|_| refused("map", path, io::Error::from(io::ErrorKind::OutOfMemory)))
}

fn refused(action: &'static str, path: &Path, source: io::Error) -> Error {
    let hint = match source.kind() {
        io::ErrorKind::PermissionDenied => {
            "; a segment belongs to the user who created it (mode 0600): run as that user, or give it another mode"
        }
        io::ErrorKind::NotFound => "; check the path, or create the segment first",
        io::ErrorKind::AlreadyExists => "; attach to it, or remove it if no program uses it",
        io::ErrorKind::StorageFull | io::ErrorKind::OutOfMemory => "; make room there, or give it fewer `bytes`",
        _ => "",
    };
    Error::Io { action, path: path.into(), hint, source }
}

fn require_file(path: &Path, metadata: &std::fs::Metadata) -> Result<(), Error> {
    let kind = metadata.file_type();
    if kind.is_file() {
        return Ok(());
    }
    let found = match kind {
        kind if kind.is_dir() => "directory",
        kind if kind.is_fifo() => "pipe",
        kind if kind.is_socket() => "socket",
        kind if kind.is_char_device() || kind.is_block_device() => "device",
        _ => "special file",
    };
    Err(Error::NotAFile { path: path.into(), found })
}

fn explain(bad: BadHeader, path: &Path, found_bytes: u64) -> Error {
    let path = path.into();
    match bad {
        BadHeader::Foreign(found) => Error::Foreign { path, found },
        BadHeader::ByteOrder => Error::ByteOrder { path },
        BadHeader::Version(found) => Error::Version { path, found, expected: header::VERSION },
        BadHeader::NotReady => Error::NotReady { path },
        BadHeader::Size { expected } => Error::Size { path, found: found_bytes, expected },
        BadHeader::Damaged(reason) => Error::Damaged { path, reason },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::segment::Config;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const UNIT: u32 = UNIT_BYTES;

    /// The lengths of key and row as they are read, or the panic's message.
    fn lengths(arena: &Arena, at: At, key_bytes: u16, row_field: u32) -> Result<(usize, Option<usize>), String> {
        catch_unwind(AssertUnwindSafe(|| {
            let (key, row) = arena.slot(at).content(key_bytes, row_field);
            (key.len(), row.map(<[u8]>::len))
        }))
        .map_err(|panic| panic.downcast_ref::<&str>().map_or(String::new(), |said| (*said).to_owned()))
    }

    /// What another process may have written into a header, at the end of the segment: there each byte too many shows.
    #[test]
    fn whatever_lengths_a_header_has_nothing_outside_is_read() {
        let layout = Layout::new(&Config::tiny()).unwrap();
        let end = At(layout.units);
        let arena = Arena::anonymous(layout).unwrap();
        let before = |units: u32| At(end.0 - ENTRY_HEADER - units);

        assert_eq!(lengths(&arena, before(0), 0, 0), Ok((0, None)));
        assert_eq!(lengths(&arena, before(0), 0, 1), Ok((0, Some(0))));
        assert_eq!(lengths(&arena, before(1), 8, 0), Ok((8, None)));
        assert_eq!(lengths(&arena, before(2), 3, UNIT + 1), Ok((3, Some(8))));
        assert_eq!(lengths(&arena, before(2), 9, 1), Ok((9, Some(0))));

        let outside = |at, key_bytes, row_field| {
            let said = lengths(&arena, at, key_bytes, row_field).unwrap_err();
            assert_eq!(said, "outside the segment: the segment was damaged by another process");
        };
        outside(before(0), 0, 2);
        outside(before(0), 1, 0);
        outside(before(1), 9, 0);
        outside(before(2), 3, UNIT + 2);
        outside(before(2), 9, 2);
        outside(before(1), u16::MAX, u32::MAX);
        outside(At(0), 0, u32::MAX);
        // Headers that don't fit.
        outside(At(end.0 - ENTRY_HEADER + 1), 0, 0);
        outside(end, 0, 0);
        outside(At(u32::MAX), u16::MAX, u32::MAX);
    }
}
