//! What must hold: in every state, at every answer, and at the end.

macro_rules! properties {
    ($($(#[doc = $doc:literal])+ $name:ident = $label:literal;)+) => {
        /// A property of the coherence model, named after the statement that it stands for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Property { $($(#[doc = $doc])+ $name,)+ }

        impl Property {
            /// Every property.
            pub const ALL: &[Property] = &[$(Property::$name),+];
            /// The name in reports.
            pub fn name(self) -> &'static str { match self { $(Property::$name => $label),+ } }
            /// What it says.
            pub fn about(self) -> &'static str { match self { $(Property::$name => concat!($($doc),+)),+ } }
        }
    };
}

properties! {
    /// Every linked, valid entry equals the committed row as of now; in every state.
    I1 = "I1";
    /// An entry that a probe accepts was current at some instant after the probe began.
    I1h = "I1h";
    /// An answer reflects every change that was sent, or whose locks were released, before the backend last accepted.
    A1 = "A1/A5";
    /// Two lookups of a key without an own processing point between them answer the same.
    A7 = "A7";
    /// Answers for one key never go back to an older version, own aborts aside.
    A8 = "A8";
    /// Nothing in the local view is newer than the own catalog snapshot.
    A9 = "A9";
    /// Own changes are invisible until the command ends, and visible after it; a reset does not change that (B38).
    A23 = "A23";
    /// No answer shows another transaction's uncommitted or aborted row.
    A24 = "A24";
    /// A referenced entry is never freed, moved or altered.
    A39 = "A39";
    /// After a local miss the local view holds nothing whose message was queued before it.
    Composite = "composite";
    /// A load with no bracket near it leaves a valid entry.
    Useful = "useful publication";
    /// A load whose publication was useless leaves no snapshot behind that would make the next one useless.
    Renewed = "renewed snapshot";
    /// A publication never replaces an entry by one with an older token.
    Newest = "newest stays";
    /// Each stamp counts just the brackets that are open.
    Balance = "balance";
    /// Each entry counts just the references that are held, and none that is unlinked and unreferenced stays.
    Leak = "references";
}
