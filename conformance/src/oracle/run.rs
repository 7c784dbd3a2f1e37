//! Long random runs of the real cache on threads, recorded for the oracle.
//!
//! Everything that can go wrong is made likely: few keys, two to a hash, a table of a few slots, a ring that overflows, a
//! local view that is trimmed, rows of several sizes, toasted rows, transactions of several commands that abort or
//! fail, in part or whole.
//! The amount of work is fixed; nothing depends on time.

use super::record::{Recorded, Tickets, fill};
use super::{History, Tally, Violation};
use shared_catcache::backend::{MemoryCatalog, MemoryError, WriteError};
use shared_catcache::shared::Uniform;
use shared_catcache::{Config, Error, Rule, Shared, Stats};
use std::thread;

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Backends that only read.
    pub readers: u32,
    /// Backends that write, and read in between.
    pub writers: u32,
    /// Keys; the upper half has the hashes of the lower half, and differs from it in columns, database or cache alone.
    pub keys: u32,
    /// Rounds of each backend: a few reads, or a transaction.
    pub rounds: u32,
    /// Most entries that a local view keeps at an accept.
    pub local: u32,
    /// Sizes of the segment.
    pub config: Config,
    /// What the random choices follow from.
    pub seed: u64,
    /// A rule that every backend breaks, to see whether the oracle notices.
    pub fault: Option<Rule>,
    /// For a race detector: the recording must not order the threads.
    pub detector: bool,
}

impl Plan {
    /// Sizes that make everything happen, for `rounds` of each of `readers` and `writers`.
    pub fn small(readers: u32, writers: u32, rounds: u32, seed: u64) -> Plan {
        // A ring of sixteen messages; a stamp for two hashes; fewer slots than entries that are wanted at one time.
        let uniform = Some(Uniform { slots: 14, bytes: 512 });
        let config = Config { partitions: 2, buckets: 4, stripes: 4, ring: 16, uniform, ..Config::tiny() };
        let config = Config { backends: readers + writers, ..config };
        Plan { readers, writers, keys: 16, rounds, local: 4, config, seed, fault: None, detector: false }
    }
}

impl Plan {
    /// The plans that every verification runs: more readers, more writers, a ring that everybody falls behind, and a table
    /// with room for everything and one stamp for all.
    pub fn all(rounds: u32, seed: u64) -> Vec<Plan> {
        let mut overrun = Plan::small(2, 2, rounds, seed + 2);
        overrun.config.ring = 2;
        let mut roomy = Plan::small(3, 2, rounds, seed + 3);
        roomy.config = Config { stripes: 1, bytes: 1 << 20, uniform: None, ..roomy.config };
        vec![Plan::small(2, 2, rounds, seed), Plan::small(3, 1, rounds, seed + 1), overrun, roomy]
    }
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was judged.
    pub tally: Tally,
    /// What the segment counted.
    pub stats: Stats,
    /// How often a backend fell behind the ring.
    pub resets: u64,
    /// How often a load was started again.
    pub restarts: u64,
}

/// Why a run has no verdict, or a bad one.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The cache answered what it must not.
    #[error("{0}")]
    Violation(#[from] Box<Violation>),
    /// The cache refused.
    #[error("the cache refused: {0}")]
    Cache(#[from] Error),
    /// The catalog refused.
    #[error("the catalog refused: {0}")]
    Catalog(#[from] MemoryError),
    /// A write was refused.
    #[error("a write was refused: {0}")]
    Write(#[from] WriteError),
    /// A backend's thread has panicked.
    #[error("backend {0} has panicked; its message is above")]
    Panic(usize),
}

/// Runs the plan on one thread a backend and judges what came of it.
///
/// # Errors
/// A violation, or whatever kept the run from its end.
pub fn run(plan: &Plan) -> Result<Outcome, RunError> {
    let shared = Shared::anonymous(&plan.config)?;
    let catalog = MemoryCatalog::new();
    let tickets = if plan.detector { Tickets::unordered() } else { Tickets::new() };
    let hashes = plan.keys.div_ceil(2);
    // Every third key is absent at first, every fifth is toasted.
    let present: Vec<u32> = (0..plan.keys).filter(|key| key % 3 != 2).collect();
    present.iter().for_each(|key| fill(&catalog, *key, hashes, key % 5 == 0));

    let mut backends = Vec::new();
    for number in 0..plan.readers + plan.writers {
        let mut one = Recorded::attach(&shared, &catalog, &tickets, number, hashes, plan.fault)?;
        one.backend().set_local_limit(plan.local);
        backends.push(one);
    }
    let mut backends = thread::scope(|scope| {
        let threads: Vec<_> =
            backends.into_iter().zip(0..).map(|(one, number)| scope.spawn(move || work(plan, one, number))).collect();
        let join = |(number, thread): (usize, thread::ScopedJoinHandle<'_, _>)| {
            thread.join().map_err(|_| RunError::Panic(number))?
        };
        threads.into_iter().enumerate().map(join).collect::<Result<Vec<Recorded>, RunError>>()
    })?;

    // At rest: everybody accepts and reads everything.
    let mut history = History { present, quiet: Some(tickets.draw()), ..History::default() };
    let (mut resets, mut restarts) = (0, 0);
    for one in &mut backends {
        one.accept();
        (0..plan.keys).try_for_each(|key| one.read(key))?;
        let stats = one.backend().stats();
        resets += stats.resets;
        restarts += stats.restarts;
    }
    history.backends = backends.into_iter().map(Recorded::into_events).collect();
    Ok(Outcome { tally: history.check()?, stats: shared.stats(), resets, restarts })
}

/// The rounds of one backend.
fn work(plan: &Plan, mut one: Recorded, number: u32) -> Result<Recorded, RunError> {
    let mut dice = Dice(plan.seed ^ u64::from(number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    for _ in 0..plan.rounds {
        if number < plan.readers {
            read_some(plan, &mut one, &mut dice)?;
        } else {
            transact(plan, &mut one, &mut dice)?;
        }
    }
    Ok(one)
}

fn read_some(plan: &Plan, one: &mut Recorded, dice: &mut Dice) -> Result<(), RunError> {
    for _ in 0..=dice.below(5) {
        let key = dice.below(plan.keys);
        one.read(key)?;
        if dice.below(4) == 0 {
            one.read(key)?;
        }
    }
    match dice.below(16) {
        0..=5 => one.accept(),
        6 => thread::yield_now(),
        _ => {}
    }
    Ok(())
}

fn transact(plan: &Plan, one: &mut Recorded, dice: &mut Dice) -> Result<(), RunError> {
    one.begin()?;
    let commands = dice.below(3) + 1;
    let mut depth = 0;
    for command in 0..commands {
        // The one before has ended with its changes, or it could not be one.
        if (commands > 1 || command == 0) && depth < 2 && dice.below(4) == 0 {
            one.begin_sub()?;
            depth += 1;
        }
        for _ in 0..=dice.below(3) {
            let key = dice.below(plan.keys);
            if !one.write(key, dice.below(4) != 0)? {
                // Somebody else holds the key; a wait could deadlock.
                one.abort()?;
                return Ok(());
            }
            if dice.below(3) == 0 {
                one.read(key)?;
            }
        }
        if dice.below(2) == 0 {
            one.read(dice.below(plan.keys))?;
        }
        // A transaction of one command may commit without ending it, as `COMMIT` after one statement does.
        if commands > 1 || dice.below(2) == 0 {
            one.command_end();
            one.read(dice.below(plan.keys))?;
        }
        if dice.below(8) == 0 {
            one.accept();
        }
        if depth > 0 && dice.below(2) == 0 {
            one.end_sub(dice.below(2) == 0)?;
            depth -= 1;
            one.read(dice.below(plan.keys))?;
        }
    }
    // Those that are still open end with the transaction.
    match dice.below(8) {
        0 | 1 => one.abort()?,
        2 => one.commit(true),
        _ => one.commit(false),
    }
    for _ in 0..dice.below(3) {
        one.read(dice.below(plan.keys))?;
    }
    Ok(())
}

/// Random numbers that follow from a seed (SplitMix64).
struct Dice(u64);

impl Dice {
    /// A number below `bound`.
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ z >> 31) % u64::from(bound)) as u32
    }
}
