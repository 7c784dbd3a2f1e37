//! Hits and first touches by processes: the same loops and the same slices as by threads, each backend in a process.
//!
//! The segment is a file without a name; the workers find it by this process's number and descriptor. So there is nothing that
//! could be left behind, however anybody ends.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use shared_catcache::Shared;

use super::hits::{HitCosts, Mix};
use super::touches::TOUCHES;
use crate::children::{self, Running};
use crate::measure::{Slice, wall_ns};
use crate::rivals::{Failure, ours};
use crate::worker::{Duty, Order, Said, WORKER};

/// From an order to its beginning, so that all have it by then.
const AHEAD_NS: u64 = 3_000_000;

/// What became of a worker that did not do what it was told.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// It could not be started.
    #[error("worker process {worker} could not be started: {source}")]
    Start {
        /// Which, from 1.
        worker: usize,
        /// Why.
        source: std::io::Error,
    },
    /// It ended.
    #[error("worker process {worker} ended ({status}) before it was done{said}")]
    Ended {
        /// Which, from 1.
        worker: usize,
        /// How.
        status: String,
        /// What it said last on standard error.
        said: String,
    },
    /// It did not answer.
    #[error("worker process {worker} did not answer within {} s and was killed", .patience.as_secs_f64())]
    Silent {
        /// Which, from 1.
        worker: usize,
        /// How long it was waited for.
        patience: Duration,
    },
    /// It said something else.
    #[error("worker process {worker} said `{line}`, which is no answer")]
    Nonsense {
        /// Which, from 1.
        worker: usize,
        /// What it said.
        line: String,
    },
}

/// A worker process.
struct Worker {
    /// From 1.
    number: usize,
    running: Running,
    /// What it says, line by line; closed when it has closed its output.
    lines: Receiver<String>,
}

/// Worker processes on one segment.
pub struct Workers {
    workers: Vec<Worker>,
    /// Hits of a slice.
    hits: usize,
    patience: Duration,
    // The workers go first: they are dropped in this order.
    _filled: ours::OurHandle,
    _segment: File,
}

impl Workers {
    /// Makes a segment, fills it, and starts `count` workers on it; `program` is this program. Whoever says nothing for
    /// `patience` beyond what it was told to take is given up.
    ///
    /// # Errors
    /// The segment can't be made, or a worker fails.
    pub fn start(program: &Path, count: usize, mix: &Mix, patience: Duration) -> Result<Workers, Failure> {
        let (shared, file) = Shared::memfd("catcache-bench", &ours::config(128))?;
        let mut filled = ours::backend(&shared, mix.catalog())?;
        mix.fill(&mut filled)?;
        let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
        let hits = mix.hits_of_a_slice(&mut filled)?;
        let started = (1..=count).map(|number| Worker::start(program, number, &path));
        let mut workers =
            Workers { workers: started.collect::<Result<_, _>>()?, hits, patience, _filled: filled, _segment: file };
        for worker in &mut workers.workers {
            match worker.hear(patience)? {
                Said::Ready => {}
                said => return Err(worker.nonsense(&said.line()).into()),
            }
        }
        Ok(workers)
    }

    /// From now on, whoever says nothing for `patience` beyond what it was told to take is given up.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// The numbers of the processes.
    pub fn pids(&self) -> Vec<rustix::process::Pid> {
        self.workers.iter().map(|worker| worker.running.pid()).collect()
    }

    /// One round: the first worker alone, then the first two together.
    ///
    /// # Errors
    /// A worker fails.
    pub fn round(&mut self, duty: Duty, one: Duration, two: Duration) -> Result<HitCosts, Failure> {
        let lookups = match duty {
            Duty::Hits => self.hits,
            Duty::Touches => TOUCHES,
        };
        let [alone] = self.slices(duty, lookups, one)?;
        let both = self.slices(duty, lookups, two)?;
        Ok(HitCosts::new(&alone, &both, lookups))
    }

    /// The slices of the first `N` workers, who work at the same time.
    fn slices<const N: usize>(
        &mut self,
        duty: Duty,
        lookups: usize,
        time: Duration,
    ) -> Result<[Vec<Slice>; N], WorkerError> {
        let order = Order { duty, lookups, start_ns: wall_ns() + AHEAD_NS, for_ns: time.as_nanos() as u64 };
        let patience = self.patience + time;
        for worker in self.workers.iter_mut().take(N) {
            worker.tell(&order)?;
        }
        let mut slices = [const { Vec::new() }; N];
        for (worker, slices) in self.workers.iter_mut().zip(&mut slices) {
            *slices = worker.slices(patience)?;
        }
        Ok(slices)
    }
}

impl Worker {
    fn start(program: &Path, number: usize, segment: &Path) -> Result<Worker, WorkerError> {
        let mut command = Command::new(program);
        command.arg(WORKER).arg(segment);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running =
            children::start(&mut command).map_err(|source| WorkerError::Start { worker: number, source })?;
        let (said, lines) = channel();
        if let Some(stdout) = running.0.stdout.take() {
            // It ends with the worker, or when nobody listens any more.
            std::thread::spawn(move || {
                BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| said.send(line).ok())
            });
        }
        Ok(Worker { number, running, lines })
    }

    fn tell(&mut self, order: &Order) -> Result<(), WorkerError> {
        let told = self.running.0.stdin.as_mut().map(|stdin| stdin.write_all(order.line().as_bytes()));
        match told {
            Some(Ok(())) => Ok(()),
            _ => Err(self.ended()),
        }
    }

    fn hear(&mut self, patience: Duration) -> Result<Said, WorkerError> {
        match self.lines.recv_timeout(patience) {
            Ok(line) => Said::read(&line).ok_or_else(|| self.nonsense(&line)),
            Err(RecvTimeoutError::Timeout) => Err(WorkerError::Silent { worker: self.number, patience }),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended()),
        }
    }

    fn slices(&mut self, patience: Duration) -> Result<Vec<Slice>, WorkerError> {
        let until = Instant::now() + patience;
        let mut slices = Vec::new();
        loop {
            let said = self.hear(until.saturating_duration_since(Instant::now())).map_err(|error| match error {
                WorkerError::Silent { worker, .. } => WorkerError::Silent { worker, patience },
                other => other,
            });
            match said? {
                Said::Slice(slice) => slices.push(slice),
                Said::Done => return Ok(slices),
                said @ Said::Ready => return Err(self.nonsense(&said.line())),
            }
        }
    }

    fn nonsense(&self, line: &str) -> WorkerError {
        WorkerError::Nonsense { worker: self.number, line: line.trim_end().to_owned() }
    }

    /// It has closed its output: how did it end?
    fn ended(&mut self) -> WorkerError {
        let mut said = String::new();
        // Closing its output it may have gone on: it is of no use any more.
        let _ = self.running.0.kill();
        if let Some(mut stderr) = self.running.0.stderr.take() {
            let _ = stderr.read_to_string(&mut said);
        }
        let status = self.running.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        let said = said.trim_end();
        let said = if said.is_empty() { String::new() } else { format!(", saying: {said}") };
        WorkerError::Ended { worker: self.number, status, said }
    }
}
