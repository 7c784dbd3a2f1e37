//! The slab: slots for entries, in pages of one size class each.
//!
//! Classes are sixteen to a doubling, so that a slot wastes little; a class whose slots don't divide a page well takes spans
//! of several pages. Slots of a span are handed out from its free list, then from its untouched rest. A span with a
//! free slot is in its class's list; a span whose slots are all free goes back to the pool at once, so that memory follows
//! the mix of sizes.
//!
//! **Invariants** (under the slab's lock, which guards all of this; a leaf):
//! * B1: a page's bit is set exactly if it belongs to a span; its record then has the class and its place in the span.
//! * B2: the first record of a span counts its slots in use; the span is in its class's list exactly if some are free, and
//!   never has none in use.
//! * B3: a touched slot's word is never anything but an entry's word, so {not linked, no references} while it is free or not
//!   yet published; unit 1 of a free one holds the next free one of its span.
//!
//! Records, two units to a page:
//!
//! ```text
//! unit 0   bits 0..=7 class + 1   8..=15 place in the span   16..=31 in use   32..=47 touched   48..=63 first free + 1
//! unit 1   bits 0..=31 previous of the class's list + 1      32..=63 next + 1
//! ```

use super::arena::{Arena, WriteGuard};
use super::entry::{Entry, TOKEN};
use super::segment::{At, CLASS_RECORD, LARGEST_BYTES, LARGEST_PAGES, Layout, LockAt, PAGE_RECORD, UNIT_BYTES, slab};
use crate::probe::{EntryAt, Probe, Seen, Step};

/// Most pages of a span.
const SPAN_MAX: u32 = 16;

/// Most pages of other classes, or free ones, that one search for candidates passes.
const PAGES_PASSED: u32 = 8192;

/// So many slots of the own class are as much work as a page that is passed.
const SLOTS_PER_PAGE_PASSED: u32 = 4;

/// Units of the smallest slot: a header and a key of at most 8 bytes.
const SMALLEST: u32 = 5;

/// A size class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    /// Units of a slot.
    pub(crate) slot: u32,
    /// Pages of a span.
    pub(crate) span: u32,
    /// Slots of a span.
    pub(crate) slots: u32,
}

/// The classes of a segment. A pure function of the layout, so all processes agree.
fn classes_of(layout: &Layout) -> Vec<Class> {
    if let Some(uniform) = layout.config.uniform {
        return vec![Class { slot: uniform.bytes / UNIT_BYTES, span: 1, slots: uniform.slots }];
    }
    let page = layout.page_units;
    // In a small segment a long span would be a large part of it.
    let longest = (layout.page_count / 16).clamp(LARGEST_PAGES, SPAN_MAX).min(layout.page_count);
    let mut classes: Vec<Class> = Vec::new();
    for wanted in sizes(longest * page) {
        let spans = wanted.div_ceil(page)..=longest;
        let best = spans
            .map(|span| {
                let slots = span * page / wanted;
                // What a division leaves over is spread over the slots.
                Class { slot: span * page / slots, span, slots }
            })
            // A shorter span is worth a 32nd of waste: a class keeps half a span free on average.
            .min_by_key(|class| (class.slot - wanted).saturating_sub(wanted / 32) * SPAN_MAX + class.span);
        if let Some(class) = best
            && classes.last().is_none_or(|last| last.slot < class.slot)
        {
            classes.push(class);
        }
    }
    classes
}

/// Slot sizes to aim at, in units: all that are possible up to 32, then sixteen to a doubling, at last the largest entry, or what
/// there is room for.
fn sizes(room: u32) -> impl Iterator<Item = u32> {
    let last = room.min(LARGEST_BYTES / UNIT_BYTES);
    std::iter::successors(Some(SMALLEST.min(last)), move |&size| {
        let step = (1 << size.ilog2()) / 16;
        (size < last).then(|| (size + step.max(1)).min(last))
    })
}

/// A page's first record unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record(u64);

impl Record {
    fn new(class: u32, place: u32) -> Record {
        Record(u64::from(class + 1) | u64::from(place) << 8)
    }

    fn class(self) -> Option<u32> {
        (self.0 as u32 & 0xff).checked_sub(1)
    }

    fn place(self) -> u32 {
        (self.0 >> 8) as u32 & 0xff
    }

    fn used(self) -> u32 {
        (self.0 >> 16) as u32 & 0xffff
    }

    fn touched(self) -> u32 {
        (self.0 >> 32) as u32 & 0xffff
    }

    fn first_free(self) -> Option<u32> {
        ((self.0 >> 48) as u32).checked_sub(1)
    }

    fn with(self, used: u32, touched: u32, first_free: Option<u32>) -> Record {
        let low = self.0 & 0xffff;
        let free = first_free.map_or(0, |slot| slot + 1);
        Record(low | u64::from(used) << 16 | u64::from(touched) << 32 | u64::from(free) << 48)
    }
}

/// A page's links in its class's list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Links {
    previous: Option<u32>,
    next: Option<u32>,
}

impl Links {
    fn unpack(unit: u64) -> Links {
        Links { previous: (unit as u32).checked_sub(1), next: ((unit >> 32) as u32).checked_sub(1) }
    }

    fn pack(self) -> u64 {
        let one_more = |page: Option<u32>| u64::from(page.map_or(0, |page| page + 1));
        one_more(self.previous) | one_more(self.next) << 32
    }
}

/// What is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) slots: u64,
    pub(crate) bytes: u64,
    pub(crate) pages: u64,
}

/// Why there is no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSlot {
    /// All are in use.
    Full,
    /// The lock was not to be had.
    Busy,
}

/// How an entry seems to stand in the order of going.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// No longer valid.
    Invalid,
    /// Not asked for since the hand last came by.
    Cold,
    /// Asked for.
    Hot,
    /// Referred to.
    Held,
}

/// What seems to be an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) at: At,
    pub(crate) hash: u32,
    pub(crate) rank: Rank,
    /// The hand that has just passed it.
    pub(crate) hand: u64,
}

/// A span in use, while the slab's lock is held.
#[derive(Clone, Copy, Debug)]
struct Span {
    first: u32,
    number: u32,
    class: Class,
    touched: u32,
}

impl Span {
    /// Appends what seems to be entries that nobody refers to, from the `from`-th slot on, until `found` is full. Answers the slot to
    /// go on with. What is hot and comes before the first that is not loses its second chance.
    fn collect(self, arena: &Arena, from: u32, found: &mut Vec<Candidate>, rank: impl Fn(Entry<'_>) -> Rank) -> u32 {
        let layout = arena.layout();
        let mut slot = from;
        let mut cold_seen = found.iter().any(|candidate| candidate.rank == Rank::Cold);
        while slot < self.touched && found.len() < found.capacity() {
            let at = layout.pages + (self.first * layout.page_units + slot * self.class.slot);
            let entry = Entry::new(arena, at);
            slot += 1;
            // The geometry can't change under the slab's lock, so this is the word of a slot (B3), whatever becomes of it.
            let word = entry.peek();
            if word.linked() && word.references() == 0 {
                let rank = rank(entry);
                cold_seen |= rank == Rank::Cold;
                if rank == Rank::Hot && !cold_seen {
                    entry.cool();
                }
                let hand = u64::from(self.first) << 32 | u64::from(slot);
                found.push(Candidate { at, hash: entry.hash_unlocked(), rank, hand });
            }
        }
        slot
    }
}

/// The slab, as one process sees it: the classes; all the rest is in the segment.
#[derive(Debug)]
pub(crate) struct Slab {
    classes: Vec<Class>,
}

impl Slab {
    pub(crate) fn new(layout: &Layout) -> Slab {
        Slab { classes: classes_of(layout) }
    }

    /// Is there only one size of slot?
    pub(crate) fn is_uniform(&self) -> bool {
        self.classes.len() == 1
    }

    /// The class for an entry of so many bytes.
    pub(crate) fn class_for(&self, bytes: usize) -> Option<u32> {
        let units = bytes.div_ceil(UNIT_BYTES as usize);
        let class = self.classes.partition_point(|class| (class.slot as usize) < units);
        (class < self.classes.len()).then_some(class as u32)
    }

    pub(crate) fn class(&self, class: u32) -> Class {
        self.classes[class as usize]
    }

    /// Step Allocate: a slot of the class. O(1), but for the search for free pages: O(pages / 64).
    pub(crate) fn allocate<P: Probe>(&self, arena: &Arena, probe: &P, class: u32) -> Result<At, NoSlot> {
        probe.before(Step::Allocate);
        let Some(guard) = arena.lock(LockAt::Slab).write() else {
            probe.took(Step::Allocate, Seen::Slot(None));
            return Err(NoSlot::Busy);
        };
        let slot = Locked::new(self, arena, &guard).take(class);
        probe.took(Step::Allocate, Seen::Slot(slot.map(|at| EntryAt(at.0))));
        drop(guard);
        slot.ok_or(NoSlot::Full)
    }

    /// Step Free: gives a slot back. O(1). It can't be left undone, so the lock is waited for as long as it takes.
    pub(crate) fn free<P: Probe>(&self, arena: &Arena, probe: &P, at: At) {
        probe.before(Step::Free);
        let guard = arena.lock(LockAt::Slab).write_patiently();
        Locked::new(self, arena, &guard).give(at);
        probe.took(Step::Free, Seen::Freed(EntryAt(at.0)));
        drop(guard);
    }

    /// What is in use; nothing if the lock is not to be had.
    pub(crate) fn usage(&self, arena: &Arena) -> Usage {
        arena.lock(LockAt::Slab).read().map_or(Usage::default(), |guard| {
            let at = arena.layout().slab;
            let usage = Usage {
                slots: arena.get(at + slab::SLOTS_USED),
                bytes: arena.get(at + slab::BYTES_USED),
                pages: arena.get(at + slab::PAGES_USED),
            };
            drop(guard);
            usage
        })
    }

    /// Chooses the run of pages that is to be emptied for a span of `class`: the next one round the segment.
    pub(crate) fn next_run(&self, arena: &Arena, class: u32) -> Option<std::ops::Range<u32>> {
        let pages = arena.layout().page_count;
        let span = self.class(class).span;
        let guard = arena.lock(LockAt::Slab).write()?;
        let hand = arena.layout().slab + slab::EMPTYING_HAND;
        let hinted = arena.get(hand) as u32;
        let first = if hinted + span <= pages { hinted } else { 0 };
        arena.set(hand, u64::from(first + span));
        drop(guard);
        Some(first..first + span)
    }

    /// Appends what seems to be entries among the slots of the span that `page` belongs to, from the `from`-th slot on, until
    /// `found` is full. Answers the slot to go on with, if there are more. `rank` gets to see the header of each.
    pub(crate) fn entries_of_page(
        &self,
        arena: &Arena,
        page: u32,
        from: u32,
        found: &mut Vec<Candidate>,
        rank: impl Fn(Entry<'_>) -> Rank,
    ) -> Option<u32> {
        let guard = arena.lock(LockAt::Slab).read()?;
        let span = self.span_of(arena, page)?;
        let next = span.collect(arena, from, found, rank);
        drop(guard);
        (next < span.touched).then_some(next)
    }

    /// Appends what seems to be unreferenced entries of the class, from its hand on, until `found` is full, the lap is complete, or too many
    /// pages of others have been passed. Answers whether the hand has come round; `None` if the lock is not to be had.
    pub(crate) fn candidates(
        &self,
        arena: &Arena,
        class: u32,
        found: &mut Vec<Candidate>,
        rank: impl Fn(Entry<'_>) -> Rank,
    ) -> Option<bool> {
        let pages = arena.layout().page_count;
        let guard = arena.lock(LockAt::Slab).read()?;
        let hand = arena.hint(hand_at(arena.layout(), class));
        let (mut page, mut from) = ((hand >> 32) as u32, hand as u32);
        let mut came_round = false;
        let mut passed = 0;
        while found.len() < found.capacity() && passed < PAGES_PASSED.min(pages) {
            if page >= pages {
                (page, from, came_round) = (0, 0, true);
            }
            let (first, length) = match self.span_of(arena, page) {
                Some(span) => {
                    if span.number == class {
                        from = span.collect(arena, from, found, &rank);
                        passed += from.div_ceil(SLOTS_PER_PAGE_PASSED);
                        if from < span.touched {
                            // Full, in the middle of a span.
                            page = span.first;
                            break;
                        }
                    }
                    (span.first, span.class.span)
                }
                None => (page, 1),
            };
            passed += first + length - page;
            (page, from) = (first + length, 0);
        }
        drop(guard);
        self.set_hand(arena, class, u64::from(page) << 32 | u64::from(from));
        Some(came_round)
    }

    /// Where the class's next eviction is to begin. Two at once may overwrite each other's: it is a hint.
    pub(crate) fn set_hand(&self, arena: &Arena, class: u32, hand: u64) {
        arena.set_hint(hand_at(arena.layout(), class), hand);
    }

    /// The slots of a uniform table that seem to hold entries, with their hashes. Needs no lock: the geometry never changes.
    pub(crate) fn uniform_entries<'a>(&'a self, arena: &'a Arena) -> impl Iterator<Item = Entry<'a>> {
        let class = self.class(0);
        let entries = (0..class.slots).map(move |slot| Entry::new(arena, arena.layout().pages + slot * class.slot));
        entries.filter(|entry| entry.peek().linked())
    }

    /// The span that a page belongs to. Under the slab's lock.
    fn span_of(&self, arena: &Arena, page: u32) -> Option<Span> {
        let record = Record(arena.get(record_at(arena.layout(), page)));
        let number = record.class()?;
        let first = page - record.place();
        let touched = Record(arena.get(record_at(arena.layout(), first))).touched();
        Some(Span { first, number, class: self.class(number), touched })
    }

    /// Every slot that was ever handed out of a span in use, and how many free slots the whole table has, while everybody is
    /// parked. (Only the untouched and the freed slots of a uniform table can be told.)
    pub(crate) fn peek(&self, arena: &Arena) -> (Vec<At>, u32) {
        let layout = arena.layout();
        let mut slots = Vec::new();
        let mut used = 0;
        for page in 0..layout.page_count {
            let record = Record(arena.peek(record_at(layout, page)));
            let Some(class) = record.class().filter(|_| record.place() == 0) else { continue };
            let class = self.class(class);
            used += record.used();
            slots.extend(
                (0..record.touched()).map(|slot| layout.pages + (page * layout.page_units + slot * class.slot)),
            );
        }
        let all = if self.is_uniform() { self.class(0).slots } else { used };
        (slots, all - used)
    }
}

fn hand_at(layout: &Layout, class: u32) -> At {
    layout.classes + (class * CLASS_RECORD + 1)
}

fn record_at(layout: &Layout, page: u32) -> At {
    layout.page_table + page * PAGE_RECORD
}

/// The slab while its lock is held exclusively.
struct Locked<'a> {
    slab: &'a Slab,
    arena: &'a Arena,
    layout: &'a Layout,
}

impl<'a> Locked<'a> {
    fn new(slab: &'a Slab, arena: &'a Arena, _held: &WriteGuard<'_>) -> Locked<'a> {
        Locked { slab, arena, layout: arena.layout() }
    }

    fn record(&self, page: u32) -> Record {
        Record(self.arena.get(record_at(self.layout, page)))
    }

    fn set_record(&self, page: u32, record: Record) {
        self.arena.set(record_at(self.layout, page), record.0);
    }

    fn links(&self, page: u32) -> Links {
        Links::unpack(self.arena.get(record_at(self.layout, page) + 1))
    }

    fn set_links(&self, page: u32, links: Links) {
        self.arena.set(record_at(self.layout, page) + 1, links.pack());
    }

    fn first_of(&self, class: u32) -> Option<u32> {
        (self.arena.get(self.layout.classes + class * CLASS_RECORD) as u32).checked_sub(1)
    }

    fn set_first_of(&self, class: u32, page: Option<u32>) {
        self.arena.set(self.layout.classes + class * CLASS_RECORD, page.map_or(0, |page| u64::from(page) + 1));
    }

    fn slot_at(&self, page: u32, slot: u32, class: Class) -> At {
        self.layout.pages + (page * self.layout.page_units + slot * class.slot)
    }

    fn account(&self, unit: u32, more: i64) {
        let at = self.layout.slab + unit;
        self.arena.set(at, self.arena.get(at).wrapping_add_signed(more));
    }

    fn take(&self, number: u32) -> Option<At> {
        let class = self.slab.class(number);
        let page = match self.first_of(number) {
            Some(page) => page,
            None => {
                let page = self.take_span(class.span)?;
                for place in 0..class.span {
                    self.set_record(page + place, Record::new(number, place));
                }
                self.push(number, page);
                page
            }
        };
        let record = self.record(page);
        debug_assert!(record.used() < class.slots, "B2: a full span is in the list");
        let (slot, record) = match record.first_free() {
            Some(slot) => {
                // B3.
                let next = (self.arena.get(self.slot_at(page, slot, class) + TOKEN) as u32).checked_sub(1);
                (slot, record.with(record.used() + 1, record.touched(), next))
            }
            None => {
                let slot = record.touched();
                if !self.slab.is_uniform() {
                    // B3: under another class this may have been in the middle of a row.
                    Entry::new(self.arena, self.slot_at(page, slot, class)).clear();
                }
                (slot, record.with(record.used() + 1, slot + 1, None))
            }
        };
        self.set_record(page, record);
        if record.used() == class.slots {
            self.remove(number, page);
        }
        self.account(slab::SLOTS_USED, 1);
        self.account(slab::BYTES_USED, i64::from(class.slot * UNIT_BYTES));
        Some(self.slot_at(page, slot, class))
    }

    fn give(&self, at: At) {
        let inner = (at.0 - self.layout.pages.0) / self.layout.page_units;
        let record = self.record(inner);
        let Some(number) = record.class() else {
            debug_assert!(false, "B1: {at:?} is freed, but its page is not in use");
            return;
        };
        let class = self.slab.class(number);
        let page = inner - record.place();
        let record = self.record(page);
        debug_assert!(record.used() > 0, "B2: a slot of an unused span is freed");
        let slot = (at.0 - self.slot_at(page, 0, class).0) / class.slot;
        debug_assert_eq!(self.slot_at(page, slot, class), at, "what is freed is not a slot");
        self.arena.set(at + TOKEN, record.first_free().map_or(0, |slot| u64::from(slot) + 1));
        let was_full = record.used() == class.slots;
        let record = record.with(record.used() - 1, record.touched(), Some(slot));
        self.set_record(page, record);
        if was_full {
            self.push(number, page);
        }
        if record.used() == 0 {
            self.remove(number, page);
            self.give_span(page, class.span);
        }
        self.account(slab::SLOTS_USED, -1);
        self.account(slab::BYTES_USED, -i64::from(class.slot * UNIT_BYTES));
    }

    /// Puts a span in front of its class's list.
    fn push(&self, class: u32, page: u32) {
        let next = self.first_of(class);
        self.set_links(page, Links { previous: None, next });
        if let Some(next) = next {
            self.set_links(next, Links { previous: Some(page), ..self.links(next) });
        }
        self.set_first_of(class, Some(page));
    }

    /// Takes a span out of its class's list.
    fn remove(&self, class: u32, page: u32) {
        let Links { previous, next } = self.links(page);
        match previous {
            Some(previous) => self.set_links(previous, Links { next, ..self.links(previous) }),
            None => self.set_first_of(class, next),
        }
        if let Some(next) = next {
            self.set_links(next, Links { previous, ..self.links(next) });
        }
        self.set_links(page, Links::default());
    }

    /// A run of `span` free pages, marked as used.
    fn take_span(&self, span: u32) -> Option<u32> {
        let count = self.layout.page_count;
        let used = self.arena.get(self.layout.slab + slab::PAGES_USED) as u32;
        if count - used < span {
            return None;
        }
        let hint = self.arena.get(self.layout.slab + slab::PAGE_HINT) as u32;
        let first = self.find_run(hint, count, span).or_else(|| self.find_run(0, (hint + span).min(count), span))?;
        for page in first..first + span {
            self.flip(page);
        }
        self.arena.set(self.layout.slab + slab::PAGE_HINT, u64::from(first + span));
        self.account(slab::PAGES_USED, i64::from(span));
        Some(first)
    }

    /// The first run of `span` free pages within `from..to`.
    fn find_run(&self, from: u32, to: u32, span: u32) -> Option<u32> {
        let mut page = from;
        let mut run = 0;
        while page < to {
            let bits = self.arena.get(self.layout.bitmap + page / 64);
            if bits == u64::MAX {
                run = 0;
                page = (page / 64 + 1) * 64;
                continue;
            }
            run = if bits >> (page % 64) & 1 == 0 { run + 1 } else { 0 };
            page += 1;
            if run == span {
                return Some(page - span);
            }
        }
        None
    }

    fn give_span(&self, first: u32, span: u32) {
        for page in first..first + span {
            self.flip(page);
            self.set_record(page, Record(0));
        }
        self.arena.set(self.layout.slab + slab::PAGE_HINT, u64::from(first));
        self.account(slab::PAGES_USED, -i64::from(span));
    }

    fn flip(&self, page: u32) {
        let at = self.layout.bitmap + page / 64;
        self.arena.set(at, self.arena.get(at) ^ 1 << (page % 64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::segment::{Config, PAGE, Uniform};

    fn slab(bytes: u64) -> (Arena, Slab) {
        let layout = Layout::new(&Config { bytes, ..Config::default() }).unwrap();
        let slab = Slab::new(&layout);
        (Arena::anonymous(layout).unwrap(), slab)
    }

    /// Bytes that a slot has too many, and its share of what its span leaves over.
    fn waste(class: Class, bytes: u32) -> f64 {
        let per_slot = f64::from(class.span * PAGE * UNIT_BYTES) / f64::from(class.slots);
        per_slot - f64::from(bytes)
    }

    #[test]
    fn classes_rise_and_end_with_the_largest_entry() {
        for bytes in [2 << 20, 8 << 20, 64 << 20, 1 << 30] {
            let (_, slab) = slab(bytes);
            assert!(slab.classes.is_sorted_by(|a, b| a.slot < b.slot), "{:?}", slab.classes);
            assert!(slab.classes.len() <= crate::shared::segment::CLASSES_MAX as usize, "{}", slab.classes.len());
            assert_eq!(slab.classes.last().unwrap().slot * 8, LARGEST_BYTES, "{:?}", slab.classes);
            assert_eq!(slab.class_for(LARGEST_BYTES as usize), Some(slab.classes.len() as u32 - 1));
            assert_eq!(slab.class_for(LARGEST_BYTES as usize + 1), None);
            for class in &slab.classes {
                assert!(class.slot * class.slots <= class.span * PAGE && class.slots <= 0xfffe, "{class:?}");
            }
        }
    }

    /// Sizes spread evenly over the logarithm, as those of catalog rows roughly are.
    #[test]
    fn a_slot_wastes_little() {
        let (_, slab) = slab(64 << 20);
        let (mut wasted, mut wanted) = (0.0, 0.0);
        let mut bytes = 100.0_f64;
        while bytes < 8192.0 {
            let class = slab.class(slab.class_for(bytes as usize).unwrap());
            wasted += waste(class, bytes as u32);
            wanted += bytes;
            assert!(waste(class, bytes as u32) <= bytes / 12.0 + 8.0, "{class:?} for {bytes}");
            bytes *= 1.001;
        }
        let share = wasted / wanted;
        assert!(share <= 0.03, "{share}");
    }

    #[test]
    fn slots_do_not_overlap_and_come_back() {
        let (arena, slab) = slab(4 << 20);
        let mut all: Vec<(u32, u32)> = Vec::new();
        for round in 0..3 {
            all.clear();
            for number in (0..slab.classes.len() as u32).cycle() {
                match slab.allocate(&arena, &(), number) {
                    Ok(at) => all.push((at.0, slab.class(number).slot)),
                    Err(why) => {
                        assert_eq!(why, NoSlot::Full);
                        break;
                    }
                }
            }
            all.sort_unstable();
            assert!(all.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "slots overlap");
            let last = all.last().unwrap();
            assert!(all[0].0 >= arena.layout().pages.0 && last.0 + last.1 <= arena.layout().units);
            let usage = slab.usage(&arena);
            assert_eq!(usage.slots, all.len() as u64, "round {round}");
            assert_eq!(usage.bytes, all.iter().map(|slot| u64::from(slot.1) * 8).sum::<u64>());
            for &(at, _) in all.iter().rev() {
                slab.free(&arena, &(), At(at));
            }
            assert_eq!(slab.usage(&arena), Usage::default(), "round {round}: every page went back");
        }
    }

    /// The memory of one size serves another as soon as it is free: no calcification.
    #[test]
    fn a_page_whose_slots_are_free_serves_another_class() {
        let (arena, slab) = slab(2 << 20);
        let small = slab.class_for(64).unwrap();
        let large = slab.class_for(LARGEST_BYTES as usize).unwrap();
        let fill = |class| std::iter::from_fn(|| slab.allocate(&arena, &(), class).ok()).collect::<Vec<_>>();
        let first = fill(small);
        assert_eq!(slab.allocate(&arena, &(), large), Err(NoSlot::Full));
        first.into_iter().for_each(|at| slab.free(&arena, &(), at));
        let second = fill(large);
        assert_eq!(second.len() as u32, arena.layout().page_count / slab.class(large).span);
        second.into_iter().for_each(|at| slab.free(&arena, &(), at));
        assert!(slab.allocate(&arena, &(), small).is_ok());
    }

    #[test]
    fn a_uniform_table_has_just_so_many_slots() {
        let config = Config { uniform: Some(Uniform { slots: 3, bytes: 64 }), ..Config::tiny() };
        let layout = Layout::new(&config).unwrap();
        let slab = Slab::new(&layout);
        let arena = Arena::anonymous(layout).unwrap();
        let slots: Vec<At> = (0..3).map(|_| slab.allocate(&arena, &(), 0).unwrap()).collect();
        assert_eq!(slab.allocate(&arena, &(), 0), Err(NoSlot::Full));
        slab.free(&arena, &(), slots[1]);
        assert_eq!(slab.peek(&arena).1, 1);
        assert_eq!(slab.allocate(&arena, &(), 0), Ok(slots[1]));
        assert_eq!(slab.class_for(64), Some(0));
        assert_eq!(slab.class_for(65), None);
    }

    /// Random traffic against a plain list of what is in use.
    #[test]
    fn traffic_leaves_no_slot_twice_in_use_and_none_lost() {
        let (arena, slab) = slab(2 << 20);
        let mut used: Vec<(At, u32)> = Vec::new();
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..200_000 {
            if random(100) < 52 || used.is_empty() {
                let number = random(slab.classes.len() as u64) as u32;
                if let Ok(at) = slab.allocate(&arena, &(), number) {
                    // A mark in the slot finds an overlap later.
                    arena.set(at + 2, u64::from(at.0));
                    used.push((at, number));
                    continue;
                }
            }
            let (at, _) = used.swap_remove(random(used.len() as u64) as usize);
            assert_eq!(arena.get(at + 2), u64::from(at.0), "two owners");
            slab.free(&arena, &(), at);
        }
        assert_eq!(slab.usage(&arena).slots, used.len() as u64);
        for (at, _) in used {
            slab.free(&arena, &(), at);
        }
        assert_eq!(slab.usage(&arena), Usage::default());
    }
}
