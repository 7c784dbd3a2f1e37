//! The refinement map: which value of the code each variable of the model stands for.
//!
//! | model | code | changes at |
//! | --- | --- | --- |
//! | `State::clock` | `SharedImage::clock` | Advance |
//! | `State::stamps[i]` | `SharedImage::stripes`, then `catalogs` and `databases` | Open, Close, Withdraw |
//! | `State::ring.tail` | `SharedImage::ring_tail` | Send |
//! | `Backend::position`, `reset` | `SharedImage::ring_positions` | Accept, Send |
//! | `State::slots[s]`, linked or unlinked | `SharedImage::entries`, by the place where the slot lies | Publish, Unlink, Evict, Find, Release |
//! | `Slot::references` | `EntryImage::references` | Find, Publish, Unlink, Release |
//! | free slots | `SharedImage::free_slots` | Allocate, Free |
//! | `Backend::local[k]` | `PrivateImage::local` | LocalHit…Publish, Accept, CommandEnd, SubCommit, SubAbort, Undo |
//! | `Backend::snapshot.token` | `PrivateImage::snapshot` | Snapshot, Accept, CommandEnd, Close, Undo, Check |
//! | `Backend::dirty()`, level by level | `PrivateImage::dirty` | Write, CommandEnd, SubBegin, SubCommit, SubAbort, Close, Undo, Accept |
//! | `Row` (version and presence) | the row's bytes, which name the write that made them | Write, Overwrite |
//! | `Step`, `Seen` | `Step`, `Seen` of the probe | every step |
//!
//! Each step is one lock section or one atomic access of the code, and the probe reports it inside that section, so the
//! order of the reports is the order of the effects. What the code does privately between two reports belongs to the
//! step before, as in the model.
//!
//! The model leaves out what no step of a program reads: checks of catalog and database stamps where nobody opens them, and
//! allocation, release and freeing where memory is not modelled. The code does those steps too; they are not compared.

use crate::litmus::{Litmus, Op as LitmusOp, Value};
use catcache_model::coherence::program::{CATALOG, DATABASE};
use catcache_model::coherence::state::{Life, NONE, Pc, Row};
use catcache_model::coherence::{KeySpec, Op, Plan, Program, Seen, State, Step};
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
    /// Its key, as an index of the litmus file.
    pub key: u8,
    /// The write that made its row; `None`: a negative entry.
    pub writer: Option<Writer>,
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
    /// Mark and open brackets of each stamp that is part of the model: stripes, catalogs, databases.
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
    /// Its key, as an index of the litmus file.
    pub key: u8,
    /// The shared entry that it refers to, if it is not private.
    pub entry: Option<u32>,
    /// The write that made its row; `None`: a negative entry.
    pub writer: Option<Writer>,
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
}

/// A litmus file as a program of the model, and how its keys are numbered there.
///
/// The model numbers keys in the order in which the code compares them: database, cache, hash, bytes (the bytes are the index
/// in the file).
#[derive(Clone, Debug)]
pub struct Map {
    /// The program.
    pub program: Program,
    /// Model index of each key of the file.
    pub to_model: Vec<u8>,
    /// File index of each key of the model.
    pub to_file: Vec<u8>,
    /// Database, cache and hash of each key of the file.
    pub names: Vec<(u32, u8, u32)>,
}

impl Map {
    /// The program of a litmus file.
    pub fn new(litmus: &Litmus) -> Map {
        let names = names(litmus);
        let mut to_file: Vec<u8> = (0..litmus.keys.len() as u8).collect();
        to_file.sort_by_key(|k| (names[*k as usize], *k));
        let mut to_model = vec![0; to_file.len()];
        for (model, file) in to_file.iter().enumerate() {
            to_model[*file as usize] = model as u8;
        }
        let keys = to_file
            .iter()
            .map(|k| {
                let decl = &litmus.keys[*k as usize];
                let (database, cache, hash) = names[*k as usize];
                let (name, present, toasted) = (decl.name.clone(), !decl.absent, decl.toasted);
                KeySpec { name, cache, hash, database: database as u8, present, toasted }
            })
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
        let extra = if program.memory() { 0 } else { writes + 2 * program.plans.len() };
        let at_least_one = |n: usize| n.max(1) as u32;
        Sizes {
            slots: (program.slots() + extra) as u32,
            catalogs: at_least_one(program.catalogs()),
            databases: at_least_one(program.databases()),
        }
    }

    /// A row of the model as a litmus file names it.
    pub fn value(row: Row) -> Value {
        if row.present() { Value::Version(u32::from(row.version())) } else { Value::None }
    }

    /// What a message of the model is about.
    fn change(&self, message: u8) -> Change {
        let (database, cache, hash) = self.names[self.to_file[(message & !(CATALOG | DATABASE)) as usize] as usize];
        match message & (CATALOG | DATABASE) {
            0 => Change::Row(database, cache, hash),
            CATALOG => Change::Catalog(database, cache),
            _ => Change::Database(database),
        }
    }
}

/// Database, cache and hash of each key of a file.
pub fn names(litmus: &Litmus) -> Vec<(u32, u8, u32)> {
    let name = |k: usize| (litmus.keys[k].database, litmus.cache_id(k), litmus.keys[k].hash);
    (0..litmus.keys.len()).map(name).collect()
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
            if !self.row_is(program, slot.key, entry.writer, slot.row) {
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
                return differ("local view", &code.local, (&program.keys[k].name, local));
            };
            if !self.row_is(program, k as u8, entry.writer, local.row) {
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
    pub fn answer(&self, map: &Map, file_key: u8, code: Option<Writer>, model: Row) -> Result<(), Mismatch> {
        let key = map.to_model[file_key as usize];
        if self.row_is(&map.program, key, code, model) { Ok(()) } else { differ("answer", code, model) }
    }
}

/// Is a backend of the model between two operations, with nothing left to do?
pub fn at_rest(state: &State, backend: u8) -> bool {
    let b = &state.backends[backend as usize];
    b.pc == Pc::Idle && b.idle()
}
