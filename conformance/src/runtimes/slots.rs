//! Runs the programs of the lifetime model over the shared layer of one build, each step watched.

use super::{body, cache, thread};
use crate::lifetime::{Do, Log, Scenario};
use crate::rules::Rule;
use cache::{Key, Publication, Reference, Shared};
use catcache_model::lifetime::Step;
use std::sync::Arc;

struct Watch {
    log: Arc<Log>,
    me: u8,
    broken: Option<Rule>,
}

/// `None`: not a step of this model.
fn step(step: cache::Step) -> Option<Step> {
    Some(match step {
        cache::Step::Find => Step::Find,
        cache::Step::Unlink => Step::Unlink,
        cache::Step::Release => Step::Release,
        cache::Step::Free => Step::Free,
        cache::Step::Allocate => Step::Allocate,
        cache::Step::Evict => Step::Evict,
        cache::Step::Publish => Step::Publish,
        _ => return None,
    })
}

impl cache::Probe for Watch {
    fn took(&self, at: cache::Step, seen: cache::Seen) {
        if let Some(step) = step(at) {
            self.log.took(self.me, step, body::saw(&seen));
        }
    }

    fn keeps(&self, asked: cache::Rule) -> bool {
        self.broken.is_none_or(|broken| broken != body::rule(asked))
    }
}

fn key(number: &u8) -> Key<'_> {
    Key { database: 1, cache: 0, hash: (*number).into(), bytes: std::slice::from_ref(number) }
}

/// The segment of a scenario, with its first entries.
///
/// # Errors
/// What the code refused, in words.
pub fn segment(scenario: &Scenario) -> Result<Shared, String> {
    let config = cache::Config {
        backends: 1,
        ring: 2,
        uniform: Some(cache::shared::Uniform { slots: scenario.slots.into(), bytes: 64 }),
        ..cache::Config::tiny()
    };
    let shared = Shared::anonymous(&config).map_err(|e| e.to_string())?;
    for number in 0..scenario.linked {
        match shared.publish(&(), &key(&number), Some(&[number, u8::MAX]), shared.token(&())) {
            Publication::Published(reference) => shared.release(&(), reference),
            other => return Err(format!("the first entries can't be published: {other:?}")),
        }
    }
    Ok(shared)
}

/// Looks at an entry twice: it bears the key, and does not change under our eyes.
fn look(shared: &Shared, reference: &Reference, number: u8) -> Result<(), String> {
    let first = shared.row(reference).map(<[u8]>::to_vec);
    thread::yield_now();
    let second = shared.row(reference);
    if first.as_deref() != second {
        return Err(format!("a row changed under a reference: {first:?}, then {second:?}"));
    }
    match second {
        Some([of, _]) if *of == number => Ok(()),
        other => Err(format!("an entry of key {number} has the row {other:?}")),
    }
}

fn run_one(shared: &Shared, watch: &Watch, ops: &[Do]) -> Result<(), String> {
    for (nth, op) in ops.iter().enumerate() {
        watch.log.begins(watch.me, *op);
        match op {
            Do::Get(number) => {
                if let Some(reference) = shared.find(watch, &key(number)) {
                    let looked = look(shared, &reference, *number);
                    shared.release(watch, reference);
                    looked?;
                }
            }
            Do::Put(number) => {
                let row = [*number, watch.me << 4 | nth as u8];
                match shared.publish(watch, &key(number), Some(&row), shared.token(watch)) {
                    Publication::Published(reference) | Publication::Existing(reference) => {
                        let looked = look(shared, &reference, *number);
                        shared.release(watch, reference);
                        looked?;
                    }
                    Publication::Private { .. } => {}
                }
            }
            Do::Evict(number) => {
                shared.evict(watch, &key(number));
            }
            Do::Change(number) => {
                let mut bracket = shared.bracket([(1, 0, u32::from(*number))]);
                bracket.open(watch);
                bracket.close(watch);
            }
        }
    }
    Ok(())
}

/// Runs a scenario, a thread for each program, and says what is left when all have ended: slots that are free, and entries that
/// are linked and not referred to.
///
/// # Errors
/// What a thread found wrong.
pub fn run(scenario: &Scenario, log: &Arc<Log>, broken: Option<Rule>) -> Result<(u32, u32), String> {
    let shared = segment(scenario)?;
    let threads: Vec<_> = (0..)
        .zip(&scenario.threads)
        .map(|(me, ops)| {
            let (shared, ops) = (shared.clone(), ops.clone());
            let watch = Watch { log: Arc::clone(log), me, broken };
            thread::spawn(move || run_one(&shared, &watch, &ops))
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked".to_owned())??;
    }
    let image = shared.peek();
    let quiet = image.entries.iter().filter(|entry| entry.linked && entry.references == 0).count();
    Ok((image.free_slots, quiet as u32))
}
