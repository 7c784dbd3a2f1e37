//! Plots for a talk: SVG, out of the rows of a report and of the scopes of the model.
//!
//! | file | what it shows | from |
//! | --- | --- | --- |
//! | `memory.svg` | bytes against backends, private and shared | stage `memory` |
//! | `hits.svg` | the cost of a hit by rival, and of a shared answer by locking strategy | stages `rivals`, `strategies` |
//! | `states.svg` | states and time of the model's scopes | the models |
//!
//! A plot whose figures were not measured is not drawn. A plot of an unverified run says so, in red, across its head.

mod frame;
mod hits;
mod memory;
mod states;

use std::path::{Path, PathBuf};

use crate::report::Report;

pub use states::Scope;

/// Why a plot could not be drawn.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// The drawing failed.
    #[error("the plot {name} could not be drawn: {cause}")]
    Draw {
        /// Which.
        name: &'static str,
        /// Why.
        cause: String,
    },
    /// The file could not be written.
    #[error("{path}: {source}")]
    Write {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

/// What became of the plots of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    /// The files that were written.
    pub files: Vec<PathBuf>,
    /// What was not drawn, and why.
    pub missing: Vec<String>,
}

impl Drawn {
    fn keep(
        &mut self,
        folder: &Path,
        name: &'static str,
        plot: Result<Option<String>, String>,
        needs: &str,
    ) -> Result<(), PlotError> {
        match plot.map_err(|cause| PlotError::Draw { name, cause })? {
            Some(svg) => {
                let path = folder.join(name);
                std::fs::write(&path, svg).map_err(|source| PlotError::Write { path: path.clone(), source })?;
                self.files.push(path);
            }
            None => self.missing.push(format!("{name} (it needs {needs})")),
        }
        Ok(())
    }
}

/// Makes the folder, if it is not there.
///
/// # Errors
/// It can't be made.
pub fn folder(path: &Path) -> Result<(), PlotError> {
    std::fs::create_dir_all(path).map_err(|source| PlotError::Write { path: path.to_owned(), source })
}

/// Draws what the benchmark has measured into a folder.
///
/// # Errors
/// A file can't be written.
pub fn of_bench(folder: &Path, report: &Report) -> Result<Drawn, PlotError> {
    let mut drawn = Drawn::default();
    drawn.keep(folder, "memory.svg", memory::plot(&report.rows), "the stage memory")?;
    drawn.keep(folder, "hits.svg", hits::plot(&report.rows), "the stages rivals and strategies")?;
    Ok(drawn)
}

/// Draws the scopes of the model into a folder. `unverified`: not all of them held.
///
/// # Errors
/// The file can't be written.
pub fn of_models(folder: &Path, scopes: &[Scope], unverified: bool) -> Result<Drawn, PlotError> {
    let mut drawn = Drawn::default();
    drawn.keep(folder, "states.svg", states::plot(scopes, unverified), "a scope that was explored")?;
    Ok(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Row;
    use crate::rivals::Kind;

    fn report() -> Report {
        let mut rows = Vec::new();
        for kind in [Kind::Catcache, Kind::BareMap, Kind::Ours] {
            for backends in [1, 2, 48] {
                let name = format!("trace partscan, {backends} backends");
                rows.push(Row::new(name, kind.name(), "memory", "MB").counted(Some(12.0 * f64::from(backends))));
            }
        }
        for kind in Kind::RIVALS {
            rows.push(Row::new("zipf10k, rivals", kind.name(), "hit, one thread", "ns").counted(Some(9.5)));
        }
        for kind in Kind::STRATEGIES {
            rows.push(Row::new("zipf10k", kind.name(), "shared answer, one thread", "ns").counted(Some(170.0)));
            rows.push(
                Row::new("zipf10k", kind.name(), "shared answer, two threads at once", "ns").counted(Some(450.0)),
            );
        }
        Report { rows, ..Report::default() }
    }

    fn scopes() -> Vec<Scope> {
        vec![
            Scope { name: "tuple".to_owned(), states: 12_345, seconds: 0.2 },
            Scope { name: "overflow".to_owned(), states: 2_000_000, seconds: 7.25 },
        ]
    }

    fn text(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn what_was_measured_is_in_the_plots() {
        let folder = tempfile::tempdir().unwrap();
        let drawn = of_bench(folder.path(), &report()).unwrap();
        assert_eq!((drawn.files.len(), drawn.missing.len()), (2, 0));
        let (memory, hits) = (text(&drawn.files[0]), text(&drawn.files[1]));
        for wanted in ["private catcache", "bare private map", "shared-catcache", "576 MB", "backends"] {
            assert!(memory.contains(wanted), "{wanted}");
        }
        for wanted in ["papaya", "moka", "quick_cache", "16 locks", "9.5", "450", "two threads"] {
            assert!(hits.contains(wanted), "{wanted}");
        }
        let drawn = of_models(folder.path(), &scopes(), false).unwrap();
        let states = text(&drawn.files[0]);
        for wanted in ["tuple", "overflow", "2,000,000", "7.2 s"] {
            assert!(states.contains(wanted), "{wanted}");
        }
        assert!([memory, hits, states].iter().all(|svg| !svg.contains("unverified")));
    }

    #[test]
    fn an_unverified_plot_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let mut report = report();
        report.mark_unverified();
        let mut files = of_bench(folder.path(), &report).unwrap().files;
        files.extend(of_models(folder.path(), &scopes(), true).unwrap().files);
        assert_eq!(files.len(), 3);
        assert!(files.iter().all(|path| text(path).contains("unverified")));
    }

    #[test]
    fn what_was_not_measured_is_named_and_not_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let drawn = of_bench(folder.path(), &Report::default()).unwrap();
        assert!(drawn.files.is_empty() && drawn.missing.len() == 2);
        assert!(drawn.missing[1].contains("rivals and strategies"));
        assert_eq!(of_models(folder.path(), &[], false).unwrap().missing.len(), 1);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let missing = folder.path().join("missing");
        let error = of_bench(&missing, &report()).unwrap_err();
        assert!(error.to_string().contains("memory.svg"), "{error}");
        super::folder(&missing.join("deeper")).unwrap();
        assert!(missing.join("deeper").is_dir());
    }
}
