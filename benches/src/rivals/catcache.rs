//! An imitation of PostgreSQL's private cache, as close as safe Rust comes to it.
//!
//! What a hit does there it does here: the cache is chosen by its number; hash and equality are called through
//! pointers; the bucket's doubly linked list is walked and the entry moved to its front; its reference is counted and
//! noted in the resource owner's array; when the caller is done, the note is looked for from the end of the array and
//! the count taken back. Tables double when they hold twice as many entries as buckets. Two things are to its
//! advantage: the hash is given, where PostgreSQL computes it from the key columns, and the links are indices into one array.
//!
//! Its memory is counted as PostgreSQL's allocator would give it out: a `CatCTup` of 104 bytes and the row, rounded up to
//! a power of two, after a header of 16 bytes; a negative entry has no row, but keeps a copy of a name in its key.

use shared_catcache::backend::MemoryCatalog;

use super::source::Source;
use super::{Failure, Handle, HandleStats, Subject};
use crate::payload::{CATCACHES, CATCTUP, CHUNK_HEADER};
use crate::script::BenchKey;

/// No entry.
const NONE: u32 = u32::MAX;

/// Buckets of a new cache.
const BUCKETS: usize = 32;

/// References that the resource owner has room for from its beginning.
const OWNER_ROOM: usize = 32;

/// The chunk that holds the name in a negative entry's key.
const NAME_CHUNK: u64 = 64 + CHUNK_HEADER as u64;

/// A cache of this kind has nothing in common but the catalog.
pub struct Catcache {
    catalog: MemoryCatalog,
}

/// One row, or the knowledge that there is none.
struct Entry {
    previous: u32,
    next: u32,
    hash: u32,
    references: u32,
    negative: bool,
    key: BenchKey,
    row: Box<[u8]>,
}

/// One of the 84 caches.
struct Cache {
    /// The first entry of each list.
    buckets: Box<[u32]>,
    entries: usize,
    hash: fn(&BenchKey) -> u32,
    equal: fn(&BenchKey, &BenchKey) -> bool,
}

/// One backend's caches.
pub struct CatcacheHandle {
    caches: Box<[Cache]>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// The references that the caller holds.
    owner: Vec<u32>,
    source: Source,
    bytes: u64,
}

fn given_hash(key: &BenchKey) -> u32 {
    key.hash
}

fn equal_bytes(left: &BenchKey, right: &BenchKey) -> bool {
    left.bytes() == right.bytes()
}

impl Subject for Catcache {
    type Handle = CatcacheHandle;

    const PRIVATE: bool = true;

    fn new(catalog: &MemoryCatalog) -> Result<Catcache, Failure> {
        Ok(Catcache { catalog: catalog.clone() })
    }

    fn attach(&self) -> Result<CatcacheHandle, Failure> {
        let caches = CATCACHES.iter().map(|_| Cache {
            buckets: vec![NONE; BUCKETS].into_boxed_slice(),
            entries: 0,
            hash: given_hash,
            equal: equal_bytes,
        });
        Ok(CatcacheHandle {
            caches: caches.collect(),
            entries: Vec::new(),
            free: Vec::new(),
            owner: Vec::with_capacity(OWNER_ROOM),
            source: Source::new(&self.catalog),
            bytes: 0,
        })
    }

    fn shared_bytes(&self) -> u64 {
        0
    }
}

impl Entry {
    /// What PostgreSQL would have asked its allocator for.
    fn chunks(&self) -> u64 {
        if self.negative {
            let name = CATCACHES[usize::from(self.key.cache)].columns.by_reference();
            chunk(CATCTUP) + if name { NAME_CHUNK } else { 0 }
        } else {
            chunk(CATCTUP + self.row.len())
        }
    }
}

fn chunk(bytes: usize) -> u64 {
    (bytes.next_power_of_two() + CHUNK_HEADER) as u64
}

/// `SearchCatCacheInternal`'s walk: the entry is moved to the front of its list.
#[inline]
fn search(caches: &mut [Cache], entries: &mut [Entry], key: &BenchKey) -> Option<u32> {
    let cache = &mut caches[usize::from(key.cache)];
    let hash = (cache.hash)(key);
    let bucket = hash as usize & (cache.buckets.len() - 1);
    let head = &mut cache.buckets[bucket];
    let mut at = *head;
    while at != NONE {
        let entry = &entries[at as usize];
        if entry.hash == hash && (cache.equal)(&entry.key, key) {
            if at != *head {
                unlink(entries, at);
                push_front(entries, head, at);
            }
            return Some(at);
        }
        at = entry.next;
    }
    None
}

/// Takes an entry that is not the first out of its list.
fn unlink(entries: &mut [Entry], at: u32) {
    let Entry { previous, next, .. } = entries[at as usize];
    if previous != NONE {
        entries[previous as usize].next = next;
    }
    if next != NONE {
        entries[next as usize].previous = previous;
    }
}

fn push_front(entries: &mut [Entry], head: &mut u32, at: u32) {
    if *head != NONE {
        entries[*head as usize].previous = at;
    }
    entries[at as usize].previous = NONE;
    entries[at as usize].next = *head;
    *head = at;
}

impl CatcacheHandle {
    #[cold]
    #[inline(never)]
    fn load(&mut self, key: &BenchKey) -> Result<u32, Failure> {
        let row = self.source.load(&key.key())?;
        let entry = Entry {
            previous: NONE,
            next: NONE,
            hash: key.hash,
            references: 0,
            negative: row.is_none(),
            key: *key,
            row: row.unwrap_or_default().into(),
        };
        self.bytes += entry.chunks();
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at as usize] = entry;
                at
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        let cache = &mut self.caches[usize::from(key.cache)];
        cache.entries += 1;
        if cache.entries > cache.buckets.len() * 2 {
            grow(cache, &mut self.entries);
        }
        let bucket = key.hash as usize & (cache.buckets.len() - 1);
        push_front(&mut self.entries, &mut cache.buckets[bucket], at);
        Ok(at)
    }

    /// `CatCacheInvalidate`: everything of this hash goes.
    fn invalidate(&mut self, key: &BenchKey) {
        let cache = &mut self.caches[usize::from(key.cache)];
        let bucket = key.hash as usize & (cache.buckets.len() - 1);
        let mut at = cache.buckets[bucket];
        while at != NONE {
            let Entry { hash, next, .. } = self.entries[at as usize];
            if hash == key.hash {
                if cache.buckets[bucket] == at {
                    cache.buckets[bucket] = next;
                }
                unlink(&mut self.entries, at);
                self.bytes -= self.entries[at as usize].chunks();
                self.entries[at as usize].row = Box::default();
                self.free.push(at);
                cache.entries -= 1;
            }
            at = next;
        }
    }

    /// `ReleaseCatCache`: forgets the note, which is most often the last, and takes the count back.
    #[inline]
    fn release(&mut self, at: u32) {
        if let Some(position) = self.owner.iter().rposition(|noted| *noted == at) {
            self.owner.swap_remove(position);
        }
        self.entries[at as usize].references -= 1;
    }
}

/// `RehashCatCache`: twice as many buckets.
fn grow(cache: &mut Cache, entries: &mut [Entry]) {
    let buckets = cache.buckets.len() * 2;
    let old = std::mem::replace(&mut cache.buckets, vec![NONE; buckets].into_boxed_slice());
    for mut at in old {
        while at != NONE {
            let Entry { hash, next, .. } = entries[at as usize];
            push_front(entries, &mut cache.buckets[hash as usize & (buckets - 1)], at);
            at = next;
        }
    }
}

impl Handle for CatcacheHandle {
    #[inline(always)]
    fn lookup<R>(&mut self, key: &BenchKey, read: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, Failure> {
        let at = match search(&mut self.caches, &mut self.entries, key) {
            Some(at) => at,
            None => self.load(key)?,
        };
        let entry = &mut self.entries[at as usize];
        if entry.negative {
            return Ok(read(None));
        }
        entry.references += 1;
        self.owner.push(at);
        let answer = read(Some(&entry.row));
        self.release(std::hint::black_box(at));
        Ok(answer)
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
        for key in self.source.command_end().to_vec() {
            self.invalidate(&key);
        }
    }

    fn commit(&mut self) -> Result<(), Failure> {
        for key in self.source.commit()? {
            self.invalidate(&key);
        }
        Ok(())
    }

    fn stats(&self) -> HandleStats {
        let buckets: u64 = self.caches.iter().map(|cache| size_of_val(&*cache.buckets) as u64).sum();
        HandleStats {
            loads: self.source.loads(),
            entries: (self.entries.len() - self.free.len()) as u64,
            bytes: self.bytes + buckets,
            ..HandleStats::default()
        }
    }
}
