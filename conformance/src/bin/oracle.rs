//! Runs the oracle's random plans on the real cache, for a race detector or for as long as one likes:
//!
//! ```text
//! oracle [ROUNDS [SEED]] [--detector]
//! ```
//!
//! `--detector`: the recording does not order the threads, so that it hides no race (`ci/tsan.sh` sets it). Exit status 0:
//! no answer was wrong; 1: one was; 2: the arguments are.

use catcache_conformance::oracle::{Plan, RunError, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut numbers = Vec::new();
    let mut detector = false;
    for argument in std::env::args().skip(1) {
        match (argument.as_str(), argument.parse::<u64>()) {
            ("--detector", _) => detector = true,
            (_, Ok(number)) if numbers.len() < 2 => numbers.push(number),
            _ => {
                eprintln!("`{argument}` is not understood. Usage: oracle [ROUNDS [SEED]] [--detector]");
                return ExitCode::from(2);
            }
        }
    }
    let rounds = match u32::try_from(numbers.first().copied().unwrap_or(2_000)) {
        Ok(rounds) => rounds,
        Err(_) => {
            eprintln!("at most {} rounds", u32::MAX);
            return ExitCode::from(2);
        }
    };
    let seed = numbers.get(1).copied().unwrap_or(1);
    for plan in Plan::all(rounds, seed) {
        let plan = Plan { detector, ..plan };
        println!("{} readers, {} writers, {rounds} rounds each, seed {}", plan.readers, plan.writers, plan.seed);
        match run(&plan) {
            Ok(outcome) => println!("  {}; {} resets, {} restarts", outcome.tally, outcome.resets, outcome.restarts),
            Err(RunError::Violation(violation)) => {
                eprintln!("  wrong: {violation}");
                return ExitCode::FAILURE;
            }
            Err(other) => {
                eprintln!("  no verdict: {other}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
