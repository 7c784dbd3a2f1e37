//! Lists over a partial key.

use super::*;
use crate::probe::Level;

/// The rows of a relation are those whose keys begin with its name, as a list by (cache, hash of the name).
const REL: Key<'static> = Key { database: 1, cache: 3, hash: 5, bytes: b"rel" };
const OTHER: Key<'static> = Key { database: 1, cache: 3, hash: 5, bytes: b"other" };
const A: Key<'static> = Key { database: 1, cache: 3, hash: 20, bytes: b"rel.a" };
const B: Key<'static> = Key { database: 1, cache: 3, hash: 21, bytes: b"rel.b" };
const C: Key<'static> = Key { database: 1, cache: 3, hash: 22, bytes: b"other.c" };
const ELSEWHERE: Key<'static> = Key { database: 1, cache: 4, hash: 20, bytes: b"rel.a" };

fn world() -> World {
    let world = World::with(&Config { lists: 8, ..config() });
    world.catalog.fill(&A, b"a0");
    world.catalog.fill(&B, b"b0");
    world.catalog.fill(&C, b"c0");
    world.catalog.fill(&ELSEWHERE, b"e0");
    world
}

/// Keys and rows, "rel.a=a0".
fn list<P: Probe>(backend: &mut Backend<MemorySession<P>, P>, partial: &Key<'_>) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    backend.list(partial).unwrap().map(|(key, row)| format!("{}={}", text(key.bytes), text(row))).collect()
}

/// A37, A35: what one has read the other finds, the members as rows as well, and empty lists, too.
#[test]
fn a_list_is_shared_with_its_members() {
    let world = world();
    let (mut one, mut two) = (world.backend(), world.backend());
    assert_eq!(list(&mut one, &REL), ["rel.a=a0", "rel.b=b0"]);
    assert_eq!(list(&mut one, &Key { bytes: b"none", ..REL }), [""; 0]);
    assert_eq!(one.stats().scans, 2);
    assert_eq!(list(&mut two, &REL), ["rel.a=a0", "rel.b=b0"]);
    assert_eq!(list(&mut two, &Key { bytes: b"none", ..REL }), [""; 0]);
    assert_eq!(see(&mut two, &A), row("a0"), "a member is an entry of its own");
    assert_eq!((two.stats().scans, two.stats().shared_hits, two.stats().local_lists), (0, 3, 2));
    let misses = two.stats().misses;
    assert_eq!(list(&mut two, &REL), ["rel.a=a0", "rel.b=b0"]);
    assert_eq!(two.stats().misses, misses, "the second look is a local hit");
    drop((one, two));
    assert_eq!(world.references(), 2, "the list alone refers to its members");
    assert!(!world.shared.evict(&(), &A), "and so they can't go");
    assert!(world.shared.evict_list(&(), &REL));
    assert_eq!(world.references(), 0, "B35: it gave its references back");
    assert!(world.shared.evict(&(), &A));
}

/// A row that was loaded for itself becomes the member of a list, and is there once.
#[test]
fn a_member_that_is_there_is_adopted() {
    let world = world();
    let mut backend = world.backend();
    assert_eq!(see(&mut backend, &A), row("a0"));
    assert_eq!(list(&mut backend, &REL), ["rel.a=a0", "rel.b=b0"]);
    let entries = world.shared.peek().entries;
    assert_eq!(entries.iter().filter(|entry| entry.key.bytes[..] == *A.bytes).count(), 1);
    assert_eq!(entries.iter().filter(|entry| entry.members.is_some()).count(), 1);
}

/// The key of a list is no row's key, though all of its parts were the same.
#[test]
fn a_list_is_not_taken_for_a_row() {
    let world = World::new();
    world.catalog.fill(&REL, b"itself");
    let mut backend = world.backend();
    for _ in 0..2 {
        assert_eq!(see(&mut backend, &REL), row("itself"));
        assert_eq!(list(&mut backend, &REL), ["rel=itself"]);
        assert_eq!(see(&mut backend, &OTHER), None);
        assert_eq!(list(&mut backend, &OTHER), [""; 0]);
    }
    let mut other = world.backend();
    assert_eq!(list(&mut other, &REL), ["rel=itself"]);
    assert_eq!(see(&mut other, &REL), row("itself"));
    assert_eq!(other.stats().scans, 0);
}

/// A28: any change of a row of the cache makes all of its lists invalid, a change in another cache none.
#[test]
fn any_change_of_the_cache_ends_its_lists() {
    let world = world();
    let (mut reader, mut writer) = (world.backend(), world.backend());
    let rel = |backend: &mut Plain| list(backend, &REL);
    assert_eq!(rel(&mut reader), ["rel.a=a0", "rel.b=b0"]);
    update(&mut writer, &ELSEWHERE, "e1");
    reader.accept();
    assert_eq!(rel(&mut reader), ["rel.a=a0", "rel.b=b0"]);
    assert_eq!(reader.stats().scans, 1);
    for (key, new, members) in [
        (C, Some("c1"), &["rel.a=a0", "rel.b=b0"][..]),
        (A, Some("a1"), &["rel.a=a1", "rel.b=b0"]),
        (B, None, &["rel.a=a1"]),
        (Key { bytes: b"rel.c", ..C }, Some("new"), &["rel.a=a1", "rel.c=new"]),
    ] {
        let (before, old) = (reader.stats().scans, rel(&mut reader));
        writer.begin().unwrap();
        match new {
            Some(new) => writer.put(&key, new.as_bytes()).unwrap(),
            None => writer.delete(&key).unwrap(),
        }
        writer.commit().unwrap();
        assert_eq!(rel(&mut reader), old, "A7: it stays until the accept");
        reader.accept();
        assert_eq!(rel(&mut reader), members);
        assert_eq!(reader.stats().scans, before + 1);
    }
}

/// A row moves from one list to another when its key is changed: two messages, one commit (A19).
#[test]
fn a_row_moves_between_lists_at_once() {
    let world = world();
    let (mut reader, mut writer) = (world.backend(), world.backend());
    assert_eq!((list(&mut reader, &REL).len(), list(&mut reader, &OTHER).len()), (2, 1));
    writer.begin().unwrap();
    writer.delete(&A).unwrap();
    writer.put(&Key { bytes: b"other.a", ..A }, b"a0").unwrap();
    writer.commit().unwrap();
    assert_eq!((list(&mut reader, &REL).len(), list(&mut reader, &OTHER).len()), (2, 1));
    reader.accept();
    assert_eq!(list(&mut reader, &REL), ["rel.b=b0"]);
    assert_eq!(list(&mut reader, &OTHER), ["other.a=a0", "other.c=c0"]);
}

/// A23: own lists are built for oneself, with the own changes in them; the others' are as they were.
#[test]
fn own_changes_show_in_own_lists_alone() {
    let world = world();
    let (mut writer, mut reader) = (world.backend(), world.backend());
    assert_eq!(list(&mut reader, &REL), ["rel.a=a0", "rel.b=b0"]);
    assert_eq!(list(&mut writer, &REL), ["rel.a=a0", "rel.b=b0"]);
    writer.begin().unwrap();
    writer.put(&A, b"a1").unwrap();
    assert_eq!(list(&mut writer, &REL), ["rel.a=a0", "rel.b=b0"], "the command is not at its end");
    writer.command_end();
    assert_eq!(list(&mut writer, &REL), ["rel.a=a1", "rel.b=b0"]);
    assert_eq!(list(&mut writer, &OTHER), ["other.c=c0"]);
    assert_eq!(writer.stats().private_entries, 2, "all lists of the cache are private");
    reader.accept();
    assert_eq!(list(&mut reader, &REL), ["rel.a=a0", "rel.b=b0"]);
    writer.abort().unwrap();
    assert_eq!(list(&mut writer, &REL), ["rel.a=a0", "rel.b=b0"]);
    assert_eq!(writer.stats().private_entries, 0, "A27");
    assert_eq!(list(&mut reader, &REL), ["rel.a=a0", "rel.b=b0"]);
}

/// A whole catalog and a database take their lists with them; a reset takes all.
#[test]
fn what_goes_whole_takes_its_lists_with_it() {
    let world = world();
    let (mut reader, mut writer) = (world.backend(), world.backend());
    let mut scans = 0;
    let mut loaded_again = |reader: &mut Plain| {
        reader.accept();
        assert_eq!(list(reader, &REL).len(), 2);
        scans += 1;
        assert_eq!(reader.stats().scans, scans);
    };
    loaded_again(&mut reader);
    for message in [Message::Catalog { database: 1, cache: 3 }, Message::Database { database: 1 }] {
        writer.begin().unwrap();
        match message {
            Message::Catalog { database, cache } => writer.changed_catalog(database, cache),
            _ => writer.changed_database(1),
        }
        .unwrap();
        writer.commit().unwrap();
        loaded_again(&mut reader);
    }
    for n in 0..2 * config().ring {
        update(&mut writer, &ELSEWHERE, &format!("e{n}"));
    }
    reader.accept();
    assert_eq!((reader.stats().resets, reader.stats().local_lists), (1, 0));
    assert_eq!(list(&mut reader, &REL).len(), 2);
    assert_eq!(reader.stats().scans, scans, "the shared list was valid all the time");
}

/// B03: a message for another row of the cache comes while the list is being scanned.
#[test]
fn a_list_whose_scan_consumes_a_message_of_its_cache_is_built_again() {
    for (rule, members) in [(None, ["rel.a=a1", "rel.b=b0"]), (Some(Rule::DoomRunningList), ["rel.a=a0", "rel.b=b0"])] {
        let world = world();
        world.catalog.toast(&B);
        let meddler = Meddler::default();
        let mut reader = world.watched(Broken(meddler.clone(), rule));
        let mut writer = world.backend();
        *meddler.0.lock() = Some(Box::new(move || update(&mut writer, &A, "a1")));
        for _ in 0..2 {
            assert_eq!(list(&mut reader, &REL), members);
        }
    }
}

/// Does something once, right before a scan, with its snapshot taken.
#[derive(Clone, Default)]
struct Meddler(Arc<Mutex<Option<Act>>>);

type Act = Box<dyn FnOnce() + Send>;

impl Probe for Meddler {
    fn before(&self, step: Step) {
        if step == Step::Scan
            && let Some(act) = self.0.lock().take()
        {
            act();
        }
    }
}

#[derive(Clone)]
struct Broken(Meddler, Option<Rule>);

impl Probe for Broken {
    fn before(&self, step: Step) {
        self.0.before(step);
    }

    fn keeps(&self, rule: Rule) -> bool {
        Some(rule) != self.1
    }
}

/// Rows that can't be published, or a list that can't, leave a private list of the same answer, and no references.
#[test]
fn a_list_without_room_stays_private() {
    for slots in 0..4 {
        let world = World::with(&Config { uniform: Some(Uniform { slots: slots.max(1), bytes: 128 }), ..config() });
        for n in 0..3u8 {
            world.catalog.fill(&Key { bytes: &[b'r', n], ..A }, &[n]);
        }
        let mut holder = world.backend();
        if slots == 0 {
            assert_eq!(see(&mut holder, &K1), row("v0"));
        }
        let mut backend = world.backend();
        let partial = Key { bytes: b"r", ..REL };
        for _ in 0..2 {
            let members: Vec<_> = backend.list(&partial).unwrap().map(|(_, row)| row.to_vec()).collect();
            assert_eq!(members, [[0], [1], [2]]);
        }
        assert_eq!(backend.stats().private_entries, 1);
        assert_eq!(world.references(), u32::from(slots == 0), "nobody refers to a member in vain");
    }
}

/// A40: a list that is dropped from the table lives on, with its members, for who has it.
#[test]
fn a_held_list_stays_what_it_is() {
    let world = World::with(&Config { uniform: Some(Uniform { slots: 6, bytes: 128 }), ..config() });
    world.catalog.fill(&A, b"a0");
    world.catalog.fill(&B, b"b0");
    let (mut reader, mut writer) = (world.backend(), world.backend());
    assert_eq!(list(&mut reader, &REL), ["rel.a=a0", "rel.b=b0"]);
    for n in 0..20 {
        update(&mut writer, &A, &format!("a{n}"));
        writer.accept();
        assert_eq!(list(&mut writer, &REL), [format!("rel.a=a{n}"), "rel.b=b0".into()]);
        assert_eq!(list(&mut reader, &REL), ["rel.a=a0", "rel.b=b0"]);
    }
    drop((reader, writer));
    let image = world.shared.peek();
    let unlinked = image.entries.iter().filter(|entry| !entry.linked).count();
    assert_eq!(unlinked, 0, "what nobody refers to is free: {:?}", image.entries);
}

/// The steps of a list: its members are published first, each for itself.
#[test]
fn a_list_is_published_after_its_members() {
    use Step::*;
    let world = world();
    let trace = Trace::default();
    let mut backend = world.watched(trace.clone());
    let check = |first| [Check(first), Check(Level::Catalog), Check(Level::Database), Allocate, Publish];
    list(&mut backend, &REL);
    let (member, itself) = (check(Level::Stripe), check(Level::List));
    let steps = std::mem::take(&mut *trace.0.lock());
    assert_eq!(steps, [&[Accept, Find, Token, Snapshot, Scan][..], &member, &member, &itself].concat());
    list(&mut backend, &REL);
    assert_eq!(std::mem::take(&mut *trace.0.lock()), [LocalHit]);
}

/// Rows make room before lists do, and lists then, too.
#[test]
fn the_local_limit_counts_lists() {
    let world = world();
    let mut backend = world.backend();
    backend.set_local_limit(1);
    list(&mut backend, &REL);
    see(&mut backend, &A);
    see(&mut backend, &B);
    backend.accept();
    assert_eq!((backend.stats().local_entries, backend.stats().local_lists), (0, 1));
    list(&mut backend, &OTHER);
    backend.accept();
    assert_eq!((backend.stats().local_entries, backend.stats().local_lists), (0, 1));
    backend.set_local_limit(0);
    backend.accept();
    assert_eq!(backend.stats().local_lists, 0);
    drop(backend);
    assert_eq!(world.references(), 3, "two lists refer to their members");
}

/// D16: a row in two lists, which both hold it.
#[test]
fn a_member_may_be_in_several_lists() {
    let world = world();
    let mut backend = world.backend();
    let wider = Key { bytes: b"r", ..REL };
    assert_eq!(list(&mut backend, &REL), ["rel.a=a0", "rel.b=b0"]);
    assert_eq!(list(&mut backend, &wider), ["rel.a=a0", "rel.b=b0"]);
    drop(backend);
    assert_eq!(world.references(), 4);
    assert!(world.shared.evict_list(&(), &REL) && !world.shared.evict(&(), &A));
    assert!(world.shared.evict_list(&(), &wider) && world.shared.evict(&(), &A));
}
