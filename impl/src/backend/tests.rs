//! Scenarios of the backend layer, one for each contract statement that it alone is answerable for. All are scripted in
//! one thread, so each shows one interleaving; the conformance suite shows the others.

mod lists;

use super::*;
use crate::shared::{Config, Uniform};
use crate::sync::{Arc, Mutex, thread};

/// Two keys of one hash, one of another, one of a shared catalog.
const K1: Key<'static> = Key { database: 1, cache: 3, hash: 7, bytes: b"k1" };
const K2: Key<'static> = Key { database: 1, cache: 3, hash: 7, bytes: b"k2" };
const K3: Key<'static> = Key { database: 1, cache: 3, hash: 8, bytes: b"k3" };
const GLOBAL: Key<'static> = Key { database: 0, cache: 9, hash: 11, bytes: b"role" };

type Plain = Backend<MemorySession>;

struct World {
    shared: Shared,
    catalog: MemoryCatalog,
}

fn config() -> Config {
    Config { uniform: Some(Uniform { slots: 64, bytes: 128 }), backends: 8, ..Config::tiny() }
}

impl World {
    fn new() -> World {
        World::with(&config())
    }

    fn with(config: &Config) -> World {
        let world = World { shared: Shared::anonymous(config).unwrap(), catalog: MemoryCatalog::new() };
        world.catalog.fill(&K1, b"v0");
        world.catalog.fill(&K3, b"v0");
        world.catalog.fill(&GLOBAL, b"v0");
        world
    }

    fn backend(&self) -> Plain {
        self.backend_of(1)
    }

    fn backend_of(&self, database: u32) -> Plain {
        Backend::attach(&self.shared, database, self.catalog.session(())).unwrap()
    }

    fn watched<P: Probe + Clone>(&self, probe: P) -> Backend<MemorySession<P>, P> {
        Backend::attach_with(&self.shared, 1, self.catalog.session(probe.clone()), probe).unwrap()
    }

    /// References that anybody holds to entries of the shared table.
    fn references(&self) -> u32 {
        self.shared.peek().entries.iter().map(|entry| entry.references).sum()
    }
}

/// A probe that switches one rule off.
#[derive(Clone, Copy)]
struct Without(Rule);

impl Probe for Without {
    fn keeps(&self, rule: Rule) -> bool {
        rule != self.0
    }
}

fn see<C: Catalog, P: Probe>(backend: &mut Backend<C, P>, key: &Key<'_>) -> Option<String> {
    backend.lookup(key).unwrap().map(|row| String::from_utf8(row.to_vec()).unwrap())
}

fn row(text: &str) -> Option<String> {
    Some(text.into())
}

/// A whole transaction that changes one row.
fn update<P: Probe>(backend: &mut Backend<MemorySession<P>, P>, key: &Key<'_>, new: &str) {
    backend.begin().unwrap();
    backend.put(key, new.as_bytes()).unwrap();
    backend.commit().unwrap();
}

#[test]
fn a_backend_can_move_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Plain>();
}

#[test]
fn the_second_backend_reads_no_catalog() {
    let world = World::new();
    let (mut one, mut two) = (world.backend(), world.backend());
    assert_eq!(see(&mut one, &K1), row("v0"));
    assert_eq!(see(&mut one, &K2), None);
    assert_eq!(see(&mut two, &K1), row("v0"));
    assert_eq!(see(&mut two, &K2), None, "a negative entry is shared as well (A35)");
    assert_eq!((one.stats().scans, one.stats().published), (2, 2));
    assert_eq!((two.stats().scans, two.stats().shared_hits), (0, 2));
    assert_eq!(see(&mut two, &K1), row("v0"));
    assert_eq!(two.stats().lookups - two.stats().misses, 1);
    drop((one, two));
    assert_eq!(world.references(), 0, "references go with their backend");
}

/// A1, A7: a change shows after the accept and not before, however often one looks, even if the entry is evicted.
#[test]
fn an_answer_is_stable_until_the_accept_and_fresh_after_it() {
    let world = World::new();
    let (mut reader, mut writer) = (world.backend(), world.backend());
    assert_eq!(see(&mut reader, &K1), row("v0"));
    update(&mut writer, &K1, "v1");
    world.shared.evict(&(), &K1);
    assert_eq!(see(&mut reader, &K1), row("v0"));
    assert_eq!(see(&mut writer, &K1), row("v1"), "who has nothing cached sees it at once");
    assert_eq!(see(&mut reader, &K1), row("v0"));
    reader.accept();
    assert_eq!(see(&mut reader, &K1), row("v1"));
    update(&mut writer, &K1, "v2");
    reader.begin().unwrap();
    assert_eq!(see(&mut reader, &K1), row("v2"), "A3: a transaction begins with an accept");
}

/// A4: only a miss accepts.
#[test]
fn a_local_hit_never_accepts() {
    let world = World::new();
    let (mut reader, mut writer) = (world.backend(), world.backend());
    see(&mut reader, &K1);
    see(&mut reader, &K3);
    update(&mut writer, &K1, "v1");
    assert_eq!(see(&mut reader, &K3), row("v0"));
    assert_eq!(see(&mut reader, &K1), row("v0"));
    assert_eq!(see(&mut reader, &GLOBAL), row("v0"), "a miss: it accepts");
    assert_eq!(see(&mut reader, &K1), row("v1"));
}

/// A23: own changes show from the next command on; D8: then instead of what is in the shared table.
#[test]
fn own_changes_show_at_the_commands_end() {
    let world = World::new();
    let (mut other, mut own) = (world.backend(), world.backend());
    see(&mut other, &K1);
    own.begin().unwrap();
    assert_eq!(see(&mut own, &K1), row("v0"));
    own.put(&K1, b"mine").unwrap();
    own.put(&K2, b"new").unwrap();
    assert_eq!(see(&mut own, &K1), row("v0"));
    assert_eq!(see(&mut own, &K2), None);
    own.command_end();
    assert_eq!(see(&mut own, &K1), row("mine"));
    assert_eq!(see(&mut own, &K2), row("new"));
    own.delete(&K1).unwrap();
    own.command_end();
    assert_eq!(see(&mut own, &K1), None);
    own.commit().unwrap();
    assert_eq!(see(&mut own, &K1), None);
    assert_eq!(see(&mut own, &K2), row("new"));
}

/// A24, D7: an uncommitted row is in nobody's answer, and not in the shared table when its writer has aborted.
#[test]
fn nobody_sees_what_is_not_committed() {
    let world = World::new();
    let (mut other, mut own) = (world.backend(), world.backend());
    own.begin().unwrap();
    own.put(&K1, b"mine").unwrap();
    own.command_end();
    assert_eq!(see(&mut own, &K1), row("mine"));
    assert_eq!(see(&mut other, &K1), row("v0"));
    assert_eq!(own.stats().kept_private, 1);
    own.abort().unwrap();
    assert_eq!(see(&mut own, &K1), row("v0"), "A27: the own image has left the local view");
    assert_eq!(own.stats().shared_hits, 1);
}

/// A27: an abort drops also what was loaded before the change (here: a negative entry of the same hash).
#[test]
fn an_abort_drops_everything_that_it_covers() {
    let world = World::new();
    let mut own = world.backend();
    own.begin().unwrap();
    assert_eq!(see(&mut own, &K2), None);
    own.put(&K2, b"mine").unwrap();
    own.command_end();
    assert_eq!(see(&mut own, &K2), row("mine"));
    assert_eq!(see(&mut own, &K1), row("v0"), "covered by its hash: private");
    assert_eq!(own.stats().private_entries, 2);
    own.abort().unwrap();
    assert_eq!(own.stats().local_entries, 0);
    assert_eq!(see(&mut own, &K2), None);
}

/// A28: a message drops every entry of its hash, and of no other, in no other cache and in no other database.
#[test]
fn a_message_matches_by_hash() {
    let world = World::new();
    let (mut reader, mut writer) = (world.backend(), world.backend());
    let other_cache = Key { cache: 4, ..K1 };
    let other_database = Key { database: 0, ..K1 };
    for key in [&K1, &K2, &K3, &other_cache, &other_database] {
        see(&mut reader, key);
    }
    assert_eq!(see(&mut reader, &K2), None, "a negative entry, of the same hash as K1");
    let heard = Arc::new(Mutex::new(Vec::new()));
    let log = heard.clone();
    reader.on_invalidation(move |what| log.lock().push(what));
    update(&mut writer, &K1, "v1");
    reader.accept();
    assert_eq!(reader.stats().local_entries, 3, "both of the hash, and only those");
    assert_eq!(*heard.lock(), [Invalidation::Of(Message::Row { database: 1, cache: 3, hash: 7 })]);
    // Insertion: it is the negative entry that must go.
    see(&mut reader, &K2);
    update(&mut writer, &K2, "now there is one");
    assert_eq!(see(&mut reader, &K2), None, "A7");
    reader.accept();
    assert_eq!(see(&mut reader, &K2), row("now there is one"));
}

/// A31, A57: a message of another database is not for us, one of database 0 is for everybody.
#[test]
fn databases_are_kept_apart_and_shared_catalogs_are_not() {
    let world = World::new();
    let (mut one, mut two) = (world.backend_of(1), world.backend_of(2));
    let here = Key { database: 2, ..K1 };
    world.catalog.fill(&here, b"v0 of database 2");
    assert_eq!(see(&mut one, &K1), row("v0"));
    assert_eq!(see(&mut two, &here), row("v0 of database 2"), "D29");
    assert_eq!(see(&mut two, &GLOBAL), row("v0"));
    assert!(matches!(two.lookup(&K1), Err(LookupError::ForeignDatabase { asked: 1, own: 2 })));
    update(&mut one, &K1, "v1");
    update(&mut one, &GLOBAL, "v1");
    two.accept();
    assert_eq!(two.stats().local_entries, 1);
    assert_eq!(see(&mut two, &here), row("v0 of database 2"));
    assert_eq!(see(&mut two, &GLOBAL), row("v1"));
}

/// A39: what a backend holds is neither freed nor changed, whatever happens to the entry.
#[test]
fn a_held_row_stays_what_it_is() {
    let world = World::with(&Config { uniform: Some(Uniform { slots: 3, bytes: 128 }), ..config() });
    let (mut reader, mut writer) = (world.backend(), world.backend());
    assert_eq!(see(&mut reader, &K1), row("v0"));
    let at = reader.lookup(&K1).unwrap().unwrap().as_ptr();
    for round in 0..20 {
        update(&mut writer, &K1, &format!("v{round}"));
        see(&mut writer, &K1);
        see(&mut writer, &K3);
        world.shared.evict(&(), &K1);
        writer.accept();
        let held = reader.lookup(&K1).unwrap().unwrap();
        assert_eq!((held, held.as_ptr()), (&b"v0"[..], at), "round {round}");
    }
    reader.accept();
    assert_eq!(see(&mut reader, &K1), row("v19"));
}

/// A catalog that lets others work between the read of a row and the end of its scan, as a fetch from a toast table does.
struct Interrupted {
    inner: MemorySession,
    during: Vec<Box<dyn FnMut() + Send>>,
    fails: bool,
}

impl Catalog for Interrupted {
    type Snapshot = MemorySnapshot;
    type Error = std::io::Error;

    fn snapshot(&mut self) -> Result<MemorySnapshot, Self::Error> {
        self.inner.snapshot().map_err(std::io::Error::other)
    }

    fn scan(
        &mut self,
        key: &Key<'_>,
        snapshot: &MemorySnapshot,
        row: &mut Vec<u8>,
        nested: &mut dyn Nested,
    ) -> Result<bool, Self::Error> {
        let present = self.inner.scan(key, snapshot, row, nested).map_err(std::io::Error::other)?;
        if let Some(mut during) = self.during.pop() {
            during();
            nested.accept();
        }
        if self.fails { Err(std::io::Error::other("the disk is on fire")) } else { Ok(present) }
    }

    fn command_end(&mut self) {
        self.inner.command_end();
    }

    fn log(&mut self) -> Result<(), Self::Error> {
        if self.fails { Err(std::io::Error::other("no space for the log")) } else { Ok(()) }
    }

    fn make_visible(&mut self) -> Result<(), Self::Error> {
        self.inner.make_visible().map_err(std::io::Error::other)
    }

    fn unlock(&mut self) {
        self.inner.unlock();
    }

    fn undo(&mut self) {
        self.inner.undo();
    }
}

impl World {
    fn interrupted(&self, during: Vec<Box<dyn FnMut() + Send>>) -> Backend<Interrupted> {
        Backend::attach(&self.shared, 1, Interrupted { inner: self.catalog.session(()), during, fails: false }).unwrap()
    }
}

/// B01: a row that was read before a commit whose message is consumed during the load is neither kept nor published.
#[test]
fn a_load_that_consumes_its_own_message_starts_again() {
    let world = World::new();
    let mut writer = world.backend();
    let mut second = world.backend();
    let during: Vec<Box<dyn FnMut() + Send>> = vec![
        Box::new(move || update(&mut second, &K2, "a neighbour of the hash")),
        Box::new(move || update(&mut writer, &K1, "v1")),
    ];
    let mut loader = world.interrupted(during);
    assert_eq!(see(&mut loader, &K1), row("v1"));
    assert_eq!((loader.stats().scans, loader.stats().restarts), (3, 2));
    assert_eq!(see(&mut world.backend(), &K1), row("v1"));
}

/// A44: messages about other rows don't disturb a load; what it read is still current, and published.
#[test]
fn a_load_that_consumes_a_strangers_message_goes_on() {
    let world = World::new();
    let mut writer = world.backend();
    let mut loader = world.interrupted(vec![Box::new(move || update(&mut writer, &K3, "v1"))]);
    assert_eq!(see(&mut loader, &K1), row("v0"));
    assert_eq!((loader.stats().restarts, loader.stats().published), (0, 1));
}

/// A49 during a load: a reset may have swallowed the message that matters.
#[test]
fn a_load_during_which_the_backend_is_reset_starts_again() {
    let world = World::new();
    let mut writer = world.backend();
    let mut loader = world.interrupted(vec![Box::new(move || {
        update(&mut writer, &K1, "v1");
        for round in 0..10 {
            update(&mut writer, &K3, &format!("v{round}"));
        }
    })]);
    assert_eq!(see(&mut loader, &K1), row("v1"));
    assert_eq!((loader.stats().resets, loader.stats().restarts), (1, 1));
}

/// B01 by the catalog's own means: a toasted key accepts in its scan. The message that it consumes makes it start again.
#[test]
fn a_toasted_row_is_loaded_with_an_accept_inside() {
    let world = World::new();
    world.catalog.toast(&K1);
    let (mut loader, mut writer) = (world.watched(Without(Rule::AcceptBeforeProbe)), world.backend());
    update(&mut writer, &K1, "v1");
    assert_eq!(see(&mut loader, &K1), row("v1"));
    assert_eq!(loader.stats().restarts, 1, "the commit's message came with the first scan");
}

/// B11, B67: a load that fails leaves nothing: not in the local view, not in the shared table, no mark.
#[test]
fn a_load_that_fails_leaves_nothing_behind() {
    let world = World::new();
    let mut backend = world.interrupted(Vec::new());
    backend.catalog_mut().fails = true;
    let error = backend.lookup(&K1).unwrap_err();
    assert_eq!(error.to_string(), "the catalog could not be read: the disk is on fire");
    assert_eq!(backend.stats().local_entries, 0);
    assert!(world.shared.peek().entries.is_empty());
    assert!(backend.driver.core.running.is_none() && backend.driver.core.held.is_none());
    backend.catalog_mut().fails = false;
    assert_eq!(see(&mut backend, &K1), row("v0"));
}

#[test]
fn a_commit_that_cannot_be_logged_is_an_abort() {
    let world = World::new();
    let mut backend = world.interrupted(Vec::new());
    backend.begin().unwrap();
    backend.catalog_mut().inner.put(&K1, b"mine").unwrap();
    backend.changed(&K1).unwrap();
    backend.command_end();
    assert_eq!(see(&mut backend, &K1), row("mine"));
    backend.catalog_mut().fails = true;
    assert!(matches!(backend.commit(), Err(CommitError::Log(_))));
    backend.catalog_mut().fails = false;
    assert_eq!(see(&mut backend, &K1), row("v0"));
    assert!(matches!(backend.abort(), Err(Error::Transaction { operation: "abort", .. })));
}

/// A commit whose P fails withdraws its bracket: the stripe is as before, entries stay valid, loads are published.
#[test]
fn a_commit_that_cannot_become_visible_leaves_the_stamps_alone() {
    let world = World::new();
    let (mut reader, mut writer) = (world.backend(), world.backend());
    see(&mut reader, &K1);
    writer.begin().unwrap();
    writer.put(&K1, b"mine").unwrap();
    writer.catalog_mut().refuse_next_visible();
    assert!(matches!(writer.commit(), Err(CommitError::Visible(MemoryError::Refused))));
    assert_eq!(see(&mut writer, &K1), row("v0"));
    assert_eq!(see(&mut writer, &K2), None);
    assert_eq!((writer.stats().shared_hits, writer.stats().published), (1, 1));
}

/// B38: a reset drops what was cached, never what the transaction has changed.
#[test]
fn a_reset_leaves_the_own_changes_alone() {
    let world = World::new();
    let (mut own, mut other) = (world.backend(), world.backend());
    let everything = Arc::new(Mutex::new(0));
    let count = everything.clone();
    own.begin().unwrap();
    own.on_invalidation(move |what| *count.lock() += u32::from(what == Invalidation::Everything));
    own.put(&K1, b"mine").unwrap();
    own.command_end();
    assert_eq!(see(&mut own, &K1), row("mine"));
    for round in 0..20 {
        update(&mut other, &K3, &format!("v{round}"));
    }
    own.accept();
    assert_eq!((own.stats().resets, own.stats().local_entries), (1, 0));
    assert_eq!(*everything.lock(), 1);
    assert_eq!(see(&mut own, &K1), row("mine"));
    assert_eq!(own.stats().published, 0, "still covered");
    assert_eq!(see(&mut other, &K1), row("v0"));
    own.commit().unwrap();
    other.accept();
    assert_eq!(see(&mut other, &K1), row("mine"), "and still sent");
}

/// A9: an entry that is newer than the held snapshot drops it, so that what is loaded next is not older. Here the writer's
/// messages are late, as they are between P and S (A10).
#[test]
fn a_newer_hit_drops_the_older_snapshot() {
    let world = World::new();
    let mut reader = world.backend();
    see(&mut reader, &GLOBAL);
    assert!(reader.driver.core.held.is_some());
    let mut writer = world.watched(Without(Rule::SendMessages));
    writer.begin().unwrap();
    writer.put(&K1, b"v1").unwrap();
    writer.put(&K3, b"v1").unwrap();
    writer.commit().unwrap();
    assert_eq!(see(&mut world.backend(), &K1), row("v1"));
    assert_eq!(see(&mut reader, &K1), row("v1"), "from the shared table");
    assert_eq!(see(&mut reader, &K3), row("v1"), "loaded, and not with the old snapshot");
}

/// A load whose token is already bad can't be published; it drops the snapshot, so that the next one can (a long
/// transaction would stay private for ever otherwise).
#[test]
fn a_useless_publication_drops_the_snapshot() {
    let world = World::new();
    let mut reader = world.backend();
    see(&mut reader, &GLOBAL);
    let mut writer = world.watched(Without(Rule::SendMessages));
    writer.begin().unwrap();
    writer.put(&K1, b"v1").unwrap();
    writer.put(&K3, b"v1").unwrap();
    writer.commit().unwrap();
    assert_eq!(see(&mut reader, &K1), row("v0"), "A10: legal until the message comes");
    assert_eq!((reader.stats().kept_private, reader.driver.core.held.is_some()), (1, false));
    assert_eq!(see(&mut reader, &K3), row("v1"));
    assert_eq!(reader.stats().published, 2);
}

/// A12: the catalog snapshot is reused, and dropped by a message, a command's end, a transaction's end.
#[test]
fn the_catalog_snapshot_is_held_until_something_makes_it_too_old() {
    let world = World::new();
    let (mut reader, mut writer) = (world.backend(), world.backend());
    see(&mut reader, &K1);
    let token = reader.driver.core.held.unwrap();
    see(&mut reader, &K2);
    assert_eq!(reader.driver.core.held.map(|held| held.value()), Some(token.value()), "two loads, one token (D3)");
    update(&mut writer, &K3, "v1");
    reader.accept();
    assert!(reader.driver.core.held.is_none() && reader.driver.snapshot.is_none());
    see(&mut reader, &K3);
    reader.begin().unwrap();
    assert!(reader.driver.core.held.is_none());
    see(&mut reader, &GLOBAL);
    reader.command_end();
    assert!(reader.driver.core.held.is_some(), "a command that has changed nothing");
    reader.put(&K3, b"v2").unwrap();
    reader.command_end();
    assert!(reader.driver.core.held.is_none());
    see(&mut reader, &K3);
    reader.commit().unwrap();
    assert!(reader.driver.core.held.is_none() && reader.driver.snapshot.is_none());
}

/// A21, A25: a change that the catalog knows nothing of (no row, no transaction id) is sent all the same.
#[test]
fn a_registered_change_is_sent_whether_or_not_the_catalog_has_one() {
    let world = World::new();
    let (mut reader, mut writer) = (world.backend(), world.backend());
    see(&mut reader, &K1);
    writer.begin().unwrap();
    writer.changed(&K1).unwrap();
    writer.commit().unwrap();
    reader.accept();
    assert_eq!((reader.stats().messages, reader.stats().local_entries), (1, 0));
    writer.begin().unwrap();
    writer.commit().unwrap();
    reader.accept();
    assert_eq!(reader.stats().messages, 1, "a commit without changes sends nothing");
}

/// A17: a commit leaves the own local view alone; the own message comes back through the ring.
#[test]
fn a_writer_hears_itself() {
    let world = World::new();
    let mut own = world.backend();
    see(&mut own, &K1);
    update(&mut own, &K1, "v1");
    assert_eq!(see(&mut own, &K1), row("v0"), "the command had not ended, and nothing was accepted");
    own.accept();
    assert_eq!(see(&mut own, &K1), row("v1"));
    assert_eq!(own.stats().messages, 1);
}

/// A7 and the cap: the limit is enforced at accept only; private entries go first.
#[test]
fn the_local_limit_is_enforced_at_accept_only() {
    let world = World::new();
    let mut backend = world.backend();
    backend.set_local_limit(2);
    backend.begin().unwrap();
    backend.put(&K3, b"mine").unwrap();
    backend.command_end();
    see(&mut backend, &K3);
    let keys: Vec<[u8; 4]> = (0..6u32).map(u32::to_le_bytes).collect();
    let key = |n: usize| Key { database: 1, cache: 5, hash: n as u32, bytes: &keys[n] };
    see(&mut backend, &key(0));
    see(&mut backend, &key(1));
    assert_eq!((backend.stats().local_entries, backend.stats().private_entries), (3, 1), "overshoot");
    backend.accept();
    assert_eq!((backend.stats().local_entries, backend.stats().private_entries), (2, 0));
    see(&mut backend, &key(2));
    see(&mut backend, &key(3));
    backend.accept();
    assert_eq!(backend.stats().local_entries, 2);
    assert_eq!(world.references(), 2);
    backend.set_local_limit(0);
    backend.accept();
    assert_eq!((backend.stats().local_entries, world.references()), (0, 0));
}

/// A full table of pinned entries: loads stay private and right, never an error (D25).
#[test]
fn a_full_table_makes_loads_private() {
    let world = World::with(&Config { uniform: Some(Uniform { slots: 2, bytes: 128 }), ..config() });
    let mut backend = world.backend();
    for key in [&K1, &K3, &GLOBAL] {
        assert_eq!(see(&mut backend, key), row("v0"));
    }
    let stats = backend.stats();
    assert_eq!((stats.published, stats.kept_private, stats.private_entries), (2, 1, 1));
    assert_eq!(see(&mut backend, &GLOBAL), row("v0"));
    assert_eq!(backend.stats().lookups - backend.stats().misses, 1);
}

#[test]
fn misuse_is_an_error_that_says_what_to_do() {
    let world = World::new();
    let mut backend = world.backend();
    assert_eq!(backend.abort().unwrap_err().to_string(), "abort: no transaction is running; call begin first");
    assert!(matches!(backend.commit(), Err(CommitError::Misuse(_))));
    assert!(matches!(backend.put(&K1, b"x"), Err(WriteError::Misuse(_))));
    assert!(backend.changed(&K1).is_err());
    backend.begin().unwrap();
    assert!(backend.begin().is_err());
    let mut other = world.backend();
    other.begin().unwrap();
    other.put(&K1, b"x").unwrap();
    assert!(matches!(backend.put(&K1, b"y"), Err(WriteError::Conflict(_))));
    assert!(matches!(backend.delete(&K1), Err(WriteError::Conflict(_))));
}

/// A26, A27: a subtransaction that is undone takes its own changes along, before and after image, and no others; one that
/// commits hands them to its parent.
#[test]
fn subtransactions_are_kept_or_undone_by_themselves() {
    let world = World::new();
    let (mut one, mut two) = (world.backend(), world.backend());
    one.begin().unwrap();
    one.put(&K1, b"v1").unwrap();
    one.command_end();
    one.begin_sub().unwrap();
    one.put(&K1, b"v2").unwrap();
    one.put(&K3, b"v2").unwrap();
    one.begin_sub().unwrap_err();
    one.command_end();
    one.begin_sub().unwrap();
    one.delete(&K1).unwrap();
    one.commit_sub().unwrap();
    assert_eq!((see(&mut one, &K1), see(&mut one, &K3)), (None, row("v2")), "a subcommit ends the command");
    two.begin().unwrap();
    assert!(matches!(two.put(&K3, b"w"), Err(WriteError::Conflict(_))));
    one.abort_sub().unwrap();
    assert_eq!((see(&mut one, &K1), see(&mut one, &K3)), (row("v1"), row("v0")));
    assert_eq!(see(&mut two, &K1), row("v0"), "nothing of it is anybody else's");
    two.put(&K3, b"w").unwrap();
    assert!(matches!(two.put(&K1, b"w"), Err(WriteError::Conflict(_))), "the parent's lock stays");
    two.commit().unwrap();
    one.begin_sub().unwrap();
    one.put(&K2, b"v1").unwrap();
    // With a subtransaction open: it counts as committed.
    one.commit().unwrap();
    two.accept();
    assert_eq!([K1, K2, K3].map(|key| see(&mut two, &key)), [row("v1"), row("v1"), row("w")]);
    let no = "commit_sub: no transaction is running; call begin first";
    assert_eq!(one.commit_sub().unwrap_err().to_string(), no);
    one.begin().unwrap();
    let no = "abort_sub: no subtransaction is open; call begin_sub first";
    assert_eq!(one.abort_sub().unwrap_err().to_string(), no);
}

/// A backend that goes away in the middle of a transaction undoes it.
#[test]
fn a_dropped_backend_aborts() {
    let world = World::new();
    let (mut one, mut two) = (world.backend(), world.backend());
    one.begin().unwrap();
    one.put(&K1, b"x").unwrap();
    drop(one);
    update(&mut two, &K1, "v1");
    assert_eq!(world.catalog.committed(&K1).unwrap(), b"v1");
}

/// 1,024 backends, as many as a segment may have; the next one is told so, and gets in when another has left.
#[test]
fn a_thousand_backends_attach_and_one_more_is_refused() {
    let world = World::with(&Config { backends: 1024, ..config() });
    let mut backends: Vec<Plain> = (0..1024).map(|_| world.backend()).collect();
    let refused = Backend::attach(&world.shared, 1, world.catalog.session(())).unwrap_err();
    assert!(refused.to_string().contains("1024"), "{refused}");
    for backend in &mut backends {
        assert_eq!(see(backend, &K1), row("v0"));
    }
    assert_eq!(backends.iter().map(|backend| backend.stats().scans).sum::<u64>(), 1, "one of them read the catalog");
    assert_eq!(world.references(), 1024);
    let mut writer = backends.pop().unwrap();
    update(&mut writer, &K1, "v1");
    drop(writer);
    let mut newcomer = world.backend();
    assert_eq!(see(&mut newcomer, &K1), row("v1"));
    for backend in &mut backends {
        backend.accept();
        assert_eq!(see(backend, &K1), row("v1"));
    }
}

/// A probe that counts what it is told.
#[derive(Clone, Default)]
struct Trace(Arc<Mutex<Vec<Step>>>);

impl Probe for Trace {
    fn before(&self, step: Step) {
        self.0.lock().push(step);
    }
}

/// The order of the protocol's steps, as the model has it.
#[test]
fn the_steps_are_in_the_protocols_order() {
    use crate::probe::Level::{self, Database, List, Stripe};
    use Step::*;
    let world = World::new();
    let trace = Trace::default();
    let steps = || std::mem::take(&mut *trace.0.lock());
    let mut backend = world.watched(trace.clone());
    let checks = [Check(Stripe), Check(Level::Catalog), Check(Database)];
    see(&mut backend, &K1);
    assert_eq!(steps(), [&[Accept, Find, Token, Snapshot, Scan][..], &checks, &[Allocate, Publish]].concat());
    see(&mut backend, &K1);
    assert_eq!(steps(), [LocalHit]);
    see(&mut backend, &K2);
    assert_eq!(steps(), [&[Accept, Find, Scan][..], &checks, &[Allocate, Publish]].concat());
    backend.begin().unwrap();
    backend.put(&K1, b"v1").unwrap();
    backend.command_end();
    assert_eq!(steps(), [Accept, Write, CommandEnd, Release, Release]);
    see(&mut backend, &K1);
    assert_eq!(steps(), [Accept, Token, Snapshot, Scan]);
    backend.commit().unwrap();
    let (open, close) = ([Open(Stripe), Open(List)], [Close(Stripe), Close(List)]);
    assert_eq!(steps(), [&[Log][..], &open, &[Visible, Advance], &close, &[Send, Unlock]].concat());
    backend.begin().unwrap();
    backend.put(&K3, b"v1").unwrap();
    backend.abort().unwrap();
    assert_eq!(steps(), [Accept, Write, Undo]);
    backend.begin().unwrap();
    backend.commit().unwrap();
    assert_eq!(steps(), [Accept, Log, Visible, Unlock]);
    drop(backend);
    assert_eq!(steps(), []);
}

/// Four threads, each looking up and changing a handful of rows: no backend ever sees a row go back (A8), nor misses a
/// commit whose end it has been told of (A5).
#[test]
fn answers_never_go_back_under_contention() {
    const ROUNDS: u32 = 3000;
    let world = World::with(&Config { uniform: Some(Uniform { slots: 6, bytes: 128 }), ring: 16, ..config() });
    let names: Vec<Vec<u8>> = (0..8u32).map(|n| n.to_le_bytes().to_vec()).collect();
    let committed = Arc::new(Mutex::new([0u64; 8]));
    let threads: Vec<_> = (0..4u32)
        .map(|me| {
            let (names, committed) = (names.clone(), committed.clone());
            let mut backend = world.backend();
            thread::spawn(move || {
                let mut newest = [0u64; 8];
                let mut random = u64::from(me) * 7919 + 1;
                for _ in 0..ROUNDS {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let n = (random >> 40) as usize % 8;
                    let key = Key { database: 1, cache: 0, hash: n as u32 / 2, bytes: &names[n] };
                    let row = backend.lookup(&key).unwrap();
                    let seen = row.map_or(0, |row| u64::from_le_bytes(row.try_into().unwrap()));
                    assert!(seen >= newest[n], "key {n} went back from {} to {seen}", newest[n]);
                    newest[n] = seen;
                    match random % 16 {
                        0..4 => backend.accept(),
                        4 => {
                            backend.begin().unwrap();
                            if backend.catalog_mut().lock(&key).is_err() {
                                backend.abort().unwrap();
                                continue;
                            }
                            // The lock, then the accept (A5): now the newest row is seen.
                            backend.accept();
                            let row = backend.lookup(&key).unwrap();
                            let seen = row.map_or(0, |row| u64::from_le_bytes(row.try_into().unwrap()));
                            backend.put(&key, &(seen + 1).to_le_bytes()).unwrap();
                            backend.command_end();
                            newest[n] = seen + 1;
                            backend.commit().unwrap();
                            committed.lock()[n] += 1;
                        }
                        _ => {}
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let counts = *committed.lock();
    assert!(counts.iter().sum::<u64>() > 0);
    for (n, name) in names.iter().enumerate() {
        let key = Key { database: 1, cache: 0, hash: n as u32 / 2, bytes: name };
        let row = world.catalog.committed(&key);
        assert_eq!(
            row.map_or(0, |row| u64::from_le_bytes(row.try_into().unwrap())),
            counts[n],
            "no increment was lost"
        );
    }
    assert_eq!(world.references(), 0);
}

/// A58, B19: the bytes are changed for everybody at once, and stay so when the transaction aborts.
#[test]
fn an_in_place_update_outlives_its_transaction_and_is_told_at_once() {
    let world = World::new();
    let (mut updater, mut reader) = (world.backend(), world.backend());
    assert_eq!(see(&mut reader, &K1), row("v0"));
    assert_eq!(see(&mut updater, &K1), row("v0"));
    updater.begin().unwrap();
    updater.overwrite(&K1, b"v1").unwrap();
    assert_eq!(see(&mut updater, &K1), row("v1"), "it has accepted its own message");
    updater.abort().unwrap();
    assert_eq!(see(&mut reader, &K1), row("v0"), "stable until it accepts (A7)");
    reader.accept();
    assert_eq!(see(&mut reader, &K1), row("v1"));
    assert_eq!(world.catalog.committed(&K1).unwrap(), b"v1");
    assert_eq!(world.references(), 2, "both have the one new entry");
}

#[test]
fn a_row_that_is_locked_or_not_there_is_not_overwritten() {
    let world = World::new();
    let (mut updater, mut writer) = (world.backend(), world.backend());
    writer.begin().unwrap();
    writer.put(&K1, b"v1").unwrap();
    assert_eq!(updater.overwrite(&K1, b"no").unwrap_err().key.as_key(), K1);
    assert!(writer.overwrite(&K1, b"no").is_err(), "nor by the transaction that has replaced it");
    assert!(updater.overwrite(&K2, b"no").is_err(), "there is no such row");
    writer.commit().unwrap();
    updater.overwrite(&K1, b"v2").unwrap();
    assert_eq!(see(&mut updater, &K1), row("v2"));
}

/// The host may refuse inside the bracket: then nothing has changed, and what was cached is valid again.
#[test]
fn an_in_place_update_that_fails_changes_nothing() {
    let world = World::new();
    let (mut updater, mut reader) = (world.backend(), world.backend());
    assert_eq!(see(&mut reader, &K1), row("v0"));
    let refused: Result<(), Conflict> = updater.in_place(&K1, |_| Err(Conflict { key: K1.to_owned() }));
    assert!(refused.is_err());
    let scans = updater.stats().scans;
    assert_eq!(see(&mut updater, &K1), row("v0"));
    assert_eq!(updater.stats().scans, scans, "the entry was not marked");
    reader.accept();
    assert_eq!(reader.stats().messages, 0, "nothing was sent");
}

/// A32: every row of the catalog, positive or negative, in the table and in every local view; and of no other catalog.
#[test]
fn a_rewritten_catalog_goes_whole() {
    let world = World::new();
    let (mut writer, mut reader) = (world.backend(), world.backend());
    for key in [&K1, &K2, &K3, &GLOBAL] {
        see(&mut reader, key);
    }
    writer.begin().unwrap();
    writer.rewrite(1, 3, |_, old| [old, b" moved"].concat()).unwrap();
    assert_eq!(see(&mut writer, &K1), row("v0"), "its own command does not see it yet (A23)");
    writer.command_end();
    assert_eq!(see(&mut writer, &K1), row("v0 moved"));
    let scans = reader.stats().scans;
    assert_eq!(see(&mut reader, &K1), row("v0"));
    writer.commit().unwrap();
    reader.accept();
    assert_eq!(reader.stats().local_entries, 1, "the shared catalog's is left");
    assert_eq!((see(&mut reader, &K1), see(&mut reader, &K3)), (row("v0 moved"), row("v0 moved")));
    assert_eq!(see(&mut reader, &K2), None);
    assert_eq!(reader.stats().scans, scans + 3);
    assert_eq!(see(&mut reader, &GLOBAL), row("v0"));
}

/// D30: a database that is dropped takes its entries with it, and no other's.
#[test]
fn a_dropped_database_goes_whole() {
    let world = World::new();
    let other = Key { database: 2, ..K1 };
    world.catalog.fill(&other, b"theirs");
    let (mut writer, mut reader, mut theirs) = (world.backend(), world.backend(), world.backend_of(2));
    assert_eq!((see(&mut reader, &K1), see(&mut reader, &GLOBAL)), (row("v0"), row("v0")));
    assert_eq!(see(&mut theirs, &other), row("theirs"));
    writer.begin().unwrap();
    writer.drop_database(2).unwrap();
    writer.commit().unwrap();
    theirs.accept();
    assert_eq!(see(&mut theirs, &other), None);
    let scans = reader.stats().scans;
    reader.accept();
    assert_eq!((see(&mut reader, &K1), see(&mut reader, &GLOBAL)), (row("v0"), row("v0")));
    assert_eq!(reader.stats().scans, scans, "nothing of its own has changed");
}

/// A bracket of many rows opens one stamp for each catalog.
#[test]
fn a_large_commit_opens_catalogs() {
    let world = World::with(&Config { catalogs: 16, stripes: 16, ..config() });
    let (mut writer, mut reader) = (world.backend(), world.backend());
    assert_eq!((see(&mut reader, &K1), see(&mut reader, &GLOBAL)), (row("v0"), row("v0")));
    writer.set_escalation(2);
    writer.begin().unwrap();
    for hash in 20..23 {
        writer.put(&Key { hash, ..K3 }, b"new").unwrap();
    }
    writer.commit().unwrap();
    let image = world.shared.peek();
    assert!(image.stripes.iter().all(|stamp| stamp.mark == 0), "no stripe");
    assert_eq!(image.catalogs.iter().filter(|stamp| stamp.mark == 2).count(), 1);
    let mut late = world.backend();
    let scans = late.stats().scans;
    assert_eq!((see(&mut late, &K1), see(&mut late, &GLOBAL)), (row("v0"), row("v0")));
    assert_eq!(late.stats().scans, scans + 1, "the catalog's entries are no longer valid, others are");
    reader.accept();
    assert_eq!(reader.stats().local_entries, 2, "messages still name rows");
}
