//! Time on a machine that others use too.
//!
//! * **CPU time of the thread** is what one thread's work costs: time in which it was not running does not count.
//! * **Slices.** Two threads that share a cache line disturb each other only while both run. On a busy machine that is
//!   rarely so, and a plain run with two threads hides what it should show. Each thread therefore cuts its work into
//!   slices of some 20 µs and notes when each began and ended and how much CPU time it took. A slice was
//!   *uninterrupted* when both agree, and it was *accompanied* when the other thread ran uninterrupted slices during
//!   all of it. Only accompanied slices count.
//!
//! Nothing in this crate asserts on a time.

use rustix::time::{ClockId, clock_gettime};

/// How long a slice should take.
pub const SLICE_NS: u64 = 20_000;

/// By how much the wall may exceed the CPU time of an uninterrupted slice: a preemption costs more.
const SLACK_NS: u64 = 1_000;

/// The longest pause between two slices of one thread that still ran through: reading the clocks takes so long.
const SEAM_NS: u64 = 2_000;

fn now(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds of CPU time that this thread has used.
pub fn thread_cpu_ns() -> u64 {
    now(ClockId::ThreadCPUTime)
}

/// Nanoseconds on the clock on the wall, the same for all threads.
pub fn wall_ns() -> u64 {
    now(ClockId::Monotonic)
}

/// The CPU time of this thread that `work` takes, and what `work` returns.
pub fn cpu_time<R>(work: impl FnOnce() -> R) -> (u64, R) {
    let start = thread_cpu_ns();
    let result = work();
    (thread_cpu_ns() - start, result)
}

/// A stretch of work of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The wall clock at its beginning.
    pub start_ns: u64,
    /// The wall clock at its end.
    pub end_ns: u64,
    /// The CPU time that it took.
    pub cpu_ns: u64,
}

impl Slice {
    /// Runs `work` as one slice.
    pub fn of(work: impl FnOnce()) -> Slice {
        let start_ns = wall_ns();
        let (cpu_ns, ()) = cpu_time(work);
        Slice { start_ns, end_ns: wall_ns(), cpu_ns }
    }

    /// Did the thread run all the time?
    pub fn uninterrupted(&self) -> bool {
        self.end_ns.saturating_sub(self.start_ns) <= self.cpu_ns + SLACK_NS
    }
}

/// Those of `mine` that were uninterrupted.
pub fn uninterrupted(mine: &[Slice]) -> impl Iterator<Item = &Slice> {
    mine.iter().filter(|slice| slice.uninterrupted())
}

/// Those of `mine` that were uninterrupted and accompanied by uninterrupted slices of the other thread from their
/// beginning to their end. Both in the order of time. Linear.
pub fn accompanied<'a>(mine: &'a [Slice], others: &[Slice]) -> Vec<&'a Slice> {
    let spans = spans(others);
    let mut next = spans.iter().peekable();
    let mut counted = Vec::new();
    for slice in uninterrupted(mine) {
        while next.next_if(|span| span.1 < slice.end_ns).is_some() {}
        if next.peek().is_some_and(|span| span.0 <= slice.start_ns) {
            counted.push(slice);
        }
    }
    counted
}

/// Stretches of time in which a thread ran uninterrupted slices one after another.
fn spans(slices: &[Slice]) -> Vec<(u64, u64)> {
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for slice in uninterrupted(slices) {
        match spans.last_mut() {
            Some(span) if slice.start_ns <= span.1 + SEAM_NS => span.1 = slice.end_ns,
            _ => spans.push((slice.start_ns, slice.end_ns)),
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(start_us: u64, end_us: u64) -> Slice {
        Slice { start_ns: start_us * 1_000, end_ns: end_us * 1_000, cpu_ns: (end_us - start_us) * 1_000 }
    }

    /// The thread waited for half of the time.
    fn waited(start_us: u64, end_us: u64) -> Slice {
        Slice { cpu_ns: (end_us - start_us) * 500, ..ran(start_us, end_us) }
    }

    #[test]
    fn a_slice_that_waited_does_not_count() {
        assert!(ran(0, 20).uninterrupted());
        assert!(!waited(0, 20).uninterrupted());
        let mine = [ran(0, 20), waited(20, 60), ran(60, 80)];
        assert_eq!(accompanied(&mine, &[ran(0, 80)]), [&mine[0], &mine[2]]);
    }

    #[test]
    fn a_slice_counts_only_if_the_other_ran_all_through_it() {
        let mine = [ran(0, 20), ran(20, 40), ran(40, 60), ran(60, 80), ran(80, 100)];
        let others = [ran(5, 25), ran(25, 45), waited(45, 75), ran(75, 95), ran(95, 115)];
        assert_eq!(accompanied(&mine, &others), [&mine[1], &mine[4]]);
        assert!(accompanied(&mine, &[]).is_empty());
        assert!(accompanied(&[], &others).is_empty());
    }

    #[test]
    fn slices_with_a_clock_reading_between_them_are_one_span() {
        assert_eq!(spans(&[ran(0, 20), ran(21, 40), ran(50, 60)]), [(0, 40_000), (50_000, 60_000)]);
        let mine = [ran(10, 30)];
        assert_eq!(accompanied(&mine, &[ran(0, 20), ran(21, 40)]), [&mine[0]]);
        assert!(accompanied(&mine, &[ran(0, 20), ran(25, 40)]).is_empty());
    }

    #[test]
    fn clocks_run_forwards() {
        let slice = Slice::of(|| {
            std::hint::black_box((0..1_000u32).sum::<u32>());
        });
        assert!(slice.start_ns <= slice.end_ns);
        let (_, answer) = cpu_time(|| 42);
        assert_eq!(answer, 42);
    }
}
