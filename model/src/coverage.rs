//! Which actions and branches a run has taken: a *sometimes* for each. stateright has no such report.

use crate::coherence::{Seen, Step};
use std::sync::atomic::{AtomicBool, Ordering};

macro_rules! branches {
    ($($name:ident = $label:literal;)+) => {
        /// A branch of a step that some scope must take, else the model says less than it seems to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Branch { $(#[doc = $label] $name),+ }

        impl Branch {
            /// Every branch.
            pub const ALL: &[Branch] = &[$(Branch::$name),+];
            /// What it says in reports.
            pub fn name(self) -> &'static str { match self { $(Branch::$name => $label),+ } }
        }
    };
}

branches! {
    LocalHitRow = "local hit: row";
    LocalHitNegative = "local hit: negative";
    AcceptNothing = "accept: nothing pending";
    AcceptMessages = "accept: messages";
    AcceptReset = "accept: reset";
    FindEntry = "find: entry";
    FindNothing = "find: nothing";
    CheckGood = "check: good";
    CheckOpen = "check: a bracket is open";
    UnlinkKept = "unlink: still referenced, or gone already";
    UnlinkFree = "unlink: last reference";
    Token = "token";
    Snapshot = "snapshot";
    ScanRow = "scan: row";
    ScanNegative = "scan: no row";
    AllocateSlot = "allocate: slot";
    AllocateFull = "allocate: full";
    EvictEntry = "evict: entry";
    EvictNothing = "evict: nothing can go";
    PublishNew = "publish: new";
    PublishReplaced = "publish: replaced";
    PublishExisting = "publish: existing stays";
    ReleaseKept = "release: kept";
    ReleaseFree = "release: last of an unlinked entry";
    Free = "free";
    WritePut = "write: row";
    WriteDelete = "write: no row";
    WriteAll = "write: a whole catalog or database";
    Lock = "lock";
    Overwrite = "overwrite";
    CommandEnd = "command end";
    SubBegin = "subtransaction: begin";
    SubCommit = "subtransaction: commit";
    SubAbort = "subtransaction: abort";
    Log = "log (C)";
    OpenFirst = "open: first bracket";
    OpenSecond = "open: another is open";
    Visible = "visible (P)";
    VisibleFails = "visible (P): fails";
    Advance = "advance";
    CloseLast = "close: last bracket";
    CloseNotLast = "close: another is open";
    Withdraw = "withdraw";
    Send = "send (S)";
    Unlock = "unlock (L)";
    Undo = "undo";
}

/// Which branches were taken.
#[derive(Debug)]
pub struct Coverage([AtomicBool; Branch::ALL.len()]);

impl Default for Coverage {
    fn default() -> Self {
        Coverage(std::array::from_fn(|_| AtomicBool::new(false)))
    }
}

impl Coverage {
    /// Notes a step. Relaxed: flags of a report, read after the run.
    pub fn took(&self, step: Step, seen: Seen) {
        let flag = &self.0[branch(step, seen) as usize];
        if !flag.load(Ordering::Relaxed) {
            flag.store(true, Ordering::Relaxed);
        }
    }

    /// Adds what another run has taken.
    pub fn merge(&self, other: &Coverage) {
        for (mine, theirs) in self.0.iter().zip(&other.0) {
            if theirs.load(Ordering::Relaxed) {
                mine.store(true, Ordering::Relaxed);
            }
        }
    }

    /// The branches that were never taken.
    pub fn missing(&self) -> Vec<Branch> {
        Branch::ALL.iter().copied().filter(|b| !self.0[*b as usize].load(Ordering::Relaxed)).collect()
    }
}

fn branch(step: Step, seen: Seen) -> Branch {
    use Branch::*;
    match (step, seen) {
        (Step::LocalHit, Seen::Row { present: false }) => LocalHitNegative,
        (Step::LocalHit, _) => LocalHitRow,
        (Step::Accept, Seen::Messages { reset: true, .. }) => AcceptReset,
        (Step::Accept, Seen::Messages { count: 0, .. }) => AcceptNothing,
        (Step::Accept, _) => AcceptMessages,
        (Step::Find, Seen::Found(Some(_))) => FindEntry,
        (Step::Find, _) => FindNothing,
        (Step::Check, Seen::Stamp(stamp)) if stamp.open > 0 => CheckOpen,
        (Step::Check, _) => CheckGood,
        (Step::Unlink, Seen::Unlinked { free: true, .. }) => UnlinkFree,
        (Step::Unlink, _) => UnlinkKept,
        (Step::Token, _) => Token,
        (Step::Snapshot, _) => Snapshot,
        (Step::Scan, Seen::Row { present: false }) => ScanNegative,
        (Step::Scan, _) => ScanRow,
        (Step::Allocate, Seen::Slot(None)) => AllocateFull,
        (Step::Allocate, _) => AllocateSlot,
        (Step::Evict, Seen::Evicted(None)) => EvictNothing,
        (Step::Evict, _) => EvictEntry,
        (Step::Publish, Seen::Published { existing: true, .. }) => PublishExisting,
        (Step::Publish, Seen::Published { replaced: Some(_), .. }) => PublishReplaced,
        (Step::Publish, _) => PublishNew,
        (Step::Release, Seen::Released { free: true, .. }) => ReleaseFree,
        (Step::Release, _) => ReleaseKept,
        (Step::Free, _) => Free,
        (Step::Write, Seen::Row { present: false }) => WriteDelete,
        (Step::Write, Seen::Nothing) => WriteAll,
        (Step::Write, _) => WritePut,
        (Step::Lock, _) => Lock,
        (Step::Overwrite, _) => Overwrite,
        (Step::CommandEnd, _) => CommandEnd,
        (Step::SubBegin, _) => SubBegin,
        (Step::SubCommit, _) => SubCommit,
        (Step::SubAbort, _) => SubAbort,
        (Step::Log, _) => Log,
        (Step::Open, Seen::Stamp(stamp)) if stamp.open > 1 => OpenSecond,
        (Step::Open, _) => OpenFirst,
        (Step::Visible, Seen::Fail) => VisibleFails,
        (Step::Visible, _) => Visible,
        (Step::Advance, _) => Advance,
        (Step::Close, Seen::Stamp(stamp)) if stamp.open > 0 => CloseNotLast,
        (Step::Close, _) => CloseLast,
        (Step::Withdraw, _) => Withdraw,
        (Step::Send, _) => Send,
        (Step::Unlock, _) => Unlock,
        (Step::Undo, _) => Undo,
    }
}
