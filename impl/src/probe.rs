//! The atomic steps of the protocol, and how a harness watches them.
//!
//! Every [`Step`] is one lock section or one atomic access (or wholly private: `LocalHit`, `CommandEnd`, `SubBegin`,
//! `SubCommit`). The code calls
//! [`Probe::before`] when it is about to take a step, with no lock of the cache held: the only place where a harness may
//! park a backend. It calls [`Probe::took`] when the step has taken effect, inside its critical section, with what the
//! step saw. The same names stand in the model's actions, in traces and in the docs.
//!
//! A probe can also switch a [`Rule`] of the protocol off ([`Probe::keeps`]): that is how faults get into the code, each at
//! exactly one place. The production probe is `()`: it keeps every rule, watches nothing and costs nothing.

use crate::key::OwnedKey;
use crate::message::Message;
use std::sync::Arc;

/// The kind of stamp (DESIGN 3: the stamps of an entry). The order is the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The stripe of (database, cache, hash).
    Stripe,
    /// The lists of (database, cache).
    List,
    /// The catalog.
    Catalog,
    /// The database.
    Database,
}

/// One atomic step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// A lookup answered by the local view. Private.
    LocalHit,
    /// Pending messages are taken from the ring and obeyed.
    Accept,
    /// The shared table is searched; an entry found gets a reference.
    Find,
    /// One stamp is read.
    Check(Level),
    /// An invalid entry that was found is unlinked, and the reference to it dropped.
    Unlink,
    /// The clock is read, before a snapshot is taken.
    Token,
    /// A snapshot of the catalog is taken.
    Snapshot,
    /// The catalog is read.
    Scan,
    /// A slot is taken from the slab.
    Allocate,
    /// An unreferenced entry is chosen and unlinked.
    Evict,
    /// The loaded entry is linked, or an existing one of the same key adopted.
    Publish,
    /// A reference is dropped.
    Release,
    /// A slot is given back to the slab.
    Free,
    /// A row of the catalog is changed, or all rows of a catalog or database, not yet visible to others.
    Write,
    /// A row is locked for an in-place update.
    Lock,
    /// The bytes of a row are changed where it lies.
    Overwrite,
    /// Own changes of the command become visible to oneself. Private.
    CommandEnd,
    /// A subtransaction begins. Private.
    SubBegin,
    /// A subtransaction's changes become its parent's; a command ends with it. Private.
    SubCommit,
    /// A subtransaction is undone in the catalog, and the locks that it took are released.
    SubAbort,
    /// C: the commit is logged.
    Log,
    /// One stamp is opened.
    Open(Level),
    /// P: the commit becomes visible.
    Visible,
    /// The clock is advanced, once per bracket.
    Advance,
    /// One stamp is closed: marked, and counted down.
    Close(Level),
    /// One stamp is counted down without a mark: nothing became visible.
    Withdraw(Level),
    /// S: messages are put into the ring.
    Send,
    /// L: the locks of the catalog are released.
    Unlock,
    /// The changes of an aborted transaction are undone.
    Undo,
}

/// The value of a stamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StampValue {
    /// The clock at the last close; 0 if none yet.
    pub mark: u64,
    /// Brackets that are open.
    pub open: u32,
}

/// Where an entry lies: its offset in the segment, in units of 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryAt(pub u32);

/// What a step saw or did: values that the model has too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The step has nothing to show.
    Nothing,
    /// Accept: so many messages were taken, or a reset.
    Messages {
        /// How many messages.
        count: u32,
        /// Was this a reset?
        reset: bool,
    },
    /// Find: the entry, which now has one reference more.
    Found(Option<EntryAt>),
    /// Check, Open, Close, Withdraw: the stamp (as it is after the step).
    Stamp(StampValue),
    /// Token, Advance: the clock (as it is after the step).
    Clock(u64),
    /// Allocate: the slot.
    Slot(Option<EntryAt>),
    /// Publish.
    Published {
        /// The entry that the publisher now refers to.
        entry: EntryAt,
        /// The entry of the same key that was unlinked.
        replaced: Option<EntryAt>,
        /// An entry was there already and stays; the publisher's own slot is freed.
        kept_existing: bool,
    },
    /// Unlink.
    Unlinked {
        /// The entry.
        entry: EntryAt,
        /// Nobody refers to it any more: a Free follows.
        free: bool,
    },
    /// Release.
    Released {
        /// The entry.
        entry: EntryAt,
        /// It was the last reference of an unlinked entry: a Free follows.
        free: bool,
    },
    /// Evict: the victim. A Free follows.
    Evicted(Option<EntryAt>),
    /// Free: the slot.
    Freed(EntryAt),
    /// Scan, Write, LocalHit: is there a row?
    Row {
        /// Yes, or no such row.
        present: bool,
    },
    /// The step has failed and had no effect.
    Fail,
}

/// A rule of the protocol that a harness can switch off. Each guards exactly one thing in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// A lookup that misses the local view accepts messages before it probes the shared table.
    AcceptBeforeProbe,
    /// The stripe's stamp is checked.
    CheckStripe,
    /// Of a list, the stamp of its cache's lists is checked.
    CheckList,
    /// The catalog's stamp is checked.
    CheckCatalog,
    /// The database's stamp is checked.
    CheckDatabase,
    /// A writer opens the stripes of what it changed.
    OpenStripe,
    /// A writer opens the stamps of the lists of the caches whose rows it changed.
    OpenList,
    /// A message drops the local lists of its cache.
    DropListsOnAccept,
    /// A message dooms the running load of a list of its cache (B03).
    DoomRunningList,
    /// A list is covered by any change of its cache.
    CoverLists,
    /// A list refers to its members.
    PinMembers,
    /// A list that is freed gives its references to its members back (B35).
    ReleaseMembers,
    /// A writer opens the stamps of the catalogs that it changed whole.
    OpenCatalog,
    /// A writer opens the stamps of the databases that it changed whole.
    OpenDatabase,
    /// An in-place update has a bracket.
    BracketInPlace,
    /// An in-place update sends its message at once.
    SendInPlace,
    /// A message about a whole catalog or database drops its local entries.
    DropWholeCatalog,
    /// What a transaction has changed whole is covered, row by row.
    CoverWholeCatalog,
    /// A close advances the clock.
    AdvanceClock,
    /// A close marks its stamps.
    MarkAtClose,
    /// A commit sends its messages.
    SendMessages,
    /// A message drops the catalog snapshot.
    DropSnapshotOnAccept,
    /// A message drops the matching local entries.
    DropLocalOnAccept,
    /// A message that matches a running load makes it start again.
    DoomRunningLoad,
    /// What the dirty set covers is not looked for in the shared table.
    ConsultDirtyAtProbe,
    /// What the dirty set covers is not published.
    ConsultDirtyAtPublish,
    /// A hit that is newer than the own snapshot drops it (A9).
    DropSnapshotOnNewerHit,
    /// A publication whose token is already bad drops the own snapshot.
    DropSnapshotOnUselessPublish,
    /// An abort drops the local entries that it covers.
    DropLocalOnAbort,
    /// An abort drops the own snapshot.
    DropSnapshotOnAbort,
    /// The changes of a subtransaction that commits stay in the dirty set.
    KeepDirtyAtSubCommit,
    /// The abort of a subtransaction drops the local entries that it covers.
    DropLocalOnSubAbort,
    /// The abort of a subtransaction drops the own snapshot (A14).
    DropSnapshotOnSubAbort,
    /// The abort of a subtransaction leaves its parent's changes in the dirty set.
    KeepParentOnSubAbort,
    /// The end of a command drops the local entries that it changed.
    DropLocalAtCommandEnd,
    /// The end of a command drops the own snapshot.
    DropSnapshotAtCommandEnd,
    /// A reset leaves the dirty set alone (B38).
    KeepDirtyOnReset,
    /// A reset drops the whole local view.
    ResetDropsLocal,
    /// A find counts its reference.
    TakeReference,
    /// Only unreferenced entries are evicted.
    UnlinkBeforeFree,
    /// A token belongs to its snapshot, for as long as that is used (D3).
    TokenPerSnapshot,
    /// Every change registers its message (A25).
    RegisterMessage,
    /// The dirty set is dropped at the end of the transaction.
    DropDirtyAtEnd,
    /// A bracket whose P failed is withdrawn.
    WithdrawOnFailure,
}

/// A backend's private state, as far as the model has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrivateImage {
    /// The local view.
    pub local: Vec<LocalImage>,
    /// The lists of the local view.
    pub lists: Vec<ListImage>,
    /// The token of the catalog snapshot held, if one is held.
    pub snapshot: Option<u64>,
    /// What the current transaction has changed.
    pub dirty: Vec<Message>,
    /// The next message of the ring to be read.
    pub ring_position: u64,
}

/// One entry of a local view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalImage {
    /// Its key.
    pub key: OwnedKey,
    /// The shared entry referred to; `None`: a private copy.
    pub entry: Option<EntryAt>,
    /// The row; `None`: a negative entry.
    pub row: Option<Vec<u8>>,
}

/// One list of a local view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListImage {
    /// Its partial key.
    pub key: OwnedKey,
    /// The shared entry referred to; `None`: a private copy.
    pub entry: Option<EntryAt>,
    /// Its members, key and row.
    pub members: Vec<(OwnedKey, Vec<u8>)>,
}

/// Watches the algorithm. `()` compiles to nothing.
pub trait Probe {
    /// About to take `step`; no lock of the cache is held. A harness may park the backend here.
    #[inline(always)]
    fn before(&self, step: Step) {
        let _ = step;
    }

    /// `step` has just taken effect; called inside its critical section with what it saw. Must neither block nor use
    /// synchronisation of the crate's facade.
    #[inline(always)]
    fn took(&self, step: Step, seen: Seen) {
        let _ = (step, seen);
    }

    /// The backend's private state has changed; a harness keeps the latest image. `image` is not evaluated by `()`.
    #[inline(always)]
    fn private(&self, image: impl FnOnce() -> PrivateImage)
    where
        Self: Sized,
    {
        let _ = image;
    }

    /// Is this rule of the protocol kept? Always, in production.
    #[inline(always)]
    fn keeps(&self, rule: Rule) -> bool {
        let _ = rule;
        true
    }
}

impl Probe for () {}

impl<P: Probe> Probe for &P {
    #[inline(always)]
    fn before(&self, step: Step) {
        (**self).before(step);
    }

    #[inline(always)]
    fn took(&self, step: Step, seen: Seen) {
        (**self).took(step, seen);
    }

    #[inline(always)]
    fn private(&self, image: impl FnOnce() -> PrivateImage) {
        (**self).private(image);
    }

    #[inline(always)]
    fn keeps(&self, rule: Rule) -> bool {
        (**self).keeps(rule)
    }
}

impl<P: Probe> Probe for Arc<P> {
    #[inline(always)]
    fn before(&self, step: Step) {
        (**self).before(step);
    }

    #[inline(always)]
    fn took(&self, step: Step, seen: Seen) {
        (**self).took(step, seen);
    }

    #[inline(always)]
    fn private(&self, image: impl FnOnce() -> PrivateImage) {
        (**self).private(image);
    }

    #[inline(always)]
    fn keeps(&self, rule: Rule) -> bool {
        (**self).keeps(rule)
    }
}
