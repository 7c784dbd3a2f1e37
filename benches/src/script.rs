//! A trace made ready to be replayed: what each backend looks up, changes and commits, and what the catalog holds.
//!
//! A trace says what PostgreSQL's catcaches answered. A replay asks the same questions, in the same order, of a cache
//! over a [`MemoryCatalog`], and makes the same changes to it:
//!
//! * **Lookups** of single rows are all played, from the backend's start with nothing cached.
//! * **Changes.** Each `X` inside a transaction is a change of its own whose command has ended: the row is written and
//!   the command ends after the last `X` in a row. Whether the row is there afterwards is seen from the next lookup. The
//!   transaction commits at `# C`; what it sends is its own business, so the `S` lines and the `X` lines that answer
//!   them are left out. In-place updates, which send before the commit, are played as part of their transaction.
//! * **Transactions** that change nothing begin with an accept and need no end.
//! * **Several backends** replay one trace at the same time. Rows that the trace changes belong to the backend, as the
//!   tables of 48 sessions are 48 tables; all others are common.
//! * **Left out** and counted in [`LeftOut`]: lists, and the relation cache's messages. A row that PostgreSQL had only
//!   because a list had brought it is one more miss here.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;
use shared_catcache::Key;
use shared_catcache::backend::MemoryCatalog;

use crate::payload::CATCACHES;
use crate::random::mix;
use crate::trace::{Event, Trace, TraceKey};

/// The database in which the backends work.
pub const DATABASE: u32 = 1;

/// The longest key.
const KEY_BYTES: usize = 16;

/// A key, ready to be asked for: small, so that a stream of them disturbs the caches little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BenchKey {
    /// Different for different keys; what the bare map is keyed by.
    pub id: u64,
    /// PostgreSQL's hash of the key columns.
    pub hash: u32,
    database: u32,
    bytes: [u8; KEY_BYTES],
    /// PostgreSQL's number of the cache.
    pub cache: u8,
    length: u8,
}

impl BenchKey {
    /// A key of the length that its cache asks for. Backend 0 stands for all backends; the keys of another backend differ
    /// from those of the others.
    pub fn new(key: TraceKey, backend: u32) -> BenchKey {
        let cache = &CATCACHES[usize::from(key.cache)];
        let id = mix(u64::from(key.cache) << 32 | u64::from(key.hash)) ^ mix(u64::from(backend));
        let mut bytes = [0; KEY_BYTES];
        bytes[..4].copy_from_slice(&key.hash.wrapping_mul(0x9e37_79b1).to_le_bytes());
        bytes[4..8].copy_from_slice(&backend.to_le_bytes());
        bytes[8..].copy_from_slice(&id.to_le_bytes());
        let length = if backend == 0 { cache.columns.bytes() } else { cache.columns.bytes().max(8) };
        BenchKey {
            id,
            hash: key.hash ^ mix(u64::from(backend)) as u32,
            database: if cache.catalog.shared { 0 } else { DATABASE },
            bytes,
            cache: key.cache,
            length: length as u8,
        }
    }

    /// The key of a cache with a single row, which needs no columns.
    pub fn keyless(key: TraceKey) -> BenchKey {
        BenchKey { length: 0, ..BenchKey::new(key, 0) }
    }

    /// The canonical bytes of the key columns.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// The key as the shared cache takes it.
    #[inline(always)]
    pub fn key(&self) -> Key<'_> {
        Key { database: self.database, cache: self.cache, hash: self.hash, bytes: self.bytes() }
    }

    /// A row of `length` bytes, the same for the same key, into `row`.
    pub fn write_row(&self, length: usize, row: &mut Vec<u8>) {
        row.clear();
        row.resize(length, self.id as u8);
    }
}

/// A row that a trace speaks of.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// How the trace names it.
    pub key: TraceKey,
    /// Its length when it is there.
    pub length: usize,
    /// Is it there before the trace begins?
    pub at_first: bool,
    /// Does the trace change it, so that each backend has one of its own?
    pub own: bool,
}

/// What a backend does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Looks up a row of [`Script::rows`]; `present`: PostgreSQL found it.
    Lookup {
        /// Index of the row.
        row: u32,
        /// Is there one?
        present: bool,
    },
    /// Writes or deletes a row.
    Change {
        /// Index of the row.
        row: u32,
        /// Is there one afterwards?
        present: bool,
    },
    /// The running command ends.
    CommandEnd,
    /// Begins a transaction that changes nothing.
    Accept,
    /// Begins a transaction that changes something.
    Begin,
    /// Commits that transaction.
    Commit,
}

/// What of a trace a replay does not play.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Searches of lists.
    pub lists: u32,
    /// Messages of the relation cache, sent and carried out.
    pub relation_messages: u32,
    /// In-place updates' messages: played, but sent at the commit.
    pub in_place: u32,
    /// Rows that PostgreSQL had from a list: hits there, misses here.
    pub rows_from_lists: u32,
}

/// A trace made ready. See the module's docs.
#[derive(Clone, Debug)]
pub struct Script {
    /// The trace's name.
    pub name: String,
    /// What each backend does.
    pub ops: Vec<Op>,
    /// The rows that it does it to.
    pub rows: Vec<Row>,
    /// What it leaves out.
    pub left_out: LeftOut,
    /// How many lookups it makes.
    pub lookups: u32,
    /// How many of them PostgreSQL's private cache would have to load, lists being left out.
    pub misses: u32,
    /// How many changes it makes.
    pub changes: u32,
}

impl Script {
    /// Makes a trace ready. Linear in its length.
    pub fn new(trace: &Trace) -> Script {
        Builder::default().build(trace)
    }

    /// The keys of backend `backend` (from 1), by the index of their row.
    pub fn keys(&self, backend: u32) -> Vec<BenchKey> {
        self.rows.iter().map(|row| BenchKey::new(row.key, if row.own { backend } else { 0 })).collect()
    }

    /// Does the trace change anything?
    pub fn changes_rows(&self) -> bool {
        self.changes > 0
    }

    /// A catalog that holds what `backends` backends will look for.
    pub fn catalog(&self, backends: u32) -> MemoryCatalog {
        let catalog = MemoryCatalog::new();
        let mut bytes = Vec::new();
        for row in self.rows.iter().filter(|row| row.at_first) {
            let owners = if row.own { 1..=backends } else { 0..=0 };
            for owner in owners {
                let key = BenchKey::new(row.key, owner);
                key.write_row(row.length, &mut bytes);
                catalog.fill(&key.key(), &bytes);
            }
        }
        catalog
    }
}

/// What is known of a row while the trace is read.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    index: u32,
    /// PostgreSQL's cache holds an entry, as far as lookups of single rows go.
    cached: bool,
    /// The last change of it in `ops`, whose outcome is not known yet.
    unsettled: Option<usize>,
}

#[derive(Default)]
struct Builder {
    ops: Vec<Op>,
    rows: Vec<Row>,
    known: HashMap<TraceKey, Known, FxBuildHasher>,
    left_out: LeftOut,
    misses: u32,
    lookups: u32,
    changes: u32,
    /// Where the running transaction began in `ops`.
    transaction: usize,
    /// The running transaction has changed something.
    writes: bool,
    /// The running command has changed something.
    command: bool,
    /// Messages were sent and come back: the next `X` lines answer them.
    echo: bool,
}

impl Builder {
    fn build(mut self, trace: &Trace) -> Script {
        self.ops.push(Op::Accept);
        for event in &trace.events {
            self.take(&trace.name, *event);
        }
        self.end_transaction();
        Script {
            name: trace.name.clone(),
            ops: self.ops,
            rows: self.rows,
            left_out: self.left_out,
            lookups: self.lookups,
            misses: self.misses,
            changes: self.changes,
        }
    }

    fn take(&mut self, case: &str, event: Event) {
        if !matches!(event, Event::Invalidate(_) | Event::InvalidateRelation) {
            self.end_command();
        }
        match event {
            Event::Hit(key) => self.lookup(case, key, true, false),
            Event::NegativeHit(key) => self.lookup(case, key, false, false),
            Event::Load(key) => self.lookup(case, key, true, true),
            Event::NegativeLoad(key) => self.lookup(case, key, false, true),
            Event::ListHit(_) | Event::ListLoad(_) => self.left_out.lists += 1,
            Event::Invalidate(key) => self.invalidate(case, key),
            Event::InvalidateRelation | Event::SendRelation => self.left_out.relation_messages += 1,
            Event::Send(_) => {
                // A transaction that has not ended sends only what it has changed in place.
                let in_place = self.in_transaction();
                self.left_out.in_place += u32::from(in_place);
                self.echo = !in_place;
            }
            Event::Commit | Event::Abort => {
                self.end_transaction();
                self.transaction = self.ops.len();
                self.ops.push(Op::Accept);
            }
        }
    }

    /// Has anything happened since the last transaction ended?
    fn in_transaction(&self) -> bool {
        self.ops.len() > self.transaction + 1
    }

    fn row(&mut self, case: &str, key: TraceKey, at_first: bool) -> &mut Known {
        let rows = &mut self.rows;
        self.known.entry(key).or_insert_with(|| {
            let length = CATCACHES[usize::from(key.cache)].row(case);
            rows.push(Row { key, length, at_first, own: false });
            Known { index: rows.len() as u32 - 1, cached: false, unsettled: None }
        })
    }

    fn lookup(&mut self, case: &str, key: TraceKey, present: bool, loaded: bool) {
        self.echo = false;
        let known = self.row(case, key, present);
        let (row, missed, unsettled) = (known.index, !known.cached, known.unsettled.take());
        known.cached = true;
        if let Some(change) = unsettled {
            self.ops[change] = Op::Change { row, present };
        }
        self.misses += u32::from(missed);
        self.left_out.rows_from_lists += u32::from(missed && !loaded);
        self.lookups += 1;
        self.ops.push(Op::Lookup { row, present });
    }

    fn invalidate(&mut self, case: &str, key: TraceKey) {
        let own_message = self.echo;
        let at = self.ops.len();
        let known = self.row(case, key, false);
        known.cached = false;
        if own_message {
            return;
        }
        let row = known.index;
        known.unsettled = Some(at);
        self.rows[row as usize].own = true;
        // Settled by the next lookup; if there is none, nobody will know.
        self.ops.push(Op::Change { row, present: true });
        self.changes += 1;
        self.writes = true;
        self.command = true;
    }

    fn end_command(&mut self) {
        if std::mem::take(&mut self.command) {
            self.ops.push(Op::CommandEnd);
        }
    }

    fn end_transaction(&mut self) {
        self.end_command();
        if std::mem::take(&mut self.writes) {
            self.ops[self.transaction] = Op::Begin;
            self.ops.push(Op::Commit);
        }
        self.echo = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{packed, parse};

    #[test]
    fn a_change_is_settled_by_the_next_lookup() {
        let text =
            "1 a H\nX 1 a\nX 1 b\nXR -2 5\n1 a m\n# C\nS 1 a\nS 1 b\nX 1 a\nX 1 b\n1 b M\n3 c LM 1 2\n3 d H\n# C\n";
        let script = Script::new(&parse("small", text).unwrap());
        let expected = [
            Op::Begin,
            Op::Lookup { row: 0, present: true },
            Op::Change { row: 0, present: false },
            Op::Change { row: 1, present: true },
            Op::CommandEnd,
            Op::Lookup { row: 0, present: false },
            Op::Commit,
            Op::Accept,
            Op::Lookup { row: 1, present: true },
            Op::Lookup { row: 2, present: true },
            Op::Accept,
        ];
        assert_eq!(script.ops, expected);
        let rows: Vec<_> = script.rows.iter().map(|row| (row.key.hash, row.at_first, row.own)).collect();
        assert_eq!(rows, [(0xa, true, true), (0xb, false, true), (0xd, true, false)]);
        let left_out = LeftOut { lists: 1, relation_messages: 1, in_place: 0, rows_from_lists: 2 };
        assert_eq!((script.lookups, script.misses, script.left_out), (4, 4, left_out));
    }

    #[test]
    fn keys_of_different_backends_differ_and_common_ones_do_not() {
        let key = TraceKey { cache: 55, hash: 7 };
        let (common, first, second) = (BenchKey::new(key, 0), BenchKey::new(key, 1), BenchKey::new(key, 2));
        assert_eq!((common.hash, common.bytes().len()), (7, 4));
        assert_ne!((first.id, first.bytes()), (second.id, second.bytes()));
        assert_ne!(first.id, common.id);
        assert_eq!(size_of::<BenchKey>(), 40);
        assert_eq!(BenchKey::new(TraceKey { cache: 11, hash: 7 }, 0).key().database, 0, "pg_authid is shared");
    }

    /// PostgreSQL's own misses and ours are the same, but for the rows that lists brought it. So the one assumption, that
    /// cache and hash name a row, holds in all thirteen traces.
    #[test]
    fn the_traces_are_what_a_private_cache_would_do() {
        let found: Vec<_> = packed()
            .unwrap()
            .iter()
            .map(|trace| {
                let (script, counts) = (Script::new(trace), trace.counts());
                assert_eq!(script.lookups, counts.lookups());
                assert_eq!(script.misses, counts.loads + counts.negative_loads + script.left_out.rows_from_lists);
                assert_eq!(script.left_out.lists, counts.lists());
                (script.name, script.misses, script.changes, script.left_out.in_place, script.left_out.rows_from_lists)
            })
            .collect();
        assert_eq!(found, PINNED.map(|(name, a, b, c, d)| (name.to_owned(), a, b, c, d)));
    }

    /// Misses, changes, messages of in-place updates, rows from lists.
    const PINNED: [(&str, u32, u32, u32, u32); 13] = [
        ("d_part", 4_298, 0, 0, 4),
        ("d_plus", 623, 0, 0, 4),
        ("d_table", 555, 0, 0, 3),
        ("ddl_alter", 630, 650, 0, 1),
        ("ddl_create", 2_612, 7_113, 444, 0),
        ("ddl_temp", 1_753, 6_604, 400, 1),
        ("initstart", 31, 0, 0, 1),
        ("partscan", 19_592, 0, 0, 0),
        ("prepared", 54, 0, 0, 1),
        ("prepared_S", 29, 0, 0, 1),
        ("simple", 53, 0, 0, 1),
        ("simple_S", 28, 0, 0, 1),
        ("startup", 8, 0, 0, 0),
    ];

    /// What PostgreSQL sent is what the replay changes, message for message. (`ddl_create` was cut in a transaction whose
    /// messages were still to come.)
    #[test]
    fn the_changes_are_the_messages() {
        for trace in packed().unwrap().iter().filter(|trace| trace.name != "ddl_create") {
            assert_eq!(Script::new(trace).changes, trace.counts().sends, "{}", trace.name);
        }
    }
}
