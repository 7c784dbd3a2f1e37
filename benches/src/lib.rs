//! Measured comparisons of the shared catalog cache with what it is to replace.
//!
//! Nothing here says whether the cache is right: that is the conformance suite's word, and the command line refuses to
//! measure code that has not got it. Nothing here asserts on a time either: figures are reported, whatever they are, beside
//! what they are to reach.
//!
//! ```text
//!     suite ──▶ work (hits, touches, storm, replay, storage) ──▶ rivals ──▶ the catalog in memory
//!       │        ├──▶ processes ──▶ worker (the same work, in processes of their own)
//!       │        └──▶ script ──▶ trace, payload
//!       ├──▶ counted (valgrind)
//!       └──▶ report ──▶ plots                measure, statistics, random, children
//! ```
//!
//! [`suite::run`] does everything and returns a [`report::Report`]. How it measures, and why so, stands in [`measure`]
//! (time), [`counted`] (instructions, stores) and [`suite`] (rounds); what it measures in [`script`] (replays),
//! [`work`] and [`rivals`]. What it cannot say: but for the stage `processes`, all subjects run in one process, where
//! PostgreSQL has processes; the machine has as many cores as it has, so forty-eight backends show what sharing costs, not
//! what forty-eight cores gain.

pub mod children;
pub mod counted;
pub mod measure;
pub mod payload;
pub mod plots;
pub mod random;
pub mod report;
pub mod rivals;
pub mod script;
pub mod statistics;
pub mod suite;
pub mod trace;
pub mod work;
pub mod worker;

use std::path::Path;

/// The hidden command that packs a folder of traces: `__pack FOLDER FILE`.
pub const PACK: &str = "__pack";

/// Carries out a hidden command, if the words after the program's name are one: those that run under valgrind
/// ([`counted`]), the [`worker`] process, and [`PACK`]. To be called before the command line is read.
pub fn hidden(words: &[String]) -> Option<Result<(), rivals::Failure>> {
    match words {
        [command, folder, file] if command == PACK => Some(pack(Path::new(folder), Path::new(file))),
        [command, path] if command == worker::WORKER => Some(worker::work(Path::new(path))),
        _ => counted::child(words),
    }
}

fn pack(folder: &Path, file: &Path) -> Result<(), rivals::Failure> {
    let archive = trace::pack(folder)?;
    std::fs::write(file, archive).map_err(|error| format!("{}: {error}", file.display()).into())
}
