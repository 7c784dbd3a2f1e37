//! Measured comparisons of the shared catalog cache with what it is to replace.
//!
//! Nothing here says whether the cache is right: that is the conformance suite's word, and the command line refuses to
//! measure code that has not got it. Nothing here asserts on a time either: figures are reported, whatever they are, beside
//! what they are to reach.
//!
//! ```text
//!     suite ──▶ work (hits, replay, storage) ──▶ rivals ──▶ the catalog in memory
//!       │        └──▶ script ──▶ trace, payload
//!       ├──▶ counted (valgrind)
//!       └──▶ report                       measure, statistics, random
//! ```
//!
//! [`suite::run`] does everything and returns a [`report::Report`]. How it measures, and why so, stands in [`measure`]
//! (time), [`counted`] (instructions, stores) and [`suite`] (rounds); what it measures in [`script`] (replays),
//! [`work`] and [`rivals`]. What it cannot say: all subjects run in one process, where PostgreSQL has processes; the machine
//! has as many cores as it has, so forty-eight backends show what sharing costs, not what forty-eight cores gain.

pub mod counted;
pub mod measure;
pub mod payload;
pub mod random;
pub mod report;
pub mod rivals;
pub mod script;
pub mod statistics;
pub mod suite;
pub mod trace;
pub mod work;

use std::path::Path;

/// The hidden command that packs a folder of traces: `__pack FOLDER FILE`.
pub const PACK: &str = "__pack";

/// Carries out a hidden command, if the words after the program's name are one: those that run under valgrind
/// ([`counted`]), and [`PACK`]. To be called before the command line is read.
pub fn hidden(words: &[String]) -> Option<Result<(), rivals::Failure>> {
    match words {
        [command, folder, file] if command == PACK => Some(pack(Path::new(folder), Path::new(file))),
        _ => counted::child(words),
    }
}

fn pack(folder: &Path, file: &Path) -> Result<(), rivals::Failure> {
    let archive = trace::pack(folder)?;
    std::fs::write(file, archive).map_err(|error| format!("{}: {error}", file.display()).into())
}
