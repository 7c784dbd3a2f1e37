//! What lies where in the segment.
//!
//! A segment is a run of 64-bit units. It holds, in this order, each part on cache lines of its own:
//!
//! ```text
//! header      what this is, and the parameters of the layout (`arena/header.rs`)
//! clock       alone on its line: every writer advances it
//! stamps      stripes, lists, catalogs, databases: one unit each
//! partitions  two lines each: lock and counters
//! slab lock   and the slab's few words
//! ring lock   and, on the next line, the ring's tail
//! counters    of what belongs to no partition
//! buckets     heads of the chains, two to a unit
//! ring        messages, two units each
//! slots       one line per backend
//! classes     the slab's lists of pages and hands
//! free pages  a bitmap: 1 = in use
//! page table  two units per page
//! pages       where the entries are
//! ```
//!
//! **Invariants.** All-zero is the valid empty state of everything but the header. Every position follows from the parameters
//! in the header ([`Layout::new`] is a pure function), so two programs that agree on version and parameters agree on the
//! layout; a test pins it. The size never changes.

use super::arena::RingArea;
use crate::error::Error;
use crate::key::KEY_BYTES_MAX;

/// Units in a cache line.
pub(crate) const LINE: u32 = 8;

/// Bytes in a unit.
pub(crate) const UNIT_BYTES: u32 = 8;

/// Most backends of a segment.
pub const BACKENDS_MAX: u32 = 1024;

/// The longest row that is shared, in bytes; a longer one stays private.
pub const ROW_BYTES_MAX: usize = 64 * 1024;

/// Most partitions of the table.
pub const PARTITIONS_MAX: u32 = 4096;

/// Most stamps of one kind.
pub const STAMPS_MAX: u32 = 1 << 20;

/// Most messages of the ring.
pub const RING_MAX: u32 = 1 << 20;

/// Most units of a segment: offsets have 31 bits, so that a backend has one to spare.
pub(crate) const UNITS_MAX: u32 = (1 << 31) - 1;

/// The largest segment, 16 GiB.
pub const SEGMENT_BYTES_MAX: u64 = UNITS_MAX as u64 * UNIT_BYTES as u64;

/// Units of the segment's header (`arena/header.rs`).
pub(crate) const HEADER_UNITS: u32 = 24;

/// Units of an entry's header.
pub(crate) const ENTRY_HEADER: u32 = 4;

/// Units of a page: a fourth of the largest entry, which is 64 KiB of row, 264 bytes of key, and the header.
pub(crate) const PAGE: u32 = 2064;

/// Pages of the largest entry.
pub(crate) const LARGEST_PAGES: u32 = 4;

/// Bytes of the largest entry.
pub(crate) const LARGEST_BYTES: u32 = PAGE * LARGEST_PAGES * UNIT_BYTES;

const _: () = assert!(PAGE.is_multiple_of(LINE));
const _: () = assert!(LARGEST_BYTES as usize >= ROW_BYTES_MAX + KEY_BYTES_MAX + ENTRY_HEADER as usize * 8);

/// An offset in the segment, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct At(pub u32);

impl std::ops::Add<u32> for At {
    type Output = At;

    #[inline(always)]
    fn add(self, units: u32) -> At {
        At(self.0 + units)
    }
}

/// The locks of the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockAt {
    /// Of one partition of the table: its chains, and taking references.
    Partition(u32),
    /// Of the slab: pages and free slots.
    Slab,
    /// Of the message ring.
    Ring,
}

/// A table of equal slots in place of the slab's classes, for harnesses: the cache holds exactly so many entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uniform {
    /// How many slots, 1..=1024.
    pub slots: u32,
    /// Bytes of a slot, header included; a multiple of 8, at least 40.
    pub bytes: u32,
}

/// The parameters of a segment.
///
/// [`Config::default`] is right for most; `bytes` is what a user sets. Everything is checked by [`Config::validate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Partitions of the table, each with its lock; a power of two.
    pub partitions: u32,
    /// Buckets of the table, all partitions together; a power of two. 0: one for each 512 bytes of the segment.
    pub buckets: u32,
    /// Stamps of stripes; a power of two. More of them: fewer entries invalidated by a neighbour's change.
    pub stripes: u32,
    /// Stamps of the lists of a cache; a power of two.
    pub lists: u32,
    /// Stamps of catalogs; a power of two.
    pub catalogs: u32,
    /// Stamps of databases; a power of two.
    pub databases: u32,
    /// Backends that may be attached at once, at most [`BACKENDS_MAX`].
    pub backends: u32,
    /// Messages of the ring; a power of two.
    pub ring: u32,
    /// Size of the segment in bytes: a hard cap, all included.
    pub bytes: u64,
    /// A fixed number of equal slots; `bytes` is then ignored. `None` but for harnesses.
    pub uniform: Option<Uniform>,
    /// The stripe of a key is just `hash & (stripes - 1)`, the stamp of a cache's lists `cache & (lists - 1)`, the catalog's
    /// `cache & (catalogs - 1)`, the database's `database & (databases - 1)`: for harnesses that choose which keys share a stamp.
    pub plain_stripes: bool,
}

impl Default for Config {
    /// 64 MiB for 1,024 backends.
    fn default() -> Config {
        Config {
            partitions: 128,
            buckets: 0,
            stripes: 16 * 1024,
            lists: 1024,
            catalogs: 1024,
            databases: 64,
            backends: BACKENDS_MAX,
            ring: 4096,
            bytes: 64 << 20,
            uniform: None,
            plain_stripes: false,
        }
    }
}

impl Config {
    /// The smallest useful table, for litmus tests and simulators: four slots of 64 bytes in one chain.
    #[must_use]
    pub const fn tiny() -> Config {
        Config {
            partitions: 1,
            buckets: 2,
            stripes: 4,
            lists: 1,
            catalogs: 1,
            databases: 1,
            backends: 4,
            ring: 8,
            bytes: 0,
            uniform: Some(Uniform { slots: 4, bytes: 64 }),
            plain_stripes: true,
        }
    }

    /// Checks every parameter against its limits.
    ///
    /// # Errors
    /// [`Error::Config`] names the field, its value and what it may be.
    pub fn validate(&self) -> Result<(), Error> {
        Layout::new(self).map(|_| ())
    }

    fn check(&self) -> Result<(), Error> {
        power_of_two("partitions", self.partitions, 1, PARTITIONS_MAX)?;
        power_of_two("stripes", self.stripes, 1, STAMPS_MAX)?;
        power_of_two("lists", self.lists, 1, STAMPS_MAX)?;
        power_of_two("catalogs", self.catalogs, 1, STAMPS_MAX)?;
        power_of_two("databases", self.databases, 1, STAMPS_MAX)?;
        power_of_two("ring", self.ring, 2, RING_MAX)?;
        if self.buckets != 0 {
            power_of_two("buckets", self.buckets, self.partitions.max(2), 1 << 30)?;
        }
        if !(1..=BACKENDS_MAX).contains(&self.backends) {
            return Err(wrong("backends", self.backends.into(), format!("must be from 1 to {BACKENDS_MAX}")));
        }
        match self.uniform {
            Some(Uniform { slots, .. }) if !(1..=1024).contains(&slots) => {
                Err(wrong("uniform.slots", slots.into(), "must be from 1 to 1024".into()))
            }
            Some(Uniform { bytes, .. })
                if !bytes.is_multiple_of(UNIT_BYTES) || !(40..=LARGEST_BYTES).contains(&bytes) =>
            {
                Err(wrong("uniform.bytes", bytes.into(), format!("must be a multiple of 8 from 40 to {LARGEST_BYTES}")))
            }
            Some(_) => Ok(()),
            None if self.bytes > SEGMENT_BYTES_MAX => {
                Err(wrong("bytes", self.bytes, format!("must be at most {SEGMENT_BYTES_MAX}")))
            }
            None => Ok(()),
        }
    }

    fn buckets(&self) -> u32 {
        if self.buckets != 0 {
            return self.buckets;
        }
        let wanted = match self.uniform {
            Some(Uniform { slots, .. }) => u64::from(slots),
            None => self.bytes / 512,
        };
        // The quotient is at most 2^26.
        (wanted.next_power_of_two() as u32).max(self.partitions).max(2)
    }
}

fn wrong(field: &'static str, found: u64, expected: String) -> Error {
    Error::Config { field, found, expected }
}

fn power_of_two(field: &'static str, found: u32, least: u32, most: u32) -> Result<(), Error> {
    if found.is_power_of_two() && (least..=most).contains(&found) {
        return Ok(());
    }
    Err(wrong(field, found.into(), format!("must be a power of two from {least} to {most}")))
}

/// What a partition's two lines hold, as offsets from the first.
pub(crate) mod partition {
    pub(crate) const LOCK: u32 = 0;
    pub(crate) const HITS: u32 = 1;
    pub(crate) const MISSES: u32 = 2;
    pub(crate) const INVALID_MET: u32 = 3;
    pub(crate) const LOCK_TIMEOUTS: u32 = 4;
    pub(crate) const PUBLISHED: u32 = 5;
    pub(crate) const EXISTING: u32 = 6;
    pub(crate) const REPLACED: u32 = 7;
    pub(crate) const EVICTED: u32 = 8;
    pub(crate) const UNITS: u32 = 16;
}

/// What the slab's lines hold, as offsets from its lock.
pub(crate) mod slab {
    /// Slots in use; the lock is before it, at 0.
    pub(crate) const SLOTS_USED: u32 = 1;
    /// Bytes of the slots in use.
    pub(crate) const BYTES_USED: u32 = 2;
    /// Pages in use.
    pub(crate) const PAGES_USED: u32 = 3;
    /// Where the search for a free page begins.
    pub(crate) const PAGE_HINT: u32 = 4;
    /// Where the next emptying of pages begins.
    pub(crate) const EMPTYING_HAND: u32 = 5;
    pub(crate) const UNITS: u32 = 8;
}

/// Counters that belong to no partition, as offsets from their line.
pub(crate) mod counter {
    pub(crate) const TOO_LARGE: u32 = 0;
    pub(crate) const USELESS: u32 = 1;
    pub(crate) const FULL: u32 = 2;
    pub(crate) const PAGES_EMPTIED: u32 = 3;
    /// Where eviction from a uniform table goes on: partition number.
    pub(crate) const PARTITION_HAND: u32 = 4;
    pub(crate) const UNITS: u32 = 8;
}

/// Where everything is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The parameters, with `buckets` as it was settled.
    pub(crate) config: Config,
    /// Buckets of each partition.
    pub(crate) buckets: u32,
    pub(crate) clock: At,
    pub(crate) stripes: At,
    pub(crate) lists: At,
    pub(crate) catalogs: At,
    pub(crate) databases: At,
    pub(crate) partitions: At,
    pub(crate) slab: At,
    pub(crate) ring_lock: At,
    pub(crate) ring_tail: At,
    pub(crate) counters: At,
    pub(crate) heads: At,
    pub(crate) ring_cells: At,
    pub(crate) backends: At,
    pub(crate) classes: At,
    pub(crate) bitmap: At,
    pub(crate) page_table: At,
    pub(crate) pages: At,
    /// How many pages.
    pub(crate) page_count: u32,
    /// Units of a page.
    pub(crate) page_units: u32,
    /// Units of the segment.
    pub(crate) units: u32,
}

/// Room for the slab's classes.
pub(crate) const CLASSES_MAX: u32 = 176;

/// Units of a class's record: the list, then the hand.
pub(crate) const CLASS_RECORD: u32 = 2;

/// Units of a page's record in the page table.
pub(crate) const PAGE_RECORD: u32 = 2;

impl Layout {
    /// The layout that follows from `config`.
    ///
    /// # Errors
    /// [`Error::Config`] if a parameter is out of its limits, or `bytes` too small for the rest of them.
    pub(crate) fn new(config: &Config) -> Result<Layout, Error> {
        config.check()?;
        let buckets = config.buckets() / config.partitions;
        let mut next = 0_u64;
        // Parts on lines of their own. Sums stay far below 2^64: every factor is limited by `check`.
        let mut part = |units: u64| {
            let begin = next;
            next += units.next_multiple_of(u64::from(LINE));
            begin
        };
        part(HEADER_UNITS.into());
        let clock = part(1);
        let stripes = part(config.stripes.into());
        let lists = part(config.lists.into());
        let catalogs = part(config.catalogs.into());
        let databases = part(config.databases.into());
        let partitions = part(u64::from(config.partitions) * u64::from(partition::UNITS));
        let slab = part(slab::UNITS.into());
        // The lock, then the floor.
        let ring_lock = part(2);
        let ring_tail = part(1);
        let counters = part(counter::UNITS.into());
        let heads = part(u64::from(config.partitions) * u64::from(buckets.div_ceil(2)));
        let ring_cells = part(u64::from(config.ring) * 2);
        let backends = part(u64::from(config.backends) * u64::from(LINE));
        let classes = part(if config.uniform.is_some() { CLASS_RECORD } else { CLASSES_MAX * CLASS_RECORD }.into());
        let (page_units, page_count) = match config.uniform {
            Some(Uniform { slots, bytes }) => (u64::from(slots) * u64::from(bytes / UNIT_BYTES), 1),
            None => {
                // Each page needs its record and its bit, too; three lines are for rounding.
                let left = (config.bytes / u64::from(UNIT_BYTES)).saturating_sub(next + 3 * u64::from(LINE));
                let bits = u64::from(PAGE + PAGE_RECORD) * 64 + 1;
                (u64::from(PAGE), left * 64 / bits)
            }
        };
        let mut part = |units: u64| {
            let begin = next;
            next += units.next_multiple_of(u64::from(LINE));
            begin
        };
        let bitmap = part(page_count.div_ceil(64).max(1));
        let page_table = part(page_count.max(1) * u64::from(PAGE_RECORD));
        let pages = part(page_count.max(1) * page_units);
        if page_count == 0 {
            // With a 64th to spare, for buckets that grow with the segment.
            let least = (next * u64::from(UNIT_BYTES) * 65 / 64 + 1024).next_multiple_of(4096);
            return Err(wrong("bytes", config.bytes, format!("must be at least {least} with the other parameters")));
        }
        let units = match config.uniform {
            Some(_) => next,
            None => config.bytes / u64::from(UNIT_BYTES),
        };
        debug_assert!(next <= units, "the parts exceed the cap");
        if units > u64::from(UNITS_MAX) {
            return Err(wrong("bytes", config.bytes, format!("must be at most {SEGMENT_BYTES_MAX}")));
        }
        // All positions are below `units`, hence fit.
        let at = |unit: u64| At(unit as u32);
        Ok(Layout {
            config: Config { buckets: buckets * config.partitions, ..*config },
            buckets,
            clock: at(clock),
            stripes: at(stripes),
            lists: at(lists),
            catalogs: at(catalogs),
            databases: at(databases),
            partitions: at(partitions),
            slab: at(slab),
            ring_lock: at(ring_lock),
            ring_tail: at(ring_tail),
            counters: at(counters),
            heads: at(heads),
            ring_cells: at(ring_cells),
            backends: at(backends),
            classes: at(classes),
            bitmap: at(bitmap),
            page_table: at(page_table),
            pages: at(pages),
            page_count: page_count as u32,
            page_units: page_units as u32,
            units: units as u32,
        })
    }

    /// Size of the segment in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.units) * u64::from(UNIT_BYTES)
    }

    /// First line of a partition.
    #[inline]
    pub(crate) fn partition(&self, number: u32) -> At {
        self.partitions + number * partition::UNITS
    }

    /// Where the ring is.
    pub(crate) fn ring(&self) -> RingArea {
        let config = &self.config;
        RingArea::new(self.ring_tail, self.ring_lock + 1, self.ring_cells, config.ring, self.backends, config.backends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layout is a contract between programs: a change of these numbers needs another `VERSION`.
    #[test]
    fn the_layout_is_pinned() {
        let layout = Layout::new(&Config::default()).unwrap();
        let positions = [
            layout.clock,
            layout.stripes,
            layout.lists,
            layout.catalogs,
            layout.databases,
            layout.partitions,
            layout.slab,
            layout.ring_lock,
            layout.ring_tail,
            layout.counters,
            layout.heads,
            layout.ring_cells,
            layout.backends,
            layout.classes,
            layout.bitmap,
            layout.page_table,
            layout.pages,
        ];
        let pinned = [
            24, 32, 16416, 17440, 18464, 18528, 20576, 20584, 20592, 20600, 20608, 86144, 94336, 102_528, 102_880,
            102_944, 110_968,
        ];
        assert_eq!(positions.map(|at| at.0), pinned);
        assert_eq!((layout.page_count, layout.page_units, layout.units), (4010, 2064, 8 << 20));
        assert_eq!(layout.buckets, 1024);
    }

    #[test]
    fn every_part_begins_on_a_line_of_its_own() {
        for config in [
            Config::default(),
            Config::tiny(),
            Config {
                bytes: 1 << 20,
                stripes: 1,
                lists: 1,
                catalogs: 1,
                databases: 1,
                ring: 2,
                backends: 3,
                ..Config::default()
            },
        ] {
            let layout = Layout::new(&config).unwrap();
            let parts = [
                At(0),
                layout.clock,
                layout.stripes,
                layout.lists,
                layout.catalogs,
                layout.databases,
                layout.partitions,
                layout.slab,
                layout.ring_lock,
                layout.ring_tail,
                layout.counters,
                layout.heads,
                layout.ring_cells,
                layout.backends,
                layout.classes,
                layout.bitmap,
                layout.page_table,
                layout.pages,
                At(layout.units),
            ];
            assert!(parts.is_sorted_by(|a, b| a.0 < b.0), "{parts:?}");
            assert!(parts[..18].iter().all(|at| at.0 % LINE == 0), "{parts:?}");
            let end = layout.pages.0 + layout.page_count * layout.page_units;
            assert!(end <= layout.units, "the pages end at {end} of {}", layout.units);
        }
    }

    /// loom keeps an object for each atomic: the smallest segment has to be small.
    #[test]
    fn the_tiny_segment_is_below_two_kibibytes() {
        let layout = Layout::new(&Config::tiny()).unwrap();
        assert!(layout.bytes() < 2048, "{}", layout.bytes());
        assert_eq!(layout.page_units, 4 * 8);
    }

    #[test]
    fn pages_take_all_but_a_hundredth_of_a_segment() {
        for bytes in [16 << 20, 64 << 20, 1 << 30, SEGMENT_BYTES_MAX] {
            let layout = Layout::new(&Config { bytes, buckets: 128, ..Config::default() }).unwrap();
            let outside = bytes - u64::from(layout.page_count) * u64::from(PAGE) * 8;
            assert!(outside <= bytes / 100 + (512 << 10), "{outside} of {bytes}");
            assert!(layout.bytes() <= bytes);
        }
    }

    #[test]
    fn a_parameter_is_refused_beyond_its_limits_and_taken_at_them() {
        let base = Config { bytes: 256 << 20, buckets: 4096, ..Config::default() };
        base.validate().unwrap();
        let good: &[fn(&mut Config)] = &[
            |c| c.partitions = 1,
            |c| c.partitions = PARTITIONS_MAX,
            |c| c.stripes = 1,
            |c| c.stripes = STAMPS_MAX,
            |c| c.lists = STAMPS_MAX,
            |c| c.catalogs = STAMPS_MAX,
            |c| c.databases = STAMPS_MAX,
            |c| c.backends = 1,
            |c| c.backends = BACKENDS_MAX,
            |c| c.ring = 2,
            |c| c.ring = RING_MAX,
            |c| c.buckets = 128,
            |c| c.bytes = SEGMENT_BYTES_MAX,
            |c| c.uniform = Some(Uniform { slots: 1, bytes: 40 }),
            |c| c.uniform = Some(Uniform { slots: 1024, bytes: LARGEST_BYTES }),
        ];
        for (number, change) in good.iter().enumerate() {
            let mut config = base;
            change(&mut config);
            assert!(config.validate().is_ok(), "change {number}: {:?}", config.validate());
        }
        type Change = fn(&mut Config);
        let bad: &[(&str, Change)] = &[
            ("partitions", |c| c.partitions = 0),
            ("partitions", |c| c.partitions = 3),
            ("partitions", |c| c.partitions = PARTITIONS_MAX * 2),
            ("stripes", |c| c.stripes = 0),
            ("stripes", |c| c.stripes = STAMPS_MAX * 2),
            ("lists", |c| c.lists = 0),
            ("lists", |c| c.lists = 6),
            ("catalogs", |c| c.catalogs = 0),
            ("catalogs", |c| c.catalogs = 6),
            ("databases", |c| c.databases = STAMPS_MAX * 2),
            ("backends", |c| c.backends = 0),
            ("backends", |c| c.backends = BACKENDS_MAX + 1),
            ("ring", |c| c.ring = 1),
            ("ring", |c| c.ring = RING_MAX * 2),
            ("buckets", |c| c.buckets = 64),
            ("buckets", |c| c.buckets = 129),
            ("bytes", |c| c.bytes = SEGMENT_BYTES_MAX + 1),
            ("bytes", |c| c.bytes = 0),
            ("bytes", |c| c.bytes = 320_000),
            ("uniform.slots", |c| c.uniform = Some(Uniform { slots: 0, bytes: 64 })),
            ("uniform.slots", |c| c.uniform = Some(Uniform { slots: 1025, bytes: 64 })),
            ("uniform.bytes", |c| c.uniform = Some(Uniform { slots: 1, bytes: 32 })),
            ("uniform.bytes", |c| c.uniform = Some(Uniform { slots: 1, bytes: 60 })),
            ("uniform.bytes", |c| c.uniform = Some(Uniform { slots: 1, bytes: LARGEST_BYTES + 8 })),
        ];
        for (name, change) in bad {
            let mut config = base;
            change(&mut config);
            let Err(Error::Config { field, .. }) = config.validate() else { panic!("{name}: {config:?} was taken") };
            assert_eq!(field, *name);
        }
    }

    /// `bytes` is refused with the least value that would do, and that value does.
    #[test]
    fn the_advice_about_too_small_a_segment_is_right() {
        for config in
            [Config { bytes: 0, buckets: 128, ..Config::default() }, Config { bytes: 70_000, ..Config::default() }]
        {
            let text = config.validate().unwrap_err().to_string();
            let least =
                text.split(' ').find_map(|word| word.parse::<u64>().ok().filter(|&n| n > config.bytes)).unwrap();
            assert!(Config { bytes: least, ..config }.validate().is_ok(), "{text}");
        }
    }
}
