//! The oracle: judges what long random runs of the real cache have answered, and shares no code with the model.
//!
//! It knows nothing of stamps, tokens or references. A run leaves a [`History`]: per backend what it did, in its order, with
//! *tickets* of one counter drawn before and after each operation, so that "returned before that one began" can be told
//! across threads. [`History::check`] is a pure function of it. Each row carries the write that made it, so an answer
//! identifies its writer.
//!
//! A key's committed versions have an order, that of their instants of visibility (P). An answer names one of them; "no
//! such row" may name several. What is asked of each read, from the least to the most:
//!
//! | check | an answer is refused if | statements |
//! | --- | --- | --- |
//! | *foreign* | nobody ever wrote that row for that key, or it is torn | A39, D23 |
//! | *own changes* | the own transaction's finished commands say otherwise, or it shows the running command | A23 |
//! | *dirty read* | it was aborted, overwritten by its own transaction, or not visible yet when the read returned | A24 |
//! | *acknowledged* | a newer version's commit had returned before this backend last accepted | A1, A5 |
//! | *order* | this backend has been answered a newer version of the key before | A8 |
//! | *interval* | the version was not current at any instant at which it may have been read | I1h, A9, A12 |
//! | *stable* | the last answer was another one, and the backend has processed nothing since | A7 |
//! | *final* | everybody has come to rest and accepted, and it is not the last version | I1 |
//!
//! When a read that misses the local view begins, its backend accepts; so the read itself is an accept, begun when it began. A
//! hit of the local view accepts nothing, and is bound by what the backend accepted before.
//!
//! # What is not checked
//!
//! That several keys of one commit change together (A11: not promised), that a row isn't older than necessary within these
//! bounds, and memory: that nothing leaks is for the model and the harness's images.

mod record;
mod run;

use std::collections::BTreeMap;
use std::fmt;

pub use record::{Recorded, Recorder, RowError, Tickets, decode, encode};
pub use run::{Outcome, Plan, RunError, run};

/// A draw from the counter that orders a history; 0 is before everything.
pub type Ticket = u64;

/// Which write: the backend that made it, and its number there. Rows that were there at first are [`WriteId::FIRST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId {
    /// The backend.
    pub backend: u32,
    /// Counted from 1.
    pub serial: u32,
}

impl WriteId {
    /// Nobody's write: the row at first.
    pub const FIRST: WriteId = WriteId { backend: u32::MAX, serial: 0 };
}

/// What a read answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No such row.
    None,
    /// The row of this write.
    Row(WriteId),
    /// Bytes that no write of this key has written.
    Foreign(String),
}

/// Where an answer came from, as the steps of the lookup say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The local view; nothing was accepted.
    Local,
    /// An entry of the shared table, valid after the read began (I1h).
    Shared,
    /// A scan with a snapshot that was taken during the read.
    Fresh,
    /// A scan with a snapshot that an earlier read of this backend had taken.
    Reused,
}

/// What one backend did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A lookup.
    Read {
        /// Of this key.
        key: u32,
        /// Drawn before it.
        begun: Ticket,
        /// Drawn after it.
        ended: Ticket,
        /// What it said.
        answer: Answer,
        /// Where from.
        source: Source,
    },
    /// Messages were accepted: by itself, or at the start of a transaction.
    Accept {
        /// Drawn before it.
        begun: Ticket,
    },
    /// A row was written or (`row` false) deleted, by the running command.
    Write {
        /// Of this key.
        key: u32,
        /// Which.
        write: WriteId,
        /// Is there a row after it?
        row: bool,
    },
    /// A command ended.
    CommandEnd,
    /// A subtransaction began.
    SubBegin,
    /// It ended, and a command with it; what it wrote is its parent's.
    SubCommit,
    /// It was undone, and nothing else (A26).
    SubAbort,
    /// A commit has returned.
    Commit {
        /// Drawn at the instant P, in the catalog's own critical section.
        visible: Ticket,
        /// Drawn after it.
        acknowledged: Ticket,
    },
    /// An abort, or a commit that failed before P.
    Abort,
}

/// What a run leaves.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Keys with a row at first ([`WriteId::FIRST`]).
    pub present: Vec<u32>,
    /// Events of each backend, in its order.
    pub backends: Vec<Vec<Event>>,
    /// Reads begun later than this see a world at rest, after an accept.
    pub quiet: Option<Ticket>,
}

/// The checks, by the names of the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the module's table says what each is")]
pub enum Check {
    Foreign,
    OwnChanges,
    DirtyRead,
    Acknowledged,
    Order,
    Interval,
    Stable,
    Final,
}

/// An answer that may not be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("backend {backend}, event {at}: {check:?}: {why}\n  {event:?}")]
pub struct Violation {
    /// Which check.
    pub check: Check,
    /// Which backend.
    pub backend: usize,
    /// Index into its events.
    pub at: usize,
    /// The event.
    pub event: Event,
    /// In words.
    pub why: String,
}

/// What was there to be judged: a run in which something never happened has not tested it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Reads answered by the local view.
    pub local: u64,
    /// Reads answered by the shared table.
    pub shared: u64,
    /// Reads that scanned with a new snapshot.
    pub fresh: u64,
    /// Reads that scanned with an old snapshot.
    pub reused: u64,
    /// Reads that had to show an own uncommitted change.
    pub own: u64,
    /// Reads of rows that were not there.
    pub negative: u64,
    /// Reads that were legally older than the newest commit that had returned.
    pub old: u64,
    /// Reads of the world at rest.
    pub last: u64,
    /// Commits.
    pub commits: u64,
    /// Aborts, failed commits among them.
    pub aborts: u64,
    /// Subtransactions that committed.
    pub sub_commits: u64,
    /// Subtransactions that aborted.
    pub sub_aborts: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { local, shared, fresh, reused, own, negative, old, last, .. } = self;
        let Tally { commits, aborts, sub_commits, sub_aborts, .. } = self;
        write!(f, "reads: {local} local, {shared} shared, {fresh} loaded, {reused} loaded with an old snapshot; ")?;
        write!(f, "{own} of own changes, {negative} negative, {old} legally old, {last} final; ")?;
        write!(f, "{commits} commits, {aborts} aborts; of subtransactions {sub_commits} and {sub_aborts}")
    }
}

/// One committed version of a key.
#[derive(Clone, Copy, Debug)]
struct Version {
    write: WriteId,
    row: bool,
    visible: Ticket,
    acknowledged: Ticket,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Committed(usize),
    Superseded,
    Aborted,
    Unfinished,
}

/// The committed versions of each key in their order, and what became of each write.
struct World {
    keys: BTreeMap<u32, Vec<Version>>,
    fates: BTreeMap<WriteId, (u32, Fate)>,
}

impl World {
    fn of(history: &History) -> World {
        let mut world = World { keys: BTreeMap::new(), fates: BTreeMap::new() };
        let touched = history.backends.iter().flatten().filter_map(|e| match e {
            Event::Read { key, .. } | Event::Write { key, .. } => Some(*key),
            Event::Accept { .. } | Event::CommandEnd | Event::Commit { .. } | Event::Abort => None,
            Event::SubBegin | Event::SubCommit | Event::SubAbort => None,
        });
        for key in touched.chain(history.present.iter().copied()) {
            let row = history.present.contains(&key);
            let first = Version { write: WriteId::FIRST, row, visible: 0, acknowledged: 0 };
            world.keys.entry(key).or_insert_with(|| vec![first]);
        }
        for events in &history.backends {
            // Writes of the open transaction, the last one of each key at the end.
            let mut open: Vec<(u32, WriteId, bool)> = Vec::new();
            // How many there were when each open subtransaction began.
            let mut subs: Vec<usize> = Vec::new();
            for event in events {
                match *event {
                    Event::Write { key, write, row } => {
                        world.fates.insert(write, (key, Fate::Unfinished));
                        open.push((key, write, row));
                    }
                    Event::Commit { visible, acknowledged } => {
                        for (at, (key, write, row)) in open.iter().enumerate() {
                            if open[at + 1..].iter().any(|(k, ..)| k == key) {
                                world.fates.insert(*write, (*key, Fate::Superseded));
                            } else {
                                let version = Version { write: *write, row: *row, visible, acknowledged };
                                world.keys.entry(*key).or_default().push(version);
                            }
                        }
                        open.clear();
                        subs.clear();
                    }
                    Event::SubBegin => subs.push(open.len()),
                    Event::SubCommit => _ = subs.pop(),
                    Event::SubAbort => {
                        let undone = open.drain(subs.pop().unwrap_or(0)..);
                        world.fates.extend(undone.map(|(key, write, _)| (write, (key, Fate::Aborted))));
                    }
                    Event::Abort => {
                        subs.clear();
                        world.fates.extend(open.drain(..).map(|(key, write, _)| (write, (key, Fate::Aborted))));
                    }
                    Event::Read { .. } | Event::Accept { .. } | Event::CommandEnd => {}
                }
            }
        }
        for (key, versions) in &mut world.keys {
            versions.sort_by_key(|v| v.visible);
            for (at, version) in versions.iter().enumerate().skip(1) {
                world.fates.insert(version.write, (*key, Fate::Committed(at)));
            }
        }
        world
    }
}

/// Own open writes of one key, and whether there is a row after each.
#[derive(Clone, Copy, Default)]
struct Own {
    /// By the running command.
    pending: Option<(WriteId, bool)>,
    /// By finished ones.
    finished: Option<(WriteId, bool)>,
}

/// What is known of a backend at one point of its events.
#[derive(Default)]
struct Knowledge {
    /// Own open writes, by key.
    own: BTreeMap<u32, Own>,
    /// What they were when each open subtransaction began.
    outer: Vec<BTreeMap<u32, Own>>,
    /// When the last accept began.
    accepted: Ticket,
    /// The newest snapshot can't be older than this: when the read began that took it, or the instant at which the newest
    /// version that was answered became visible (A9).
    snapshot: Ticket,
    /// The least version of a key that may still be answered.
    floor: BTreeMap<u32, usize>,
    /// The last answer for a key.
    last: BTreeMap<u32, Answer>,
    /// Keys read since the last point at which something was processed.
    since: Vec<u32>,
}

impl History {
    /// Judges every read. Cost: reads times versions of their key, at worst.
    ///
    /// # Errors
    /// The first answer, in the order of the backends, that may not be.
    pub fn check(&self) -> Result<Tally, Box<Violation>> {
        let world = World::of(self);
        let mut tally = Tally::default();
        for (backend, events) in self.backends.iter().enumerate() {
            let mut known = Knowledge::default();
            for (at, event) in events.iter().enumerate() {
                if let Err((check, why)) = self.follow(&world, &mut known, &mut tally, event) {
                    return Err(Box::new(Violation { check, backend, at, event: event.clone(), why }));
                }
            }
        }
        Ok(tally)
    }

    fn follow(
        &self,
        world: &World,
        known: &mut Knowledge,
        tally: &mut Tally,
        event: &Event,
    ) -> Result<(), (Check, String)> {
        match event {
            Event::Accept { begun } => {
                known.accepted = *begun;
                known.since.clear();
            }
            Event::Write { key, write, row } => known.own.entry(*key).or_default().pending = Some((*write, *row)),
            Event::SubBegin => known.outer.push(known.own.clone()),
            Event::SubAbort => {
                tally.sub_aborts += 1;
                known.own = known.outer.pop().unwrap_or_default();
                known.since.clear();
            }
            Event::CommandEnd | Event::SubCommit => {
                if *event == Event::SubCommit {
                    tally.sub_commits += 1;
                    known.outer.pop();
                }
                for own in known.own.values_mut() {
                    own.finished = own.pending.take().or(own.finished);
                }
                known.since.clear();
            }
            Event::Commit { .. } => {
                tally.commits += 1;
                known.outer.clear();
                for (key, Own { finished, .. }) in std::mem::take(&mut known.own) {
                    // What was answered as an own change is a committed version now, and must not be gone back from.
                    if let Some((write, _)) = finished
                        && let Some((_, Fate::Committed(at))) = world.fates.get(&write)
                        && known.last.contains_key(&key)
                    {
                        known.floor.insert(key, *at);
                    }
                }
            }
            Event::Abort => {
                tally.aborts += 1;
                known.outer.clear();
                known.own.clear();
                known.since.clear();
            }
            Event::Read { key, begun, ended, answer, source } => {
                let read = Read { key: *key, begun: *begun, ended: *ended, answer, source: *source };
                self.judge(world, known, tally, &read)?;
                if *source != Source::Local {
                    known.accepted = *begun;
                    known.since.clear();
                }
                known.since.push(*key);
                known.last.insert(*key, answer.clone());
            }
        }
        Ok(())
    }

    fn judge(
        &self,
        world: &World,
        known: &mut Knowledge,
        tally: &mut Tally,
        read: &Read,
    ) -> Result<(), (Check, String)> {
        let versions = &world.keys[&read.key];
        tally.negative += u64::from(*read.answer == Answer::None);
        match read.source {
            Source::Local => tally.local += 1,
            Source::Shared => tally.shared += 1,
            Source::Fresh => tally.fresh += 1,
            Source::Reused => tally.reused += 1,
        }
        if let Answer::Foreign(what) = read.answer {
            return Err((Check::Foreign, what.clone()));
        }
        stable(known, read)?;
        if read.source == Source::Fresh {
            known.snapshot = read.begun;
        }
        let Own { pending, finished } = known.own.get(&read.key).copied().unwrap_or_default();
        if let Some((write, row)) = finished {
            tally.own += 1;
            let expected = if row { Answer::Row(write) } else { Answer::None };
            return match *read.answer == expected {
                true => Ok(()),
                false => Err((Check::OwnChanges, format!("the own transaction says {expected:?}"))),
            };
        }
        let mut may: Vec<usize> = match read.answer {
            Answer::Foreign(_) => Vec::new(),
            Answer::None => {
                let gone = |v: &Version| !v.row && v.visible <= read.ended;
                (0..versions.len()).filter(|i| gone(&versions[*i])).collect()
            }
            Answer::Row(WriteId::FIRST) if versions[0].row => vec![0],
            Answer::Row(write) => {
                if pending.is_some_and(|(own, _)| own == *write) {
                    let why = "a change of the running command is not visible before its end".to_owned();
                    return Err((Check::OwnChanges, why));
                }
                match world.fates.get(write) {
                    Some((key, Fate::Committed(at))) if *key == read.key && versions[*at].row => {
                        if versions[*at].visible > read.ended {
                            return Err((Check::DirtyRead, format!("it became visible at {}", versions[*at].visible)));
                        }
                        vec![*at]
                    }
                    Some((key, fate)) if *key == read.key && !matches!(fate, Fate::Committed(_)) => {
                        return Err((Check::DirtyRead, format!("the write was never committed: {fate:?}")));
                    }
                    Some((key, _)) => return Err((Check::Foreign, format!("that is a write of key {key}"))),
                    None => return Err((Check::Foreign, "nobody wrote that".to_owned())),
                }
            }
        };
        if may.is_empty() {
            return Err((Check::DirtyRead, "the row was there all the time".to_owned()));
        }
        // Keeps what `holds` of the versions that may have been answered; none left is a violation.
        let mut narrow = |check: Check, holds: &dyn Fn(usize) -> bool, why: String| {
            may.retain(|i| holds(*i));
            if may.is_empty() { Err((check, why)) } else { Ok(()) }
        };
        let bound = if read.source == Source::Local { known.accepted } else { read.begun };
        let least = (0..versions.len()).rev().find(|i| versions[*i].acknowledged < bound || *i == 0).unwrap_or(0);
        let why = format!("{:?} had been acknowledged before {bound}, when messages were accepted", versions[least]);
        narrow(Check::Acknowledged, &|i| i >= least, why)?;
        let floor = known.floor.get(&read.key).copied().unwrap_or(0);
        narrow(Check::Order, &|i| i >= floor, format!("{:?} was answered before", versions[floor]))?;
        let since = match read.source {
            Source::Local => 0,
            Source::Shared | Source::Fresh => read.begun,
            Source::Reused => known.snapshot,
        };
        let still = |i: usize| versions.get(i + 1).is_none_or(|next| next.visible > since);
        narrow(Check::Interval, &still, format!("it was not current at any instant from {since} to {}", read.ended))?;
        if self.quiet.is_some_and(|quiet| read.begun > quiet) {
            tally.last += 1;
            let last = versions.len() - 1;
            narrow(Check::Final, &|i| i == last, format!("the last version is {:?}", versions[last]))?;
        }
        // The least version that it can have been leaves most room to what follows.
        known.floor.insert(read.key, may[0]);
        known.snapshot = known.snapshot.max(versions[may[0]].visible);
        let newest = (0..versions.len()).rev().find(|i| versions[*i].acknowledged < read.begun).unwrap_or(0);
        tally.old += u64::from(may.iter().all(|i| *i < newest));
        Ok(())
    }
}

/// A read, taken apart.
struct Read<'h> {
    key: u32,
    begun: Ticket,
    ended: Ticket,
    answer: &'h Answer,
    source: Source,
}

/// What the local view answers is what it was given; and it loses nothing between two points of processing.
fn stable(known: &Knowledge, read: &Read) -> Result<(), (Check, String)> {
    let last = known.last.get(&read.key);
    if read.source == Source::Local && last != Some(read.answer) {
        return Err((Check::Stable, format!("the answer before was {last:?}, and a local view does not change")));
    }
    if read.source != Source::Local && known.since.contains(&read.key) {
        let why = "read before, nothing processed since, and yet not in the local view any more".to_owned();
        return Err((Check::Stable, why));
    }
    Ok(())
}
