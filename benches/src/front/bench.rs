//! `bench`: figures, for code that has passed.

use super::bar;
use super::record::Record;
use anyhow::{Context, Result, bail};
use catcache_benches::suite::{self, Form, Options, Progress};
use catcache_conformance::seal::Seal;
use std::fmt::Write;
use std::sync::atomic::AtomicBool;

/// Measures, if the seal says that this very code has passed, or marked as unverified.
pub fn run(record: &mut Record, full: bool, unverified: bool, stop: &AtomicBool) -> Result<()> {
    if !unverified && let Err(refused) = Seal::check() {
        bail!(
            "nothing is measured: {refused}\n(or measure it all the same, with --unverified: every line is then marked)"
        );
    }
    let options = Options {
        form: if full { Form::Full } else { Form::Quick },
        program: std::env::current_exe().context("the path of this program is needed to count its instructions")?,
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
    if unverified || Seal::check().is_err() {
        report.mark_unverified();
        record.skip("verification of the code that was measured");
    }
    let screen = &mut record.bench_screen;
    let _ = writeln!(screen, "{}", report.figures());
    for metric in ["lookup", "loads per miss of one backend", "memory"] {
        let _ = writeln!(screen, "{}", report.traces(metric));
    }
    let _ = writeln!(screen, "{}\n{}\nmeasured for {:.0} s", report.targets(), report.left_out(), report.seconds);
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
