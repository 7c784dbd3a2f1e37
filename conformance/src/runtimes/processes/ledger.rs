//! The ledger: what the processes of some runs have done, in one order.
//!
//! A file to which every process appends records of eight bytes. The kernel makes each append one step, after all that
//! were made before it, so the ledger needs no lock and its order is the order in which things were reported. Everybody
//! reads on from where he has read to. It is the harness's own: the code under test knows nothing of it.

use crate::desk::{Answered, Board, Common, Place};
use crate::refinement::Writer;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Bytes of a record: kind, backend, eight of content, and the number of the run.
const RECORD: usize = 12;
/// Of these, the content.
const CONTENT: usize = 8;

/// What a record says of one backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// It is attached, and waits for the others.
    Ready,
    /// A transaction has begun, or its commit or abort has returned.
    Done(bool),
    /// It has made a write: the key of the file, and who.
    Wrote(u8, Writer),
    /// A lookup has returned.
    Answered(Answered),
    /// It has run its program.
    Finished,
    /// It has given up: what went wrong, its process says elsewhere.
    Failed,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which run.
    pub run: u16,
    /// Which backend.
    pub backend: u8,
    /// What of it.
    pub entry: Entry,
}

impl Record {
    fn bytes(self) -> [u8; RECORD] {
        let (kind, content) = match self.entry {
            Entry::Ready => (1, [0; CONTENT]),
            Entry::Done(done) => (2, [u8::from(done), 0, 0, 0, 0, 0, 0, 0]),
            Entry::Wrote(key, by) => (3, [key, by.backend, by.op, 0, 0, 0, 0, 0]),
            Entry::Answered(Answered { key, writer, second, after }) => {
                let known = u8::from(writer.is_some()) | u8::from(second.is_some()) << 1;
                let [first, second] = [writer, second].map(|by| by.unwrap_or(Writer { backend: 0, op: 0 }));
                (4, [key, after, known, first.backend, first.op, second.backend, second.op, 0])
            }
            Entry::Finished => (5, [0; CONTENT]),
            Entry::Failed => (6, [0; CONTENT]),
        };
        let mut bytes = [0; RECORD];
        (bytes[0], bytes[1]) = (kind, self.backend);
        bytes[2..][..CONTENT].copy_from_slice(&content);
        bytes[2 + CONTENT..].copy_from_slice(&self.run.to_le_bytes());
        bytes
    }

    fn of(bytes: [u8; RECORD]) -> Option<Record> {
        let [kind, backend, a, b, c, d, e, f, g, _, low, high] = bytes;
        let writer = |bit: u8, backend, op| (c & bit != 0).then_some(Writer { backend, op });
        let entry = match kind {
            1 => Entry::Ready,
            2 => Entry::Done(a != 0),
            3 => Entry::Wrote(a, Writer { backend: b, op: c }),
            4 => Entry::Answered(Answered { key: a, writer: writer(1, d, e), second: writer(2, f, g), after: b }),
            5 => Entry::Finished,
            6 => Entry::Failed,
            _ => return None,
        };
        Some(Record { run: u16::from_le_bytes([low, high]), backend, entry })
    }
}

/// One process's way to the ledger.
#[derive(Debug)]
pub struct Ledger {
    file: File,
    read_to: u64,
    /// What was read and is of later runs.
    ahead: Vec<Record>,
}

impl Ledger {
    /// Opens the file, which is there.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path) -> io::Result<Ledger> {
        Ok(Ledger { file: OpenOptions::new().read(true).append(true).open(path)?, read_to: 0, ahead: Vec::new() })
    }

    /// Appends one record.
    ///
    /// # Errors
    /// The system's.
    pub fn append(&self, record: Record) -> io::Result<()> {
        let written = (&self.file).write(&record.bytes())?;
        if written == RECORD { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// What was appended since this handle read last.
    ///
    /// # Errors
    /// The system's; `InvalidData` for what is no record.
    pub fn news(&mut self) -> io::Result<Vec<Record>> {
        let mut records = Vec::new();
        let mut bytes = [0; 64 * RECORD];
        loop {
            let read = self.file.read_at(&mut bytes, self.read_to)?;
            let whole = bytes[..read].as_chunks().0;
            for record in whole {
                records.push(Record::of(*record).ok_or(io::ErrorKind::InvalidData)?);
            }
            self.read_to += (whole.len() * RECORD) as u64;
            if whole.is_empty() {
                return Ok(records);
            }
        }
    }
}

impl Ledger {
    /// Of what was appended since, that of one run. What is of later runs is kept for them: who has ended a run may begin the next
    /// before others have read that it has.
    fn news_of(&mut self, run: u16) -> io::Result<Vec<Record>> {
        let news = self.news()?;
        self.ahead.extend(news);
        let (now, later) =
            self.ahead.drain(..).filter(|record| record.run >= run).partition(|record| record.run == run);
        self.ahead = later;
        Ok(now)
    }
}

/// What each run came to, as if one desk had heard of it.
///
/// # Errors
/// A backend has not run its program to the end.
pub fn boards(records: &[Record], runs: usize, backends: usize) -> Result<Vec<Board>, String> {
    let empty = || Board { places: vec![Place::default(); backends], ..Board::default() };
    let mut boards: Vec<Board> = std::iter::repeat_with(empty).take(runs).collect();
    for Record { run, backend, entry } in records {
        let board = boards.get_mut(usize::from(*run)).ok_or("the ledger speaks of a run that there was not")?;
        let place = board.places.get_mut(usize::from(*backend)).ok_or("the ledger speaks of a backend too many")?;
        match entry {
            Entry::Wrote(key, by) => board.writes.push((*key, *by)),
            Entry::Answered(answered) => place.answers.push(*answered),
            Entry::Finished => place.finished = true,
            Entry::Ready | Entry::Done(_) | Entry::Failed => {}
        }
    }
    let ended = |board: &Board| board.places.iter().all(|place| place.finished);
    if boards.iter().all(ended) { Ok(boards) } else { Err("a process has not run its program to the end".into()) }
}

/// One backend's share in one run: what its desk has in common with those of the others.
pub struct Share {
    run: u16,
    me: u8,
    state: Mutex<State>,
}

struct State {
    ledger: Ledger,
    /// Who has finished; see [`Board::done`].
    done: u8,
    ready: u32,
    finished: u32,
    failed: bool,
    /// Of the pauses: how seldom, and which come next.
    one_in: u64,
    random: u64,
    error: Option<String>,
}

impl State {
    fn read_on(&mut self, run: u16) {
        match self.ledger.news_of(run) {
            Err(error) => self.error = Some(format!("the ledger can't be read: {error}")),
            Ok(records) => {
                for Record { backend, entry, .. } in records {
                    match entry {
                        Entry::Ready => self.ready += 1,
                        Entry::Done(true) => self.done |= 1 << backend,
                        Entry::Done(false) => self.done &= !(1 << backend),
                        Entry::Finished => self.finished += 1,
                        Entry::Failed => self.failed = true,
                        Entry::Wrote(..) | Entry::Answered(_) => {}
                    }
                }
            }
        }
    }

    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }
}

/// What all are to have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// Attached.
    Ready,
    /// Run their programs.
    Finished,
}

impl Share {
    /// Of backend `me` in `run`. It pauses before one step in `one_in`; 0: before none.
    pub fn new(ledger: Ledger, run: u16, me: u8, one_in: u64, seed: u64) -> Share {
        let (done, ready, finished, failed, error) = (0, 0, 0, false, None);
        let state = State { ledger, done, ready, finished, failed, one_in, random: seed, error };
        Share { run, me, state: Mutex::new(state) }
    }

    /// Gives the ledger back, for the next run.
    ///
    /// # Errors
    /// What went wrong with it on the way.
    pub fn into_ledger(self) -> Result<Ledger, String> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.error.map_or(Ok(state.ledger), Err)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends to the ledger; what goes wrong is told by [`Share::into_ledger`] and by [`Share::met`].
    pub fn append(&self, entry: Entry) {
        let mut state = self.state();
        if let Err(error) = state.ledger.append(Record { run: self.run, backend: self.me, entry }) {
            state.error = Some(format!("the ledger can't be written: {error}"));
        }
    }

    /// Have `all` come to the meeting?
    ///
    /// # Errors
    /// One of them never will.
    pub fn met(&self, meeting: Meeting, all: u32) -> Result<bool, String> {
        let mut state = self.state();
        state.read_on(self.run);
        match &state.error {
            Some(error) => Err(error.clone()),
            None if state.failed => Err(ANOTHER.into()),
            None => Ok(if meeting == Meeting::Ready { state.ready == all } else { state.finished == all }),
        }
    }
}

/// What a process says that has given up because another has.
pub const ANOTHER: &str = "another process has given up";

impl Common for Share {
    fn asked(&self) -> u8 {
        let mut state = self.state();
        state.read_on(self.run);
        state.done
    }

    fn done(&self, _me: u8, done: bool) {
        self.append(Entry::Done(done));
    }

    fn wrote(&self, key: u8, writer: Writer) {
        self.append(Entry::Wrote(key, writer));
    }

    fn pauses(&self) -> bool {
        let mut state = self.state();
        state.one_in != 0 && state.next_random().is_multiple_of(state.one_in)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_being_written() {
        let writer = Writer { backend: 3, op: 4 };
        let answered = |writer, second| Entry::Answered(Answered { key: 1, writer, second, after: 5 });
        for entry in [
            Entry::Ready,
            Entry::Done(true),
            Entry::Done(false),
            Entry::Wrote(2, writer),
            answered(Some(writer), None),
            answered(None, None),
            answered(None, Some(writer)),
            answered(Some(writer), Some(Writer { backend: 6, op: 7 })),
            Entry::Finished,
            Entry::Failed,
        ] {
            let record = Record { run: 258, backend: 2, entry };
            assert_eq!(Record::of(record.bytes()), Some(record));
        }
        assert_eq!(Record::of([0; RECORD]), None);
    }

    /// The first to end a run begins the next before the other has read that the first has ended.
    #[test]
    fn what_is_of_a_later_run_is_not_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        std::fs::write(&path, "").unwrap();
        let quick = Ledger::open(&path).unwrap();
        let slow = Share::new(Ledger::open(&path).unwrap(), 0, 1, 0, 0);
        for (run, entry) in [(0, Entry::Ready), (0, Entry::Finished), (1, Entry::Ready)] {
            quick.append(Record { run, backend: 0, entry }).unwrap();
        }
        assert!(slow.met(Meeting::Finished, 1).unwrap());
        let next = Share::new(slow.into_ledger().unwrap(), 1, 1, 0, 0);
        assert!(next.met(Meeting::Ready, 1).unwrap());
        assert!(!next.met(Meeting::Finished, 1).unwrap());
    }

    #[test]
    fn a_run_that_did_not_end_is_no_outcome() {
        let record = |backend, entry| Record { run: 0, backend, entry };
        let mut records = vec![record(0, Entry::Finished), record(1, Entry::Ready)];
        assert!(boards(&records, 1, 2).is_err());
        records.push(record(1, Entry::Finished));
        assert!(boards(&records, 1, 2).is_ok());
        assert!(boards(&records, 2, 2).is_err(), "nobody has run the second");
        records.push(record(2, Entry::Ready));
        assert!(boards(&records, 1, 2).is_err());
    }
}
