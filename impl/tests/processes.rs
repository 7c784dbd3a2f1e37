//! Many backends, in one process and in several, over one segment: all answer from it, and one too many is refused.
//!
//! A process that the tests need is this very program, started anew with a task in its environment and the name of the
//! test that takes it up.

use shared_catcache::backend::{Backend, MemoryCatalog, MemorySession};
use shared_catcache::shared::BACKENDS_MAX;
use shared_catcache::{Config, Error, Key, Shared};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Places in shared memory, under one name, that are removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let place = Place(Path::new("/dev/shm").join(format!("catcache-test-{}-{name}", std::process::id())));
        place.remove();
        place
    }

    fn segment(&self) -> PathBuf {
        self.0.with_extension("segment")
    }

    fn catalog(&self) -> PathBuf {
        self.0.with_extension("catalog")
    }

    fn remove(&self) {
        let _ = fs::remove_file(self.segment());
        let _ = fs::remove_file(self.catalog());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.remove();
    }
}

const NAMES: [&[u8]; 3] = [b"pg_class", b"pg_type", b"pg_proc"];

fn key(n: usize) -> Key<'static> {
    Key { database: 1, cache: 35, hash: n as u32 + 1, bytes: NAMES[n] }
}

fn fill(catalog: &MemoryCatalog) {
    (0..NAMES.len()).for_each(|n| catalog.fill(&key(n), NAMES[n]));
}

type Session = Backend<MemorySession>;

fn attach(shared: &Shared, catalog: &MemoryCatalog, count: usize) -> Vec<Session> {
    (0..count).map(|_| Backend::attach(shared, 1, catalog.session(())).expect("there is a slot")).collect()
}

#[track_caller]
fn assert_full(shared: &Shared, catalog: &MemoryCatalog) {
    let error = Backend::attach(shared, 1, catalog.session(())).unwrap_err();
    assert!(matches!(error, Error::TooManyBackends { limit: BACKENDS_MAX }), "{error}");
    assert!(error.to_string().starts_with("all 1024 backend slots of the segment are taken; detach"), "{error}");
}

/// Each answers every key, and each first answer of this row comes from the segment: none of them scans.
#[track_caller]
fn assert_answers(backends: &mut [Session], pg_class: &[u8]) {
    for backend in backends {
        let scans = backend.stats().scans;
        assert_eq!(backend.lookup(&key(0)).unwrap(), Some(pg_class));
        for n in 1..NAMES.len() {
            assert_eq!(backend.lookup(&key(n)).unwrap(), Some(key(n).bytes));
        }
        assert_eq!(backend.stats().scans, scans, "it read the catalog");
    }
}

fn update(backend: &mut Session, row: &[u8]) {
    backend.begin().unwrap();
    backend.put(&key(0), row).unwrap();
    backend.commit().unwrap();
    backend.accept();
    assert_eq!(backend.lookup(&key(0)).unwrap(), Some(row), "and so it is published");
}

#[test]
fn a_thousand_and_twenty_four_handles_answer_from_one_segment_and_one_more_is_refused() {
    let shared = Shared::anonymous(&Config::default()).unwrap();
    let catalog = MemoryCatalog::new();
    fill(&catalog);
    let mut backends = attach(&shared, &catalog, BACKENDS_MAX as usize);
    assert_full(&shared, &catalog);
    for n in 0..NAMES.len() {
        backends[0].lookup(&key(n)).unwrap();
    }
    assert_answers(&mut backends, NAMES[0]);
    assert_eq!(shared.stats().published, NAMES.len() as u64, "one copy for all");
    update(&mut backends[1023], b"new");
    backends.iter_mut().for_each(Session::accept);
    assert_answers(&mut backends, b"new");
    // A slot that is given back is another's.
    assert_full(&shared, &catalog);
    drop(backends.remove(500));
    backends.extend(attach(&shared, &catalog, 1));
    assert_full(&shared, &catalog);
    assert_answers(&mut backends, b"new");
}

/// The same, each backend in a thread of its own, all at once.
#[test]
fn a_thousand_and_twenty_four_threads_answer_from_one_segment() {
    let shared = Shared::anonymous(&Config::default()).unwrap();
    let catalog = MemoryCatalog::new();
    fill(&catalog);
    let mut backends = attach(&shared, &catalog, BACKENDS_MAX as usize);
    for n in 0..NAMES.len() {
        backends[0].lookup(&key(n)).unwrap();
    }
    std::thread::scope(|scope| {
        for backend in &mut backends {
            let answer = move || assert_answers(std::slice::from_mut(backend), NAMES[0]);
            std::thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, answer).unwrap();
        }
    });
    assert_full(&shared, &catalog);
}

/// A process of so many backends, which answers when it is told to.
struct Guest {
    child: Child,
    /// It ends when this is closed.
    tell: Option<ChildStdin>,
    hear: BufReader<ChildStdout>,
}

/// What a guest says is on a line of its own, whatever the test harness prints before it.
const SAYS: &str = "guest: ";
const PLACE: &str = "CATCACHE_TEST_PLACE";
const COUNT: &str = "CATCACHE_TEST_COUNT";

impl Guest {
    fn start(place: &Place, count: usize) -> Guest {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_guest_of_other_tests", "--nocapture"])
            .env(PLACE, &place.0)
            .env(COUNT, count.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (tell, hear) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Guest { child, tell, hear }
    }

    /// The next thing that it says.
    fn said(&mut self) -> String {
        let mut line = String::new();
        while self.hear.read_line(&mut line).unwrap() > 0 {
            if let Some((_, said)) = line.split_once(SAYS) {
                return said.trim_end().to_owned();
            }
            line.clear();
        }
        panic!("the guest has ended: {:?}", self.child.wait());
    }

    fn tell(&mut self, what: &str) {
        writeln!(self.tell.as_ref().unwrap(), "{what}").unwrap();
    }

    /// Lets it end in order; its exit status.
    fn end(mut self) -> Option<i32> {
        self.tell = None;
        self.child.wait().unwrap().code()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// No test of its own: it runs when another has started this program as a guest. It accepts, answers with the row it is
/// told to expect, and ends with its standard input.
#[test]
fn the_guest_of_other_tests() {
    let Some(place) = std::env::var_os(PLACE).map(|place| Place(place.into())) else { return };
    // The place is the host's to remove.
    let place = std::mem::ManuallyDrop::new(place);
    let count = std::env::var(COUNT).unwrap().parse().unwrap();
    let shared = Shared::attach(place.segment()).unwrap();
    let catalog = MemoryCatalog::in_file(place.catalog()).unwrap();
    let mut backends = attach(&shared, &catalog, count);
    println!("{SAYS}attached");
    for row in std::io::stdin().lines() {
        backends.iter_mut().for_each(Session::accept);
        assert_answers(&mut backends, row.unwrap().as_bytes());
        println!("{SAYS}answered");
    }
}

#[test]
fn eight_processes_of_128_backends_answer_from_one_segment_and_one_backend_more_is_refused() {
    let place = Place::new("eight");
    let shared = Shared::create(place.segment(), &Config::default()).unwrap();
    let catalog = MemoryCatalog::in_file(place.catalog()).unwrap();
    fill(&catalog);
    // One slot is the host's at first, so that the rows are in the segment before the guests ask.
    let mut own = attach(&shared, &catalog, 1);
    for n in 0..NAMES.len() {
        own[0].lookup(&key(n)).unwrap();
    }
    let mut guests: Vec<Guest> = (0..8).map(|n| Guest::start(&place, if n == 0 { 127 } else { 128 })).collect();
    guests.iter_mut().for_each(|guest| assert_eq!(guest.said(), "attached"));
    assert_full(&shared, &catalog);
    let ask = |guests: &mut [Guest], row: &str| {
        guests.iter_mut().for_each(|guest| guest.tell(row));
        guests.iter_mut().for_each(|guest| assert_eq!(guest.said(), "answered"));
    };
    ask(&mut guests, "pg_class");
    update(&mut own[0], b"new");
    ask(&mut guests, "new");
    assert_eq!(shared.stats().published, NAMES.len() as u64 + 1);

    // A guest that ends in order gives its slots back.
    assert_eq!(guests.pop().unwrap().end(), Some(0));
    own.extend(attach(&shared, &catalog, 128));
    assert_full(&shared, &catalog);
    assert_answers(&mut own, b"new");
}

/// What the README says of death, held to: a process that is killed between two operations leaves its slots taken, with
/// what they refer to, and nobody takes them back. The others go on, however far it falls behind in the ring.
#[test]
fn a_killed_process_leaves_its_slots_taken_and_the_others_go_on() {
    let place = Place::new("killed");
    let config = Config { ring: 4, ..Config::default() };
    let shared = Shared::create(place.segment(), &config).unwrap();
    let catalog = MemoryCatalog::in_file(place.catalog()).unwrap();
    fill(&catalog);
    let mut own = attach(&shared, &catalog, 1000);
    for n in 0..NAMES.len() {
        own[0].lookup(&key(n)).unwrap();
    }
    let mut guest = Guest::start(&place, 24);
    assert_eq!(guest.said(), "attached");
    guest.tell("pg_class");
    assert_eq!(guest.said(), "answered");
    guest.child.kill().unwrap();
    assert_eq!(guest.child.wait().unwrap().signal(), Some(9));

    assert_full(&shared, &catalog);
    for n in 0..10_u8 {
        let row = [n; 9];
        update(&mut own[0], &row);
        own[1..].iter_mut().for_each(Session::accept);
        assert_answers(&mut own, &row);
    }
    assert_full(&shared, &catalog);
    drop(own.pop());
    attach(&shared, &catalog, 1);
}

/// Without a name: the segment is the child's standard input, which is how a descriptor is handed on without `unsafe`.
#[test]
fn a_child_attaches_by_the_descriptor_that_it_inherits() {
    const INHERITED: &str = "CATCACHE_TEST_INHERITED";
    if let Some(catalog) = std::env::var_os(INHERITED) {
        let inherited = File::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
        let shared = Shared::attach_file(&inherited).unwrap();
        let catalog = MemoryCatalog::in_file(catalog).unwrap();
        let mut backends = attach(&shared, &catalog, 1);
        assert_answers(&mut backends, NAMES[0]);
        update(&mut backends[0], b"of the child");
        return;
    }
    let place = Place::new("inherited");
    let (shared, file) = Shared::memfd("catcache-test", &Config::default()).unwrap();
    let catalog = MemoryCatalog::in_file(place.catalog()).unwrap();
    fill(&catalog);
    let mut own = attach(&shared, &catalog, 2);
    for n in 0..NAMES.len() {
        own[0].lookup(&key(n)).unwrap();
    }
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_child_attaches_by_the_descriptor_that_it_inherits"])
        .env(INHERITED, place.catalog())
        .stdin(file)
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(own[0].lookup(&key(0)).unwrap(), Some(NAMES[0]), "it has not accepted");
    own.iter_mut().for_each(Session::accept);
    assert_answers(&mut own, b"of the child");
}

/// What a descriptor can lead to; the same by path is in `segment.rs`.
#[test]
fn what_is_no_segment_is_refused_by_its_descriptor() {
    let attach = |file: &File| Shared::attach_file(file).map(|_| ()).unwrap_err();
    let place = Place::new("descriptors");
    let shared = Shared::create(place.segment(), &Config::default()).unwrap();
    let open = || OpenOptions::new().read(true).write(true).open(place.segment()).unwrap();

    let (reading, writing) = std::io::pipe().unwrap();
    for end in [reading.as_fd().try_clone_to_owned(), writing.as_fd().try_clone_to_owned()] {
        assert!(matches!(attach(&end.unwrap().into()), Error::NotAFile { found: "pipe", .. }));
    }
    let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(matches!(attach(&File::from(std::os::fd::OwnedFd::from(socket))), Error::NotAFile { found: "socket", .. }));
    assert!(matches!(attach(&File::open("/dev/shm").unwrap()), Error::NotAFile { found: "directory", .. }));
    assert!(matches!(attach(&File::open("/dev/null").unwrap()), Error::NotAFile { found: "device", .. }));

    // A descriptor that may not write, or not read.
    let error = attach(&File::open(place.segment()).unwrap());
    assert!(matches!(error, Error::Io { action: "map", .. }), "{error}");
    let error = attach(&OpenOptions::new().write(true).open(place.segment()).unwrap());
    assert!(matches!(error, Error::Io { action: "read", .. }), "{error}");

    // Where the descriptor stands in its file is of no matter.
    let mut file = open();
    file.seek(SeekFrom::End(0)).unwrap();
    Shared::attach_file(&file).unwrap();

    // Another version, another kind of file, and shorter than it says.
    let damage = |unit: u64, value: u64| {
        let mut before = [0; 8];
        file.read_exact_at(&mut before, unit * 8).unwrap();
        file.write_all_at(&value.to_ne_bytes(), unit * 8).unwrap();
        let error = attach(&file);
        file.write_all_at(&before, unit * 8).unwrap();
        error
    };
    let error = damage(1, 99);
    assert!(matches!(error, Error::Version { found: 99, .. }), "{error}");
    assert!(error.to_string().contains("create it anew with this version"), "{error}");
    assert!(matches!(damage(0, 99), Error::Foreign { found: 99, .. }));
    assert!(matches!(damage(4, 0), Error::NotReady { .. }));
    Shared::attach_file(&file).unwrap();
    file.set_len(shared.bytes() - 4096).unwrap();
    let error = attach(&file);
    assert!(matches!(error, Error::Size { .. }), "{error}");
    file.set_len(0).unwrap();
    assert!(matches!(attach(&file), Error::Size { found: 0, .. }));
}
