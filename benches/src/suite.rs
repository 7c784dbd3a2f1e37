//! The whole benchmark: what is measured, how often, and what the figures are to reach.
//!
//! Subjects are measured side by side: in each round the workloads come in a new order, and for each workload all subjects
//! take their turns one right after the other, in a new order too, each with a new cache. Ratios are formed within the
//! round. A stage makes as many rounds as its time allows, at least one; every figure
//! of a stage has the same number of rounds, and its note says how many. Between two turns somebody may break it off.

use std::path::Path;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::counted::{self, Case, CountError, NOT_MEASURED};
use crate::payload::{Basis, CATCACHES};
use crate::random::Random;
use crate::report::{NotPlayed, Report, Row, Target};
use crate::rivals::{Failure, HandleStats, Kind};
use crate::script::{BenchKey, Script};
use crate::statistics::{ratio, summary};
use crate::trace::{Trace, packed};
use crate::work::hits::{self, FirstTouches, HitCosts, Hits, Mix};
use crate::work::replay::{Replay, Replayed};
use crate::work::storage::{Storage, Stored};

/// Numbers of backends that replay a trace.
pub const BACKENDS: [u32; 4] = [1, 2, 8, 48];

/// The traces whose memory is measured.
const STORED_TRACES: [&str; 2] = ["partscan", "d_part"];

/// Lookups of a turn of a trace: short traces are replayed several times.
const LOOKUPS_LEAST: u64 = 20_000;

/// Lookups of a turn of a trace in the quick form, all backends together: longer traces are cut.
const LOOKUPS_MOST: usize = 48_000;

/// New backends of one turn of the first touches.
const TOUCHING: usize = 5;

/// How much is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Some forty seconds on two cores.
    Quick,
    /// Ten rounds of everything, or as many as a quarter of an hour for each stage allows; no trace is cut.
    Full,
}

/// How a stage is bounded.
#[derive(Clone, Copy)]
struct Bounds {
    rounds: usize,
    time: Duration,
}

impl Form {
    const fn bounds(self, quick_rounds: usize, quick_seconds: u64) -> Bounds {
        match self {
            Form::Quick => Bounds { rounds: quick_rounds, time: Duration::from_secs(quick_seconds) },
            Form::Full => Bounds { rounds: 10, time: Duration::from_secs(900) },
        }
    }

    /// How many lookups each of so many backends makes at most.
    const fn lookups(self, backends: u32) -> usize {
        match self {
            Form::Quick => LOOKUPS_MOST / backends as usize,
            Form::Full => usize::MAX,
        }
    }

    /// How long one thread and two threads hit in one turn.
    const fn turn(self) -> (Duration, Duration) {
        match self {
            Form::Quick => (Duration::from_millis(40), Duration::from_millis(120)),
            Form::Full => (Duration::from_millis(100), Duration::from_millis(400)),
        }
    }
}

/// What to measure, and with what.
pub struct Options<'a> {
    /// How much.
    pub form: Form,
    /// This program, for the runs under valgrind. It must pass its words to [`hidden`](crate::hidden).
    pub program: PathBuf,
    /// Set to break off; looked at between two turns.
    pub stop: &'a AtomicBool,
}

/// How far the benchmark is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Which part is running.
    pub stage: &'static str,
    /// Of the whole, from 0 to 1.
    pub done: f64,
}

/// The parts, with the share of the time that each takes.
const STAGES: [(&str, f64); 5] =
    [("instructions and stores", 0.2), ("hits", 0.33), ("shared answers", 0.05), ("traces", 0.32), ("memory", 0.1)];

/// Carries a stage's rounds out.
struct Runner<'a> {
    stop: &'a AtomicBool,
    progress: &'a mut dyn FnMut(&Progress),
    stage: usize,
    random: Random,
}

impl Runner<'_> {
    fn stopped(&self) -> bool {
        // Relaxed: a flag that guards nothing.
        self.stop.load(Ordering::Relaxed)
    }

    /// `part` of the running stage is done, from 0 to 1.
    fn tell(&mut self, part: f64) {
        let before: f64 = STAGES[..self.stage].iter().map(|(_, share)| share).sum();
        let (stage, share) = STAGES[self.stage];
        (self.progress)(&Progress { stage, done: (before + share * part.clamp(0.0, 1.0)).min(1.0) });
    }

    fn next_stage(&mut self) {
        self.stage += 1;
        self.tell(0.0);
    }

    /// Rounds of turns: in each round, for each of `workloads` in a new order, `turn(workload, subject)` for each of
    /// `subjects` in a new order, until the bounds are reached. Returns what came of it by workload and subject, one for
    /// each whole round.
    fn rounds<T>(
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

/// Measures everything.
///
/// # Errors
/// A subject failed or answered wrongly, or the archive of traces is broken. That valgrind is not installed, or failed,
/// is no error: the rows say so.
pub fn run(options: &Options<'_>, progress: &mut dyn FnMut(&Progress)) -> Result<Report, Failure> {
    let start = Instant::now();
    let mut runner = Runner { stop: options.stop, progress, stage: 0, random: Random::new(start_seed()) };
    let mut rows = Vec::new();
    let traces = packed()?;
    let scripts: Vec<Script> = traces.iter().map(Script::new).collect();

    runner.tell(0.0);
    rows.extend(counted_rows(&options.program, &mut runner));
    runner.next_stage();
    let (zipf, hot) = (Mix::zipf(), Mix::hot());
    rows.extend(hit_rows(&mut runner, options.form, &[&zipf, &hot])?);
    runner.next_stage();
    rows.extend(touch_rows(&mut runner, options.form, &zipf)?);
    runner.next_stage();
    rows.extend(trace_rows(&mut runner, options.form, &traces)?);
    runner.next_stage();
    rows.extend(memory_rows(&mut runner, &scripts, &zipf)?);
    runner.tell(1.0);

    Ok(Report {
        rows,
        not_played: scripts.iter().map(|script| NotPlayed::new(&script.name, script.left_out)).collect(),
        broken_off: runner.stopped(),
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// A seed of its own for each run, so that orders differ; no figure depends on it.
fn start_seed() -> u64 {
    crate::measure::wall_ns()
}

/// Instructions and stores, counted by two runs of valgrind at a time: nothing else is measured meanwhile.
fn counted_rows(program: &Path, runner: &mut Runner<'_>) -> Vec<Row> {
    let cases = Case::all();
    let mut instructions: Vec<Option<Result<f64, CountError>>> = Vec::new();
    let mut stores = None;
    let there = counted::valgrind();
    if there {
        for pair in cases.chunks(2) {
            if runner.stopped() {
                break;
            }
            let counts = std::thread::scope(|scope| {
                let threads: Vec<_> =
                    pair.iter().map(|case| scope.spawn(|| counted::instructions(program, *case))).collect();
                threads.into_iter().map(|thread| thread.join().ok()).collect::<Vec<_>>()
            });
            instructions.extend(counts);
            runner.tell(instructions.len() as f64 / (cases.len() + 1) as f64);
        }
        if !runner.stopped() {
            stores = Some(counted::stores(program));
        }
    }
    let mut of_case = cases.iter().zip(instructions.into_iter().map(Some).chain(std::iter::repeat_with(|| None)));
    let absent = if there { counted::INTERRUPTED } else { NOT_MEASURED };
    let counts: Vec<(Case, Result<f64, String>)> =
        of_case.by_ref().map(|(case, count)| (*case, reason(count.flatten(), absent))).collect();
    instruction_rows(&counts).into_iter().chain(store_rows(&reason(stores, absent))).collect()
}

/// Why there is no figure; `absent`, if it was not tried.
fn reason<T>(counted: Option<Result<T, CountError>>, absent: &str) -> Result<T, String> {
    match counted {
        Some(Ok(counted)) => Ok(counted),
        Some(Err(CountError::NoValgrind)) => Err(NOT_MEASURED.to_owned()),
        None => Err(absent.to_owned()),
        Some(Err(error)) => Err(format!("not measured: {error}")),
    }
}

fn instruction_rows(counts: &[(Case, Result<f64, String>)]) -> Vec<Row> {
    let of = |wanted: Case| {
        let found = counts.iter().find(|(case, _)| *case == wanted).map(|(_, count)| count.clone());
        found.unwrap_or_else(|| Err(NOT_MEASURED.to_owned()))
    };
    let idle = of(Case::Loop);
    let net = |case: Case| of(case).and_then(|count| Ok(count - idle.clone()?));
    let row = |subject: &str, metric: &str, count: Result<f64, String>, note: String| {
        let row = Row::new("callgrind", subject, metric, "instructions").counted(count.as_ref().ok().copied());
        row.note(count.err().unwrap_or(note))
    };
    let loop_note = match &idle {
        Ok(idle) => format!("hash given; the loop's own {idle:.1} subtracted"),
        Err(_) => String::new(),
    };
    let mut rows = Vec::new();
    for kind in Kind::ALL {
        rows.push(row(kind.name(), "instructions per hit", net(Case::Hit(kind)), loop_note.clone()));
    }
    let keyless = net(Case::Keyless);
    let note = match (&keyless, net(Case::Hit(Kind::Ours))) {
        (Ok(keyless), Ok(hit)) => format!("hash given; keys without columns; {:.1} more on eight bytes", hit - keyless),
        _ => String::new(),
    };
    rows.push(
        row(Kind::Ours.name(), "instructions per hit, key comparison excluded", keyless, note)
            .target(Target::value_at_most(64.0)),
    );
    rows.push(row(Kind::Ours.name(), "instructions per shared answer", net(Case::Touch), loop_note));
    rows
}

fn store_rows(stores: &Result<counted::Stores, String>) -> Vec<Row> {
    let row = |metric: &str, value: fn(&counted::Stores) -> f64| {
        let row = Row::new("lackey", Kind::Ours.name(), metric, "stores").counted(stores.as_ref().ok().map(value));
        row.note(stores.as_ref().err().cloned().unwrap_or_else(|| "stores into the segment, exact".to_owned()))
    };
    vec![
        row("shared stores per local hit", |stores| stores.per_hit).target(Target::value_at_most(0.0)),
        row("shared stores per shared answer", |stores| stores.per_touch),
        row("shared lines written per shared answer", |stores| stores.lines_per_touch),
    ]
}

/// A column of rounds.
fn column<T>(results: &[T], of: impl Fn(&T) -> Option<f64>) -> Vec<Option<f64>> {
    results.iter().map(of).collect()
}

fn position(kind: Kind) -> usize {
    Kind::ALL.iter().position(|other| *other == kind).unwrap_or_default()
}

fn hit_rows(runner: &mut Runner<'_>, form: Form, mixes: &[&Mix]) -> Result<Vec<Row>, Failure> {
    let (one, two) = form.turn();
    let results = runner.rounds(form.bounds(7, 14), mixes.len(), &Kind::ALL, |workload, kind| {
        kind.run(&Hits { mix: mixes[workload], one, two })
    })?;
    let mut rows = Vec::new();
    for (mix, results) in mixes.iter().zip(&results) {
        let baseline = column(&results[position(Kind::BareMap)], |costs| costs.one_ns);
        for (kind, costs) in Kind::ALL.iter().zip(results) {
            let one = column(costs, |costs| costs.one_ns);
            let mut hit = Row::new(mix.name, kind.name(), "hit, one thread", "ns")
                .measured(summary(one.iter().copied().flatten()))
                .compared(ratio(&one, &baseline))
                .note(format!("CPU time; ratio to the bare private map; {} rounds", costs.len()));
            if *kind == Kind::Ours && mix.name == "zipf10k" {
                hit = hit.target(Target::ratio_at_most(1.3));
            }
            rows.push(hit);
            rows.push(gain_row(mix.name, *kind, costs));
        }
    }
    Ok(rows)
}

fn gain_row(mix: &str, kind: Kind, costs: &[HitCosts]) -> Row {
    let counted: usize = costs.iter().map(|costs| costs.accompanied).sum();
    let slices: usize = costs.iter().map(|costs| costs.slices).sum();
    let gains = costs.iter().filter_map(HitCosts::gain);
    let rounds = gains.clone().count();
    let note = if rounds > 0 {
        format!("in {counted} of {slices} slices both threads ran; {rounds} rounds")
    } else {
        format!(
            "not measured: the two threads ran together in {counted} of {slices} slices only; at least {} a round are needed",
            hits::SLICES_LEAST
        )
    };
    let row = Row::new(mix, kind.name(), "gain from one to two threads", "×").measured(summary(gains)).note(note);
    if kind == Kind::Ours { row.target(Target::value_at_least(1.9)) } else { row }
}

fn touch_rows(runner: &mut Runner<'_>, form: Form, mix: &Mix) -> Result<Vec<Row>, Failure> {
    const KINDS: [Kind; 3] = [Kind::OneLock, Kind::Partitioned, Kind::Ours];
    let task = FirstTouches { mix, backends: TOUCHING };
    let results = runner.rounds(form.bounds(7, 2), 1, &KINDS, |_, kind| kind.run(&task))?;
    let rows = KINDS.iter().zip(results.into_iter().flatten()).map(|(kind, costs)| {
        let rounds = costs.len();
        let row = Row::new(mix.name, kind.name(), "shared answer to a local miss", "ns")
            .measured(summary(costs.into_iter().flatten()))
            .note(format!("CPU time; first touches of a new backend in the mix's order; {rounds} rounds"));
        if *kind == Kind::Ours { row.target(Target::value_at_most(300.0)) } else { row }
    });
    Ok(rows.collect())
}

/// The name of a trace's row.
fn trace_name(script: &Script, backends: u32) -> String {
    format!("trace {}, {backends} backend{}", script.name, if backends == 1 { "" } else { "s" })
}

fn trace_rows(runner: &mut Runner<'_>, form: Form, traces: &[Trace]) -> Result<Vec<Row>, Failure> {
    let cut = |trace: &Trace, backends| Script::new(&trace.first(form.lookups(backends)));
    let cells: Vec<(Script, u32, bool)> = traces
        .iter()
        .flat_map(|trace| BACKENDS.map(|backends| (trace, cut(trace, backends), backends)))
        .map(|(trace, script, backends)| {
            let whole = script.lookups == trace.counts().lookups();
            (script, backends, whole)
        })
        .collect();
    let results = runner.rounds(form.bounds(5, 14), cells.len(), &Kind::ALL, |workload, kind| {
        let (script, backends, _) = &cells[workload];
        replayed(kind, script, *backends)
    })?;
    let mut rows = Vec::new();
    for ((script, backends, whole), results) in cells.iter().zip(&results) {
        let per_lookup = |replayed: &Replayed| Some(replayed.cpu_ns as f64 / replayed.lookups as f64);
        let baseline = column(&results[position(Kind::Catcache)], per_lookup);
        for (kind, replays) in Kind::ALL.iter().zip(results) {
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
        for (kind, replays) in Kind::ALL.iter().zip(results) {
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

fn memory_rows(runner: &mut Runner<'_>, scripts: &[Script], mix: &Mix) -> Result<Vec<Row>, Failure> {
    const KINDS: [Kind; 3] = [Kind::Catcache, Kind::BareMap, Kind::Ours];
    let stored: Vec<&Script> = scripts.iter().filter(|script| STORED_TRACES.contains(&script.name.as_str())).collect();
    let turns = (stored.len() * BACKENDS.len() * KINDS.len()) as f64;
    let mut rows = mix_memory_rows(mix)?;
    let mut done = 0.0;
    for script in stored {
        for backends in BACKENDS {
            for kind in KINDS {
                if runner.stopped() {
                    return Ok(rows);
                }
                let stored = kind.run(&Storage { script, backends })?;
                let row = Row::new(trace_name(script, backends), kind.name(), "memory", "MB");
                let own = stored.stats.bytes as f64 / f64::from(backends) / 1e6;
                let mut note =
                    format!("{:.2} MB in common, {own:.3} MB for each backend", stored.shared_bytes as f64 / 1e6);
                if stored.stats.private_entries > 0 {
                    note += &format!("; {} private rows are not counted", stored.stats.private_entries);
                }
                rows.push(row.counted(Some(stored.bytes() as f64 / 1e6)).note(note));
                if kind == Kind::Ours && backends == BACKENDS[BACKENDS.len() - 1] {
                    rows.extend(entry_rows(&script.name, &stored, held_by(script)));
                }
                done += 1.0;
                runner.tell(done / turns);
            }
        }
    }
    Ok(rows)
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

    fn runner<'a>(stop: &'a AtomicBool, progress: &'a mut dyn FnMut(&Progress)) -> Runner<'a> {
        Runner { stop, progress, stage: 0, random: Random::new(1) }
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

    #[test]
    fn the_stages_are_the_whole() {
        assert!((STAGES.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn without_valgrind_the_rows_are_there_and_empty() {
        let rows: Vec<Row> =
            instruction_rows(&[]).into_iter().chain(store_rows(&Err(NOT_MEASURED.to_owned()))).collect();
        assert!(rows.iter().all(|row| row.value.is_none() && row.note == NOT_MEASURED && row.met.is_none()));
        assert_eq!(rows.iter().filter(|row| row.target.is_some()).count(), 2);
    }

    #[test]
    fn instructions_are_what_the_loop_does_not_take() {
        let mut counts: Vec<(Case, Result<f64, String>)> =
            Case::all().into_iter().map(|case| (case, Ok(100.0))).collect();
        counts[0].1 = Ok(12.0);
        counts[1].1 = Ok(70.0);
        let rows = instruction_rows(&counts);
        let without = rows.iter().find(|row| row.target.is_some()).unwrap();
        assert_eq!((without.value, without.met), (Some(58.0), Some(true)));
        assert_eq!(rows[0].value, Some(88.0));
    }

    /// What does not depend on the machine: no row without a figure or a reason.
    #[test]
    fn too_few_slices_give_no_gain() {
        let lonely = HitCosts { one_ns: Some(5.0), two_ns: None, accompanied: 3, slices: 900 };
        let row = gain_row("zipf10k", Kind::Ours, &[lonely; 4]);
        assert_eq!((row.value, row.met), (None, None));
        assert!(row.note.contains("12 of 3600"), "{}", row.note);
        let both = HitCosts { two_ns: Some(5.0), accompanied: 30, ..lonely };
        assert_eq!(gain_row("zipf10k", Kind::Ours, &[lonely, both]).value, Some(2.0));
    }
}
