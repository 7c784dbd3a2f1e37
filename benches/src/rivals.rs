//! What the cache is compared with, behind one trait.
//!
//! | subject | what it is |
//! | --- | --- |
//! | [`Catcache`](catcache::Catcache) | an honest imitation of PostgreSQL's private cache |
//! | [`BareMap`](bare_map::BareMap) | the least that a private cache can cost: a hash map of reference-counted rows |
//! | [`OneLock`](locked::OneLock) | one table for all behind one lock: the first prototype of the pgsql-hackers thread |
//! | [`Partitioned`](locked::Partitioned) | one table for all behind 128 locks (parking_lot and std's `HashMap`, sharded), without a local view |
//! | [`OffTheShelf`](shelf::OffTheShelf) | quick_cache, moka, papaya |
//! | [`Ours`](ours::Ours) | this project's cache; also with its table in 1 or 16 partitions instead of 128 |
//!
//! All of them load from the same [`MemoryCatalog`] and change it through the
//! same transactions, so a miss and a commit cost the same catalog work everywhere. All are given the hash. What a
//! lookup returns stays good after it, as PostgreSQL's callers need it: the private ones and the locked ones count a
//! reference per hit, ours holds one per touched entry.
//!
//! The rivals are *not coherent*. A backend drops from its cache what it has changed itself, and nobody hears of anything
//! else; a row that was read before a commit may be put into a shared table after it. So they do less than is needed,
//! and every comparison is to their advantage.

pub mod bare_map;
pub mod catcache;
pub mod locked;
pub mod ours;
pub mod shelf;
pub mod source;

use shared_catcache::backend::MemoryCatalog;

use crate::script::BenchKey;

/// Why a subject could not do what it was asked.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A cache that backends can be attached to.
pub trait Subject: Sized + Sync {
    /// One backend of it. It stays on its thread.
    type Handle: Handle;

    /// Does each backend hold everything for itself?
    const PRIVATE: bool;

    /// Makes an empty cache over `catalog`.
    ///
    /// # Errors
    /// If there is no memory to be had for it.
    fn new(catalog: &MemoryCatalog) -> Result<Self, Failure>;

    /// Attaches one more backend.
    ///
    /// # Errors
    /// If there are too many.
    fn attach(&self) -> Result<Self::Handle, Failure>;

    /// Bytes that all backends have in common.
    fn shared_bytes(&self) -> u64;
}

/// One backend.
pub trait Handle {
    /// Looks up a row and shows it to `read`; `None` if there is no such row.
    ///
    /// # Errors
    /// If the catalog could not be read.
    fn lookup<R>(&mut self, key: &BenchKey, read: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, Failure>;

    /// Begins a transaction that changes nothing.
    fn accept(&mut self);

    /// Begins a transaction that changes something.
    ///
    /// # Errors
    /// If one is running.
    fn begin(&mut self) -> Result<(), Failure>;

    /// Writes the row of a key, or deletes it.
    ///
    /// # Errors
    /// If another transaction has changed it and is still running.
    fn change(&mut self, key: &BenchKey, row: Option<&[u8]>) -> Result<(), Failure>;

    /// Ends the running command.
    fn command_end(&mut self);

    /// Commits.
    ///
    /// # Errors
    /// If nothing is running.
    fn commit(&mut self) -> Result<(), Failure>;

    /// What it has done and what it holds.
    fn stats(&self) -> HandleStats;
}

/// What a backend has done and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandleStats {
    /// Scans of the catalog.
    pub loads: u64,
    /// Local misses that the shared cache answered.
    pub shared_hits: u64,
    /// So often it fell too far behind and dropped everything that it held.
    pub resets: u64,
    /// Entries that it holds.
    pub entries: u64,
    /// Bytes that it has for itself, as asked of the allocator.
    pub bytes: u64,
    /// Entries whose rows it has for itself, not counted in `bytes`: ours only, and only after changes.
    pub private_entries: u64,
}

impl HandleStats {
    /// So many of the same.
    #[must_use]
    pub fn times(self, number: u64) -> HandleStats {
        HandleStats {
            loads: self.loads * number,
            shared_hits: self.shared_hits * number,
            resets: self.resets * number,
            entries: self.entries * number,
            bytes: self.bytes * number,
            private_entries: self.private_entries * number,
        }
    }

    /// The sums.
    #[must_use]
    pub fn plus(self, other: HandleStats) -> HandleStats {
        HandleStats {
            loads: self.loads + other.loads,
            shared_hits: self.shared_hits + other.shared_hits,
            resets: self.resets + other.resets,
            entries: self.entries + other.entries,
            bytes: self.bytes + other.bytes,
            private_entries: self.private_entries + other.private_entries,
        }
    }
}

/// The subjects, to be chosen at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The honest imitation of PostgreSQL's private cache.
    Catcache,
    /// The bare private map.
    BareMap,
    /// One lock round one table.
    OneLock,
    /// Partitioned locks without a local view.
    Partitioned,
    /// quick_cache.
    QuickCache,
    /// moka.
    Moka,
    /// papaya.
    Papaya,
    /// This project's cache, its table behind one lock.
    OursOne,
    /// This project's cache, its table in 16 partitions.
    OursSixteen,
    /// This project's cache.
    Ours,
}

impl Kind {
    /// All subjects.
    pub const ALL: [Kind; 10] = [
        Kind::Catcache,
        Kind::BareMap,
        Kind::OneLock,
        Kind::Partitioned,
        Kind::QuickCache,
        Kind::Moka,
        Kind::Papaya,
        Kind::OursOne,
        Kind::OursSixteen,
        Kind::Ours,
    ];

    /// Those that are measured throughout.
    pub const CORE: [Kind; 5] = [Kind::Catcache, Kind::BareMap, Kind::OneLock, Kind::Partitioned, Kind::Ours];

    /// Everything that one could take, each once.
    pub const RIVALS: [Kind; 8] = [
        Kind::Catcache,
        Kind::BareMap,
        Kind::OneLock,
        Kind::Partitioned,
        Kind::QuickCache,
        Kind::Moka,
        Kind::Papaya,
        Kind::Ours,
    ];

    /// This project's cache behind one lock, 16 and 128.
    pub const STRATEGIES: [Kind; 3] = [Kind::OursOne, Kind::OursSixteen, Kind::Ours];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Catcache => "private catcache",
            Kind::BareMap => "bare private map",
            Kind::OneLock => "one lock",
            Kind::Partitioned => "partitioned locks",
            Kind::QuickCache => "quick_cache",
            Kind::Moka => "moka",
            Kind::Papaya => "papaya",
            Kind::OursOne => "shared-catcache, 1 partition",
            Kind::OursSixteen => "shared-catcache, 16 partitions",
            Kind::Ours => "shared-catcache",
        }
    }

    /// Its name on a command line.
    pub const fn word(self) -> &'static str {
        match self {
            Kind::Catcache => "catcache",
            Kind::BareMap => "bare",
            Kind::OneLock => "onelock",
            Kind::Partitioned => "partitioned",
            Kind::QuickCache => "quick_cache",
            Kind::Moka => "moka",
            Kind::Papaya => "papaya",
            Kind::OursOne => "ours1",
            Kind::OursSixteen => "ours16",
            Kind::Ours => "ours",
        }
    }

    /// What it does not have that a catalog cache must have: why its cost is not the whole price. Empty if it is complete.
    pub const fn lacks(self) -> &'static str {
        match self {
            Kind::Catcache => "private: a copy for each backend; hears of no message here",
            Kind::BareMap => "private: a copy for each backend; no invalidation by hash, no lists, no cap",
            Kind::OneLock | Kind::Partitioned | Kind::Papaya => {
                "threads of one process only; no invalidation by hash, no check of what is put in, no lists, no cap"
            }
            Kind::QuickCache | Kind::Moka => {
                "threads of one process only; no invalidation by hash, no check of what is put in, no lists; its cap does not \
                 count its own tables"
            }
            Kind::OursOne | Kind::OursSixteen | Kind::Ours => "",
        }
    }

    /// Does each backend hold everything for itself?
    pub const fn is_private(self) -> bool {
        matches!(self, Kind::Catcache | Kind::BareMap)
    }

    /// The subject of that name.
    pub fn from_word(word: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// Has `task` done with this subject. Each subject gets its own compiled copy of the task, so that nothing stands
    /// between the loop and the lookup.
    pub fn run<T: Task>(self, task: &T) -> T::Output {
        match self {
            Kind::Catcache => task.run::<catcache::Catcache>(),
            Kind::BareMap => task.run::<bare_map::BareMap>(),
            Kind::OneLock => task.run::<locked::OneLock>(),
            Kind::Partitioned => task.run::<locked::Partitioned>(),
            Kind::QuickCache => task.run::<shelf::OffTheShelf<shelf::QuickCache>>(),
            Kind::Moka => task.run::<shelf::OffTheShelf<shelf::MokaCache>>(),
            Kind::Papaya => task.run::<shelf::OffTheShelf<shelf::PapayaMap>>(),
            Kind::OursOne => task.run::<ours::OursIn<1>>(),
            Kind::OursSixteen => task.run::<ours::OursIn<16>>(),
            Kind::Ours => task.run::<ours::Ours>(),
        }
    }
}

/// Something to be done with any subject.
pub trait Task {
    /// What comes of it.
    type Output;

    /// Does it.
    fn run<S: Subject>(&self) -> Self::Output;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::trace::TraceKey;
    use std::collections::BTreeMap;

    /// One backend does at random what backends do, over 24 keys of 6 hashes, and is compared with a map that knows no
    /// cache: what was written is seen after the command's end.
    struct RandomOperations;

    impl Task for RandomOperations {
        type Output = ();

        fn run<S: Subject>(&self) {
            let key =
                |n: usize| BenchKey::new(TraceKey { cache: 55 + (n % 2) as u8, hash: (n % 6) as u32 }, (n / 6) as u32);
            let subject = S::new(&MemoryCatalog::new()).unwrap();
            let mut handle = subject.attach().unwrap();
            let mut random = Random::new(4);
            let mut reference = BTreeMap::new();
            let mut found = 0;
            for _ in 0..300 {
                handle.accept();
                if random.below(2) == 0 {
                    handle.begin().unwrap();
                    for _ in 0..random.below(4) {
                        for _ in 0..random.below(4) {
                            let n = random.below(24);
                            let row = (random.below(3) > 0).then(|| random.bits().to_ne_bytes());
                            handle.change(&key(n), row.as_ref().map(|row| &row[..])).unwrap();
                            reference.insert(n, row);
                        }
                        handle.command_end();
                        found += check(&mut handle, key(random.below(24)), &reference, key);
                    }
                    handle.commit().unwrap();
                }
                for _ in 0..8 {
                    found += check(&mut handle, key(random.below(24)), &reference, key);
                }
            }
            assert!(found > 500, "rows were found: {found}");
        }
    }

    fn check<H: Handle>(
        handle: &mut H,
        asked: BenchKey,
        reference: &BTreeMap<usize, Option<[u8; 8]>>,
        key: impl Fn(usize) -> BenchKey,
    ) -> usize {
        let expected = reference.iter().find(|(n, _)| key(**n) == asked).and_then(|(_, row)| *row);
        let answer = handle.lookup(&asked, |row| row.map(<[u8]>::to_vec)).unwrap();
        assert_eq!(answer.as_deref(), expected.as_ref().map(|row| &row[..]));
        usize::from(answer.is_some())
    }

    #[test]
    fn all_subjects_answer_like_a_plain_map() {
        for kind in Kind::ALL {
            kind.run(&RandomOperations);
        }
    }

    #[test]
    fn words_name_subjects() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_word(kind.word()), Some(kind));
        }
        assert_eq!(Kind::from_word("theirs"), None);
    }
}
