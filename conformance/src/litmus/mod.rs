//! Litmus files: small programs for a few backends, readable by a PostgreSQL hacker, that tie the model to the code.
//!
//! Each file is one story: what several backends do, which outcomes must never come about, and which must come about
//! in some run (or the file would prove nothing). The model enumerates a file's outcomes; replay drives the real code
//! along every edge of its graph; acceptance lets the real code run and asks the model.
//!
//! # An example
//!
//! ```text
//! # B01: a row read before a commit must not be published after it.
//! # Why, in two or three lines. Statements of the contract that are named here (B01) become the file's cites.
//! layer backend
//! keys k1 = rel/7, k2 = rel/7 absent, k3 = rel/9 toasted
//! ring 2
//! backend loader: lookup k1
//! backend writer: begin; update k1; commit; lookup k1
//! never     writer = v0
//! sometimes loader = v1
//! ```
//!
//! # What the words mean
//!
//! | word | meaning |
//! | --- | --- |
//! | `layer shared` | needs nothing of the backend layer, so that it also fits a host with its own local cache and ring |
//! | `k1 = rel/7` | key `k1` in cache `rel` with hash 7; keys of one cache and hash collide |
//! | `absent` | there is no row of this key at first |
//! | `l = rel/5 of k1 k2` | list `l` of cache `rel`, with the hash 5 of its partial key: the rows of `k1` and `k2`, as far as they are there. A row that moves from one list to another is a delete of one key and an insert of the other |
//! | `database n` | the key's, or the backend's; 1 if not said, 0 for a catalog that all databases share |
//! | `toasted` | a load of this key accepts messages between its scan and its publication |
//! | `stripes n` | hashes that are equal modulo `n` share a stamp; power of two, 4 if not said |
//! | `ring n` | messages that the ring holds; power of two from 2 on, 8 if not said |
//! | `entries n` | entries that the shared table holds; no limit if not said |
//! | `local n` | entries that a local view keeps at an accept; no limit if not said |
//! | `escalate n` | a commit of more than `n` rows opens the stamps of their catalogs; never if not said |
//! | `end` | command end: own changes so far become visible to the backend itself |
//! | `subbegin`, `subcommit`, `subabort` | a subtransaction: `SAVEPOINT`, `RELEASE`, `ROLLBACK TO`; they nest |
//! | `commit fails` | the commit fails before the change becomes visible: its bracket is withdrawn, the transaction aborts |
//! | `inplace k` | the bytes of the row are changed where it lies, as VACUUM does to a few fields of `pg_class`: seen by all at once, never undone |
//! | `rewrite k` | the whole catalog that `k` is in is rewritten, as by VACUUM FULL: each of its rows is a new version |
//! | `dropdb k` | the database that `k` is in is dropped: each of its rows is gone |
//! | `evict k` | somebody wants the memory: the entry of `k`, a key or a list, goes, if nobody refers to it |
//! | `reader.2 = v1` | the second lookup of `reader` answered `v1`; `.2` may be left out if there is just one lookup |
//! | `v0`, `v1`, … | the row at first; the row of the first, second, … write of that key that was begun by anybody |
//! | `none` | no such row |
//! | `v0+none` | the answer of a list: each of its members' rows |
//! | `after writer` | that lookup began when the last `commit` or `abort` of `writer` had already returned |
//!
//! A write waits for the key's lock, which its transaction holds to the end.
//!
//! # Grammar
//!
//! Spaces mean nothing but the end of a word; a `NAME` is a letter followed by letters, digits, `_` and `-`; a `VERSION`
//! is `v` and digits. Names must be declared on a line before the one that uses them.
//!
//! ```ebnf
#![doc = include_str!("grammar.ebnf")]
//! ```

mod error;
mod lex;
mod meaning;
mod outcome;
mod parse;

use std::fmt;
use std::io::Read;
use std::path::Path;

pub use error::{Fault, LitmusError, nearest};
pub use outcome::{Since, Want, Wanted};

/// The grammar as the module's documentation shows it; the tests derive random files from it.
pub const GRAMMAR: &str = include_str!("grammar.ebnf");

/// Most backends of one file: the state space of five is out of reach.
pub const BACKENDS_MAX: usize = 4;
/// Most keys of one file.
pub const KEYS_MAX: usize = 4;
/// Most operations of one backend.
pub const OPS_MAX: usize = 8;
/// Most lists of one file.
pub const LISTS_MAX: usize = 2;
/// Members of a list.
pub const MEMBERS: usize = 2;
/// Most bytes of one file, its story included.
pub const BYTES_MAX: u64 = 64 * 1024;
/// Largest size that a file may ask for: beyond it nothing is small on purpose any more.
pub const SIZE_MAX: u32 = 64;
/// Stripes, if the file doesn't say.
pub const STRIPES_DEFAULT: u32 = 4;
/// The database of keys and backends, if the file doesn't say.
pub const DATABASE_DEFAULT: u32 = 1;
/// Most databases, 0 included.
pub const DATABASES_MAX: u32 = 4;
/// Messages that the ring holds, if the file doesn't say.
pub const RING_DEFAULT: u32 = 8;

/// The part of the implementation that a file needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    /// Stamps, table and references alone.
    Shared,
    /// Local view, dirty set and ring too.
    Backend,
}

/// A key that the programs use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDecl {
    /// Name in the file.
    pub name: String,
    /// Name of the cache; see [`Litmus::cache_id`] for its number.
    pub cache: String,
    /// Its hash: what messages name, and what picks its stripe.
    pub hash: u32,
    /// No row at first.
    pub absent: bool,
    /// A load accepts messages between scan and publication (B01).
    pub toasted: bool,
    /// Its database; 0: its catalog is shared by all.
    pub database: u32,
}

/// A list: the rows of a partial key (A37).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListDecl {
    /// Name in the file.
    pub name: String,
    /// Hash of its partial key.
    pub hash: u32,
    /// The keys that may be of it, in the order of their hashes and of the file: of one cache and database, and of no other list.
    pub members: [usize; MEMBERS],
}

/// One operation of a program; numbers are indices into [`Litmus::keys`], and behind them, where a list is meant, into
/// [`Litmus::lists`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Ask for the row, or the list.
    Lookup(usize),
    /// Process pending messages.
    Accept,
    /// Start a transaction; accepts messages (A3).
    Begin,
    /// Write a row that isn't there.
    Insert(usize),
    /// Write a row that is there.
    Update(usize),
    /// Delete the row.
    Delete(usize),
    /// Command end (A23).
    CommandEnd,
    /// Begin a subtransaction (A26).
    SubBegin,
    /// End the innermost subtransaction; its changes are the parent's.
    SubCommit,
    /// Undo the innermost subtransaction (A27).
    SubAbort,
    /// Commit.
    Commit,
    /// A commit that fails before anything becomes visible: bracket withdrawn, then abort.
    CommitFails,
    /// Abort.
    Abort,
    /// Take the entry out of the shared table if nobody refers to it.
    Evict(usize),
    /// Change the row where it lies (A58).
    InPlace(usize),
    /// Rewrite the whole catalog that the key is in (A32).
    Rewrite(usize),
    /// Drop the database that the key is in (D30).
    DropDatabase(usize),
}

impl Op {
    /// The key that it names and writes. A whole catalog or database is more: [`Litmus::op_writes`].
    pub fn writes(self) -> Option<usize> {
        match self {
            Op::Insert(key) | Op::Update(key) | Op::Delete(key) | Op::InPlace(key) => Some(key),
            Op::Rewrite(key) | Op::DropDatabase(key) => Some(key),
            Op::Lookup(_)
            | Op::Accept
            | Op::Begin
            | Op::CommandEnd
            | Op::SubBegin
            | Op::SubCommit
            | Op::SubAbort
            | Op::Commit
            | Op::CommitFails
            | Op::Abort
            | Op::Evict(_) => None,
        }
    }

    /// Whether it writes a new version of a row, to be committed or aborted with its transaction.
    pub fn is_transactional(self) -> bool {
        self.writes().is_some() && !matches!(self, Op::InPlace(_))
    }

    /// Whether it ends a transaction.
    pub fn ends_transaction(self) -> bool {
        matches!(self, Op::Commit | Op::CommitFails | Op::Abort)
    }
}

/// One backend and what it does, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendDecl {
    /// Name in the file.
    pub name: String,
    /// Its program.
    pub ops: Vec<Op>,
    /// The database that it is connected to.
    pub database: u32,
}

impl BackendDecl {
    /// The keys and lists of its lookups, in order.
    pub fn lookups(&self) -> impl Iterator<Item = usize> + '_ {
        self.ops.iter().filter_map(|op| if let Op::Lookup(key) = op { Some(*key) } else { None })
    }
}

/// What a lookup answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// No such row.
    None,
    /// The row at first (0), or that of the n-th write of the key that was begun.
    Version(u32),
    /// Of a list: likewise, of each member.
    List([Option<u32>; MEMBERS]),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |f: &mut fmt::Formatter<'_>, row: &Option<u32>| match row {
            None => f.write_str("none"),
            Some(n) => write!(f, "v{n}"),
        };
        match self {
            Value::None => row(f, &None),
            Value::Version(n) => row(f, &Some(*n)),
            Value::List([first, second]) => {
                row(f, first)?;
                f.write_str("+")?;
                row(f, second)
            }
        }
    }
}

/// `reader.2 = v1 after writer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Condition {
    /// Index into [`Litmus::backends`].
    pub backend: usize,
    /// Which of its lookups, counted from 0 (the file counts from 1).
    pub lookup: usize,
    /// The answer.
    pub value: Value,
    /// The lookup began when this backend's last commit or abort had returned.
    pub after: Option<usize>,
}

/// Conditions that hold together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Clause {
    /// At least one, each about another lookup.
    pub conditions: Vec<Condition>,
}

/// What one run answered to one lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Answer {
    /// The answer.
    pub value: Value,
    /// Bit `b` is set if backend `b`'s last commit or abort had returned before the lookup began.
    pub after: u8,
}

impl Clause {
    /// Whether all conditions hold in a run that gave `answer(backend, lookup)`, both counted from 0. A lookup that was
    /// not reached (`None`) fulfils nothing.
    pub fn holds(&self, answer: impl Fn(usize, usize) -> Option<Answer>) -> bool {
        self.conditions.iter().all(|c| {
            answer(c.backend, c.lookup)
                .is_some_and(|a| a.value == c.value && c.after.is_none_or(|b| a.after & (1 << b) != 0))
        })
    }
}

/// One litmus file, checked: every index is in range, every transaction is begun and ended, every size is within its
/// limits. `Display` prints a file that parses back to the same value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Litmus {
    /// Name of the file without folder and extension.
    pub name: String,
    /// First line of its first comment.
    pub title: String,
    /// The other lines of its first comment: why.
    pub story: Vec<String>,
    /// Statements of the contract that title and story name, in order, each once.
    pub cites: Vec<String>,
    /// What it needs of the implementation.
    pub layer: Layer,
    /// Its keys; at least one.
    pub keys: Vec<KeyDecl>,
    /// Its lists.
    pub lists: Vec<ListDecl>,
    /// Stripes; a power of two.
    pub stripes: u32,
    /// Messages that the ring holds; a power of two, at least 2.
    pub ring: u32,
    /// Entries that the shared table holds.
    pub entries: Option<u32>,
    /// Entries that a local view keeps at an accept.
    pub local: Option<u32>,
    /// Rows that a bracket may have before it opens the stamps of their catalogs instead.
    pub escalate: Option<u32>,
    /// Its backends; at least one.
    pub backends: Vec<BackendDecl>,
    /// Outcomes that must not be.
    pub never: Vec<Clause>,
    /// Outcomes that must be possible.
    pub sometimes: Vec<Clause>,
}

/// A litmus file that couldn't be had.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It couldn't be read.
    #[error("can't read {file}: {source}")]
    Read {
        /// The path that was tried.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is too large for a litmus file, or has no end.
    #[error("{file} is not a litmus file: it has more than {BYTES_MAX} bytes")]
    TooLarge {
        /// The path.
        file: String,
    },
    /// It isn't text.
    #[error("{file} is not a litmus file: byte {at} is not UTF-8 text")]
    NotText {
        /// The path.
        file: String,
        /// Bytes before the first wrong one.
        at: usize,
    },
    /// It was refused.
    #[error(transparent)]
    Refused(#[from] LitmusError),
}

// Generated by build.rs: `SHIPPED`, the name and text of every file in `conformance/litmus`, sorted by name.
include!(concat!(env!("OUT_DIR"), "/shipped.rs"));

/// The files that this crate was built with, compiled in, sorted by name.
///
/// # Errors
/// The first file that is refused; the test suite makes sure that none is.
pub fn shipped() -> Result<Vec<Litmus>, LitmusError> {
    SHIPPED.iter().map(|(name, text)| Litmus::parse(&format!("{name}.litmus"), text)).collect()
}

impl Litmus {
    /// Reads `text`; `file` is what errors call it, and gives the name.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place. Never panics, whatever the text.
    pub fn parse(file: &str, text: &str) -> Result<Litmus, LitmusError> {
        parse::parse(file, text)
    }

    /// Reads the file at `path`.
    ///
    /// # Errors
    /// It can't be read, isn't text, is too large, or is refused.
    pub fn load(path: &Path) -> Result<Litmus, LoadError> {
        let file = path.display().to_string();
        let mut bytes = Vec::new();
        let read = std::fs::File::open(path).and_then(|opened| opened.take(BYTES_MAX + 1).read_to_end(&mut bytes));
        read.map_err(|source| LoadError::Read { file: file.clone(), source })?;
        if bytes.len() as u64 > BYTES_MAX {
            return Err(LoadError::TooLarge { file });
        }
        let text =
            std::str::from_utf8(&bytes).map_err(|e| LoadError::NotText { file: file.clone(), at: e.valid_up_to() })?;
        // Some editors begin a file with this mark.
        Ok(Litmus::parse(&file, text.strip_prefix('\u{feff}').unwrap_or(text))?)
    }

    /// Number of the cache of key `key`: caches are numbered in the order in which `keys` names them first.
    pub fn cache_id(&self, key: usize) -> u8 {
        let mut caches: Vec<&str> = Vec::new();
        for decl in &self.keys[..key] {
            if !caches.contains(&decl.cache.as_str()) {
                caches.push(&decl.cache);
            }
        }
        let id = caches.iter().position(|c| *c == self.keys[key].cache).unwrap_or(caches.len());
        u8::try_from(id).expect("there are at most KEYS_MAX caches")
    }

    /// The list of an operation's number; `None`: it is a key's.
    pub fn list(&self, item: usize) -> Option<&ListDecl> {
        self.lists.get(item.checked_sub(self.keys.len())?)
    }

    /// The name of a key or a list.
    pub fn name_of(&self, item: usize) -> &str {
        self.list(item).map_or_else(|| self.keys[item].name.as_str(), |list| list.name.as_str())
    }

    /// The database of a key or a list.
    pub fn database_of(&self, item: usize) -> u32 {
        self.keys[self.list(item).map_or(item, |list| list.members[0])].database
    }

    /// Does an operation write key `key`, if there is a row?
    pub fn op_writes(&self, op: Op, key: usize) -> bool {
        let one = &self.keys[key];
        op.writes().is_some_and(|named| match op {
            Op::DropDatabase(_) => self.keys[named].database == one.database,
            Op::Rewrite(_) => self.keys[named].database == one.database && self.keys[named].cache == one.cache,
            _ => named == key,
        })
    }

    /// How often the programs write key `key`, at most.
    pub fn writes(&self, key: usize) -> usize {
        self.backends.iter().flat_map(|b| &b.ops).filter(|op| self.op_writes(**op, key)).count()
    }

    /// Lookups of all programs together.
    pub fn lookups(&self) -> usize {
        self.backends.iter().map(|b| b.lookups().count()).sum()
    }

    /// One operation as the file says it.
    pub fn op_text(&self, op: Op) -> String {
        let name = |item: usize| self.name_of(item);
        match op {
            Op::Lookup(key) => format!("lookup {}", name(key)),
            Op::Accept => "accept".into(),
            Op::Begin => "begin".into(),
            Op::Insert(key) => format!("insert {}", name(key)),
            Op::Update(key) => format!("update {}", name(key)),
            Op::Delete(key) => format!("delete {}", name(key)),
            Op::CommandEnd => "end".into(),
            Op::SubBegin => "subbegin".into(),
            Op::SubCommit => "subcommit".into(),
            Op::SubAbort => "subabort".into(),
            Op::Commit => "commit".into(),
            Op::CommitFails => "commit fails".into(),
            Op::Abort => "abort".into(),
            Op::Evict(key) => format!("evict {}", name(key)),
            Op::InPlace(key) => format!("inplace {}", name(key)),
            Op::Rewrite(key) => format!("rewrite {}", name(key)),
            Op::DropDatabase(key) => format!("dropdb {}", name(key)),
        }
    }

    /// One clause as the file says it.
    pub fn clause_text(&self, clause: &Clause) -> String {
        let condition = |c: &Condition| {
            let after = c.after.map(|b| format!(" after {}", self.backends[b].name)).unwrap_or_default();
            format!("{}.{} = {}{after}", self.backends[c.backend].name, c.lookup + 1, c.value)
        };
        clause.conditions.iter().map(condition).collect::<Vec<_>>().join(" and ")
    }
}

impl fmt::Display for Litmus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# {}", self.title)?;
        for line in &self.story {
            writeln!(f, "{}", format!("# {line}").trim_end())?;
        }
        writeln!(f, "layer {}", if self.layer == Layer::Shared { "shared" } else { "backend" })?;
        let database = |n: u32| if n == DATABASE_DEFAULT { String::new() } else { format!(" database {n}") };
        let key = |k: &KeyDecl| {
            let (absent, toasted) = (if k.absent { " absent" } else { "" }, if k.toasted { " toasted" } else { "" });
            format!("{} = {}/{}{absent}{toasted}{}", k.name, k.cache, k.hash, database(k.database))
        };
        writeln!(f, "keys {}", self.keys.iter().map(key).collect::<Vec<_>>().join(", "))?;
        let list = |l: &ListDecl| {
            let [first, second] = l.members.map(|k| &self.keys[k]);
            format!("{} = {}/{} of {} {}", l.name, first.cache, l.hash, first.name, second.name)
        };
        if !self.lists.is_empty() {
            writeln!(f, "lists {}", self.lists.iter().map(list).collect::<Vec<_>>().join(", "))?;
        }
        let stripes = (self.stripes != STRIPES_DEFAULT).then_some(self.stripes);
        let ring = (self.ring != RING_DEFAULT).then_some(self.ring);
        let others = [("entries", self.entries), ("local", self.local), ("escalate", self.escalate)];
        for (word, size) in [("stripes", stripes), ("ring", ring)].into_iter().chain(others) {
            if let Some(size) = size {
                writeln!(f, "{word} {size}")?;
            }
        }
        for backend in &self.backends {
            let ops: Vec<String> = backend.ops.iter().map(|op| self.op_text(*op)).collect();
            writeln!(f, "backend {}{}: {}", backend.name, database(backend.database), ops.join("; "))?;
        }
        for (word, clauses) in [("never", &self.never), ("sometimes", &self.sometimes)] {
            for clause in clauses {
                writeln!(f, "{word} {}", self.clause_text(clause))?;
            }
        }
        Ok(())
    }
}
