//! How to embed the cache: a server of one's own, with a catalog of one's own.
//!
//! Run it with `cargo run -p shared-catcache --example embed`.
//!
//! The catalog here is a tiny registry of tables: name → definition. What the cache asks of it is the [`Catalog`] trait:
//! snapshots, scans, and the parts of a commit in their order. The registry keeps all rows in an immutable map behind an
//! `Arc`; a snapshot is a clone of that `Arc`, and a commit swaps in a new map. That is the simplest multi-version store
//! there is, and it is all that the contract needs:
//!
//! 1. a snapshot must not see a commit that became visible after it was taken, nor half of one;
//! 2. own changes show in own scans once their command has ended, and nowhere else before the commit;
//! 3. what a transaction has changed stays locked until `unlock`, which comes after the messages.

#![allow(clippy::disallowed_types)] // A program that uses the crate may use the standard library's locks.

use shared_catcache::backend::{Backend, Catalog, Nested};
use shared_catcache::{Config, Key, Shared};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The one database of this server, and the one cache: tables by name.
const DATABASE: u32 = 1;
const TABLE_BY_NAME: u8 = 0;

type Tables = BTreeMap<String, String>;

/// What all sessions of the server share.
#[derive(Default)]
struct Registry {
    /// The committed tables. Never changed in place: a snapshot is a clone of the `Arc`.
    tables: Arc<Tables>,
    /// The session that is changing definitions; one at a time.
    changer: Option<u32>,
}

/// Why the registry refuses.
#[derive(Debug, thiserror::Error)]
enum RegistryError {
    #[error("session {0} is changing tables; try again when it has ended its transaction")]
    Locked(u32),
}

/// One session of the server, with its transaction.
struct Session {
    number: u32,
    registry: Arc<Mutex<Registry>>,
    /// Changes of the running command; `None` drops the table.
    pending: BTreeMap<String, Option<String>>,
    /// Changes of earlier commands.
    finished: BTreeMap<String, Option<String>>,
}

impl Session {
    fn new(number: u32, registry: &Arc<Mutex<Registry>>) -> Session {
        Session { number, registry: registry.clone(), pending: BTreeMap::new(), finished: BTreeMap::new() }
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `CREATE`, `ALTER` or (with `None`) `DROP TABLE`: takes the lock and notes the change.
    fn define(&mut self, name: &str, definition: Option<&str>) -> Result<(), RegistryError> {
        let mut registry = self.registry();
        match registry.changer {
            Some(other) if other != self.number => return Err(RegistryError::Locked(other)),
            _ => registry.changer = Some(self.number),
        }
        drop(registry);
        self.pending.insert(name.into(), definition.map(Into::into));
        Ok(())
    }
}

impl Catalog for Session {
    type Snapshot = Arc<Tables>;
    type Error = RegistryError;

    fn snapshot(&mut self) -> Result<Arc<Tables>, RegistryError> {
        Ok(self.registry().tables.clone())
    }

    fn scan(
        &mut self,
        key: &Key<'_>,
        snapshot: &Arc<Tables>,
        row: &mut Vec<u8>,
        _nested: &mut dyn Nested, // for catalogs whose scans process invalidations on the way
    ) -> Result<bool, RegistryError> {
        let name = String::from_utf8_lossy(key.bytes);
        let found = match self.finished.get(&*name) {
            Some(own) => own.as_ref(),
            None => snapshot.get(&*name),
        };
        if let Some(definition) = found {
            println!("    (session {} reads {name} from the registry)", self.number);
            row.extend_from_slice(definition.as_bytes());
        }
        Ok(found.is_some())
    }

    fn command_end(&mut self) {
        self.finished.append(&mut self.pending);
    }

    fn log(&mut self) -> Result<(), RegistryError> {
        // A durable server writes and flushes its log here: the next step must be quick.
        self.command_end();
        Ok(())
    }

    fn make_visible(&mut self) -> Result<(), RegistryError> {
        let changes = std::mem::take(&mut self.finished);
        let mut registry = self.registry();
        let mut tables = Tables::clone(&registry.tables);
        for (name, definition) in changes {
            match definition {
                Some(definition) => tables.insert(name, definition),
                None => tables.remove(&name),
            };
        }
        registry.tables = Arc::new(tables);
        Ok(())
    }

    fn unlock(&mut self) {
        let mut registry = self.registry();
        if registry.changer == Some(self.number) {
            registry.changer = None;
        }
    }

    fn undo(&mut self) {
        self.pending.clear();
        self.finished.clear();
        self.unlock();
    }
}

/// The key of a table. Bytes must be canonical (equal keys, equal bytes), and the hash the same in every process: here
/// FNV-1a.
fn table(name: &str) -> Key<'_> {
    let hash = name.bytes().fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    Key { database: DATABASE, cache: TABLE_BY_NAME, hash, bytes: name.as_bytes() }
}

/// A statement of this server: change the registry, and tell the cache what was changed.
fn alter(
    backend: &mut Backend<Session>,
    name: &str,
    definition: Option<&str>,
) -> Result<(), Box<dyn std::error::Error>> {
    backend.catalog_mut().define(name, definition)?;
    // Whether or not the row is cached anywhere, and also if it did not exist: others may have cached just that.
    backend.changed(&table(name))?;
    backend.command_end();
    Ok(())
}

fn show(who: &str, backend: &mut Backend<Session>, name: &str) -> Result<(), Box<dyn std::error::Error>> {
    let row = backend.lookup(&table(name))?;
    println!("{who}: {name} is {}", row.map_or("unknown".into(), String::from_utf8_lossy));
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shared = Shared::anonymous(&Config::default())?;
    let registry = Arc::new(Mutex::new(Registry::default()));
    let mut alice = Backend::attach(&shared, DATABASE, Session::new(1, &registry))?;
    let mut bob = Backend::attach(&shared, DATABASE, Session::new(2, &registry))?;

    println!("Nobody has created the table; that answer is cached too.");
    show("bob", &mut bob, "orders")?;

    println!("Alice creates it. Until she commits, it is hers alone.");
    alice.begin()?;
    alter(&mut alice, "orders", Some("(id int)"))?;
    show("alice", &mut alice, "orders")?;
    bob.accept();
    show("bob", &mut bob, "orders")?;
    if let Err(refused) = bob.begin().map_err(Into::into).and_then(|()| alter(&mut bob, "orders", None)) {
        println!("bob: {refused}");
        bob.abort()?;
    }
    alice.commit()?;

    println!("Bob begins a transaction, and hears of it. Only the first of them reads the registry.");
    bob.begin()?;
    show("bob", &mut bob, "orders")?;
    alice.accept();
    show("alice", &mut alice, "orders")?;

    println!("Bob changes it, and thinks better of it.");
    alter(&mut bob, "orders", Some("(id int, note text)"))?;
    show("bob", &mut bob, "orders")?;
    bob.abort()?;
    show("bob", &mut bob, "orders")?;

    println!("alice: {:?}", alice.stats());
    println!("bob: {:?}", bob.stats());
    Ok(())
}
