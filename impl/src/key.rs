//! Keys: which row of which catalog.
//!
//! A key's columns come as *canonical bytes*: two keys are equal exactly if their bytes are (together with database and
//! cache). So a comparison can't raise an error, may be made under a lock, and is the same in all backends and over time
//! (A30). The hash comes from the host; equal keys have equal hashes, and different keys may share one (A28).

/// The longest key that may be shared, in bytes. Longer ones stay private.
pub const KEY_BYTES_MAX: usize = 264;

/// How many caches there are: a cache's number is a `u8`.
pub const CACHES_MAX: usize = u8::MAX as usize + 1;

/// A key, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key<'a> {
    /// The database; 0 for catalogs shared by all databases (A57).
    pub database: u32,
    /// Which cache: catalog and key columns.
    pub cache: u8,
    /// The hash of the key columns, by which messages match (A28).
    pub hash: u32,
    /// The key columns, canonical.
    pub bytes: &'a [u8],
}

impl Key<'_> {
    /// A copy that owns its bytes.
    #[must_use]
    pub fn to_owned(&self) -> OwnedKey {
        OwnedKey { database: self.database, cache: self.cache, hash: self.hash, bytes: self.bytes.into() }
    }
}

/// Set in the name of a list.
const LIST: u64 = 1 << 23;

/// Database and cache in one number, as an entry has them: bits 32..=63 and 24..=31; the others are 0.
#[inline(always)]
pub(crate) fn name_of(database: u32, cache: u8) -> u64 {
    u64::from(database) << 32 | u64::from(cache) << 24
}

/// A key, of a row or of a list, with a number for database, cache and which of the two: compared at once, and a register less
/// to be kept for the case of a miss.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed<'a> {
    /// See [`name_of`]; with a bit that only lists have.
    pub(crate) name: u64,
    /// As in [`Key`].
    pub(crate) hash: u32,
    /// As in [`Key`].
    pub(crate) bytes: &'a [u8],
}

impl<'a> Packed<'a> {
    /// Packs a key.
    #[inline(always)]
    pub(crate) fn new(key: &Key<'a>) -> Packed<'a> {
        Packed { name: name_of(key.database, key.cache), hash: key.hash, bytes: key.bytes }
    }

    /// Packs the partial key of a list: it meets no row's key, whatever its bytes.
    #[inline]
    pub(crate) fn list(key: &Key<'a>) -> Packed<'a> {
        Packed { name: name_of(key.database, key.cache) | LIST, hash: key.hash, bytes: key.bytes }
    }

    /// Is it a list's?
    #[inline]
    pub(crate) fn is_list(self) -> bool {
        self.name & LIST != 0
    }

    /// The database.
    #[inline]
    pub(crate) fn database(self) -> u32 {
        (self.name >> 32) as u32
    }

    /// The cache.
    #[inline]
    pub(crate) fn cache(self) -> u8 {
        (self.name >> 24) as u8
    }

    /// The key that was packed.
    #[inline]
    pub(crate) fn unpack(self) -> Key<'a> {
        Key { database: self.database(), cache: self.cache(), hash: self.hash, bytes: self.bytes }
    }
}

/// A key that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnedKey {
    /// The database; 0 for catalogs shared by all databases.
    pub database: u32,
    /// Which cache.
    pub cache: u8,
    /// The hash of the key columns.
    pub hash: u32,
    /// The key columns, canonical.
    pub bytes: Box<[u8]>,
}

impl OwnedKey {
    /// The same key, borrowed.
    #[must_use]
    pub fn as_key(&self) -> Key<'_> {
        Key { database: self.database, cache: self.cache, hash: self.hash, bytes: &self.bytes }
    }
}

impl<'a> From<&'a OwnedKey> for Key<'a> {
    fn from(key: &'a OwnedKey) -> Key<'a> {
        key.as_key()
    }
}

impl From<&Key<'_>> for OwnedKey {
    fn from(key: &Key<'_>) -> OwnedKey {
        key.to_owned()
    }
}

impl From<Key<'_>> for OwnedKey {
    fn from(key: Key<'_>) -> OwnedKey {
        key.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_being_owned_or_packed() {
        let key = Key { database: 5, cache: 255, hash: 0xdead_beef, bytes: b"pg_class" };
        assert_eq!(Key::from(&OwnedKey::from(key)), key);
        assert_eq!(Packed::new(&key).unpack(), key);
        assert_eq!(Packed::list(&key).unpack(), key);
        assert!(Packed::list(&key).is_list() && !Packed::new(&key).is_list());
    }
}
