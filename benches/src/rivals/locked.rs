//! One table for all backends behind locks, without a local view: each lookup takes a lock and counts a reference in
//! memory that all of them write.
//!
//! With one lock this is what the first prototype of the pgsql-hackers thread measured; with 128, chosen by the key, what
//! one would try next.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;

use parking_lot::RwLock;
use rustc_hash::FxBuildHasher;
use shared_catcache::backend::MemoryCatalog;

use super::bare_map::table_bytes;
use super::source::Source;
use super::{Failure, Handle, HandleStats, Subject};
use crate::script::BenchKey;

type Row = Option<Arc<[u8]>>;
type Table = HashMap<u64, Row, FxBuildHasher>;

/// The two counts of an `Arc`.
const ARC_COUNTS: u64 = 16;

/// How many locks; PostgreSQL cuts its buffer table into as many partitions.
const PARTITIONS: usize = 128;

/// A table on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Partition(RwLock<Table>);

/// The table in `N` parts, a power of two.
struct Parts<const N: usize>(Box<[Partition]>);

impl<const N: usize> Parts<N> {
    fn new() -> Parts<N> {
        Parts((0..N).map(|_| Partition::default()).collect())
    }

    #[inline(always)]
    fn of(&self, key: &BenchKey) -> &RwLock<Table> {
        &self.0[key.id as usize & (N - 1)].0
    }

    fn remove(&self, key: &BenchKey) {
        self.of(key).write().remove(&key.id);
    }

    fn bytes(&self) -> u64 {
        let parts = self.0.iter().map(|part| {
            let table = part.0.read();
            let rows: u64 = table.values().flatten().map(|row| ARC_COUNTS + row.len().next_multiple_of(8) as u64).sum();
            rows + table_bytes(table.capacity(), size_of::<(u64, Row)>())
        });
        parts.sum::<u64>() + size_of_val(&*self.0) as u64
    }
}

/// A table for all behind `N` locks.
pub struct Locked<const N: usize> {
    catalog: MemoryCatalog,
    parts: Arc<Parts<N>>,
}

/// One lock round one table.
pub type OneLock = Locked<1>;

/// 128 locks, each round a part of the table.
pub type Partitioned = Locked<PARTITIONS>;

/// One backend: it has nothing of its own.
pub struct LockedHandle<const N: usize> {
    parts: Arc<Parts<N>>,
    source: Source,
}

impl<const N: usize> Subject for Locked<N> {
    type Handle = LockedHandle<N>;

    const PRIVATE: bool = false;

    fn new(catalog: &MemoryCatalog) -> Result<Locked<N>, Failure> {
        Ok(Locked { catalog: catalog.clone(), parts: Arc::new(Parts::new()) })
    }

    fn attach(&self) -> Result<LockedHandle<N>, Failure> {
        Ok(LockedHandle { parts: Arc::clone(&self.parts), source: Source::new(&self.catalog) })
    }

    fn shared_bytes(&self) -> u64 {
        self.parts.bytes()
    }
}

impl<const N: usize> LockedHandle<N> {
    #[cold]
    #[inline(never)]
    fn load(&mut self, key: &BenchKey) -> Result<Row, Failure> {
        let row: Row = self.source.load(&key.key())?.map(Arc::from);
        let mut table = self.parts.of(key).write();
        Ok(table.entry(key.id).or_insert(row).clone())
    }
}

impl<const N: usize> Handle for LockedHandle<N> {
    #[inline(always)]
    fn lookup<R>(&mut self, key: &BenchKey, read: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, Failure> {
        let found = self.parts.of(key).read().get(&key.id).cloned();
        let row = match found {
            Some(row) => row,
            None => self.load(key)?,
        };
        let row = black_box(row);
        Ok(read(row.as_deref()))
    }

    fn accept(&mut self) {}

    fn begin(&mut self) -> Result<(), Failure> {
        self.source.begin();
        Ok(())
    }

    fn change(&mut self, key: &BenchKey, row: Option<&[u8]>) -> Result<(), Failure> {
        self.source.change(key, row)
    }

    fn command_end(&mut self) {
        for key in self.source.command_end() {
            self.parts.remove(key);
        }
    }

    fn commit(&mut self) -> Result<(), Failure> {
        for key in self.source.commit()? {
            self.parts.remove(&key);
        }
        Ok(())
    }

    fn stats(&self) -> HandleStats {
        HandleStats { loads: self.source.loads(), ..HandleStats::default() }
    }
}
