//! Two backends in two threads over one segment: who sees what, and when.
//!
//! Run it with `cargo run -p shared-catcache --example two_backends`.
//!
//! The reader caches a row; the writer changes it. The reader goes on seeing the old row until it *accepts messages*,
//! which a server does when it begins a transaction or has got a lock: in between its answers must not change under its
//! feet (A7). Then it sees the new one, and a third backend, which comes late, finds it in shared memory already.

#![allow(clippy::disallowed_types)] // A program that uses the crate may use the standard library's threads.

use shared_catcache::backend::{Backend, MemoryCatalog};
use shared_catcache::{Config, Key, Shared};
use std::error::Error;
use std::sync::Barrier;
use std::thread;

/// The table `accounts`, in database 5, in the cache "relation by name". The hash is the host's, and must be the same in
/// all backends.
const ACCOUNTS: Key<'static> = Key { database: 5, cache: 0, hash: 0x5eed_1234, bytes: b"accounts" };

fn text(row: Option<&[u8]>) -> String {
    row.map_or("no such row".into(), |row| String::from_utf8_lossy(row).into_owned())
}

fn main() -> Result<(), Box<dyn Error>> {
    // One segment for all. `Shared::create` and `Shared::attach` make it available to other processes.
    let shared = Shared::anonymous(&Config::default())?;
    let catalog = MemoryCatalog::new();
    catalog.fill(&ACCOUNTS, b"accounts(aid int, abalance int)");

    // The threads take turns at this barrier.
    let turn = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| reader(&shared, &catalog, &turn).expect("the reader"));
        scope.spawn(|| writer(&shared, &catalog, &turn).expect("the writer"));
    });

    let mut late = Backend::attach(&shared, 5, catalog.session(()))?;
    println!("late    finds      {}", text(late.lookup(&ACCOUNTS)?));
    println!("late    scanned the catalog {} times", late.stats().scans);
    Ok(())
}

fn reader(shared: &Shared, catalog: &MemoryCatalog, turn: &Barrier) -> Result<(), Box<dyn Error>> {
    let mut backend = Backend::attach(shared, 5, catalog.session(()))?;
    backend.on_invalidation(|what| println!("reader  is told of {what:?}"));
    println!("reader  loads      {}", text(backend.lookup(&ACCOUNTS)?));
    turn.wait(); // the writer commits
    turn.wait();
    println!("reader  still sees {}", text(backend.lookup(&ACCOUNTS)?));
    backend.accept();
    println!("reader  now sees   {}", text(backend.lookup(&ACCOUNTS)?));
    Ok(())
}

fn writer(shared: &Shared, catalog: &MemoryCatalog, turn: &Barrier) -> Result<(), Box<dyn Error>> {
    let mut backend = Backend::attach(shared, 5, catalog.session(()))?;
    turn.wait();
    backend.begin()?;
    backend.put(&ACCOUNTS, b"accounts(aid int, abalance int, note text)")?;
    backend.command_end();
    println!("writer  sees its own {}", text(backend.lookup(&ACCOUNTS)?));
    backend.commit()?;
    println!("writer  has committed");
    turn.wait();
    Ok(())
}
