//! Records a history: a backend of the real cache, wrapped so that every operation leaves an event.
//!
//! A row says who wrote it: `key, backend, serial` and a checksum in front of a filling of varying length. A row that is
//! torn, or lies where another one should, does not decode to a write of its key.

use super::{Answer, Event, Source, Ticket, WriteId};
use shared_catcache::backend::{Backend, Catalog, MemoryCatalog, MemoryError, MemorySession, WriteError};
use shared_catcache::{Error, Key, Probe, Rule, Seen, Shared, Step};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of a row in front of its filling.
const HEAD: usize = 16;

/// A row that no write has written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes that no write of key {key} wrote: {why}")]
pub struct RowError {
    /// The key that was asked for.
    pub key: u32,
    /// Length of the row.
    pub len: usize,
    /// What is wrong.
    pub why: String,
}

/// The row of a write; its length and its filling follow from it.
pub fn encode(key: u32, write: WriteId) -> Vec<u8> {
    let mut row = Vec::with_capacity(HEAD + 256);
    for word in [key, write.backend, write.serial] {
        row.extend(word.to_le_bytes());
    }
    let sum = mix(key, write);
    row.extend(sum.to_le_bytes());
    // Lengths of several size classes, so that slots are reused for other rows.
    row.extend((0..sum % 240).map(|i| (sum >> (i % 24)) as u8));
    row
}

/// The write that made `row`.
///
/// # Errors
/// It is not the row of any write of `key`.
pub fn decode(key: u32, row: &[u8]) -> Result<WriteId, RowError> {
    let error = |why: String| RowError { key, len: row.len(), why };
    let word = |at: usize| row.get(4 * at..4 * at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let (Some(of), Some(backend), Some(serial)) = (word(0), word(1), word(2)) else {
        return Err(error("too short".to_owned()));
    };
    let write = WriteId { backend, serial };
    if of != key {
        return Err(error(format!("it says key {of}, {write:?}")));
    }
    if row != encode(key, write) {
        return Err(error(format!("it says {write:?}, but the rest is not that write's")));
    }
    Ok(write)
}

fn mix(key: u32, write: WriteId) -> u32 {
    let mut sum = 0x9E37_79B9u32;
    for word in [key, write.backend, write.serial] {
        sum = (sum ^ word).wrapping_mul(0x85EB_CA6B).rotate_left(13);
    }
    sum ^ sum >> 16
}

/// The counter that orders a history.
#[derive(Debug)]
pub struct Tickets {
    last: AtomicU64,
    order: Ordering,
}

impl Tickets {
    /// A counter that orders whatever its threads do, too.
    pub fn new() -> Arc<Tickets> {
        // SeqCst: a draw orders what comes before and after it with every other draw, so that "acknowledged before that read
        // began" means what it says under any memory model.
        Arc::new(Tickets { last: AtomicU64::new(0), order: Ordering::SeqCst })
    }

    /// A counter that orders its draws only, for a race detector: the other one would make every pair of operations
    /// ordered, and thereby hide missing orderings in the cache.
    pub fn unordered() -> Arc<Tickets> {
        // Relaxed: nothing is published through it. Under a race detector a draw is a call that the compiler can't move, and
        // an indivisible addition that the processor can't either (x86-64), so the numbers mean the same.
        Arc::new(Tickets { last: AtomicU64::new(0), order: Ordering::Relaxed })
    }

    /// The next ticket.
    pub fn draw(&self) -> Ticket {
        self.last.fetch_add(1, self.order) + 1
    }
}

/// What the probe of one backend has seen during one operation.
#[derive(Debug)]
pub struct Recorder {
    tickets: Arc<Tickets>,
    visible: AtomicU64,
    local: AtomicBool,
    scanned: AtomicBool,
    snapshot: AtomicBool,
    /// A rule that is broken on purpose, to see whether the oracle notices.
    fault: Option<Rule>,
    /// Random bits: how many steps until the next yield.
    dice: AtomicU64,
}

// Relaxed everywhere: only the backend's own thread comes here.
impl Probe for Recorder {
    /// Lets others in between two steps now and then: threads that are preempted only every few milliseconds would
    /// seldom meet inside a load or a commit.
    fn before(&self, _step: Step) {
        let mut bits = self.dice.load(Ordering::Relaxed);
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        self.dice.store(bits, Ordering::Relaxed);
        if bits.is_multiple_of(16) {
            std::thread::yield_now();
        }
    }

    fn keeps(&self, rule: Rule) -> bool {
        self.fault != Some(rule)
    }

    fn took(&self, step: Step, seen: Seen) {
        match step {
            // In the catalog's critical section: tickets of P have the order of P.
            Step::Visible if seen != Seen::Fail => self.visible.store(self.tickets.draw(), Ordering::Relaxed),
            Step::LocalHit => self.local.store(true, Ordering::Relaxed),
            Step::Scan => self.scanned.store(true, Ordering::Relaxed),
            Step::Snapshot => self.snapshot.store(true, Ordering::Relaxed),
            _ => {}
        }
    }
}

impl Recorder {
    fn begin(&self) {
        for flag in [&self.local, &self.scanned, &self.snapshot] {
            flag.store(false, Ordering::Relaxed);
        }
    }

    fn source(&self) -> Source {
        match (
            self.local.load(Ordering::Relaxed),
            self.snapshot.load(Ordering::Relaxed),
            self.scanned.load(Ordering::Relaxed),
        ) {
            (true, ..) => Source::Local,
            (false, true, _) => Source::Fresh,
            (false, false, true) => Source::Reused,
            (false, false, false) => Source::Shared,
        }
    }
}

type Session = MemorySession<Arc<Recorder>>;

/// A backend of the real cache that leaves a history.
pub struct Recorded {
    backend: Backend<Session, Arc<Recorder>>,
    recorder: Arc<Recorder>,
    number: u32,
    serial: u32,
    hashes: u32,
    events: Vec<Event>,
}

impl Recorded {
    /// Attaches backend `number` of a history. `hashes`: keys of one hash are that far apart; `fault`: a rule that this
    /// backend breaks.
    ///
    /// # Errors
    /// As [`Backend::attach`].
    pub fn attach(
        shared: &Shared,
        catalog: &MemoryCatalog,
        tickets: &Arc<Tickets>,
        number: u32,
        hashes: u32,
        fault: Option<Rule>,
    ) -> Result<Recorded, Error> {
        let recorder = Arc::new(Recorder {
            tickets: tickets.clone(),
            visible: AtomicU64::new(0),
            local: AtomicBool::new(false),
            scanned: AtomicBool::new(false),
            snapshot: AtomicBool::new(false),
            fault,
            dice: AtomicU64::new(u64::from(number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        });
        let session = catalog.session(recorder.clone());
        let backend = Backend::attach_with(shared, DATABASE, session, recorder.clone())?;
        Ok(Recorded { backend, recorder, number, serial: 0, hashes, events: Vec::new() })
    }

    /// The backend itself, for what leaves no event.
    pub fn backend(&mut self) -> &mut Backend<Session, Arc<Recorder>> {
        &mut self.backend
    }

    /// The events so far.
    pub fn into_events(self) -> Vec<Event> {
        self.events
    }

    /// A lookup.
    ///
    /// # Errors
    /// The catalog's.
    pub fn read(&mut self, key: u32) -> Result<(), MemoryError> {
        self.recorder.begin();
        let begun = self.recorder.tickets.draw();
        let bytes = bytes_of(key, self.hashes);
        let row = self.backend.lookup(&key_of(key, self.hashes, &bytes));
        let ended = self.recorder.tickets.draw();
        let answer = match row {
            Ok(None) => Answer::None,
            Ok(Some(row)) => decode(key, row).map_or_else(|e| Answer::Foreign(e.to_string()), Answer::Row),
            Err(shared_catcache::backend::LookupError::Catalog(e)) => return Err(e),
            Err(e) => {
                self.events.push(Event::Read {
                    key,
                    begun,
                    ended,
                    answer: Answer::Foreign(e.to_string()),
                    source: Source::Shared,
                });
                return Ok(());
            }
        };
        let source = self.recorder.source();
        self.events.push(Event::Read { key, begun, ended, answer, source });
        Ok(())
    }

    /// Accepts messages.
    pub fn accept(&mut self) {
        let begun = self.recorder.tickets.draw();
        self.backend.accept();
        self.events.push(Event::Accept { begun });
    }

    /// Starts a transaction.
    ///
    /// # Errors
    /// One is running.
    pub fn begin(&mut self) -> Result<(), Error> {
        let begun = self.recorder.tickets.draw();
        self.backend.begin()?;
        self.events.push(Event::Accept { begun });
        Ok(())
    }

    /// Writes (or deletes) a row; false: another transaction holds the key.
    ///
    /// # Errors
    /// Outside a transaction.
    pub fn write(&mut self, key: u32, row: bool) -> Result<bool, WriteError> {
        self.serial += 1;
        let write = WriteId { backend: self.number, serial: self.serial };
        let bytes = bytes_of(key, self.hashes);
        let of = key_of(key, self.hashes, &bytes);
        let written = match row {
            true => self.backend.put(&of, &encode(key, write)),
            false => self.backend.delete(&of),
        };
        match written {
            Ok(()) => self.events.push(Event::Write { key, write, row }),
            Err(WriteError::Conflict(_)) => return Ok(false),
            Err(e) => return Err(e),
        }
        Ok(true)
    }

    /// Ends a command.
    pub fn command_end(&mut self) {
        self.backend.command_end();
        self.events.push(Event::CommandEnd);
    }

    /// Begins a subtransaction.
    ///
    /// # Errors
    /// Outside a transaction, or in the middle of a command that has written.
    pub fn begin_sub(&mut self) -> Result<(), Error> {
        self.backend.begin_sub()?;
        self.events.push(Event::SubBegin);
        Ok(())
    }

    /// Ends the innermost subtransaction: keeps what it wrote, or undoes it.
    ///
    /// # Errors
    /// None is open.
    pub fn end_sub(&mut self, keep: bool) -> Result<(), Error> {
        if keep {
            self.backend.commit_sub()?
        } else {
            self.backend.abort_sub()?
        }
        self.events.push(if keep { Event::SubCommit } else { Event::SubAbort });
        Ok(())
    }

    /// Commits; if `fails`, the catalog refuses at P.
    pub fn commit(&mut self, fails: bool) {
        if fails {
            self.backend.catalog_mut().refuse_next_visible();
        }
        let event = match self.backend.commit() {
            Ok(()) => Event::Commit {
                visible: self.recorder.visible.load(Ordering::Relaxed),
                acknowledged: self.recorder.tickets.draw(),
            },
            // It has been aborted, and nothing has become visible: the checks will say so if that is not true.
            Err(_) => Event::Abort,
        };
        self.events.push(event);
    }

    /// Aborts.
    ///
    /// # Errors
    /// Outside a transaction.
    pub fn abort(&mut self) -> Result<(), Error> {
        self.backend.abort()?;
        self.events.push(Event::Abort);
        Ok(())
    }
}

/// All backends of a history are of this database.
const DATABASE: u32 = 5;

/// What a key of the upper half does not share with its twin, which has the same hash.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Differs {
    /// The columns alone.
    Columns,
    /// The database alone: it is of a catalog that all databases share.
    Database,
    /// The cache alone.
    Cache,
}

/// The twin of `key` in the lower half of the keys, and in what they differ: `None` for the lower half itself.
fn twin(key: u32, hashes: u32) -> (u32, Option<Differs>) {
    let lower = key % hashes;
    let differs = [Differs::Columns, Differs::Database, Differs::Cache][lower as usize % 3];
    (lower, (key != lower).then_some(differs))
}

/// The key's columns.
fn bytes_of(key: u32, hashes: u32) -> [u8; 4] {
    match twin(key, hashes) {
        (_, None | Some(Differs::Columns)) => key,
        (lower, Some(Differs::Database | Differs::Cache)) => lower,
    }
    .to_le_bytes()
}

/// The key as the cache has it: `hashes` different hashes, so that larger numbers collide with smaller ones.
fn key_of(key: u32, hashes: u32, bytes: &[u8; 4]) -> Key<'_> {
    let (lower, differs) = twin(key, hashes);
    Key {
        database: if differs == Some(Differs::Database) { 0 } else { DATABASE },
        cache: if differs == Some(Differs::Cache) { 4 } else { 3 },
        hash: lower.wrapping_mul(0x9E37_79B1),
        bytes,
    }
}

/// Puts the first row of `key` into the catalog.
pub(super) fn fill(catalog: &MemoryCatalog, key: u32, hashes: u32, toasted: bool) {
    let bytes = bytes_of(key, hashes);
    let of = key_of(key, hashes, &bytes);
    catalog.fill(&of, &encode(key, WriteId::FIRST));
    if toasted {
        catalog.toast(&of);
    }
}

const _: () = {
    const fn is_catalog<C: Catalog>() {}
    is_catalog::<Session>();
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_names_its_write_and_nothing_else_passes_for_it() {
        let write = WriteId { backend: 2, serial: 77 };
        let row = encode(9, write);
        assert_eq!(decode(9, &row), Ok(write));
        assert!(decode(8, &row).unwrap_err().to_string().contains("key 9"));
        assert!(decode(9, &row[..10]).is_err());
        for at in 0..row.len() {
            let mut torn = row.clone();
            torn[at] ^= 1;
            assert!(decode(9, &torn).is_err(), "a flipped bit in byte {at} was not noticed");
        }
        assert!(decode(9, &[&row[..], b"x"].concat()).is_err());
    }
}
