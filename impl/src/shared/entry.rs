//! An entry: a key, its row or the knowledge that there is none, and the token of the snapshot that read it.
//!
//! ```text
//! unit 0  word    bit 63 LINKED, bit 62 HOT, bits 0..=31 references
//! unit 1  token   bits 0..=47 token, bits 48..=56 length of the key
//! unit 2  chain   bits 32..=63 hash, bits 0..=31 next entry of the chain (0: none)
//! unit 3  name    bits 32..=63 database, bits 24..=31 cache, bit 23 a list, bits 0..=16 length of the row plus one (0: no row)
//! unit 4  key     padded to units
//!         row; of a list, the places of its members, four bytes each
//! ```
//!
//! **Invariants.**
//! * E1: a reference is taken only while the entry is linked, which is under its partition's lock; so none is taken of an
//!   entry that is on its way to the slab.
//! * E2: LINKED is set and cleared only under the partition's exclusive lock.
//! * E3: whoever makes the word {not linked, no references} frees the slot, and exactly one does: the one who clears
//!   LINKED finding no reference, or the one who drops the last reference finding LINKED clear. Both are single
//!   read-modify-writes of one word, so one of them is the later.
//! * E4: key, row, token and name are written before the entry is linked, and by nobody afterwards until the slot is freed.
//!   So who holds a reference may read them without a lock.
//!
//! * E5: a list holds a reference to each of its members, from before it is linked until it is on its way to the slab.
//!
//! A free slot has a word of 0, and the slab's link in unit 1.

use super::arena::Arena;
use super::segment::{At, ENTRY_HEADER, ROW_BYTES_MAX, UNIT_BYTES};
use crate::key::{Key, Packed};
use crate::sync::Ordering;

pub(crate) const WORD: u32 = 0;
pub(crate) const TOKEN: u32 = 1;
pub(crate) const CHAIN: u32 = 2;
pub(crate) const NAME: u32 = 3;

const LINKED: u64 = 1 << 63;
const HOT: u64 = 1 << 62;
const REFERENCES: u64 = u32::MAX as u64;
const TOKEN_BITS: u32 = 48;

/// Bits of the row's length plus one.
const ROW_FIELD: u64 = 0x1_ffff;
const _: () = assert!((ROW_BYTES_MAX as u64) < ROW_FIELD);

/// Greatest token, and greatest mark: 2^48 - 1 closes.
pub(crate) const TOKEN_MAX: u64 = (1 << TOKEN_BITS) - 1;

/// An entry's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u64);

impl Word {
    /// The word of an entry that its publisher has just linked: one reference.
    const PUBLISHED: Word = Word(LINKED | 1);

    #[inline]
    pub(crate) fn linked(self) -> bool {
        self.0 & LINKED != 0
    }

    #[inline]
    pub(crate) fn hot(self) -> bool {
        self.0 & HOT != 0
    }

    #[inline]
    pub(crate) fn references(self) -> u32 {
        (self.0 & REFERENCES) as u32
    }

    /// Is it for the slab (E3)?
    #[inline]
    fn abandoned(self) -> bool {
        !self.linked() && self.references() == 0
    }
}

/// Unit 1: the token, and the length of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TokenUnit(u64);

impl TokenUnit {
    fn new(token: u64, key_bytes: usize) -> TokenUnit {
        debug_assert!(token <= TOKEN_MAX);
        TokenUnit(token | (key_bytes as u64) << TOKEN_BITS)
    }

    fn token(self) -> u64 {
        self.0 & TOKEN_MAX
    }

    fn key_bytes(self) -> usize {
        (self.0 >> TOKEN_BITS & 0x1ff) as usize
    }
}

/// Unit 2: the hash, and the next entry of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain(pub(crate) u64);

impl Chain {
    pub(crate) fn new(hash: u32, next: Option<At>) -> Chain {
        Chain(u64::from(hash) << 32 | u64::from(next.map_or(0, |at| at.0)))
    }

    #[inline]
    pub(crate) fn hash(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    pub(crate) fn next(self) -> Option<At> {
        let next = self.0 as u32;
        (next != 0).then_some(At(next))
    }
}

/// Unit 3: database, cache, and the row's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name(u64);

impl Name {
    /// Of a key's or a list's `name`.
    fn new(name: u64, row_bytes: Option<usize>) -> Name {
        let row = row_bytes.map_or(0, |bytes| bytes as u64 + 1);
        Name(name | row)
    }

    /// The name without the length: what a [`Packed`] has.
    #[inline]
    fn of(self) -> u64 {
        self.0 & !ROW_FIELD
    }

    #[inline]
    fn database(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    fn cache(self) -> u8 {
        (self.0 >> 24) as u8
    }

    #[inline]
    fn is_list(self) -> bool {
        Packed { name: self.of(), hash: 0, bytes: &[] }.is_list()
    }

    #[inline]
    fn row_bytes(self) -> Option<usize> {
        ((self.0 & ROW_FIELD) as usize).checked_sub(1)
    }

    /// The row's length plus one, 0 for no row, if `name` is that of database and cache. One comparison, which refuses a length
    /// of more bits than lengths have as well: a damaged entry is another key's.
    #[inline(always)]
    fn row_field_if(self, name: u64) -> Option<u32> {
        let rest = self.0 ^ name;
        (rest <= ROW_FIELD).then_some(rest as u32)
    }
}

/// Bytes of the slot that an entry needs.
pub(crate) fn bytes_needed(key_bytes: usize, row_bytes: usize) -> usize {
    ENTRY_HEADER as usize * UNIT_BYTES as usize
        + key_bytes.next_multiple_of(UNIT_BYTES as usize)
        + row_bytes.next_multiple_of(UNIT_BYTES as usize)
}

/// An entry, or a slot that is to become one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    arena: &'a Arena,
    pub(crate) at: At,
}

impl<'a> Entry<'a> {
    #[inline(always)]
    pub(crate) fn new(arena: &'a Arena, at: At) -> Entry<'a> {
        Entry { arena, at }
    }

    /// Fills an owned slot (E4). The chain's unit is left to [`Entry::set_chain`].
    pub(crate) fn fill(self, key: Packed<'_>, row: Option<&[u8]>, token: u64) {
        self.arena.set(self.at + TOKEN, TokenUnit::new(token, key.bytes.len()).0);
        self.arena.set(self.at + NAME, Name::new(key.name, row.map(<[u8]>::len)).0);
        let key_at = self.at + ENTRY_HEADER;
        self.arena.write(key_at, key.bytes);
        if let Some(row) = row {
            self.arena.write(key_at + units(key.bytes.len()), row);
        }
    }

    #[inline(always)]
    pub(crate) fn chain(self) -> Chain {
        Chain(self.arena.get(self.at + CHAIN))
    }

    pub(crate) fn set_chain(self, chain: Chain) {
        self.arena.set(self.at + CHAIN, chain.0);
    }

    pub(crate) fn token(self) -> u64 {
        TokenUnit(self.arena.get(self.at + TOKEN)).token()
    }

    /// Does the entry bear this key? The hash has been compared with the chain's.
    #[inline]
    pub(crate) fn bears(self, key: Packed<'_>) -> bool {
        let name = Name(self.arena.get(self.at + NAME));
        if name.of() != key.name {
            return false;
        }
        let bytes = TokenUnit(self.arena.get(self.at + TOKEN)).key_bytes();
        bytes == key.bytes.len() && same(self.arena.read(self.at + ENTRY_HEADER, bytes), key.bytes)
    }

    /// The key. Legal while the entry is referenced, or its chain locked.
    #[inline]
    pub(crate) fn key(self) -> Key<'a> {
        let name = Name(self.arena.get(self.at + NAME));
        let bytes = TokenUnit(self.arena.get(self.at + TOKEN)).key_bytes();
        Key {
            database: name.database(),
            cache: name.cache(),
            hash: self.hash_unlocked(),
            bytes: self.arena.read(self.at + ENTRY_HEADER, bytes),
        }
    }

    /// Is it a list? Legal as for [`Entry::key`].
    pub(crate) fn is_list(self) -> bool {
        Name(self.arena.get(self.at + NAME)).is_list()
    }

    /// Where the members of a list lie; of another entry, nothing. Legal while the entry is referenced.
    pub(crate) fn places(self) -> std::slice::Iter<'a, Place> {
        let places = if self.is_list() { self.row() } else { None };
        places.unwrap_or_default().as_chunks().0.iter()
    }

    /// Likewise, of an entry that nobody finds or refers to any more and whose slot is not yet given back: it is owned (E3).
    pub(crate) fn places_owned(self) -> std::slice::Iter<'a, Place> {
        let name = Name(self.arena.get_owned(self.at + NAME));
        let places = match name.row_bytes() {
            Some(bytes) if name.is_list() => {
                let key_bytes = TokenUnit(self.arena.get_owned(self.at + TOKEN)).key_bytes();
                self.arena.read_owned(self.at + (ENTRY_HEADER + units(key_bytes)), bytes)
            }
            _ => &[],
        };
        places.as_chunks().0.iter()
    }

    /// The hash, which never changes while the entry lives, although its unit does: the link beside it is rewritten under
    /// the partition's lock.
    #[inline]
    pub(crate) fn hash_unlocked(self) -> u32 {
        Chain(self.arena.hint(self.at + CHAIN)).hash()
    }

    /// What its stamps follow from, and the token, whoever may be writing them: a hint.
    pub(crate) fn stamped(self) -> (Packed<'static>, u64) {
        let name = Name(self.arena.hint(self.at + NAME)).of();
        let token = TokenUnit(self.arena.hint(self.at + TOKEN)).token();
        (Packed { name, hash: self.hash_unlocked(), bytes: &[] }, token)
    }

    /// The row. Legal while the entry is referenced.
    #[inline]
    pub(crate) fn row(self) -> Option<&'a [u8]> {
        let bytes = Name(self.arena.get(self.at + NAME)).row_bytes()?;
        let key_bytes = TokenUnit(self.arena.get(self.at + TOKEN)).key_bytes();
        Some(self.arena.read(self.at + (ENTRY_HEADER + units(key_bytes)), bytes))
    }

    /// The row, if the entry bears this key, whose hash has been compared: a hit in a local view, where each instruction
    /// counts. Each unit of the header is read once, and bounds are checked twice: for the header, and for key and row
    /// together. `None`: another key. Legal while the entry is referenced.
    #[inline(always)]
    pub(crate) fn row_if(self, key: Packed<'_>) -> Option<Option<&'a [u8]>> {
        let slot = self.arena.slot(self.at);
        let row_field = Name(slot.unit(NAME)).row_field_if(key.name)?;
        let key_bytes = (slot.unit(TOKEN) >> TOKEN_BITS) as u16;
        if usize::from(key_bytes) != key.bytes.len() {
            return None;
        }
        let (own, row) = slot.content(key_bytes, row_field);
        same(own, key.bytes).then_some(row)
    }

    /// Links a filled slot, with one reference for the publisher. Under the partition's exclusive lock (E2).
    pub(crate) fn link(self) {
        // Relaxed: whoever comes to it comes through the chain, hence through the partition's lock, which is held.
        self.arena.word(self.at + WORD).store(Word::PUBLISHED.0, Ordering::Relaxed);
    }

    /// Makes a slot's word that of a free slot. Under the slab's exclusive lock, of a slot that nobody has had yet.
    pub(crate) fn clear(self) {
        // Relaxed: whoever comes to the slot comes through the slab's lock.
        self.arena.word(self.at + WORD).store(0, Ordering::Relaxed);
    }

    /// Takes a reference. Under the partition's lock, in either mode, of a linked entry (E1).
    #[inline]
    pub(crate) fn refer(self) {
        // Relaxed: what the entry holds was published by the lock, under which we are; the count itself is exact in any
        // order, and a freer takes part in E3 by read-modify-write of the same word.
        let old = Word(self.arena.word(self.at + WORD).fetch_add(1, Ordering::Relaxed));
        debug_assert!(old.linked(), "E1: {:?} is referred to, but is {old:?}", self.at);
        debug_assert!(old.references() < u32::MAX, "references overflow");
    }

    /// Notes that the entry was wanted, for the second chance.
    #[inline]
    pub(crate) fn warm(self) {
        let word = self.arena.word(self.at + WORD);
        if !Word(self.arena.peek_word(self.at + WORD)).hot() {
            // Relaxed: a hint for the choice of victims.
            word.fetch_or(HOT, Ordering::Relaxed);
        }
    }

    /// Takes the second chance away. Under the slab's lock, or the lock of the entry's partition: else this might no longer be a slot.
    pub(crate) fn cool(self) {
        // Relaxed: a hint for the choice of victims.
        self.arena.word(self.at + WORD).fetch_and(!HOT, Ordering::Relaxed);
    }

    /// Drops a reference. `true`: it was the last of an unlinked entry, and the caller frees the slot (E3).
    #[inline]
    pub(crate) fn drop_reference(self) -> bool {
        // AcqRel. Release: what this reader has read comes before whatever the freer writes; pairs with the Acquire here of
        // another's last drop, or with that of `unlink` or `unreferenced`. Acquire: the counterpart, if we are the freer.
        let old = Word(self.arena.word(self.at + WORD).fetch_sub(1, Ordering::AcqRel));
        debug_assert!(old.references() > 0, "{:?} was released more often than referred to", self.at);
        Word(old.0.wrapping_sub(1)).abandoned()
    }

    /// Does nobody refer to the entry? Under the partition's exclusive lock, where no reference can be added (E1).
    pub(crate) fn unreferenced(self) -> bool {
        // Relaxed: who goes on to unlink it acquires there.
        Word(self.arena.word(self.at + WORD).load(Ordering::Relaxed)).references() == 0
    }

    /// Clears LINKED. Under the partition's exclusive lock, together with taking it out of the chain (E2). `true`: nobody
    /// refers to it, and the caller frees the slot (E3).
    pub(crate) fn unlink(self) -> bool {
        // AcqRel. Acquire: pairs with the Release of the `drop_reference`s that made the count 0: what they have read comes
        // before what the slab writes into the slot. Release: what was read of the entry under the lock comes before
        // what a later last `drop_reference`, which acquires, frees.
        let old = Word(self.arena.word(self.at + WORD).fetch_and(!(LINKED | HOT), Ordering::AcqRel));
        debug_assert!(old.linked(), "E2: {:?} is unlinked, but is {old:?}", self.at);
        Word(old.0 & !LINKED).abandoned()
    }

    /// Clears LINKED and drops a reference in one. Under the partition's exclusive lock, of a linked entry that we refer to.
    /// `true`: the caller frees the slot (E3).
    pub(crate) fn unlink_and_drop(self) -> bool {
        // AcqRel: for both reasons given in `unlink` and `drop_reference`. The subtraction borrows nothing: the bit is set and
        // the count is not 0. HOT may stay; it means nothing in a slot that is not linked.
        let old = Word(self.arena.word(self.at + WORD).fetch_sub(LINKED | 1, Ordering::AcqRel));
        debug_assert!(old.linked() && old.references() > 0, "{:?} is unlinked by a holder, but is {old:?}", self.at);
        Word(old.0.wrapping_sub(LINKED | 1)).abandoned()
    }

    /// Is it linked? Under the partition's lock.
    pub(crate) fn linked(self) -> bool {
        // Relaxed: changes only under the lock that is held (E2).
        Word(self.arena.word(self.at + WORD).load(Ordering::Relaxed)).linked()
    }

    /// The word's newest value: a hint, or everybody is parked.
    pub(crate) fn peek(self) -> Word {
        Word(self.arena.peek_word(self.at + WORD))
    }

    /// What it holds, while everybody is parked.
    pub(crate) fn peek_content(self) -> Content {
        let name = Name(self.arena.peek(self.at + NAME));
        let token = TokenUnit(self.arena.peek(self.at + TOKEN));
        let key_at = self.at + ENTRY_HEADER;
        let key = crate::key::OwnedKey {
            database: name.database(),
            cache: name.cache(),
            hash: Chain(self.arena.peek(self.at + CHAIN)).hash(),
            bytes: self.arena.peek_bytes(key_at, token.key_bytes()).into(),
        };
        let row_at = key_at + units(token.key_bytes());
        let row = name.row_bytes().map(|bytes| self.arena.peek_bytes(row_at, bytes));
        let (row, members) = if name.is_list() { (None, row) } else { (row, None) };
        let places = |bytes: Vec<u8>| bytes.as_chunks().0.iter().map(|place| at(*place)).collect();
        Content { key, row, members: members.map(places), token: token.token() }
    }
}

/// Where a member of a list lies, as the list has it.
pub(crate) type Place = [u8; 4];

/// The place itself.
pub(crate) fn at(place: Place) -> At {
    At(u32::from_ne_bytes(place))
}

/// A place, as a list has it.
pub(crate) fn place(at: At) -> Place {
    at.0.to_ne_bytes()
}

/// What an entry holds.
pub(crate) struct Content {
    pub(crate) key: crate::key::OwnedKey,
    pub(crate) row: Option<Vec<u8>>,
    /// Of a list, where its members lie.
    pub(crate) members: Option<Vec<At>>,
    pub(crate) token: u64,
}

fn units(bytes: usize) -> u32 {
    // Keys have at most 264 bytes, by nine bits of length.
    bytes.div_ceil(UNIT_BYTES as usize) as u32
}

/// Equality of slices of one length. Keys are short: to call a function would cost more than to compare them.
#[inline(always)]
fn same(a: &[u8], b: &[u8]) -> bool {
    if let (Some(a_last), Some(b_last)) = (a.last_chunk::<8>(), b.last_chunk::<8>()) {
        // All words but the last, and the last eight bytes, which may overlap them.
        let rest = a.len() - 1;
        let (words, others) = (a[..rest].as_chunks::<8>().0, b[..rest].as_chunks::<8>().0);
        return a_last == b_last && words.iter().zip(others).all(|(a, b)| a == b);
    }
    if let (Some(a_last), Some(b_last)) = (a.last_chunk::<4>(), b.last_chunk::<4>()) {
        return a_last == b_last && a.first_chunk::<4>() == b.first_chunk::<4>();
    }
    a.iter().zip(b).all(|(a, b)| a == b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KEY_BYTES_MAX, name_of};

    /// Every length up to 40, every position of a difference.
    #[test]
    fn keys_are_the_same_if_all_their_bytes_are() {
        for length in 0..=40 {
            let a: Vec<u8> = (0..length).map(|n| (n * 7 % 256) as u8).collect();
            assert!(same(&a, &a.clone()));
            for at in 0..length {
                let mut b = a.clone();
                b[at] ^= 0x40;
                assert!(!same(&a, &b), "{length} bytes that differ at {at}");
            }
        }
    }

    #[test]
    fn units_come_back_as_they_were_packed() {
        for (token, bytes) in [(0, 0), (1, KEY_BYTES_MAX), (TOKEN_MAX, 1), (TOKEN_MAX, KEY_BYTES_MAX)] {
            let unit = TokenUnit::new(token, bytes);
            assert_eq!((unit.token(), unit.key_bytes()), (token, bytes));
        }
        for (hash, next) in [(0, None), (u32::MAX, Some(At(u32::MAX))), (1, Some(At(1)))] {
            let unit = Chain::new(hash, next);
            assert_eq!((unit.hash(), unit.next()), (hash, next));
        }
        for database in [0, 5, u32::MAX] {
            for cache in [0, u8::MAX] {
                for row in [None, Some(0), Some(1), Some(ROW_BYTES_MAX)] {
                    let unit = Name::new(name_of(database, cache), row);
                    assert_eq!((unit.database(), unit.cache(), unit.row_bytes()), (database, cache, row));
                }
            }
        }
    }

    /// A bit of the name that differs is another key; a bit between cache and length never is set, so it is another key too.
    #[test]
    fn a_name_is_met_only_by_database_and_cache() {
        for row in [None, Some(0), Some(1), Some(ROW_BYTES_MAX)] {
            let (unit, name) = (Name::new(name_of(5, 7), row), name_of(5, 7));
            assert_eq!(unit.of(), name);
            assert_eq!(unit.row_field_if(name), Some(row.map_or(0, |bytes| bytes as u32 + 1)));
            for bit in 17..64 {
                assert_eq!(Name(unit.0 ^ 1 << bit).row_field_if(name), None, "bit {bit}");
            }
        }
    }

    #[test]
    fn a_word_is_abandoned_only_without_link_and_references() {
        assert!(Word(0).abandoned());
        assert!(Word(HOT).abandoned());
        assert!(!Word(LINKED).abandoned());
        assert!(!Word(1).abandoned());
        assert_eq!(Word::PUBLISHED.references(), 1);
        assert!(Word::PUBLISHED.linked() && !Word::PUBLISHED.hot());
    }
}
