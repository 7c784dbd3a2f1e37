//! The message ring: how a backend learns what the others have changed.
//!
//! A fixed ring in the segment. Senders append under the ring lock held exclusively, after their commit has become
//! visible and its bracket has closed; each backend has a position of its own, up to which it has read. Nothing waits for
//! a slow reader: a sender that is about to overwrite a message marks every backend that has not read it as *reset*,
//! them alone (A49), and goes on. A reset backend drops its whole local view at its next accept and jumps to the end.
//!
//! ```text
//!      position of a laggard            position of a backend that has read everything
//!          v                                v
//!     ─────┬───┬───┬───┬───┬───┬───┬───┬────┐
//!          │ m │ m │ m │ m │ m │ m │ m │ m  │ tail: number of the next message; message n lies in cell n mod capacity
//!     ─────┴───┴───┴───┴───┴───┴───┴───┴────┘
//! ```
//!
//! Messages carry hashes, never addresses (A29). The ring is for stability and for the loaders' sake: that no *shared*
//! entry is ever stale is the stamps' business, so an overflow costs one backend its private view and nobody else
//! anything (D27).
//!
//! Invariants
//!
//! * R1. An attached backend that isn't marked as reset has `tail - position <= capacity`: all that it has not read is
//!   still there.
//! * R2. A mark as reset implies `position < tail`. So a backend whose position equals the tail has neither news nor a
//!   reset, and one look at the tail is enough (A2).
//! * R3. `floor` is at most the least position of the attached backends that aren't reset: while
//!   `tail - floor <= capacity`, no sender has to look at the positions at all.
//! * R4. A slot's line is changed by its owner under the lock held shared, by senders and joiners under it held
//!   exclusively.
//!
//! Lock rank: the ring lock is a leaf; nothing else is taken under it.

use crate::error::Error;
use crate::message::Message;
use crate::probe::{Probe, Seen, Step};
use crate::shared::Shared;
use crate::shared::arena::{Arena, LockAt, RingArea};
use crate::shared::backend_state::{IN_USE, RESET};
use crate::sync::{MODELLED, Ordering, panicking};
use std::fmt;

/// Most messages that one exclusive section appends; one in modelled builds, so that others can come between (A11).
const SECTION: usize = if MODELLED { 1 } else { 64 };

/// What an accept has found. The messages themselves are in [`Ring::pending`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accepted {
    /// Nothing since the last time.
    Nothing,
    /// Messages.
    Messages,
    /// Unread messages were overwritten: anything may have changed.
    Reset,
}

/// One backend's place in the ring.
pub(super) struct Ring {
    shared: Shared,
    area: RingArea,
    /// The own slot.
    slot: u32,
    /// Number of the next message to read; the slot holds a copy for the senders.
    position: u64,
    /// What the last accept copied.
    pending: Vec<Message>,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("slot", &self.slot).field("position", &self.position).finish_non_exhaustive()
    }
}

/// The ring lock, shared: for a backend that changes nothing but its own slot.
fn read_lock(arena: &Arena) -> impl Drop + '_ {
    loop {
        // The bound of a single wait is for those who can go private; here there is nothing to go to.
        if let Some(guard) = arena.lock(LockAt::Ring).read() {
            return guard;
        }
    }
}

/// The ring lock, exclusive: for senders, and for joining.
fn write_lock(arena: &Arena) -> impl Drop + '_ {
    loop {
        if let Some(guard) = arena.lock(LockAt::Ring).write() {
            return guard;
        }
    }
}

impl Ring {
    /// Takes a free slot; all messages so far count as read (A51). O(slots).
    ///
    /// # Errors
    /// [`Error::TooManyBackends`] when all slots are in use.
    pub(super) fn join(shared: &Shared) -> Result<Ring, Error> {
        let shared = shared.clone();
        let arena = shared.arena();
        let area = arena.ring();
        let guard = write_lock(arena);
        let free = (0..area.backends).find(|&slot| arena.get(area.state(slot)) & IN_USE == 0);
        let Some(slot) = free else {
            return Err(Error::TooManyBackends { limit: area.backends });
        };
        // Relaxed: the tail changes only under the lock that is held.
        let position = arena.word(area.tail).load(Ordering::Relaxed);
        arena.set(area.position(slot), position);
        arena.set(area.state(slot), IN_USE);
        drop(guard);
        Ok(Ring { shared, area, slot, position, pending: Vec::new() })
    }

    /// Number of the next message to be read.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Takes what the last accept has copied.
    pub(super) fn take_pending(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.pending)
    }

    /// Gives the buffer of [`Ring::take_pending`] back for reuse.
    pub(super) fn recycle(&mut self, mut buffer: Vec<Message>) {
        buffer.clear();
        self.pending = buffer;
    }

    /// Step Accept: copies all pending messages into the private buffer and counts them as read. One look at the tail
    /// when there is nothing new (R2), else one section of the ring lock, shared.
    pub(super) fn accept(&mut self, probe: &impl Probe) -> Accepted {
        let arena = self.shared.arena();
        let area = self.area;
        probe.before(Step::Accept);
        // Acquire: pairs with the Release of `send`, and may not be moved before a lock that the caller has taken before
        // (A2). It may miss a message that is being sent now; it can't miss one whose sending happened before.
        if arena.word(area.tail).load(Ordering::Acquire) == self.position {
            probe.took(Step::Accept, Seen::Messages { count: 0, reset: false });
            return Accepted::Nothing;
        }
        let guard = read_lock(arena);
        // Relaxed: the tail changes only under the exclusive lock.
        let tail = arena.word(area.tail).load(Ordering::Relaxed);
        let reset = arena.get(area.state(self.slot)) & RESET != 0;
        self.pending.clear();
        if reset {
            arena.set(area.state(self.slot), IN_USE);
        } else {
            debug_assert!(tail - self.position <= u64::from(area.capacity), "R1");
            self.pending.reserve((tail - self.position) as usize);
            for number in self.position..tail {
                let [first, second] = area.cell(number);
                self.pending.push(Message::unpack([arena.get(first), arena.get(second)]));
            }
        }
        arena.set(area.position(self.slot), tail);
        self.position = tail;
        probe.took(Step::Accept, Seen::Messages { count: self.pending.len() as u32, reset });
        drop(guard);
        if reset { Accepted::Reset } else { Accepted::Messages }
    }

    /// Steps Send: appends `messages`, in sections of at most [`SECTION`]. Who has not read what is overwritten is reset,
    /// and nobody else (A49); it is judged anew in each section (B42). Nothing is allocated.
    pub(super) fn send(&self, probe: &impl Probe, messages: &[Message]) {
        let most = SECTION.min(self.area.capacity as usize);
        for section in messages.chunks(most) {
            probe.before(Step::Send);
            let guard = write_lock(self.shared.arena());
            self.append(section);
            probe.took(Step::Send, Seen::Nothing);
            drop(guard);
        }
    }

    /// The body of a section of `send`. At most `capacity` messages.
    fn append(&self, section: &[Message]) {
        let arena = self.shared.arena();
        let area = self.area;
        // Relaxed: the tail changes only under the lock that is held.
        let tail = arena.word(area.tail).load(Ordering::Relaxed);
        let after = tail + section.len() as u64;
        if after - arena.get(area.floor) > u64::from(area.capacity) {
            self.make_space(after);
        }
        for (number, message) in (tail..).zip(section) {
            let [first, second] = area.cell(number);
            let units = message.pack();
            arena.set(first, units[0]);
            arena.set(second, units[1]);
        }
        // Release: pairs with the Acquire of `accept`. The cells were written before, so a backend that sees the number of a
        // message can read it (B41); its lock section orders the same.
        arena.word(area.tail).store(after, Ordering::Release);
    }

    /// Marks as reset who would be overrun by a tail of `after` (R1), and raises the floor to the least position of the
    /// others (R3). O(slots), but only when the slowest has fallen a whole ring behind the last floor.
    fn make_space(&self, after: u64) {
        let arena = self.shared.arena();
        let area = self.area;
        // Nobody is left behind who has read at least this much.
        let least = after.saturating_sub(u64::from(area.capacity));
        let mut floor = after;
        for slot in 0..area.backends {
            // Free slots and those that are marked already have nothing to lose.
            if arena.get(area.state(slot)) != IN_USE {
                continue;
            }
            let position = arena.get(area.position(slot));
            if position < least {
                arena.set(area.state(slot), IN_USE | RESET);
            } else {
                floor = floor.min(position);
            }
        }
        arena.set(area.floor, floor);
    }
}

impl Drop for Ring {
    /// Leaves the ring: the slot is free for the next backend.
    fn drop(&mut self) {
        // A simulator that unwinds a failed test must not be asked for a lock again.
        if MODELLED && panicking() {
            return;
        }
        let arena = self.shared.arena();
        let guard = read_lock(arena);
        arena.set(self.area.state(self.slot), 0);
        drop(guard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Config;

    fn segment(ring: u32, backends: u32) -> Shared {
        Shared::anonymous(&Config { ring, backends, ..Config::tiny() }).unwrap()
    }

    fn messages(hashes: impl IntoIterator<Item = u32>) -> Vec<Message> {
        hashes.into_iter().map(|hash| Message::Row { database: 1, cache: 2, hash }).collect()
    }

    #[test]
    fn messages_arrive_once_and_in_order_round_the_ring() {
        let shared = segment(8, 2);
        let (sender, mut reader) = (Ring::join(&shared).unwrap(), Ring::join(&shared).unwrap());
        assert_eq!(reader.accept(&()), Accepted::Nothing);
        for round in 0..50 {
            let sent = messages(round * 5..round * 5 + 5);
            sender.send(&(), &sent);
            assert_eq!(reader.accept(&()), Accepted::Messages);
            assert_eq!(reader.take_pending(), sent);
            assert_eq!(reader.accept(&()), Accepted::Nothing);
        }
    }

    /// A ring that is full to the last cell resets nobody; one message more does.
    #[test]
    fn only_the_laggard_is_reset() {
        let shared = segment(8, 4);
        let sender = Ring::join(&shared).unwrap();
        let (mut prompt, mut slow, mut late) =
            (Ring::join(&shared).unwrap(), Ring::join(&shared).unwrap(), Ring::join(&shared).unwrap());
        sender.send(&(), &messages(0..1));
        assert_eq!(late.accept(&()), Accepted::Messages);
        sender.send(&(), &messages(1..8));
        assert_eq!(prompt.accept(&()), Accepted::Messages);
        sender.send(&(), &messages(8..9));
        assert_eq!(slow.accept(&()), Accepted::Reset, "message 0 was overwritten");
        assert_eq!(slow.take_pending(), []);
        assert_eq!(late.accept(&()), Accepted::Messages, "message 1 was not");
        assert_eq!(late.take_pending(), messages(1..9));
        assert_eq!(prompt.accept(&()), Accepted::Messages);
        sender.send(&(), &messages(9..10));
        assert_eq!(slow.accept(&()), Accepted::Messages, "a reset is over when it has been accepted");
        assert_eq!(slow.take_pending(), messages(9..10));
    }

    /// A commit larger than the ring resets even who had read everything, the sender itself too.
    #[test]
    fn a_commit_larger_than_the_ring_resets_everybody() {
        let shared = segment(8, 2);
        let (mut sender, mut reader) = (Ring::join(&shared).unwrap(), Ring::join(&shared).unwrap());
        sender.send(&(), &messages(0..100));
        assert_eq!(reader.accept(&()), Accepted::Reset);
        assert_eq!(sender.accept(&()), Accepted::Reset);
        assert_eq!((reader.position(), sender.position()), (100, 100));
    }

    #[test]
    fn a_late_joiner_begins_at_the_tail() {
        let shared = segment(8, 2);
        let sender = Ring::join(&shared).unwrap();
        sender.send(&(), &messages(0..5));
        let mut joiner = Ring::join(&shared).unwrap();
        assert_eq!(joiner.accept(&()), Accepted::Nothing);
        sender.send(&(), &messages(5..6));
        assert_eq!(joiner.accept(&()), Accepted::Messages);
        assert_eq!(joiner.take_pending(), messages(5..6));
    }

    #[test]
    fn a_slot_is_free_again_when_its_backend_has_left_even_reset() {
        let shared = segment(8, 2);
        let sender = Ring::join(&shared).unwrap();
        for round in 0..10 {
            let mut guest = Ring::join(&shared).unwrap();
            assert!(matches!(Ring::join(&shared), Err(Error::TooManyBackends { limit: 2 })));
            assert_eq!(guest.accept(&()), Accepted::Nothing, "round {round}: no mark is inherited");
            sender.send(&(), &messages(0..9));
        }
    }
}
