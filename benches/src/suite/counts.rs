//! The stage `instructions`: what valgrind counts.

use std::path::Path;

use super::runner::Runner;
use crate::counted::{self, Case, CountError, NOT_MEASURED};
use crate::report::{Row, Target};
use crate::rivals::Kind;

/// Instructions and stores, counted by two runs of valgrind at a time: nothing else is measured meanwhile.
pub(super) fn rows(program: &Path, runner: &mut Runner<'_>) -> Vec<Row> {
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
    for kind in Kind::RIVALS {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
