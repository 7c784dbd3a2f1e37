//! The state of a program: what lies in shared memory, what the catalog holds, what each backend keeps for itself, and
//! the ghosts by which the properties are judged. Ghosts never influence a step.

use super::program::{Item, MEMBERS, Message, Program};
use super::property::Property;
use smallvec::SmallVec;

/// A short list, in place for the sizes of the checked scopes.
pub type List<T> = SmallVec<[T; 4]>;

/// "None" in a field of one byte.
pub const NONE: u8 = u8::MAX;

/// A version of a key's row: a number that counts the writes begun on that key, and whether there is a row at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Row(pub u8);

impl Row {
    /// No row known (not: no row in the catalog).
    pub const UNKNOWN: Row = Row(NONE);

    /// The row of a write.
    pub fn new(version: u8, present: bool) -> Row {
        Row(version << 1 | u8::from(present))
    }
    /// 0 for the first, n for the n-th write begun.
    pub fn version(self) -> u8 {
        self.0 >> 1
    }
    /// False for "no row with this key".
    pub fn present(self) -> bool {
        self.0 & 1 == 1
    }
    /// Is anything known?
    pub fn known(self) -> bool {
        self != Row::UNKNOWN
    }
}

/// One stamp: the clock at the last close, and the number of open brackets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// Clock at the last close.
    pub mark: u16,
    /// Open brackets.
    pub open: u8,
}

impl Stamp {
    /// Is a token good for it?
    pub fn good(self, token: u16) -> bool {
        self.open == 0 && self.mark <= token
    }
}

/// Where a slot of the shared table is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Life {
    /// In the free list.
    Free,
    /// Taken by one backend, not linked yet or not linked any more.
    Taken,
    /// Found by probes.
    Linked,
    /// No longer found, still referenced.
    Unlinked,
}

/// A slot of the shared table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// Where it is in its life.
    pub life: Life,
    /// The key or list of its entry.
    pub key: Item,
    /// The row of its entry; of a list, its first member's.
    pub row: Row,
    /// Of a list, the second member's row.
    pub second: Row,
    /// Of a list, the slots of its members, which it refers to; or [`NONE`].
    pub members: [u8; MEMBERS],
    /// The token of its entry.
    pub token: u16,
    /// References held (0 while memory is not modelled).
    pub references: u8,
}

impl Slot {
    /// A free slot.
    pub const FREE: Slot = Slot {
        life: Life::Free,
        key: NONE,
        row: Row::UNKNOWN,
        second: Row::UNKNOWN,
        members: [NONE; MEMBERS],
        token: 0,
        references: 0,
    };

    /// The rows that it shows, by part.
    pub fn rows(&self) -> [Row; MEMBERS] {
        [self.row, self.second]
    }

    /// Is it found by probes?
    pub fn linked(&self) -> bool {
        self.life == Life::Linked
    }
}

/// The message ring.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ring {
    /// Messages ever sent.
    pub tail: u16,
    /// The last ones, as far as some backend has still to read them.
    pub messages: List<Message>,
}

/// A key's row in the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CatalogRow {
    /// What a new snapshot sees.
    pub committed: Row,
    /// The backend that holds the key's heavyweight lock, or [`NONE`].
    pub owner: u8,
    /// Writes begun.
    pub writes: u8,
    /// Ghost: the versions that were aborted, one bit each.
    pub aborted: u64,
    /// Ghost: the newest version whose message is in the ring.
    pub sent: u8,
    /// Ghost: the newest version whose locks have been released.
    pub unlocked: u8,
}

/// What the own transaction has written for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Own {
    /// By the current command: not visible to the transaction itself yet.
    pub pending: Row,
    /// By earlier commands.
    pub finished: Row,
}

impl Own {
    /// Nothing written.
    pub const NOTHING: Own = Own { pending: Row::UNKNOWN, finished: Row::UNKNOWN };

    /// The version that a commit makes visible.
    pub fn newest(self) -> Row {
        if self.pending.known() { self.pending } else { self.finished }
    }
}

/// What a transaction had done when it started a subtransaction: what an abort of that goes back to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Outer {
    /// Own writes, one a key.
    pub own: List<Own>,
    /// Dirty set: what was changed at this level, before the subtransaction.
    pub finished: List<Message>,
}

/// What the local view holds for one key or list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Local {
    /// The row, or [`Row::UNKNOWN`] if the key is not in the view. Of a list, its first member's.
    pub row: Row,
    /// Of a list, the second member's row.
    pub second: Row,
    /// The referenced slot, or [`NONE`] for a private copy.
    pub slot: u8,
}

impl Local {
    /// Not in the view.
    pub const ABSENT: Local = Local { row: Row::UNKNOWN, second: Row::UNKNOWN, slot: NONE };

    /// The rows that it shows, by part.
    pub fn rows(&self) -> [Row; MEMBERS] {
        [self.row, self.second]
    }
}

/// A catalog snapshot with its token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Snapshot {
    /// The clock as read before the snapshot was taken.
    pub token: u16,
    /// What it sees.
    pub rows: List<Row>,
    /// Ghost: the clock at the moment of the token step, or 0 where that read an older one.
    pub exact: u16,
    /// Ghost: a publication with this token was useless.
    pub useless: bool,
}

/// Where a backend stands between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pc {
    /// Between operations; the next step starts one.
    Idle,
    /// To probe the shared table.
    Find,
    /// To check a stamp of the entry found: the slot, and which of its stamps.
    Check(u8, u8),
    /// To unlink an entry found invalid.
    Unlink(u8),
    /// To read the clock.
    Token,
    /// To take a snapshot, with the clock read before it and the ghost of [`Snapshot::exact`].
    Snapshot(u16, u16),
    /// To read the row.
    Scan,
    /// To accept messages inside the load.
    Nested,
    /// To check whether the token is still good, before publishing: which of the stamps.
    PublishCheck(u8),
    /// To take a slot; true after an eviction.
    Allocate(bool),
    /// To make room.
    Evict,
    /// To free the evicted slot, then to try again.
    FreeEvicted(u8),
    /// To link the entry in this slot.
    Publish(u8),
    /// To free the replaced slot; the second holds the own entry, which is the answer.
    FreeReplaced(u8, u8),
    /// To free the own slot, because the entry in the second stays.
    FreeOwn(u8, u8),
    /// To check the entry that stays: the slot, and which of its stamps.
    ExistingCheck(u8, u8),
    /// To release the entry that stays but is not valid.
    ReleaseExisting(u8),
    /// To adopt the list in this slot, once the references to the own members are released.
    Adopt(u8),
    /// To answer from what was read, once the references to the own members are released; true if the snapshot is to go, too.
    Private(bool),
    /// Inside a commit: the stage, how many of its steps are done, and the clock of the close.
    Commit(u8, u8, u16),
    /// Inside an in-place update: likewise.
    InPlace(u8, u8, u16),
    /// To accept messages at the end of an in-place update.
    AcceptOwn,
    /// Inside a commit that failed at P: brackets withdrawn so far.
    Withdraw(u8),
    /// To undo in the catalog.
    Undo,
    /// To free the slot of an evicted entry, at the end of an evict operation.
    FreeVictim(u8),
}

/// An answer, for outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Answer {
    /// What was answered.
    pub row: Row,
    /// Of a list, the second member's.
    pub second: Row,
    /// The backends, one bit each, whose last commit or abort had finished when the lookup began.
    pub after: u8,
}

/// What is left to be done before the backend goes on, a step each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Todo {
    /// Drop a reference.
    Release(u8),
    /// Give a slot back.
    Free(u8),
}

/// One backend.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Backend {
    /// The running item of the plan, or [`NONE`].
    pub item: u8,
    /// The operation within the item.
    pub at: u8,
    /// Items that may still be started.
    pub starts: u8,
    /// Where it stands.
    pub pc: Pc,
    /// The key or list of the running lookup, or [`NONE`].
    pub key: Item,
    /// Which member of the list is being published, or [`NONE`].
    pub part: u8,
    /// The slots of the members published so far, referred to; or [`NONE`].
    pub members: [u8; MEMBERS],
    /// The row read by the running load; of a list, its first member's.
    pub row: Row,
    /// Of a list, the second member's.
    pub second: Row,
    /// The token of the running load.
    pub token: u16,
    /// The rows and the token of the shared entry that the running lookup has found.
    pub found: ([Row; MEMBERS], u16),
    /// The greatest mark of the stamps that it has checked.
    pub mark: u16,
    /// Has the running load been doomed?
    pub doomed: bool,
    /// Inside a transaction?
    pub in_transaction: bool,
    /// Own writes, one a key.
    pub own: List<Own>,
    /// Dirty set: what was changed by the current command.
    pub pending: List<Message>,
    /// Dirty set: what was changed by earlier commands of the innermost (sub)transaction.
    pub finished: List<Message>,
    /// The enclosing (sub)transactions, the outermost first.
    pub outer: List<Outer>,
    /// The messages of the running commit or in-place update.
    pub sending: List<Message>,
    /// The local view, one a key, then one a list.
    pub local: List<Local>,
    /// References to be released and slots to be given back, in this order, before anything else.
    pub todo: List<Todo>,
    /// The catalog snapshot.
    pub snapshot: Option<Snapshot>,
    /// Messages read.
    pub position: u16,
    /// Has it fallen behind?
    pub reset: bool,
    /// The last clock that it has read (kept only where a token may be old).
    pub clock: u16,
    /// Ghost, a key each: the least version that an answer may show.
    pub floor: List<u8>,
    /// Ghost, a cell each: the newest version answered, where it is above the floor.
    pub answered: List<u8>,
    /// Ghost, a cell each: the last answer, as long as there was no processing point since.
    pub stable: List<Row>,
    /// Ghost: what [`Backend::stable`] says of the running lookup.
    pub expected: [Row; MEMBERS],
    /// Ghost, a key each: the version sent when the running lookup began.
    pub sent: List<u8>,
    /// Ghost: the versions committed when the running probe began.
    pub probe: [u8; MEMBERS],
    /// Answers, where they are recorded.
    pub answers: List<Answer>,
    /// The `after` of the running lookup.
    pub after: u8,
}

/// A state of a [`Program`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The clock.
    pub clock: u16,
    /// The stamps: those of stripes, and where somebody opens them those of catalogs and of databases.
    pub stamps: List<Stamp>,
    /// The ring.
    pub ring: Ring,
    /// The shared table; while memory is not modelled, slot k is for key k.
    pub slots: List<Slot>,
    /// The catalog, a key each.
    pub catalog: List<CatalogRow>,
    /// The backends.
    pub backends: List<Backend>,
    /// Backends, one bit each, whose last commit or abort has finished (kept only where answers are recorded).
    pub done: u8,
    /// The first property that was broken on the way here.
    pub broken: Option<Property>,
}

impl State {
    /// The state in which every backend has attached and nothing has happened.
    pub fn initial(program: &Program) -> State {
        State {
            clock: 1,
            stamps: SmallVec::from_elem(Stamp::default(), program.stamps()),
            ring: Ring { tail: 0, messages: List::new() },
            slots: SmallVec::from_elem(Slot::FREE, program.slots()),
            catalog: program
                .keys
                .iter()
                .map(|k| CatalogRow {
                    committed: Row::new(0, k.present),
                    owner: NONE,
                    writes: 0,
                    aborted: 0,
                    sent: 0,
                    unlocked: 0,
                })
                .collect(),
            backends: program.plans.iter().map(|plan| Backend::new(program, plan.starts)).collect(),
            done: 0,
            broken: None,
        }
    }

    /// Has every backend done what its plan holds?
    pub fn finished(&self) -> bool {
        self.backends.iter().all(|b| b.idle() && b.item == NONE)
    }
}

impl Backend {
    fn new(program: &Program, starts: u8) -> Backend {
        let keys = program.keys.len();
        Backend {
            item: NONE,
            at: 0,
            starts,
            pc: Pc::Idle,
            key: NONE,
            part: NONE,
            members: [NONE; MEMBERS],
            row: Row::UNKNOWN,
            second: Row::UNKNOWN,
            token: 0,
            found: ([Row::UNKNOWN; MEMBERS], 0),
            mark: 0,
            doomed: false,
            in_transaction: false,
            own: SmallVec::from_elem(Own::NOTHING, keys),
            pending: List::new(),
            finished: List::new(),
            outer: List::new(),
            sending: List::new(),
            local: SmallVec::from_elem(Local::ABSENT, program.items()),
            todo: List::new(),
            snapshot: None,
            position: 0,
            reset: false,
            clock: 1,
            floor: SmallVec::from_elem(0, keys),
            answered: SmallVec::from_elem(0, program.all_cells()),
            stable: SmallVec::from_elem(Row::UNKNOWN, program.all_cells()),
            expected: [Row::UNKNOWN; MEMBERS],
            sent: List::new(),
            probe: [0; MEMBERS],
            answers: List::new(),
            after: 0,
        }
    }

    /// Between operations, with nothing left to release?
    pub fn idle(&self) -> bool {
        self.pc == Pc::Idle && self.todo.is_empty()
    }

    /// All that the dirty set holds, some of it more than once.
    pub fn changed(&self) -> impl Iterator<Item = Message> + '_ {
        let outer = self.outer.iter().flat_map(|outer| outer.finished.iter());
        self.pending.iter().chain(&self.finished).chain(outer).copied()
    }

    /// The dirty set, level by level, each message once a level.
    pub fn dirty(&self) -> List<Message> {
        let mut all: List<Message> = self.outer.iter().flat_map(|outer| outer.finished.iter().copied()).collect();
        all.extend(self.finished.iter().copied());
        all.extend(self.pending.iter().copied().filter(|class| !self.finished.contains(class)));
        all
    }

    /// The slots that it holds references to, once for each reference.
    pub fn references(&self) -> impl Iterator<Item = u8> + '_ {
        let held = match self.pc {
            Pc::Check(s, _) | Pc::Unlink(s) | Pc::ExistingCheck(s, _) | Pc::ReleaseExisting(s) => s,
            Pc::FreeOwn(_, s) | Pc::FreeReplaced(_, s) | Pc::Adopt(s) => s,
            _ => NONE,
        };
        let local = self.local.iter().filter(|l| l.row.known()).map(|l| l.slot);
        let released = self.todo.iter().filter_map(|todo| if let Todo::Release(s) = todo { Some(*s) } else { None });
        local.chain(released).chain(self.members).chain(std::iter::once(held)).filter(|s| *s != NONE)
    }

    /// The slots that it has taken out of the table or not put in yet.
    pub fn taken(&self) -> impl Iterator<Item = u8> + '_ {
        let held = match self.pc {
            Pc::Publish(s) | Pc::FreeEvicted(s) | Pc::FreeReplaced(s, _) | Pc::FreeOwn(s, _) | Pc::FreeVictim(s) => s,
            _ => NONE,
        };
        let freed = self.todo.iter().filter_map(|todo| if let Todo::Free(s) = todo { Some(*s) } else { None });
        freed.chain(std::iter::once(held)).filter(|s| *s != NONE)
    }
}
