//! Replays litmus files, or all of them, with a rule switched off if one is named.
use catcache_conformance::{litmus, refinement::Map, replay, rules::Rule};
use catcache_model::graph::Graph;
use std::sync::Arc;
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rule = Rule::ALL.iter().copied().find(|r| args.iter().any(|a| a == r.name()));
    for l in litmus::shipped().unwrap() {
        if args.iter().any(|a| Rule::ALL.iter().all(|r| r.name() != a)) && !args.contains(&l.name) { continue; }
        let map = Arc::new(Map::new(&l));
        let t = std::time::Instant::now();
        let graph = match Graph::explore(&map.program, 400_000) { Ok(g) => Arc::new(g), Err(e) => { println!("{}: {e}", l.name); continue } };
        let explored = t.elapsed();
        let broken: Vec<_> = graph.states.iter().filter_map(|s| s.broken).collect();
        let head = format!("{}: {} states {} edges {} outcomes, explored {:.2} s, cycle {:?} deadlock {:?} broken {:?}", l.name, graph.states.len(), graph.edges.len(), graph.outcomes().len(), explored.as_secs_f64(), graph.cycle(), graph.deadlock(), broken.first());
        match replay::every_edge(&l, &map, &graph, rule) {
            Ok(r) => println!("{head}: {r:?} {:.2} s", t.elapsed().as_secs_f64()),
            Err(d) => println!("{head}: DIVERGED {d}"),
        }
    }
}
