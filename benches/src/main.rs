//! The command line (for now: the hidden commands, and `bench`).

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use catcache_benches::suite::{Form, Options, Progress};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let result = catcache_benches::hidden(&words).unwrap_or_else(|| bench(&words));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(words: &[String]) -> Result<(), catcache_benches::rivals::Failure> {
    let full = words.iter().any(|word| word == "--full");
    let stop = AtomicBool::new(false);
    let form = if full { Form::Full } else { Form::Quick };
    let options = Options { form, program: std::env::current_exe()?, stop: &stop };
    let start = std::time::Instant::now();
    let mut stage = "";
    let mut progress = |progress: &Progress| {
        if progress.stage != stage {
            stage = progress.stage;
            eprintln!("{:6.1} s  {:3.0} %  {stage}", start.elapsed().as_secs_f64(), progress.done * 100.0);
        }
    };
    let report = catcache_benches::suite::run(&options, &mut progress)?;
    for table in report.tables() {
        println!("{table}");
    }
    println!("{}\n{}\n{:.1} s", report.targets(), report.left_out(), report.seconds);
    Ok(())
}
