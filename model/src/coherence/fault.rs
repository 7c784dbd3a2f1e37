//! One fault per rule of the protocol: left out, swapped or weakened.
//!
//! A rule whose removal no scope catches is unnecessary, or a property is missing; so each fault names the scope that
//! catches it, and `check` runs it there and prints the shortest counterexample.

use super::property::Property;

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $name:ident: $scope:literal, $property:ident;)+) => {
        /// A rule that is broken on purpose.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Fault { $($(#[doc = $doc])+ $name,)+ }

        impl Fault {
            /// Every fault, in the order of the rules.
            pub const ALL: &[Fault] = &[$(Fault::$name),+];

            /// Its name on the command line and in reports.
            pub fn name(self) -> &'static str { match self { $(Fault::$name => stringify!($name)),+ } }

            /// What is broken.
            pub fn about(self) -> &'static str { match self { $(Fault::$name => concat!($($doc),+)),+ } }

            /// The smallest scope in which it is caught.
            pub fn scope(self) -> &'static str { match self { $(Fault::$name => $scope),+ } }

            /// The property that it breaks first.
            pub fn breaks(self) -> Property { match self { $(Fault::$name => Property::$property),+ } }
        }
    };
}

faults! {
    /// A committing writer opens no stamp.
    OpenLeftOut: "tuple", I1;
    /// Stamps are opened after P.
    OpenAfterVisible: "tuple", I1;
    /// Stamps are closed before P.
    CloseBeforeVisible: "tuple", I1;
    /// A close does not advance the clock: it marks with the old one.
    ClockNotAdvanced: "tuple", I1;
    /// A close counts down and does not mark.
    MarkLeftOut: "tuple", I1;
    /// A close sets the mark to its clock even where a later one stands.
    MarkNotMax: "two-closers", I1;
    /// A failed commit leaves its stamps open.
    WithdrawLeftOut: "withdraw", Balance;
    /// Messages are sent before P.
    SendBeforeVisible: "tuple", A1;
    /// Heavyweight locks are released before messages are sent.
    UnlockBeforeSend: "tuple", A1;
    /// A committing writer sends no messages.
    SendLeftOut: "tuple", A1;
    /// A writer brackets and sends only for what its own local view holds (B27).
    OnlyIfCached: "tuple", I1;
    /// A probe takes every entry that it finds for valid.
    CheckLeftOut: "tuple", I1h;
    /// A probe looks at the mark of a stamp, not at the open brackets.
    CheckIgnoresOpen: "tuple", I1h;
    /// A probe looks at the open brackets of a stamp, not at its mark.
    CheckIgnoresMark: "tuple", I1h;
    /// A reused catalog snapshot takes the clock at the miss for its token (D3).
    TokenAtMiss: "own-snapshot", I1;
    /// The clock is read after the snapshot was taken.
    TokenAfterSnapshot: "tuple", I1;
    /// Loads publish with the first token that there ever was.
    TokenTooOld: "tuple", Useful;
    /// An entry that another backend published is adopted without a check.
    ExistingNotChecked: "duplicate-load", I1h;
    /// A publication replaces an entry with a newer token.
    OlderReplacesNewer: "duplicate-load", Newest;
    /// A lookup that misses locally does not accept messages before it probes.
    AcceptBeforeProbeLeftOut: "composite", Composite;
    /// A transaction starts without accepting messages.
    AcceptAtBeginLeftOut: "command-end", A1;
    /// Accepting a message leaves the entries that it names in the local view.
    AcceptKeepsLocal: "tuple", A1;
    /// A message drops positive entries only.
    AcceptKeepsNegative: "collision", A1;
    /// A message drops one entry of its hash, not all.
    AcceptDropsOne: "collision", A1;
    /// Accepting a message keeps the catalog snapshot.
    AcceptKeepsSnapshot: "own-snapshot", A1;
    /// A message does not doom the running load of its key (B01).
    LoadNotDoomed: "toast", A1;
    /// A doomed load is started again with the snapshot that it had.
    DoomedKeepsSnapshot: "toast", A1;
    /// A newer hit leaves the own catalog snapshot in place (D11).
    SnapshotKeptOnNewerHit: "own-snapshot", A9;
    /// A useless publication leaves the catalog snapshot in place, so that the next is useless too.
    SnapshotKeptWhenUseless: "own-snapshot", Renewed;
    /// The shared table is probed for keys that the own transaction has changed (D8).
    DirtyNotConsultedAtProbe: "command-end", A23;
    /// Own uncommitted rows are published (D7).
    DirtyNotConsultedAtPublish: "command-end", I1;
    /// A reset drops the dirty set (B38).
    ResetClearsDirty: "overflow", I1;
    /// The end of a command leaves the changed entries in the local view.
    CommandEndKeepsLocal: "command-end", A23;
    /// Abort leaves the entries of the own changes in the local view.
    AbortKeepsLocal: "command-end", A24;
    /// The changes of a subtransaction that committed leave the dirty set with it (D7).
    SubCommitForgets: "subtransaction", I1;
    /// An aborted subtransaction leaves the entries of its changes in the local view.
    SubAbortKeepsLocal: "subtransaction", A23;
    /// An aborted subtransaction takes its parent's changes out of the dirty set too.
    SubAbortForgetsParent: "subtransaction", I1;
    /// An in-place update opens no stamp.
    InPlaceNotBracketed: "in-place", I1;
    /// An in-place update closes its bracket before the bytes change.
    InPlaceClosedBefore: "in-place", I1;
    /// An in-place update sends its message with its transaction, which aborts (B19).
    InPlaceNotSent: "in-place", A1;
    /// A change of a whole catalog opens nothing.
    CatalogNotOpened: "whole-catalog", I1;
    /// A probe does not look at the stamp of the catalog.
    CatalogNotChecked: "whole-catalog", I1h;
    /// A message about a whole catalog leaves its entries in the local view.
    CatalogKeepsLocal: "whole-catalog", A1;
    /// A message about a whole catalog does not doom the running load of one of its rows.
    CatalogDoesNotDoom: "whole-catalog", A1;
    /// The dirty set knows rows, and not the catalogs that were changed whole.
    CatalogNotCovered: "whole-catalog", I1;
    /// A bracket of many rows opens the stamp of one catalog, where it has rows of two.
    EscalationOpensOne: "escalation", I1;
    /// The drop of a database opens nothing (D30).
    DatabaseNotOpened: "databases", I1;
    /// A probe does not look at the stamp of the database.
    DatabaseNotChecked: "databases", I1h;
    /// A message about a shared catalog is obeyed by nobody (B26).
    SharedIgnored: "databases", A1;
    /// A change opens no stamp of its cache's lists.
    ListNotOpened: "list", I1;
    /// A probe does not look at the stamp of its list.
    ListNotChecked: "list", I1h;
    /// A message of the cache leaves its lists in the local view.
    AcceptKeepsLists: "list", A1;
    /// A message of the cache does not doom the running load of a list (B03).
    ListNotDoomed: "list-toast", A1;
    /// The dirty set covers keys, and not the lists that they may be of.
    ListNotCovered: "list-own", I1;
    /// A list has its members, and no reference to them.
    MembersNotPinned: "list-evict", A39;
    /// A list that is freed leaves its members referred to for ever (B35).
    MembersNotReleased: "list-evict", Leak;
    /// A sender overwrites messages that a laggard has not read, and does not reset it (B42).
    OverrunUnnoticed: "overflow", A1;
    /// A reset leaves the local view as it is.
    ResetKeepsLocal: "overflow", A1;
    /// A reset does not doom the running load.
    ResetDoesNotDoom: "overflow-load", A1;
    /// A probe takes no reference.
    ReferenceNotTaken: "evict", A39;
    /// Eviction does not look at references (B33, D24).
    EvictIgnoresReferences: "evict", A39;
    /// The last reference of an unlinked entry does not free it.
    LastReferenceLeaks: "evict", Leak;
}
