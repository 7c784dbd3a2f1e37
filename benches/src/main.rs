//! `catcache`, the front door: check the models, hold the code to them, and only then measure it.

mod front;

use catcache_conformance::runtimes::processes;
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// One catalog cache in shared memory: its model, the code that is held to it, and what it costs.
///
/// Exit status: 0 if everything held, 1 if something did not (or was not run), 2 for wrong input.
#[derive(Parser)]
#[command(version, about, max_term_width = 100)]
struct Arguments {
    /// What to do.
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check the models exhaustively, and that each fault put into them is caught.
    Check {
        /// Scopes or faults; all of them if none is named.
        #[arg(value_name = "SCOPE|FAULT")]
        names: Vec<String>,
        /// This fault, with its shortest counterexample; may be repeated.
        #[arg(long, value_name = "NAME")]
        fault: Vec<String>,
        /// List the faults, each with its scope and the property that it breaks, and check nothing.
        #[arg(long, conflicts_with_all = ["names", "fault", "full"])]
        faults: bool,
        /// The large scopes too.
        #[arg(long)]
        full: bool,
        /// Draw the scopes into this folder, as SVG.
        #[arg(long, value_name = "DIR")]
        plots: Option<PathBuf>,
        /// Write the report as JSON.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Hold the code to the model: litmus files through outcomes, replay, shuttle, loom, real threads and processes; faults; oracle.
    Conform {
        /// Litmus files, by path or by the name of a shipped one; all shipped ones if none is named.
        #[arg(value_name = "FILE")]
        files: Vec<String>,
        /// More random runs, and loom with its bound raised.
        #[arg(long)]
        full: bool,
        /// Pin the counts anew, in the checkout; for after a change that was meant.
        #[arg(long, conflicts_with = "full")]
        pin: bool,
        /// Of one file: the shortest run of the model to this outcome, or the rules that forbid it. Whole, as `conform FILE`
        /// prints outcomes, or in part, as in `never` and `sometimes`: "reader = v0 after writer and loader = v1".
        #[arg(long, value_name = "OUTCOME", requires = "files", conflicts_with_all = ["full", "pin"])]
        explain: Option<String>,
        /// Draw that run as a sequence diagram.
        #[arg(long, value_name = "FILE", requires = "explain")]
        svg: Option<PathBuf>,
        /// Write the report as JSON.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Measure the cache and its rivals. Refuses for code that has not passed `conform`.
    Bench {
        /// Parts: instructions, hits, rivals, strategies, processes, storm, traces, memory; all of them if none is named.
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        /// Ten rounds of everything.
        #[arg(long)]
        full: bool,
        /// Measure code that has not passed; every line is marked.
        #[arg(long)]
        unverified: bool,
        /// Draw what was measured into this folder, as SVG.
        #[arg(long, value_name = "DIR")]
        plots: Option<PathBuf>,
        /// Write the report as JSON.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// The main job: check, conform, bench, in that order.
    Verify {
        /// Check only these scopes of the model (the rest is then named as skipped, and the verdict is not green).
        #[arg(long, value_name = "SCOPE")]
        scope: Vec<String>,
        /// Draw scopes and figures into this folder, as SVG.
        #[arg(long, value_name = "DIR")]
        plots: Option<PathBuf>,
        /// Write the report as JSON.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Walk through a model in a browser (stateright's Explorer).
    Explore {
        /// A scope, a fault or a litmus file.
        #[arg(value_name = "SCOPE|FAULT|LITMUS", default_value = "tuple")]
        name: String,
        /// The port on localhost.
        #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u16).range(1..))]
        port: u16,
    },
}

fn main() -> ExitCode {
    // What this program runs itself as, one process for each backend of a litmus file.
    if processes::is_worker() {
        processes::serve();
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    // What this program runs itself as: under valgrind, and as a worker process.
    if let Some(result) = catcache_benches::hidden(&words) {
        return match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("catcache: {error}");
                ExitCode::from(2)
            }
        };
    }
    let arguments = Arguments::parse();
    // A server has nothing to finish: an interrupt ends it at once.
    let serves = matches!(arguments.command, Command::Explore { .. });
    let stop = if serves { Arc::default() } else { front::stop_on_interrupt() };
    let done = match arguments.command {
        Command::Check { faults: true, json, .. } => front::list_faults(json.as_deref()),
        Command::Check { names, fault, full, plots, json, .. } => {
            front::check_command(&names, &fault, full, plots.as_deref(), json.as_deref(), &stop)
        }
        Command::Conform { files, explain: Some(outcome), svg, json, .. } => {
            front::explain_command(&files, &outcome, svg.as_deref(), json.as_deref(), &stop)
        }
        Command::Conform { files, full, pin, json, .. } => {
            front::conform_command(&files, full, pin, json.as_deref(), &stop)
        }
        Command::Bench { names, full, unverified, plots, json } => {
            let plots = plots.as_deref();
            front::bench_command(&names, full, unverified, plots, json.as_deref(), &stop)
        }
        Command::Verify { scope, plots, json } => {
            front::verify_command(&scope, plots.as_deref(), json.as_deref(), &stop)
        }
        Command::Explore { name, port } => front::explore(&name, port),
    };
    match done.and_then(|held| front::said().map(|()| held)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("catcache: {error:#}");
            ExitCode::from(2)
        }
    }
}
