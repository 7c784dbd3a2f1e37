//! Where the store of a [`MemoryCatalog`](super::MemoryCatalog) lies: in this process, or in a file that processes share.
//!
//! One way in: [`Room::lock`]. What it gives is the store, for one section, and nobody else is in it: by the mutex no other
//! thread of this process, by the lock of the file no other process. With a file, the section begins by reading the store
//! from it and ends by writing it back, if it has changed; in between everything is as it is without one. So the rules of
//! the catalog stand in one place, whether it is shared or not.
//!
//! The file is read and written, not mapped: no `unsafe`, and a process that dies lets go of the lock. It is made for tests
//! and examples: small, on a file system in memory, no matter of durability. The lock belongs to the open file, so each
//! process has to open it by its path; a descriptor that was inherited would let two processes in at once.

use super::{Record, Store, Version};
use crate::key::OwnedKey;
use crate::sync::{Arc, Mutex};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// What the file begins with: what it is, and the version of the form.
const MAGIC: &[u8; 8] = b"memcat 1";

/// The store, and the way to it.
pub(super) struct Room {
    store: Mutex<Store>,
    file: Option<File>,
}

impl Room {
    /// In this process alone.
    pub(super) fn private() -> Room {
        Room { store: Mutex::new(Store::default()), file: None }
    }

    /// In the file `path`, which is made if there is none.
    ///
    /// # Errors
    /// The system's; `InvalidData` if the file holds something else.
    pub(super) fn in_file(path: &Path) -> io::Result<Room> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let room = Room { store: Mutex::new(Store::default()), file: Some(file) };
        let store = room.lock();
        let unreachable = store.unreachable.clone();
        drop(store);
        match unreachable {
            None => Ok(room),
            Some(error) => Err(io::Error::new(error.kind(), error)),
        }
    }

    /// Begins a section. If the file can't be read, the store says so ([`Store::reachable`]) and is not written back.
    pub(super) fn lock(&self) -> Guard<'_, impl DerefMut<Target = Store> + '_> {
        let mut store = self.store.lock();
        let file = self.file.as_ref();
        let mut as_read = Vec::new();
        if let Some(file) = file {
            store.unreachable = file.lock().and_then(|()| load(file, &mut store, &mut as_read)).err().map(Arc::new);
        }
        Guard { store, file, as_read }
    }
}

/// The store, for one section.
pub(super) struct Guard<'a, S: DerefMut<Target = Store>> {
    store: S,
    file: Option<&'a File>,
    /// The file's bytes when the section began.
    as_read: Vec<u8>,
}

impl<S: DerefMut<Target = Store>> Guard<'_, S> {
    /// Writes the store back now, for sections that must know that it was done. The others rely on the section's end.
    ///
    /// # Errors
    /// The file could not be read when the section began, or not be written.
    pub(super) fn save(&mut self) -> Result<(), Arc<io::Error>> {
        let Some(file) = self.file else { return Ok(()) };
        self.store.reachable()?;
        let bytes = encode(&self.store);
        // The bytes say where they end; behind them lies what a longer store has left.
        if self.as_read.starts_with(&bytes) {
            return Ok(());
        }
        file.write_all_at(&bytes, 0).map_err(Arc::new)?;
        self.as_read = bytes;
        Ok(())
    }
}

impl<S: DerefMut<Target = Store>> Deref for Guard<'_, S> {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl<S: DerefMut<Target = Store>> DerefMut for Guard<'_, S> {
    fn deref_mut(&mut self) -> &mut Store {
        &mut self.store
    }
}

impl<S: DerefMut<Target = Store>> Drop for Guard<'_, S> {
    fn drop(&mut self) {
        let Some(file) = self.file else { return };
        // What could not be written is not there for the next section, which is then told by what it reads; a commit does
        // not come here with anything unwritten. Unlocking a file that is locked can't fail.
        let _ = self.save();
        let _ = file.unlock();
    }
}

/// Reads the store from its file. An empty file is an empty store. What this process alone knows of it stays.
fn load(file: &File, store: &mut Store, bytes: &mut Vec<u8>) -> io::Result<()> {
    let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    bytes.resize(length, 0);
    file.read_exact_at(bytes, 0)?;
    store.in_file = true;
    store.records.clear();
    store.history.clear();
    store.sequence = 0;
    store.sessions = 0;
    if bytes.is_empty() {
        return Ok(());
    }
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "it is not a catalog, or was damaged");
    decode(bytes, store).ok_or_else(damaged)
}

/// The store as bytes, which say where they end: the file never shrinks.
fn encode(store: &Store) -> Vec<u8> {
    // Everything is named, so that a field that is added can't be forgotten here.
    let Store { records, sequence, sessions, snapshots: _, history: _, in_file: _, unreachable: _ } = store;
    let mut bytes = MAGIC.to_vec();
    for number in [*sequence, *sessions, records.len() as u64] {
        bytes.extend(number.to_le_bytes());
    }
    let put = |bytes: &mut Vec<u8>, content: &[u8]| {
        bytes.extend((content.len() as u32).to_le_bytes());
        bytes.extend(content);
    };
    for (OwnedKey { database, cache, hash, bytes: key }, Record { versions, holder, toasted }) in records {
        bytes.extend(database.to_le_bytes());
        bytes.extend(hash.to_le_bytes());
        bytes.extend([*cache, u8::from(*toasted)]);
        put(&mut bytes, key);
        // Sessions are numbered from 1.
        bytes.extend(holder.unwrap_or(0).to_le_bytes());
        bytes.extend((versions.len() as u32).to_le_bytes());
        for Version { sequence, row } in versions {
            bytes.extend(sequence.to_le_bytes());
            bytes.push(u8::from(row.is_some()));
            put(&mut bytes, row.as_deref().unwrap_or_default());
        }
    }
    bytes
}

/// Takes bytes from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()? as usize;
        let (content, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(content)
    }
}

/// The reverse of [`encode`]; what follows is what a longer store has left behind. `None`: these are not its bytes.
fn decode(bytes: &[u8], store: &mut Store) -> Option<()> {
    let mut from = Reader(bytes);
    if from.take()? != *MAGIC {
        return None;
    }
    store.sequence = from.u64()?;
    store.sessions = from.u64()?;
    for _ in 0..from.u64()? {
        let (database, hash, [cache, toasted]) = (from.u32()?, from.u32()?, from.take()?);
        let key = OwnedKey { database, cache, hash, bytes: from.bytes()?.into() };
        let holder = Some(from.u64()?).filter(|holder| *holder != 0);
        let mut versions = Vec::new();
        for _ in 0..from.u32()? {
            let (sequence, [present]) = (from.u64()?, from.take()?);
            let row = from.bytes()?;
            versions.push(Version { sequence, row: (present != 0).then(|| row.into()) });
        }
        store.records.insert(key, Record { versions, holder, toasted: toasted != 0 });
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use crate::backend::catalog::{Catalog, Nested};
    use crate::backend::memory_catalog::{MemoryCatalog, MemoryError, MemorySession, MemorySnapshot};
    use crate::key::Key;
    use std::fs;
    use std::io::ErrorKind;
    use std::path::PathBuf;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let place = Place(std::env::temp_dir().join(format!("catcache-room-{}-{name}", std::process::id())));
            let _ = fs::remove_file(&place.0);
            place
        }

        /// Each handle opens the file anew, as another process would.
        fn open(&self) -> MemoryCatalog {
            MemoryCatalog::in_file(&self.0).unwrap()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    impl Nested for () {
        fn accept(&mut self) {}
    }

    const KEY: Key<'static> = Key { database: 1, cache: 2, hash: 3, bytes: b"key" };

    fn read(session: &mut MemorySession, snapshot: &MemorySnapshot) -> Option<Vec<u8>> {
        let mut row = Vec::new();
        session.scan(&KEY, snapshot, &mut row, &mut ()).unwrap().then_some(row)
    }

    fn commit(session: &mut MemorySession) {
        session.log().unwrap();
        session.make_visible().unwrap();
        session.unlock();
    }

    #[test]
    fn rows_versions_and_locks_are_those_of_the_file() {
        let place = Place::new("shared");
        let (one, two) = (place.open(), place.open());
        one.fill(&KEY, b"v0");
        let (mut reader, mut writer) = (one.session(()), two.session(()));
        let old = reader.snapshot().unwrap();
        writer.put(&KEY, b"a longer row").unwrap();
        assert!(reader.put(&KEY, b"mine").is_err(), "it is locked");
        assert_eq!(one.committed(&KEY).unwrap(), b"v0", "it is not committed");
        commit(&mut writer);
        assert_eq!(one.committed(&KEY).unwrap(), b"a longer row");
        assert_eq!(read(&mut reader, &old).unwrap(), b"v0", "the version of the other's snapshot is kept");
        reader.delete(&KEY).unwrap();
        commit(&mut reader);
        assert_eq!(two.committed(&KEY), None);
        assert_eq!(place.open().committed(&KEY), None);
    }

    /// Sections that are not held apart would lose updates: each reads the whole store and writes it back.
    #[test]
    fn sections_of_two_handles_exclude_each_other() {
        let place = Place::new("excluded");
        let key = |n: u32| Key { hash: n, ..KEY };
        let threads = [0, 1].map(|me| {
            let catalog = place.open();
            crate::sync::thread::spawn(move || {
                let mut session = catalog.session(());
                for n in 0..500 {
                    session.put(&key(2 * n + me), b"row").unwrap();
                    commit(&mut session);
                }
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let catalog = place.open();
        assert!((0..1000).all(|n| catalog.committed(&key(n)).is_some()));
    }

    #[test]
    fn what_is_no_catalog_is_refused_and_left_alone() {
        let place = Place::new("foreign");
        place.open().fill(&KEY, b"row");
        let good = fs::read(&place.0).unwrap();
        for bytes in [b"x".to_vec(), vec![0; 4096], good[..good.len() - 1].to_vec(), good[..9].to_vec()] {
            fs::write(&place.0, &bytes).unwrap();
            assert_eq!(MemoryCatalog::in_file(&place.0).unwrap_err().kind(), ErrorKind::InvalidData);
            assert_eq!(fs::read(&place.0).unwrap(), bytes);
        }
        assert_eq!(MemoryCatalog::in_file("/nowhere/catalog").unwrap_err().kind(), ErrorKind::NotFound);
    }

    /// A file that is damaged under a running session: the commit is refused, and nothing is written.
    #[test]
    fn nothing_is_read_from_or_committed_to_a_damaged_file() {
        let place = Place::new("damaged");
        let catalog = place.open();
        catalog.fill(&KEY, b"row");
        let mut session = catalog.session(());
        let snapshot = session.snapshot().unwrap();
        session.put(&KEY, b"new").unwrap();
        session.log().unwrap();
        fs::write(&place.0, b"rubbish!").unwrap();
        assert!(matches!(session.snapshot(), Err(MemoryError::File(_))));
        assert!(matches!(session.scan(&KEY, &snapshot, &mut Vec::new(), &mut ()), Err(MemoryError::File(_))));
        assert!(matches!(session.log(), Err(MemoryError::File(_))));
        let error = session.make_visible().unwrap_err();
        assert!(error.to_string().contains("remove it"), "{error}");
        session.undo();
        assert_eq!(fs::read(&place.0).unwrap(), b"rubbish!");
    }
}
