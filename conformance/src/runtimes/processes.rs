//! The build that users get, in real processes.
//!
//! A [`Pool`] starts workers: this very program, run again, never forked, for a thread may hold any lock at a fork. Each
//! takes one backend of a litmus file. For every run the pool makes a segment and a catalog
//! ([`MemoryCatalog::in_file`]: the rules of the catalog are those of the runs on threads), both in memory and without a
//! name; the workers open them through this process's descriptors in `/proc`. So nothing is left behind, however a run
//! ends. The workers stay, and take many runs of many files.
//!
//! ```text
//!     pool ── task: file, backend, places ──▶ worker ──▶ attach ─▶ meet ─▶ run the program ─▶ meet ─▶ detach
//!      ▲                                         │              segment, catalog, ledger
//!      └────────────── ok, or what failed ───────┘
//! ```
//!
//! A program that uses a pool must serve as a worker when it is started as one: it calls [`serve`] if [`is_worker`], first
//! of all. A test program has a test named [`TEST`] that does so.
//!
//! Waiting is bounded, and a worker that dies, hangs or fails ends the whole pool; the next use starts a new one.

pub mod ledger;
mod worker;

use crate::litmus::Litmus;
use crate::outcomes::{self, Outcome, Seen};
use crate::refinement::{Map, Sizes};
use crate::rules::Rule;
use crate::runtimes::real::body;
use ledger::{ANOTHER, Ledger};
use shared_catcache::backend::MemoryCatalog;
use shared_catcache::shared::EntryImage;
use shared_catcache::{EntryAt, Shared};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
pub use worker::serve;
use worker::{Answer, SAYS, Task, WORKER};

/// The test of a test program that serves as a worker.
pub const TEST: &str = "this_program_serves_as_a_worker";

/// Is this process to serve as a worker?
pub fn is_worker() -> bool {
    std::env::var_os(WORKER).is_some()
}

/// So many runs are prepared at once: each needs two descriptors.
const BATCH: usize = 50;

/// How long a worker may take for a batch, some hundred times as long as it does.
const PATIENCE: Duration = Duration::from_secs(60);

/// Worker processes, started when they are wanted and ended with the pool.
#[derive(Debug)]
pub struct Pool {
    workers: Vec<Worker>,
    /// What they say, with their numbers; `None`: it has ended. A thread listens to each, so that waiting can be bounded.
    hear: Receiver<(usize, Option<Answer>)>,
    heard: Sender<(usize, Option<Answer>)>,
    patience: Duration,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool::new(PATIENCE)
    }
}

#[derive(Debug)]
struct Worker {
    child: Child,
    /// It ends when this is closed.
    tell: ChildStdin,
}

impl Worker {
    fn start(number: usize, heard: Sender<(usize, Option<Answer>)>) -> io::Result<Worker> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--exact", TEST, "--nocapture"])
            .env(WORKER, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for the process that waits for this one.
            .process_group(0)
            .spawn()?;
        let (Some(tell), Some(out)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let Some((_, said)) = line.split_once(SAYS) else { continue };
                let answer = serde_json::from_str(said).unwrap_or_else(|e| Err(format!("it said {said:?}: {e}")));
                if heard.send((number, Some(answer))).is_err() {
                    return;
                }
            }
            // If nobody listens any more, nobody needs to know.
            let _ = heard.send((number, None));
        });
        Ok(Worker { child, tell })
    }

    fn tell(&mut self, task: &Task) -> Result<(), String> {
        let line = serde_json::to_string(task).map_err(|e| e.to_string())?;
        // That it can't be told means that it has ended, which is heard.
        let _ = writeln!(self.tell, "{line}");
        Ok(())
    }

    /// How it has ended; its output is closed, so it is about to, if it has not.
    fn ended(&mut self) -> String {
        for _ in 0..100 {
            match self.child.try_wait() {
                Ok(Some(status)) => return format!("it has died: {status}"),
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Err(error) => return error.to_string(),
            }
        }
        "it has closed its output and was killed".into()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Pool {
    /// A pool whose workers may take so long for a batch of runs.
    pub fn new(patience: Duration) -> Pool {
        let (heard, hear) = mpsc::channel();
        Pool { workers: Vec::new(), hear, heard, patience }
    }

    /// The process ids of the workers that there are.
    pub fn ids(&self) -> Vec<u32> {
        self.workers.iter().map(|worker| worker.child.id()).collect()
    }

    /// Starts workers until there are `count`.
    ///
    /// # Errors
    /// The system's.
    pub fn grow(&mut self, count: usize) -> Result<(), String> {
        while self.workers.len() < count {
            let worker = Worker::start(self.workers.len(), self.heard.clone());
            self.workers.push(worker.map_err(|e| format!("a worker process can't be started: {e}"))?);
        }
        Ok(())
    }

    /// Runs a file in processes, and holds every outcome against those that the model allows.
    ///
    /// # Errors
    /// An outcome that the model does not allow, what the code refused, something that was left in the segment, or a
    /// process that died or hung.
    pub fn run(
        &mut self,
        litmus: &Litmus,
        map: &Map,
        allowed: &BTreeSet<Outcome>,
        runs: usize,
        broken: Option<Rule>,
    ) -> Result<Seen, String> {
        let mut seen = BTreeSet::new();
        for first in (0..runs).step_by(BATCH) {
            let batch = self.batch(litmus, map.sizes(), first, BATCH.min(runs - first), broken);
            let boards = batch.inspect_err(|_| *self = Pool::new(self.patience))?;
            for board in boards {
                seen.insert(outcomes::judge(litmus, allowed, &board, "processes")?);
            }
        }
        Ok(Seen { runs, seen: seen.len(), allowed: outcomes::combinations(allowed) })
    }

    fn batch(
        &mut self,
        litmus: &Litmus,
        sizes: Sizes,
        first: usize,
        runs: usize,
        broken: Option<Rule>,
    ) -> Result<Vec<crate::desk::Board>, String> {
        let backends = litmus.backends.len();
        self.grow(backends)?;
        let rooms = (0..runs).map(|_| Room::new(litmus, sizes)).collect::<Result<Vec<_>, String>>()?;
        let in_memory = in_memory().map_err(|e| format!("the ledger: {e}"))?;
        let text = litmus.to_string();
        let until = Instant::now() + self.patience;
        for (me, worker) in self.workers[..backends].iter_mut().enumerate() {
            worker.tell(&Task {
                file: litmus.name.clone(),
                text: text.clone(),
                me: me as u8,
                first,
                broken: broken.map(|rule| rule.name().to_owned()),
                places: rooms.iter().map(|room| (path_of(&room.segment), path_of(&room.catalog))).collect(),
                ledger: path_of(&in_memory),
                patience: self.patience,
            })?;
        }
        self.answers(litmus, until)?;
        if broken.is_none() {
            rooms.iter().try_for_each(Room::is_left_clean)?;
        }
        let mut ledger = Ledger::open(&path_of(&in_memory)).map_err(|e| format!("the ledger: {e}"))?;
        let records = ledger.news().map_err(|e| format!("the ledger: {e}"))?;
        ledger::boards(&records, runs, backends)
    }
}

impl Pool {
    /// Waits until the workers of all backends have done their task.
    fn answers(&mut self, litmus: &Litmus, until: Instant) -> Result<(), String> {
        let name = |me: usize| litmus.backends.get(me).map_or("none", |backend| backend.name.as_str());
        let mut waiting: BTreeSet<usize> = (0..litmus.backends.len()).collect();
        let mut gave_up = None;
        while !waiting.is_empty() {
            let (me, why) = match self.hear.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok((me, Some(Ok(())))) => {
                    waiting.remove(&me);
                    continue;
                }
                Ok((me, Some(Err(why)))) => (me, why),
                Ok((me, None)) => {
                    let how = self.workers.get_mut(me).map_or_else(String::new, Worker::ended);
                    (me, format!("{how} (a program that uses a pool must serve as a worker)"))
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let names = waiting.iter().map(|me| name(*me)).collect::<Vec<_>>().join(", ");
                    let patience = self.patience;
                    return Err(format!("the processes of {names} have not answered within {patience:?}; killed"));
                }
            };
            let why = format!("the process of {}: {why}", name(me));
            if !why.contains(ANOTHER) {
                return Err(why);
            }
            // Who gives up because of another does not know why; that one does.
            waiting.remove(&me);
            gave_up = Some(why);
        }
        gave_up.map_or(Ok(()), Err)
    }
}

/// Where one run takes place.
struct Room {
    shared: Shared,
    segment: File,
    catalog: File,
}

impl Room {
    fn new(litmus: &Litmus, sizes: Sizes) -> Result<Room, String> {
        let (shared, segment) =
            Shared::memfd("catcache-litmus", &body::config(litmus, sizes)).map_err(|e| e.to_string())?;
        let catalog = in_memory().map_err(|e| format!("the catalog: {e}"))?;
        body::fill(litmus, &MemoryCatalog::in_file(path_of(&catalog)).map_err(|e| format!("the catalog: {e}"))?);
        Ok(Room { shared, segment, catalog })
    }

    /// When all have detached, no bracket is open, no entry is referred to but by a list, and no place in the ring is taken.
    fn is_left_clean(&self) -> Result<(), String> {
        let image = self.shared.peek();
        let stamps = image.stripes.iter().chain(&image.lists).chain(&image.catalogs).chain(&image.databases);
        let open = stamps.filter(|stamp| stamp.open != 0).count();
        let listed =
            |at: EntryAt| image.entries.iter().flat_map(|e| &e.members).flatten().filter(|m| **m == at).count();
        // An invalid member that a list still refers to is unlinked already.
        let in_use = |e: &&EntryImage| e.references as usize != listed(e.at) || !e.linked && e.references == 0;
        let referred = image.entries.iter().filter(in_use).count();
        let attached = image.ring_positions.iter().flatten().count();
        match (open, referred, attached) {
            (0, 0, 0) => Ok(()),
            _ => Err(format!(
                "real processes have detached and left {open} stamps open, {referred} entries in use, {attached} places \
                 in the ring taken"
            )),
        }
    }
}

/// A file in memory without a name.
fn in_memory() -> io::Result<File> {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempfile_in(memory) } else { tempfile::tempfile() }
}

/// How another process of this user opens a file of this one, as long as it is open here.
fn path_of(file: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}
