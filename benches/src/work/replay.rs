//! Replaying a trace by many backends at once.

use std::hint::black_box;
use std::sync::Barrier;

use super::{WrongAnswers, joined};
use crate::measure::cpu_time;
use crate::rivals::{Failure, Handle, HandleStats, Subject, Task};
use crate::script::{BenchKey, Op, Script};

/// Lookups of one backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// How many there were.
    pub lookups: u64,
    /// How many of them answered otherwise than PostgreSQL.
    pub wrong: u64,
}

/// Plays a script to its end. `keys` are those of this backend.
///
/// # Errors
/// The subject's.
#[inline(never)]
pub fn play<H: Handle>(handle: &mut H, script: &Script, keys: &[BenchKey]) -> Result<Played, Failure> {
    let mut played = Played::default();
    let mut bytes = Vec::new();
    for op in &script.ops {
        match *op {
            Op::Lookup { row, present } => {
                let found = handle.lookup(&keys[row as usize], read_row)?;
                played.lookups += 1;
                played.wrong += u64::from(found.is_some() != present);
                black_box(found);
            }
            Op::Change { row, present } => {
                let key = &keys[row as usize];
                if present {
                    key.write_row(script.rows[row as usize].length, &mut bytes);
                    handle.change(key, Some(&bytes))?;
                } else {
                    handle.change(key, None)?;
                }
            }
            Op::CommandEnd => handle.command_end(),
            Op::Accept => handle.accept(),
            Op::Begin => handle.begin()?,
            Op::Commit => handle.commit()?,
        }
    }
    Ok(played)
}

/// What a caller does with a row: it reads its first eight bytes.
#[inline(always)]
pub fn read_row(row: Option<&[u8]>) -> Option<u64> {
    row.map(|row| row.first_chunk().map_or(row.len() as u64, |bytes| u64::from_ne_bytes(*bytes)))
}

/// `backends` threads play a script at the same time, each with a new backend over a new cache.
pub struct Replay<'a> {
    /// What they play.
    pub script: &'a Script,
    /// How many they are.
    pub backends: u32,
}

/// What a replay cost, all backends together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Replayed {
    /// CPU time of the threads.
    pub cpu_ns: u64,
    /// Lookups of single rows.
    pub lookups: u64,
    /// Scans, shared hits, resets, entries, bytes: sums over the backends.
    pub stats: HandleStats,
    /// Bytes in common.
    pub shared_bytes: u64,
}

impl Replay<'_> {
    fn one<S: Subject>(
        &self,
        subject: &S,
        backend: u32,
        start: &Barrier,
    ) -> Result<(u64, Played, HandleStats), Failure> {
        let keys = self.script.keys(backend);
        let handle = subject.attach();
        // Whoever fails is waited for as well.
        start.wait();
        let mut handle = handle?;
        let (cpu_ns, played) = cpu_time(|| play(&mut handle, self.script, &keys));
        Ok((cpu_ns, played?, handle.stats()))
    }
}

impl Task for Replay<'_> {
    type Output = Result<Replayed, Failure>;

    fn run<S: Subject>(&self) -> Self::Output {
        let subject = S::new(&self.script.catalog(self.backends))?;
        let start = Barrier::new(self.backends as usize);
        let results = std::thread::scope(|scope| {
            let spawn = |backend| {
                let (subject, start) = (&subject, &start);
                scope.spawn(move || self.one(subject, backend, start))
            };
            let threads: Vec<_> = (1..=self.backends).map(spawn).collect();
            threads.into_iter().map(|thread| joined(thread.join())).collect::<Result<Vec<_>, _>>()
        })?;
        let mut sum = Replayed { shared_bytes: subject.shared_bytes(), ..Replayed::default() };
        let mut wrong = 0;
        for (cpu_ns, played, stats) in results {
            sum.cpu_ns += cpu_ns;
            sum.lookups += played.lookups;
            wrong += played.wrong;
            sum.stats = sum.stats.plus(stats);
        }
        if wrong > 0 {
            let workload = format!("trace {} by {} backends", self.script.name, self.backends);
            return Err(WrongAnswers { workload, wrong, lookups: sum.lookups }.into());
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::Kind;
    use crate::script::Script;
    use crate::trace::packed;

    /// Every subject answers as PostgreSQL did, and scans the catalog as often as a private cache must: ours too, when it
    /// is alone.
    #[test]
    fn all_subjects_agree_on_every_trace() {
        for trace in packed().unwrap() {
            let script = Script::new(&trace);
            for kind in Kind::ALL {
                let replayed = kind.run(&Replay { script: &script, backends: 1 }).unwrap();
                assert_eq!(replayed.lookups, u64::from(script.lookups), "{} {}", script.name, kind.name());
                assert_eq!(replayed.stats.loads, u64::from(script.misses), "{} {}", script.name, kind.name());
            }
        }
    }

    /// Three backends: the private caches load three times, the shared ones once, whoever is first; a trace that changes
    /// rows is answered rightly by all.
    #[test]
    fn several_backends_share_their_loads() {
        let traces = packed().unwrap();
        let script = |name: &str| Script::new(traces.iter().find(|trace| trace.name == name).unwrap());
        let quiet = script("simple");
        for kind in Kind::ALL {
            let loads = kind.run(&Replay { script: &quiet, backends: 3 }).unwrap().stats.loads;
            let misses = u64::from(quiet.misses);
            if kind.is_private() {
                assert_eq!(loads, 3 * misses);
            } else {
                // Two may read the same row at the same time.
                assert!((misses..=3 * misses).contains(&loads), "{}: {loads}", kind.name());
            }
            kind.run(&Replay { script: &script("ddl_alter"), backends: 3 }).unwrap();
        }
    }
}
