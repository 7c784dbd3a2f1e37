//! Explores litmus files under shuttle and loom.
use catcache_conformance::{acceptance::{explore, Explore}, litmus, refinement::Map};
use catcache_model::graph::Graph;
use std::sync::Arc;
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let bound = args.first().and_then(|a| a.parse().ok());
    let only: Vec<_> = args.iter().skip(1).collect();
    for l in litmus::shipped().unwrap() {
        if !only.is_empty() && !only.contains(&&l.name) { continue; }
        let map = Arc::new(Map::new(&l));
        let graph = Arc::new(Graph::explore(&map.program, 400_000).unwrap());
        for how in [Explore::Random(300), Explore::Walks(300), Explore::Pct(3, 300), Explore::Loom(bound)] {
            let t = std::time::Instant::now();
            match explore(&l, &map, &graph, how, None) {
                Ok(a) => println!("{} {how:?}: {a:?} of {} edges, {:.2} s", l.name, graph.edges.len(), t.elapsed().as_secs_f64()),
                Err(e) => println!("{} {how:?}: REJECTED {e}, {:.2} s", l.name, t.elapsed().as_secs_f64()),
            }
        }
    }
}
