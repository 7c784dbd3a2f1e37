//! Caches off the shelf: what one would take who wants a concurrent cache in Rust today, each as one cache for all backends of
//! a process.
//!
//! | subject | what it is | its cap |
//! | --- | --- | --- |
//! | [`QuickCache`] | shards behind parking_lot's locks, S3-FIFO | the sum of the weights that we give it |
//! | [`MokaCache`] | a concurrent table, W-TinyLFU, its bookkeeping queued by those who read | the same |
//! | [`PapayaMap`] | a map without locks, memory reclaimed in epochs | none |
//!
//! **What all three lack**, and what a catalog cache can't be without: they live in one process, so they serve threads only;
//! there is no invalidation by hash (a message names a hash, not a key), no check that a row which is put in was read
//! late enough, no lists, no cap that counts their own tables too. That there is no such row is kept as a value of ours.
//! [`Kind::lacks`](super::Kind::lacks) says so beside the figures.
//!
//! They are used as their documents advise: a clone of the value, which is a count on an `Arc`, for each hit. They are keyed by
//! a number, with the fast hash that the bare map has: no key is compared. Two backends that miss the same row at the same
//! time both load it, as they do everywhere here.

use std::hint::black_box;
use std::sync::Arc;

use quick_cache::sync::DefaultLifecycle;
use rustc_hash::FxBuildHasher;
use shared_catcache::backend::MemoryCatalog;

use super::source::Source;
use super::{Failure, Handle, HandleStats, Subject};
use crate::script::BenchKey;

/// A row, or that there is none.
pub type Row = Option<Arc<[u8]>>;

/// The cap of those that have one: as large as our segment, so that nothing is evicted.
const CAP_BYTES: u64 = super::ours::SEGMENT_BYTES;

/// How many entries the caches are told to expect.
const EXPECTED: usize = 20_000;

/// What a row counts against the cap: itself, the two counts of its `Arc`, and its number.
fn weight(row: &Row) -> u64 {
    row.as_ref().map_or(8, |row| 24 + row.len() as u64)
}

/// What the caches have in common.
pub trait Shelf: Send + Sync + 'static {
    /// An empty one.
    fn empty() -> Self;
    /// The row of this number, to be kept.
    fn get(&self, id: u64) -> Option<Row>;
    /// Puts a row in.
    fn put(&self, id: u64, row: Row);
    /// Takes a row out.
    fn remove(&self, id: u64);
    /// Bytes of the rows that it holds, its own tables not counted: it does not tell.
    fn row_bytes(&self) -> u64;
}

/// Weighs rows for [`QuickCache`].
#[derive(Clone)]
pub struct Weigh;

impl quick_cache::Weighter<u64, Row> for Weigh {
    fn weight(&self, _: &u64, row: &Row) -> u64 {
        weight(row)
    }
}

/// quick_cache.
pub type QuickCache = quick_cache::sync::Cache<u64, Row, Weigh, FxBuildHasher>;

impl Shelf for QuickCache {
    fn empty() -> QuickCache {
        QuickCache::with(EXPECTED, CAP_BYTES, Weigh, FxBuildHasher, DefaultLifecycle::default())
    }

    #[inline(always)]
    fn get(&self, id: u64) -> Option<Row> {
        QuickCache::get(self, &id)
    }

    fn put(&self, id: u64, row: Row) {
        self.insert(id, row);
    }

    fn remove(&self, id: u64) {
        QuickCache::remove(self, &id);
    }

    fn row_bytes(&self) -> u64 {
        self.weight()
    }
}

/// moka.
pub type MokaCache = moka::sync::Cache<u64, Row, FxBuildHasher>;

impl Shelf for MokaCache {
    fn empty() -> MokaCache {
        moka::sync::Cache::builder()
            .max_capacity(CAP_BYTES)
            .weigher(|_: &u64, row: &Row| u32::try_from(weight(row)).unwrap_or(u32::MAX))
            .initial_capacity(EXPECTED)
            .build_with_hasher(FxBuildHasher)
    }

    #[inline(always)]
    fn get(&self, id: u64) -> Option<Row> {
        MokaCache::get(self, &id)
    }

    fn put(&self, id: u64, row: Row) {
        self.insert(id, row);
    }

    fn remove(&self, id: u64) {
        self.invalidate(&id);
    }

    fn row_bytes(&self) -> u64 {
        // What it has queued is not in its sum.
        self.run_pending_tasks();
        self.weighted_size()
    }
}

/// papaya.
pub type PapayaMap = papaya::HashMap<u64, Row, FxBuildHasher>;

impl Shelf for PapayaMap {
    fn empty() -> PapayaMap {
        PapayaMap::with_capacity_and_hasher(EXPECTED, FxBuildHasher)
    }

    #[inline(always)]
    fn get(&self, id: u64) -> Option<Row> {
        self.pin().get(&id).cloned()
    }

    fn put(&self, id: u64, row: Row) {
        self.pin().insert(id, row);
    }

    fn remove(&self, id: u64) {
        self.pin().remove(&id);
    }

    fn row_bytes(&self) -> u64 {
        self.pin().values().map(weight).sum()
    }
}

/// One such cache for all.
pub struct OffTheShelf<M> {
    catalog: MemoryCatalog,
    rows: Arc<M>,
}

/// One backend: it has nothing of its own.
pub struct ShelfHandle<M> {
    rows: Arc<M>,
    source: Source,
}

impl<M: Shelf> Subject for OffTheShelf<M> {
    type Handle = ShelfHandle<M>;

    const PRIVATE: bool = false;

    fn new(catalog: &MemoryCatalog) -> Result<Self, Failure> {
        Ok(OffTheShelf { catalog: catalog.clone(), rows: Arc::new(M::empty()) })
    }

    fn attach(&self) -> Result<ShelfHandle<M>, Failure> {
        Ok(ShelfHandle { rows: Arc::clone(&self.rows), source: Source::new(&self.catalog) })
    }

    fn shared_bytes(&self) -> u64 {
        self.rows.row_bytes()
    }
}

impl<M: Shelf> ShelfHandle<M> {
    #[cold]
    #[inline(never)]
    fn load(&mut self, key: &BenchKey) -> Result<Row, Failure> {
        let row: Row = self.source.load(&key.key())?.map(Arc::from);
        self.rows.put(key.id, row.clone());
        Ok(row)
    }
}

impl<M: Shelf> Handle for ShelfHandle<M> {
    #[inline(always)]
    fn lookup<R>(&mut self, key: &BenchKey, read: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, Failure> {
        let row = match self.rows.get(key.id) {
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
            self.rows.remove(key.id);
        }
    }

    fn commit(&mut self) -> Result<(), Failure> {
        for key in self.source.commit()? {
            self.rows.remove(key.id);
        }
        Ok(())
    }

    fn stats(&self) -> HandleStats {
        HandleStats { loads: self.source.loads(), ..HandleStats::default() }
    }
}
