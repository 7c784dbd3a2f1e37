//! The shared layer: one copy of the catalog for all backends, checked before it is trusted.
//!
//! It stands alone: inside PostgreSQL, which has its own local cache and message ring, only this layer runs. The host gives
//! canonical keys with their hash, tokens, and rows as bytes.
//!
//! ```text
//! Shared ─▶ table ─▶ entry ─▶ slab, stamp ─▶ arena ─▶ segment, lock
//! ```
//!
//! **What it promises** (I1): every linked, valid entry equals the committed row as of now. A probe that accepts an entry knows
//! that it was current at some instant after the probe began (I1h). What the caller owes in return:
//!
//! * a token is read ([`Shared::token`]) *before* the snapshot that it is to go with, and stays with that snapshot for as long
//!   as it is used (D3);
//! * only what was scanned under that snapshot is published with that token, nothing that the own transaction has changed (D7);
//! * a writer puts a [`Bracket`] around the instant at which its changes become visible: [`Bracket::open`] before,
//!   [`Bracket::close`] after, and its messages and locks after that;
//! * the host orders that instant before every snapshot which sees it.
//!
//! Locks are leaves, bounded, and never held when a method returns. Writers take none.

pub(crate) mod arena;
pub(crate) mod entry;
pub(crate) mod lock;
pub(crate) mod segment;
mod slab;
mod stamp;
mod table;

pub use segment::{
    BACKENDS_MAX, Config, PARTITIONS_MAX, RING_MAX, ROW_BYTES_MAX, SEGMENT_BYTES_MAX, STAMPS_MAX, Uniform,
};
pub use stamp::OPEN_MAX;

use crate::error::Error;
use crate::key::{Key, OwnedKey, Packed};
use crate::message::Message;
use crate::probe::{EntryAt, Level, Probe, StampValue};
use crate::stats::Stats;
use crate::sync::{Arc, MODELLED, panicking};
use arena::Arena;
use segment::{At, Layout};
use std::fs::File;
use std::path::Path;
use table::Table;

/// A handle on a segment. Clones are cheap and name the same segment.
#[derive(Clone, Debug)]
pub struct Shared {
    table: Arc<Table>,
}

/// The clock as read before a snapshot was taken; it belongs to that snapshot. The default, 0, is never published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// A token of a given value: for hosts that keep it elsewhere. 0: nothing is published with it (D12).
    #[must_use]
    pub const fn new(value: u64) -> Token {
        Token(value)
    }

    /// The clock.
    #[inline]
    #[must_use]
    pub const fn value(self) -> u64 {
        self.0
    }
}

/// A reference to an entry, which will not be freed, moved or changed until the reference is given back to
/// [`Shared::release`]. A reference that is dropped instead pins its entry for ever.
#[must_use = "give it back to `Shared::release`, or the entry can never be freed"]
#[derive(Debug, PartialEq, Eq)]
pub struct Reference {
    entry: u32,
    /// Which mapping it is of; 0: not known (put together again by the backend layer, which keeps them apart itself).
    segment: u32,
    mark: u64,
}

impl Reference {
    fn new(arena: &Arena, at: At, mark: u64) -> Reference {
        Reference { entry: at.0, segment: arena.identity(), mark }
    }

    /// The number, after a check that the reference is of this segment.
    #[inline]
    fn checked(&self, arena: &Arena) -> u32 {
        let known = self.segment == 0 || self.segment == arena.identity();
        assert!(known, "a reference is used with a handle that it was not taken with");
        self.entry
    }

    /// Where the entry lies.
    #[inline]
    #[must_use]
    pub fn at(&self) -> EntryAt {
        EntryAt(self.entry)
    }

    /// The greatest mark of the entry's stamps, as they were checked; 0 right after a publication. If it is above the token of
    /// the own catalog snapshot, that snapshot is older than the entry and must go (A9).
    #[inline]
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.mark
    }

    /// Takes the reference apart: a number that is never 0 and below 2^31.
    #[inline]
    pub(crate) fn into_raw(self) -> u32 {
        self.entry
    }

    /// Puts a reference together again; its mark is then 0.
    #[inline]
    pub(crate) fn from_raw(entry: u32) -> Reference {
        Reference { entry, segment: 0, mark: 0 }
    }
}

/// The members of a list, key and row: where they lie in the segment, nothing is copied.
#[derive(Clone)]
pub struct Members<'a> {
    shared: &'a Shared,
    places: std::slice::Iter<'a, entry::Place>,
}

impl std::fmt::Debug for Members<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Members").finish_non_exhaustive()
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (Key<'a>, &'a [u8]);

    fn next(&mut self) -> Option<(Key<'a>, &'a [u8])> {
        // A member has a row: only what a scan has found is published with a list.
        let member = self.shared.table.entry(entry::at(*self.places.next()?));
        Some((member.key(), member.row().unwrap_or_default()))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.places.size_hint()
    }
}

impl ExactSizeIterator for Members<'_> {}

/// What became of a load.
#[derive(Debug, PartialEq, Eq)]
pub enum Publication {
    /// It is in the shared table.
    Published(Reference),
    /// Another's entry, loaded with a token at least as new, was there already and is valid: use that.
    Existing(Reference),
    /// It stays private.
    Private {
        /// The token was bad already: no load under this snapshot can be published any more, so drop it when that is
        /// possible.
        useless: bool,
    },
}

impl Shared {
    fn new(arena: Arena) -> Shared {
        Shared { table: Arc::new(Table::new(arena)) }
    }

    /// A segment in memory of this process alone, for threads.
    ///
    /// # Errors
    /// [`Error::Config`], or [`Error::Io`] if there is not enough memory.
    pub fn anonymous(config: &Config) -> Result<Shared, Error> {
        Ok(Shared::new(Arena::anonymous(Layout::new(config)?)?))
    }

    /// A segment in a file without a name, and that file: for processes that inherit or are sent its descriptor. It can't be
    /// truncated. `name` is for `/proc` only.
    ///
    /// # Errors
    /// [`Error::Config`], or [`Error::Io`] if there is not enough memory.
    pub fn memfd(name: &str, config: &Config) -> Result<(Shared, File), Error> {
        let (arena, file) = Arena::memfd(name, Layout::new(config)?)?;
        Ok((Shared::new(arena), file))
    }

    /// A new segment in a file, mode 0600. Put it into shared memory, such as `/dev/shm/catcache`. All its memory is reserved
    /// at once.
    ///
    /// # Errors
    /// [`Error::Config`]; [`Error::Io`] if the file exists, can't be made, or there is no room for it.
    pub fn create(path: impl AsRef<Path>, config: &Config) -> Result<Shared, Error> {
        Ok(Shared::new(Arena::create(path.as_ref(), Layout::new(config)?)?))
    }

    /// As [`Shared::create`], and the file is removed when the last clone of this handle is dropped. Who is attached then goes
    /// on with it, unnamed.
    ///
    /// # Errors
    /// As [`Shared::create`].
    pub fn create_owned(path: impl AsRef<Path>, config: &Config) -> Result<Shared, Error> {
        let path = path.as_ref();
        let mut arena = Arena::create(path, Layout::new(config)?)?;
        arena.unlink_on_drop(path.to_path_buf());
        Ok(Shared::new(arena))
    }

    /// An existing segment, by the path of its file.
    ///
    /// # Errors
    /// Each says what to do: [`Error::Io`] if it can't be opened, [`Error::NotAFile`], [`Error::Foreign`],
    /// [`Error::ByteOrder`], [`Error::Version`], [`Error::Size`], [`Error::NotReady`], [`Error::Damaged`].
    pub fn attach(path: impl AsRef<Path>) -> Result<Shared, Error> {
        Ok(Shared::new(Arena::attach(path.as_ref())?))
    }

    /// An existing segment, by its open file, such as [`Shared::memfd`] has made.
    ///
    /// # Errors
    /// As [`Shared::attach`].
    pub fn attach_file(file: &File) -> Result<Shared, Error> {
        Ok(Shared::new(Arena::attach_file(file, Path::new("(descriptor)"))?))
    }

    /// The segment itself, for the backend layer.
    #[inline(always)]
    pub(crate) fn arena(&self) -> &Arena {
        &self.table.arena
    }

    /// The parameters of the segment.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.arena().layout().config
    }

    /// Size of the segment in bytes. It never changes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.arena().layout().bytes()
    }

    /// Step Token: the clock, to be read before a snapshot is taken. Never 0. One load.
    #[inline]
    pub fn token<P: Probe>(&self, probe: &P) -> Token {
        Token(stamp::token(self.arena(), probe))
    }

    /// Steps Find and Check*: the valid entry of `key`, with a reference to it. `None`: load it (there is none, it is no longer
    /// valid, or the lock was not to be had). An invalid entry is unlinked (Unlink, Free). Allocates nothing. O(1) on average.
    #[inline]
    pub fn find<P: Probe>(&self, probe: &P, key: &Key<'_>) -> Option<Reference> {
        self.table.find(probe, Packed::new(key))
    }

    /// Publishes what a load has read: `row`, or `None` if the scan found no row (A35). `token` is that of the very snapshot
    /// that was scanned. It never waits for longer than a bound and never fails; it may just keep the load private.
    ///
    /// Steps: Check* (is the token bad already?), Allocate, (Evict, Free, Allocate)*, Publish; then Free of an entry that was
    /// replaced, or, if another's entry was kept, Free of the own slot and Check* of the other (and Release if it is invalid).
    /// O(1) on average; when the segment is full, bounded work.
    pub fn publish<P: Probe>(&self, probe: &P, key: &Key<'_>, row: Option<&[u8]>, token: Token) -> Publication {
        self.table.publish(probe, Packed::new(key), row, token.0)
    }

    /// As [`Shared::find`], for the list of a partial key (A37). O(1) on average, however long the list.
    pub fn find_list<P: Probe>(&self, probe: &P, partial: &Key<'_>) -> Option<Reference> {
        self.table.find(probe, Packed::list(partial))
    }

    /// Publishes what a scan by a partial key has read: each row for itself, as [`Shared::publish`] does, and then the list that
    /// refers to them. One reference to the list holds them all. All or nothing: a list whose members could not be published
    /// stays private, and so does an answer from it. O(rows).
    pub fn publish_list<'r, P: Probe>(
        &self,
        probe: &P,
        partial: &Key<'_>,
        rows: impl IntoIterator<Item = (Key<'r>, &'r [u8])>,
        token: Token,
    ) -> Publication {
        self.table.publish_list(probe, Packed::list(partial), rows.into_iter(), token.0)
    }

    /// The members of a list, key and row, where they lie; none of another entry.
    ///
    /// # Panics
    /// If the reference was not taken with this handle or a clone of it.
    pub fn members<'a>(&'a self, reference: &'a Reference) -> Members<'a> {
        self.members_of(reference.checked(self.arena()))
    }

    /// As [`Shared::members`], by the number of [`Reference::into_raw`], while that reference is held.
    pub(crate) fn members_of(&self, raw: u32) -> Members<'_> {
        Members { shared: self, places: self.table.entry(At(raw)).places() }
    }

    /// Is the entry of a reference that is held a list?
    pub(crate) fn is_list(&self, raw: u32) -> bool {
        self.table.entry(At(raw)).is_list()
    }

    /// Step Release: gives a reference back (Free, if it was the last one of an unlinked entry). One atomic operation.
    ///
    /// # Panics
    /// If the reference was not taken with this handle or a clone of it.
    #[inline]
    pub fn release<P: Probe>(&self, probe: &P, reference: Reference) {
        self.table.release(probe, At(reference.checked(self.arena())));
    }

    /// The row of an entry; `None`: there is no such row. Where it lies in the segment: nothing is copied.
    ///
    /// # Panics
    /// If the reference was not taken with this handle or a clone of it.
    #[inline]
    pub fn row<'a>(&'a self, reference: &'a Reference) -> Option<&'a [u8]> {
        self.row_of(reference.checked(self.arena()))
    }

    /// The key of an entry.
    ///
    /// # Panics
    /// If the reference was not taken with this handle or a clone of it.
    #[inline]
    pub fn key<'a>(&'a self, reference: &'a Reference) -> Key<'a> {
        self.key_of(reference.checked(self.arena()))
    }

    /// The row of an entry, by the number of [`Reference::into_raw`], while that reference is held.
    #[inline(always)]
    pub(crate) fn row_of(&self, raw: u32) -> Option<&[u8]> {
        self.table.entry(At(raw)).row()
    }

    /// The key of an entry, by the number of [`Reference::into_raw`], while that reference is held.
    #[inline(always)]
    pub(crate) fn key_of(&self, raw: u32) -> Key<'_> {
        self.table.entry(At(raw)).key()
    }

    /// The row, if the entry of a reference that is held bears this key, whose hash has been compared.
    #[inline(always)]
    pub(crate) fn row_if(&self, raw: u32, key: Packed<'_>) -> Option<Option<&[u8]>> {
        self.table.entry(At(raw)).row_if(key)
    }

    /// Steps Evict and Free: removes the entry of `key` if nobody refers to it.
    pub fn evict<P: Probe>(&self, probe: &P, key: &Key<'_>) -> bool {
        self.table.evict(probe, Packed::new(key))
    }

    /// Steps Evict, Release of each member, and Free: removes the list of a partial key if nobody refers to it.
    pub fn evict_list<P: Probe>(&self, probe: &P, partial: &Key<'_>) -> bool {
        self.table.evict(probe, Packed::list(partial))
    }

    /// A bracket for what was changed: rows, as (database, cache, hash), or any [`Message`]. Whatever is to be allocated is
    /// allocated now.
    pub fn bracket(&self, changed: impl IntoIterator<Item = impl Into<Message>>) -> Bracket {
        let layout = self.arena().layout();
        let stamp = |level, database, cache, hash| (level, stamp::index_of(layout, level, database, cache, hash));
        let stamps = |message: Message| match message {
            // Its own, and that of its cache's lists, which any of them may have to leave or to enter (A28).
            Message::Row { database, cache, hash } => {
                [Some(stamp(Level::Stripe, database, cache, hash)), Some(stamp(Level::List, database, cache, hash))]
            }
            Message::Catalog { database, cache } => [Some(stamp(Level::Catalog, database, cache, 0)), None],
            Message::Database { database } => [Some(stamp(Level::Database, database, 0, 0)), None],
        };
        Bracket::new(self, changed.into_iter().flat_map(|changed| stamps(changed.into())).flatten().collect())
    }

    /// A bracket for whole catalogs, (database, cache) each: VACUUM FULL, or a transaction that changed very much (A32).
    pub fn bracket_of_catalogs(&self, changed: impl IntoIterator<Item = (u32, u8)>) -> Bracket {
        self.bracket(changed.into_iter().map(|(database, cache)| Message::Catalog { database, cache }))
    }

    /// A bracket for whole databases: DROP or move of a database, promotion of a standby (D30).
    pub fn bracket_of_databases(&self, changed: impl IntoIterator<Item = u32>) -> Bracket {
        self.bracket(changed.into_iter().map(|database| Message::Database { database }))
    }

    /// What the cache has done and holds. O(partitions).
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.table.stats()
    }

    /// The shared state, for a harness that has parked everybody: of a segment in use, keys and rows may come out torn.
    #[must_use]
    pub fn peek(&self) -> SharedImage {
        let arena = self.arena();
        let config = self.config();
        let stamps = |level, count: u32| (0..count).map(|index| stamp::peek(arena, level, index)).collect();
        let (entries, free_slots) = self.table.peek();
        let tail = arena.peek_word(arena.ring().tail);
        SharedImage {
            clock: stamp::peek_clock(arena),
            stripes: stamps(Level::Stripe, config.stripes),
            lists: stamps(Level::List, config.lists),
            catalogs: stamps(Level::Catalog, config.catalogs),
            databases: stamps(Level::Database, config.databases),
            entries: entries
                .into_iter()
                .map(|entry| {
                    let entry::Content { key, row, members, token } = entry.peek_content();
                    let word = entry.peek();
                    let (linked, references) = (word.linked(), word.references());
                    let members = members.map(|members| members.into_iter().map(|at| EntryAt(at.0)).collect());
                    EntryImage { at: EntryAt(entry.at.0), key, row, members, token, linked, references }
                })
                .collect(),
            ring_tail: tail,
            ring_positions: (0..config.backends).map(|backend| peek_position(arena, backend)).collect(),
            free_slots,
        }
    }
}

/// Bits of a backend's state word.
pub(crate) mod backend_state {
    /// A backend is attached.
    pub(crate) const IN_USE: u64 = 1;
    /// Messages were overwritten that its backend had not read.
    pub(crate) const RESET: u64 = 2;
}

/// A backend's position in the ring, and whether it is to be reset; `None`: the slot is free.
fn peek_position(arena: &Arena, backend: u32) -> Option<(u64, bool)> {
    let ring = arena.ring();
    let state = arena.peek(ring.state(backend));
    (state & backend_state::IN_USE != 0)
        .then(|| (arena.peek(ring.position(backend)), state & backend_state::RESET != 0))
}

/// What a writer does around the instant at which its changes become visible.
///
/// ```text
/// C  →  open  →  P  →  close  →  S  →  L
/// ```
///
/// Nothing slow may lie between open and close. Neither takes a lock, allocates, or fails. The stamps are opened one by one,
/// in a fixed order, and closed likewise: each writer and entry need only one in common.
#[must_use]
#[derive(Debug)]
pub struct Bracket {
    shared: Shared,
    /// Sorted, each once.
    stamps: Vec<(Level, u32)>,
    open: bool,
}

impl Bracket {
    fn new(shared: &Shared, mut stamps: Vec<(Level, u32)>) -> Bracket {
        stamps.sort_unstable();
        stamps.dedup();
        Bracket { shared: shared.clone(), stamps, open: false }
    }

    /// Takes the stamps of another bracket in. Neither may be open.
    pub fn and(mut self, mut other: Bracket) -> Bracket {
        debug_assert!(!self.open && !other.open, "brackets are joined before they are opened");
        let mut stamps = std::mem::take(&mut self.stamps);
        stamps.append(&mut other.stamps);
        Bracket::new(&self.shared, stamps)
    }

    /// How many stamps it has.
    #[must_use]
    pub fn stamps(&self) -> usize {
        self.stamps.len()
    }

    /// Is there nothing to open?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stamps.is_empty()
    }

    /// Steps Open: counts up each stamp. From now on no entry of what changes is valid.
    pub fn open<P: Probe>(&mut self, probe: &P) {
        assert!(!self.open, "the bracket is open already");
        self.open = true;
        for &(level, index) in &self.stamps {
            stamp::open(self.shared.arena(), probe, level, index);
        }
    }

    /// Steps Advance, Close: advances the clock once, and marks and counts down each stamp. Does nothing if it is not open, or
    /// has no stamps.
    pub fn close<P: Probe>(mut self, probe: &P) {
        self.leave(probe);
    }

    fn leave<P: Probe>(&mut self, probe: &P) {
        if !std::mem::take(&mut self.open) || self.stamps.is_empty() {
            return;
        }
        let arena = self.shared.arena();
        let now = stamp::advance(arena, probe);
        for &(level, index) in &self.stamps {
            stamp::close(arena, probe, level, index, now);
        }
    }

    /// Steps Withdraw: counts down each stamp. Nothing has become visible, so nothing is marked.
    pub fn withdraw<P: Probe>(mut self, probe: &P) {
        if std::mem::take(&mut self.open) {
            for &(level, index) in &self.stamps {
                stamp::withdraw(self.shared.arena(), probe, level, index);
            }
        }
    }

    /// Forgets the bracket, open as it is: the fault of not withdrawing it. Its entries stay invalid for ever.
    pub fn abandon(mut self) {
        self.open = false;
    }
}

impl Drop for Bracket {
    /// A bracket that is still open, because its writer panicked, is closed: marking is always safe.
    fn drop(&mut self) {
        if MODELLED && panicking() {
            return;
        }
        self.leave(&());
    }
}

/// The shared state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedImage {
    /// The clock.
    pub clock: u64,
    /// The stamps of the stripes.
    pub stripes: Vec<StampValue>,
    /// The stamps of the caches' lists.
    pub lists: Vec<StampValue>,
    /// The stamps of the catalogs.
    pub catalogs: Vec<StampValue>,
    /// The stamps of the databases.
    pub databases: Vec<StampValue>,
    /// Entries that are linked or referred to.
    pub entries: Vec<EntryImage>,
    /// Number of the next message.
    pub ring_tail: u64,
    /// By backend: the next message it will read, and whether it is to be reset.
    pub ring_positions: Vec<Option<(u64, bool)>>,
    /// Slots not taken, of a uniform table; else 0.
    pub free_slots: u32,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryImage {
    /// Where it lies.
    pub at: EntryAt,
    /// Its key.
    pub key: OwnedKey,
    /// Its row; `None`: a negative entry, or a list.
    pub row: Option<Vec<u8>>,
    /// Of a list, its members.
    pub members: Option<Vec<EntryAt>>,
    /// The token of the snapshot that read it.
    pub token: u64,
    /// Is it in the table?
    pub linked: bool,
    /// References to it.
    pub references: u32,
}
