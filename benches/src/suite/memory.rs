//! The stage `memory`: what backends hold, private and shared.

use super::runner::Runner;
use super::{BACKENDS, trace_name};
use crate::payload::{Basis, CATCACHES};
use crate::report::{Row, Target};
use crate::rivals::{Failure, HandleStats, Kind};
use crate::script::{BenchKey, Script};
use crate::work::hits::{self, Mix};
use crate::work::storage::{Storage, Stored};

/// The traces whose memory is measured, with the numbers of backends.
const STORED: [(&str, &[u32]); 2] = [("partscan", &[1, 2, 8, 48, MOST]), ("d_part", &BACKENDS)];

/// The most backends.
const MOST: u32 = 200;

/// After so many backends, what an entry takes is looked at.
const ENTRIES_AT: u32 = 48;

/// The subjects.
const KINDS: [Kind; 3] = [Kind::Catcache, Kind::BareMap, Kind::Ours];

/// The stage `memory`.
pub(super) fn rows(runner: &mut Runner<'_>, scripts: &[Script], mix: &Mix) -> Result<Vec<Row>, Failure> {
    let mut rows = mix_memory_rows(mix)?;
    let turns: usize = STORED.iter().map(|(_, backends)| backends.len()).sum();
    let mut done = 0;
    for (name, numbers) in STORED {
        let script = scripts.iter().find(|script| script.name == name).ok_or_else(|| format!("no trace {name}"))?;
        let mut bytes: Vec<[u64; KINDS.len()]> = Vec::new();
        for &backends in numbers {
            if runner.stopped() {
                return Ok(rows);
            }
            let mut held = [0; KINDS.len()];
            for (kind, held) in KINDS.into_iter().zip(&mut held) {
                let stored = stored(kind, script, backends)?;
                *held = stored.bytes();
                rows.push(memory_row(kind, script, backends, &stored));
                if kind == Kind::Ours && backends == ENTRIES_AT {
                    rows.extend(entry_rows(&script.name, &stored, held_by(script)));
                }
            }
            // Counted exactly, so the ratio is no median of anything.
            let of_backends = trace_name(script, backends);
            for row in rows.iter_mut().filter(|row| row.name == of_backends && row.metric == MEMORY) {
                let at = KINDS.iter().position(|kind| kind.name() == row.subject).unwrap_or_default();
                row.ratio = Some(held[at] as f64 / held[0] as f64);
                if backends == MOST && KINDS[at] == Kind::Ours {
                    *row = row.clone().target(Target::ratio_at_most(0.05));
                }
            }
            bytes.push(held);
            done += 1;
            runner.tell(done as f64 / turns as f64);
        }
        rows.extend(slope_rows(script, numbers, &bytes));
    }
    Ok(rows)
}

/// The metric of bytes against backends.
pub(crate) const MEMORY: &str = "memory";

/// What so many backends hold. Of a private cache one is counted, if all of them hold the same.
fn stored(kind: Kind, script: &Script, backends: u32) -> Result<Stored, Failure> {
    if !kind.is_private() || script.changes_rows() {
        return kind.run(&Storage { script, backends });
    }
    let one = kind.run(&Storage { script, backends: 1 })?;
    Ok(Stored { shared_bytes: one.shared_bytes, stats: one.stats.times(u64::from(backends)) })
}

fn memory_row(kind: Kind, script: &Script, backends: u32, stored: &Stored) -> Row {
    let own = stored.stats.bytes as f64 / f64::from(backends) / 1e6;
    let mut note = format!(
        "{:.2} MB in common, {own:.3} MB for each backend; ratio to the private catcaches",
        stored.shared_bytes as f64 / 1e6
    );
    if stored.stats.private_entries > 0 {
        note += &format!("; {} private rows are not counted", stored.stats.private_entries);
    }
    let row = Row::new(trace_name(script, backends), kind.name(), MEMORY, "MB");
    row.counted(Some(stored.bytes() as f64 / 1e6)).note(note)
}

/// What each further backend costs, from the first to the last number of backends.
fn slope_rows(script: &Script, numbers: &[u32], bytes: &[[u64; KINDS.len()]]) -> Vec<Row> {
    let (Some((few, least)), Some((many, most))) =
        (numbers.iter().zip(bytes).next(), numbers.iter().zip(bytes).next_back())
    else {
        return Vec::new();
    };
    let slope = |at: usize| (most[at] as f64 - least[at] as f64) / f64::from(many - few);
    let rows = KINDS.iter().enumerate().map(|(at, kind)| {
        let mut row = Row::new(script.name.clone(), kind.name(), "memory of each further backend", "B")
            .counted(Some(slope(at)))
            .note(format!("from {few} backend to {many}; ratio to the private catcache"));
        row.ratio = Some(slope(at) / slope(0));
        row
    });
    rows.collect()
}

/// Payload and keys.
#[derive(Clone, Copy, Default)]
struct Content {
    entries: u64,
    bytes: u64,
    /// Bytes of rows whose length is an estimate.
    estimated: u64,
}

/// What a cache holds that has played a script which changes nothing: each row once.
fn held_by(script: &Script) -> Content {
    let mut content = Content::default();
    for row in &script.rows {
        let length = if row.at_first { row.length } else { 0 };
        content.entries += 1;
        content.bytes += (length + BenchKey::new(row.key, 0).bytes().len()) as u64;
        if CATCACHES[usize::from(row.key.cache)].catalog.basis == Basis::Estimated {
            content.estimated += length as u64;
        }
    }
    content
}

fn mix_memory_rows(mix: &Mix) -> Result<Vec<Row>, Failure> {
    let stored = mix.stored()?;
    let bytes = (hits::ENTRIES * (hits::ROW + hits::KEY)) as u64;
    Ok(entry_rows(mix.name, &stored, Content { entries: hits::ENTRIES as u64, bytes, estimated: 0 }))
}

/// Bytes for each entry, in the segment and in the local views.
fn entry_rows(name: &str, stored: &Stored, content: Content) -> Vec<Row> {
    let each = |bytes: u64| bytes as f64 / content.entries as f64;
    let HandleStats { bytes, entries, .. } = stored.stats;
    let mut note = format!("{:.1} of payload and key; {} entries", each(content.bytes), content.entries);
    if content.estimated > 0 {
        let share = 100.0 * content.estimated as f64 / content.bytes as f64;
        note += &format!("; {share:.0} % of the bytes are rows of estimated length");
    }
    vec![
        Row::new(name, Kind::Ours.name(), "segment, per entry", "B")
            .counted(Some(each(stored.shared_bytes)))
            .target(Target::value_at_most(each(content.bytes) * 1.05 + 48.0))
            .note(note),
        Row::new(name, Kind::Ours.name(), "local view, per backend and touched entry", "B")
            .counted((entries > 0).then(|| bytes as f64 / entries as f64))
            .target(Target::value_at_most(48.0))
            .note(format!("{entries} entries in the local views")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::packed;

    /// Nine backends of 300 bytes more each.
    #[test]
    fn the_slope_is_what_a_further_backend_costs() {
        let traces = packed().unwrap();
        let script = Script::new(traces.iter().find(|trace| trace.name == "simple").unwrap());
        let rows = slope_rows(&script, &[1, 4, 10], &[[1_000, 10, 500], [0, 0, 0], [3_700, 10, 770]]);
        let found: Vec<_> = rows.iter().map(|row| (row.value, row.ratio)).collect();
        assert_eq!(found, [(Some(300.0), Some(1.0)), (Some(0.0), Some(0.0)), (Some(30.0), Some(0.1))]);
        assert!(slope_rows(&script, &[1, 2], &[]).is_empty());
    }

    /// To count one private cache and multiply is to count all of them.
    #[test]
    fn what_is_multiplied_is_what_is_counted() {
        let traces = packed().unwrap();
        for name in ["simple", "ddl_alter"] {
            let script = Script::new(&traces.iter().find(|trace| trace.name == name).unwrap().first(4_000));
            for kind in KINDS {
                let counted = kind.run(&Storage { script: &script, backends: 3 }).unwrap();
                assert_eq!(stored(kind, &script, 3).unwrap(), counted, "{name} {}", kind.name());
            }
        }
    }
}
