//! The way from a rival to the catalog: the same snapshots, scans and transactions as the shared cache's backend makes.

use shared_catcache::Key;
use shared_catcache::backend::{Catalog, MemoryCatalog, MemorySession, MemorySnapshot, Nested};

use super::Failure;
use crate::script::BenchKey;

/// One backend's session with the catalog, with the snapshot that it reuses between loads (as PostgreSQL does) and the
/// keys that its transaction has changed.
pub struct Source {
    session: MemorySession,
    snapshot: Option<MemorySnapshot>,
    row: Vec<u8>,
    changed: Vec<BenchKey>,
    /// Of `changed`, how many belong to commands that have ended.
    ended: usize,
    loads: u64,
}

/// A rival accepts no messages.
struct Deaf;

impl Nested for Deaf {
    fn accept(&mut self) {}
}

impl Source {
    /// A session of its own.
    pub fn new(catalog: &MemoryCatalog) -> Source {
        let session = catalog.session(());
        Source { session, snapshot: None, row: Vec::new(), changed: Vec::new(), ended: 0, loads: 0 }
    }

    /// Scans of the catalog so far.
    pub fn loads(&self) -> u64 {
        self.loads
    }

    /// Reads a row; `None` if there is none.
    ///
    /// # Errors
    /// The catalog's.
    #[inline(never)]
    pub fn load(&mut self, key: &Key<'_>) -> Result<Option<&[u8]>, Failure> {
        self.loads += 1;
        let snapshot = match self.snapshot.take() {
            Some(snapshot) => snapshot,
            None => self.session.snapshot()?,
        };
        self.row.clear();
        let present = self.session.scan(key, &snapshot, &mut self.row, &mut Deaf)?;
        self.snapshot = Some(snapshot);
        Ok(present.then_some(&self.row))
    }

    /// A transaction begins: its first load takes a new snapshot.
    pub fn begin(&mut self) {
        self.snapshot = None;
    }

    /// Writes or deletes a row.
    ///
    /// # Errors
    /// Another transaction has changed it and is still running.
    pub fn change(&mut self, key: &BenchKey, row: Option<&[u8]>) -> Result<(), Failure> {
        match row {
            Some(row) => self.session.put(&key.key(), row)?,
            None => self.session.delete(&key.key())?,
        }
        self.changed.push(*key);
        Ok(())
    }

    /// Ends the running command, and returns what it has changed.
    pub fn command_end(&mut self) -> &[BenchKey] {
        self.session.command_end();
        self.snapshot = None;
        let first = std::mem::replace(&mut self.ended, self.changed.len());
        &self.changed[first..]
    }

    /// Commits, and returns what the transaction has changed.
    ///
    /// # Errors
    /// The catalog's.
    pub fn commit(&mut self) -> Result<Vec<BenchKey>, Failure> {
        self.snapshot = None;
        self.ended = 0;
        self.session.log()?;
        self.session.make_visible()?;
        self.session.unlock();
        Ok(std::mem::take(&mut self.changed))
    }
}
