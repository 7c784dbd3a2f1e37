//! The one lock of the product: a reader-writer lock in a single futex word, the same for threads and processes.
//!
//! **Word.** 32 bits, all-zero = free:
//!
//! ```text
//! bit 31       WRITER   held exclusively; the low bits are the owner's process id
//! bit 30       WAITING  somebody sleeps, or is about to
//! bits 0..=29  owner's process id (WRITER set), or the number of readers (WRITER clear)
//! ```
//!
//! **Invariants.**
//! * L1 exclusion: WRITER excludes every other holder. A writer gets the lock by a compare-and-swap from 0 only.
//! * L2 WAITING implies held: the bit is set by a compare-and-swap on a word that is held, and whoever makes the lock free
//!   sets the whole word to 0.
//! * L3 no lost wake-up: who makes the lock free and finds WAITING wakes *all* sleepers. A sleeper sleeps on the value with
//!   WAITING in it, so either the futex refuses (the word has changed) or the one who changes it will wake it.
//! * L4 no starvation: nobody joins the readers while WAITING is set, so a writer waits only for those who were there
//!   before it, and then competes with those who slept beside it.
//! * L5 bounded: a waiter can give up at any time and owes nobody anything, because nothing was handed to it (a wake-up
//!   is a hint, not a grant). It leaves WAITING behind: at worst one wake-up in vain.
//!
//! Waking all is right for us: sections are some tens of instructions, and waiters come in crowds of readers.
//!
//! **Rank.** All locks of the segment are leaves: one at a time, never re-entered, never across a scan, an allocation outside
//! the segment, a callback or a probe's `before`.
//!
//! parking_lot and std can't serve here: they queue sleepers in memory private to a process.

use crate::sync::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const WRITER: u32 = 1 << 31;
const WAITING: u32 = 1 << 30;
const LOW: u32 = WAITING - 1;

/// Greatest owner that fits into the word. Linux's process ids end at 2^22.
pub const OWNER_MAX: u32 = LOW;

/// A word that threads, or processes, can sleep on.
pub trait Futex {
    /// How often to look again before sleeping.
    const SPINS: u32;

    /// The word.
    fn word(&self) -> &AtomicU32;

    /// Sleeps until woken, if the word still is `expected`; at most for `timeout`. May return for no reason.
    fn wait(&self, expected: u32, timeout: Option<Duration>);

    /// Wakes all who sleep.
    fn wake_all(&self);
}

/// How long to wait for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// As long as it takes.
    Forever,
    /// At most so long, all sleeps together.
    For(Duration),
    /// At most so many sleeps: for the lock's own suite, where there is no time.
    Sleeps(u32),
}

/// The lock. All-zero memory is a free one.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct RwLock<F> {
    futex: F,
}

impl<F: Futex> RwLock<F> {
    /// A free lock over `futex`, whose word is 0.
    pub const fn new(futex: F) -> RwLock<F> {
        RwLock { futex }
    }

    /// Shared access. `None` if patience ran out.
    #[inline]
    pub fn read(&self, patience: Patience) -> Option<ReadGuard<'_, F>> {
        self.acquire(patience, |state| (state & (WRITER | WAITING) == 0).then_some(state + 1))
            .then(|| ReadGuard { lock: self })
    }

    /// Exclusive access for `owner` (1..=[`OWNER_MAX`]). `None` if patience ran out.
    #[inline]
    pub fn write(&self, owner: u32, patience: Patience) -> Option<WriteGuard<'_, F>> {
        debug_assert!((1..=OWNER_MAX).contains(&owner), "the owner {owner} does not fit into the lock word");
        let held = WRITER | owner & OWNER_MAX;
        self.acquire(patience, |state| (state == 0).then_some(held)).then(|| WriteGuard { lock: self })
    }

    /// Who holds it exclusively, for diagnosis: old as soon as it is read.
    pub fn owner(&self) -> Option<u32> {
        // Relaxed: nothing is read on the strength of it.
        let state = self.futex.word().load(Ordering::Relaxed);
        (state & WRITER != 0).then_some(state & LOW)
    }

    /// Takes the lock as soon as `next` of the word is something.
    #[inline]
    fn acquire(&self, patience: Patience, next: impl Fn(u32) -> Option<u32>) -> bool {
        // Relaxed: only a guess at what the compare-and-swap will find.
        let state = self.futex.word().load(Ordering::Relaxed);
        match next(state) {
            // Acquire: pairs with the Release of `release_shared` and `release_exclusive`: what was done under the lock is
            // seen. Every change of the word is a read-modify-write, so this sees all readers that left before, too.
            Some(new)
                if self.futex.word().compare_exchange(state, new, Ordering::Acquire, Ordering::Relaxed).is_ok() =>
            {
                true
            }
            _ => self.acquire_slowly(patience, next),
        }
    }

    #[cold]
    fn acquire_slowly(&self, patience: Patience, next: impl Fn(u32) -> Option<u32>) -> bool {
        let word = self.futex.word();
        let begin = match patience {
            Patience::For(_) => Some(Instant::now()),
            Patience::Forever | Patience::Sleeps(_) => None,
        };
        let mut spins = F::SPINS;
        let mut sleeps = 0;
        loop {
            // Relaxed: a guess, as above.
            let state = word.load(Ordering::Relaxed);
            if let Some(new) = next(state) {
                // Acquire: as in `acquire`.
                if word.compare_exchange(state, new, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return true;
                }
                continue;
            }
            if spins > 0 && state & WAITING == 0 {
                spins -= 1;
                std::hint::spin_loop();
                continue;
            }
            // Held (L2): `next` refuses a free word to nobody.
            debug_assert!(state & !WAITING != 0, "a free lock with the waiting bit");
            // Relaxed: the bit publishes nothing; it is read by those who release, on this same word.
            if state & WAITING == 0
                && word.compare_exchange(state, state | WAITING, Ordering::Relaxed, Ordering::Relaxed).is_err()
            {
                continue;
            }
            let left = match (patience, begin) {
                (Patience::Sleeps(most), _) if sleeps >= most => return false,
                (Patience::For(whole), Some(begin)) => match whole.checked_sub(begin.elapsed()) {
                    Some(left) if !left.is_zero() => Some(left),
                    _ => return false,
                },
                _ => None,
            };
            self.futex.wait(state | WAITING, left);
            sleeps += 1;
        }
    }

    #[inline]
    fn release_shared(&self) {
        let word = self.futex.word();
        // Relaxed: a guess at what the compare-and-swap will find.
        let mut state = word.load(Ordering::Relaxed);
        loop {
            debug_assert!(state & WRITER == 0 && state & LOW != 0, "a reader leaves a lock that it does not hold");
            let last = state & LOW == 1;
            let new = if last { 0 } else { state - 1 };
            // Release: pairs with the Acquire of the next writer, whose changes must come after what this reader has read.
            match word.compare_exchange(state, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => {
                    if last && state & WAITING != 0 {
                        self.futex.wake_all();
                    }
                    return;
                }
                Err(found) => state = found,
            }
        }
    }

    #[inline]
    fn release_exclusive(&self) {
        // Release: pairs with the Acquire of whoever takes the lock next. A read-modify-write, so that WAITING, set
        // meanwhile, can't be overlooked (L3).
        let state = self.futex.word().swap(0, Ordering::Release);
        debug_assert!(state & WRITER != 0, "a writer leaves a lock that it does not hold");
        if state & WAITING != 0 {
            self.futex.wake_all();
        }
    }
}

/// Shared access to what the lock guards.
#[must_use]
#[derive(Debug)]
pub struct ReadGuard<'a, F: Futex> {
    lock: &'a RwLock<F>,
}

impl<F: Futex> Drop for ReadGuard<'_, F> {
    #[inline]
    fn drop(&mut self) {
        self.lock.release_shared();
    }
}

/// Exclusive access to what the lock guards.
#[must_use]
#[derive(Debug)]
pub struct WriteGuard<'a, F: Futex> {
    lock: &'a RwLock<F>,
}

impl<F: Futex> Drop for WriteGuard<'_, F> {
    #[inline]
    fn drop(&mut self) {
        self.lock.release_exclusive();
    }
}
