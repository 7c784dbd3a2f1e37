//! The least that a private cache can cost: a hash map of reference-counted rows, keyed by a number.
//!
//! A hit counts a reference, since the caller keeps the row beyond the lookup. No key is compared but the number.

use std::collections::HashMap;
use std::hint::black_box;
use std::rc::Rc;

use rustc_hash::FxBuildHasher;
use shared_catcache::backend::MemoryCatalog;

use super::source::Source;
use super::{Failure, Handle, HandleStats, Subject};
use crate::script::BenchKey;

type Row = Option<Rc<[u8]>>;

/// The two counts of an `Rc`.
const RC_COUNTS: u64 = 16;

/// A cache of this kind has nothing in common but the catalog.
pub struct BareMap {
    catalog: MemoryCatalog,
}

/// One backend's map.
pub struct BareHandle {
    rows: HashMap<u64, Row, FxBuildHasher>,
    source: Source,
}

impl Subject for BareMap {
    type Handle = BareHandle;

    const PRIVATE: bool = true;

    fn new(catalog: &MemoryCatalog) -> Result<BareMap, Failure> {
        Ok(BareMap { catalog: catalog.clone() })
    }

    fn attach(&self) -> Result<BareHandle, Failure> {
        Ok(BareHandle { rows: HashMap::default(), source: Source::new(&self.catalog) })
    }

    fn shared_bytes(&self) -> u64 {
        0
    }
}

impl BareHandle {
    #[cold]
    #[inline(never)]
    fn load(&mut self, key: &BenchKey) -> Result<Row, Failure> {
        let row: Row = self.source.load(&key.key())?.map(Rc::from);
        self.rows.insert(key.id, row.clone());
        Ok(row)
    }
}

impl Handle for BareHandle {
    #[inline(always)]
    fn lookup<R>(&mut self, key: &BenchKey, read: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, Failure> {
        let row = match self.rows.get(&key.id) {
            Some(row) => row.clone(),
            None => self.load(key)?,
        };
        // The caller has the handle now: its count is really counted.
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
            self.rows.remove(&key.id);
        }
    }

    fn commit(&mut self) -> Result<(), Failure> {
        for key in self.source.commit()? {
            self.rows.remove(&key.id);
        }
        Ok(())
    }

    fn stats(&self) -> HandleStats {
        let rows: u64 = self.rows.values().flatten().map(|row| RC_COUNTS + row.len().next_multiple_of(8) as u64).sum();
        let bytes = rows + table_bytes(self.rows.capacity(), size_of::<(u64, Row)>());
        HandleStats { loads: self.source.loads(), entries: self.rows.len() as u64, bytes, ..HandleStats::default() }
    }
}

/// What the standard library's hash map takes for a capacity: slots in a power of two, seven eighths of them usable, and
/// one byte more for each.
pub(super) fn table_bytes(capacity: usize, slot: usize) -> u64 {
    match capacity {
        0 => 0,
        1..8 => 8 * (slot as u64 + 1),
        _ => (capacity as u64 * 8 / 7).next_power_of_two() * (slot as u64 + 1),
    }
}
