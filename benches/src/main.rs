//! The command line (for now the hidden commands only).
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(result) = catcache_benches::counted::child(&arguments) {
        if let Err(error) = result {
            eprintln!("{error}");
            std::process::exit(2);
        }
        return;
    }
    if let [command, folder, out] = &arguments[..]
        && command == "__pack"
    {
        let archive = catcache_benches::trace::pack(std::path::Path::new(folder)).expect("pack");
        std::fs::write(out, archive).expect("write");
    }
    if arguments.first().is_some_and(|word| word == "bench") {
        let full = arguments.iter().any(|word| word == "--full");
        let options = catcache_benches::suite::Options {
            form: if full { catcache_benches::suite::Form::Full } else { catcache_benches::suite::Form::Quick },
            program: std::env::current_exe().expect("exe"),
            stop: &std::sync::atomic::AtomicBool::new(false),
        };
        let start = std::time::Instant::now();
        let mut stage = "";
        let mut progress = |progress: &catcache_benches::suite::Progress| {
            if progress.stage != stage {
                stage = progress.stage;
                eprintln!("{:6.1} s  {:3.0} %  {stage}", start.elapsed().as_secs_f64(), progress.done * 100.0);
            }
        };
        let report = catcache_benches::suite::run(&options, &mut progress).expect("bench");
        println!("{}", report.figures());
        for metric in ["lookup", "loads per miss of one backend", "memory"] {
            println!("{}", report.traces(metric));
        }
        println!("{}\n{}", report.targets(), report.left_out());
        println!("{:.1} s", report.seconds);
    }
}
