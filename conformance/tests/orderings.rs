//! The orderings of the shared layer's atomics, one story each: every test fails when the ordering that it names is
//! weakened to the next weaker one (`conformance/ci/mutants.sh orderings` does so, one by one).
//!
//! The litmus files don't ask this. Their catalog is behind a lock, as the hosts' are, and a lock orders so much that most
//! orderings of ours could be Relaxed unnoticed. Here the host gives no more than it must: its instant of visibility P is a
//! Release store and its snapshot an Acquire load.
//!
//! | ordering | test |
//! | --- | --- |
//! | Token: Acquire; Advance: Release | [`a_snapshot_without_a_change_has_a_token_below_its_mark`] |
//! | Open: Relaxed is enough | [`who_has_seen_a_change_accepts_no_older_entry`], and its known-bad host |
//! | Check: Acquire; Close: Release | [`who_has_seen_a_mark_takes_no_token_below_it`] |
//! | drop of a reference: Release; unlink: Acquire | [`an_evicted_slot_is_written_after_its_readers_have_left`] |
//! | drop of a reference: Acquire and Release; unlink: Release | [`the_last_reader_of_a_replaced_entry_frees_it_after_all_others`] |
//! | unlink and drop: Acquire and Release | [`who_unlinks_an_invalid_entry_and_its_holder_free_it_in_either_order`] |
//!
//! The lock's orderings are the business of `lock.rs`; under the tests here stands loom's own.
//!
//! What is looked for: a wrong row or token, or, for entries, an access to a slot's content that isn't ordered with a write of
//! it (the modelled segment tracks those). All schedules are explored, without a bound.

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use shared_catcache_under_loom::shared::Uniform;
use shared_catcache_under_loom::{Config, Key, Probe, Publication, Reference, Seen, Shared, Step};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

/// Explores all schedules of `body`, exhaustively; answers with how many there were.
fn explore(body: impl Fn() + Send + Sync + 'static) -> u64 {
    let executions = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = executions.clone();
    loom::model::Builder::new().check(move || {
        // Relaxed: loom runs one execution after the other, on one thread.
        count.fetch_add(1, Ordering::Relaxed);
        body();
    });
    executions.load(Ordering::Relaxed)
}

/// Why a count of executions is compared.
const PINNED: &str = "executions: another number is another algorithm, or another loom";

/// A segment of so many slots and stripes.
fn segment(slots: u32, stripes: u32) -> Shared {
    let uniform = Some(Uniform { slots, bytes: 64 });
    Shared::anonymous(&Config { uniform, backends: 1, ring: 2, stripes, ..Config::tiny() }).expect("a small segment")
}

fn key(hash: u32) -> Key<'static> {
    Key { database: 1, cache: 0, hash, bytes: b"key" }
}

/// Publishes a row, and keeps the reference.
fn publish(shared: &Shared, key: &Key<'_>, row: u8) -> Option<Reference> {
    let token = shared.token(&());
    match shared.publish(&(), key, Some(&[row]), token) {
        Publication::Published(reference) | Publication::Existing(reference) => Some(reference),
        Publication::Private { .. } => None,
    }
}

/// Publishes a row into a segment that nobody else uses yet.
fn prepare(shared: &Shared, key: &Key<'_>, row: u8) -> Reference {
    publish(shared, key, row).expect("there is room, and nothing has changed")
}

/// A commit that changes the row of `hash`; `visible` is P.
fn commit(shared: &Shared, hash: u32, visible: impl FnOnce()) {
    let mut bracket = shared.bracket([(1, 0, hash)]);
    bracket.open(&());
    visible();
    bracket.close(&());
}

/// Reads the row through a reference, and gives it back.
fn read(shared: &Shared, reference: Reference) -> u8 {
    let row = shared.row(&reference).expect("the row exists")[0];
    shared.release(&(), reference);
    row
}

/// Entries in the table, and free slots, when everybody is gone.
fn left(shared: &Shared) -> (usize, u32) {
    let image = shared.peek();
    (image.entries.len(), image.free_slots)
}

/// S1, Token (Acquire) and Advance (Release). A loader takes its token, then its snapshot, and publishes; meanwhile a commit
/// becomes visible. A token at or above the mark of the commit must have its P before it, or else a row from a snapshot
/// without the commit is published with a token that the mark does not condemn, and is believed for ever.
#[test]
fn a_snapshot_without_a_change_has_a_token_below_its_mark() {
    let executions = explore(|| {
        let shared = segment(1, 1);
        let catalog = Arc::new(AtomicU64::new(0));
        let writer = {
            let (shared, catalog) = (shared.clone(), catalog.clone());
            thread::spawn(move || commit(&shared, 0, || catalog.store(1, Ordering::Release)))
        };
        let token = shared.token(&());
        let row = catalog.load(Ordering::Acquire) as u8;
        if let Publication::Published(reference) = shared.publish(&(), &key(0), Some(&[row]), token) {
            shared.release(&(), reference);
        }
        writer.join().expect("the writer has panicked");
        if let Some(reference) = shared.find(&(), &key(0)) {
            assert_eq!(read(&shared, reference), 1, "an entry from before the commit is valid after it");
        }
    });
    assert_eq!(executions, 138, "{PINNED}");
}

/// S2. A row is cached; a commit changes it. A reader whose snapshot sees the commit must not accept the entry.
fn seen_then_found(visible: Ordering) -> u64 {
    explore(move || {
        let shared = segment(1, 1);
        let held = prepare(&shared, &key(0), 0);
        shared.release(&(), held);
        let catalog = Arc::new(AtomicU64::new(0));
        let writer = {
            let (shared, catalog) = (shared.clone(), catalog.clone());
            thread::spawn(move || commit(&shared, 0, || catalog.store(1, visible)))
        };
        let seen = catalog.load(Ordering::Acquire) as u8;
        if let Some(reference) = shared.find(&(), &key(0)) {
            assert!(read(&shared, reference) >= seen, "an entry is older than what its reader has seen");
        }
        writer.join().expect("the writer has panicked");
    })
}

/// S2, Open (Relaxed) and Check. The host's Release at P and the coherence of one word are enough: that Open comes before P in
/// its writer is all that is asked of it.
#[test]
fn who_has_seen_a_change_accepts_no_older_entry() {
    assert_eq!(seen_then_found(Ordering::Release), 44, "{PINNED}");
}

/// Known bad: a host that becomes visible by a Relaxed store, against its contract.
#[test]
fn a_host_that_orders_nothing_is_noticed() {
    let panic = catch_unwind(AssertUnwindSafe(|| seen_then_found(Ordering::Relaxed))).expect_err("it was not noticed");
    let text = panic.downcast_ref::<&str>().copied().unwrap_or_default();
    assert!(text.contains("older than what its reader has seen"), "{text}");
}

/// Notes the greatest mark that a check has seen.
struct Marks(Cell<u64>);

impl Probe for Marks {
    fn took(&self, step: Step, seen: Seen) {
        if let (Step::Check(_), Seen::Stamp(value)) = (step, seen) {
            self.0.set(self.0.get().max(value.mark));
        }
    }
}

/// S3, Check (Acquire) and Close (Release). A reader meets the mark of a commit and so must load; if the token that it takes
/// then could be below the mark, the load would be refused by the very mark that made it necessary.
#[test]
fn who_has_seen_a_mark_takes_no_token_below_it() {
    let executions = explore(|| {
        let shared = segment(1, 1);
        let held = prepare(&shared, &key(0), 7);
        shared.release(&(), held);
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || commit(&shared, 0, || ()))
        };
        let marks = Marks(Cell::new(0));
        if let Some(reference) = shared.find(&marks, &key(0)) {
            shared.release(&marks, reference);
        }
        let token = shared.token(&()).value();
        assert!(token >= marks.0.get(), "a mark was seen, but not the clock that it comes from");
        writer.join().expect("the writer has panicked");
    });
    assert_eq!(executions, 36, "{PINNED}");
}

/// E3, the drop of a reference (Release) and the unlinking (Acquire) of an entry that nobody refers to. Two keys want one slot.
/// Who evicts writes into the slot next: after everything that the readers of the old entry have read there.
#[test]
fn an_evicted_slot_is_written_after_its_readers_have_left() {
    let executions = explore(|| {
        let shared = segment(1, 1);
        let held = prepare(&shared, &key(0), 10);
        shared.release(&(), held);
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || {
                if let Some(reference) = shared.find(&(), &key(0)) {
                    assert_eq!(read(&shared, reference), 10, "the slot was reused while it was referred to");
                }
            })
        };
        if let Some(reference) = publish(&shared, &key(1), 11) {
            assert_eq!(read(&shared, reference), 11);
        }
        reader.join().expect("the reader has panicked");
        let (entries, free) = left(&shared);
        assert_eq!(entries as u32 + free, 1, "the slot is lost");
    });
    assert_eq!(executions, 18, "{PINNED}");
}

/// E3, the drop of a reference (Acquire and Release) and the unlinking (Release) of an entry that is in use. Two hold an entry,
/// and a publisher that brings a newer token replaces it. The last of the holders frees the slot: after what the other holder
/// has read there, and after what the publisher, which looked for the key, has.
#[test]
fn the_last_reader_of_a_replaced_entry_frees_it_after_all_others() {
    let executions = explore(|| {
        let shared = segment(2, 2);
        let held = prepare(&shared, &key(0), 7);
        // The clock goes on, so that the next token is newer; the entry itself stays valid.
        commit(&shared, 1, || ());
        let mine = shared.find(&(), &key(0)).expect("it is valid");
        let holder = {
            let shared = shared.clone();
            thread::spawn(move || assert_eq!(read(&shared, held), 7, "the slot was freed while it was referred to"))
        };
        let publisher = {
            let shared = shared.clone();
            thread::spawn(move || {
                let reference = publish(&shared, &key(0), 7).expect("there is a second slot");
                shared.release(&(), reference);
            })
        };
        assert_eq!(read(&shared, mine), 7, "the slot was freed while it was referred to");
        holder.join().expect("the holder has panicked");
        publisher.join().expect("the publisher has panicked");
        assert_eq!(left(&shared), (1, 1), "a slot is lost");
    });
    assert_eq!(executions, 94, "{PINNED}");
}

/// E3, unlinking and dropping in one (Acquire and Release). An invalid entry is held by one backend and met by another, which
/// unlinks it and drops its own reference at once. Whichever comes last frees the slot: after what the other has read there.
#[test]
fn who_unlinks_an_invalid_entry_and_its_holder_free_it_in_either_order() {
    let executions = explore(|| {
        let shared = segment(1, 1);
        let held = prepare(&shared, &key(0), 7);
        commit(&shared, 0, || ());
        let finder = {
            let shared = shared.clone();
            thread::spawn(move || assert!(shared.find(&(), &key(0)).is_none(), "it is invalid"))
        };
        assert_eq!(read(&shared, held), 7, "the slot was freed while it was referred to");
        finder.join().expect("the finder has panicked");
        assert_eq!(left(&shared), (0, 1), "the slot is lost");
    });
    assert_eq!(executions, 7, "{PINNED}");
}
