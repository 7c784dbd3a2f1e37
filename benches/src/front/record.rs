//! The record of a run: what the JSON report holds. Its fields are documented in the README and stay as they are.

use anyhow::{Context, Result};
use catcache_benches::report::{NotPlayed, Row};
use serde::Serialize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The report, one object.
#[derive(Debug, Serialize)]
pub struct Record {
    /// What the verdict speaks of.
    pub seal: SealField,
    /// The scopes of the model.
    pub models: Vec<ModelField>,
    /// Faults of model and code.
    pub faults: Vec<FaultField>,
    /// The litmus files.
    pub litmus: Vec<LitmusField>,
    /// The scenarios of the life of a slot.
    pub slots: Vec<SlotField>,
    /// The oracle's runs.
    pub oracle: Vec<OracleField>,
    /// The figures.
    pub benches: Vec<Row>,
    /// What of the traces was not played.
    pub not_played: Vec<NotPlayed>,
    /// What was not run.
    pub skipped: Vec<String>,
    /// What did not hold, in words.
    pub failures: Vec<String>,
    /// "held", "failed", "skipped" (nothing failed, but not everything was run) or "interrupted".
    pub verdict: String,
    /// Text that the screen shows below the figures.
    #[serde(skip)]
    pub bench_screen: String,
    /// Commands whose parts this one does not have, by design.
    #[serde(skip)]
    parts_left_out: Vec<String>,
}

/// The digest of the code that was run.
#[derive(Debug, Serialize)]
pub struct SealField {
    /// Of sources, lock file, compiler and profile.
    pub digest: String,
    /// Has this code passed `conform`?
    pub valid: bool,
}

/// A scope.
#[derive(Debug, Serialize)]
pub struct ModelField {
    /// The model.
    pub name: &'static str,
    /// The scope.
    pub scope: String,
    /// Distinct states.
    pub unique: usize,
    /// States generated.
    pub generated: usize,
    /// Wall time.
    pub seconds: f64,
    /// "held", or what was broken.
    pub verdict: String,
}

/// A fault.
#[derive(Debug, Serialize)]
pub struct FaultField {
    /// Its name.
    pub name: String,
    /// "model" or "code".
    pub side: &'static str,
    /// The scope and property, or the litmus file, that caught it; null if nothing did.
    pub caught_by: Option<String>,
    /// The shortest counterexample, as columns.
    #[serde(skip)]
    pub columns: String,
}

/// A simulator's share of a file.
#[derive(Debug, Serialize)]
pub struct Explored {
    /// loom: preemptions allowed in a run; null: any number, or not loom.
    pub bound: Option<usize>,
    /// Are these all runs that there are with that bound? Random runs never are.
    pub complete: bool,
    /// Runs.
    pub executions: usize,
    /// Edges of the model's graph that they took.
    pub edges: usize,
}

/// A litmus file.
#[derive(Debug, Serialize)]
pub struct LitmusField {
    /// Its name.
    pub file: String,
    /// Its title.
    pub title: String,
    /// Outcomes that the model allows.
    pub allowed: usize,
    /// Different answers seen on real threads, and of how many.
    pub seen_threads: [usize; 2],
    /// Different answers seen on real processes, and of how many.
    pub seen_processes: [usize; 2],
    /// Edges of its graph.
    pub edges: usize,
    /// Edges that were replayed in lock step.
    pub replayed: usize,
    /// Under loom.
    pub loom: Explored,
    /// Under shuttle.
    pub shuttle: Explored,
    /// "held", or what did not.
    pub verdict: String,
    /// The outcomes, for the screen.
    #[serde(skip)]
    pub outcomes: Vec<String>,
}

/// A scenario of the life of a slot, over the real entries and the real slab.
#[derive(Debug, Serialize)]
pub struct SlotField {
    /// Its name.
    pub scenario: &'static str,
    /// Under loom.
    pub loom: Explored,
    /// Under shuttle.
    pub shuttle: Explored,
    /// Edges of the model's graph.
    pub edges: usize,
    /// "held", or what did not.
    pub verdict: String,
}

/// A run of the oracle.
#[derive(Debug, Serialize)]
pub struct OracleField {
    /// Readers and writers.
    pub plan: String,
    /// "held", or the wrong answer.
    pub verdict: String,
}

impl Record {
    /// An empty record; `without` names the parts that this command does not have.
    pub fn new(without: &[&str]) -> Record {
        let valid = catcache_conformance::seal::Seal::check().is_ok();
        Record {
            seal: SealField { digest: catcache_conformance::seal::Place::here().digest, valid },
            models: Vec::new(),
            faults: Vec::new(),
            litmus: Vec::new(),
            slots: Vec::new(),
            oracle: Vec::new(),
            benches: Vec::new(),
            not_played: Vec::new(),
            skipped: Vec::new(),
            failures: Vec::new(),
            verdict: String::new(),
            bench_screen: String::new(),
            parts_left_out: without.iter().map(|s| (*s).to_owned()).collect(),
        }
    }

    /// Notes what was not run.
    pub fn skip(&mut self, what: &str) {
        self.skipped.push(what.to_owned());
    }

    /// Notes what did not hold.
    pub fn fail(&mut self, what: impl Into<String>) {
        self.failures.push(what.into());
    }

    /// Has nothing failed so far?
    pub fn held(&self) -> bool {
        self.failures.is_empty()
    }

    /// Says the verdict, writes the JSON, and tells whether everything held.
    pub fn finish(mut self, stop: &AtomicBool, json: Option<&Path>) -> Result<bool> {
        // Relaxed: see `stop_on_interrupt`.
        let interrupted = stop.load(Ordering::Relaxed);
        self.seal.valid = catcache_conformance::seal::Seal::check().is_ok();
        self.verdict = match () {
            () if !self.failures.is_empty() => "failed",
            () if interrupted => "interrupted",
            () if !self.skipped.is_empty() => "skipped",
            () => "held",
        }
        .to_owned();
        for failure in &self.failures {
            say!("\nFAILED: {failure}");
        }
        for skipped in &self.skipped {
            say!("not run: {skipped}");
        }
        if !self.parts_left_out.is_empty() {
            say!("(`verify` also runs: {})", self.parts_left_out.join(", "));
        }
        let say = match self.verdict.as_str() {
            "held" => "everything held",
            "skipped" => "nothing failed, but not everything was run",
            "interrupted" => "interrupted; no verdict",
            _ => "something did not hold",
        };
        say!("verdict: {} -- {say}", self.verdict);
        write_json(json, &self)?;
        Ok(self.verdict == "held")
    }
}

/// Writes a report, if it is wanted.
pub fn write_json(path: Option<&Path>, report: &impl Serialize) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(report)? + "\n";
    write_whole(path, &text).with_context(|| format!("the report could not be written to {}", path.display()))
}

/// Writes a file so that nobody finds half of it: as a draft beside it, which then takes its place. A device or a pipe,
/// and a file in a folder that takes no draft, are written to.
pub fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    // A link stays one: the draft takes the place of what it leads to.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if path.metadata().is_ok_and(|m| !m.is_file()) {
        return std::fs::write(path, text);
    }
    let mut draft = path.clone().into_os_string();
    draft.push(format!(".{}", std::process::id()));
    if std::fs::File::create(&draft).is_err() {
        return std::fs::write(path, text);
    }
    let written = std::fs::write(&draft, text).and_then(|()| std::fs::rename(&draft, &path));
    if written.is_err() {
        // It is of no use; that it may stay behind is less than the error that is reported.
        std::fs::remove_file(&draft).ok();
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_takes_the_place_of_the_last_one_and_leaves_no_draft() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("report.json"), folder.path().join("link.json"));
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for (path, text) in [(&file, "one"), (&file, "two"), (&link, "three")] {
            write_whole(path, text).unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        }
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_device_is_written_to_and_a_full_one_refuses() {
        write_whole(Path::new("/dev/null"), "text").unwrap();
        assert!(write_whole(Path::new("/dev/full"), "text").is_err());
    }
}
