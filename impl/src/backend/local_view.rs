//! The local view: a backend's private table of the entries that it has used, stable until the backend accepts
//! messages (A7).
//!
//! It is what makes a lookup as cheap as a private cache: a hit here performs no atomic operation, writes no shared
//! line and allocates nothing. It holds no rows of its own, only 8-byte slots:
//!
//! ```text
//!     63            32 31 30                0
//!    | hash           | p| where             |      p = 0: offset of an entry in the segment, pinned by a reference
//!    `----------------^--^-------------------'      p = 1: index into the side table of private entries
//! ```
//!
//! An empty slot is all ones, which looks like a private entry that never is: so one comparison tells whether a slot
//! has a hash *and* names a shared entry. The key is compared with the one that lies in the entry itself, so a touched
//! entry costs its backend 13 to 26 bytes, and at most 39 at the moment of growth, where a private cache pays for key,
//! row and links.
//!
//! Invariants
//!
//! * L1. Each key is in at most one slot (A8), and each reference in a slot is counted once in its entry.
//! * L2. From the home of a hash to the first empty slot behind it lie all entries with that hash: deletion shifts back,
//!   there are no tombstones. That is what lets a message find every entry that it must drop (A28).
//! * L3. At least three eighths of the slots are empty, so every walk ends.
//! * L4. A private entry is reached from exactly one slot.

use crate::key::{Key, Packed};
use crate::message::Message;
use crate::shared::SEGMENT_BYTES_MAX;
use crate::sync::MODELLED;

/// Reads the shared entries that the view holds references to.
pub(super) trait Entries {
    /// The key as it lies in the entry at `reference`.
    fn key_of(&self, reference: u32) -> Key<'_>;

    /// The row (`None`: there is no such row), if the entry at `reference` is the one of `key`, whose hash is known to be
    /// equal; else `None`.
    fn row_if(&self, reference: u32, key: Packed<'_>) -> Option<Option<&[u8]>>;
}

/// An occupied slot's lower half: where the entry is. Copied freely; it is good until the entry is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Local(u32);

/// The two kinds of entries that a slot can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Shared, at this offset; the view holds one reference to it.
    Shared(u32),
    /// Private to this backend, at this index of the side table.
    Private(u32),
}

impl Local {
    /// Tells the two kinds of entries apart.
    const PRIVATE: u32 = 1 << 31;

    #[inline(always)]
    pub(super) fn kind(self) -> Kind {
        let Local(bits) = self;
        if bits & Self::PRIVATE == 0 { Kind::Shared(bits) } else { Kind::Private(bits & !Self::PRIVATE) }
    }

    fn shared(reference: u32) -> Local {
        assert!(u64::from(reference) < OFFSETS, "an offset of {reference} units is outside of any segment");
        assert!(reference != 0, "offset 0 is the segment's header, never an entry");
        Local(reference)
    }

    fn private(index: u32) -> Local {
        // One less than there are numbers: that of an empty slot is none of them.
        assert!(index < Self::PRIVATE - 1, "more than 2^31 - 1 private entries in one backend");
        Local(index | Self::PRIVATE)
    }
}

/// An entry that only this backend knows: its own uncommitted change, or a row that could not be published.
#[derive(Debug)]
pub(super) struct Private {
    database: u32,
    cache: u8,
    key: Box<[u8]>,
    row: Option<Box<[u8]>>,
}

/// Looks like a private entry, of an index that none has (`Local::private`).
const EMPTY: u64 = u64::MAX;
/// All offsets are less, by the size of the largest segment. To compare with 2^31 would take a register more.
const OFFSETS: u64 = (1 << 31) - 1;
const _: () = assert!(SEGMENT_BYTES_MAX / 8 <= OFFSETS);
/// Slots of an empty view: one cache line.
const LEAST_BITS: u32 = 3;
/// More would not be addressed by 31-bit indices.
const MOST_BITS: u32 = 31;

fn slot(hash: u32, local: Local) -> u64 {
    u64::from(hash) << 32 | u64::from(local.0)
}

/// What an occupied slot names.
fn local_of(slot: u64) -> Option<Local> {
    (slot != EMPTY).then_some(Local(slot as u32))
}

#[inline(always)]
fn hash_of(slot: u64) -> u32 {
    (slot >> 32) as u32
}

/// The table. See the module's docs for its invariants.
#[derive(Debug)]
pub(super) struct LocalView {
    /// A power of two of them, never fewer than eight.
    slots: Box<[u64]>,
    /// 32 less the number of bits of a slot's index.
    shift: u32,
    /// Occupied slots.
    len: u32,
    /// Slots that hold a private entry.
    private_len: u32,
    /// Where the next trim begins, so that it takes references in turn and not always the same ones.
    hand: u32,
    /// The private entries; `None` is free.
    private: Vec<Option<Box<Private>>>,
    /// Free indices of `private`.
    free: Vec<u32>,
}

impl LocalView {
    pub(super) fn new() -> LocalView {
        LocalView {
            slots: vec![EMPTY; 1 << LEAST_BITS].into_boxed_slice(),
            shift: 32 - LEAST_BITS,
            len: 0,
            private_len: 0,
            hand: 0,
            private: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Entries in the view, shared and private.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Private entries in the view.
    pub(super) fn private_len(&self) -> u32 {
        self.private_len
    }

    /// Bytes of the table itself (not of private rows).
    pub(super) fn table_bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    /// The first slot that an entry of this hash may be in. The multiplication spreads hashes that differ in their low
    /// bits only, as those of tests and of small catalogs do; the top bits of the product index the table.
    #[inline(always)]
    fn home(&self, hash: u32) -> usize {
        (hash.wrapping_mul(0x9E37_79B9) >> self.shift) as usize
    }

    #[inline(always)]
    fn mask(&self) -> usize {
        self.slots.len() - 1
    }

    /// The row of `key`, if the first shared entry with its hash is that of the key: the way of nearly every
    /// lookup. No allocation, no atomic operation, nothing written; the row is borrowed from the segment alone, not from
    /// the view. `None` says nothing: ask [`LocalView::find`].
    #[inline(always)]
    pub(super) fn find_first<'a>(&self, entries: &'a impl Entries, key: Packed<'_>) -> Option<Option<&'a [u8]>> {
        let mut at = self.home(key.hash);
        // There are as many slots as homes, so it is there.
        let mut slot = *self.slots.get(at)?;
        loop {
            // Small only if the hash is the same, and what is left is the offset of a shared entry.
            let rest = slot ^ u64::from(key.hash) << 32;
            if rest < OFFSETS {
                return entries.row_if(rest as u32, key);
            }
            if slot == EMPTY {
                return None;
            }
            at += 1;
            slot = self.slots[at & self.mask()];
        }
    }

    /// The entry of `key`, if it is in the view: whatever may come, collisions and private entries too.
    pub(super) fn find(&self, entries: &impl Entries, key: Packed<'_>) -> Option<Local> {
        let mut at = self.home(key.hash);
        loop {
            let slot = self.slots[at & self.mask()];
            let local = local_of(slot)?;
            if hash_of(slot) == key.hash {
                let found = match local.kind() {
                    Kind::Shared(reference) => entries.row_if(reference, key).is_some(),
                    Kind::Private(index) => self.is_private(index, key),
                };
                if found {
                    return Some(local);
                }
            }
            at += 1;
        }
    }

    fn is_private(&self, index: u32, key: Packed<'_>) -> bool {
        let entry = self.private_at(index);
        entry.database == key.database() && entry.cache == key.cache() && *entry.key == *key.bytes
    }

    /// The private entry at `index`. L4: a slot names it, so it is there.
    fn private_at(&self, index: u32) -> &Private {
        self.private[index as usize].as_deref().expect("L4: a slot names this private entry")
    }

    /// The row of a private entry; `None` is a negative one.
    pub(super) fn private_row(&self, index: u32) -> Option<&[u8]> {
        self.private_at(index).row.as_deref()
    }

    /// The key of any entry of the view.
    pub(super) fn key_at<'a>(&'a self, entries: &'a impl Entries, hash: u32, local: Local) -> Key<'a> {
        match local.kind() {
            Kind::Shared(reference) => entries.key_of(reference),
            Kind::Private(index) => {
                let entry = self.private_at(index);
                Key { database: entry.database, cache: entry.cache, hash, bytes: &entry.key }
            }
        }
    }

    /// All entries with their hashes, in the order of the slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, Local)> + '_ {
        self.slots.iter().filter_map(|&slot| Some((hash_of(slot), local_of(slot)?)))
    }

    /// Takes over one reference to the shared entry of `key`, which is not in the view. Amortised O(1).
    pub(super) fn insert_shared(&mut self, entries: &impl Entries, key: Packed<'_>, reference: u32) -> Local {
        debug_assert!(self.find(entries, key).is_none(), "L1: the key is in the view already");
        let local = Local::shared(reference);
        self.insert(key.hash, local);
        local
    }

    /// Keeps a row for this backend alone. Amortised O(1).
    pub(super) fn insert_private(&mut self, entries: &impl Entries, key: Packed<'_>, row: Option<&[u8]>) -> Local {
        debug_assert!(self.find(entries, key).is_none(), "L1: the key is in the view already");
        let entry = Some(Box::new(Private {
            database: key.database(),
            cache: key.cache(),
            key: key.bytes.into(),
            row: row.map(Into::into),
        }));
        let index = match self.free.pop() {
            Some(index) => {
                self.private[index as usize] = entry;
                index
            }
            None => {
                self.private.push(entry);
                (self.private.len() - 1) as u32
            }
        };
        let local = Local::private(index);
        self.insert(key.hash, local);
        self.private_len += 1;
        local
    }

    fn insert(&mut self, hash: u32, local: Local) {
        // L3: grow at five eighths.
        if (u64::from(self.len) + 1) * 8 > self.slots.len() as u64 * 5 {
            self.resize(32 - self.shift + 1);
        }
        self.place(slot(hash, local));
        self.len += 1;
    }

    /// Puts `slot` into the first empty place from its home on.
    fn place(&mut self, slot: u64) {
        let mask = self.mask();
        let mut at = self.home(hash_of(slot)) & mask;
        while self.slots[at] != EMPTY {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
    }

    /// Moves everything into a table of `2^bits` slots.
    fn resize(&mut self, bits: u32) {
        assert!(bits <= MOST_BITS, "a local view of more than 2^31 slots");
        let old = std::mem::replace(&mut self.slots, vec![EMPTY; 1 << bits].into_boxed_slice());
        self.shift = 32 - bits;
        self.hand = 0;
        for slot in old.into_iter().filter(|&slot| slot != EMPTY) {
            self.place(slot);
        }
    }

    /// Gives memory back after many entries have gone: half full at most, so that the next insertion does not grow it.
    fn shrink(&mut self) {
        let wanted = (u64::from(self.len) * 2).next_power_of_two().trailing_zeros().max(LEAST_BITS);
        if wanted + 1 < 32 - self.shift {
            self.resize(wanted);
        }
        if self.private_len == 0 {
            self.private = Vec::new();
            self.free = Vec::new();
        }
    }

    /// Empties the slot at `hole` and closes the gap (L2). References go to `dropped`, to be released by the caller;
    /// private entries are freed.
    fn remove(&mut self, mut hole: usize, dropped: &mut Vec<u32>) {
        let local = local_of(self.slots[hole]).expect("an occupied slot");
        match local.kind() {
            Kind::Shared(reference) => dropped.push(reference),
            Kind::Private(index) => {
                self.private[index as usize] = None;
                self.free.push(index);
                self.private_len -= 1;
            }
        }
        self.len -= 1;
        let mask = self.mask();
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let slot = self.slots[at];
            if slot == EMPTY {
                break;
            }
            // The slot may move back to the hole unless its home lies behind the hole.
            let from_home = at.wrapping_sub(self.home(hash_of(slot))) & mask;
            if from_home >= at.wrapping_sub(hole) & mask {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = EMPTY;
    }

    /// Drops every entry that a message names, positive or negative, shared or private (A28, A32). False hits are
    /// impossible here, misses too (L2). O(length of the hash's run); O(slots) for a whole catalog or database.
    pub(super) fn drop_matching(&mut self, entries: &impl Entries, message: Message, dropped: &mut Vec<u32>) {
        let Message::Row { database, cache, hash } = message else {
            self.drop_if(entries, dropped, |key| message.names(key.database, key.cache, key.hash));
            return;
        };
        let mask = self.mask();
        let mut at = self.home(hash) & mask;
        loop {
            let slot = self.slots[at];
            let Some(local) = local_of(slot) else { return };
            if hash_of(slot) == hash {
                let key = self.key_at(entries, hash, local);
                if key.database == database && key.cache == cache {
                    // What was shifted back into this slot is looked at next.
                    self.remove(at, dropped);
                    continue;
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// Drops the entries whose key `goes` says; the hash of a private one is 0 there. O(slots).
    pub(super) fn drop_if(&mut self, entries: &impl Entries, dropped: &mut Vec<u32>, goes: impl Fn(Key<'_>) -> bool) {
        self.sweep(dropped, |view, local| goes(view.key_at(entries, 0, local)));
        self.shrink();
    }

    /// Drops everything. O(slots).
    pub(super) fn clear(&mut self, dropped: &mut Vec<u32>) {
        dropped.extend(self.iter().filter_map(|(_, local)| match local.kind() {
            Kind::Shared(reference) => Some(reference),
            Kind::Private(_) => None,
        }));
        *self = LocalView::new();
    }

    /// Brings the view within `limit` entries: first all private ones go, then references in turn. Called at accept
    /// only: between two accepts the view must not lose anything (A7). O(slots) when it is over the limit.
    pub(super) fn trim(&mut self, entries: &impl Entries, limit: u32, dropped: &mut Vec<u32>) {
        if self.len <= limit {
            return;
        }
        self.sweep(dropped, |_, local| matches!(local.kind(), Kind::Private(_)));
        if self.len > limit {
            if MODELLED {
                self.trim_in_key_order(entries, limit, dropped);
            } else {
                self.sweep(dropped, |view, _| view.len > limit);
            }
        }
        self.shrink();
    }

    /// The models' choice of what to trim: the smallest keys. In production the choice is free, and a sort too dear.
    fn trim_in_key_order(&mut self, entries: &impl Entries, limit: u32, dropped: &mut Vec<u32>) {
        let mut locals: Vec<(u32, Local)> = self.iter().collect();
        locals.sort_by(|&(h1, l1), &(h2, l2)| self.key_at(entries, h1, l1).cmp(&self.key_at(entries, h2, l2)));
        locals.truncate((self.len - limit) as usize);
        self.sweep(dropped, |_, local| locals.iter().any(|&(_, doomed)| doomed == local));
    }

    /// Goes round the table once, from the hand on, and drops what `goes` says.
    fn sweep(&mut self, dropped: &mut Vec<u32>, goes: impl Fn(&LocalView, Local) -> bool) {
        let mask = self.mask();
        let start = self.hand as usize;
        for step in 0..self.slots.len() {
            let at = (start + step) & mask;
            // A removal shifts the next entry into this slot; it ends because each turn removes one.
            while let Some(local) = local_of(self.slots[at])
                && goes(self, local)
            {
                self.remove(at, dropped);
                self.hand = ((at + 1) & mask) as u32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Stands for the segment: entry n has the n-th key.
    struct Segment(Vec<(u32, u8, u32, Vec<u8>)>);

    impl Entries for Segment {
        fn key_of(&self, reference: u32) -> Key<'_> {
            let (database, cache, hash, bytes) = &self.0[reference as usize - 1];
            Key { database: *database, cache: *cache, hash: *hash, bytes }
        }

        /// Its row is its key.
        fn row_if(&self, reference: u32, key: Packed<'_>) -> Option<Option<&[u8]>> {
            let own = self.key_of(reference);
            (own == key.unpack()).then_some(Some(own.bytes))
        }
    }

    /// xorshift: the tests need no better, and are the same in each run.
    struct Random(u64);

    impl Random {
        fn below(&mut self, n: u32) -> u32 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 33) as u32 % n
        }
    }

    /// 400 keys that share 40 hashes, so that runs are long and collide, in 2 databases and 2 caches.
    fn segment() -> Segment {
        Segment(
            (0..400u32).map(|n| (n % 2, (n / 2 % 2) as u8, n % 40 * 0x0101_0101, n.to_le_bytes().to_vec())).collect(),
        )
    }

    fn check(view: &LocalView, segment: &Segment, reference: &BTreeMap<u32, Option<Vec<u8>>>) {
        assert_eq!(view.len() as usize, reference.len());
        assert_eq!(view.private_len() as usize, reference.values().filter(|row| row.is_some()).count());
        assert_eq!(view.iter().count(), reference.len());
        assert!(view.len() as usize * 8 <= view.slots.len() * 5, "L3");
        for n in 1..=segment.0.len() as u32 {
            let found = view.find(segment, Packed::new(&segment.key_of(n)));
            match reference.get(&n) {
                None => assert_eq!(found, None, "entry {n} must not be found"),
                Some(None) => {
                    assert_eq!(found.map(Local::kind), Some(Kind::Shared(n)));
                    // The short cut may miss, but not err.
                    let row = view
                        .find_first(segment, Packed::new(&segment.key_of(n)))
                        .unwrap_or(Some(segment.key_of(n).bytes));
                    assert_eq!(row, Some(&n.wrapping_sub(1).to_le_bytes()[..]));
                }
                Some(Some(row)) => {
                    let Some(Kind::Private(index)) = found.map(Local::kind) else { panic!("entry {n} is not private") };
                    assert_eq!(view.private_row(index), Some(&row[..]));
                }
            }
        }
    }

    /// The view and a `BTreeMap` agree after every one of 20,000 random insertions, messages and trims.
    #[test]
    fn the_view_equals_a_map_under_random_operations() {
        let segment = segment();
        let mut random = Random(0x5DEE_CE66_D1CE_1234);
        let mut view = LocalView::new();
        let mut reference: BTreeMap<u32, Option<Vec<u8>>> = BTreeMap::new();
        for round in 0..20_000u32 {
            let n = random.below(400) + 1;
            let key = segment.key_of(n);
            let mut dropped = Vec::new();
            match random.below(100) {
                0..=69 => {
                    if let std::collections::btree_map::Entry::Vacant(vacant) = reference.entry(n) {
                        if random.below(4) == 0 {
                            let row = round.to_le_bytes().to_vec();
                            view.insert_private(&segment, Packed::new(&key), Some(&row));
                            vacant.insert(Some(row));
                        } else {
                            view.insert_shared(&segment, Packed::new(&key), n);
                            vacant.insert(None);
                        }
                    }
                }
                70..=97 => {
                    let message = match random.below(100) {
                        0 => Message::Catalog { database: key.database, cache: key.cache },
                        1 => Message::Database { database: key.database },
                        _ => Message::from(&key),
                    };
                    view.drop_matching(&segment, message, &mut dropped);
                    let doomed: Vec<u32> = reference
                        .keys()
                        .copied()
                        .filter(|&n| {
                            let other = segment.key_of(n);
                            message.names(other.database, other.cache, other.hash)
                        })
                        .collect();
                    let mut shared: Vec<u32> =
                        doomed.into_iter().filter(|n| reference.remove(n).is_some_and(|row| row.is_none())).collect();
                    shared.sort_unstable();
                    dropped.sort_unstable();
                    assert_eq!(dropped, shared, "exactly the references that it names are handed back");
                }
                98 => {
                    let limit = random.below(60);
                    let before = view.len();
                    view.trim(&segment, limit, &mut dropped);
                    assert!(view.len() <= limit || before <= limit);
                    if before > limit {
                        assert_eq!(view.private_len(), 0, "private entries go first");
                        reference.retain(|n, row| row.is_none() && !dropped.contains(n));
                    }
                }
                _ => {
                    if random.below(10) == 0 {
                        view.clear(&mut dropped);
                        assert_eq!(dropped.len(), reference.values().filter(|row| row.is_none()).count());
                        reference.clear();
                    }
                }
            }
            if round % 16 == 0 {
                check(&view, &segment, &reference);
            }
        }
        check(&view, &segment, &reference);
    }

    /// The promise of the module's first lines, at every size from 64 to 100,000 entries.
    #[test]
    fn a_touched_entry_costs_at_most_26_bytes_and_39_while_growing() {
        let segment = Segment((0..100_000u32).map(|n| (1, 0, n, Vec::new())).collect());
        let mut view = LocalView::new();
        let mut before = view.table_bytes();
        for n in 1..=100_000u32 {
            view.insert(n, Local::shared(n));
            let bytes = view.table_bytes();
            if n >= 64 {
                assert!(bytes <= 26 * n as usize, "{bytes} bytes for {n} entries");
                if bytes != before {
                    assert!(bytes + before <= 39 * n as usize, "{bytes} and {before} bytes for {n} entries");
                }
            }
            before = bytes;
        }
        let mut dropped = Vec::new();
        view.trim(&segment, 100, &mut dropped);
        assert_eq!((view.len(), dropped.len()), (100, 99_900));
        assert!(view.table_bytes() <= 4096, "a trimmed view gives its memory back");
    }

    /// Two trims in a row take different references: the hand moves on.
    #[test]
    fn the_trim_takes_references_in_turn() {
        let segment = Segment((0..32u32).map(|n| (1, 0, n, Vec::new())).collect());
        let mut view = LocalView::new();
        for n in 1..=32 {
            view.insert_shared(&segment, Packed::new(&segment.key_of(n)), n);
        }
        let mut first = Vec::new();
        view.trim(&segment, 31, &mut first);
        view.insert_shared(&segment, Packed::new(&segment.key_of(first[0])), first[0]);
        let mut second = Vec::new();
        view.trim(&segment, 31, &mut second);
        assert_ne!(first, second);
    }
}
