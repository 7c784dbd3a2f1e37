//! Stamps and the clock: what makes a late insertion harmless.
//!
//! A stamp is one word, {mark, open}: the clock at the last close, and the number of brackets that are open. A token is
//! good for a stamp when `open = 0` and `mark <= token`. Writers touch stamps by single read-modify-writes, so a commit takes
//! no lock of ours and can't wait, fail or allocate (D20).
//!
//! **Why the orderings are enough.** Let x be a change, with open(x) < P(x) < advance(x) < close(x) in its writer's program
//! order; a host orders P(x) before every snapshot that sees x (by a lock, or by release and acquire).
//!
//! * S1: *a snapshot without x has a token below x's mark.* advance(x) is a Release, the token's load an Acquire: a token
//!   at or above x's mark has read from advance(x) or a later advance, and those continue its release sequence, for
//!   all are read-modify-writes. So P(x) happens before the token's load, hence before the snapshot, which sees x.
//! * S2: *whoever has seen anything of x finds x's stamp open or marked.* What was seen (snapshot, message, lock) happens
//!   after P(x), so after open(x), and by coherence a load of the same word cannot return an older value. That needs no
//!   ordering of the word itself: open is Relaxed.
//! * S3: *who has seen a mark takes no token below it.* close(x) is a Release, a check's load an Acquire, so advance(x)
//!   happens before a token taken afterwards. Were it otherwise nothing would be unsafe, but a load could be refused by
//!   the very mark that made it necessary.
//!
//! The clock starts at 1; the segment holds clock - 1, so that all-zero is valid. Token 0 is nobody's.

use super::arena::Arena;
use super::entry::TOKEN_MAX;
use super::segment::{At, Layout};
use crate::key::Packed;
use crate::probe::{Level, Probe, Rule, Seen, StampValue, Step};
use crate::sync::{AtomicU64, Ordering};

/// The mark has the upper 48 bits, the count of open brackets the lower 16.
const OPEN_BITS: u32 = 16;
const OPEN_MASK: u64 = (1 << OPEN_BITS) - 1;

/// Most brackets that one stamp can have open: one per backend is less.
pub const OPEN_MAX: u32 = OPEN_MASK as u32;

const _: () = assert!(super::segment::BACKENDS_MAX < OPEN_MAX);
const _: () = assert!(TOKEN_MAX == u64::MAX >> OPEN_BITS);

impl StampValue {
    fn unpack(word: u64) -> StampValue {
        StampValue { mark: word >> OPEN_BITS, open: (word & OPEN_MASK) as u32 }
    }

    fn pack(self) -> u64 {
        debug_assert!(self.mark <= TOKEN_MAX && self.open <= OPEN_MAX);
        self.mark << OPEN_BITS | u64::from(self.open)
    }

    /// Is a token good for this stamp?
    #[must_use]
    pub fn good(self, token: u64) -> bool {
        self.open == 0 && self.mark <= token
    }
}

/// Mixes bits: every bit of the result depends on every bit of `value` (the finalizer of splitmix64).
#[inline]
fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// The stripe of (database, cache, hash), before it is cut to the number of stripes. Part of the layout.
#[inline]
pub(crate) fn stripe_of(database: u32, cache: u8, hash: u32) -> u32 {
    mix((u64::from(database) << 32 | u64::from(hash)) ^ u64::from(cache) << 24) as u32
}

/// The catalog's stamp, before it is cut. Part of the layout.
#[inline]
pub(crate) fn catalog_of(database: u32, cache: u8) -> u32 {
    mix(u64::from(database) << 8 | u64::from(cache)) as u32
}

/// The stamp of the lists of a cache, before it is cut. Part of the layout.
#[inline]
pub(crate) fn lists_of(database: u32, cache: u8) -> u32 {
    catalog_of(database, cache)
}

/// The stamp, of this kind, that a change of a row of (database, cache, hash) concerns.
#[inline]
pub(crate) fn index_of(layout: &Layout, level: Level, database: u32, cache: u8, hash: u32) -> u32 {
    let config = &layout.config;
    let (mixed, plain, count) = match level {
        Level::Stripe => (stripe_of(database, cache, hash), hash, config.stripes),
        Level::List => (lists_of(database, cache), cache.into(), config.lists),
        Level::Catalog => (catalog_of(database, cache), cache.into(), config.catalogs),
        Level::Database => (mix(database.into()) as u32, database, config.databases),
    };
    (if config.plain_stripes { plain } else { mixed }) & (count - 1)
}

/// The stamps of an entry, in the order in which they are checked.
#[inline]
fn stamps_of(layout: &Layout, key: Packed<'_>) -> [(Level, u32); 3] {
    let first = if key.is_list() { Level::List } else { Level::Stripe };
    [first, Level::Catalog, Level::Database]
        .map(|level| (level, index_of(layout, level, key.database(), key.cache(), key.hash)))
}

fn at(layout: &Layout, level: Level, index: u32) -> At {
    let first = match level {
        Level::Stripe => layout.stripes,
        Level::List => layout.lists,
        Level::Catalog => layout.catalogs,
        Level::Database => layout.databases,
    };
    first + index
}

fn word(arena: &Arena, level: Level, index: u32) -> &AtomicU64 {
    arena.word(at(arena.layout(), level, index))
}

/// The verdict of a probe's checks, and the greatest mark seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) good: bool,
    pub(crate) mark: u64,
}

/// Steps Check: is `token` good for all stamps of `key`? Stops at the first for which it is not.
#[inline]
pub(crate) fn check<P: Probe>(arena: &Arena, probe: &P, key: Packed<'_>, token: u64) -> Verdict {
    let mut mark = 0;
    for (level, index) in stamps_of(arena.layout(), key) {
        probe.before(Step::Check(level));
        // Acquire: pairs with the Release of `close` (S3).
        let value = StampValue::unpack(word(arena, level, index).load(Ordering::Acquire));
        probe.took(Step::Check(level), Seen::Stamp(value));
        mark = mark.max(value.mark);
        let ignored = !probe.keeps(match level {
            Level::Stripe => Rule::CheckStripe,
            Level::List => Rule::CheckList,
            Level::Catalog => Rule::CheckCatalog,
            Level::Database => Rule::CheckDatabase,
        });
        if !value.good(token) && !ignored {
            return Verdict { good: false, mark };
        }
    }
    Verdict { good: true, mark }
}

/// Is an entry probably invalid? A hint for the choice of victims: it may be wrong in both directions.
pub(crate) fn looks_invalid(arena: &Arena, key: Packed<'_>, token: u64) -> bool {
    stamps_of(arena.layout(), key).into_iter().any(|(level, index)| !peek(arena, level, index).good(token))
}

/// A stamp's newest value: a hint, or everybody is parked.
pub(crate) fn peek(arena: &Arena, level: Level, index: u32) -> StampValue {
    StampValue::unpack(arena.peek_word(at(arena.layout(), level, index)))
}

/// Step Token: the clock.
#[inline]
pub(crate) fn token<P: Probe>(arena: &Arena, probe: &P) -> u64 {
    probe.before(Step::Token);
    // Acquire: pairs with the Release of `advance` (S1).
    let clock = arena.word(arena.layout().clock).load(Ordering::Acquire) + 1;
    probe.took(Step::Token, Seen::Clock(clock));
    clock
}

/// The clock while everybody is parked.
pub(crate) fn peek_clock(arena: &Arena) -> u64 {
    arena.peek_word(arena.layout().clock) + 1
}

/// Are stamps of this kind opened at all?
fn opens<P: Probe>(probe: &P, level: Level) -> bool {
    probe.keeps(match level {
        Level::Stripe => Rule::OpenStripe,
        Level::List => Rule::OpenList,
        Level::Catalog => Rule::OpenCatalog,
        Level::Database => Rule::OpenDatabase,
    })
}

/// Step Open: one bracket more.
pub(crate) fn open<P: Probe>(arena: &Arena, probe: &P, level: Level, index: u32) {
    probe.before(Step::Open(level));
    let word = word(arena, level, index);
    let one = u64::from(opens(probe, level));
    // Relaxed: whoever must see it happens after P, which comes after it (S2).
    let old = word.fetch_add(one, Ordering::Relaxed);
    debug_assert!(old & OPEN_MASK < OPEN_MASK, "more brackets are open than backends can be");
    probe.took(Step::Open(level), Seen::Stamp(StampValue::unpack(old + one)));
}

/// Step Advance: the clock at which a bracket closes.
pub(crate) fn advance<P: Probe>(arena: &Arena, probe: &P) -> u64 {
    probe.before(Step::Advance);
    let clock = arena.word(arena.layout().clock);
    let one = u64::from(probe.keeps(Rule::AdvanceClock));
    // Release: pairs with the Acquire of `token`; P came before (S1).
    let now = clock.fetch_add(one, Ordering::Release) + one + 1;
    debug_assert!(now <= TOKEN_MAX, "the clock has run for 2^48 closes");
    probe.took(Step::Advance, Seen::Clock(now));
    now
}

/// Step Close: one bracket less, and marked with `now`.
pub(crate) fn close<P: Probe>(arena: &Arena, probe: &P, level: Level, index: u32, now: u64) {
    probe.before(Step::Close(level));
    let mark = if probe.keeps(Rule::MarkAtClose) { now } else { 0 };
    let value = leave(arena, probe, level, index, mark);
    probe.took(Step::Close(level), Seen::Stamp(value));
}

/// Step Withdraw: one bracket less, without a mark: nothing became visible.
pub(crate) fn withdraw<P: Probe>(arena: &Arena, probe: &P, level: Level, index: u32) {
    probe.before(Step::Withdraw(level));
    let value = leave(arena, probe, level, index, 0);
    probe.took(Step::Withdraw(level), Seen::Stamp(value));
}

/// Counts down, and raises the mark to at least `mark`: two closers may come in either order.
fn leave<P: Probe>(arena: &Arena, probe: &P, level: Level, index: u32, mark: u64) -> StampValue {
    let word = word(arena, level, index);
    let opened = opens(probe, level);
    // Relaxed: a guess at what the compare-and-swap will find.
    let mut found = word.load(Ordering::Relaxed);
    // Ends: whoever makes this one fail has made progress itself, and a stamp has at most OPEN_MAX closers.
    loop {
        let old = StampValue::unpack(found);
        debug_assert!(!opened || old.open > 0, "a bracket is left that was never opened");
        let new = StampValue { mark: old.mark.max(mark), open: old.open - u32::from(opened) };
        // Release: pairs with the Acquire of `check` (S3).
        match word.compare_exchange(found, new.pack(), Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return new,
            Err(other) => found = other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_comes_back_as_it_was_packed() {
        for mark in [0, 1, 12_345, TOKEN_MAX] {
            for open in [0, 1, OPEN_MAX] {
                let value = StampValue { mark, open };
                assert_eq!(StampValue::unpack(value.pack()), value);
            }
        }
        assert_eq!(StampValue::unpack(0), StampValue { mark: 0, open: 0 });
    }

    #[test]
    fn a_token_is_good_from_the_mark_on_while_nothing_is_open() {
        let closed = StampValue { mark: 5, open: 0 };
        assert!(!closed.good(4) && closed.good(5) && closed.good(6));
        assert!(!StampValue { mark: 5, open: 1 }.good(9));
    }

    /// Both functions are part of the layout: programs that map one segment must agree on them.
    #[test]
    fn the_stamps_of_a_key_are_pinned() {
        assert_eq!(stripe_of(5, 7, 0xdead_beef), 2_130_533_889);
        assert_eq!(catalog_of(5, 7), 712_690_482);
    }
}
