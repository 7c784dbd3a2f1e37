//! Messages: what a change says to those who have cached something (A28, A32).

use crate::key::Key;

/// What has changed. The same words say what a transaction has changed itself, what a bracket opens, and what is sent to the
/// other backends. Database 0: a catalog that all databases share (A57). Never an address of a row: rows move (A29).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// Some row of this hash, of this cache.
    Row {
        /// The database.
        database: u32,
        /// The cache.
        cache: u8,
        /// The hash of the row's key.
        hash: u32,
    },
    /// Every row of this cache: its catalog was rewritten.
    Catalog {
        /// The database.
        database: u32,
        /// The cache.
        cache: u8,
    },
    /// Every row of this database: it was dropped or moved.
    Database {
        /// The database.
        database: u32,
    },
}

impl From<&Key<'_>> for Message {
    fn from(key: &Key<'_>) -> Message {
        Message::Row { database: key.database, cache: key.cache, hash: key.hash }
    }
}

impl From<(u32, u8, u32)> for Message {
    /// Database, cache, hash.
    fn from((database, cache, hash): (u32, u8, u32)) -> Message {
        Message::Row { database, cache, hash }
    }
}

impl Message {
    /// The database.
    #[must_use]
    pub fn database(self) -> u32 {
        match self {
            Message::Row { database, .. } | Message::Catalog { database, .. } | Message::Database { database } => {
                database
            }
        }
    }

    /// The message about all that this one is a part of, in its catalog.
    #[must_use]
    pub fn of_catalog(self) -> Message {
        match self {
            Message::Row { database, cache, .. } => Message::Catalog { database, cache },
            whole => whole,
        }
    }

    /// Does it name the rows of (database, cache, hash)? A false hit on a collision is allowed, a miss is not (A28).
    #[must_use]
    pub fn names(self, database: u32, cache: u8, hash: u32) -> bool {
        match self {
            Message::Row { .. } => self == Message::Row { database, cache, hash },
            Message::Catalog { .. } => self == Message::Catalog { database, cache },
            Message::Database { .. } => self == Message::Database { database },
        }
    }

    /// Two units of 64 bits.
    pub(crate) fn pack(self) -> [u64; 2] {
        match self {
            Message::Row { database, cache, hash } => [u64::from(hash) << 32 | u64::from(database), u64::from(cache)],
            Message::Catalog { database, cache } => [database.into(), u64::from(cache) | 1 << 8],
            Message::Database { database } => [database.into(), 2 << 8],
        }
    }

    /// The reverse of [`Message::pack`]. What nobody has packed names more than it should, never less.
    pub(crate) fn unpack([first, second]: [u64; 2]) -> Message {
        let (database, cache) = (first as u32, second as u8);
        match second >> 8 {
            0 => Message::Row { database, cache, hash: (first >> 32) as u32 },
            1 => Message::Catalog { database, cache },
            _ => Message::Database { database },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Message> {
        let mut all = Vec::new();
        for database in [0, 1, u32::MAX] {
            all.push(Message::Database { database });
            for cache in [0, 1, u8::MAX] {
                all.push(Message::Catalog { database, cache });
                all.extend([0, 1, u32::MAX].map(|hash| Message::Row { database, cache, hash }));
            }
        }
        all
    }

    #[test]
    fn a_message_survives_its_packing() {
        for message in all() {
            assert_eq!(Message::unpack(message.pack()), message);
        }
    }

    #[test]
    fn a_message_names_what_it_is_about_and_nothing_else() {
        for message in all() {
            for (database, cache, hash) in [(1, 1, 1), (1, 1, 0), (1, 0, 1), (0, 1, 1)] {
                let named = match message {
                    Message::Row { database: d, cache: c, hash: h } => (d, c, h) == (database, cache, hash),
                    Message::Catalog { database: d, cache: c } => (d, c) == (database, cache),
                    Message::Database { database: d } => d == database,
                };
                assert_eq!(message.names(database, cache, hash), named, "{message:?}");
            }
        }
    }
}
