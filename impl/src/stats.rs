//! What the shared cache has done, and what it holds.
//!
//! Counters lie in the lines of the partitions, which a probe of the shared table writes anyway (the lock is there). A hit
//! in a local view touches none of them.

/// Counters of a segment, all backends together, since it was created. Exact, but not of one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Probes of the shared table: hits, misses and invalid entries met.
    pub finds: u64,
    /// Probes answered.
    pub hits: u64,
    /// Probes that found nothing.
    pub misses: u64,
    /// Probes that found an entry which was no longer valid.
    pub invalid_met: u64,
    /// Loads that were linked.
    pub published: u64,
    /// Loads that found another's entry, as new as theirs, and took it.
    pub existing: u64,
    /// Entries that were unlinked for a newer one of the same key.
    pub replaced: u64,
    /// Loads that stayed private, because their token was bad already.
    pub useless: u64,
    /// Loads that stayed private, because the key or the row was too long.
    pub too_large: u64,
    /// Loads that stayed private, because nothing could go.
    pub full: u64,
    /// Locks that were not to be had within their bound; the caller went private.
    pub lock_timeouts: u64,
    /// Entries that were unlinked for want of memory, or on request.
    pub evicted: u64,
    /// Runs of pages that were emptied for another size of entry.
    pub pages_emptied: u64,
    /// Entries in memory, the unlinked that are still referred to among them.
    pub entries: u64,
    /// Bytes of their slots.
    pub bytes_used: u64,
    /// Bytes of pages that no slot in use covers.
    pub bytes_free: u64,
    /// Bytes of the pages that hold entries.
    pub bytes_in_pages: u64,
    /// Bytes of the whole segment.
    pub bytes_total: u64,
}
