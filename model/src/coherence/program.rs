//! What the backends of a scope do: operations, plans made of them, and the sizes of what they share.
//!
//! A *plan* is a list of items, each a short sequence of operations, and the number of items that the backend may start.
//! A litmus file's script is a plan with one item that is started once; a role of a scope is a menu of several.

use super::fault::Fault;
use smallvec::{SmallVec, smallvec};

/// Index of a key in [`Program::keys`].
pub type Key = u8;

/// What can be looked up: a key, or, from the number of keys on, a list in [`Program::lists`].
pub type Item = u8;

/// Members of a list.
pub const MEMBERS: usize = 2;

/// What a message says: a class of keys ([`Program::class`]), or a class with [`CATALOG`] or [`DATABASE`]: all of its
/// catalog, or of its database.
pub type Message = u8;

/// A message about the whole catalog of a class.
pub const CATALOG: Message = 0x40;

/// A message about the whole database of a class.
pub const DATABASE: Message = 0x80;

/// The key that a message is built on.
const CLASS: Message = 0x3f;

/// One thing that a backend can be asked to do. Each takes one or more atomic steps ([`super::step::Step`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// Look a key or a list up (local view, shared table, catalog).
    Lookup(Item),
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
    /// Change the bytes of a committed row where it lies, whatever becomes of the transaction (A58). Waits for the row's lock.
    InPlace(Key),
    /// Rewrite the whole catalog that a key is in: every row gets a new place (A32).
    Rewrite(Key),
    /// Drop the database that a key is in: none of its rows is left (D30).
    DropDatabase(Key),
}

impl Op {
    /// The key, or the list, that the operation names.
    pub fn key(self) -> Option<Item> {
        match self {
            Op::Lookup(k) | Op::Insert(k) | Op::Update(k) | Op::Delete(k) | Op::Evict(k) => Some(k),
            Op::InPlace(k) | Op::Rewrite(k) | Op::DropDatabase(k) => Some(k),
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
    /// The database that the backend is connected to.
    pub database: u8,
}

impl Plan {
    /// A plan that runs `ops` once.
    pub fn script(name: &str, ops: &[Op]) -> Self {
        Plan { name: name.into(), items: vec![ops.to_vec()], starts: 1, database: 1 }
    }

    /// A plan that starts `starts` items of a menu.
    pub fn menu(name: &str, starts: u8, items: &[&[Op]]) -> Self {
        Plan { name: name.into(), items: items.iter().map(|i| i.to_vec()).collect(), starts, database: 1 }
    }

    /// The same plan, for a backend of another database.
    pub fn of(mut self, database: u8) -> Self {
        self.database = database;
        self
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
    /// Database; 0: the catalog is shared by all (A57).
    pub database: u8,
    /// Has the key a row at the start?
    pub present: bool,
    /// Does a load of this key accept messages between its scan and its publication, as detoasting does (A13)?
    pub toasted: bool,
}

impl KeySpec {
    /// A key with a row, not toasted.
    pub fn new(name: &str, cache: u8, hash: u32) -> Self {
        KeySpec { name: name.into(), cache, hash, database: 1, present: true, toasted: false }
    }

    /// The same key without a row at the start.
    pub fn absent(mut self) -> Self {
        self.present = false;
        self
    }

    /// The same key in another database, or (0) in a catalog that all databases share.
    pub fn of(mut self, database: u8) -> Self {
        self.database = database;
        self
    }

    /// The same key, its load accepting messages before it publishes.
    pub fn toasted(mut self) -> Self {
        self.toasted = true;
        self
    }
}

/// A list: the rows of a partial key (A37). Which keys are of it is in the keys themselves; which of them have a row is what it
/// says. A row whose key changes leaves one list and enters another: that is a delete and an insert, with two messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListSpec {
    /// Name in diagrams and outcomes.
    pub name: String,
    /// The keys that may be members, all of one cache and database.
    pub members: [Key; MEMBERS],
}

/// A bounded system: who does what, over which keys, with which sizes, and which rule is broken on purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Keys.
    pub keys: Vec<KeySpec>,
    /// Lists.
    pub lists: Vec<ListSpec>,
    /// Stripe stamps, a power of two; the stripe of a key is `hash & (stripes - 1)`.
    pub stripes: u32,
    /// Capacity of the message ring.
    pub ring: u16,
    /// Slots for shared entries; `None`: enough for every key, and memory is not modelled (see [`Program::memory`]).
    pub entries: Option<u8>,
    /// Bound of the local view, enforced at accept.
    pub local: Option<u8>,
    /// A bracket of more rows than this opens the stamps of their catalogs instead.
    pub escalate: Option<u8>,
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

    /// Can a bracket open the stamps of catalogs? Where it can't, nobody need look at them.
    pub fn opens_catalogs(&self) -> bool {
        self.escalate.is_some() || self.ops().any(|op| matches!(op, Op::Rewrite(_)))
    }

    /// Can a bracket open the stamps of databases?
    pub fn opens_databases(&self) -> bool {
        self.ops().any(|op| matches!(op, Op::DropDatabase(_)))
    }

    /// Stamps of catalogs; the one of a catalog is `cache & (catalogs - 1)`. 0 where nobody opens them.
    pub fn catalogs(&self) -> usize {
        let most = self.keys.iter().map(|k| usize::from(k.cache)).max().unwrap_or(0);
        if self.opens_catalogs() { (most + 1).next_power_of_two() } else { 0 }
    }

    /// Stamps of databases; the one of a database is `database & (databases - 1)`. 0 where nobody opens them.
    pub fn databases(&self) -> usize {
        let most = self.keys.iter().map(|k| usize::from(k.database)).max().unwrap_or(0);
        if self.opens_databases() { (most + 1).next_power_of_two() } else { 0 }
    }

    /// Are there lists? If not, nobody need open the stamps of lists.
    pub fn opens_lists(&self) -> bool {
        !self.lists.is_empty()
    }

    /// Stamps of lists; the one of a cache's lists is `cache & (lists - 1)`. 0 where there are no lists.
    pub fn list_stamps(&self) -> usize {
        let most = self.keys.iter().map(|k| usize::from(k.cache)).max().unwrap_or(0);
        if self.opens_lists() { (most + 1).next_power_of_two() } else { 0 }
    }

    /// All stamps: stripes, lists, catalogs, databases.
    pub fn stamps(&self) -> usize {
        self.stripes as usize + self.list_stamps() + self.catalogs() + self.databases()
    }

    fn list_stamp(&self, key: Key) -> Option<usize> {
        let index = |n: usize| self.stripes as usize + (usize::from(self.keys[key as usize].cache) & (n - 1));
        Some(self.list_stamps()).filter(|n| *n > 0).map(index)
    }

    fn catalog_stamp(&self, key: Key) -> Option<usize> {
        let first = self.stripes as usize + self.list_stamps();
        let index = |n: usize| first + (usize::from(self.keys[key as usize].cache) & (n - 1));
        Some(self.catalogs()).filter(|n| *n > 0).map(index)
    }

    fn database_stamp(&self, key: Key) -> Option<usize> {
        let first = self.stripes as usize + self.list_stamps() + self.catalogs();
        let index = |n: usize| first + (usize::from(self.keys[key as usize].database) & (n - 1));
        Some(self.databases()).filter(|n| *n > 0).map(index)
    }

    /// The stamps of an entry, in the order in which they are checked.
    pub fn stamps_of(&self, item: Item) -> impl Iterator<Item = usize> {
        let (first, key) = match self.list(item) {
            Some(list) => (self.list_stamp(list.members[0]), list.members[0]),
            None => (Some(self.stripe(item)), item),
        };
        [first, self.catalog_stamp(key), self.database_stamp(key)].into_iter().flatten()
    }

    /// The list of an item; `None`: it is a key.
    pub fn list(&self, item: Item) -> Option<&ListSpec> {
        self.lists.get(usize::from(item).checked_sub(self.keys.len())?)
    }

    /// Keys and lists.
    pub fn items(&self) -> usize {
        self.keys.len() + self.lists.len()
    }

    /// The name of a key or a list.
    pub fn name(&self, item: Item) -> &str {
        self.list(item).map_or_else(|| self.keys[item as usize].name.as_str(), |list| list.name.as_str())
    }

    /// The keys whose rows an item shows.
    pub fn parts(&self, item: Item) -> SmallVec<[Key; MEMBERS]> {
        self.list(item).map_or_else(|| smallvec![item], |list| SmallVec::from_slice(&list.members))
    }

    /// Where the ghosts of an item's answers lie: one cell for each part.
    pub fn cells(&self, item: Item) -> std::ops::Range<usize> {
        let (item, keys) = (usize::from(item), self.keys.len());
        if item < keys { item..item + 1 } else { keys + (item - keys) * MEMBERS..keys + (item - keys + 1) * MEMBERS }
    }

    /// All cells.
    pub fn all_cells(&self) -> usize {
        self.keys.len() + self.lists.len() * MEMBERS
    }

    /// The stamps that a bracket for these messages opens, ascending, each once.
    pub fn stamps_for(&self, messages: &[Message]) -> SmallVec<[u8; 4]> {
        let rows = messages.iter().filter(|m| **m & !CLASS == 0).count();
        let escalated = self.escalate.is_some_and(|most| rows > usize::from(most));
        let stamp = |m: &Message| match *m & !CLASS {
            0 if escalated => [self.catalog_stamp(*m), None],
            0 => [Some(self.stripe(*m)), self.list_stamp(*m)],
            CATALOG => [self.catalog_stamp(*m & CLASS), None],
            _ => [self.database_stamp(*m & CLASS), None],
        };
        let mut stamps: SmallVec<[u8; 4]> = messages.iter().flat_map(stamp).flatten().map(|s| s as u8).collect();
        stamps.sort_unstable();
        stamps.dedup();
        stamps
    }

    /// What a message can say about a key: the first key with its database, cache and hash.
    pub fn class(&self, key: Key) -> Message {
        let k = &self.keys[key as usize];
        self.first(key, |o| o.cache == k.cache && o.hash == k.hash && o.database == k.database)
    }

    /// The message about the whole catalog of a key.
    pub fn catalog_of(&self, key: Key) -> Message {
        let k = &self.keys[key as usize];
        CATALOG | self.first(key, |o| o.cache == k.cache && o.database == k.database)
    }

    /// The message about the whole database of a key.
    pub fn database_of(&self, key: Key) -> Message {
        let k = &self.keys[key as usize];
        DATABASE | self.first(key, |o| o.database == k.database)
    }

    fn first(&self, key: Key, same: impl Fn(&KeySpec) -> bool) -> Key {
        self.keys.iter().position(same).unwrap_or(key as usize) as Key
    }

    /// Does a message name an item? A list is named by every message of its cache (A28).
    pub fn names(&self, message: Message, item: Item) -> bool {
        let Some(list) = self.list(item) else { return self.names_key(message, item) };
        let key = list.members[0];
        match message & !CLASS {
            0 => self.catalog_of(message) == self.catalog_of(key),
            _ => self.names_key(message, key),
        }
    }

    fn names_key(&self, message: Message, key: Key) -> bool {
        message
            == match message & !CLASS {
                0 => self.class(key),
                CATALOG => self.catalog_of(key),
                _ => self.database_of(key),
            }
    }

    /// The keys that a message names.
    pub fn named(&self, message: Message) -> impl Iterator<Item = Key> + '_ {
        (0..self.keys.len() as Key).filter(move |k| self.names_key(message, *k))
    }

    /// Is a message about a catalog that all databases share (A57)?
    pub fn is_shared(&self, message: Message) -> bool {
        self.keys[(message & CLASS) as usize].database == 0
    }

    /// Is a message for a backend (A31, A57)?
    pub fn concerns(&self, message: Message, backend: usize) -> bool {
        let database = self.keys[(message & CLASS) as usize].database;
        self.is_shared(message) || database == self.plans[backend].database
    }

    /// Slots in the table.
    pub fn slots(&self) -> usize {
        if self.memory() { self.entries.map_or(self.items() + 2 * self.plans.len(), usize::from) } else { self.items() }
    }
}
