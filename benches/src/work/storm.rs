//! A connection storm: many backends that have just connected ask for the same dozen entries, all at once.
//!
//! What they ask is one query of pgbench, `SELECT abalance FROM pgbench_accounts WHERE aid = ?` by the simple protocol, as the
//! trace `simple_S` has it between its last two commits: 30 lookups of eleven rows, and one search of a list, which is
//! played as one more row; twelve entries. There are three storms:
//!
//! | storm | the shared table | the local views |
//! | --- | --- | --- |
//! | after a start | empty | empty: twelve rows are to be loaded, by how many, chance decides |
//! | cold | filled | empty: twelve answers of the shared table for each backend |
//! | warm | filled | filled: the backends have asked the same before |
//!
//! Each is measured in two ways, since each of them alone would mislead:
//!
//! * **Until the last is done.** Each backend is a thread that sleeps at a gate. The gate opens, and the clock on the wall runs
//!   until the last of them has its answers. This is what the users wait for, with everything that sharing a machine costs;
//!   but on a machine with few cores most of it is waking all the threads, in a cold storm and in a warm one alike.
//! * **The lookups of one backend.** The CPU time of nothing but the lookups, of backends that play one after another on one
//!   thread; and the same with a second thread that does likewise at the same time, on the same twelve entries.

use std::sync::{Barrier, RwLock};
use std::time::Duration;

use super::hits::{HitCosts, together};
use super::replay::play;
use super::{WrongAnswers, joined};
use crate::measure::{Slice, cpu_time, wall_ns};
use crate::rivals::{Failure, Handle, Subject, Task};
use crate::script::{BenchKey, Script};
use crate::statistics::summary;
use crate::trace::{Event, Trace};

/// From the last backend's readiness to the opening of the gate.
const SETTLE: Duration = Duration::from_millis(1);

/// Backends of a slice: some 20 µs.
const BATCH: usize = 16;

/// How long cold backends are measured alone, and how long by two threads.
const EACH: Duration = Duration::from_millis(20);

/// Slices of warm backends.
const WARM: usize = 101;

/// The query, out of the trace of a backend that asks nothing else: what lies between its last two commits. `None` if the
/// trace has no two.
pub fn query(trace: &Trace) -> Option<Script> {
    let mut commits = trace.events.iter().enumerate().rev().filter(|(_, event)| **event == Event::Commit);
    let (end, start) = (commits.next()?.0, commits.next()?.0);
    let events = trace.events[start + 1..end].iter().map(|event| match *event {
        Event::ListHit(key) | Event::ListLoad(key) => Event::Hit(key),
        other => other,
    });
    Some(Script::new(&Trace { name: "pgbench query".to_owned(), events: events.collect() }))
}

/// The storms over new caches.
pub struct Storm<'a> {
    /// What each backend asks.
    pub query: &'a Script,
    /// How many they are.
    pub backends: u32,
    /// How often each storm comes.
    pub times: usize,
}

/// What the backends know when the storm begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// Nothing is cached anywhere.
    Start,
    /// The shared table is filled.
    Cold,
    /// The local views are filled too.
    Warm,
}

/// One storm.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Blow {
    /// From the opening of the gate until the last backend is done.
    pub until_last_ns: f64,
    /// Scans of the catalog after the opening, all backends together.
    pub loads: f64,
}

/// What was measured; medians.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Storms {
    /// Nothing cached anywhere.
    pub start: Blow,
    /// The shared table filled.
    pub cold: Blow,
    /// The local views filled.
    pub warm: Blow,
    /// CPU time of the lookups of one cold backend, one after another.
    pub cold_ns: f64,
    /// The same, while another thread does so too; `None` if the two threads hardly ran together.
    pub cold_of_two_ns: Option<f64>,
    /// CPU time of the lookups of one warm backend.
    pub warm_ns: f64,
    /// CPU time to attach one backend.
    pub attach_ns: f64,
}

impl Storm<'_> {
    /// A backend asks the query.
    fn ask<H: Handle>(&self, handle: &mut H, keys: &[BenchKey]) -> Result<(), Failure> {
        let played = play(handle, self.query, keys)?;
        if played.wrong > 0 {
            let workload = self.query.name.clone();
            return Err(WrongAnswers { workload, wrong: played.wrong, lookups: played.lookups }.into());
        }
        Ok(())
    }

    /// A new cache, and what has filled it.
    fn cache<S: Subject>(&self, keys: &[BenchKey]) -> Result<(S, S::Handle), Failure> {
        let subject = S::new(&self.query.catalog(1))?;
        let mut filler = subject.attach()?;
        self.ask(&mut filler, keys)?;
        Ok((subject, filler))
    }

    fn blow<S: Subject>(&self, before: Before, keys: &[BenchKey]) -> Result<Blow, Failure> {
        let (subject, _filler) = match before {
            Before::Start => (S::new(&self.query.catalog(1))?, None),
            Before::Cold | Before::Warm => self.cache(keys).map(|(subject, filler)| (subject, Some(filler)))?,
        };
        // Shut while it is written.
        let gate = RwLock::new(());
        let prepared = Barrier::new(self.backends as usize + 1);
        let backend = || {
            let attached = subject.attach().and_then(|mut handle| {
                if before == Before::Warm {
                    self.ask(&mut handle, keys)?;
                }
                let loads = handle.stats().loads;
                Ok((handle, loads))
            });
            // Whoever has failed goes through the gate too, so that nobody waits for ever.
            prepared.wait();
            drop(gate.read());
            let (mut handle, loads) = attached?;
            let asked = self.ask(&mut handle, keys);
            let done_ns = wall_ns();
            asked.map(|()| (done_ns, handle.stats().loads - loads))
        };
        std::thread::scope(|scope| {
            let shut = gate.write();
            let threads: Vec<_> = (0..self.backends).map(|_| scope.spawn(backend)).collect();
            prepared.wait();
            // The last of them are still on their way from there to the gate.
            std::thread::sleep(SETTLE);
            let opened_ns = wall_ns();
            drop(shut);
            let mut blow = Blow::default();
            for thread in threads {
                let (done_ns, loads) = joined(thread.join())?;
                blow.until_last_ns = blow.until_last_ns.max(done_ns.saturating_sub(opened_ns) as f64);
                blow.loads += loads as f64;
            }
            Ok(blow)
        })
    }

    fn blows<S: Subject>(&self, before: Before, keys: &[BenchKey]) -> Result<Blow, Failure> {
        let blows = (0..self.times).map(|_| self.blow::<S>(before, keys)).collect::<Result<Vec<_>, _>>()?;
        let of = |value: fn(&Blow) -> f64| median(blows.iter().map(value));
        Ok(Blow { until_last_ns: of(|blow| blow.until_last_ns), loads: of(|blow| blow.loads) })
    }

    /// New backends, one after another, in slices of [`BATCH`], for as long as `go_on` says. Attaching is in no slice.
    fn cold_slices<S: Subject>(
        &self,
        subject: &S,
        keys: &[BenchKey],
        mut go_on: impl FnMut(u64) -> bool,
    ) -> Result<Vec<Slice>, Failure> {
        let mut slices = Vec::new();
        let start = wall_ns();
        while go_on(wall_ns() - start) {
            let mut handles = (0..BATCH).map(|_| subject.attach()).collect::<Result<Vec<_>, _>>()?;
            let mut asked = Ok(());
            slices.push(Slice::of(|| asked = handles.iter_mut().try_for_each(|handle| self.ask(handle, keys))));
            asked?;
        }
        Ok(slices)
    }

    fn each<S: Subject>(&self, keys: &[BenchKey]) -> Result<Storms, Failure> {
        let (subject, _filler) = self.cache::<S>(keys)?;
        let for_ns = EACH.as_nanos() as u64;
        let alone = self.cold_slices(&subject, keys, |ns| ns < for_ns)?;
        let both = together(for_ns, || |go_on: &mut dyn FnMut(u64) -> bool| self.cold_slices(&subject, keys, go_on))?;
        let costs = HitCosts::new(&alone, &both, BATCH);
        let (attach_ns, handles) =
            cpu_time(|| (0..BATCH).map(|_| subject.attach()).collect::<Result<Vec<S::Handle>, _>>());
        let mut handles = handles?;
        let mut warm = Vec::new();
        for _ in 0..WARM {
            let mut asked = Ok(());
            warm.push(Slice::of(|| asked = handles.iter_mut().try_for_each(|handle| self.ask(handle, keys))));
            asked?;
        }
        // The first time they were cold.
        let warm = warm.iter().skip(1).map(|slice| slice.cpu_ns as f64 / BATCH as f64);
        Ok(Storms {
            cold_ns: costs.one_ns.unwrap_or(f64::NAN),
            cold_of_two_ns: costs.two_ns,
            warm_ns: median(warm),
            attach_ns: attach_ns as f64 / BATCH as f64,
            ..Storms::default()
        })
    }
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    summary(values).map_or(f64::NAN, |summary| summary.median)
}

impl Task for Storm<'_> {
    type Output = Result<Storms, Failure>;

    fn run<S: Subject>(&self) -> Self::Output {
        let keys = self.query.keys(0);
        let each = self.each::<S>(&keys)?;
        let blows = |before| self.blows::<S>(before, &keys);
        Ok(Storms { start: blows(Before::Start)?, cold: blows(Before::Cold)?, warm: blows(Before::Warm)?, ..each })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::Kind;
    use crate::trace::{packed, parse};

    fn pgbench() -> Script {
        query(packed().unwrap().iter().find(|trace| trace.name == "simple_S").unwrap()).unwrap()
    }

    /// As PostgreSQL 15 was measured: twelve entries, one of them a list, one known to be absent, and 31 lookups.
    #[test]
    fn the_query_asks_for_twelve_entries() {
        let query = pgbench();
        assert_eq!((query.lookups, query.rows.len(), query.changes, query.left_out.lists), (31, 12, 0, 0));
        assert_eq!(query.rows.iter().filter(|row| !row.at_first).count(), 1, "one is known to be absent");
        let cut = parse("cut", "1 a H\n# C\n1 b LH 1 1\n").unwrap();
        assert!(super::query(&cut).is_none());
        let whole = parse("whole", "1 a H\n# C\n1 b LH 1 1\n# C\n1 c H\n").unwrap();
        let script = super::query(&whole).unwrap();
        assert_eq!((script.lookups, script.rows[0].key.hash), (1, 0xb));
    }

    /// After the gate a warm backend loads nothing; a cold one loads nothing if the cache is shared, and everything if it is
    /// private; and after a start somebody has to.
    #[test]
    fn only_private_caches_load_again() {
        let query = pgbench();
        for kind in Kind::ALL {
            let storms = kind.run(&Storm { query: &query, backends: 6, times: 1 }).unwrap();
            assert_eq!(storms.cold.loads, if kind.is_private() { 72.0 } else { 0.0 }, "{}", kind.name());
            assert_eq!(storms.warm.loads, 0.0, "{}", kind.name());
            assert!((12.0..=72.0).contains(&storms.start.loads), "{}: {}", kind.name(), storms.start.loads);
        }
    }

    /// A query that is answered otherwise than PostgreSQL did is no figure: all threads come back, and it is an error.
    #[test]
    fn a_wrong_answer_is_an_error() {
        let mut query = pgbench();
        query.rows[0].at_first = !query.rows[0].at_first;
        let error = Kind::Ours.run(&Storm { query: &query, backends: 3, times: 1 }).unwrap_err();
        assert!(error.downcast_ref::<WrongAnswers>().is_some(), "{error}");
        let storm = Storm { query: &query, backends: 3, times: 1 };
        let error = storm.blow::<crate::rivals::ours::Ours>(Before::Start, &query.keys(0)).unwrap_err();
        assert!(error.downcast_ref::<WrongAnswers>().is_some(), "{error}");
    }
}
