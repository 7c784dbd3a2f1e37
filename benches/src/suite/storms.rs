//! The stage `storm`: forty-eight backends connect and ask for the same twelve entries, all at once.

use super::runner::{Runner, column};
use super::{Form, trace_named};
use crate::report::{Row, Target};
use crate::rivals::{Failure, Kind};
use crate::script::Script;
use crate::statistics::{ratio, summary};
use crate::trace::Trace;
use crate::work::storm::{Storm, Storms, query};

/// How many they are.
const BACKENDS: u32 = 48;

/// How often each storm comes in a turn.
const TIMES: usize = 5;

/// Without the bare map, which is as private as the catcache; without the caches off the shelf, which are as shared as the
/// partitioned locks.
const KINDS: [Kind; 6] =
    [Kind::Catcache, Kind::OneLock, Kind::Partitioned, Kind::OursOne, Kind::OursSixteen, Kind::Ours];

/// The trace that the query is taken from.
const TRACE: &str = "simple_S";

/// The stage `storm`.
pub(super) fn rows(runner: &mut Runner<'_>, form: Form, traces: &[Trace]) -> Result<Vec<Row>, Failure> {
    let query = query(trace_named(traces, TRACE)?).ok_or("the trace simple_S has no query between two commits")?;
    let task = Storm { query: &query, backends: BACKENDS, times: TIMES };
    let results = runner.rounds(form.bounds(7, 4), 1, &KINDS, |_, kind| kind.run(&task))?;
    let mut rows = Vec::new();
    for (kind, storms) in KINDS.iter().zip(&results[0]) {
        rows.extend(rows_of(*kind, storms, &query));
    }
    Ok(rows)
}

fn rows_of(kind: Kind, storms: &[Storms], query: &Script) -> Vec<Row> {
    let lookups = query.lookups;
    let values = |value: fn(&Storms) -> f64| column(storms, |storms| Some(value(storms)).filter(|ns| ns.is_finite()));
    let row = |metric: &str, unit: &str, values: &[Option<f64>]| {
        let name = format!("storm, {BACKENDS} backends");
        Row::new(name, kind.name(), metric, unit).measured(summary(values.iter().copied().flatten()))
    };
    let warm = values(|storms| storms.warm.until_last_ns / 1e3);
    let cold = values(|storms| storms.cold.until_last_ns / 1e3);
    let start = values(|storms| storms.start.until_last_ns / 1e3);
    let (warm_each, cold_each) = (values(|storms| storms.warm_ns), values(|storms| storms.cold_ns));
    let of_two = column(storms, |storms| storms.cold_of_two_ns);
    let until = row("cold: until the last is done", "µs", &cold).compared(ratio(&cold, &warm)).note(format!(
        "wall, from the moment when all {BACKENDS} threads are let go until the last has one pgbench query's {lookups} \
         lookups; table filled, local views empty; ratio to warm; most of both is waking threads; {} rounds",
        storms.len()
    ));
    vec![
        if kind == Kind::Ours { until.target(Target::ratio_at_most(1.5)) } else { until },
        row("warm: until the last is done", "µs", &warm).note("the same, local views filled"),
        row("after a start: until the last is done", "µs", &start)
            .compared(ratio(&start, &warm))
            .note("the same, table and local views empty; ratio to warm"),
        row("after a start: loads", "loads", &values(|storms| storms.start.loads))
            .note(format!("scans of the catalog by all {BACKENDS}, for {} entries", query.rows.len())),
        row("cold: lookups of one backend", "ns", &cold_each).compared(ratio(&cold_each, &warm_each)).note(format!(
            "CPU time of the {lookups} lookups and nothing else, one backend after another; ratio to warm"
        )),
        row("warm: lookups of one backend", "ns", &warm_each).note("the same, local views filled"),
        row("cold: lookups of one backend, two threads at once", "ns", &of_two)
            .compared(ratio(&of_two, &cold_each))
            .note("the same on the same twelve entries; ratio to one thread"),
        row("attach", "ns", &values(|storms| storms.attach_ns)).note("CPU time to attach one more backend"),
    ]
}
