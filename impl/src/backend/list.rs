//! Lists: the rows of a partial key (A37).
//!
//! A scan by a partial key gathers its rows in [`Rows`]. Published, each row is an entry of its own, and the list an entry that
//! refers to them: so rows that are looked up by their whole key too, or that are in several lists, are there once. A list that
//! stays private is the gathered rows themselves, in one piece.
//!
//! ```text
//! a row in one piece:   hash 4 bytes | length of the key 4 | length of the row 4 | key | row
//! ```

use crate::key::Key;
use crate::shared::Members;

/// The rows that a scan by a partial key has found, in the order in which they were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    bytes: Vec<u8>,
    count: usize,
}

const HEAD: usize = 12;

impl Rows {
    /// Adds a row, with its whole key: hash and columns; database and cache are those of the scan. Amortised O(bytes).
    pub fn push(&mut self, hash: u32, key: &[u8], row: &[u8]) {
        // Keys and rows of 4 GiB don't exist in a catalog; the lengths are of this process alone.
        for number in [hash, key.len() as u32, row.len() as u32] {
            self.bytes.extend_from_slice(&number.to_ne_bytes());
        }
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(row);
        self.count += 1;
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Are there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    /// Bytes that the buffer holds.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn of(&self, database: u32, cache: u8) -> Pieces<'_> {
        Pieces { rest: &self.bytes, database, cache }
    }
}

/// Reads what [`Rows::push`] has written.
#[derive(Clone, Debug)]
pub(super) struct Pieces<'a> {
    pub(super) rest: &'a [u8],
    pub(super) database: u32,
    pub(super) cache: u8,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = (Key<'a>, &'a [u8]);

    fn next(&mut self) -> Option<(Key<'a>, &'a [u8])> {
        let (head, rest) = self.rest.split_at_checked(HEAD)?;
        let (numbers, _) = head.as_chunks::<4>();
        let [hash, key, row] = [0, 1, 2].map(|n| u32::from_ne_bytes(numbers[n]));
        let (key, rest) = rest.split_at_checked(key as usize)?;
        let (row, rest) = rest.split_at_checked(row as usize)?;
        self.rest = rest;
        Some((Key { database: self.database, cache: self.cache, hash, bytes: key }, row))
    }
}

/// The answer to a lookup by a partial key: key and row of each member, borrowed from the segment, or from the backend if the list
/// is private. They stay what they are for as long as they are borrowed (A39).
#[derive(Clone, Debug)]
pub struct List<'a>(Source<'a>);

#[derive(Clone, Debug)]
enum Source<'a> {
    Shared(Members<'a>),
    Private(Pieces<'a>),
}

impl<'a> List<'a> {
    pub(super) fn shared(members: Members<'a>) -> List<'a> {
        List(Source::Shared(members))
    }

    pub(super) fn private(pieces: Pieces<'a>) -> List<'a> {
        List(Source::Private(pieces))
    }
}

impl<'a> Iterator for List<'a> {
    type Item = (Key<'a>, &'a [u8]);

    fn next(&mut self) -> Option<(Key<'a>, &'a [u8])> {
        match &mut self.0 {
            Source::Shared(members) => members.next(),
            Source::Private(pieces) => pieces.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_as_they_were_pushed() {
        let mut rows = Rows::default();
        assert!(rows.is_empty());
        assert_eq!(rows.of(1, 2).next(), None);
        for (hash, key, row) in [(7, &b"a"[..], &b"row"[..]), (0, b"", b""), (u32::MAX, b"key", b"")] {
            rows.push(hash, key, row);
        }
        let all: Vec<_> = rows.of(1, 2).map(|(key, row)| (key.database, key.cache, key.hash, key.bytes, row)).collect();
        assert_eq!(all, [(1, 2, 7, &b"a"[..], &b"row"[..]), (1, 2, 0, b"", b""), (1, 2, u32::MAX, b"key", b"")]);
        assert_eq!(rows.len(), 3);
        rows.clear();
        assert!(rows.is_empty() && rows.of(1, 2).next().is_none());
    }

    #[test]
    fn what_is_cut_off_is_no_row() {
        let mut rows = Rows::default();
        rows.push(7, b"key", b"row");
        for length in 0..rows.bytes.len() {
            assert_eq!(Pieces { rest: &rows.bytes[..length], database: 1, cache: 2 }.next(), None);
        }
    }
}
