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
    fn a_key_survives_being_owned() {
        let key = Key { database: 5, cache: 255, hash: 0xdead_beef, bytes: b"pg_class" };
        assert_eq!(Key::from(&OwnedKey::from(key)), key);
    }
}
