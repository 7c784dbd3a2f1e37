//! The table: from a key to its entry.
//!
//! Partitions, each with a lock and its share of the buckets; chains of entries hang from the buckets. A key has at most
//! one linked entry.
//!
//! **What the partition's lock guards**: the chains, LINKED, and taking references; no more. Coherence rests on stamps
//! alone. It is held shared to look for an entry and take a reference, exclusively to link and to unlink. It is a leaf: slots
//! are taken from the slab before it and given back after it, stamps are checked after it, and a key is compared under it
//! only because it is bytes.
//!
//! **What happens in what order** when an entry is replaced or evicted: unlinked first, under the lock; freed afterwards, by
//! whoever finds that nobody refers to it (E3). A referenced entry is never freed, moved or changed.
//!
//! **The cap.** When there is no slot: something invalid goes first, then what nobody refers to and nobody has asked for since
//! the hand last came by. Work is bounded; if nothing can go, the load stays private.

use super::arena::Arena;
use super::entry::{self, Chain, Entry, TOKEN_MAX};
use super::segment::{At, LockAt, ROW_BYTES_MAX, counter, partition};
use super::slab::{Candidate, NoSlot, Rank, Slab, Usage};
use super::stamp::{self, Verdict};
use super::{Publication, Reference};
use crate::key::{KEY_BYTES_MAX, Key, Packed};
use crate::probe::{EntryAt, Probe, Rule, Seen, Step};
use crate::stats::Stats;
use crate::sync::MODELLED;

/// Most times that a publisher asks the slab. Others may snatch what it has freed. The model asks once more after an
/// eviction; so do the builds that are held to it step by step.
const ATTEMPTS: u32 = if MODELLED { 2 } else { 4 };
/// How many entries an eviction chooses from: it looks so far ahead for an invalid one.
const CANDIDATES: usize = 16;
/// Most laps of candidates, before a run of pages is emptied.
const ROUNDS: u32 = 8;
/// How many entries are collected at a time when pages are emptied.
const BATCH: usize = 128;

/// The table of a segment.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) arena: Arena,
    slab: Slab,
    /// Partitions less one.
    partition_mask: u32,
    /// How far the hash is shifted for the bucket.
    partition_bits: u32,
    /// Buckets of a partition less one.
    bucket_mask: u32,
}

/// May an entry be evicted? Under the partition's exclusive lock, where nobody can take a reference (E1).
fn may_go<P: Probe>(probe: &P, entry: Entry<'_>) -> bool {
    entry.unreferenced() || !probe.keeps(Rule::UnlinkBeforeFree)
}

/// What a publication found under the lock.
enum Linked {
    /// Ours is linked; the replaced entry is to be freed.
    New { free: Option<At> },
    /// An entry with a token at least as new stays, and has our reference.
    Kept { entry: At, token: u64 },
}

impl Table {
    pub(crate) fn new(arena: Arena) -> Table {
        let layout = arena.layout();
        Table {
            slab: Slab::new(layout),
            partition_mask: layout.config.partitions - 1,
            partition_bits: layout.config.partitions.trailing_zeros(),
            bucket_mask: layout.buckets - 1,
            arena,
        }
    }

    #[inline]
    fn partition_of(&self, hash: u32) -> u32 {
        hash & self.partition_mask
    }

    #[inline]
    fn bucket_of(&self, hash: u32) -> u32 {
        hash >> self.partition_bits & self.bucket_mask
    }

    /// The unit of a bucket's head, and how far it is shifted.
    #[inline]
    fn head_at(&self, partition: u32, bucket: u32) -> (At, u32) {
        let layout = self.arena.layout();
        (layout.heads + (partition * layout.buckets.div_ceil(2) + bucket / 2), bucket % 2 * 32)
    }

    #[inline]
    fn head(&self, partition: u32, bucket: u32) -> Option<Entry<'_>> {
        let (at, shift) = self.head_at(partition, bucket);
        let head = (self.arena.get(at) >> shift) as u32;
        (head != 0).then(|| self.entry(At(head)))
    }

    fn set_head(&self, partition: u32, bucket: u32, head: Option<At>) {
        let (at, shift) = self.head_at(partition, bucket);
        let others = self.arena.get(at) & !(u64::from(u32::MAX) << shift);
        self.arena.set(at, others | u64::from(head.map_or(0, |at| at.0)) << shift);
    }

    #[inline(always)]
    pub(crate) fn entry(&self, at: At) -> Entry<'_> {
        Entry::new(&self.arena, at)
    }

    #[inline]
    fn count(&self, hash: u32, counter: u32) {
        let partition = self.partition_of(hash);
        self.arena.count(self.arena.layout().partition(partition) + counter, 1);
    }

    /// The linked entry of a key. Under the partition's lock. O(chain).
    #[inline]
    fn search(&self, key: Packed<'_>) -> Option<Entry<'_>> {
        let mut at = self.head(self.partition_of(key.hash), self.bucket_of(key.hash));
        // A damaged segment may have a loop: no chain is longer than the segment.
        for _ in 0..self.arena.layout().units {
            let entry = at?;
            let chain = entry.chain();
            if chain.hash() == key.hash && entry.bears(key) {
                return Some(entry);
            }
            at = chain.next().map(|next| self.entry(next));
        }
        None
    }

    /// Puts an entry in front of its chain. Under the partition's exclusive lock.
    fn link(&self, entry: Entry<'_>, hash: u32) {
        let (partition, bucket) = (self.partition_of(hash), self.bucket_of(hash));
        entry.set_chain(Chain::new(hash, self.head(partition, bucket).map(|head| head.at)));
        entry.link();
        self.set_head(partition, bucket, Some(entry.at));
    }

    /// Takes an entry out of its chain, if it is there. Under the partition's exclusive lock. O(chain).
    fn cut(&self, at: At, hash: u32) -> bool {
        let (partition, bucket) = (self.partition_of(hash), self.bucket_of(hash));
        let mut previous: Option<Entry<'_>> = None;
        let mut current = self.head(partition, bucket);
        for _ in 0..self.arena.layout().units {
            let Some(entry) = current else { return false };
            let next = entry.chain().next();
            if entry.at == at {
                match previous {
                    Some(previous) => previous.set_chain(Chain::new(previous.chain().hash(), next)),
                    None => self.set_head(partition, bucket, next),
                }
                return true;
            }
            previous = Some(entry);
            current = next.map(|next| self.entry(next));
        }
        false
    }

    /// Steps Find, Check*, and Unlink and Free for an invalid entry.
    pub(crate) fn find<P: Probe>(&self, probe: &P, key: Packed<'_>) -> Option<Reference> {
        probe.before(Step::Find);
        let Some(guard) = self.arena.lock(LockAt::Partition(self.partition_of(key.hash))).read() else {
            probe.took(Step::Find, Seen::Found(None));
            self.count(key.hash, partition::LOCK_TIMEOUTS);
            return None;
        };
        let found = self.search(key);
        let token = found.map_or(0, |entry| {
            if probe.keeps(Rule::TakeReference) {
                entry.refer();
            }
            if !MODELLED {
                // A heuristic that the simulators need not explore.
                entry.warm();
            }
            entry.token()
        });
        probe.took(Step::Find, Seen::Found(found.map(|entry| EntryAt(entry.at.0))));
        drop(guard);
        let Some(entry) = found else {
            self.count(key.hash, partition::MISSES);
            return None;
        };
        let Verdict { good, mark } = stamp::check(&self.arena, probe, key, token);
        if good {
            self.count(key.hash, partition::HITS);
            return Some(Reference::new(&self.arena, entry.at, mark));
        }
        self.count(key.hash, partition::INVALID_MET);
        self.unlink(probe, entry, key.hash);
        None
    }

    /// Step Unlink: takes an entry that we refer to out of the table, and drops our reference; Free, if it was the last.
    fn unlink<P: Probe>(&self, probe: &P, entry: Entry<'_>, hash: u32) {
        probe.before(Step::Unlink);
        let Some(guard) = self.arena.lock(LockAt::Partition(self.partition_of(hash))).write() else {
            self.count(hash, partition::LOCK_TIMEOUTS);
            return self.release(probe, entry.at);
        };
        let free = if entry.linked() {
            let cut = self.cut(entry.at, hash);
            debug_assert!(cut, "E2: {:?} is linked, but in no chain", entry.at);
            entry.unlink_and_drop()
        } else {
            // Somebody else was faster.
            entry.drop_reference()
        };
        probe.took(Step::Unlink, Seen::Unlinked { entry: EntryAt(entry.at.0), free });
        drop(guard);
        if free {
            self.dispose(probe, entry.at);
        }
    }

    /// Steps Free, after Release (and what it entails) for each member of a list: of an entry that was linked, and that nobody finds
    /// or refers to any more (E5). O(members).
    fn dispose<P: Probe>(&self, probe: &P, at: At) {
        if probe.keeps(Rule::PinMembers) && probe.keeps(Rule::ReleaseMembers) {
            for place in self.entry(at).places_owned() {
                self.release(probe, entry::at(*place));
            }
        }
        self.slab.free(&self.arena, probe, at);
    }

    /// Step Release, and Free if it was the last reference of an unlinked entry.
    pub(crate) fn release<P: Probe>(&self, probe: &P, at: At) {
        probe.before(Step::Release);
        let free = self.entry(at).drop_reference();
        probe.took(Step::Release, Seen::Released { entry: EntryAt(at.0), free });
        if free {
            self.dispose(probe, at);
        }
    }

    /// Steps Check*, Allocate, (Evict, Free, Allocate)*, Publish, and Free or Check* for what was there.
    pub(crate) fn publish<P: Probe>(&self, probe: &P, key: Packed<'_>, row: Option<&[u8]>, token: u64) -> Publication {
        if token == 0 || token > TOKEN_MAX {
            return Publication::Private { useless: false };
        }
        let row_bytes = row.map_or(0, <[u8]>::len);
        let class = if key.bytes.len() <= KEY_BYTES_MAX && row_bytes <= ROW_BYTES_MAX {
            self.slab.class_for(entry::bytes_needed(key.bytes.len(), row_bytes))
        } else {
            None
        };
        let Some(class) = class else {
            self.arena.count(self.arena.layout().counters + counter::TOO_LARGE, 1);
            return Publication::Private { useless: false };
        };
        if !stamp::check(&self.arena, probe, key, token).good {
            self.arena.count(self.arena.layout().counters + counter::USELESS, 1);
            return Publication::Private { useless: true };
        }
        let Some(at) = self.allocate(probe, class) else {
            self.arena.count(self.arena.layout().counters + counter::FULL, 1);
            return Publication::Private { useless: false };
        };
        let entry = self.entry(at);
        entry.fill(key, row, token);
        match self.link_or_adopt(probe, key, entry, token) {
            None => {
                self.count(key.hash, partition::LOCK_TIMEOUTS);
                self.slab.free(&self.arena, probe, at);
                Publication::Private { useless: false }
            }
            Some(Linked::New { free }) => {
                self.count(key.hash, partition::PUBLISHED);
                if let Some(replaced) = free {
                    self.dispose(probe, replaced);
                }
                Publication::Published(Reference::new(&self.arena, at, 0))
            }
            Some(Linked::Kept { entry: existing, token }) => {
                self.slab.free(&self.arena, probe, at);
                let Verdict { good, mark } = stamp::check(&self.arena, probe, key, token);
                if good {
                    self.count(key.hash, partition::EXISTING);
                    return Publication::Existing(Reference::new(&self.arena, existing, mark));
                }
                self.release(probe, existing);
                Publication::Private { useless: false }
            }
        }
    }

    /// Publishes the rows of a partial key, each for itself, and then the list that refers to them.
    pub(crate) fn publish_list<'r, P: Probe>(
        &self,
        probe: &P,
        key: Packed<'_>,
        rows: impl Iterator<Item = (Key<'r>, &'r [u8])>,
        token: u64,
    ) -> Publication {
        let mut members: Vec<Reference> = Vec::new();
        let mut verdict = None;
        for (member, row) in rows {
            match self.publish(probe, Packed::new(&member), Some(row), token) {
                // Should it be another row, then the cache has changed since: the list's stamp, checked below, says so.
                Publication::Published(reference) | Publication::Existing(reference) => members.push(reference),
                private @ Publication::Private { .. } => {
                    verdict = Some(private);
                    break;
                }
            }
        }
        let pinned = probe.keeps(Rule::PinMembers);
        if !pinned {
            for member in &members {
                self.entry(At(member.entry)).drop_reference();
            }
        }
        let publication = verdict.unwrap_or_else(|| {
            let places: Vec<u8> = members.iter().flat_map(|member| entry::place(At(member.entry))).collect();
            self.publish(probe, key, Some(&places), token)
        });
        // The new list has taken the references over (E5).
        if pinned && !matches!(publication, Publication::Published(_)) {
            for member in members {
                self.release(probe, At(member.entry));
            }
        }
        publication
    }

    /// Step Publish: `None` if the lock was not to be had.
    fn link_or_adopt<P: Probe>(&self, probe: &P, key: Packed<'_>, new: Entry<'_>, token: u64) -> Option<Linked> {
        probe.before(Step::Publish);
        let Some(guard) = self.arena.lock(LockAt::Partition(self.partition_of(key.hash))).write() else {
            probe.took(Step::Publish, Seen::Fail);
            return None;
        };
        let existing = self.search(key);
        if let Some(old) = existing
            && old.token() >= token
        {
            let token = old.token();
            old.refer();
            let seen = Seen::Published { entry: EntryAt(old.at.0), replaced: None, kept_existing: true };
            probe.took(Step::Publish, seen);
            drop(guard);
            return Some(Linked::Kept { entry: old.at, token });
        }
        if let Some(old) = existing {
            let cut = self.cut(old.at, key.hash);
            debug_assert!(cut, "what was found is in the chain");
            self.count(key.hash, partition::REPLACED);
        }
        self.link(new, key.hash);
        // Last of all: references to it are dropped without the lock, and from now on the last of them frees the slot.
        let free = existing.filter(|old| old.unlink()).map(|old| old.at);
        let replaced = existing.map(|old| EntryAt(old.at.0));
        probe.took(Step::Publish, Seen::Published { entry: EntryAt(new.at.0), replaced, kept_existing: false });
        drop(guard);
        Some(Linked::New { free })
    }

    /// Steps Allocate, (Evict, Free, Allocate)*. Bounded work; `None`: nothing can go.
    fn allocate<P: Probe>(&self, probe: &P, class: u32) -> Option<At> {
        for left in (0..ATTEMPTS).rev() {
            match self.slab.allocate(&self.arena, probe, class) {
                Ok(at) => return Some(at),
                Err(NoSlot::Busy) => return None,
                Err(NoSlot::Full) => {}
            }
            // After the last attempt nobody would take what was freed: an entry would go for nothing.
            if left == 0 || !self.make_room(probe, class) {
                return None;
            }
        }
        None
    }

    /// Frees something for an allocation of `class`. `false`: nothing can go, as far as bounded work tells.
    fn make_room<P: Probe>(&self, probe: &P, class: u32) -> bool {
        if self.slab.is_uniform() {
            return self.evict_uniform(probe);
        }
        let mut candidates = Vec::with_capacity(CANDIDATES);
        for _ in 0..ROUNDS {
            candidates.clear();
            let rank = |entry: Entry<'_>| self.rank(entry);
            let Some(came_round) = self.slab.candidates(&self.arena, class, &mut candidates, rank) else {
                return false;
            };
            // A class that has gone through all it has gets a span of another's: so memory follows the demand.
            if came_round && self.empty_pages(probe, class) {
                return true;
            }
            if self.evict_one_of(probe, class, &candidates) {
                return true;
            }
            if came_round {
                break;
            }
        }
        self.empty_pages(probe, class)
    }

    /// How an entry seems to stand in the order of going. Hints all: it may be in anybody's hands.
    fn rank(&self, entry: Entry<'_>) -> Rank {
        let word = entry.peek();
        if word.references() > 0 {
            Rank::Held
        } else if self.looks_invalid(entry) {
            Rank::Invalid
        } else if word.hot() {
            Rank::Hot
        } else {
            Rank::Cold
        }
    }

    fn looks_invalid(&self, entry: Entry<'_>) -> bool {
        let (key, token) = entry.stamped();
        stamp::looks_invalid(&self.arena, key, token)
    }

    /// Steps Evict and Free, until one of the candidates could go: the first invalid one; or else the first that nobody has asked
    /// for since the hand came by, and those before it lose their second chance; or else the first.
    fn evict_one_of<P: Probe>(&self, probe: &P, class: u32, candidates: &[Candidate]) -> bool {
        if let Some(invalid) = candidates.iter().find(|candidate| candidate.rank == Rank::Invalid).copied()
            && self.evict_entry(probe, invalid)
        {
            // The hand stays before those that were passed over.
            if let Some(first) = candidates.first() {
                self.slab.set_hand(&self.arena, class, first.hand - 1);
            }
            return true;
        }
        // The search has taken the second chance of the hot ones before the first cold one.
        let of = |rank: Rank| candidates.iter().filter(move |candidate| candidate.rank == rank);
        let Some(gone) = of(Rank::Cold).chain(of(Rank::Hot)).find(|candidate| self.evict_entry(probe, **candidate))
        else {
            return false;
        };
        self.slab.set_hand(&self.arena, class, gone.hand);
        true
    }

    /// Evicts all entries of the next run of pages, so that a class can have it. Bounded by the slots of a span.
    fn empty_pages<P: Probe>(&self, probe: &P, class: u32) -> bool {
        let Some(run) = self.slab.next_run(&self.arena, class) else { return false };
        let mut freed = false;
        let mut batch = Vec::with_capacity(BATCH);
        for page in run {
            let mut from = Some(0);
            while let Some(slot) = from {
                batch.clear();
                from = self.slab.entries_of_page(&self.arena, page, slot, &mut batch, |_| Rank::Cold);
                for candidate in &batch {
                    freed |= self.evict_entry(probe, *candidate);
                }
            }
        }
        if freed {
            self.arena.count(self.arena.layout().counters + counter::PAGES_EMPTIED, 1);
        }
        freed
    }

    /// Steps Evict and Free: one entry of the next partitions of a uniform table, or of the only one, chosen under the lock.
    fn evict_uniform<P: Probe>(&self, probe: &P) -> bool {
        let hand = self.arena.layout().counters + counter::PARTITION_HAND;
        (0..=self.partition_mask).any(|_| {
            let number = self.arena.counter(hand) as u32 & self.partition_mask;
            self.arena.count(hand, 1);
            self.evict_if(probe, number, || {
                // Twice over the slots rather than once into a list: nothing is allocated under a lock.
                let here = || {
                    let all = self.slab.uniform_entries(&self.arena).map(|entry| (entry, entry.hash_unlocked()));
                    all.filter(|(_, hash)| self.partition_of(*hash) == number)
                };
                let victim =
                    here().filter(|(entry, _)| may_go(probe, *entry)).min_by_key(|(entry, _)| self.rank(*entry));
                if victim.is_none_or(|(entry, _)| entry.peek().hot()) {
                    here().for_each(|(entry, _)| entry.cool());
                }
                victim
            })
        })
    }

    /// Steps Evict and Free: unlinks a candidate, if it is still an entry and nobody refers to it.
    fn evict_entry<P: Probe>(&self, probe: &P, candidate: Candidate) -> bool {
        let Candidate { at, hash, .. } = candidate;
        self.evict_if(probe, self.partition_of(hash), || {
            let mut current = self.head(self.partition_of(hash), self.bucket_of(hash));
            for _ in 0..self.arena.layout().units {
                let entry = current?;
                if entry.at == at {
                    return may_go(probe, entry).then_some((entry, hash));
                }
                current = entry.chain().next().map(|next| self.entry(next));
            }
            None
        })
    }

    /// Steps Evict and Free: unlinks the entry of a key, if nobody refers to it.
    pub(crate) fn evict<P: Probe>(&self, probe: &P, key: Packed<'_>) -> bool {
        self.evict_if(probe, self.partition_of(key.hash), || {
            self.search(key).filter(|entry| may_go(probe, *entry)).map(|entry| (entry, key.hash))
        })
    }

    /// Steps Evict and Free: unlinks what `choose` chooses in a partition, under its exclusive lock, if it hangs in the chain of the
    /// hash that comes with it.
    fn evict_if<'a, P: Probe>(
        &'a self,
        probe: &P,
        number: u32,
        choose: impl FnOnce() -> Option<(Entry<'a>, u32)>,
    ) -> bool {
        probe.before(Step::Evict);
        let Some(guard) = self.arena.lock(LockAt::Partition(number)).write() else {
            probe.took(Step::Evict, Seen::Evicted(None));
            self.count(number, partition::LOCK_TIMEOUTS);
            return false;
        };
        let victim = choose().filter(|(entry, hash)| self.cut(entry.at, *hash)).map(|(entry, _)| entry);
        if let Some(entry) = victim {
            entry.unlink();
            self.count(number, partition::EVICTED);
        }
        probe.took(Step::Evict, Seen::Evicted(victim.map(|entry| EntryAt(entry.at.0))));
        drop(guard);
        let Some(entry) = victim else { return false };
        self.dispose(probe, entry.at);
        true
    }

    /// The counters, added up.
    pub(crate) fn stats(&self) -> Stats {
        let layout = self.arena.layout();
        let sum = |unit: u32| -> u64 {
            (0..layout.config.partitions).map(|number| self.arena.counter(layout.partition(number) + unit)).sum()
        };
        let other = |unit: u32| self.arena.counter(layout.counters + unit);
        let Usage { slots, bytes, pages } = self.slab.usage(&self.arena);
        let (hits, misses, invalid_met) = (sum(partition::HITS), sum(partition::MISSES), sum(partition::INVALID_MET));
        let page_bytes = u64::from(layout.page_units) * 8;
        Stats {
            finds: hits + misses + invalid_met,
            hits,
            misses,
            invalid_met,
            published: sum(partition::PUBLISHED),
            existing: sum(partition::EXISTING),
            replaced: sum(partition::REPLACED),
            useless: other(counter::USELESS),
            too_large: other(counter::TOO_LARGE),
            full: other(counter::FULL),
            lock_timeouts: sum(partition::LOCK_TIMEOUTS),
            evicted: sum(partition::EVICTED),
            pages_emptied: other(counter::PAGES_EMPTIED),
            entries: slots,
            bytes_used: bytes,
            bytes_free: u64::from(layout.page_count) * page_bytes - bytes,
            bytes_in_pages: pages * page_bytes,
            bytes_total: layout.bytes(),
        }
    }

    /// All entries, and the number of free slots, while everybody is parked.
    pub(crate) fn peek(&self) -> (Vec<Entry<'_>>, u32) {
        let (slots, free) = self.slab.peek(&self.arena);
        let entries = slots.into_iter().map(|at| self.entry(at));
        (entries.filter(|entry| entry.peek().linked() || entry.peek().references() > 0).collect(), free)
    }
}

#[cfg(test)]
mod tests {
    use crate::shared::arena::LockAt;
    use crate::shared::{Config, Publication, Shared};
    use crate::{Key, Stats};

    const KEY: Key<'static> = Key { database: 1, cache: 2, hash: 3, bytes: b"key" };

    /// A partition whose lock somebody sits on: the others go private, and nothing is lost.
    #[test]
    fn who_does_not_get_the_lock_goes_private() {
        let shared = Shared::anonymous(&Config::tiny()).unwrap();
        let Publication::Published(reference) = shared.publish(&(), &KEY, None, shared.token(&())) else {
            panic!("the table is empty");
        };
        let guard = shared.arena().lock(LockAt::Partition(0)).write().unwrap();
        assert!(shared.find(&(), &KEY).is_none());
        let other = Key { hash: 4, ..KEY };
        assert_eq!(shared.publish(&(), &other, None, shared.token(&())), Publication::Private { useless: false });
        assert!(!shared.evict(&(), &KEY));
        shared.release(&(), reference);
        drop(guard);
        let Stats { lock_timeouts, entries, .. } = shared.stats();
        assert_eq!((lock_timeouts, entries), (3, 1), "the publisher's slot went back");
        assert!(shared.evict(&(), &KEY));
    }

    /// Readers of one partition don't wait for each other.
    #[test]
    fn a_find_shares_its_partition() {
        let shared = Shared::anonymous(&Config::tiny()).unwrap();
        let guard = shared.arena().lock(LockAt::Partition(0)).read().unwrap();
        assert!(shared.find(&(), &KEY).is_none());
        assert_eq!(shared.stats().lock_timeouts, 0);
        drop(guard);
    }

    /// A commit touches stamps only: it goes through, whoever holds whatever lock.
    #[test]
    fn a_committer_takes_no_lock() {
        let shared = Shared::anonymous(&Config::tiny()).unwrap();
        let partition = shared.arena().lock(LockAt::Partition(0)).write().unwrap();
        let slab = shared.arena().lock(LockAt::Slab).write().unwrap();
        let mut bracket = shared.bracket([(1, 2, 3)]);
        bracket.open(&());
        bracket.close(&());
        drop((partition, slab));
        assert_eq!(shared.token(&()).value(), 2);
    }

    /// Entries that share a bucket: each can be taken out of the chain, wherever it is.
    #[test]
    fn a_chain_stays_whole_when_any_of_its_entries_goes() {
        let name = |n: u8| [n; 3];
        for gone in 0..4 {
            let shared = Shared::anonymous(&Config::tiny()).unwrap();
            for n in 0..4 {
                let Publication::Published(reference) =
                    shared.publish(&(), &Key { bytes: &name(n), ..KEY }, Some(&[n]), shared.token(&()))
                else {
                    panic!("there is room for four");
                };
                shared.release(&(), reference);
            }
            assert!(shared.evict(&(), &Key { bytes: &name(gone), ..KEY }));
            for n in 0..4 {
                let found = shared.find(&(), &Key { bytes: &name(n), ..KEY });
                assert_eq!(found.is_some(), n != gone, "{n} after {gone} went");
                if let Some(found) = found {
                    assert_eq!(shared.row(&found), Some(&[n][..]));
                    shared.release(&(), found);
                }
            }
        }
    }
}
