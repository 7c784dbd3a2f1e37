//! The dirty set: what the running transaction has changed itself: rows, by their hash, and whole catalogs and databases.
//!
//! Three things are asked of it. While the transaction runs, whether a key is *covered*: then the backend must neither
//! believe the shared table (it holds the committed row) nor publish what it reads (its own, uncommitted row): D7, D8.
//! At a command's end and at an abort, what that command or that (sub)transaction changed: those entries leave the local
//! view (A23, A26, A27). At commit, the messages, each once, in the order of their first registration; the stamps that the
//! bracket opens are derived from the same list.
//!
//! A change is registered whether or not its row is cached anywhere (A25) and whether or not the transaction ever gets
//! an identity of its own (A21). A reset of the backend never touches this set: it says what *this* transaction did, and
//! the ring can't know (B38).
//!
//! The set has a level for the transaction and one for each subtransaction that is open. A subtransaction's commit adds its
//! level to the parent's, its abort takes it away and touches nothing of the parent (A26).
//!
//! Invariant, of each level: `registered` holds exactly the elements of `messages`, and for each the last command that
//! changed it. `pending` holds exactly what the running command has changed; it belongs to the last level.

use crate::message::Message;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// The changes of one transaction. See the module's docs.
#[derive(Debug, Default)]
pub(super) struct DirtySet {
    /// The level of the running (sub)transaction.
    inner: Level,
    /// Those of the enclosing ones, the transaction's first.
    outer: Vec<Level>,
    /// What the running command has changed.
    pending: Vec<Message>,
    /// The number of the running command.
    command: u64,
}

/// What a (sub)transaction has changed.
#[derive(Debug, Default)]
struct Level {
    /// Each changed (database, cache, hash) once, in order of first registration.
    messages: Vec<Message>,
    /// The same, with the number of the last command that changed it.
    registered: HashMap<Message, u64, BuildHasherDefault<Mix>>,
    /// How many of them are about a whole catalog or database.
    whole: usize,
    /// The databases and caches that they are about, each once; 256 caches at most.
    caches: Vec<(u32, u8)>,
}

impl Level {
    fn covers(&self, row: Message, whole: bool) -> bool {
        // The usual case is a transaction that has changed nothing.
        if self.messages.is_empty() {
            return false;
        }
        let (catalog, database) = (row.of_catalog(), Message::Database { database: row.database() });
        let has = |message| self.registered.contains_key(&message);
        has(row) || whole && self.whole > 0 && (has(catalog) || has(database))
    }

    /// Is something of a cache's rows among them?
    fn covers_lists(&self, database: u32, cache: u8) -> bool {
        !self.messages.is_empty()
            && (self.caches.contains(&(database, cache))
                || self.whole > 0 && self.registered.contains_key(&Message::Database { database }))
    }

    fn push(&mut self, message: Message) {
        self.messages.push(message);
        if let Message::Row { database, cache, .. } | Message::Catalog { database, cache } = message
            && !self.caches.contains(&(database, cache))
        {
            self.caches.push((database, cache));
        }
        self.whole += usize::from(!matches!(message, Message::Row { .. }));
    }

    /// Adds what a subtransaction has changed.
    fn absorb(&mut self, sub: Level) {
        if self.messages.is_empty() {
            *self = sub;
            return;
        }
        for message in sub.messages {
            if self.registered.insert(message, sub.registered[&message]).is_none() {
                self.push(message);
            }
        }
    }
}

impl DirtySet {
    /// Registers a change by the running command. Amortised O(1).
    pub(super) fn register(&mut self, message: Message) {
        match self.inner.registered.insert(message, self.command) {
            None => {
                self.inner.push(message);
                self.pending.push(message);
            }
            Some(command) if command != self.command => self.pending.push(message),
            Some(_) => {}
        }
    }

    /// Whether the transaction has changed a row of this hash, or its whole catalog or database, in the running command or
    /// before. O(depth of nesting). `whole` is false only where a harness breaks the rule.
    pub(super) fn covers(&self, row: Message, whole: bool) -> bool {
        self.inner.covers(row, whole) || self.outer.iter().any(|level| level.covers(row, whole))
    }

    /// Whether the transaction has changed any row that a list of this cache might have to show: a list is covered by any change
    /// of its cache. O(caches changed).
    pub(super) fn covers_lists(&self, database: u32, cache: u8) -> bool {
        self.inner.covers_lists(database, cache) || self.outer.iter().any(|level| level.covers_lists(database, cache))
    }

    /// What the transaction has changed, level by level: within a level each once, in order of first registration.
    pub(super) fn messages(&self) -> impl Iterator<Item = Message> + '_ {
        self.outer.iter().chain([&self.inner]).flat_map(|level| level.messages.iter().copied())
    }

    /// Whether the running command has changed anything.
    pub(super) fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Ends the running command and returns what it has changed.
    pub(super) fn end_command(&mut self) -> Vec<Message> {
        self.command += 1;
        std::mem::take(&mut self.pending)
    }

    /// How many subtransactions are open.
    pub(super) fn depth(&self) -> usize {
        self.outer.len()
    }

    /// Opens a level. The running command has changed nothing (A26).
    pub(super) fn begin_sub(&mut self) {
        debug_assert!(self.pending.is_empty(), "A26: a subtransaction starts with a command");
        self.outer.push(std::mem::take(&mut self.inner));
    }

    /// Adds the last level to its parent. O(changes of the level).
    pub(super) fn commit_sub(&mut self) {
        if let Some(parent) = self.outer.pop() {
            let sub = std::mem::replace(&mut self.inner, parent);
            self.inner.absorb(sub);
        }
    }

    /// Takes the last level away, and what the running command has changed; returns what it held.
    pub(super) fn abort_sub(&mut self) -> Vec<Message> {
        self.pending.clear();
        self.outer.pop().map(|parent| std::mem::replace(&mut self.inner, parent).messages).unwrap_or_default()
    }

    /// Adds all open levels to the transaction's, and returns its messages.
    pub(super) fn flatten(&mut self) -> &[Message] {
        while self.depth() > 0 {
            self.commit_sub();
        }
        &self.inner.messages
    }

    /// Forgets everything, the levels stay open.
    pub(super) fn forget(&mut self) {
        let depth = self.depth();
        *self = DirtySet { command: self.command, ..DirtySet::default() };
        self.outer.resize_with(depth, Level::default);
    }

    /// Forgets everything, levels too.
    pub(super) fn clear(&mut self) {
        *self = DirtySet::default();
    }
}

/// A hasher that is the same in every run (the simulators replay schedules) and cheap for 9 bytes.
#[derive(Default)]
struct Mix(u64);

impl Mix {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.add(u64::from(byte));
        }
    }

    /// Which kind of message.
    fn write_isize(&mut self, n: isize) {
        self.add(n as u64);
    }

    fn write_u8(&mut self, n: u8) {
        self.add(u64::from(n));
    }

    fn write_u32(&mut self, n: u32) {
        self.add(u64::from(n));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(hash: u32) -> Message {
        Message::Row { database: 1, cache: 7, hash }
    }

    #[test]
    fn a_change_is_covered_from_its_registration_to_the_end() {
        let mut set = DirtySet::default();
        assert!(!set.covers(message(1), true));
        set.register(message(1));
        assert!(set.covers(message(1), true), "pending");
        assert_eq!(set.end_command(), [message(1)]);
        assert!(set.covers(message(1), true), "finished");
        assert!(!set.covers((0, 7, 1).into(), true), "another database is another key (D29)");
        assert!(!set.covers((1, 8, 1).into(), true), "another cache is another key");
        assert_eq!(set.flatten(), [message(1)]);
        set.clear();
        assert!(!set.covers(message(1), true));
    }

    /// A row that two commands change leaves the local view twice, and is sent once.
    #[test]
    fn each_command_flushes_its_own_changes_and_each_message_is_sent_once() {
        let mut set = DirtySet::default();
        set.register(message(1));
        set.register(message(2));
        set.register(message(1));
        assert_eq!(set.end_command(), [message(1), message(2)]);
        set.register(message(2));
        set.register(message(3));
        assert_eq!(set.end_command(), [message(2), message(3)]);
        assert_eq!(set.end_command(), []);
        assert_eq!(set.flatten(), [message(1), message(2), message(3)]);
    }

    #[test]
    fn a_level_is_added_to_its_parent_or_taken_away_alone() {
        let mut set = DirtySet::default();
        set.register(message(1));
        set.end_command();
        set.begin_sub();
        set.register(message(2));
        set.register(message(1));
        assert_eq!(set.end_command(), [message(2), message(1)], "a change is one of each level that made it");
        set.begin_sub();
        set.register(message(3));
        assert!((1..=3).all(|hash| set.covers(message(hash), true)));
        assert_eq!(set.messages().collect::<Vec<_>>(), [1, 2, 1, 3].map(message));
        assert_eq!(set.abort_sub(), [message(3)], "what was pending too");
        assert!(!set.is_pending() && !set.covers(message(3), true));
        assert_eq!(set.abort_sub(), [message(2), message(1)]);
        assert!(
            set.covers(message(1), true) && !set.covers(message(2), true),
            "the parent's changes are still its own"
        );

        set.begin_sub();
        set.register(message(1));
        set.register(message(4));
        set.end_command();
        set.begin_sub();
        set.register(message(5));
        set.end_command();
        set.commit_sub();
        assert_eq!(set.depth(), 1);
        assert_eq!(set.flatten(), [1, 4, 5].map(message), "each once, whoever made it first");
        set.begin_sub();
        set.forget();
        assert_eq!((set.depth(), set.covers(message(1), true)), (1, false));
        set.clear();
        assert_eq!((set.depth(), set.messages().count()), (0, 0));
    }

    #[test]
    fn a_whole_catalog_covers_its_rows_until_its_level_goes() {
        let mut set = DirtySet::default();
        assert!(!set.covers_lists(1, 7));
        set.begin_sub();
        set.register(message(9));
        assert!(set.covers_lists(1, 7) && !set.covers_lists(1, 8) && !set.covers_lists(2, 7));
        set.register(Message::Catalog { database: 1, cache: 7 });
        assert!(set.covers(message(1), true) && set.covers(message(2), true));
        assert!(!set.covers((2, 7, 1).into(), true) && !set.covers((1, 8, 1).into(), true));
        assert!(!set.covers(message(1), false), "only a harness asks like that");
        set.end_command();
        set.commit_sub();
        assert!(set.covers(message(1), true), "it is its parent's now");
        set.begin_sub();
        set.register(Message::Database { database: 2 });
        assert!(set.covers((2, 200, 9).into(), true));
        assert!(set.covers_lists(2, 5) && set.covers_lists(1, 7));
        set.abort_sub();
        assert!(!set.covers((2, 200, 9).into(), true) && set.covers(message(3), true));
        assert!(!set.covers_lists(2, 5) && set.covers_lists(1, 7));
    }

    #[test]
    fn a_large_set_stays_exact() {
        let mut set = DirtySet::default();
        for hash in 0..50_000 {
            set.register(message(hash * 3));
        }
        assert!((0..150_000).all(|hash| set.covers(message(hash), true) == (hash % 3 == 0)));
        assert_eq!(set.flatten().len(), 50_000);
    }
}
