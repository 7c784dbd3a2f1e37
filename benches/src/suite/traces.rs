//! The stage `traces`: what PostgreSQL asked, replayed by one backend and by many.

use super::runner::{Runner, column, of};
use super::{BACKENDS, Form, trace_name};
use crate::report::Row;
use crate::rivals::{Failure, Kind};
use crate::script::Script;
use crate::statistics::{ratio, summary};
use crate::trace::Trace;
use crate::work::replay::{Replay, Replayed};

/// Lookups of a turn of a trace: short traces are replayed several times.
const LOOKUPS_LEAST: u64 = 20_000;

/// The stage `traces`.
pub(super) fn rows(runner: &mut Runner<'_>, form: Form, traces: &[Trace]) -> Result<Vec<Row>, Failure> {
    let cut = |trace: &Trace, backends| Script::new(&trace.first(form.lookups(backends)));
    let cells: Vec<(Script, u32, bool)> = traces
        .iter()
        .flat_map(|trace| BACKENDS.map(|backends| (trace, cut(trace, backends), backends)))
        .map(|(trace, script, backends)| {
            let whole = script.lookups == trace.counts().lookups();
            (script, backends, whole)
        })
        .collect();
    let results = runner.rounds(form.bounds(5, 10), cells.len(), &Kind::CORE, |workload, kind| {
        let (script, backends, _) = &cells[workload];
        replayed(kind, script, *backends)
    })?;
    let mut rows = Vec::new();
    for ((script, backends, whole), results) in cells.iter().zip(&results) {
        let per_lookup = |replayed: &Replayed| Some(replayed.cpu_ns as f64 / replayed.lookups as f64);
        let baseline =
            of(&Kind::CORE, results, Kind::Catcache).map(|replays| column(replays, per_lookup)).unwrap_or_default();
        for (kind, replays) in Kind::CORE.iter().zip(results) {
            let costs = column(replays, per_lookup);
            let resets: u64 = replays.iter().map(|replayed| replayed.stats.resets).sum();
            let mut note = format!("CPU time, loads included; ratio to the private catcache; {} rounds", replays.len());
            if !whole {
                note += &format!("; cut to the first {} lookups of each backend", script.lookups);
            }
            if resets > 0 {
                note += &format!("; {resets} resets: a backend had fallen behind by the whole ring");
            }
            rows.push(
                Row::new(trace_name(script, *backends), kind.name(), "lookup", "ns")
                    .measured(summary(costs.iter().copied().flatten()))
                    .compared(ratio(&costs, &baseline))
                    .note(note),
            );
        }
        for (kind, replays) in Kind::CORE.iter().zip(results) {
            let loads = replays.iter().map(|replayed| replayed.stats.loads as f64 / f64::from(script.misses));
            let row = Row::new(trace_name(script, *backends), kind.name(), "loads per miss of one backend", "loads");
            rows.push(row.measured(summary(loads)).note("scans of the catalog, all backends together"));
        }
    }
    Ok(rows)
}

/// As many replays as make a turn.
fn replayed(kind: Kind, script: &Script, backends: u32) -> Result<Replayed, Failure> {
    let once = u64::from(script.lookups) * u64::from(backends);
    let times = LOOKUPS_LEAST.div_ceil(once.max(1));
    let mut sum = Replayed::default();
    for _ in 0..times {
        let replayed = kind.run(&Replay { script, backends })?;
        sum.cpu_ns += replayed.cpu_ns;
        sum.lookups += replayed.lookups;
        sum.stats = sum.stats.plus(replayed.stats);
        sum.shared_bytes = replayed.shared_bytes;
    }
    sum.stats.loads /= times;
    Ok(sum)
}
