//! `bench`: figures, for code that has passed.

use super::bar;
use super::record::Record;
use anyhow::{Context, Result, bail};
use catcache_benches::plots;
use catcache_benches::suite::{self, Form, Options, Progress, Stage};
use catcache_conformance::seal::Seal;
use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// What is wanted.
pub struct Wish<'a> {
    /// These parts.
    pub stages: &'a [Stage],
    /// At length.
    pub full: bool,
    /// Even of code that has not passed.
    pub unverified: bool,
    /// Plots in this folder.
    pub plots: Option<&'a Path>,
}

/// The parts that names mean; all of them if there are none.
pub fn select(names: &[String]) -> Result<Vec<Stage>> {
    if names.is_empty() {
        return Ok(Stage::ALL.to_vec());
    }
    let stage = |name: &String| {
        Stage::named(name).with_context(|| {
            let known: Vec<&str> = Stage::ALL.iter().map(|stage| stage.name()).collect();
            format!("`{name}` is no part of the benchmark; there are: {}", known.join(", "))
        })
    };
    names.iter().map(stage).collect()
}

/// Measures, if the seal says that this very code has passed, or marked as unverified.
pub fn run(record: &mut Record, wish: &Wish<'_>, stop: &AtomicBool) -> Result<()> {
    if !wish.unverified
        && let Err(refused) = Seal::check()
    {
        bail!(
            "nothing is measured: {refused}\n(or measure it all the same, with --unverified: every line is then marked)"
        );
    }
    let options = Options {
        form: if wish.full { Form::Full } else { Form::Quick },
        stages: wish.stages,
        program: std::env::current_exe().context("the path of this program is needed, for it starts itself")?,
        stop,
    };
    let progress = bar(1_000, "bench");
    let mut report = suite::run(&options, &mut |p: &Progress| {
        progress.set_message(p.stage);
        progress.set_position((p.done * 1_000.0) as u64);
    })
    .map_err(|e| anyhow::anyhow!("{e}"))?;
    progress.finish_and_clear();
    // It may have been revoked meanwhile, by a `conform` beside this run.
    if wish.unverified || Seal::check().is_err() {
        report.mark_unverified();
        record.skip("verification of the code that was measured");
    }
    let screen = &mut record.bench_screen;
    for table in report.tables() {
        let _ = writeln!(screen, "{table}");
    }
    let _ = writeln!(screen, "{}", report.targets());
    if !report.not_played.is_empty() {
        let _ = writeln!(screen, "{}", report.left_out());
    }
    let _ = writeln!(screen, "measured for {:.0} s", report.seconds);
    if let Some(folder) = wish.plots {
        super::say_plots(&plots::of_bench(folder, &report)?);
    }
    if report.broken_off {
        record.skip("some of the measurements (interrupted)");
    }
    record.not_played = report.not_played;
    record.benches = report.rows;
    Ok(())
}

/// Prints it.
pub fn show(record: &Record) {
    if !record.bench_screen.is_empty() {
        say!("{}", record.bench_screen.trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_name_is_told_the_right_ones() {
        assert_eq!(select(&[]).unwrap(), Stage::ALL);
        let named = select(&["storm".to_owned(), "hits".to_owned()]).unwrap();
        assert_eq!(named, [Stage::Storm, Stage::Hits]);
        let error = select(&["storms".to_owned()]).unwrap_err().to_string();
        assert!(error.starts_with("`storms` is no part"), "{error}");
        assert!(Stage::ALL.iter().all(|stage| error.contains(stage.name())), "{error}");
    }
}
