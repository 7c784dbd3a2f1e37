//! The stage `processes`: what [`hits`](super::hits) and [`strategies`](super::strategies) say of threads, of processes.

use std::path::Path;
use std::time::{Duration, Instant};

use super::Form;
use super::hits::gain_row;
use super::runner::Runner;
use crate::report::{Row, Target};
use crate::rivals::{Failure, Kind};
use crate::statistics::summary;
use crate::work::hits::{HitCosts, Mix};
use crate::work::processes::Workers;
use crate::worker::Duty;

/// How long a worker may say nothing before it is given up.
const PATIENCE: Duration = Duration::from_secs(20);

/// The stage `processes`.
pub(super) fn rows(program: &Path, runner: &mut Runner<'_>, form: Form, mix: &Mix) -> Result<Vec<Row>, Failure> {
    let (one, two) = form.turn();
    let bounds = form.bounds(7, 4);
    let start = Instant::now();
    let mut workers = Workers::start(program, 2, mix, PATIENCE)?;
    let (mut hits, mut touches) = (Vec::new(), Vec::new());
    while hits.len() < bounds.rounds && (hits.is_empty() || start.elapsed() < bounds.time) && !runner.stopped() {
        hits.push(workers.round(Duty::Hits, one, two)?);
        touches.push(workers.round(Duty::Touches, one, two)?);
        runner.tell(hits.len() as f64 / bounds.rounds as f64);
    }
    let mut rows = rows_of(mix.name, &hits, "hit, one process", "gain from one to two processes");
    rows[1] = rows[1].clone().target(Target::value_at_least(1.9));
    rows.extend(rows_of(
        mix.name,
        &touches,
        "shared answer, one process",
        "gain from one to two processes on shared answers",
    ));
    Ok(rows)
}

fn rows_of(mix: &str, costs: &[HitCosts], one: &str, gain: &str) -> Vec<Row> {
    let name = format!("{mix}, processes");
    let cost = Row::new(&name, Kind::Ours.name(), one, "ns")
        .measured(summary(costs.iter().filter_map(|costs| costs.one_ns)))
        .note(format!("CPU time; a new process of this program, attached to the segment; {} rounds", costs.len()));
    vec![cost, gain_row(&name, Kind::Ours.name(), gain, costs)]
}
