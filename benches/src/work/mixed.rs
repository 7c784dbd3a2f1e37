//! First touches as PostgreSQL makes them: not only of rows that are there, but of absent ones and of lists. For our own cache
//! alone, since no rival has lists.

use std::hint::black_box;

use shared_catcache::backend::{Backend, MemoryCatalog, MemorySession};
use shared_catcache::{Key, Shared};

use super::WrongAnswers;
use super::hits::{ENTRIES, ROW};
use crate::measure::cpu_time;
use crate::random::{Random, Zipf, mix};
use crate::rivals::Failure;
use crate::rivals::ours::config;
use crate::script::DATABASE;
use crate::statistics::summary;

/// One rank in so many is a list,
const LISTS: u64 = 16;

/// and one in so many, of the others, has no row.
const ABSENT: u64 = 8;

/// Rows of a list.
const MEMBERS: u8 = 4;

/// The cache of the rows, and that of the lists.
const CACHES: [u8; 2] = [7, 8];

/// What is touched at a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Touch {
    Row,
    Absent,
    List,
}

fn touch(rank: u64) -> Touch {
    match rank {
        rank if rank.is_multiple_of(LISTS) => Touch::List,
        rank if rank.is_multiple_of(ABSENT) => Touch::Absent,
        _ => Touch::Row,
    }
}

/// The mix: Zipf's law over lists, absent rows and rows.
pub struct Mixed {
    catalog: MemoryCatalog,
    /// The ranks, in the order in which the law first comes to them, and their keys' bytes.
    touches: Vec<(u64, [u8; 8])>,
}

fn key(rank: u64, bytes: &[u8]) -> Key<'_> {
    let cache = CACHES[usize::from(touch(rank) == Touch::List)];
    Key { database: DATABASE, cache, hash: mix(rank + 1) as u32, bytes }
}

impl Mixed {
    /// The mix over as many ranks as the other mixes have entries.
    pub fn new() -> Mixed {
        Mixed::of(ENTRIES, 1 << 14)
    }

    fn of(ranks: usize, stream: usize) -> Mixed {
        let (zipf, mut random) = (Zipf::new(ranks, 1.0), Random::new(1));
        let mut seen = std::collections::HashSet::new();
        let drawn = std::iter::repeat_with(|| zipf.draw(&mut random) as u64).take(stream);
        let touches: Vec<_> = drawn.filter(|rank| seen.insert(*rank)).map(|rank| (rank, rank.to_le_bytes())).collect();
        let (catalog, row) = (MemoryCatalog::new(), vec![1; ROW]);
        for (rank, bytes) in &touches {
            match touch(*rank) {
                Touch::Absent => {}
                Touch::Row => catalog.fill(&key(*rank, bytes), &row),
                Touch::List => (0..MEMBERS).for_each(|member| {
                    let bytes = [&bytes[..], &[member]].concat();
                    catalog.fill(&Key { hash: mix(rank << 8 | u64::from(member)) as u32, ..key(*rank, &bytes) }, &row);
                }),
            }
        }
        Mixed { catalog, touches }
    }

    /// Of the touches, in percent: lists, absent rows.
    pub fn shares(&self) -> [f64; 2] {
        let share = |what| {
            let touched = self.touches.iter().filter(|(rank, _)| touch(*rank) == what).count();
            touched as f64 * 100.0 / self.touches.len() as f64
        };
        [share(Touch::List), share(Touch::Absent)]
    }

    /// CPU time of one answer of the shared table, a median over so many new `backends`.
    ///
    /// # Errors
    /// The cache's; an answer that is wrong, or that had to be loaded.
    pub fn run(&self, backends: usize) -> Result<Option<f64>, Failure> {
        let shared = Shared::anonymous(&config(128))?;
        let attach = || Backend::attach(&shared, DATABASE, self.catalog.session(()));
        let mut filler = attach()?;
        self.ask(&mut filler)?;
        let mut costs = Vec::new();
        for _ in 0..backends {
            let mut backend = attach()?;
            let (cpu_ns, result) = cpu_time(|| self.ask(&mut backend));
            result?;
            let loads = backend.stats().scans;
            if loads > 0 {
                return Err(format!("{loads} answers had to be loaded where the shared table was to give them").into());
            }
            costs.push(cpu_ns as f64 / self.touches.len() as f64);
        }
        Ok(summary(costs).map(|summary| summary.median))
    }

    fn ask(&self, backend: &mut Backend<MemorySession>) -> Result<(), Failure> {
        let (mut sum, mut wrong) = (0, 0);
        for (rank, bytes) in &self.touches {
            let key = key(*rank, bytes);
            let right = match touch(*rank) {
                Touch::List => {
                    let mut members = 0;
                    for (_, row) in backend.list(&key)? {
                        members += 1;
                        sum += usize::from(row[0]);
                    }
                    members == MEMBERS
                }
                Touch::Row => backend.lookup(&key)?.is_some_and(|row| {
                    sum += usize::from(row[0]);
                    true
                }),
                Touch::Absent => backend.lookup(&key)?.is_none(),
            };
            wrong += u64::from(!right);
        }
        black_box(sum);
        if wrong == 0 {
            return Ok(());
        }
        Err(WrongAnswers { workload: "the mixed touches".to_owned(), wrong, lookups: self.touches.len() as u64 }.into())
    }
}

impl Default for Mixed {
    fn default() -> Mixed {
        Mixed::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_of_touches_are_answered_by_the_shared_table() {
        let mixed = Mixed::of(256, 2_048);
        assert!(mixed.shares().iter().all(|share| (2.0..15.0).contains(share)), "{:?}", mixed.shares());
        assert!(mixed.run(2).unwrap().is_some());
        // A row that is not there is a wrong answer, and no figure.
        let empty = Mixed { catalog: MemoryCatalog::new(), touches: mixed.touches };
        assert!(empty.run(1).unwrap_err().to_string().contains("wrong"));
    }
}
