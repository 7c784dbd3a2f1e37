//! Two processes over one segment: who sees what, and when.
//!
//! Run it with `cargo run -p shared-catcache --example two_processes`.
//!
//! This program runs itself a second time. The first process creates the segment, and the second attaches to it by its
//! name; each has a backend. What they cache is the rows of a catalog that both can read: here [`MemoryCatalog::in_file`],
//! which takes each snapshot, and makes each commit visible, under the lock of one file. So a commit comes before every
//! snapshot that sees it, in whichever process: that is what the cache asks of a host.
//!
//! The second process commits. The first goes on seeing the old row until it accepts messages, and then finds the new one
//! in the segment, where the other has put it: it does not read the catalog again. `cargo test` runs this program, too.

use shared_catcache::backend::{Backend, MemoryCatalog, MemorySession};
use shared_catcache::{Config, Key, Shared};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The table `accounts`, in database 5, in the cache "relation by name". The hash is the host's, and must be the same in
/// all processes.
const ACCOUNTS: Key<'static> = Key { database: 5, cache: 0, hash: 0x5eed_1234, bytes: b"accounts" };

const OLD: &str = "accounts(aid int, abalance int)";
const NEW: &str = "accounts(aid int, abalance int, note text)";

/// Tells the second process where the segment and the catalog are; so it also says that this is the second.
const PLACE: &str = "CATCACHE_EXAMPLE_PLACE";

fn segment(place: &Path) -> PathBuf {
    place.with_extension("segment")
}

fn catalog(place: &Path) -> PathBuf {
    place.with_extension("catalog")
}

/// Looks the row up, and says so.
fn look(who: &str, backend: &mut Backend<MemorySession>) -> Outcome<String> {
    let row = backend.lookup(&ACCOUNTS)?.ok_or("there is such a table")?;
    let row = String::from_utf8_lossy(row).into_owned();
    println!("{who:<6} process sees {row:<43} scans so far: {}", backend.stats().scans);
    Ok(row)
}

fn main() -> Outcome<()> {
    match std::env::var_os(PLACE) {
        Some(place) => second(Path::new(&place)),
        None => {
            let place = PathBuf::from(format!("/dev/shm/catcache-two-processes-{}", std::process::id()));
            let done = first(&place);
            // The segment goes with its handle; the catalog is ours to remove.
            let _ = std::fs::remove_file(catalog(&place));
            done
        }
    }
}

fn first(place: &Path) -> Outcome<()> {
    let shared = Shared::create_owned(segment(place), &Config::default())?;
    let catalog = MemoryCatalog::in_file(catalog(place))?;
    catalog.fill(&ACCOUNTS, OLD.as_bytes());
    let mut backend = Backend::attach(&shared, ACCOUNTS.database, catalog.session(()))?;
    assert_eq!(look("first", &mut backend)?, OLD);

    // Started anew, not forked: nothing of this process is in it but what it is told.
    let status = Command::new(std::env::current_exe()?).env(PLACE, place).status()?;
    assert!(status.success(), "the second process: {status}");

    assert_eq!(look("first", &mut backend)?, OLD, "what it has seen stays, until it accepts");
    backend.accept();
    assert_eq!(look("first", &mut backend)?, NEW);
    assert_eq!(backend.stats().scans, 1, "the new row came from the segment");
    Ok(())
}

fn second(place: &Path) -> Outcome<()> {
    let shared = Shared::attach(segment(place))?;
    let catalog = MemoryCatalog::in_file(catalog(place))?;
    let mut backend = Backend::attach(&shared, ACCOUNTS.database, catalog.session(()))?;
    assert_eq!(look("second", &mut backend)?, OLD);
    assert_eq!(backend.stats().scans, 0, "the old row came from the segment");

    backend.begin()?;
    backend.put(&ACCOUNTS, NEW.as_bytes())?;
    backend.commit()?;
    println!("second process has committed");
    backend.accept();
    assert_eq!(look("second", &mut backend)?, NEW);
    assert_eq!(backend.stats().scans, 1, "nobody had read the new row before");
    Ok(())
}
