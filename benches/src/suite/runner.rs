//! Rounds of turns, until the bounds are reached or somebody breaks them off.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Progress, Stage};
use crate::random::Random;
use crate::rivals::{Failure, Kind};

/// How a stage is bounded.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) rounds: usize,
    pub(super) time: Duration,
}

/// Carries a stage's rounds out.
pub(super) struct Runner<'a> {
    pub(super) stop: &'a AtomicBool,
    pub(super) progress: &'a mut dyn FnMut(&Progress),
    /// What is to be done, in this order.
    pub(super) stages: Vec<Stage>,
    /// The one that is running.
    pub(super) at: usize,
    pub(super) random: Random,
}

impl Runner<'_> {
    pub(super) fn stopped(&self) -> bool {
        // Relaxed: a flag that guards nothing.
        self.stop.load(Ordering::Relaxed)
    }

    /// `part` of the running stage is done, from 0 to 1.
    pub(super) fn tell(&mut self, part: f64) {
        let seconds = |stages: &[Stage]| stages.iter().map(|stage| stage.seconds()).sum::<f64>();
        let Some(stage) = self.stages.get(self.at) else { return };
        let done = seconds(&self.stages[..self.at]) + stage.seconds() * part.clamp(0.0, 1.0);
        (self.progress)(&Progress { stage: stage.name(), done: (done / seconds(&self.stages)).min(1.0) });
    }

    /// Rounds of turns: in each round, for each of `workloads` in a new order, `turn(workload, subject)` for each of
    /// `subjects` in a new order, until the bounds are reached. Returns what came of it by workload and subject, one for
    /// each whole round.
    pub(super) fn rounds<T>(
        &mut self,
        bounds: Bounds,
        workloads: usize,
        subjects: &[Kind],
        mut turn: impl FnMut(usize, Kind) -> Result<T, Failure>,
    ) -> Result<Vec<Vec<Vec<T>>>, Failure> {
        let empty = || subjects.iter().map(|_| Vec::new()).collect();
        let mut results: Vec<Vec<Vec<T>>> = (0..workloads).map(|_| empty()).collect();
        let start = Instant::now();
        let mut order: Vec<usize> = (0..workloads).collect();
        let mut inner: Vec<usize> = (0..subjects.len()).collect();
        for round in 0..bounds.rounds {
            self.random.shuffle(&mut order);
            for (finished, &workload) in order.iter().enumerate() {
                self.random.shuffle(&mut inner);
                for &subject in &inner {
                    if self.stopped() {
                        // A round that was not finished compares nothing.
                        for results in results.iter_mut().flatten() {
                            results.truncate(round);
                        }
                        return Ok(results);
                    }
                    results[workload][subject].push(turn(workload, subjects[subject])?);
                }
                let by_rounds = (round * workloads + finished + 1) as f64 / (bounds.rounds * workloads) as f64;
                let by_time = start.elapsed().as_secs_f64() / bounds.time.as_secs_f64();
                self.tell(by_rounds.max(by_time));
            }
            // Another round takes as long as those before it did.
            let next_end = start.elapsed().mul_f64((round + 2) as f64 / (round + 1) as f64);
            if next_end > bounds.time {
                break;
            }
        }
        Ok(results)
    }
}

/// A column of rounds.
pub(super) fn column<T>(results: &[T], of: impl Fn(&T) -> Option<f64>) -> Vec<Option<f64>> {
    results.iter().map(of).collect()
}

/// What came of a subject, of what came of all of them.
pub(super) fn of<'a, T>(kinds: &[Kind], results: &'a [Vec<T>], wanted: Kind) -> Option<&'a Vec<T>> {
    kinds.iter().zip(results).find(|(kind, _)| **kind == wanted).map(|(_, results)| results)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runner<'a>(stop: &'a AtomicBool, progress: &'a mut dyn FnMut(&Progress)) -> Runner<'a> {
        Runner { stop, progress, stages: vec![Stage::Hits], at: 0, random: Random::new(1) }
    }

    const TWO: [Kind; 2] = [Kind::BareMap, Kind::Ours];

    #[test]
    fn every_subject_has_its_turn_in_every_round() {
        let (stop, mut told) = (AtomicBool::new(false), Vec::new());
        let mut listen = |progress: &Progress| told.push(progress.done);
        let bounds = Bounds { rounds: 4, time: Duration::from_secs(60) };
        let mut order = Vec::new();
        let turn = |workload: usize, kind: Kind| {
            order.push(workload);
            Ok((workload, kind))
        };
        let results = runner(&stop, &mut listen).rounds(bounds, 5, &TWO, turn).unwrap();
        let expected: Vec<_> = (0..5).map(|workload| TWO.map(|kind| vec![(workload, kind); 4]).to_vec()).collect();
        assert_eq!(results, expected);
        assert!(order.chunks(2).all(|pair| pair[0] == pair[1]), "the subjects of a workload follow one another");
        let mut rounds: Vec<&[usize]> = order.chunks(10).collect();
        assert_eq!(rounds.len(), 4);
        rounds.dedup();
        assert!(rounds.len() > 1, "the order changes");
        assert!(told.is_sorted() && told.len() == 20);
    }

    /// Time is up from the beginning: one round is made all the same.
    #[test]
    fn there_is_always_one_round() {
        let stop = AtomicBool::new(false);
        let bounds = Bounds { rounds: 4, time: Duration::ZERO };
        let results = runner(&stop, &mut |_| {}).rounds(bounds, 1, &TWO, |_, _| Ok(())).unwrap();
        assert_eq!(results, [[[()], [()]]]);
    }

    #[test]
    fn a_round_that_is_broken_off_does_not_count() {
        let stop = AtomicBool::new(false);
        let bounds = Bounds { rounds: 9, time: Duration::from_secs(60) };
        let mut turns = 0;
        let turn = |_, _| {
            turns += 1;
            stop.store(turns == 3, Ordering::Relaxed);
            Ok(())
        };
        let results = runner(&stop, &mut |_| {}).rounds(bounds, 1, &TWO, turn).unwrap();
        assert_eq!(results, [[[()], [()]]]);
    }
}
