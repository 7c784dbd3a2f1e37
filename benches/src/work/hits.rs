//! Hits: the mixes, and what one costs by one thread, by two, and when another backend has done the work already.

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
        ask(&mut handle, &self.table)?;
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

/// What hits cost in one round.
#[derive(Clone, Copy, Debug, Default)]
pub struct HitCosts {
    /// CPU time of one hit when one thread runs: the median of its uninterrupted slices.
    pub one_ns: Option<f64>,
    /// The same of the slices in which two threads ran.
    pub two_ns: Option<f64>,
    /// How many such slices there were.
    pub accompanied: usize,
    /// Of how many slices of the two threads.
    pub slices: usize,
}

impl HitCosts {
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

/// Cuts hits into slices of `hits` for as long as `go_on` says.
fn slices<H: Handle>(
    mix: &Mix,
    handle: &mut H,
    hits: usize,
    mut go_on: impl FnMut(u64) -> bool,
) -> Result<Vec<Slice>, Failure> {
    let mut slices = Vec::new();
    let (mut at, mut result) = (0, Ok(()));
    let start = wall_ns();
    while result.is_ok() && go_on(wall_ns() - start) {
        slices.push(Slice::of(|| result = mix.hit(handle, &mut at, hits)));
    }
    result.map(|()| slices)
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

        let mut at = 0;
        self.mix.hit(&mut first, &mut at, self.mix.stream.len())?;
        let (trial_ns, result) = cpu_time(|| self.mix.hit(&mut first, &mut at, TRIAL));
        result?;
        let hits = (TRIAL as u64 * SLICE_NS / trial_ns.max(1)).clamp(16, STREAM as u64) as usize;

        let alone = slices(self.mix, &mut first, hits, |ns| ns < one)?;
        let mut costs = HitCosts { one_ns: median_ns(uninterrupted(&alone), hits), ..HitCosts::default() };
        drop(first);
        if two == 0 {
            return Ok(costs);
        }
        let start = Barrier::new(2);
        let both = std::thread::scope(|scope| {
            let threads = [(); 2].map(|()| {
                scope.spawn(|| {
                    let handle = self.mix.warm(&subject);
                    start.wait();
                    slices(self.mix, &mut handle?, hits, |ns| ns < two)
                })
            });
            threads.into_iter().map(|thread| joined(thread.join())).collect::<Result<Vec<_>, _>>()
        })?;
        let mut counted = accompanied(&both[0], &both[1]);
        counted.extend(accompanied(&both[1], &both[0]));
        costs.slices = both.iter().map(Vec::len).sum();
        costs.accompanied = counted.len();
        if counted.len() >= SLICES_LEAST {
            costs.two_ns = median_ns(counted, hits);
        }
        Ok(costs)
    }
}

/// The first touches of a new backend, when another has filled the cache already: misses of the local view that the
/// shared table answers.
pub struct FirstTouches<'a> {
    /// Whose stream.
    pub mix: &'a Mix,
    /// How many new backends.
    pub backends: usize,
}

impl Task for FirstTouches<'_> {
    /// CPU time of one answer, a median over the backends; `None` if a lookup was answered otherwise.
    type Output = Result<Option<f64>, Failure>;

    fn run<S: Subject>(&self) -> Self::Output {
        let subject: S = self.mix.subject()?;
        let _filled = self.mix.warm(&subject)?;
        let touches = self.mix.first_touches();
        let mut costs = Vec::new();
        for _ in 0..self.backends {
            let mut handle = subject.attach()?;
            let (cpu_ns, result) = cpu_time(|| self.mix.touch(&mut handle, &touches));
            result?;
            if handle.stats().loads > 0 {
                return Ok(None);
            }
            costs.push(cpu_ns as f64 / touches.len() as f64);
        }
        Ok(summary(costs).map(|summary| summary.median))
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
            let answered = kind.run(&FirstTouches { mix: &mix, backends: 2 }).unwrap().is_some();
            assert_eq!(answered, !matches!(kind, Kind::Catcache | Kind::BareMap), "{}", kind.name());
        }
    }
}
