//! This project's cache, through its public interface.

use shared_catcache::backend::{Backend, MemoryCatalog, MemorySession};
use shared_catcache::{Config, Shared};

use super::{Failure, Handle, HandleStats, Subject};
use crate::script::{BenchKey, DATABASE};

/// Room for everything that a workload here can hold, so that nothing is evicted. Memory is taken only when it is used.
const SEGMENT_BYTES: u64 = 256 << 20;

/// The cache over an anonymous segment.
pub struct Ours {
    catalog: MemoryCatalog,
    shared: Shared,
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
        let shared = Shared::anonymous(&Config { bytes: SEGMENT_BYTES, ..Config::default() })?;
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
    #[inline]
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
        }
    }
}

#[cold]
fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Failure {
    Box::new(error)
}
