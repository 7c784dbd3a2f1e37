//! Making and attaching segments: every refusal says what to do, and nothing crashes.

use shared_catcache::{Config, Error, Key, Publication, Shared};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A path in shared memory that is removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = Path::new("/dev/shm").join(format!("catcache-test-{}-{name}", std::process::id()));
        let _ = fs::remove_file(&path);
        Place(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

const KEY: Key<'static> = Key { database: 1, cache: 2, hash: 3, bytes: b"key" };

fn config() -> Config {
    Config { bytes: 1 << 20, ..Config::default() }
}

#[track_caller]
fn publish(shared: &Shared, row: &[u8]) {
    match shared.publish(&(), &KEY, Some(row), shared.token(&())) {
        Publication::Published(reference) => shared.release(&(), reference),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_found(shared: &Shared, row: &[u8]) {
    let found = shared.find(&(), &KEY).expect("it was published");
    assert_eq!(shared.row(&found), Some(row));
    shared.release(&(), found);
}

#[test]
fn what_one_handle_publishes_another_finds() {
    let place = Place::new("two-handles");
    let creator = Shared::create(&place.0, &config()).unwrap();
    assert_eq!(fs::metadata(&place.0).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(&place.0).unwrap().len(), creator.bytes());
    let guest = Shared::attach(&place.0).unwrap();
    assert_eq!(guest.config(), creator.config());
    publish(&creator, b"row");
    assert_found(&guest, b"row");
    drop(creator);
    assert!(place.0.exists(), "a segment stays");
    assert_found(&guest, b"row");
    assert_found(&Shared::attach(&place.0).unwrap(), b"row");
}

#[test]
fn an_owned_segment_is_removed_with_its_last_handle() {
    let place = Place::new("owned");
    let creator = Shared::create_owned(&place.0, &config()).unwrap();
    let (clone, guest) = (creator.clone(), Shared::attach(&place.0).unwrap());
    drop(creator);
    assert!(place.0.exists());
    publish(&clone, b"row");
    drop(clone);
    assert!(!place.0.exists());
    assert_found(&guest, b"row");
}

#[test]
fn a_segment_without_a_name_is_attached_by_its_descriptor() {
    let (creator, file) = Shared::memfd("catcache-test", &config()).unwrap();
    let guest = Shared::attach_file(&file).unwrap();
    publish(&guest, b"row");
    assert_found(&creator, b"row");
    assert!(file.set_len(4096).is_err(), "it can't be truncated under us");
}

/// The same bytes in another process, which changes them.
#[test]
fn another_process_shares_the_segment() {
    if let Some(path) = std::env::var_os("CATCACHE_TEST_GUEST") {
        let shared = Shared::attach(path).unwrap();
        assert_found(&shared, b"of the parent");
        let mut bracket = shared.bracket([(KEY.database, KEY.cache, KEY.hash)]);
        bracket.open(&());
        bracket.close(&());
        publish(&shared, b"of the child");
        return;
    }
    let place = Place::new("two-processes");
    let shared = Shared::create(&place.0, &config()).unwrap();
    publish(&shared, b"of the parent");
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "another_process_shares_the_segment"])
        .env("CATCACHE_TEST_GUEST", &place.0)
        .status()
        .unwrap();
    assert!(status.success());
    assert_found(&shared, b"of the child");
    assert_eq!(shared.token(&()).value(), 2);
}

/// Many processes at once on one segment of few entries: locks wake across processes, and no slot is lost.
#[test]
fn processes_contend_without_losing_a_slot_or_a_wake_up() {
    if let Some(path) = std::env::var_os("CATCACHE_TEST_CONTENDER") {
        let shared = Shared::attach(path).unwrap();
        let mut state = u64::from(std::process::id());
        for _ in 0..50_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let n = (state >> 40) as u32 % 8;
            let key = Key { hash: n, ..KEY };
            if state >> 33 & 15 == 0 {
                let mut bracket = shared.bracket([(key.database, key.cache, key.hash)]);
                bracket.open(&());
                bracket.close(&());
            }
            let reference = match shared.find(&(), &key) {
                Some(reference) => reference,
                None => match shared.publish(&(), &key, Some(&[n as u8; 16]), shared.token(&())) {
                    Publication::Published(reference) | Publication::Existing(reference) => reference,
                    Publication::Private { .. } => continue,
                },
            };
            assert_eq!(shared.row(&reference), Some(&[n as u8; 16][..]));
            shared.release(&(), reference);
        }
        return;
    }
    let place = Place::new("contention");
    let shared = Shared::create(&place.0, &Config::tiny()).unwrap();
    let children: Vec<_> = (0..4)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "processes_contend_without_losing_a_slot_or_a_wake_up"])
                .env("CATCACHE_TEST_CONTENDER", &place.0)
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let image = shared.peek();
    assert_eq!(image.entries.len() as u32 + image.free_slots, 4);
    assert!(image.entries.iter().all(|entry| entry.linked && entry.references == 0));
    assert!(image.stripes.iter().all(|stamp| stamp.open == 0));
}

#[test]
fn an_existing_file_is_not_overwritten() {
    let place = Place::new("exists");
    fs::write(&place.0, b"precious").unwrap();
    let error = Shared::create(&place.0, &config()).unwrap_err();
    assert!(error.to_string().contains("attach to it"), "{error}");
    assert_eq!(fs::read(&place.0).unwrap(), b"precious");
}

#[test]
fn what_is_no_segment_is_refused_by_name() {
    let place = Place::new("foreign");
    let attach = |bytes: &[u8]| {
        fs::write(&place.0, bytes).unwrap();
        Shared::attach(&place.0).unwrap_err()
    };
    assert!(matches!(attach(&[b'x'; 8192]), Error::Foreign { .. }));
    assert!(matches!(attach(b""), Error::Size { found: 0, .. }));
    assert!(matches!(attach(b"catcache"), Error::Size { found: 8, .. }));
    assert!(matches!(attach(&[0; 8192]), Error::NotReady { .. }));
    assert!(matches!(Shared::attach("/dev/shm"), Err(Error::NotAFile { found: "directory", .. })));
    assert!(matches!(Shared::attach("/dev/null"), Err(Error::NotAFile { found: "device", .. })));
    let error = Shared::attach("/dev/shm/catcache-of-nobody").unwrap_err();
    assert!(error.to_string().contains("create the segment first"), "{error}");
    for path in ["", "relative/nowhere", "/proc/self/mem"] {
        assert!(Shared::attach(path).is_err(), "{path}");
    }
}

/// Each field of the header, damaged in turn.
#[test]
fn a_damaged_header_is_refused_field_by_field() {
    let place = Place::new("damaged");
    let shared = Shared::create(&place.0, &config()).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&place.0).unwrap();
    let good = fs::read(&place.0).unwrap()[..192].to_vec();
    let damaged = |unit: u64, value: u64| {
        file.write_all_at(&value.to_ne_bytes(), unit * 8).unwrap();
        let result = Shared::attach(&place.0);
        file.write_all_at(&good, 0).unwrap();
        result.map(|_| ()).unwrap_err()
    };
    assert!(matches!(damaged(0, 1), Error::Foreign { found: 1, .. }));
    assert!(matches!(damaged(1, 99), Error::Version { found: 99, .. }));
    assert!(matches!(damaged(2, 0x0807_0605_0403_0201), Error::ByteOrder { .. }));
    assert!(matches!(damaged(2, 0), Error::Damaged { .. }));
    assert!(matches!(damaged(3, 4096), Error::Size { expected: 4096, .. }));
    assert!(matches!(damaged(4, 0), Error::NotReady { .. }));
    for unit in 5..17 {
        for value in [2, u64::MAX] {
            assert!(matches!(damaged(unit, value), Error::Damaged { .. }), "unit {unit}");
        }
    }
    Shared::attach(&place.0).expect("it was repaired each time");
    drop(shared);
}

/// A file that is shorter than its header says would be a SIGBUS if it were mapped.
#[test]
fn a_truncated_segment_is_refused() {
    let place = Place::new("truncated");
    let bytes = Shared::create(&place.0, &config()).unwrap().bytes();
    let file = fs::OpenOptions::new().write(true).open(&place.0).unwrap();
    for length in [bytes - 1, bytes / 2, 4096, 192, 191, 8, 0] {
        file.set_len(length).unwrap();
        let error = Shared::attach(&place.0).unwrap_err();
        assert!(matches!(error, Error::Size { found, .. } if found == length), "{length}: {error}");
        assert!(error.to_string().contains("create it anew"), "{error}");
    }
}

#[test]
fn a_segment_with_something_behind_it_is_refused() {
    let place = Place::new("longer");
    let bytes = Shared::create(&place.0, &config()).unwrap().bytes();
    fs::OpenOptions::new().write(true).open(&place.0).unwrap().set_len(bytes + 8).unwrap();
    assert!(matches!(Shared::attach(&place.0), Err(Error::Size { .. })));
}

/// root may open anything, so the refusal shows only where the test runs as somebody else; the advice is tested by its text.
#[test]
fn a_segment_of_another_user_is_refused_with_advice() {
    let place = Place::new("forbidden");
    drop(Shared::create(&place.0, &config()).unwrap());
    fs::set_permissions(&place.0, fs::Permissions::from_mode(0o000)).unwrap();
    if let Err(error) = Shared::attach(&place.0) {
        assert!(error.to_string().contains("run as that user"), "{error}");
    }
}
