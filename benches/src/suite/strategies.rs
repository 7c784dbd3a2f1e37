//! The stage `strategies`: the locks of the shared table, side by side, where they matter: when the shared table answers.
//!
//! Our own table with one lock for all of it, with 16 and with 128 (the default), and the rivals that have nothing but a
//! shared table. A hit in the local view takes no lock, so there is nothing to compare in it. A probe that takes no lock at all
//! is not built: the figures are to say whether it would pay.

use super::Form;
use super::hits::gain_row;
use super::runner::{Runner, column, of};
use crate::report::{Row, Target};
use crate::rivals::{Failure, Kind};
use crate::statistics::{ratio, summary};
use crate::work::hits::{HitCosts, Mix};
use crate::work::mixed::Mixed;
use crate::work::touches::{FirstTouches, Touches};

/// New backends of one turn of the first touches.
const TOUCHING: usize = 5;

/// The subjects.
const KINDS: [Kind; 5] = [Kind::OneLock, Kind::Partitioned, Kind::OursOne, Kind::OursSixteen, Kind::Ours];

/// What stands beside each strategy.
const NOT_BUILT: &str = "a probe without a lock is not built";

/// The stage `strategies`.
pub(super) fn rows(runner: &mut Runner<'_>, form: Form, mix: &Mix) -> Result<Vec<Row>, Failure> {
    let (one, two) = form.turn();
    let mixed = Mixed::new();
    let mut mixed_costs = Vec::new();
    let both = runner.rounds(form.bounds(7, 5), 1, &KINDS, |_, kind| {
        let answer = kind.run(&FirstTouches { mix, backends: TOUCHING })?;
        if kind == Kind::Ours {
            mixed_costs.extend(mixed.run(TOUCHING)?);
        }
        Ok((answer, kind.run(&Touches { mix, one, two })?))
    })?;
    let results = &both[0];
    let together = |costs: &[(Option<f64>, HitCosts)]| column(costs, |(_, costs)| costs.two_ns);
    let base = of(&KINDS, results, Kind::Ours).map(|costs| together(costs)).unwrap_or_default();
    let mut rows = Vec::new();
    for (kind, costs) in KINDS.iter().zip(results) {
        let rounds = costs.len();
        let answer = Row::new(mix.name, kind.name(), "shared answer to a local miss", "ns")
            .measured(summary(costs.iter().filter_map(|(answer, _)| *answer)))
            .note(format!("CPU time; first touches of a new backend in the mix's order; {rounds} rounds"));
        rows.push(if *kind == Kind::Ours { answer.target(Target::value_at_most(300.0)) } else { answer });
        let one = Row::new(mix.name, kind.name(), "shared answer, one thread", "ns")
            .measured(summary(costs.iter().filter_map(|(_, costs)| costs.one_ns)))
            .note("CPU time; the same in slices of uninterrupted work, as by two threads");
        let two = together(costs);
        let shared = Row::new(mix.name, kind.name(), "shared answer, two threads at once", "ns")
            .measured(summary(two.iter().copied().flatten()))
            .compared(ratio(&two, &base))
            .note(format!("CPU time; ratio to 128 partitions; {NOT_BUILT}"));
        let costs: Vec<HitCosts> = costs.iter().map(|(_, costs)| *costs).collect();
        let gain = gain_row(mix.name, kind.name(), "gain from one to two threads on shared answers", &costs);
        rows.extend([one, shared, gain]);
    }
    let ([lists, absent], rounds) = (mixed.shares(), mixed_costs.len());
    let answer = Row::new("zipf10k, mixed", Kind::Ours.name(), "shared answer to a local miss", "ns")
        .measured(summary(mixed_costs))
        .note(format!("CPU time; {lists:.0} % lists of 4 rows, each read, {absent:.0} % absent rows; {rounds} rounds"))
        .target(Target::value_at_most(300.0));
    rows.push(answer);
    Ok(rows)
}
