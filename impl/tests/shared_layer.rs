//! The shared layer from outside: life of an entry, validity, the cap.

use shared_catcache::shared::{ROW_BYTES_MAX, Uniform};
use shared_catcache::{Config, KEY_BYTES_MAX, Key, Publication, Reference, Shared, Stats, Token};

fn small() -> Shared {
    Shared::anonymous(&Config { bytes: 2 << 20, ..Config::default() }).unwrap()
}

fn key(bytes: &[u8]) -> Key<'_> {
    let hash = bytes.iter().fold(0x811c_9dc5_u32, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    Key { database: 5, cache: 7, hash, bytes }
}

/// Publishes and keeps the reference.
#[track_caller]
fn publish(shared: &Shared, key: &Key<'_>, row: Option<&[u8]>) -> Reference {
    match shared.publish(&(), key, row, shared.token(&())) {
        Publication::Published(reference) => reference,
        other => panic!("{key:?}: {other:?}"),
    }
}

/// One commit that changes `key`.
fn change(shared: &Shared, key: &Key<'_>) {
    let mut bracket = shared.bracket([(key.database, key.cache, key.hash)]);
    bracket.open(&());
    bracket.close(&());
}

#[test]
fn what_is_published_is_found_as_it_was() {
    let shared = small();
    for (name, row) in [(&b"a"[..], Some(&b"row"[..])), (b"", Some(b"")), (b"nobody", None), (b"12345678", Some(b"x"))]
    {
        assert!(shared.find(&(), &key(name)).is_none());
        let published = publish(&shared, &key(name), row);
        let found = shared.find(&(), &key(name)).expect("it is there");
        assert_eq!(found.at(), published.at());
        assert_eq!(shared.row(&found), row);
        assert_eq!(shared.key(&found), key(name));
        shared.release(&(), found);
        shared.release(&(), published);
    }
    let Stats { hits, misses, published, entries, .. } = shared.stats();
    assert_eq!((hits, misses, published, entries), (4, 4, 4, 4));
}

/// Database and cache belong to the key (D29), and so does every byte of it, whatever the hash (A28).
#[test]
fn keys_differ_by_database_cache_and_bytes_even_with_one_hash() {
    let shared = small();
    let base = Key { database: 1, cache: 2, hash: 3, bytes: b"k" };
    let others = [
        Key { database: 0, ..base },
        Key { cache: 3, ..base },
        Key { hash: 4, ..base },
        Key { bytes: b"l", ..base },
        Key { bytes: b"kk", ..base },
        Key { bytes: b"", ..base },
    ];
    shared.release(&(), publish(&shared, &base, Some(b"base")));
    for other in &others {
        assert!(shared.find(&(), other).is_none(), "{other:?}");
    }
    for other in &others {
        shared.release(&(), publish(&shared, other, Some(other.bytes)));
    }
    for other in &others {
        let found = shared.find(&(), other).unwrap();
        assert_eq!(shared.row(&found), Some(other.bytes));
        shared.release(&(), found);
    }
}

#[test]
fn keys_and_rows_are_shared_up_to_their_limits_and_private_beyond() {
    let shared = Shared::anonymous(&Config { bytes: 8 << 20, ..Config::default() }).unwrap();
    let (long_key, long_row) = (vec![1; KEY_BYTES_MAX], vec![2; ROW_BYTES_MAX]);
    let found = publish(&shared, &key(&long_key), Some(&long_row));
    assert_eq!(shared.row(&found), Some(&long_row[..]));
    shared.release(&(), found);
    let (longer_key, longer_row) = (vec![1; KEY_BYTES_MAX + 1], vec![2; ROW_BYTES_MAX + 1]);
    let token = shared.token(&());
    assert_eq!(shared.publish(&(), &key(&longer_key), None, token), Publication::Private { useless: false });
    assert_eq!(shared.publish(&(), &key(b"k"), Some(&longer_row), token), Publication::Private { useless: false });
    assert!(shared.find(&(), &key(&longer_key)).is_none());
    assert_eq!(shared.stats().too_large, 2);
    for cache in [0, u8::MAX] {
        shared.release(&(), publish(&shared, &Key { cache, ..key(b"c") }, None));
    }
}

/// Token 0 is nobody's: historic snapshots, bootstrap (D12).
#[test]
fn token_0_is_never_published() {
    let shared = small();
    assert_eq!(shared.token(&()), Token::new(1), "the clock starts at 1");
    assert_eq!(shared.publish(&(), &key(b"k"), None, Token::default()), Publication::Private { useless: false });
    assert!(shared.find(&(), &key(b"k")).is_none());
}

#[test]
fn a_change_makes_an_entry_invalid_and_whoever_meets_it_unlinks_it() {
    let shared = small();
    shared.release(&(), publish(&shared, &key(b"k"), Some(b"old")));
    change(&shared, &key(b"k"));
    assert_eq!(shared.stats().entries, 1);
    assert!(shared.find(&(), &key(b"k")).is_none());
    let Stats { invalid_met, entries, .. } = shared.stats();
    assert_eq!((invalid_met, entries), (1, 0));
    let new = publish(&shared, &key(b"k"), Some(b"new"));
    assert_eq!(shared.row(&new), Some(&b"new"[..]));
    shared.release(&(), new);
    let found = shared.find(&(), &key(b"k")).unwrap();
    assert_eq!(found.mark(), 2, "the mark of the change");
    shared.release(&(), found);
}

/// While a bracket is open, nothing that it may change is valid, whatever its token.
#[test]
fn nothing_is_valid_inside_a_bracket() {
    let shared = small();
    shared.release(&(), publish(&shared, &key(b"k"), None));
    let mut bracket = shared.bracket([(5, 7, key(b"k").hash)]);
    bracket.open(&());
    assert!(shared.find(&(), &key(b"k")).is_none());
    let token = shared.token(&());
    assert_eq!(shared.publish(&(), &key(b"k"), None, token), Publication::Private { useless: true });
    bracket.close(&());
    assert_eq!(shared.publish(&(), &key(b"k"), None, token), Publication::Private { useless: true }, "D1");
    shared.release(&(), publish(&shared, &key(b"k"), None));
    assert_eq!(shared.stats().useless, 2);
}

#[test]
fn a_withdrawn_bracket_leaves_entries_valid() {
    let shared = small();
    shared.release(&(), publish(&shared, &key(b"k"), None));
    let mut bracket = shared.bracket([(5, 7, key(b"k").hash)]);
    bracket.open(&());
    bracket.withdraw(&());
    let found = shared.find(&(), &key(b"k")).expect("nothing has changed");
    shared.release(&(), found);
    assert_eq!(shared.token(&()).value(), 1, "nor has the clock");
}

/// A writer that panics inside its bracket leaves its stamps marked, not open for ever.
#[test]
fn a_bracket_that_is_dropped_open_is_closed() {
    let shared = small();
    shared.release(&(), publish(&shared, &key(b"k"), None));
    let mut bracket = shared.bracket([(5, 7, key(b"k").hash)]);
    bracket.open(&());
    drop(bracket);
    assert!(shared.find(&(), &key(b"k")).is_none());
    shared.release(&(), publish(&shared, &key(b"k"), None));
}

#[test]
fn catalogs_and_databases_are_invalidated_whole() {
    let shared = small();
    let key = Key { database: 9, ..key(b"k") };
    let brackets = [shared.bracket_of_catalogs([(9, 7)]), shared.bracket_of_databases([9])];
    for mut bracket in brackets {
        shared.release(&(), publish(&shared, &key, None));
        assert_eq!(bracket.stamps(), 1);
        bracket.open(&());
        bracket.close(&());
        assert!(shared.find(&(), &key).is_none());
    }
}

/// Each stamp once, and the clock once per bracket, however many changes there were.
#[test]
fn a_bracket_counts_each_stamp_once() {
    let shared = small();
    let mut bracket = shared.bracket([(5, 7, 1), (5, 7, 2), (5, 7, 1)]).and(shared.bracket_of_databases([5, 5]));
    // Two stripes, the lists of their cache, and the database.
    assert_eq!(bracket.stamps(), 4);
    bracket.open(&());
    let image = shared.peek();
    assert_eq!(image.stripes.iter().map(|stamp| stamp.open).sum::<u32>(), 2);
    assert_eq!(image.lists.iter().map(|stamp| stamp.open).sum::<u32>(), 1);
    assert_eq!(image.databases.iter().map(|stamp| stamp.open).sum::<u32>(), 1);
    bracket.close(&());
    let image = shared.peek();
    assert_eq!(image.clock, 2);
    assert!(
        image
            .stripes
            .iter()
            .chain(&image.lists)
            .chain(&image.databases)
            .all(|stamp| stamp.open == 0 && [0, 2].contains(&stamp.mark))
    );
}

#[test]
fn the_newer_of_two_loads_stays() {
    let shared = small();
    let (early, neighbour) = (shared.token(&()), key(b"far away"));
    change(&shared, &neighbour);
    let late = shared.token(&());
    assert!(early < late);
    let newer = match shared.publish(&(), &key(b"k"), Some(b"same"), late) {
        Publication::Published(reference) => reference,
        other => panic!("{other:?}"),
    };
    let older = match shared.publish(&(), &key(b"k"), Some(b"same"), early) {
        Publication::Existing(reference) => reference,
        other => panic!("{other:?}"),
    };
    assert_eq!(older.at(), newer.at());
    assert_eq!(shared.stats().entries, 1, "the second slot went back");
    shared.release(&(), older);
    shared.release(&(), newer);

    // The other way round: the older is replaced, and lives until its reader has let it go.
    let old = match shared.publish(&(), &key(b"l"), Some(b"old"), early) {
        Publication::Published(reference) => reference,
        other => panic!("{other:?}"),
    };
    let new = match shared.publish(&(), &key(b"l"), Some(b"new"), late) {
        Publication::Published(reference) => reference,
        other => panic!("{other:?}"),
    };
    assert_eq!(shared.row(&old), Some(&b"old"[..]), "A39");
    assert_eq!(shared.row(&new), Some(&b"new"[..]));
    assert_eq!(shared.stats().entries, 3);
    shared.release(&(), old);
    assert_eq!(shared.stats().entries, 2);
    shared.release(&(), new);
}

#[test]
fn only_what_nobody_refers_to_is_evicted_on_request() {
    let shared = small();
    assert!(!shared.evict(&(), &key(b"k")));
    let reference = publish(&shared, &key(b"k"), None);
    assert!(!shared.evict(&(), &key(b"k")), "D24");
    shared.release(&(), reference);
    assert!(shared.evict(&(), &key(b"k")));
    assert!(shared.find(&(), &key(b"k")).is_none());
    assert_eq!(shared.stats().entries, 0);
}

/// A table full of referenced entries: loads stay private, and nothing else happens (D25).
#[test]
fn a_full_table_is_no_error() {
    let config = Config { uniform: Some(Uniform { slots: 3, bytes: 64 }), ..Config::tiny() };
    let shared = Shared::anonymous(&config).unwrap();
    let held: Vec<Reference> = (0..3_u8).map(|n| publish(&shared, &key(&[n]), Some(&[n]))).collect();
    for n in 3..20_u8 {
        let token = shared.token(&());
        assert_eq!(shared.publish(&(), &key(&[n]), None, token), Publication::Private { useless: false });
    }
    assert_eq!((shared.stats().full, shared.stats().evicted, shared.peek().free_slots), (17, 0, 0));
    for (n, reference) in (0..).zip(held) {
        assert_eq!(shared.row(&reference), Some(&[n][..]));
        shared.release(&(), reference);
    }
    shared.release(&(), publish(&shared, &key(b"new"), None));
    assert_eq!(shared.stats().evicted, 1);
}

/// The invalid go first, before anything valid.
#[test]
fn an_invalid_entry_is_the_first_to_go() {
    let config = Config { uniform: Some(Uniform { slots: 4, bytes: 64 }), ..Config::tiny() };
    for stale in 0..4_u32 {
        let shared = Shared::anonymous(&config).unwrap();
        let name = |hash| Key { database: 0, cache: 0, hash, bytes: b"k" };
        for hash in 0..4 {
            shared.release(&(), publish(&shared, &name(hash), None));
        }
        change(&shared, &name(stale));
        shared.release(&(), publish(&shared, &name(stale + 4), None));
        for hash in (0..4).filter(|&hash| hash != stale) {
            shared.release(&(), shared.find(&(), &name(hash)).expect("the valid ones are still there"));
        }
        assert_eq!(shared.stats().evicted, 1);
    }
}

/// Second chance: what is asked for survives a sweep of things that are asked for once.
#[test]
fn a_hot_set_survives_a_sweep() {
    let shared = Shared::anonymous(&Config { bytes: 2 << 20, ..Config::default() }).unwrap();
    let row = [7; 300];
    let hot: Vec<[u8; 4]> = (0..100_u32).map(u32::to_le_bytes).collect();
    let mut lost = 0;
    for n in 1000..21_000_u32 {
        shared.release(&(), publish(&shared, &key(&n.to_le_bytes()), Some(&row)));
        let wanted = &hot[n as usize % hot.len()];
        match shared.find(&(), &key(wanted)) {
            Some(found) => shared.release(&(), found),
            None => {
                lost += 1;
                shared.release(&(), publish(&shared, &key(wanted), Some(&row)));
            }
        }
    }
    assert!(shared.stats().evicted > 15_000);
    assert!(lost < 1000, "{lost} of 20000 lookups of the hot set missed");
}

/// Whatever is published, the segment's size is the cap, and the sizes of the day get the memory.
#[test]
fn the_cap_holds_while_the_mix_of_sizes_changes() {
    let shared = Shared::anonymous(&Config { bytes: 4 << 20, ..Config::default() }).unwrap();
    let total = shared.bytes();
    assert!(total <= 4 << 20);
    let big = vec![3; ROW_BYTES_MAX];
    for (phase, bytes) in [40, 3000, 200, 60_000, 0, 9000, 1000, 65_536, 33_000].into_iter().enumerate() {
        let mut private = 0;
        for n in 0..3000_u32 {
            let name = [phase as u32, n].map(u32::to_le_bytes).concat();
            match shared.publish(&(), &key(&name), Some(&big[..bytes]), shared.token(&())) {
                Publication::Published(reference) => shared.release(&(), reference),
                Publication::Private { useless: false } => private += 1,
                other => panic!("{other:?}"),
            }
            let stats = shared.stats();
            assert!(stats.bytes_used <= stats.bytes_in_pages && stats.bytes_in_pages + stats.bytes_free <= total);
        }
        assert!(private < 100, "{bytes} bytes: {private} of 3000 loads stayed private: the slab is calcified");
    }
    assert_eq!(shared.bytes(), total);
    assert!(shared.stats().pages_emptied > 0);
}

/// Bytes of the whole segment per entry: payload, key, 48 bytes, and 5 % at most, whatever the sizes.
#[test]
fn an_entry_costs_little_more_than_its_row() {
    let row = [9; 8192];
    // Sizes spread over the logarithm, as those of catalog rows are; and the worst of all, a size alone.
    for (least, most, factor) in
        [(100.0, 2000.0, 1.0071), (60.0, 4096.0, 1.011), (300.0, 300.0, 1.1), (33.0, 33.0, 1.1)]
    {
        let shared = Shared::anonymous(&Config::default()).unwrap();
        let (mut allowed, mut bytes, mut n) = (0, least, 0_u32);
        while shared.stats().evicted == 0 {
            let size = bytes as usize;
            shared.release(&(), publish(&shared, &key(&n.to_le_bytes()), Some(&row[..size])));
            allowed += size + 4 + 48;
            bytes = if bytes * factor > most { least } else { bytes * factor };
            n += 1;
        }
        let (spent, allowed) = (shared.bytes() as f64, allowed as f64 * 1.05);
        assert!(spent <= allowed, "{least}..{most}: {spent} bytes for what may cost {allowed}");
    }
}

#[test]
fn threads_share_a_small_table_without_losing_a_slot() {
    let shared =
        Shared::anonymous(&Config { bytes: 1 << 20, ring: 64, backends: 8, stripes: 64, ..Config::default() }).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let shared = &shared;
            scope.spawn(move || {
                let mut state = thread + 1;
                let mut random = |below: u64| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 33) % below
                };
                let mut held: Vec<(u64, Reference)> = Vec::new();
                for _ in 0..100_000 {
                    let n = random(3000);
                    let name = n.to_le_bytes();
                    let key = key(&name);
                    match random(20) {
                        0 => change(shared, &key),
                        1..10 => {
                            if let Some(found) = shared.find(&(), &key) {
                                held.push((n, found));
                            }
                        }
                        _ => {
                            let row = vec![n as u8; (n * 7 % 1000) as usize];
                            match shared.publish(&(), &key, Some(&row), shared.token(&())) {
                                Publication::Published(found) | Publication::Existing(found) => held.push((n, found)),
                                Publication::Private { .. } => {}
                            }
                        }
                    }
                    if held.len() > 20 {
                        let (n, reference) = held.swap_remove(random(20) as usize);
                        let row = shared.row(&reference).unwrap();
                        assert_eq!(row.len() as u64, n * 7 % 1000, "A39");
                        assert!(row.iter().all(|&byte| byte == n as u8), "A39");
                        shared.release(&(), reference);
                    }
                }
                held.into_iter().for_each(|(_, reference)| shared.release(&(), reference));
            });
        }
    });
    let image = shared.peek();
    assert_eq!(image.entries.len() as u64, shared.stats().entries, "every slot in use holds an entry");
    assert!(image.entries.iter().all(|entry| entry.linked && entry.references == 0));
    let mut keys: Vec<_> = image.entries.iter().map(|entry| &entry.key).collect();
    keys.sort();
    assert!(keys.windows(2).all(|pair| pair[0] != pair[1]), "a key is linked twice");
}
