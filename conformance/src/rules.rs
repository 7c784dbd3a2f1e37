//! The rules of the protocol that the code's probe can switch off, in the conformance suite's own words: one enum for
//! the three builds.

macro_rules! each_rule {
    ($with:ident) => {
        $with! { AcceptBeforeProbe CheckStripe CheckList CheckCatalog CheckDatabase OpenStripe
        OpenList DropListsOnAccept DoomRunningList CoverLists PinMembers ReleaseMembers OpenCatalog OpenDatabase BracketInPlace SendInPlace DropWholeCatalog CoverWholeCatalog AdvanceClock MarkAtClose SendMessages DropSnapshotOnAccept
        DropLocalOnAccept DoomRunningLoad ConsultDirtyAtProbe ConsultDirtyAtPublish DropSnapshotOnNewerHit
        DropSnapshotOnUselessPublish DropLocalOnAbort DropSnapshotOnAbort DropLocalAtCommandEnd
        DropSnapshotAtCommandEnd KeepDirtyAtSubCommit DropLocalOnSubAbort DropSnapshotOnSubAbort KeepParentOnSubAbort
        KeepDirtyOnReset ResetDropsLocal TakeReference UnlinkBeforeFree TokenPerSnapshot
        RegisterMessage DropDirtyAtEnd WithdrawOnFailure }
    };
}
pub(crate) use each_rule;

macro_rules! define {
    ($($name:ident)+) => {
        /// A rule that a harness can switch off in the code; see `shared_catcache::Rule`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "documented where the code has them")]
        pub enum Rule { $($name),+ }

        impl Rule {
            /// Every rule.
            pub const ALL: &[Rule] = &[$(Rule::$name),+];
            /// Its name.
            pub fn name(self) -> &'static str { match self { $(Rule::$name => stringify!($name)),+ } }
        }
    };
}
each_rule!(define);
