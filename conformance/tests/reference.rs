//! The model as reference machine: long random sequences of operations, of three sessions that run one after the other,
//! over a key space that no exploration could hold (64 keys over 2 caches, 8 hashes and 4 stripes, some absent, some toasted;
//! lists over three pairs of them; a ring of 8 messages; commits of more than 5 changes open catalogs). The suite's litmus files are short and interleaved; these are long and are not.
//!
//! An operation of the model is as many of its steps as it takes until the backend is idle again; none of them may break
//! a property. The same operation of the code is one call. After each, model and code are compared:
//!
//! * was the operation refused (a write on a key that another session has locked), and what did a lookup answer;
//! * clock, stamps, tail of the ring, each backend's position in it and whether it is to be reset;
//! * linked entries: key or list, rows, token; where slots are few, also unlinked ones, references and free slots;
//! * the session's local view, its snapshot's token and its dirty set.
//!
//! A row is four bytes, the number of the write that made it; which version that is, the model says.
//!
//! There are two variants. *Roomy*: a slot for whatever there is, so nothing is evicted and the model leaves memory out.
//! *Crowded*: 16 slots, with evictions on demand and commits that fail at P. Which entry goes when slots run out is
//! free: the model's choices are those of its step Evict, and the comparison has the model take the one that the code
//! took, if it is among them. So the machine that generates the sequences (which takes the first) and the one that is
//! compared may hold different entries; what an operation needs (locks, transactions) does not depend on it. A limit of
//! the local view is left out: what a trim drops is free too, and the probe does not tell.
//!
//! `PROPTEST_CASES` raises the number of sequences; a failing one is shrunk and printed.

use catcache_model::coherence::program::{CATALOG, Item, MEMBERS};
use catcache_model::coherence::state::{Life, NONE, Pc, Row};
use catcache_model::coherence::{Action, Fault, Key, KeySpec, ListSpec, Op, Plan, Program, Seen, State, Step};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::Union;
use proptest::test_runner::{RngSeed, TestCaseError, TestError, TestRunner};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use shared_catcache as cache;
use shared_catcache::backend::{Backend, CommitError, MemoryCatalog, MemorySession, WriteError};
use std::marker::PhantomData;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

const KEYS: u8 = 64;
const HASHES: u8 = 8;
/// The members of each list: of two hashes, of one, and of the other cache. Each is the first of its hash that is in no other list, so
/// that a list's number before a key's leaves the keys in their order.
const LISTS: [[Key; MEMBERS]; 3] = [[0, 8], [16, 17], [32, 40]];
/// The hash of the partial keys.
const LIST_HASH: u32 = 5;
const STRIPES: u32 = 4;
const SESSIONS: u8 = 3;
const RING: u16 = 8;
const DATABASE: u32 = 1;
/// More changes of one commit open the stamps of their catalogs.
const ESCALATE: u8 = 5;
/// Most subtransactions in one another.
const DEPTH_MAX: usize = 3;
/// The model counts the versions of a key in a few bits.
const WRITES_MAX: u8 = 30;
/// Where slots are not counted: each key linked, and as many again unlinked but held by each session, and some.
const ROOMY_SLOTS: u32 = KEYS as u32 * (1 + SESSIONS as u32) + 16 + 3 * (1 + SESSIONS as u32) * (1 + MEMBERS as u32);

/// Which system is run.
trait Variant: std::fmt::Debug + 'static {
    /// Slots of the table, where they are few.
    const ENTRIES: Option<u8>;
}

#[derive(Debug)]
struct Roomy;
impl Variant for Roomy {
    const ENTRIES: Option<u8> = None;
}

#[derive(Debug)]
struct Crowded;
impl Variant for Crowded {
    const ENTRIES: Option<u8> = Some(16);
}

/// One whole operation of one session.
#[derive(Clone, Copy, Debug)]
struct Operation {
    session: u8,
    op: Op,
}

fn hash(key: Key) -> u32 {
    1 + u32::from(key / (KEYS / HASHES))
}

/// Half of the keys each.
fn cache_of(key: Key) -> u8 {
    key / (KEYS / 2)
}

/// The order of the numbers is the code's order of the keys: cache, hash, bytes.
fn with_key<R>(key: Key, use_it: impl FnOnce(&cache::Key<'_>) -> R) -> R {
    let list = LISTS.iter().position(|members| members.contains(&key)).map_or(u8::MAX, |list| list as u8);
    use_it(&cache::Key { database: DATABASE, cache: cache_of(key), hash: hash(key), bytes: &[list, key] })
}

/// The key of the code's key.
fn key_of(key: &cache::OwnedKey) -> Key {
    key.bytes.last().copied().unwrap_or(NONE)
}

/// The list of the code's partial key.
fn list_of(key: &cache::OwnedKey) -> Item {
    KEYS + key.bytes.first().copied().unwrap_or(0)
}

fn with_list<R>(list: Item, use_it: impl FnOnce(&cache::Key<'_>) -> R) -> R {
    let nth = list - KEYS;
    let cache = cache_of(LISTS[usize::from(nth)][0]);
    use_it(&cache::Key { database: DATABASE, cache, hash: LIST_HASH, bytes: &[nth] })
}

fn program(entries: Option<u8>, fault: Option<Fault>) -> Program {
    let key = |k: Key| {
        let key = KeySpec::new(&format!("k{k}"), cache_of(k), hash(k));
        let key = if k.is_multiple_of(3) { key.absent() } else { key };
        if k.is_multiple_of(5) { key.toasted() } else { key }
    };
    Program {
        keys: (0..KEYS).map(key).collect(),
        lists: (0..).zip(LISTS).map(|(n, members)| ListSpec { name: format!("l{n}"), members }).collect(),
        stripes: STRIPES,
        ring: RING,
        entries,
        local: None,
        escalate: Some(ESCALATE),
        // An operation is put in when it is run.
        plans: (0..SESSIONS).map(|s| Plan::menu(&format!("s{s}"), 0, &[])).collect(),
        stale_tokens: false,
        record: false,
        fault,
    }
}

// ---- the model's side -----------------------------------------------------------------------------------------------

/// The model, run an operation at a time.
#[derive(Clone, Debug)]
struct Model {
    program: Program,
    state: State,
}

/// What an operation of the model came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ran {
    Whole,
    /// It would have to wait for another session.
    Refused,
}

impl Model {
    fn new(entries: Option<u8>, fault: Option<Fault>) -> Model {
        let program = program(entries, fault);
        Model { state: State::initial(&program), program }
    }

    /// Runs an operation to its end. `victim` chooses among the keys that may be evicted; the keys that were are returned.
    fn run(
        &mut self,
        Operation { session, op }: Operation,
        mut victim: impl FnMut(&[Key]) -> Option<Key>,
    ) -> Result<(Ran, Vec<Key>), String> {
        let me = usize::from(session);
        self.program.plans[me].items = vec![vec![op]];
        self.state.backends[me].starts = 1;
        let mut evicted = Vec::new();
        loop {
            let choices = self.program.choices(&self.state, me);
            let (step, choice) = match choices[..] {
                [] => {
                    self.state.backends[me].starts = 0;
                    return Ok((Ran::Refused, evicted));
                }
                // Whether one may go or several: the code says which did, one after the other.
                [only] if self.state.backends[me].pc != Pc::Evict || only.1 == u16::from(NONE) => only,
                _ => {
                    let key = |slot: u16| self.state.slots[usize::from(slot)].key;
                    let keys: Vec<Key> = choices.iter().map(|(_, slot)| key(*slot)).collect();
                    let chosen = victim(&keys);
                    let at = keys.iter().position(|k| Some(*k) == chosen);
                    choices[at.ok_or_else(|| format!("evicted {chosen:?}, may evict {keys:?}"))?]
                }
            };
            let slots = self.state.slots.clone();
            let action = Action { backend: session, step, choice };
            let (next, seen) = self.program.step(&self.state, action).ok_or_else(|| format!("{action:?} refused"))?;
            self.state = next;
            if let (Step::Evict, Seen::Evicted(Some(slot))) = (step, seen) {
                evicted.push(slots[usize::from(slot)].key);
            }
            if let Some(property) = self.state.broken
                && self.program.fault.is_none()
            {
                return Err(format!("the model breaks {}", property.name()));
            }
            // Of a model that is broken on purpose, what differs from the code is asked for, not what it breaks.
            self.state.broken = None;
            let b = &self.state.backends[me];
            if b.idle() && b.item == NONE {
                return Ok((Ran::Whole, evicted));
            }
        }
    }

    fn may(&self, Operation { session, op }: &Operation) -> bool {
        let b = &self.state.backends[usize::from(*session)];
        let in_transaction = b.in_transaction;
        match op {
            Op::Lookup(_) | Op::Accept | Op::CommandEnd => true,
            Op::Begin => !in_transaction,
            Op::Insert(k) | Op::Update(k) | Op::Delete(k) => in_transaction && self.may_write(*k),
            Op::InPlace(k) => self.may_write(*k),
            Op::Rewrite(k) => {
                in_transaction && (0..KEYS).filter(|o| cache_of(*o) == cache_of(*k)).all(|o| self.may_write(o))
            }
            Op::DropDatabase(_) => false,
            Op::SubBegin => in_transaction && b.pending.is_empty() && b.outer.len() < DEPTH_MAX,
            Op::SubCommit | Op::SubAbort => !b.outer.is_empty(),
            Op::Commit | Op::Abort => in_transaction,
            Op::CommitFails => in_transaction && self.program.memory(),
            Op::Evict(_) => self.program.memory(),
        }
    }

    fn may_write(&self, key: Key) -> bool {
        self.state.catalog[usize::from(key)].writes < WRITES_MAX
    }
}

/// Generates sequences by the model.
struct Machine<V>(PhantomData<V>);

/// Each key, one of each hash more often than the others.
fn often(keys: impl Iterator<Item = Key>) -> Vec<Key> {
    keys.flat_map(|k| std::iter::repeat_n(k, if k % (HASHES + 1) == 0 { 12 } else { 1 })).collect()
}

impl<V: Variant> ReferenceStateMachine for Machine<V> {
    type State = Model;
    type Transition = Operation;

    fn init_state() -> BoxedStrategy<Model> {
        Just(Model::new(V::ENTRIES, None)).boxed()
    }

    fn transitions(model: &Model) -> BoxedStrategy<Operation> {
        let any = often(0..KEYS);
        let items: Vec<Item> = any.iter().copied().chain((0..LISTS.len() as u8).flat_map(|l| [KEYS + l; 8])).collect();
        let writable = often((0..KEYS).filter(|k| model.may_write(*k)));
        let of = |session: u8| {
            let mut ops: Vec<(u32, BoxedStrategy<Op>)> = vec![
                (16, select(items.clone()).prop_map(Op::Lookup).boxed()),
                (1, Just(Op::Accept).boxed()),
                (2, Just(Op::CommandEnd).boxed()),
                (3, select(any.clone()).prop_map(Op::InPlace).boxed()),
            ];
            if model.state.backends[usize::from(session)].in_transaction {
                let b = &model.state.backends[usize::from(session)];
                if b.pending.is_empty() && b.outer.len() < DEPTH_MAX {
                    ops.push((3, Just(Op::SubBegin).boxed()));
                }
                if !b.outer.is_empty() {
                    ops.push((2, Just(Op::SubCommit).boxed()));
                    ops.push((2, Just(Op::SubAbort).boxed()));
                }
                ops.push((3, Just(Op::Commit).boxed()));
                ops.push((2, Just(Op::Abort).boxed()));
                if !writable.is_empty() {
                    ops.push((8, select(writable.clone()).prop_map(Op::Update).boxed()));
                    ops.push((4, select(writable.clone()).prop_map(Op::Delete).boxed()));
                    ops.push((1, select(writable.clone()).prop_map(Op::Rewrite).boxed()));
                }
            } else {
                ops.push((8, Just(Op::Begin).boxed()));
            }
            if model.program.memory() {
                ops.push((4, select(items.clone()).prop_map(Op::Evict).boxed()));
                if model.state.backends[usize::from(session)].in_transaction {
                    ops.push((1, Just(Op::CommitFails).boxed()));
                }
            }
            Union::new_weighted(ops).prop_map(move |op| Operation { session, op })
        };
        Union::new((0..SESSIONS).map(of)).boxed()
    }

    fn preconditions(model: &Model, operation: &Operation) -> bool {
        model.may(operation)
    }

    fn apply(mut model: Model, operation: &Operation) -> Model {
        if let Err(why) = model.run(*operation, |keys| keys.first().copied()) {
            panic!("{operation:?}: {why}");
        }
        model
    }
}

// ---- the code's side ------------------------------------------------------------------------------------------------

/// What a session's probe has seen.
#[derive(Debug, Default)]
struct Watch {
    broken: Option<cache::Rule>,
    private: Mutex<cache::PrivateImage>,
    evicted: Mutex<Vec<cache::EntryAt>>,
}

impl cache::Probe for Watch {
    fn took(&self, _: cache::Step, seen: cache::Seen) {
        if let cache::Seen::Evicted(Some(at)) = seen {
            self.evicted.lock().expect("nobody panics with it").push(at);
        }
    }

    fn private(&self, image: impl FnOnce() -> cache::PrivateImage) {
        *self.private.lock().expect("nobody panics with it") = image();
    }

    fn keeps(&self, rule: cache::Rule) -> bool {
        self.broken != Some(rule)
    }
}

struct Session {
    backend: Backend<MemorySession<Arc<Watch>>, Arc<Watch>>,
    watch: Arc<Watch>,
}

/// The code, and a model beside it that follows its choices.
struct World {
    shared: cache::Shared,
    sessions: Vec<Session>,
    model: Model,
    /// Key and version of each write, by its number; 0 stands for the first row of any key.
    writes: Vec<(Key, Row)>,
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, code: T, model: T) -> Result<(), String> {
    if code == model { Ok(()) } else { Err(format!("{what}: the code has {code:?}, the model {model:?}")) }
}

/// A row, or the rows of a list.
type Rows<T> = [Option<T>; MEMBERS];

/// The rows that there are, of a key or a list of the model.
fn present(rows: &[Row]) -> Rows<Row> {
    let row = |place: usize| rows.get(place).copied().filter(|row| row.known() && row.present());
    [row(0), row(1)]
}

/// What an operation came to, what it answered, and the keys that it rewrote.
type Operated = (Ran, Rows<Vec<u8>>, Vec<Key>);

/// An entry as both sides can tell it: key or list, rows (`None`: negative), token, linked, references.
type Entry = (Item, Rows<Row>, u64, bool, u32);

impl World {
    fn new(entries: Option<u8>, fault: Option<Fault>, broken: Option<cache::Rule>) -> World {
        let slots = entries.map_or(ROOMY_SLOTS, u32::from);
        let config = cache::Config {
            stripes: STRIPES,
            lists: 2,
            catalogs: 2,
            ring: u32::from(RING),
            backends: u32::from(SESSIONS),
            uniform: Some(cache::shared::Uniform { slots, bytes: 64 }),
            ..cache::Config::tiny()
        };
        let shared = cache::Shared::anonymous(&config).expect("the segment is small");
        let catalog = MemoryCatalog::new();
        let model = Model::new(entries, fault);
        for (k, spec) in (0..KEYS).zip(&model.program.keys) {
            with_key(k, |key| {
                if spec.present {
                    catalog.fill(key, &0_u32.to_le_bytes());
                }
                if spec.toasted {
                    catalog.toast(key);
                }
            });
        }
        let attach = |_| {
            let watch = Arc::new(Watch { broken, ..Watch::default() });
            let session = catalog.session(Arc::clone(&watch));
            let mut backend =
                Backend::attach_with(&shared, DATABASE, session, Arc::clone(&watch)).expect("there is room");
            backend.set_escalation(u32::from(ESCALATE));
            Session { backend, watch }
        };
        let sessions = (0..SESSIONS).map(attach).collect();
        World { sessions, shared, model, writes: vec![(NONE, Row::UNKNOWN)] }
    }

    /// Runs an operation on both sides and compares them.
    fn apply(&mut self, operation: Operation) -> Result<(), String> {
        let Operation { session, op } = operation;
        let before = self.shared.peek().entries;
        let (ran, answer, rewritten) = self.operate(operation)?;
        let evicted = std::mem::take(&mut *self.sessions[usize::from(session)].watch.evicted.lock().expect("as above"));
        let item = |e: &cache::shared::EntryImage| if e.members.is_some() { list_of(&e.key) } else { key_of(&e.key) };
        let item_at = |at| before.iter().find(|e| e.at == at).map_or(NONE, item);
        let evicted: Vec<Item> = evicted.into_iter().map(item_at).collect();

        let mut victims = evicted.iter().copied();
        let (model_ran, model_evicted) = self.model.run(operation, |_| victims.next())?;
        same("the operation", ran, model_ran)?;
        same("evicted keys", evicted, model_evicted)?;
        let b = &self.model.state.backends[usize::from(session)];
        match op {
            Op::Insert(k) | Op::Update(k) | Op::Delete(k) if ran == Ran::Whole => {
                self.writes.push((k, b.own[usize::from(k)].pending));
            }
            Op::InPlace(k) if ran == Ran::Whole => {
                self.writes.push((k, self.model.state.catalog[usize::from(k)].committed));
            }
            Op::Rewrite(_) => self.writes.extend(rewritten.into_iter().map(|k| (k, b.own[usize::from(k)].pending))),
            Op::Lookup(k) => {
                let rows = present(&b.stable[self.model.program.cells(k)]);
                same("answer", self.rows(k, &answer), rows)?;
            }
            _ => {}
        }
        self.compare_shared()?;
        self.compare_private(session)
    }

    /// The code's side of an operation, what a lookup answered, and the keys that were rewritten.
    fn operate(&mut self, Operation { session, op }: Operation) -> Result<Operated, String> {
        let words = |e: &dyn std::error::Error| e.to_string();
        let first = u32::try_from(self.writes.len()).expect("few writes");
        let write = first.to_le_bytes();
        let mut rewritten = Vec::new();
        let Session { backend, watch } = &mut self.sessions[usize::from(session)];
        let written = match op {
            Op::Lookup(l) if l >= KEYS => {
                let members = LISTS[usize::from(l - KEYS)];
                let rows = with_list(l, |partial| match backend.list(partial) {
                    Err(e) => Err(words(&e)),
                    Ok(list) => list.into_iter().try_fold([None, None], |mut rows: Rows<Vec<u8>>, (key, row)| {
                        let place = members.iter().position(|member| Some(member) == key.bytes.last());
                        let place = place.filter(|place| rows[*place].is_none());
                        rows[place.ok_or_else(|| format!("the list has {key:?}"))?] = Some(row.to_vec());
                        Ok(rows)
                    }),
                });
                return Ok((Ran::Whole, rows?, rewritten));
            }
            Op::Lookup(k) => {
                let row = with_key(k, |key| backend.lookup(key).map(|row| row.map(<[u8]>::to_vec)));
                return Ok((Ran::Whole, [row.map_err(|e| words(&e))?, None], rewritten));
            }
            Op::Insert(k) | Op::Update(k) => with_key(k, |key| backend.put(key, &write)),
            Op::Delete(k) => with_key(k, |key| backend.delete(key)),
            Op::InPlace(k) => with_key(k, |key| backend.overwrite(key, &write)).map_err(WriteError::Conflict),
            Op::Rewrite(k) => backend.rewrite(DATABASE, cache_of(k), |key, _| {
                rewritten.push(key.bytes.last().copied().unwrap_or(NONE));
                (first + rewritten.len() as u32 - 1).to_le_bytes().to_vec()
            }),
            Op::DropDatabase(_) => return Err("no sequence has it".into()),
            Op::Accept => {
                backend.accept();
                Ok(())
            }
            Op::Begin => {
                return backend.begin().map(|()| (Ran::Whole, [None, None], Vec::new())).map_err(|e| words(&e));
            }
            Op::CommandEnd => {
                backend.command_end();
                Ok(())
            }
            Op::SubBegin => {
                return backend.begin_sub().map(|()| (Ran::Whole, [None, None], Vec::new())).map_err(|e| words(&e));
            }
            Op::SubCommit => {
                return backend.commit_sub().map(|()| (Ran::Whole, [None, None], Vec::new())).map_err(|e| words(&e));
            }
            Op::SubAbort => {
                return backend.abort_sub().map(|()| (Ran::Whole, [None, None], Vec::new())).map_err(|e| words(&e));
            }
            Op::Commit => {
                return backend.commit().map(|()| (Ran::Whole, [None, None], Vec::new())).map_err(|e| words(&e));
            }
            Op::CommitFails => {
                backend.catalog_mut().refuse_next_visible();
                match backend.commit() {
                    Err(CommitError::Visible(_)) => Ok(()),
                    other => return Err(format!("a commit that was to fail: {other:?}")),
                }
            }
            Op::Abort => {
                return backend.abort().map(|()| (Ran::Whole, [None, None], Vec::new())).map_err(|e| words(&e));
            }
            Op::Evict(l) if l >= KEYS => {
                with_list(l, |partial| self.shared.evict_list(watch, partial));
                Ok(())
            }
            Op::Evict(k) => {
                with_key(k, |key| self.shared.evict(watch, key));
                Ok(())
            }
        };
        match written {
            Ok(()) => Ok((Ran::Whole, [None, None], rewritten)),
            Err(WriteError::Conflict(_)) => Ok((Ran::Refused, [None, None], rewritten)),
            Err(e) => Err(words(&e)),
        }
    }

    /// The version that a row of the code is; one that nobody has written for the key is like no version of the model.
    fn row(&self, key: Key, row: Option<&[u8]>) -> Option<Row> {
        let number = u32::from_le_bytes(row?.try_into().unwrap_or([u8::MAX; 4])) as usize;
        let known = match self.writes.get(number) {
            Some(_) if number == 0 => Some(Row::new(0, true)),
            Some((k, version)) if *k == key => Some(*version),
            _ => None,
        };
        Some(known.unwrap_or(Row::UNKNOWN))
    }

    /// Likewise, of a key or a list.
    fn rows(&self, item: Item, rows: &Rows<Vec<u8>>) -> Rows<Row> {
        let mut found = [None; MEMBERS];
        for (place, key) in self.model.program.parts(item).into_iter().enumerate() {
            found[place] = self.row(key, rows[place].as_deref());
        }
        found
    }

    /// What the code's list shows, from keys and rows of its members.
    fn listed<'r>(&self, list: Item, members: impl IntoIterator<Item = (Key, &'r [u8])>) -> Rows<Row> {
        let parts = self.model.program.parts(list);
        let mut found = [None; MEMBERS];
        for (key, row) in members {
            match parts.iter().position(|part| *part == key) {
                Some(place) if found[place].is_none() => found[place] = self.row(key, Some(row)),
                _ => return [Some(Row::UNKNOWN); MEMBERS],
            }
        }
        found
    }

    fn compare_shared(&self) -> Result<(), String> {
        let (code, model) = (self.shared.peek(), &self.model.state);
        same("clock", code.clock, u64::from(model.clock))?;
        let stamps: Vec<_> = model.stamps.iter().map(|s| (u64::from(s.mark), u32::from(s.open))).collect();
        same(
            "stamps (mark, open)",
            code.stripes.iter().chain(&code.lists).chain(&code.catalogs).map(|s| (s.mark, s.open)).collect(),
            stamps,
        )?;
        same("tail of the ring", code.ring_tail, u64::from(model.ring.tail))?;
        // The position of a backend in reset means nothing: it will jump.
        let settled = |(position, reset)| (if reset { 0 } else { position }, reset);
        let positions: Vec<_> = model.backends.iter().map(|b| settled((u64::from(b.position), b.reset))).collect();
        let code_positions = code.ring_positions.iter().flatten().copied().map(settled).collect();
        same("positions in the ring (position, reset)", code_positions, positions)?;

        let memory = self.model.program.memory();
        let counted = |references: u32| if memory { references } else { 0 };
        let mut entries: Vec<Entry> = code
            .entries
            .iter()
            .filter(|e| e.linked || memory)
            .map(|e| {
                let (item, rows) = match &e.members {
                    None => (key_of(&e.key), self.rows(key_of(&e.key), &[e.row.clone(), None])),
                    Some(members) => {
                        let member = |at: &cache::EntryAt| {
                            let entry = code.entries.iter().find(|entry| entry.at == *at);
                            entry.map_or((NONE, &[][..]), |e| (key_of(&e.key), e.row.as_deref().unwrap_or_default()))
                        };
                        (list_of(&e.key), self.listed(list_of(&e.key), members.iter().map(member)))
                    }
                };
                (item, rows, e.token, e.linked, counted(e.references))
            })
            .collect();
        let mut expected: Vec<Entry> = model
            .slots
            .iter()
            .filter(|s| s.linked() || memory && s.life == Life::Unlinked)
            .map(|s| (s.key, present(&s.rows()), u64::from(s.token), s.linked(), counted(u32::from(s.references))))
            .collect();
        entries.sort_unstable();
        expected.sort_unstable();
        same("entries (item, rows, token, linked, references)", entries, expected)?;
        if memory {
            let free = model.slots.iter().filter(|s| s.life == Life::Free).count() as u32;
            same("free slots", code.free_slots, free)?;
        }
        Ok(())
    }

    fn compare_private(&self, session: u8) -> Result<(), String> {
        let session = usize::from(session);
        let code = self.sessions[session].watch.private.lock().expect("nobody panics with it");
        let model = &self.model.state.backends[session];
        let mut local: Vec<_> = code
            .local
            .iter()
            .map(|l| (key_of(&l.key), self.rows(key_of(&l.key), &[l.row.clone(), None]), l.entry.is_none()))
            .collect();
        local.extend(code.lists.iter().map(|l| {
            let members = l.members.iter().map(|(key, row)| (key_of(key), &row[..]));
            (list_of(&l.key), self.listed(list_of(&l.key), members), l.entry.is_none())
        }));
        local.sort_unstable();
        let held = (0..).zip(&model.local).filter(|(_, l)| l.row.known());
        let held = held.map(|(item, l)| (item, present(&l.rows()), l.slot == NONE)).collect();
        same("local view (item, rows, private)", local, held)?;
        same("token of the snapshot", code.snapshot, model.snapshot.as_ref().map(|s| u64::from(s.token)))?;
        let message = |m: &u8| match *m & CATALOG {
            0 => cache::Message::Row { database: DATABASE, cache: cache_of(*m), hash: hash(*m) },
            _ => cache::Message::Catalog { database: DATABASE, cache: cache_of(*m & !CATALOG) },
        };
        same("dirty set", code.dirty.clone(), model.dirty().iter().map(message).collect())
    }
}

// ---- the tests ------------------------------------------------------------------------------------------------------

struct Reference<V>(PhantomData<V>);

impl<V: Variant> StateMachineTest for Reference<V> {
    type SystemUnderTest = World;
    type Reference = Machine<V>;

    fn init_test(_: &Model) -> World {
        World::new(V::ENTRIES, None, None)
    }

    fn apply(mut world: World, model: &Model, operation: Operation) -> World {
        if let Err(why) = world.apply(operation) {
            panic!("{operation:?}: {why}");
        }
        // With nothing to choose, the model that follows the code is the one that made the sequence.
        assert!(V::ENTRIES.is_some() || world.model.state == model.state, "{operation:?}: the model is not a function");
        world
    }
}

/// `PROPTEST_CASES` raises the number of cases, and does not lower it.
fn config(cases: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    ProptestConfig {
        cases: cases.max(asked),
        max_shrink_iters: 4_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

prop_state_machine! {
    #![proptest_config(config(12))]
    #[test]
    fn the_code_does_what_the_model_does(sequential 1..=400 => Reference<Roomy>);
    #[test]
    fn the_code_does_what_the_model_does_in_16_slots(sequential 1..=400 => Reference<Crowded>);
}

prop_state_machine! {
    #![proptest_config(config(1))]
    #[test]
    fn the_code_does_what_the_model_does_for_long(sequential 2_000..=2_000 => Reference<Roomy>);
    #[test]
    fn the_code_does_what_the_model_does_for_long_in_16_slots(sequential 2_000..=2_000 => Reference<Crowded>);
}

/// Runs sequences with a rule broken in the model or in the code; the disagreement, and the shrunk sequence that shows it.
fn disagreement<V: Variant>(fault: Option<Fault>, broken: Option<cache::Rule>) -> Option<(String, Vec<Operation>)> {
    let config = ProptestConfig { rng_seed: RngSeed::Fixed(1), ..config(32) };
    let found = TestRunner::new(config).run(&Machine::<V>::sequential_strategy(400..=400), |(_, operations, seen)| {
        let mut world = World::new(V::ENTRIES, fault, broken);
        operations.into_iter().try_for_each(|operation| {
            if let Some(seen) = &seen {
                seen.fetch_add(1, Ordering::SeqCst);
            }
            world.apply(operation).map_err(|why| TestCaseError::fail(format!("{operation:?}: {why}")))
        })
    });
    match found {
        Ok(()) => None,
        Err(TestError::Fail(why, (_, operations, _))) => Some((why.to_string(), operations)),
        Err(TestError::Abort(why)) => panic!("no sequences: {why}"),
    }
}

#[test]
fn a_model_that_keeps_local_entries_is_noticed_and_the_sequence_is_shrunk() {
    let found = disagreement::<Roomy>(Some(Fault::AcceptKeepsLocal), None);
    let (why, operations) = found.expect("the code does accept what it is told");
    assert!(why.contains("local view"), "{why}");
    let ops: Vec<Op> = operations.iter().map(|o| o.op).collect();
    // A lookup, a transaction that changes the row, and something that accepts; a begin and its commit can't be left out one
    // by one.
    assert!(ops.len() <= 20, "hardly shrunk: {ops:?}");
}

/// Whatever shows between whole operations. The others need another session's steps in the middle of one (`OpenStripe`, `OpenList`,
/// `DoomRunningLoad`, `DoomRunningList`, `DropSnapshotOnNewerHit`, `DropSnapshotOnUselessPublish`, `TokenPerSnapshot`), or make the code end
/// the process (`TakeReference`, `UnlinkBeforeFree`, `PinMembers`); the litmus files have them.
#[test]
fn a_rule_that_is_switched_off_in_the_code_is_noticed() {
    use cache::Rule::*;
    for rule in [
        AcceptBeforeProbe,
        CheckStripe,
        CheckList,
        DropListsOnAccept,
        CoverLists,
        CheckCatalog,
        BracketInPlace,
        SendInPlace,
        DropWholeCatalog,
        CoverWholeCatalog,
        AdvanceClock,
        MarkAtClose,
        SendMessages,
        DropSnapshotOnAccept,
        DropLocalOnAccept,
        ConsultDirtyAtProbe,
        ConsultDirtyAtPublish,
        DropLocalOnAbort,
        DropSnapshotOnAbort,
        DropLocalAtCommandEnd,
        DropSnapshotAtCommandEnd,
        KeepDirtyAtSubCommit,
        DropLocalOnSubAbort,
        DropSnapshotOnSubAbort,
        KeepParentOnSubAbort,
        KeepDirtyOnReset,
        ResetDropsLocal,
        RegisterMessage,
        DropDirtyAtEnd,
    ] {
        assert!(disagreement::<Roomy>(None, Some(rule)).is_some(), "nothing notices that {rule:?} is switched off");
    }
    let withdraw = disagreement::<Crowded>(None, Some(WithdrawOnFailure));
    assert!(withdraw.is_some(), "nothing notices that a bracket is not withdrawn");
    let release = disagreement::<Crowded>(None, Some(ReleaseMembers));
    assert!(release.is_some(), "nothing notices that a list keeps its members");
}
