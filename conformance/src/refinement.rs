//! The refinement map: which value of the code each variable of the model stands for.
//!
//! | model | code | changes at |
//! | --- | --- | --- |
//! | `State::clock` | `SharedImage::clock` | Advance |
//! | `State::stamps[i]` | `SharedImage::stripes`, then `lists`, `catalogs` and `databases` | Open, Close, Withdraw |
//! | `State::ring.tail` | `SharedImage::ring_tail` | Send |
//! | `Backend::position`, `reset` | `SharedImage::ring_positions` | Accept, Send |
//! | `State::slots[s]`, linked or unlinked | `SharedImage::entries`, by the place where the slot lies | Publish, Unlink, Evict, Find, Release |
//! | `Slot::references` | `EntryImage::references` | Find, Publish, Unlink, Release |
//! | `Slot::members` | `EntryImage::members` | Publish |
//! | free slots | `SharedImage::free_slots` | Allocate, Free |
//! | `Backend::local[k]` | `PrivateImage::local`, then `lists` | LocalHit…Publish, Accept, CommandEnd, SubCommit, SubAbort, Undo |
//! | `Backend::snapshot.token` | `PrivateImage::snapshot` | Snapshot, Accept, CommandEnd, Close, Undo, Check |
//! | `Backend::dirty()`, level by level | `PrivateImage::dirty` | Write, CommandEnd, SubBegin, SubCommit, SubAbort, Close, Undo, Accept |
//! | `Row` (version and presence) | the row's bytes, which name the write that made them | Write, Overwrite |
//! | `Step`, `Seen` | `Step`, `Seen` of the probe | every step |
//!
//! Each step is one lock section or one atomic access of the code, and the probe reports it inside that section, so the
//! order of the reports is the order of the effects. What the code does privately between two reports belongs to the
//! step before, as in the model.
//!
//! The model leaves out what no step of a program reads: checks of list, catalog and database stamps where nobody opens them, and
//! allocation, release and freeing where memory is not modelled. The code does those steps too; they are not compared.

use crate::desk::Answered;
use crate::litmus::{Litmus, Op as LitmusOp, Value};
use catcache_model::coherence::program::MEMBERS;
use catcache_model::coherence::program::{CATALOG, DATABASE};
use catcache_model::coherence::state::{Answer, Life, NONE, Pc, Row};
use catcache_model::coherence::{KeySpec, ListSpec, Op, Plan, Program, Seen, State, Step};
use std::collections::BTreeMap;

/// What a step of the code saw, as the probe reported it; places are offsets in the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the same fields as the probe's `Seen`")]
pub enum Saw {
    Nothing,
    Messages { count: u32, reset: bool },
    Found(Option<u32>),
    Stamp { mark: u64, open: u32 },
    Clock(u64),
    Slot(Option<u32>),
    Published { entry: u32, replaced: Option<u32>, existing: bool },
    Unlinked { entry: u32, free: bool },
    Released { entry: u32, free: bool },
    Evicted(Option<u32>),
    Freed(u32),
    Row { present: bool },
    Fail,
}

/// A step of the code, in the order in which it took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Which backend.
    pub backend: u8,
    /// Its step, in the model's words; `None` for a step that this part of the model leaves out.
    pub step: Option<Step>,
    /// What it saw.
    pub saw: Saw,
}

/// An entry of the segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryView {
    /// Where it lies.
    pub at: u32,
    /// Its key or list, as an index of the litmus file.
    pub key: u8,
    /// The write that made its row; `None`: a negative entry. Of a list, the first member's.
    pub writer: Option<Writer>,
    /// Of a list, the second member's.
    pub second: Option<Writer>,
    /// Of a list, where the entries of its members lie.
    pub members: Vec<u32>,
    /// Its token.
    pub token: u64,
    /// Is it found by probes?
    pub linked: bool,
    /// References held.
    pub references: u32,
}

/// The shared state, as the code's `peek` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedView {
    /// The clock.
    pub clock: u64,
    /// Mark and open brackets of each stamp that is part of the model: stripes, lists, catalogs, databases.
    pub stamps: Vec<(u64, u32)>,
    /// Entries, linked or not.
    pub entries: Vec<EntryView>,
    /// Messages ever sent.
    pub ring_tail: u64,
    /// Position and reset flag of each backend.
    pub positions: Vec<(u64, bool)>,
    /// Slots in the free list.
    pub free_slots: u32,
}

/// One entry of a local view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalView {
    /// Its key or list, as an index of the litmus file.
    pub key: u8,
    /// The shared entry that it refers to, if it is not private.
    pub entry: Option<u32>,
    /// The write that made its row; `None`: a negative entry. Of a list, the first member's.
    pub writer: Option<Writer>,
    /// Of a list, the second member's.
    pub second: Option<Writer>,
}

/// A backend's private state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrivateView {
    /// The local view.
    pub local: Vec<LocalView>,
    /// The token of the catalog snapshot.
    pub snapshot: Option<u64>,
    /// The dirty set, in order.
    pub dirty: Vec<Change>,
}

/// What a message is about: database, cache, hash, as far as it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the same fields as the code's `Message`")]
pub enum Change {
    Row(u32, u8, u32),
    Catalog(u32, u8),
    Database(u32),
}

/// How large the code's segment is made for a litmus file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Slots of the table.
    pub slots: u32,
    /// Stamps of lists.
    pub lists: u32,
    /// Stamps of catalogs.
    pub catalogs: u32,
    /// Stamps of databases.
    pub databases: u32,
}

/// Which write made a row: the rows of a run are these two bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Writer {
    /// The backend; 255 for the first row.
    pub backend: u8,
    /// Its operation.
    pub op: u8,
}

impl Writer {
    /// The first row of every key.
    pub const FIRST: Writer = Writer { backend: u8::MAX, op: u8::MAX };

    /// Who made a row that no run could have written.
    pub const NOBODY: Writer = Writer { backend: u8::MAX - 1, op: 0 };

    /// The row that it writes.
    pub fn bytes(self) -> [u8; 2] {
        [self.backend, self.op]
    }

    /// The writer of a row; `None` if no run could have written such bytes (a torn or foreign row).
    pub fn of(row: &[u8]) -> Option<Writer> {
        match row {
            [backend, op] => Some(Writer { backend: *backend, op: *op }),
            _ => None,
        }
    }

    /// Likewise, but such a row shows as [`Writer::NOBODY`]'s, so that every comparison fails on it.
    pub fn shown(row: Option<&[u8]>) -> Option<Writer> {
        row.map(|row| Writer::of(row).unwrap_or(Writer::NOBODY))
    }
}

/// What the code calls a key or a list of a litmus file. The fields stand in the order in which the code compares them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// Database.
    pub database: u32,
    /// Cache.
    pub cache: u8,
    /// Hash.
    pub hash: u32,
    /// Of a list, its number. Of a key, the number of the list that it may be a member of, and its index in the file: so a
    /// list's bytes are what the keys of its members begin with.
    pub bytes: Vec<u8>,
}

/// The names of a file's keys and lists, and what lists consist of.
#[derive(Clone, Debug)]
pub struct Names {
    /// Keys, then lists.
    pub items: Vec<Name>,
    /// The keys of each list.
    pub lists: Vec<[u8; MEMBERS]>,
    keys: usize,
}

/// The number of the list of keys that are in none.
const NO_LIST: u8 = u8::MAX;

impl Names {
    /// Of a file.
    pub fn new(litmus: &Litmus) -> Names {
        let key = |k: usize| {
            let list = litmus.lists.iter().position(|list| list.members.contains(&k));
            let bytes = vec![list.map_or(NO_LIST, |l| l as u8), k as u8];
            let decl = &litmus.keys[k];
            Name { database: decl.database, cache: litmus.cache_id(k), hash: decl.hash, bytes }
        };
        let keys = litmus.keys.len();
        let mut items: Vec<Name> = (0..keys).map(key).collect();
        for (l, list) in litmus.lists.iter().enumerate() {
            items.push(Name { hash: list.hash, bytes: vec![l as u8], ..items[list.members[0]].clone() });
        }
        let lists = litmus.lists.iter().map(|list| list.members.map(|k| k as u8)).collect();
        Names { items, lists, keys }
    }

    /// Is it the index of a list?
    pub fn is_list(&self, item: usize) -> bool {
        item >= self.keys
    }

    /// The index of a key, by its bytes.
    pub fn key(&self, bytes: &[u8]) -> u8 {
        bytes.last().copied().unwrap_or(u8::MAX)
    }

    /// The index of a list, by its bytes.
    pub fn list(&self, bytes: &[u8]) -> u8 {
        bytes.first().copied().unwrap_or(u8::MAX).saturating_add(self.keys as u8)
    }

    /// The writers of a list's members, each at its place, from the keys and rows that the list shows. A row that is none of the
    /// list's shows as a writer that doesn't exist in both.
    pub fn members<'r>(&self, list: u8, rows: impl IntoIterator<Item = (u8, &'r [u8])>) -> [Option<Writer>; MEMBERS] {
        let mut writers = [None; MEMBERS];
        let members = self.lists.get(usize::from(list).wrapping_sub(self.keys));
        for (key, row) in rows {
            match members.and_then(|members| members.iter().position(|member| *member == key)) {
                Some(place) if writers[place].is_none() => writers[place] = Writer::shown(Some(row)),
                _ => return [Some(Writer::NOBODY); MEMBERS],
            }
        }
        writers
    }
}

/// A litmus file as a program of the model, and how its keys are numbered there.
///
/// The model numbers keys in the order in which the code compares them, and lists behind them in the same order.
#[derive(Clone, Debug)]
pub struct Map {
    /// The program.
    pub program: Program,
    /// Model index of each key and list of the file.
    pub to_model: Vec<u8>,
    /// File index of each key and list of the model.
    pub to_file: Vec<u8>,
    /// The names of the file's keys and lists.
    pub names: Names,
}

impl Map {
    /// The program of a litmus file.
    pub fn new(litmus: &Litmus) -> Map {
        let names = Names::new(litmus);
        let mut to_file: Vec<u8> = (0..names.items.len() as u8).collect();
        to_file.sort_by_key(|item| (usize::from(*item) >= litmus.keys.len(), &names.items[usize::from(*item)]));
        let mut to_model = vec![0; to_file.len()];
        for (model, file) in to_file.iter().enumerate() {
            to_model[*file as usize] = model as u8;
        }
        let (keys, lists) = to_file.split_at(litmus.keys.len());
        let keys = keys
            .iter()
            .map(|k| {
                let decl = &litmus.keys[*k as usize];
                let Name { database, cache, hash, .. } = names.items[*k as usize];
                let (name, present, toasted) = (decl.name.clone(), !decl.absent, decl.toasted);
                KeySpec { name, cache, hash, database: database as u8, present, toasted }
            })
            .collect();
        let lists = lists
            .iter()
            .filter_map(|item| litmus.list(usize::from(*item)))
            .map(|list| ListSpec { name: list.name.clone(), members: list.members.map(|k| to_model[k]) })
            .collect();
        let op = |op: &LitmusOp| match *op {
            LitmusOp::Lookup(k) => Op::Lookup(to_model[k]),
            LitmusOp::Accept => Op::Accept,
            LitmusOp::Begin => Op::Begin,
            LitmusOp::Insert(k) => Op::Insert(to_model[k]),
            LitmusOp::Update(k) => Op::Update(to_model[k]),
            LitmusOp::Delete(k) => Op::Delete(to_model[k]),
            LitmusOp::CommandEnd => Op::CommandEnd,
            LitmusOp::SubBegin => Op::SubBegin,
            LitmusOp::SubCommit => Op::SubCommit,
            LitmusOp::SubAbort => Op::SubAbort,
            LitmusOp::Commit => Op::Commit,
            LitmusOp::CommitFails => Op::CommitFails,
            LitmusOp::Abort => Op::Abort,
            LitmusOp::Evict(k) => Op::Evict(to_model[k]),
            LitmusOp::InPlace(k) => Op::InPlace(to_model[k]),
            LitmusOp::Rewrite(k) => Op::Rewrite(to_model[k]),
            LitmusOp::DropDatabase(k) => Op::DropDatabase(to_model[k]),
        };
        let plans = litmus
            .backends
            .iter()
            .map(|b| Plan {
                name: b.name.clone(),
                items: vec![b.ops.iter().map(op).collect()],
                starts: 1,
                database: b.database as u8,
            })
            .collect();
        let program = Program {
            keys,
            lists,
            stripes: litmus.stripes,
            ring: litmus.ring as u16,
            entries: litmus.entries.map(|n| n as u8),
            local: litmus.local.map(|n| n as u8),
            escalate: litmus.escalate.map(|n| n as u8),
            plans,
            stale_tokens: false,
            record: true,
            fault: None,
        };
        Map { program, to_model, to_file, names }
    }

    /// How large the code's segment is made: with just the slots of the model where it counts them, else enough.
    pub fn sizes(&self) -> Sizes {
        let program = &self.program;
        let writes = |op: Op| match op {
            Op::Insert(_) | Op::Update(_) | Op::Delete(_) | Op::InPlace(_) => 1,
            Op::Rewrite(_) | Op::DropDatabase(_) => program.keys.len(),
            _ => 0,
        };
        let writes: usize = program.ops().map(writes).sum();
        // Of a list there are more versions than of a row, and each keeps its members.
        let versions = if program.lists.is_empty() { 1 } else { 1 + MEMBERS };
        let extra = if program.memory() { 0 } else { versions * (writes + 2 * program.plans.len()) };
        let at_least_one = |n: usize| n.max(1) as u32;
        Sizes {
            slots: (program.slots() + extra) as u32,
            lists: at_least_one(program.list_stamps()),
            catalogs: at_least_one(program.catalogs()),
            databases: at_least_one(program.databases()),
        }
    }

    /// An answer of the model as a litmus file names it; `second` is known of lists alone.
    pub fn value(row: Row, second: Row) -> Value {
        let version = |row: Row| row.present().then(|| u32::from(row.version()));
        if second.known() {
            Value::List([row, second].map(version))
        } else {
            version(row).map_or(Value::None, Value::Version)
        }
    }

    /// What a message of the model is about.
    fn change(&self, message: u8) -> Change {
        let key = self.to_file[(message & !(CATALOG | DATABASE)) as usize];
        let Name { database, cache, hash, .. } = self.names.items[usize::from(key)];
        match message & (CATALOG | DATABASE) {
            0 => Change::Row(database, cache, hash),
            CATALOG => Change::Catalog(database, cache),
            _ => Change::Database(database),
        }
    }
}

/// What connects one run of the code to the model: where slots lie, and which version each write made.
#[derive(Clone, Debug, Default)]
pub struct Correspondence {
    /// Offset of each model slot that is in use.
    places: BTreeMap<u8, u32>,
    /// Version that each write of a key (of the model) made.
    versions: BTreeMap<(u8, Writer), Row>,
}

/// The code and the model disagree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch(
    /// What each says.
    pub String,
);

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

fn differ(what: &str, code: impl std::fmt::Debug, model: impl std::fmt::Debug) -> Result<(), Mismatch> {
    Err(Mismatch(format!("{what}: the code has {code:?}, the model {model:?}")))
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, code: T, model: T) -> Result<(), Mismatch> {
    if code == model { Ok(()) } else { differ(what, code, model) }
}

impl Correspondence {
    /// Learns from a step of the model which versions it has made, and that the backend's running operation made them.
    pub fn learn(&mut self, before: &State, after: &State, backend: u8) {
        let (was, is) = (&before.backends[backend as usize], &after.backends[backend as usize]);
        let writer = Writer { backend, op: if was.item == NONE { 0 } else { was.at } };
        for key in 0..is.own.len() {
            let own = is.own[key].pending;
            let (old, new) = (before.catalog[key].committed, after.catalog[key].committed);
            if own.known() && own != was.own[key].pending {
                self.versions.insert((key as u8, writer), own);
            } else if old != new && was.own[key].newest() != new {
                // Changed in place.
                self.versions.insert((key as u8, writer), new);
            }
        }
    }

    fn row(&self, program: &Program, key: u8, writer: Option<Writer>) -> Option<Row> {
        match writer {
            Some(Writer::FIRST) => Some(Row::new(0, program.keys[key as usize].present)),
            Some(writer) => self.versions.get(&(key, writer)).copied(),
            None => None,
        }
    }

    /// Does a row of the code stand for a row of the model? A negative entry stands for any version without a row.
    fn row_is(&self, program: &Program, key: u8, writer: Option<Writer>, row: Row) -> bool {
        match writer {
            None => !row.present(),
            Some(_) => row.present() && self.row(program, key, writer) == Some(row),
        }
    }

    /// Likewise, for the key or the list, by its parts.
    fn rows_are(&self, program: &Program, item: u8, writers: [Option<Writer>; MEMBERS], rows: [Row; MEMBERS]) -> bool {
        let parts = program.parts(item);
        parts
            .iter()
            .zip(writers.into_iter().zip(rows))
            .all(|(key, (writer, row))| self.row_is(program, *key, writer, row))
    }

    /// The model slot whose entry lies at a place of the segment.
    pub fn slot_at(&self, at: Option<u32>) -> Option<u8> {
        self.places.iter().find(|(_, place)| Some(**place) == at).map(|(slot, _)| *slot)
    }

    fn place(&mut self, slot: u8, at: u32) -> Result<(), Mismatch> {
        match self.places.get(&slot) {
            Some(known) => same("place of the slot", at, *known),
            None => {
                self.places.insert(slot, at);
                Ok(())
            }
        }
    }

    /// Compares what a step saw with what the model's step saw, and learns where its slots lie.
    pub fn seen(&mut self, program: &Program, step: Step, saw: Saw, seen: Seen) -> Result<(), Mismatch> {
        let memory = program.memory();
        let ok = match (saw, seen) {
            (Saw::Nothing, Seen::Nothing) | (Saw::Fail, Seen::Fail) => true,
            (Saw::Row { present: code }, Seen::Row { present: model }) => code == model,
            (Saw::Messages { count, reset }, Seen::Messages { count: c, reset: r }) => {
                reset == r && (reset || count == u32::from(c))
            }
            (Saw::Stamp { mark, open }, Seen::Stamp(stamp)) => {
                (mark, open) == (u64::from(stamp.mark), u32::from(stamp.open))
            }
            (Saw::Clock(code), Seen::Clock(model)) => code == u64::from(model),
            (Saw::Found(code), Seen::Found(model))
            | (Saw::Slot(code), Seen::Slot(model))
            | (Saw::Evicted(code), Seen::Evicted(model)) => {
                if let (true, Some(at), Some(slot)) = (memory, code, model) {
                    self.place(slot, at)?;
                }
                code.is_some() == model.is_some()
            }
            (
                Saw::Published { entry, replaced, existing },
                Seen::Published { slot, replaced: unlinked, existing: stays },
            ) => {
                if memory {
                    self.place(slot, entry)?;
                    if let (Some(at), Some(slot)) = (replaced, unlinked) {
                        self.place(slot, at)?;
                    }
                }
                replaced.is_some() == unlinked.is_some() && existing == stays
            }
            (Saw::Unlinked { entry, free }, Seen::Unlinked { slot, free: last })
            | (Saw::Released { entry, free }, Seen::Released { slot, free: last }) => {
                if memory {
                    self.place(slot, entry)?;
                }
                !memory || free == last
            }
            (Saw::Freed(at), Seen::Freed(slot)) => {
                self.place(slot, at)?;
                self.places.remove(&slot);
                true
            }
            _ => false,
        };
        if ok { Ok(()) } else { differ(&format!("{step:?} saw"), saw, seen) }
    }

    /// Compares the shared state.
    pub fn shared(&self, map: &Map, code: &SharedView, model: &State) -> Result<(), Mismatch> {
        let program = &map.program;
        same("clock", code.clock, u64::from(model.clock))?;
        let stamps = model.stamps.iter().map(|s| (u64::from(s.mark), u32::from(s.open))).collect();
        same("stamps (mark, open)", code.stamps.clone(), stamps)?;
        same("tail of the ring", code.ring_tail, u64::from(model.ring.tail))?;
        let positions: Vec<(u64, bool)> = model.backends.iter().map(|b| (u64::from(b.position), b.reset)).collect();
        // The position of a backend in reset means nothing: it will jump.
        let settled = |v: &[(u64, bool)]| v.iter().map(|(p, r)| (if *r { 0 } else { *p }, *r)).collect::<Vec<_>>();
        same("positions in the ring (position, reset)", settled(&code.positions), settled(&positions))?;
        let linked = |e: &&EntryView| e.linked;
        for slot in model.slots.iter().filter(|s| s.linked()) {
            let file = map.to_file[slot.key as usize];
            let Some(entry) = code.entries.iter().filter(linked).find(|e| e.key == file) else {
                return differ("linked entry", "none", slot);
            };
            if !self.rows_are(program, slot.key, [entry.writer, entry.second], slot.rows()) {
                return differ("row of a linked entry", entry, slot);
            }
            same("token of a linked entry", entry.token, u64::from(slot.token))?;
        }
        let count = model.slots.iter().filter(|s| s.linked()).count();
        same("number of linked entries", code.entries.iter().filter(linked).count(), count)?;
        if program.memory() {
            for (i, slot) in model.slots.iter().enumerate() {
                if !matches!(slot.life, Life::Linked | Life::Unlinked) {
                    continue;
                }
                let at = self.places.get(&(i as u8));
                let Some(entry) = code.entries.iter().find(|e| Some(&e.at) == at) else {
                    return differ("entry of a slot", "none", (i, slot));
                };
                same("linked", entry.linked, slot.linked())?;
                same("references", entry.references, u32::from(slot.references))?;
                let members = slot.members.iter().filter_map(|member| self.places.get(member).copied()).collect();
                same("members", entry.members.clone(), members)?;
            }
            let free = model.slots.iter().filter(|s| s.life == Life::Free).count() as u32;
            same("free slots", code.free_slots, free)?;
        }
        Ok(())
    }

    /// Compares a backend's private state.
    pub fn private(&self, map: &Map, code: &PrivateView, model: &State, backend: u8) -> Result<(), Mismatch> {
        let program = &map.program;
        let b = &model.backends[backend as usize];
        let held = b.local.iter().filter(|l| l.row.known()).count();
        same("entries of the local view", code.local.len(), held)?;
        for (k, local) in b.local.iter().enumerate().filter(|(_, l)| l.row.known()) {
            let file = map.to_file[k];
            let Some(entry) = code.local.iter().find(|l| l.key == file) else {
                return differ("local view", &code.local, (program.name(k as u8), local));
            };
            if !self.rows_are(program, k as u8, [entry.writer, entry.second], local.rows()) {
                return differ("row in the local view", entry, local);
            }
            same("private entry", entry.entry.is_none(), local.slot == NONE)?;
            if program.memory() && local.slot != NONE {
                same("place of a local reference", entry.entry, self.places.get(&local.slot).copied())?;
            }
        }
        same("token of the snapshot", code.snapshot, b.snapshot.as_ref().map(|s| u64::from(s.token)))?;
        let dirty = b.dirty().iter().map(|m| map.change(*m)).collect();
        same("dirty set", code.dirty.clone(), dirty)
    }

    /// Compares an answer.
    pub fn answer(&self, map: &Map, code: &Answered, model: &Answer) -> Result<(), Mismatch> {
        let item = map.to_model[usize::from(code.key)];
        let same = self.rows_are(&map.program, item, [code.writer, code.second], [model.row, model.second]);
        if same { Ok(()) } else { differ("answer", code, model) }
    }
}

/// Is a backend of the model between two operations, with nothing left to do?
pub fn at_rest(state: &State, backend: u8) -> bool {
    let b = &state.backends[backend as usize];
    b.pc == Pc::Idle && b.idle()
}
