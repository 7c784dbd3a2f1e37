//! What the backends of a scope do: operations, plans made of them, and the sizes of what they share.
//!
//! A *plan* is a list of items, each a short sequence of operations, and the number of items that the backend may start.
//! A litmus file's script is a plan with one item that is started once; a role of a scope is a menu of several.

use super::fault::Fault;

/// Index of a key in [`Program::keys`].
pub type Key = u8;

/// One thing that a backend can be asked to do. Each takes one or more atomic steps ([`super::step::Step`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// Look a key up (local view, shared table, catalog).
    Lookup(Key),
    /// Process the invalidation messages (A2).
    Accept,
    /// Start a transaction; accepts messages (A3).
    Begin,
    /// Put a row where none was.
    Insert(Key),
    /// Put a new version of a row.
    Update(Key),
    /// Take a row away.
    Delete(Key),
    /// Make the own changes of this command visible to the own transaction (A23).
    CommandEnd,
    /// Start a subtransaction; the running command must have changed nothing (A26).
    SubBegin,
    /// End a subtransaction and keep what it did: the parent has then done it (A26).
    SubCommit,
    /// End a subtransaction and undo what it did, and nothing else (A26, A27).
    SubAbort,
    /// Commit (A15).
    Commit,
    /// A commit whose step P fails after its brackets were opened.
    CommitFails,
    /// Abort (A18).
    Abort,
    /// Unlink and free the shared entry of a key if nobody refers to it.
    Evict(Key),
}

impl Op {
    /// The key that the operation names.
    pub fn key(self) -> Option<Key> {
        match self {
            Op::Lookup(k) | Op::Insert(k) | Op::Update(k) | Op::Delete(k) | Op::Evict(k) => Some(k),
            Op::Accept | Op::Begin | Op::CommandEnd | Op::SubBegin | Op::SubCommit | Op::SubAbort => None,
            Op::Commit | Op::CommitFails | Op::Abort => None,
        }
    }
}

/// What one backend may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The backend's name in diagrams and outcomes.
    pub name: String,
    /// Each item is run to its end once started.
    pub items: Vec<Vec<Op>>,
    /// How many items may be started in all, each any number of times.
    pub starts: u8,
}

impl Plan {
    /// A plan that runs `ops` once.
    pub fn script(name: &str, ops: &[Op]) -> Self {
        Plan { name: name.into(), items: vec![ops.to_vec()], starts: 1 }
    }

    /// A plan that starts `starts` items of a menu.
    pub fn menu(name: &str, starts: u8, items: &[&[Op]]) -> Self {
        Plan { name: name.into(), items: items.iter().map(|i| i.to_vec()).collect(), starts }
    }
}

/// A key: keys with equal `cache` and `hash` can't be told apart by a message (A28).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// Name in diagrams and outcomes.
    pub name: String,
    /// Cache id.
    pub cache: u8,
    /// Hash.
    pub hash: u32,
    /// Has the key a row at the start?
    pub present: bool,
    /// Does a load of this key accept messages between its scan and its publication, as detoasting does (A13)?
    pub toasted: bool,
}

impl KeySpec {
    /// A key with a row, not toasted.
    pub fn new(name: &str, cache: u8, hash: u32) -> Self {
        KeySpec { name: name.into(), cache, hash, present: true, toasted: false }
    }

    /// The same key without a row at the start.
    pub fn absent(mut self) -> Self {
        self.present = false;
        self
    }

    /// The same key, its load accepting messages before it publishes.
    pub fn toasted(mut self) -> Self {
        self.toasted = true;
        self
    }
}

/// A bounded system: who does what, over which keys, with which sizes, and which rule is broken on purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Keys.
    pub keys: Vec<KeySpec>,
    /// Stripe stamps, a power of two; the stripe of a key is `hash & (stripes - 1)`.
    pub stripes: u32,
    /// Capacity of the message ring.
    pub ring: u16,
    /// Slots for shared entries; `None`: enough for every key, and memory is not modelled (see [`Program::memory`]).
    pub entries: Option<u8>,
    /// Bound of the local view, enforced at accept.
    pub local: Option<u8>,
    /// Backends.
    pub plans: Vec<Plan>,
    /// May a token step read an old clock? An acquire load may; a sequentially consistent run never does.
    pub stale_tokens: bool,
    /// Keep every answer in the state, for outcomes.
    pub record: bool,
    /// The rule that is broken.
    pub fault: Option<Fault>,
}

impl Program {
    /// Are slots and references part of the state?
    ///
    /// Where nothing evicts, trims or withdraws and slots never run out, allocating, releasing and freeing touch words
    /// that no other step reads: they commute with everything, so the model leaves them out. (A withdrawn bracket lets an
    /// entry become good again after somebody has found it bad; telling two entries of one key apart then takes slots.)
    pub fn memory(&self) -> bool {
        self.entries.is_some()
            || self.local.is_some()
            || self.ops().any(|op| matches!(op, Op::Evict(_) | Op::CommitFails))
    }

    /// All operations of all plans.
    pub fn ops(&self) -> impl Iterator<Item = Op> + '_ {
        self.plans.iter().flat_map(|p| p.items.iter().flatten().copied())
    }

    /// The stripe of a key.
    pub fn stripe(&self, key: Key) -> usize {
        (self.keys[key as usize].hash & (self.stripes - 1)) as usize
    }

    /// What a message can say about a key: the first key with its cache and hash.
    pub fn class(&self, key: Key) -> Key {
        let k = &self.keys[key as usize];
        let same = |o: &KeySpec| o.cache == k.cache && o.hash == k.hash;
        self.keys.iter().position(same).unwrap_or(key as usize) as Key
    }

    /// Slots in the table.
    pub fn slots(&self) -> usize {
        if self.memory() {
            self.entries.map_or(self.keys.len() + 2 * self.plans.len(), usize::from)
        } else {
            self.keys.len()
        }
    }
}
