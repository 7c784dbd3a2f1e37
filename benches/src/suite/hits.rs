//! The stages `hits` and `rivals`: what a hit costs, by one thread and by two.

use super::Form;
use super::runner::{Bounds, Runner, column, of};
use crate::report::{Row, Target};
use crate::rivals::{Failure, Kind};
use crate::statistics::{ratio, summary};
use crate::work::hits::{self, HitCosts, Hits, Mix};

/// The stage `hits`.
pub(super) fn rows(runner: &mut Runner<'_>, form: Form, mixes: &[&Mix]) -> Result<Vec<Row>, Failure> {
    let results = measure(runner, form.bounds(7, 12), form, mixes, &Kind::CORE)?;
    let mut rows = Vec::new();
    for (mix, results) in mixes.iter().zip(&results) {
        rows.extend(rows_of(mix.name, &Kind::CORE, results, true));
    }
    Ok(rows)
}

/// The stage `rivals`: the same, of everything that one could take, side by side.
pub(super) fn rival_rows(runner: &mut Runner<'_>, form: Form, mix: &Mix) -> Result<Vec<Row>, Failure> {
    let results = measure(runner, form.bounds(7, 6), form, &[mix], &Kind::RIVALS)?;
    let name = format!("{}, rivals", mix.name);
    let mut rows = rows_of(&name, &Kind::RIVALS, &results[0], false);
    for (kind, rows) in Kind::RIVALS.iter().zip(rows.chunks_mut(3)) {
        if let ([hit, ..], false) = (rows, kind.lacks().is_empty()) {
            hit.note = format!("{}; lacks: {}", hit.note, kind.lacks());
        }
    }
    Ok(rows)
}

/// By workload, subject and round.
type Measured = Vec<Vec<Vec<HitCosts>>>;

fn measure(
    runner: &mut Runner<'_>,
    bounds: Bounds,
    form: Form,
    mixes: &[&Mix],
    kinds: &[Kind],
) -> Result<Measured, Failure> {
    let (one, two) = form.turn();
    runner.rounds(bounds, mixes.len(), kinds, |workload, kind| kind.run(&Hits { mix: mixes[workload], one, two }))
}

/// Three rows for each subject. `targets`: with what this project's cache is to reach.
fn rows_of(name: &str, kinds: &[Kind], results: &[Vec<HitCosts>], targets: bool) -> Vec<Row> {
    let bare = of(kinds, results, Kind::BareMap).map(|costs| column(costs, |costs| costs.one_ns)).unwrap_or_default();
    let mut rows = Vec::new();
    for (kind, costs) in kinds.iter().zip(results) {
        let one = column(costs, |costs| costs.one_ns);
        let mut hit = Row::new(name, kind.name(), "hit, one thread", "ns")
            .measured(summary(one.iter().copied().flatten()))
            .compared(ratio(&one, &bare))
            .note(format!("CPU time; ratio to the bare private map; {} rounds", costs.len()));
        let mut gain = gain_row(name, kind.name(), "gain from one to two threads", costs);
        if targets && *kind == Kind::Ours {
            gain = gain.target(Target::value_at_least(1.9));
            if name == "zipf10k" {
                hit = hit.target(Target::ratio_at_most(1.3));
            }
        }
        let two = Row::new(name, kind.name(), "hit, two threads at once", "ns")
            .measured(summary(costs.iter().filter_map(|costs| costs.two_ns)))
            .note("CPU time of the slices in which both ran");
        rows.extend([hit, two, gain]);
    }
    rows
}

/// How much more two do than one.
pub(super) fn gain_row(name: &str, subject: &str, metric: &str, costs: &[HitCosts]) -> Row {
    let counted: usize = costs.iter().map(|costs| costs.accompanied).sum();
    let slices: usize = costs.iter().map(|costs| costs.slices).sum();
    let gains = costs.iter().filter_map(HitCosts::gain);
    let rounds = gains.clone().count();
    let note = if rounds > 0 {
        format!("in {counted} of {slices} slices both ran; {rounds} rounds")
    } else {
        format!(
            "not measured: the two ran together in {counted} of {slices} slices only; at least {} a round are needed",
            hits::SLICES_LEAST
        )
    };
    Row::new(name, subject, metric, "×").measured(summary(gains)).note(note)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What does not depend on the machine: no row without a figure or a reason.
    #[test]
    fn too_few_slices_give_no_gain() {
        let lonely = HitCosts { one_ns: Some(5.0), two_ns: None, accompanied: 3, slices: 900 };
        let row = gain_row("zipf10k", "ours", "gain", &[lonely; 4]);
        assert_eq!((row.value, row.met), (None, None));
        assert!(row.note.contains("12 of 3600"), "{}", row.note);
        let both = HitCosts { two_ns: Some(5.0), accompanied: 30, ..lonely };
        assert_eq!(gain_row("zipf10k", "ours", "gain", &[lonely, both]).value, Some(2.0));
    }
}
