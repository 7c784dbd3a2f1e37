//! A catalog in memory: the reference implementation of [`Catalog`], with real transactions.
//!
//! It stands where PostgreSQL's system catalogs stand: multi-version rows, snapshots, locks on keys that are held to the
//! transaction's end, own changes that become visible at a command's end, commits in two parts. The tests, the
//! benchmarks and the conformance suite run the cache over it; it is also the place to read what an own implementation of
//! the trait has to do.
//!
//! [`MemoryCatalog`] is a handle on the common store, [`MemorySession`] one backend's transaction. The store lives in the
//! process, under one mutex, or in a file that processes share, under its lock (`memory_catalog/room.rs`); each method of a
//! session is one section of it, so each is one step of the protocol, and the session reports those that lie in it:
//! Snapshot, Scan, Write, SubAbort, Log, Visible, Unlock and Undo.
//!
//! Invariants
//!
//! * M1. The versions of a row are in the order of their commits' sequence numbers, and a snapshot of number n sees the
//!   last one with a number of at most n. The sequence advances once per commit, inside the section that adds all of
//!   its versions: a commit is visible whole or not at all.
//! * M2. A version is kept while a snapshot that still exists may see it, and pruned at a later commit. In a file all are
//!   kept, for nobody knows the snapshots of other processes.
//! * M3. A key is locked by at most one transaction, from its first write to its end. Uncommitted rows lie in the session
//!   and nowhere else.
//! * M4. A subtransaction keeps, of each key that it was the first level to write since it began, what the transaction had
//!   done to the key before: undoing it is putting that back.

mod room;

use self::room::Room;
use super::Backend;
use super::catalog::{Catalog, Nested, PartialScans, Subtransactions};
use super::list::Rows;
use crate::error::Error;
use crate::key::{Key, OwnedKey};
use crate::probe::{Probe, Seen, Step};
use crate::sync::{Arc, MODELLED, panicking};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Weak;
use std::{fmt, io};

/// Another open transaction has written the row (or locked its key).
#[derive(Debug, thiserror::Error)]
#[error("{key:?} is locked by another transaction that has not ended: abort, or try again after it has ended")]
pub struct Conflict {
    /// The key that is locked.
    pub key: OwnedKey,
}

/// Why a [`MemorySession`] could not commit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The session was told to refuse its next step P.
    #[error("the commit was refused before anything became visible, as asked for")]
    Refused,
    /// The file that processes share could not be locked, read or written.
    #[error("the catalog's file: {0}; let all processes end, and remove it")]
    File(#[from] Arc<io::Error>),
}

/// Why a write through a [`Backend`] over a [`MemoryCatalog`] was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// There is no transaction to write in.
    #[error(transparent)]
    Misuse(Error),
    /// Another open transaction holds the key.
    #[error(transparent)]
    Conflict(#[from] Conflict),
}

/// A row as it was from one commit to the next.
#[derive(Debug)]
struct Version {
    sequence: u64,
    /// `None`: there is no such row.
    row: Option<Arc<[u8]>>,
}

/// All that is known about a key.
#[derive(Debug, Default)]
struct Record {
    /// M1.
    versions: Vec<Version>,
    /// The session that has locked the key (M3).
    holder: Option<u64>,
    /// A scan of this row accepts messages after it has read it.
    toasted: bool,
}

impl Record {
    fn as_of(&self, sequence: u64) -> Option<Arc<[u8]>> {
        self.versions.iter().rev().find(|version| version.sequence <= sequence).and_then(|version| version.row.clone())
    }

    /// M2: drops the versions that no snapshot of number `oldest` or later can see.
    fn prune(&mut self, oldest: u64) {
        let seen_by_oldest = self.versions.iter().rposition(|version| version.sequence <= oldest);
        self.versions.drain(..seen_by_oldest.unwrap_or(0));
        if let [Version { row: None, sequence }] = self.versions[..]
            && sequence <= oldest
        {
            self.versions.clear();
        }
    }

    /// Whether there is still something to prune.
    fn has_history(&self) -> bool {
        self.versions.len() > 1 || self.versions.iter().any(|version| version.row.is_none())
    }

    fn is_blank(&self) -> bool {
        self.versions.is_empty() && self.holder.is_none() && !self.toasted
    }
}

#[derive(Debug, Default)]
struct Store {
    records: BTreeMap<OwnedKey, Record>,
    /// The number of the last commit.
    sequence: u64,
    /// The snapshots that may still exist, oldest first. They unregister by being dropped: no lock is taken for it.
    snapshots: Vec<Weak<u64>>,
    /// The keys whose records have versions to prune.
    history: BTreeSet<OwnedKey>,
    /// Sessions so far; numbers them.
    sessions: u64,
    /// Does it lie in a file? Snapshots of other processes are then not in `snapshots`.
    in_file: bool,
    /// Why it could not be read from its file when the section began.
    unreachable: Option<Arc<io::Error>>,
}

impl Store {
    /// # Errors
    /// It lies in a file, which could not be read: the store is then not what it should be.
    fn reachable(&self) -> Result<(), Arc<io::Error>> {
        self.unreachable.clone().map_or(Ok(()), Err)
    }

    /// Adds a version, committed by the commit of number `self.sequence`.
    fn add_version(&mut self, key: OwnedKey, row: Option<Arc<[u8]>>) {
        let record = self.records.entry(key.clone()).or_default();
        record.versions.push(Version { sequence: self.sequence, row });
        if record.has_history() {
            self.history.insert(key);
        }
    }

    /// M2.
    fn prune(&mut self) {
        if self.in_file {
            return;
        }
        self.snapshots.retain(|snapshot| snapshot.strong_count() > 0);
        let oldest =
            self.snapshots.iter().filter_map(Weak::upgrade).map(|snapshot| *snapshot).min().unwrap_or(self.sequence);
        let Store { history, records, .. } = self;
        history.retain(|key| {
            let Some(record) = records.get_mut(key) else { return false };
            record.prune(oldest);
            if record.is_blank() {
                records.remove(key);
                return false;
            }
            record.has_history()
        });
    }

    fn unlock(&mut self, session: u64, keys: impl Iterator<Item = OwnedKey>) {
        for key in keys {
            if let Some(record) = self.records.get_mut(&key)
                && record.holder == Some(session)
            {
                record.holder = None;
                if record.is_blank() {
                    self.records.remove(&key);
                }
            }
        }
    }
}

/// A handle on a catalog in memory; clones are handles on the same one.
#[derive(Clone)]
pub struct MemoryCatalog {
    store: Arc<Room>,
}

impl fmt::Debug for MemoryCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryCatalog").finish_non_exhaustive()
    }
}

impl Default for MemoryCatalog {
    fn default() -> MemoryCatalog {
        MemoryCatalog { store: Arc::new(Room::private()) }
    }
}

impl MemoryCatalog {
    /// An empty catalog.
    pub fn new() -> MemoryCatalog {
        MemoryCatalog::default()
    }

    /// A catalog that processes share: it lies in the file `path`, which is made, with mode 0600, if there is none. All of
    /// it is read and written in each section, so it is for tests and examples; put it into shared memory. It is never
    /// removed, and all versions are kept. A process that dies leaves its keys locked, and nothing else.
    ///
    /// Each process opens it by its path, since the lock of the file belongs to the open file.
    ///
    /// # Errors
    /// The system's; [`InvalidData`](io::ErrorKind::InvalidData) if the file holds something else.
    pub fn in_file(path: impl AsRef<Path>) -> io::Result<MemoryCatalog> {
        Ok(MemoryCatalog { store: Arc::new(Room::in_file(path.as_ref())?) })
    }

    /// Puts a row there as if it had been committed before time began: no transaction, no messages. For filling the
    /// catalog before backends use it. O(log n).
    pub fn fill(&self, key: &Key<'_>, row: &[u8]) {
        let mut store = self.store.lock();
        let record = store.records.entry(key.to_owned()).or_default();
        record.versions = vec![Version { sequence: 0, row: Some(row.into()) }];
    }

    /// Marks a key as *toasted*: its scan accepts messages after it has read the row, as PostgreSQL does when it fetches
    /// out-of-line values (A13, B01).
    pub fn toast(&self, key: &Key<'_>) {
        self.store.lock().records.entry(key.to_owned()).or_default().toasted = true;
    }

    /// The committed row as of now. For oracles; the cache never calls it. O(log n).
    pub fn committed(&self, key: &Key<'_>) -> Option<Vec<u8>> {
        let store = self.store.lock();
        store.records.get(&key.to_owned()).and_then(|record| record.as_of(store.sequence)).map(|row| row.to_vec())
    }

    /// A session for one backend, which reports its steps to `probe`.
    pub fn session<P: Probe>(&self, probe: P) -> MemorySession<P> {
        let mut store = self.store.lock();
        store.sessions += 1;
        let session = store.sessions;
        drop(store);
        MemorySession {
            catalog: self.clone(),
            probe,
            session,
            changes: BTreeMap::new(),
            subs: Vec::new(),
            refuse_next_visible: false,
        }
    }

    /// Row versions in the store.
    #[cfg(test)]
    fn versions(&self) -> usize {
        self.store.lock().records.values().map(|record| record.versions.len()).sum()
    }
}

/// What a scan sees: the commits up to a number. Dropping it lets old versions go (M2).
#[derive(Debug)]
pub struct MemorySnapshot {
    sequence: Arc<u64>,
}

/// What the transaction has done to a key that it has locked.
#[derive(Clone, Debug, Default)]
struct Change {
    /// By the running command: not visible to the own scans yet (A23). `Some(None)` is a deletion.
    pending: Option<Option<Arc<[u8]>>>,
    /// By earlier commands.
    finished: Option<Option<Arc<[u8]>>>,
}

/// One backend's session with a [`MemoryCatalog`].
///
/// A transaction begins by itself with the first write and ends with [`unlock`](Catalog::unlock) or
/// [`undo`](Catalog::undo). Dropping the session undoes what has not been committed.
pub struct MemorySession<P: Probe = ()> {
    catalog: MemoryCatalog,
    probe: P,
    session: u64,
    /// The keys that the transaction has locked, with what it did to them.
    changes: BTreeMap<OwnedKey, Change>,
    /// The open subtransactions, the innermost last (M4). `None`: the key was not locked.
    subs: Vec<BTreeMap<OwnedKey, Option<Change>>>,
    refuse_next_visible: bool,
}

impl<P: Probe> fmt::Debug for MemorySession<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySession").field("session", &self.session).field("changes", &self.changes).finish()
    }
}

impl<P: Probe> MemorySession<P> {
    /// Inserts or updates the row of `key`; the own scans see it from the next command on. Locks the key to the end of
    /// the transaction. O(log n).
    ///
    /// # Errors
    /// [`Conflict`] at once, without waiting, if another open transaction holds the key.
    pub fn put(&mut self, key: &Key<'_>, row: &[u8]) -> Result<(), Conflict> {
        self.write(key, Some(Some(row.into())))
    }

    /// Deletes the row of `key`, if there is one; otherwise as [`MemorySession::put`].
    ///
    /// # Errors
    /// [`Conflict`] at once, without waiting, if another open transaction holds the key.
    pub fn delete(&mut self, key: &Key<'_>) -> Result<(), Conflict> {
        self.write(key, Some(None))
    }

    /// Locks `key` to the end of the transaction without changing its row. O(log n).
    ///
    /// # Errors
    /// [`Conflict`] at once, without waiting, if another open transaction holds the key.
    pub fn lock(&mut self, key: &Key<'_>) -> Result<(), Conflict> {
        self.write(key, None)
    }

    /// Makes the next [`make_visible`](Catalog::make_visible) fail. For the tests of that path.
    #[doc(hidden)]
    pub fn refuse_next_visible(&mut self) {
        self.refuse_next_visible = true;
    }

    /// Step Write: locks the key and notes the change, if any.
    fn write(&mut self, key: &Key<'_>, change: Option<Option<Arc<[u8]>>>) -> Result<(), Conflict> {
        let key = key.to_owned();
        self.probe.before(Step::Write);
        let mut store = self.catalog.store.lock();
        let holder = store.records.get(&key).and_then(|record| record.holder);
        if holder.is_some_and(|holder| holder != self.session) {
            self.probe.took(Step::Write, Seen::Fail);
            return Err(Conflict { key });
        }
        let sequence = store.sequence;
        let record = store.records.entry(key.clone()).or_default();
        record.holder = Some(self.session);
        if let Some(sub) = self.subs.last_mut()
            && !sub.contains_key(&key)
        {
            sub.insert(key.clone(), self.changes.get(&key).cloned());
        }
        let own = self.changes.entry(key).or_default();
        let present = match change.as_ref().or(own.pending.as_ref()).or(own.finished.as_ref()) {
            Some(row) => row.is_some(),
            None => record.as_of(sequence).is_some(),
        };
        self.probe.took(Step::Write, Seen::Row { present });
        drop(store);
        if change.is_some() {
            own.pending = change;
        }
        Ok(())
    }

    /// Replaces every row that `which` chooses by what `row` makes of it, as a rewrite of a whole catalog or the drop of a
    /// database does; `None` deletes it. One step Write.
    /// O(rows of the store).
    ///
    /// # Errors
    /// [`Conflict`] at once, and nothing is changed, if another open transaction holds one of them.
    pub fn put_all(
        &mut self,
        which: impl Fn(&Key<'_>) -> bool,
        mut row: impl FnMut(&Key<'_>, &[u8]) -> Option<Vec<u8>>,
    ) -> Result<(), Conflict> {
        self.probe.before(Step::Write);
        let catalog = self.catalog.clone();
        let mut store = catalog.store.lock();
        let held = |record: &Record| record.holder.is_some_and(|holder| holder != self.session);
        let conflict = store.records.iter().find(|(key, record)| which(&key.as_key()) && held(record));
        if let Some((key, _)) = conflict {
            let key = key.clone();
            self.probe.took(Step::Write, Seen::Fail);
            return Err(Conflict { key });
        }
        let sequence = store.sequence;
        for (key, record) in store.records.iter_mut().filter(|(key, _)| which(&key.as_key())) {
            let own = self.changes.get(key).and_then(|own| own.pending.clone().or_else(|| own.finished.clone()));
            let Some(now) = own.unwrap_or_else(|| record.as_of(sequence)) else { continue };
            record.holder = Some(self.session);
            if let Some(sub) = self.subs.last_mut()
                && !sub.contains_key(key)
            {
                sub.insert(key.clone(), self.changes.get(key).cloned());
            }
            self.changes.entry(key.clone()).or_default().pending = Some(row(&key.as_key(), &now).map(Into::into));
        }
        self.probe.took(Step::Write, Seen::Nothing);
        Ok(())
    }

    /// Step Lock: locks `key` for an in-place update, apart from the transaction's own locks.
    ///
    /// # Errors
    /// [`Conflict`] at once if any transaction holds the key, the own one included: its row has been replaced; and if there is
    /// no such row.
    pub fn lock_in_place(&mut self, key: &Key<'_>) -> Result<(), Conflict> {
        let key = key.to_owned();
        self.probe.before(Step::Lock);
        let mut store = self.catalog.store.lock();
        let there = |record: &Record| record.versions.last().is_some_and(|newest| newest.row.is_some());
        let record = store.records.get_mut(&key).filter(|record| record.holder.is_none() && there(record));
        let Some(record) = record else {
            self.probe.took(Step::Lock, Seen::Fail);
            return Err(Conflict { key });
        };
        record.holder = Some(self.session);
        self.probe.took(Step::Lock, Seen::Nothing);
        Ok(())
    }

    /// Step Overwrite: changes the bytes of the committed row of `key`, for every snapshot that sees it. No transaction
    /// undoes it. The key has been locked with [`MemorySession::lock_in_place`].
    pub fn overwrite(&mut self, key: &Key<'_>, row: &[u8]) {
        self.probe.before(Step::Overwrite);
        let mut store = self.catalog.store.lock();
        let newest = store.records.get_mut(&key.to_owned()).and_then(|record| record.versions.last_mut());
        if let Some(Version { row: Some(bytes), .. }) = newest {
            *bytes = row.into();
        }
        self.probe.took(Step::Overwrite, Seen::Nothing);
    }

    /// Step Unlock: the end of [`MemorySession::lock_in_place`].
    pub fn unlock_in_place(&mut self, key: &Key<'_>) {
        self.probe.before(Step::Unlock);
        let mut store = self.catalog.store.lock();
        store.unlock(self.session, std::iter::once(key.to_owned()));
        self.probe.took(Step::Unlock, Seen::Nothing);
    }

    /// Ends the transaction in the store. `M3`: the locks go with the changes.
    fn forget(&mut self, store: &mut Store) {
        self.subs.clear();
        store.unlock(self.session, std::mem::take(&mut self.changes).into_keys());
    }
}

impl<P: Probe> PartialScans for MemorySession<P> {
    /// The rows whose keys begin with the bytes of `partial`, in the order of their keys. It accepts messages, once, if one of the
    /// keys was toasted. One step Scan. O(rows of the cache).
    fn scan_list(
        &mut self,
        partial: &Key<'_>,
        snapshot: &MemorySnapshot,
        rows: &mut Rows,
        nested: &mut dyn Nested,
    ) -> Result<(), MemoryError> {
        self.probe.before(Step::Scan);
        let store = self.catalog.store.lock();
        let of_cache = |key: &&OwnedKey| (key.database, key.cache) == (partial.database, partial.cache);
        // From the first key of the cache on.
        let from = OwnedKey { database: partial.database, cache: partial.cache, hash: 0, bytes: Box::default() };
        let mut toasted = false;
        for (key, record) in store.records.range(from..).take_while(|(key, _)| of_cache(key)) {
            if !key.bytes.starts_with(partial.bytes) {
                continue;
            }
            toasted |= record.toasted;
            // The keys that the transaction has changed are locked, so their records are there.
            let own = self.changes.get(key).and_then(|change| change.finished.clone());
            if let Some(row) = own.unwrap_or_else(|| record.as_of(*snapshot.sequence)) {
                rows.push(key.hash, &key.bytes, &row);
            }
        }
        self.probe.took(Step::Scan, Seen::Row { present: true });
        drop(store);
        if toasted {
            nested.accept();
        }
        Ok(())
    }
}

impl<P: Probe> Subtransactions for MemorySession<P> {
    fn begin_sub(&mut self) {
        self.subs.push(BTreeMap::new());
    }

    fn commit_sub(&mut self) {
        let Some(sub) = self.subs.pop() else { return };
        if let Some(parent) = self.subs.last_mut() {
            for (key, before) in sub {
                parent.entry(key).or_insert(before);
            }
        }
    }

    fn abort_sub(&mut self) {
        self.probe.before(Step::SubAbort);
        let mut store = self.catalog.store.lock();
        let mut unlocked = Vec::new();
        for (key, before) in self.subs.pop().unwrap_or_default() {
            match before {
                Some(before) => {
                    self.changes.insert(key, before);
                }
                None => {
                    self.changes.remove(&key);
                    unlocked.push(key);
                }
            }
        }
        store.unlock(self.session, unlocked.into_iter());
        self.probe.took(Step::SubAbort, Seen::Nothing);
    }
}

impl<P: Probe> Catalog for MemorySession<P> {
    type Snapshot = MemorySnapshot;
    type Error = MemoryError;

    fn snapshot(&mut self) -> Result<MemorySnapshot, MemoryError> {
        self.probe.before(Step::Snapshot);
        let mut store = self.catalog.store.lock();
        store.reachable()?;
        let last = store.snapshots.last().and_then(Weak::upgrade).filter(|last| **last == store.sequence);
        let sequence = last.unwrap_or_else(|| {
            let sequence = Arc::new(store.sequence);
            store.snapshots.push(Arc::downgrade(&sequence));
            sequence
        });
        self.probe.took(Step::Snapshot, Seen::Nothing);
        Ok(MemorySnapshot { sequence })
    }

    fn scan(
        &mut self,
        key: &Key<'_>,
        snapshot: &MemorySnapshot,
        row: &mut Vec<u8>,
        nested: &mut dyn Nested,
    ) -> Result<bool, MemoryError> {
        let key = key.to_owned();
        let own = self.changes.get(&key).and_then(|change| change.finished.as_ref());
        self.probe.before(Step::Scan);
        let store = self.catalog.store.lock();
        store.reachable()?;
        let record = store.records.get(&key);
        let toasted = record.is_some_and(|record| record.toasted);
        let found = match own {
            Some(own) => own.clone(),
            None => record.and_then(|record| record.as_of(*snapshot.sequence)),
        };
        self.probe.took(Step::Scan, Seen::Row { present: found.is_some() });
        drop(store);
        if toasted {
            nested.accept();
        }
        if let Some(found) = &found {
            row.extend_from_slice(found);
        }
        Ok(found.is_some())
    }

    fn command_end(&mut self) {
        for change in self.changes.values_mut() {
            if let Some(pending) = change.pending.take() {
                change.finished = Some(pending);
            }
        }
    }

    fn log(&mut self) -> Result<(), MemoryError> {
        self.probe.before(Step::Log);
        // There is nothing to make durable; the section is there because a host has one.
        let store = self.catalog.store.lock();
        store.reachable()?;
        self.probe.took(Step::Log, Seen::Nothing);
        drop(store);
        Ok(())
    }

    fn make_visible(&mut self) -> Result<(), MemoryError> {
        self.probe.before(Step::Visible);
        let mut store = self.catalog.store.lock();
        if std::mem::take(&mut self.refuse_next_visible) {
            self.probe.took(Step::Visible, Seen::Fail);
            return Err(MemoryError::Refused);
        }
        store.reachable()?;
        store.sequence += 1;
        for (key, change) in &mut self.changes {
            if let Some(row) = change.pending.take().or_else(|| change.finished.take()) {
                store.add_version(key.clone(), row);
            }
        }
        store.prune();
        store.save()?;
        self.probe.took(Step::Visible, Seen::Nothing);
        Ok(())
    }

    fn unlock(&mut self) {
        self.probe.before(Step::Unlock);
        let catalog = self.catalog.clone();
        let mut store = catalog.store.lock();
        self.forget(&mut store);
        self.probe.took(Step::Unlock, Seen::Nothing);
    }

    fn undo(&mut self) {
        self.probe.before(Step::Undo);
        let catalog = self.catalog.clone();
        let mut store = catalog.store.lock();
        self.forget(&mut store);
        self.probe.took(Step::Undo, Seen::Nothing);
    }
}

impl<P: Probe> Drop for MemorySession<P> {
    fn drop(&mut self) {
        // A simulator that unwinds a failed test must not be asked for a lock again.
        if self.changes.is_empty() || MODELLED && panicking() {
            return;
        }
        let catalog = self.catalog.clone();
        self.forget(&mut catalog.store.lock());
    }
}

impl<P: Probe> Backend<MemorySession<P>, P> {
    /// Inserts or updates the row of `key` in the catalog and registers the change.
    ///
    /// # Errors
    /// [`WriteError::Conflict`] at once if another open transaction holds the key, [`WriteError::Misuse`] outside a
    /// transaction.
    pub fn put(&mut self, key: &Key<'_>, row: &[u8]) -> Result<(), WriteError> {
        self.driver.core.require_transaction("put").map_err(WriteError::Misuse)?;
        self.driver.catalog.put(key, row)?;
        self.changed(key).map_err(WriteError::Misuse)
    }

    /// Deletes the row of `key` from the catalog and registers the change.
    ///
    /// # Errors
    /// [`WriteError::Conflict`] at once if another open transaction holds the key, [`WriteError::Misuse`] outside a
    /// transaction.
    pub fn delete(&mut self, key: &Key<'_>) -> Result<(), WriteError> {
        self.driver.core.require_transaction("delete").map_err(WriteError::Misuse)?;
        self.driver.catalog.delete(key)?;
        self.changed(key).map_err(WriteError::Misuse)
    }

    /// Rewrites the catalog of a cache: every row becomes what `row` makes of it. Registers the change.
    ///
    /// # Errors
    /// As [`Backend::put`].
    pub fn rewrite(
        &mut self,
        database: u32,
        cache: u8,
        mut row: impl FnMut(&Key<'_>, &[u8]) -> Vec<u8>,
    ) -> Result<(), WriteError> {
        self.driver.core.require_transaction("rewrite").map_err(WriteError::Misuse)?;
        let which = |key: &Key<'_>| key.database == database && key.cache == cache;
        self.driver.catalog.put_all(which, |key, old| Some(row(key, old)))?;
        self.changed_catalog(database, cache).map_err(WriteError::Misuse)
    }

    /// Deletes every row of a database. Registers the change.
    ///
    /// # Errors
    /// As [`Backend::put`].
    pub fn drop_database(&mut self, database: u32) -> Result<(), WriteError> {
        self.driver.core.require_transaction("drop_database").map_err(WriteError::Misuse)?;
        self.driver.catalog.put_all(|key| key.database == database, |_, _| None)?;
        self.changed_database(database).map_err(WriteError::Misuse)
    }

    /// Changes the bytes of the row of `key` in place ([`Backend::in_place`]): locks it, changes it, unlocks it, accepts.
    ///
    /// # Errors
    /// [`Conflict`] at once if an open transaction holds the key, or there is no such row.
    pub fn overwrite(&mut self, key: &Key<'_>, row: &[u8]) -> Result<(), Conflict> {
        self.driver.catalog.lock_in_place(key)?;
        let done: Result<(), std::convert::Infallible> = self.in_place(key, |catalog| {
            catalog.overwrite(key, row);
            Ok(())
        });
        let Ok(()) = done;
        self.driver.catalog.unlock_in_place(key);
        self.accept();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts nothing, but counts.
    #[derive(Default)]
    struct Calls(u32);

    impl Nested for Calls {
        fn accept(&mut self) {
            self.0 += 1;
        }
    }

    fn key(hash: u32) -> Key<'static> {
        Key { database: 1, cache: 0, hash, bytes: b"key" }
    }

    fn read(session: &mut MemorySession, key: &Key<'_>, snapshot: &MemorySnapshot) -> Option<Vec<u8>> {
        let mut row = Vec::new();
        session.scan(key, snapshot, &mut row, &mut Calls::default()).unwrap().then_some(row)
    }

    fn commit(session: &mut MemorySession) {
        session.log().unwrap();
        session.make_visible().unwrap();
        session.unlock();
    }

    #[test]
    fn a_snapshot_sees_what_was_committed_when_it_was_taken() {
        let catalog = MemoryCatalog::new();
        catalog.fill(&key(1), b"v0");
        let (mut reader, mut writer) = (catalog.session(()), catalog.session(()));
        let old = reader.snapshot().unwrap();
        writer.put(&key(1), b"v1").unwrap();
        let during = reader.snapshot().unwrap();
        assert_eq!(read(&mut reader, &key(1), &during).unwrap(), b"v0", "uncommitted (A24)");
        commit(&mut writer);
        let new = reader.snapshot().unwrap();
        assert_eq!(read(&mut reader, &key(1), &old).unwrap(), b"v0");
        assert_eq!(read(&mut reader, &key(1), &new).unwrap(), b"v1");
        writer.delete(&key(1)).unwrap();
        commit(&mut writer);
        assert_eq!(read(&mut reader, &key(1), &new).unwrap(), b"v1");
        let newest = reader.snapshot().unwrap();
        assert_eq!(read(&mut reader, &key(1), &newest), None);
        assert_eq!(catalog.committed(&key(1)), None);
    }

    #[test]
    fn own_changes_show_from_the_next_command_on() {
        let catalog = MemoryCatalog::new();
        let mut session = catalog.session(());
        session.put(&key(1), b"mine").unwrap();
        let snapshot = session.snapshot().unwrap();
        assert_eq!(read(&mut session, &key(1), &snapshot), None, "A23");
        session.command_end();
        assert_eq!(read(&mut session, &key(1), &snapshot).unwrap(), b"mine");
        session.delete(&key(1)).unwrap();
        assert_eq!(read(&mut session, &key(1), &snapshot).unwrap(), b"mine");
        session.undo();
        assert_eq!(read(&mut session, &key(1), &snapshot), None);
    }

    #[test]
    fn a_written_or_locked_key_is_refused_to_others_until_the_transaction_ends() {
        let catalog = MemoryCatalog::new();
        let (mut one, mut two) = (catalog.session(()), catalog.session(()));
        one.put(&key(1), b"one").unwrap();
        one.lock(&key(2)).unwrap();
        assert_eq!(two.put(&key(1), b"two").unwrap_err().key.as_key(), key(1));
        assert!(two.delete(&key(2)).is_err());
        one.log().unwrap();
        one.make_visible().unwrap();
        assert!(two.put(&key(1), b"two").is_err(), "locks are held until unlock, not until P");
        one.unlock();
        two.put(&key(1), b"two").unwrap();
        two.undo();
        one.put(&key(1), b"three").unwrap();
        drop(one);
        two.put(&key(1), b"four").unwrap();
        commit(&mut two);
        assert_eq!(catalog.committed(&key(1)).unwrap(), b"four");
    }

    #[test]
    fn versions_are_kept_for_a_snapshot_and_pruned_without_one() {
        let catalog = MemoryCatalog::new();
        catalog.fill(&key(1), b"v0");
        let (mut reader, mut writer) = (catalog.session(()), catalog.session(()));
        let write = |writer: &mut MemorySession, n: u32| {
            writer.put(&key(1), &n.to_le_bytes()).unwrap();
            commit(writer);
        };
        for n in 0..100 {
            write(&mut writer, n);
        }
        assert_eq!(catalog.versions(), 1, "nobody needs the others");
        let old = reader.snapshot().unwrap();
        for n in 100..110 {
            write(&mut writer, n);
        }
        assert_eq!(read(&mut reader, &key(1), &old).unwrap(), 99u32.to_le_bytes());
        assert_eq!(catalog.versions(), 11, "the snapshot's and what came after it");
        drop(old);
        writer.delete(&key(1)).unwrap();
        commit(&mut writer);
        assert_eq!(catalog.versions(), 0, "not even a deletion is kept");
        assert!(catalog.store.lock().records.is_empty());
    }

    #[test]
    fn a_refused_commit_shows_nothing() {
        let catalog = MemoryCatalog::new();
        catalog.fill(&key(1), b"v0");
        let mut session = catalog.session(());
        session.put(&key(1), b"v1").unwrap();
        session.refuse_next_visible();
        session.log().unwrap();
        assert!(matches!(session.make_visible(), Err(MemoryError::Refused)));
        assert_eq!(catalog.committed(&key(1)).unwrap(), b"v0");
        session.undo();
        session.put(&key(1), b"v2").unwrap();
        commit(&mut session);
        assert_eq!(catalog.committed(&key(1)).unwrap(), b"v2");
    }

    #[test]
    fn a_toasted_row_accepts_messages_after_it_was_read() {
        let catalog = MemoryCatalog::new();
        catalog.fill(&key(1), b"v0");
        catalog.toast(&key(1));
        let mut session = catalog.session(());
        let snapshot = session.snapshot().unwrap();
        let (mut calls, mut row) = (Calls::default(), Vec::new());
        assert!(session.scan(&key(1), &snapshot, &mut row, &mut calls).unwrap());
        assert_eq!((calls.0, &row[..]), (1, &b"v0"[..]));
        assert!(!session.scan(&key(2), &snapshot, &mut row, &mut calls).unwrap());
        assert_eq!(calls.0, 1, "other rows don't");
    }
}
