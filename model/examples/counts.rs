//! Prints the counts of every scope and what catches every fault: what to pin after a change of the model.
use catcache_model::check;
use catcache_model::coherence::{Fault, Scope};
use catcache_model::coverage::Coverage;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let coverage = Coverage::default();
    for scope in Scope::all().iter().filter(|s| wanted.is_empty() || wanted.iter().any(|w| w == s.name)) {
        let v = check::scope(scope, 2, &coverage);
        println!("    (\"{}\", {}, {}), // {:.1} s", v.scope, v.unique, v.generated, v.took.as_secs_f64());
        for (name, columns) in &v.broken {
            println!("BROKEN {name}\n{columns}");
        }
    }
    println!("never taken: {:?}", coverage.missing());
    for fault in Fault::ALL.iter().filter(|f| wanted.is_empty() || wanted.iter().any(|w| w == f.name())) {
        match check::fault(*fault) {
            None => println!("{}: no scope {}", fault.name(), fault.scope()),
            Some(v) if v.caught() => println!("caught {} in {} by {:?}, {} steps, {} states, {:.1} s", fault.name(), v.scope, v.broke, v.counterexample.len(), v.unique, v.took.as_secs_f64()),
            Some(v) => println!("NOT AS EXPECTED {} in {}: {:?} instead of {:?} ({} states)\n{}", fault.name(), v.scope, v.broke, fault.breaks(), v.unique, v.columns),
        }
    }
}
