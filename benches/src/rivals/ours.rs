//! This project's cache, through its public interface.
//!
//! A segment is used again by the next cache, emptied: its memory has been touched before, as the memory has that the
//! rivals get from their allocator. So a cold cache is a cache without entries, not a machine that was just switched on.

use parking_lot::Mutex;
use shared_catcache::backend::{Backend, MemoryCatalog, MemorySession};
use shared_catcache::{Config, Shared};

use super::{Failure, Handle, HandleStats, Subject};
use crate::script::{BenchKey, DATABASE};

/// Room for everything that a workload here can hold, so that nothing is evicted. Memory is taken only when it is used.
const SEGMENT_BYTES: u64 = 256 << 20;

/// An empty segment that was used before.
static EMPTY: Mutex<Option<Shared>> = Mutex::new(None);

/// The cache over an anonymous segment.
pub struct Ours {
    catalog: MemoryCatalog,
    shared: Shared,
}

impl Drop for Ours {
    /// The backends are gone: all entries can go, and if they do, the segment is as good as new.
    fn drop(&mut self) {
        for entry in self.shared.peek().entries {
            self.shared.evict(&(), &entry.key.as_key());
        }
        if self.shared.stats().entries == 0 {
            *EMPTY.lock() = Some(self.shared.clone());
        }
    }
}

/// One backend.
pub struct OurHandle(Backend<MemorySession>);

impl Ours {
    /// The segment.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }
}

impl Subject for Ours {
    type Handle = OurHandle;

    const PRIVATE: bool = false;

    fn new(catalog: &MemoryCatalog) -> Result<Ours, Failure> {
        let used = EMPTY.lock().take();
        let shared = match used {
            Some(shared) => shared,
            None => Shared::anonymous(&Config { bytes: SEGMENT_BYTES, ..Config::default() })?,
        };
        Ok(Ours { catalog: catalog.clone(), shared })
    }

    fn attach(&self) -> Result<OurHandle, Failure> {
        Ok(OurHandle(Backend::attach(&self.shared, DATABASE, self.catalog.session(()))?))
    }

    fn shared_bytes(&self) -> u64 {
        self.shared.stats().bytes_used
    }
}

impl Handle for OurHandle {
    #[inline(always)]
    fn lookup<R>(&mut self, key: &BenchKey, read: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, Failure> {
        match self.0.lookup(&key.key()) {
            Ok(row) => Ok(read(row)),
            Err(error) => Err(failed(error)),
        }
    }

    fn accept(&mut self) {
        self.0.accept();
    }

    fn begin(&mut self) -> Result<(), Failure> {
        Ok(self.0.begin()?)
    }

    fn change(&mut self, key: &BenchKey, row: Option<&[u8]>) -> Result<(), Failure> {
        match row {
            Some(row) => self.0.put(&key.key(), row)?,
            None => self.0.delete(&key.key())?,
        }
        Ok(())
    }

    fn command_end(&mut self) {
        self.0.command_end();
    }

    fn commit(&mut self) -> Result<(), Failure> {
        Ok(self.0.commit()?)
    }

    fn stats(&self) -> HandleStats {
        let stats = self.0.stats();
        HandleStats {
            loads: stats.scans,
            shared_hits: stats.shared_hits,
            resets: stats.resets,
            entries: u64::from(stats.local_entries),
            bytes: stats.local_bytes,
            private_entries: u64::from(stats.private_entries),
        }
    }
}

#[cold]
fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    Box::new(error)
}
