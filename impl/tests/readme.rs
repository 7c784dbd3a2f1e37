//! The README's lines on how to embed the crate, compiled, and held to the README.

use shared_catcache::backend::{Backend, MemoryCatalog};
use shared_catcache::{Config, Key, Shared};

/// Not run: it would leave a segment behind.
#[rustfmt::skip]
#[allow(dead_code)]
fn embed() -> Result<(), Box<dyn std::error::Error>> {

    let shared = Shared::create("/dev/shm/catalog", &Config::default())?;      // or `anonymous`, `memfd`; others `attach`
    let mut backend = Backend::attach(&shared, 1, MemoryCatalog::new().session(()))?;
    let key = Key { database: 1, cache: 35, hash: 0x1c15_e696, bytes: b"pg_class" };
    backend.begin()?;
    backend.put(&key, b"a row")?;                                             // a host with its own catalog: `changed(&key)`
    backend.commit()?;                                                        // others see it from their next accept on
    let row = backend.lookup(&key)?;                                          // borrowed from the segment, not copied
    assert_eq!(row, Some(&b"a row"[..]));
    Ok(())
}

#[test]
fn the_readme_shows_what_is_compiled_here() {
    let (readme, here) = (include_str!("../../README.md"), include_str!("readme.rs"));
    let (_, rest) = readme.split_once("```rust\n").expect("it has a block of Rust");
    let (block, _) = rest.split_once("```").expect("the block ends");
    for line in block.lines() {
        assert!(here.lines().any(|l| l.trim_start() == line), "not compiled here: {line}");
    }
}
