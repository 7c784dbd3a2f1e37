//! A worker process: a backend in a process of its own, on a segment that another process has made.
//!
//! The hidden command `__worker PATH` attaches to the segment at `PATH` and then does what it is told, line by line, on
//! standard input, until that ends. It is a new process of this program, not a fork: a fork of a process with threads can do
//! little but start another program.
//!
//! | the worker is told | and says |
//! | --- | --- |
//! | | `ready`: it has looked up everything, all of it answered by the segment |
//! | `hits LOOKUPS START NS`, `touches LOOKUPS START NS` | a line `BEGIN END CPU` for each slice, then `done` |
//!
//! A slice has LOOKUPS of them. It begins when the clock on the wall, which all processes have in common, shows START
//! nanoseconds, and goes on for NS of them. It dies with the process that started it.

use std::io::{self, BufRead, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use shared_catcache::Shared;

use crate::measure::{Slice, wall_ns};
use crate::rivals::{Failure, Handle, ours};
use crate::work::hits::Mix;
use crate::work::touches::touch_slices;

/// The hidden command.
pub const WORKER: &str = "__worker";

/// What a worker can be told to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Hits in its local view.
    Hits,
    /// First touches by one new backend of its own after another: the segment answers.
    Touches,
}

impl Duty {
    const ALL: [Duty; 2] = [Duty::Hits, Duty::Touches];

    fn word(self) -> &'static str {
        match self {
            Duty::Hits => "hits",
            Duty::Touches => "touches",
        }
    }
}

/// What a worker is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// What to do.
    pub duty: Duty,
    /// So often in each slice.
    pub lookups: usize,
    /// When to begin, on the clock on the wall.
    pub start_ns: u64,
    /// For how long.
    pub for_ns: u64,
}

impl Order {
    /// As a line.
    pub fn line(&self) -> String {
        format!("{} {} {} {}\n", self.duty.word(), self.lookups, self.start_ns, self.for_ns)
    }

    /// From a line.
    pub fn read(line: &str) -> Option<Order> {
        let mut words = line.split_ascii_whitespace();
        let word = words.next()?;
        let duty = Duty::ALL.into_iter().find(|duty| duty.word() == word)?;
        let lookups = words.next()?.parse().ok().filter(|lookups| *lookups > 0)?;
        let order = Order { duty, lookups, start_ns: words.next()?.parse().ok()?, for_ns: words.next()?.parse().ok()? };
        words.next().is_none().then_some(order)
    }
}

/// What a worker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It is ready.
    Ready,
    /// A slice.
    Slice(Slice),
    /// It has done what it was told.
    Done,
}

impl Said {
    /// From a line.
    pub fn read(line: &str) -> Option<Said> {
        let mut words = line.split_ascii_whitespace();
        let said = match words.next()? {
            "ready" => Said::Ready,
            "done" => Said::Done,
            begin => Said::Slice(Slice {
                start_ns: begin.parse().ok()?,
                end_ns: words.next()?.parse().ok()?,
                cpu_ns: words.next()?.parse().ok()?,
            }),
        };
        words.next().is_none().then_some(said)
    }

    /// As a line.
    pub fn line(&self) -> String {
        match self {
            Said::Ready => "ready\n".to_owned(),
            Said::Done => "done\n".to_owned(),
            Said::Slice(slice) => format!("{} {} {}\n", slice.start_ns, slice.end_ns, slice.cpu_ns),
        }
    }
}

/// Works on the segment at `path` until standard input ends.
///
/// # Errors
/// The segment can't be attached, or does not answer; an order is not understood; nobody listens.
pub fn work(path: &Path) -> Result<(), Failure> {
    // Whoever started us may be killed: then nobody waits for us, and nobody would end us.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let mix = Mix::zipf();
    let shared = Shared::attach(path)?;
    let attach = || ours::backend(&shared, mix.catalog());
    let mut handle = attach()?;
    mix.fill(&mut handle)?;
    let loads = handle.stats().loads;
    if loads > 0 {
        return Err(format!("{loads} rows had to be loaded that the segment was to answer").into());
    }
    let touches = mix.first_touches();
    let mut out = BufWriter::new(io::stdout().lock());
    let mut say = |said: &[Said]| {
        said.iter().try_for_each(|said| out.write_all(said.line().as_bytes())).and_then(|()| out.flush())
    };
    say(&[Said::Ready])?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let order = Order::read(&line).ok_or_else(|| format!("`{line}` is no order"))?;
        while let Some(left) = order.start_ns.checked_sub(wall_ns()).filter(|left| *left > 0) {
            std::thread::sleep(Duration::from_nanos(left));
        }
        let go_on = |ns| ns < order.for_ns;
        let slices = match order.duty {
            Duty::Hits => mix.hit_slices(&mut handle, order.lookups, go_on)?,
            Duty::Touches => touch_slices(&mix, &touches, order.lookups, attach, go_on)?,
        };
        let said: Vec<Said> = slices.into_iter().map(Said::Slice).chain([Said::Done]).collect();
        say(&said)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        for duty in Duty::ALL {
            let order = Order { duty, lookups: 7, start_ns: 123, for_ns: 456 };
            assert_eq!(Order::read(order.line().trim_end()), Some(order));
        }
        for said in [Said::Ready, Said::Done, Said::Slice(Slice { start_ns: 1, end_ns: 2, cpu_ns: 3 })] {
            assert_eq!(Said::read(said.line().trim_end()), Some(said));
        }
        for line in ["", "hits", "hits 1 2", "hits 1 2 3 4", "sleep 1 2 3", "hits one 2 3", "hits 0 2 3"] {
            assert_eq!(Order::read(line), None, "{line}");
        }
        for line in ["", "ready 1", "1 2", "1 2 3 4", "panicked at"] {
            assert_eq!(Said::read(line), None, "{line}");
        }
    }
}
