//! The dirty set: what the running transaction has changed itself.
//!
//! Three things are asked of it. While the transaction runs, whether a key is *covered*: then the backend must neither
//! believe the shared table (it holds the committed row) nor publish what it reads (its own, uncommitted row): D7, D8.
//! At a command's end, what that command changed: those entries leave the local view (A23). At commit, the messages, each
//! once, in the order of their first registration; the stamps that the bracket opens are derived from the same list.
//!
//! A change is registered whether or not its row is cached anywhere (A25) and whether or not the transaction ever gets
//! an identity of its own (A21). A reset of the backend never touches this set: it says what *this* transaction did, and
//! the ring can't know (B38).
//!
//! Invariant: `registered` holds exactly the elements of `messages`, and for each the last command that changed it;
//! `pending` holds exactly those whose last command is the running one.

use super::ring::Message;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// The changes of one transaction. See the module's docs.
#[derive(Debug, Default)]
pub(super) struct DirtySet {
    /// Each changed (database, cache, hash) once, in order of first registration.
    messages: Vec<Message>,
    /// The same, with the number of the last command that changed it.
    registered: HashMap<Message, u64, BuildHasherDefault<Mix>>,
    /// Those that the running command has changed.
    pending: Vec<Message>,
    /// The number of the running command.
    command: u64,
}

impl DirtySet {
    /// Registers a change by the running command. Amortised O(1).
    pub(super) fn register(&mut self, message: Message) {
        match self.registered.insert(message, self.command) {
            None => {
                self.messages.push(message);
                self.pending.push(message);
            }
            Some(command) if command != self.command => self.pending.push(message),
            Some(_) => {}
        }
    }

    /// Whether the transaction has changed a row of this hash, in the running command or before. O(1).
    pub(super) fn covers(&self, message: Message) -> bool {
        // The usual case is a transaction that has changed nothing.
        !self.messages.is_empty() && self.registered.contains_key(&message)
    }

    /// What the transaction has changed, each once, in order of first registration.
    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Ends the running command and returns what it has changed.
    pub(super) fn end_command(&mut self) -> Vec<Message> {
        self.command += 1;
        std::mem::take(&mut self.pending)
    }

    /// Forgets everything and returns the messages.
    pub(super) fn take(&mut self) -> Vec<Message> {
        std::mem::take(self).messages
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
        Message { database: 1, cache: 7, hash }
    }

    #[test]
    fn a_change_is_covered_from_its_registration_to_the_end() {
        let mut set = DirtySet::default();
        assert!(!set.covers(message(1)));
        set.register(message(1));
        assert!(set.covers(message(1)), "pending");
        assert_eq!(set.end_command(), [message(1)]);
        assert!(set.covers(message(1)), "finished");
        assert!(!set.covers(Message { database: 0, ..message(1) }), "another database is another key (D29)");
        assert!(!set.covers(Message { cache: 8, ..message(1) }), "another cache is another key");
        assert_eq!(set.take(), [message(1)]);
        assert!(!set.covers(message(1)));
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
        assert_eq!(set.messages(), [message(1), message(2), message(3)]);
    }

    #[test]
    fn a_large_set_stays_exact() {
        let mut set = DirtySet::default();
        for hash in 0..50_000 {
            set.register(message(hash * 3));
        }
        assert!((0..150_000).all(|hash| set.covers(message(hash)) == (hash % 3 == 0)));
        assert_eq!(set.messages().len(), 50_000);
    }
}
