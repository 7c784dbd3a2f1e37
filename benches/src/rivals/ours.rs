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
pub const SEGMENT_BYTES: u64 = 256 << 20;

/// Empty segments that were used before, at most one of each number of partitions.
static EMPTY: Mutex<Vec<Shared>> = Mutex::new(Vec::new());

/// The cache over an anonymous segment, its table in so many partitions.
pub struct OursIn<const PARTITIONS: u32> {
    catalog: MemoryCatalog,
    shared: Shared,
}

/// The cache as it comes.
pub type Ours = OursIn<128>;

/// The parameters of its segment.
pub fn config(partitions: u32) -> Config {
    Config { bytes: SEGMENT_BYTES, partitions, ..Config::default() }
}

impl<const PARTITIONS: u32> Drop for OursIn<PARTITIONS> {
    /// The backends are gone: all entries can go, and if they do, the segment is as good as new.
    fn drop(&mut self) {
        for entry in self.shared.peek().entries {
            self.shared.evict(&(), &entry.key.as_key());
        }
        if self.shared.stats().entries == 0 {
            let mut empty = EMPTY.lock();
            if empty.iter().all(|other| other.config() != self.shared.config()) {
                empty.push(self.shared.clone());
            }
        }
    }
}

/// One backend.
pub struct OurHandle(Backend<MemorySession>);

/// A backend over a segment, and the session of a catalog that it is to load from.
///
/// # Errors
/// There are too many backends.
pub fn backend(shared: &Shared, catalog: &MemoryCatalog) -> Result<OurHandle, Failure> {
    Ok(OurHandle(Backend::attach(shared, DATABASE, catalog.session(()))?))
}

impl<const PARTITIONS: u32> Subject for OursIn<PARTITIONS> {
    type Handle = OurHandle;

    const PRIVATE: bool = false;

    fn new(catalog: &MemoryCatalog) -> Result<Self, Failure> {
        let used = {
            let mut empty = EMPTY.lock();
            let found = empty.iter().position(|shared| shared.config().partitions == PARTITIONS);
            found.map(|at| empty.swap_remove(at))
        };
        let shared = match used {
            Some(shared) => shared,
            None => Shared::anonymous(&config(PARTITIONS))?,
        };
        Ok(OursIn { catalog: catalog.clone(), shared })
    }

    fn attach(&self) -> Result<OurHandle, Failure> {
        backend(&self.shared, &self.catalog)
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
