//! Hits: the mixes, and what one costs by one thread and by two.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Duration;

use shared_catcache::backend::MemoryCatalog;

use super::replay::read_row;
use super::storage::Stored;
use super::{WrongAnswers, joined};
use crate::measure::{SLICE_NS, Slice, accompanied, cpu_time, uninterrupted, wall_ns};
use crate::random::{Random, Zipf, mix};
use crate::rivals::ours::Ours;
use crate::rivals::{Failure, Handle, Subject, Task};
use crate::script::BenchKey;
use crate::statistics::summary;
use crate::trace::{CACHES, TraceKey};

/// How many entries the table holds in every mix.
pub const ENTRIES: usize = 10_000;

/// The length of their rows.
pub const ROW: usize = 300;

/// The length of their keys.
pub const KEY: usize = 8;

/// The cache that the mixes' rows are in: ATTNUM, keyed by an oid and a number.
const CACHE: u8 = 7;

/// How many keys a stream of lookups has before it begins again: 640 KiB.
const STREAM: usize = 1 << 14;

/// Lookups that show how many make a slice.
const TRIAL: usize = 2_048;

/// Slices that must have counted before a figure is given.
pub const SLICES_LEAST: usize = 20;

/// A table and the order in which it is looked into.
pub struct Mix {
    /// Its name in reports.
    pub name: &'static str,
    catalog: MemoryCatalog,
    table: Vec<BenchKey>,
    stream: Vec<BenchKey>,
}

impl Mix {
    /// Zipf's law with exponent 1 over all entries.
    pub fn zipf() -> Mix {
        let (zipf, mut random) = (Zipf::new(ENTRIES, 1.0), Random::new(1));
        Mix::new("zipf10k", ENTRIES, STREAM, |_| zipf.draw(&mut random))
    }

    /// Sixteen of the entries, by turns.
    pub fn hot() -> Mix {
        Mix::new("hot16", ENTRIES, STREAM, |at| at % 16)
    }

    /// Zipf's law over a table of another size, with a stream of another length: for counting, which is slow.
    pub fn small(entries: usize, stream: usize) -> Mix {
        let (zipf, mut random) = (Zipf::new(entries, 1.0), Random::new(1));
        Mix::new("zipf", entries, stream, |_| zipf.draw(&mut random))
    }

    /// Zipf's law over one row in each of the caches, whose keys have no columns: nothing is to be compared.
    pub fn keyless(stream: usize) -> Mix {
        let table = (0..CACHES).map(|cache| BenchKey::keyless(TraceKey { cache, hash: mix(cache.into()) as u32 }));
        let (zipf, mut random) = (Zipf::new(table.len(), 1.0), Random::new(1));
        Mix::over(table.collect(), "keyless", stream, |_| zipf.draw(&mut random))
    }

    fn new(name: &'static str, entries: usize, stream: usize, draw: impl FnMut(usize) -> usize) -> Mix {
        let key = |rank| BenchKey::new(TraceKey { cache: CACHE, hash: mix(rank + 1) as u32 }, 0);
        Mix::over((0..entries as u64).map(key).collect(), name, stream, draw)
    }

    fn over(table: Vec<BenchKey>, name: &'static str, stream: usize, mut draw: impl FnMut(usize) -> usize) -> Mix {
        let catalog = MemoryCatalog::new();
        let mut row = Vec::new();
        for key in &table {
            key.write_row(ROW, &mut row);
            catalog.fill(&key.key(), &row);
        }
        let stream = (0..stream).map(|at| table[draw(at)]).collect();
        Mix { name, catalog, table, stream }
    }

    /// The stream's keys in the order in which it first comes to them.
    pub fn first_touches(&self) -> Vec<BenchKey> {
        let mut seen = std::collections::HashSet::new();
        self.stream.iter().filter(|key| seen.insert(key.id)).copied().collect()
    }

    /// What the rows are loaded from.
    pub fn catalog(&self) -> &MemoryCatalog {
        &self.catalog
    }

    /// Looks up everything.
    ///
    /// # Errors
    /// The subject's, or an answer that is wrong.
    pub fn fill<H: Handle>(&self, handle: &mut H) -> Result<(), Failure> {
        ask(handle, &self.table)
    }

    /// An empty cache over the mix's catalog.
    ///
    /// # Errors
    /// The subject's.
    pub fn subject<S: Subject>(&self) -> Result<S, Failure> {
        S::new(&self.catalog)
    }

    /// A new backend that has looked up everything.
    ///
    /// # Errors
    /// The subject's.
    pub fn warm<S: Subject>(&self, subject: &S) -> Result<S::Handle, Failure> {
        let mut handle = subject.attach()?;
        self.fill(&mut handle)?;
        Ok(handle)
    }

    /// `hits` lookups of the stream from `at` on, which it moves on.
    ///
    /// # Errors
    /// The subject's, or an answer that is wrong.
    #[inline(never)]
    pub fn hit<H: Handle>(&self, handle: &mut H, at: &mut usize, hits: usize) -> Result<(), Failure> {
        let mut left = hits;
        while left > 0 {
            let from = *at % self.stream.len();
            let run = left.min(self.stream.len() - from);
            ask(handle, &self.stream[from..from + run])?;
            *at = from + run;
            left -= run;
        }
        Ok(())
    }

    /// What this project's cache holds when one backend has looked up everything.
    ///
    /// # Errors
    /// The subject's.
    pub fn stored(&self) -> Result<Stored, Failure> {
        let subject: Ours = self.subject()?;
        let stats = self.warm(&subject)?.stats();
        Ok(Stored { shared_bytes: subject.shared_bytes(), stats })
    }

    /// How many hits make a slice.
    ///
    /// # Errors
    /// The subject's, or an answer that is wrong.
    pub fn hits_of_a_slice<H: Handle>(&self, handle: &mut H) -> Result<usize, Failure> {
        let mut at = 0;
        self.hit(handle, &mut at, self.stream.len())?;
        let (trial_ns, result) = cpu_time(|| self.hit(handle, &mut at, TRIAL));
        result?;
        Ok((TRIAL as u64 * SLICE_NS / trial_ns.max(1)).clamp(16, STREAM as u64) as usize)
    }

    /// Cuts hits into slices of `hits` for as long as `go_on` says, which is told the nanoseconds since the beginning.
    ///
    /// # Errors
    /// The subject's, or an answer that is wrong.
    pub fn hit_slices<H: Handle>(
        &self,
        handle: &mut H,
        hits: usize,
        mut go_on: impl FnMut(u64) -> bool,
    ) -> Result<Vec<Slice>, Failure> {
        let mut slices = Vec::new();
        let (mut at, mut result) = (0, Ok(()));
        let start = wall_ns();
        while result.is_ok() && go_on(wall_ns() - start) {
            slices.push(Slice::of(|| result = self.hit(handle, &mut at, hits)));
        }
        result.map(|()| slices)
    }

    /// Looks up `keys` of the mix, one after another.
    ///
    /// # Errors
    /// The subject's, or an answer that is wrong.
    #[inline(never)]
    pub fn touch<H: Handle>(&self, handle: &mut H, keys: &[BenchKey]) -> Result<(), Failure> {
        ask(handle, keys)
    }
}

/// Looks up `keys`, all of which are there.
#[inline(always)]
fn ask<H: Handle>(handle: &mut H, keys: &[BenchKey]) -> Result<(), Failure> {
    let mut absent = 0;
    let mut sum = 0u64;
    for key in keys {
        match handle.lookup(key, read_row)? {
            Some(bytes) => sum = sum.wrapping_add(bytes),
            None => absent += 1,
        }
    }
    black_box(sum);
    if absent > 0 {
        return Err(WrongAnswers { workload: "hits".to_owned(), wrong: absent, lookups: keys.len() as u64 }.into());
    }
    Ok(())
}

/// What lookups cost in one round.
#[derive(Clone, Copy, Debug, Default)]
pub struct HitCosts {
    /// CPU time of one lookup when one thread (or process) runs: the median of its uninterrupted slices.
    pub one_ns: Option<f64>,
    /// The same of the slices in which two ran.
    pub two_ns: Option<f64>,
    /// How many such slices there were.
    pub accompanied: usize,
    /// Of how many slices of the two.
    pub slices: usize,
}

impl HitCosts {
    /// From the slices, of `lookups` each, of one that ran alone, and of two that ran together.
    pub fn new(alone: &[Slice], both: &[Vec<Slice>; 2], lookups: usize) -> HitCosts {
        let mut counted = accompanied(&both[0], &both[1]);
        counted.extend(accompanied(&both[1], &both[0]));
        HitCosts {
            one_ns: median_ns(uninterrupted(alone), lookups),
            accompanied: counted.len(),
            slices: both.iter().map(Vec::len).sum(),
            two_ns: (counted.len() >= SLICES_LEAST).then(|| median_ns(counted, lookups)).flatten(),
        }
    }

    /// How much more two threads do than one: 2 is all that there is.
    pub fn gain(&self) -> Option<f64> {
        Some(2.0 * self.one_ns? / self.two_ns?)
    }
}

/// Hits by one thread, then by two.
pub struct Hits<'a> {
    /// In which order.
    pub mix: &'a Mix,
    /// How long one thread is measured.
    pub one: Duration,
    /// How long two threads are measured; zero for not at all.
    pub two: Duration,
}

/// Two threads work at the same time, for `two` nanoseconds; none at all if that is zero. Each first prepares itself, then
/// waits for the other, then makes slices for as long as it is told to go on.
pub(super) fn together<P, W>(two: u64, prepare: P) -> Result<[Vec<Slice>; 2], Failure>
where
    P: Fn() -> W + Sync,
    W: FnOnce(&mut dyn FnMut(u64) -> bool) -> Result<Vec<Slice>, Failure>,
{
    if two == 0 {
        return Ok([Vec::new(), Vec::new()]);
    }
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        let [first, second] = [(); 2].map(|()| {
            scope.spawn(|| {
                // Whoever fails is waited for as well.
                let work = prepare();
                start.wait();
                work(&mut |ns| ns < two)
            })
        });
        Ok([joined(first.join())?, joined(second.join())?])
    })
}

fn median_ns<'a>(slices: impl IntoIterator<Item = &'a Slice>, hits: usize) -> Option<f64> {
    summary(slices.into_iter().map(|slice| slice.cpu_ns as f64 / hits as f64)).map(|summary| summary.median)
}

impl Task for Hits<'_> {
    type Output = Result<HitCosts, Failure>;

    fn run<S: Subject>(&self) -> Self::Output {
        let subject: S = self.mix.subject()?;
        let mut first = self.mix.warm(&subject)?;
        let (one, two) = (self.one.as_nanos() as u64, self.two.as_nanos() as u64);

        let hits = self.mix.hits_of_a_slice(&mut first)?;
        let alone = self.mix.hit_slices(&mut first, hits, |ns| ns < one)?;
        drop(first);
        let both = together(two, || {
            let handle = self.mix.warm(&subject);
            move |go_on: &mut dyn FnMut(u64) -> bool| self.mix.hit_slices(&mut handle?, hits, go_on)
        })?;
        Ok(HitCosts::new(&alone, &both, hits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::Kind;

    #[test]
    fn a_mix_comes_to_its_entries_in_its_order() {
        let hot = Mix::hot();
        assert_eq!(hot.first_touches(), hot.table[..16]);
        assert_eq!((hot.table.len(), hot.table[0].bytes().len()), (ENTRIES, KEY));
        let zipf = Mix::small(64, 4_096);
        assert_eq!(zipf.first_touches().len(), 64);
        assert!(Mix::keyless(16).table.iter().all(|key| key.bytes().is_empty()));
    }

    #[test]
    fn every_subject_answers_the_mixes() {
        let mix = Mix::small(64, 1_024);
        for kind in Kind::ALL {
            let (one, two) = (Duration::from_millis(2), Duration::from_millis(2));
            let costs = kind.run(&Hits { mix: &mix, one, two }).unwrap();
            assert!(costs.accompanied <= costs.slices);
        }
    }
}
