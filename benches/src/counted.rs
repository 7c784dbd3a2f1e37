//! Figures that do not depend on a noisy machine: instructions and stores, counted by valgrind.
//!
//! The program runs itself under valgrind with a hidden command, `__callgrind CASE N` or `__lackey N`, and reads what
//! valgrind has counted.
//!
//! * **Instructions** (callgrind). Each case runs twice, with N and with 2 N lookups; the difference, divided by N, is
//!   the cost of one lookup with the loop round it, and the rest of the program cancels out. The case `loop` is
//!   that loop round a lookup that does nothing, and what it costs is subtracted. In the case `keyless` each cache has one
//!   row, whose key has no columns, so that there is nothing to compare: a hit without the key's comparison. (To
//!   subtract a comparison that was measured alone would take off too much or too little: it is not compiled alike.)
//!   The hash is given to all.
//! * **Stores** (lackey) into the segment, which is the memory that other backends read: exact, by their addresses.
//!   The phases of the run are told apart by stores into a marker of our own.
//!
//! Without valgrind nothing is measured, and the rows say so.

use std::fmt::Write as _;
use std::fs;
use std::hint::black_box;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use shared_catcache::backend::MemoryCatalog;

use crate::children::{self, Running};
use crate::rivals::ours::Ours;
use crate::rivals::{Failure, Handle, HandleStats, Kind, Subject, Task};
use crate::script::BenchKey;
use crate::work::hits::Mix;

/// The hidden command that callgrind counts.
pub const CALLGRIND: &str = "__callgrind";

/// The hidden command that lackey watches.
pub const LACKEY: &str = "__lackey";

/// What a row says where valgrind is not installed.
pub const NOT_MEASURED: &str = "not measured (install valgrind)";

/// What a row says whose turn did not come.
pub const INTERRUPTED: &str = "not measured (interrupted)";

/// Entries of the table in which instructions are counted.
const ENTRIES: usize = 512;

/// Lookups of the first run; the second makes twice as many.
const HITS: usize = 20_000;

/// Entries of the table whose first touches are counted.
const TOUCHED: usize = 2_048;

/// How many of them the first run touches; the second touches twice as many.
const TOUCHES: usize = 512;

/// Entries of the table into which stores are counted: few, for lackey prints a line for every access to memory.
const WATCHED: usize = 64;

/// Keys of its stream.
const WATCHED_STREAM: usize = 512;

/// Hits whose stores are counted.
const WATCHED_HITS: usize = 1_000;

/// Why nothing was counted.
#[derive(Debug, thiserror::Error)]
pub enum CountError {
    /// It is not installed.
    #[error("valgrind was not found")]
    NoValgrind,
    /// It could not be started or read.
    #[error("valgrind: {0}")]
    Io(#[from] io::Error),
    /// It failed, or the program under it.
    #[error("`valgrind --tool={tool}` on `{case}` ended with {status}: {output}")]
    Failed {
        /// Which of its tools.
        tool: &'static str,
        /// The hidden command.
        case: String,
        /// How it ended.
        status: ExitStatus,
        /// The end of what it said.
        output: String,
    },
    /// It said something else than was expected.
    #[error("`valgrind --tool={tool}` on `{case}` did not say {wanted}")]
    Unexpected {
        /// Which of its tools.
        tool: &'static str,
        /// The hidden command.
        case: String,
        /// What it should have said.
        wanted: &'static str,
    },
    /// The program was asked for a hidden command that it does not have.
    #[error("no such case: {0}")]
    NoCase(String),
}

/// What can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// The loop round a lookup that does nothing.
    Loop,
    /// Hits of this project's cache on keys without columns.
    Keyless,
    /// Hits on keys of eight bytes.
    Hit(Kind),
    /// First touches that the shared table answers.
    Touch,
}

impl Case {
    /// All cases.
    pub fn all() -> Vec<Case> {
        let mut cases = vec![Case::Loop, Case::Keyless, Case::Touch];
        cases.extend(Kind::RIVALS.map(Case::Hit));
        cases
    }

    fn word(self) -> &'static str {
        match self {
            Case::Loop => "loop",
            Case::Keyless => "keyless",
            Case::Hit(kind) => kind.word(),
            Case::Touch => "touch",
        }
    }

    /// Lookups of the first run.
    fn lookups(self) -> usize {
        match self {
            Case::Loop | Case::Keyless | Case::Hit(_) => HITS,
            Case::Touch => TOUCHES,
        }
    }

    /// Makes `lookups` of them: what the child does.
    fn make(self, lookups: usize) -> Result<(), Failure> {
        match self {
            Case::Loop => Hit { lookups, mix: eight_bytes() }.run::<Nothing>(),
            Case::Keyless => Hit { lookups, mix: Mix::keyless(HITS / 2) }.run::<Ours>(),
            Case::Hit(kind) => kind.run(&Hit { lookups, mix: eight_bytes() }),
            Case::Touch => touch(lookups),
        }
    }
}

/// A cache that does nothing.
struct Nothing;

struct NothingHandle([u8; 8]);

impl Subject for Nothing {
    type Handle = NothingHandle;

    const PRIVATE: bool = true;

    fn new(_: &MemoryCatalog) -> Result<Self, Failure> {
        Ok(Nothing)
    }

    fn attach(&self) -> Result<Self::Handle, Failure> {
        Ok(NothingHandle(*black_box(&[1; 8])))
    }

    fn shared_bytes(&self) -> u64 {
        0
    }
}

impl Handle for NothingHandle {
    #[inline(always)]
    fn lookup<R>(&mut self, key: &BenchKey, read: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, Failure> {
        // The key is given: what it takes to make one of what the stream holds is the loop's.
        black_box(key.key().bytes);
        let row: &[u8] = black_box(&self.0);
        Ok(read(Some(row)))
    }

    fn accept(&mut self) {}

    fn begin(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn change(&mut self, _: &BenchKey, _: Option<&[u8]>) -> Result<(), Failure> {
        Ok(())
    }

    fn command_end(&mut self) {}

    fn commit(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn stats(&self) -> HandleStats {
        HandleStats::default()
    }
}

/// So many hits by one backend.
struct Hit {
    lookups: usize,
    mix: Mix,
}

fn eight_bytes() -> Mix {
    Mix::small(ENTRIES, HITS / 2)
}

impl Task for Hit {
    type Output = Result<(), Failure>;

    fn run<S: Subject>(&self) -> Self::Output {
        let subject: S = self.mix.subject()?;
        let mut handle = self.mix.warm(&subject)?;
        self.mix.hit(&mut handle, &mut 0, self.lookups)
    }
}

/// So many first touches by a new backend.
fn touch(lookups: usize) -> Result<(), Failure> {
    let mix = Mix::small(TOUCHED, HITS / 2);
    let subject: Ours = mix.subject()?;
    let _filled = mix.warm(&subject)?;
    let mut handle = subject.attach()?;
    mix.touch(&mut handle, &mix.first_touches()[..lookups])
}

/// Carries out a hidden command in the child: the words after the program's name. `None` if it is none of ours.
pub fn child(words: &[String]) -> Option<Result<(), Failure>> {
    let case = |word: &str| Case::all().into_iter().find(|case| case.word() == word);
    match words {
        [command, word, lookups] if command == CALLGRIND => Some(
            case(word)
                .zip(lookups.parse().ok())
                .map_or_else(|| Err(CountError::NoCase(words.join(" ")).into()), |(case, lookups)| case.make(lookups)),
        ),
        [command] if command == LACKEY => Some(watched()),
        _ => None,
    }
}

/// Is valgrind there?
pub fn valgrind() -> bool {
    let quiet = Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

/// Starts a hidden command under valgrind.
fn start(program: &Path, arguments: &[&str], command: &[&str]) -> Result<Running, CountError> {
    let mut valgrind = Command::new("valgrind");
    // Without the debugger's pipes, which a valgrind that is killed would leave behind.
    valgrind.arg("--vgdb=no").args(arguments).arg(program).args(command);
    valgrind.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    match children::start(&mut valgrind) {
        Ok(child) => Ok(child),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(CountError::NoValgrind),
        Err(error) => Err(CountError::Io(error)),
    }
}

/// Instructions of one lookup of `case`, with the loop round it. `program` is this program.
///
/// # Errors
/// Valgrind is not there, or it failed.
pub fn instructions(program: &Path, case: Case) -> Result<f64, CountError> {
    let once = case.lookups();
    let twice = collected(program, case, 2 * once)?;
    Ok((twice as f64 - collected(program, case, once)? as f64) / once as f64)
}

/// All instructions of a run.
fn collected(program: &Path, case: Case, lookups: usize) -> Result<u64, CountError> {
    const TOOL: &str = "callgrind";
    let name = format!("{} {lookups}", case.word());
    let mut child = start(
        program,
        &["--tool=callgrind", "--callgrind-out-file=/dev/null"],
        &[CALLGRIND, case.word(), &lookups.to_string()],
    )?;
    let mut said = Vec::new();
    if let Some(stderr) = &mut child.0.stderr {
        stderr.read_to_end(&mut said)?;
    }
    let said = String::from_utf8_lossy(&said);
    let status = child.wait()?;
    if !status.success() {
        return Err(CountError::Failed { tool: TOOL, case: name, status, output: tail(&said) });
    }
    collected_in(&said).ok_or(CountError::Unexpected { tool: TOOL, case: name, wanted: "`Collected : N`" })
}

/// Callgrind's last word: `==1== Collected : 123`.
fn collected_in(said: &str) -> Option<u64> {
    said.lines().rev().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
}

fn tail(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}

/// Stored to between the phases of the run that lackey watches.
static MARKER: AtomicU64 = AtomicU64::new(0);

/// The child that lackey watches: tells where marker and segment are, then hits, then touches.
fn watched() -> Result<(), Failure> {
    let mix = Mix::small(WATCHED, WATCHED_STREAM);
    let subject: Ours = mix.subject()?;
    let mut filled = mix.warm(&subject)?;
    let mut fresh = subject.attach()?;
    let touches = mix.first_touches();
    let inside = filled.lookup(&touches[0], |row| row.map(|row| row.as_ptr().addr()))?.unwrap_or(0);
    let segment = mapping_of(inside).ok_or("the mapping of the segment is not in /proc/self/maps")?;
    println!("{:x} {:x} {:x} {}", (&raw const MARKER).addr(), segment.start, segment.end, touches.len());
    // Relaxed: nobody reads it; it is the store that counts.
    MARKER.store(1, Ordering::Relaxed);
    mix.hit(&mut filled, &mut 0, WATCHED_HITS)?;
    MARKER.store(2, Ordering::Relaxed);
    mix.touch(&mut fresh, &touches)?;
    MARKER.store(3, Ordering::Relaxed);
    Ok(())
}

/// The mapping of this process that an address lies in.
fn mapping_of(address: usize) -> Option<Range<usize>> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let ranges = maps.lines().filter_map(|line| {
        let (start, end) = line.split_ascii_whitespace().next()?.split_once('-')?;
        Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
    });
    ranges.into_iter().find(|range| range.contains(&address))
}

/// Stores into the segment, per lookup.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stores {
    /// By a hit in the local view.
    pub per_hit: f64,
    /// By a first touch that the shared table answers.
    pub per_touch: f64,
    /// How many different cache lines such a touch writes, on average over consecutive lookups.
    pub lines_per_touch: f64,
}

/// A store that lackey saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Store {
    address: u64,
    bytes: u64,
}

/// Counts the stores into the segment. `program` is this program.
///
/// # Errors
/// Valgrind is not there, or it failed.
pub fn stores(program: &Path) -> Result<Stores, CountError> {
    const TOOL: &str = "lackey";
    let mut child = start(program, &["--tool=lackey", "--trace-mem=yes"], &[LACKEY])?;
    let (stdout, stderr) = (child.0.stdout.take(), child.0.stderr.take());
    // The child tells its addresses only when most of its stores are past, so all of them are kept till then.
    let mut seen = Vec::new();
    let mut rest = String::new();
    if let Some(stderr) = stderr {
        let mut reader = BufReader::with_capacity(1 << 20, stderr);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            match store_in(&line) {
                Some(store) => seen.push(store),
                None if line.starts_with(b"==") => _ = write!(rest, "{}", String::from_utf8_lossy(&line)),
                None => {}
            }
            line.clear();
        }
    }
    let mut told = String::new();
    if let Some(mut stdout) = stdout {
        stdout.read_to_string(&mut told)?;
    }
    let status = child.wait()?;
    if !status.success() {
        return Err(CountError::Failed { tool: TOOL, case: LACKEY.to_owned(), status, output: tail(&rest) });
    }
    per_lookup(&told, &seen).ok_or(CountError::Unexpected {
        tool: TOOL,
        case: LACKEY.to_owned(),
        wanted: "where the segment is, and three stores into the marker",
    })
}

/// A line ` S 1ffefff0d8,8` (store) or ` M 1ffefff0d8,4` (modify).
fn store_in(line: &[u8]) -> Option<Store> {
    let (b" S " | b" M ", rest) = line.split_at_checked(3)? else { return None };
    let (address, bytes) = std::str::from_utf8(rest).ok()?.trim_end().split_once(',')?;
    Some(Store { address: u64::from_str_radix(address, 16).ok()?, bytes: bytes.parse().ok()? })
}

/// Counts, from what the child told and what lackey saw.
fn per_lookup(told: &str, seen: &[Store]) -> Option<Stores> {
    let mut words = told.split_ascii_whitespace();
    let mut hex = || u64::from_str_radix(words.next()?, 16).ok();
    let (marker, segment) = (hex()?, hex()?..hex()?);
    let touches: f64 = words.next()?.parse().ok()?;
    let marks: Vec<usize> = (0..seen.len()).filter(|at| seen[*at].address == marker).collect();
    let [first, second, third] = marks[..] else { return None };
    let into = |phase: Range<usize>| {
        let stores = seen[phase].iter().filter(|store| store.address < segment.end);
        stores.filter(|store| store.address + store.bytes > segment.start).copied().collect::<Vec<Store>>()
    };
    let (hits, touched) = (into(first..second), into(second..third));
    // Consecutive stores into one line count once: they cost one transfer of the line at most.
    let lines = 1 + touched.windows(2).filter(|pair| pair[0].address / 64 != pair[1].address / 64).count();
    Some(Stores {
        per_hit: hits.len() as f64 / WATCHED_HITS as f64,
        per_touch: touched.len() as f64 / touches,
        lines_per_touch: if touched.is_empty() { 0.0 } else { lines as f64 / touches },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callgrinds_last_word_is_read() {
        let said = "==7== Events    : Ir\n==7== Collected : 1234567\n==7==\n==7== I   refs:      1,234,567\n";
        assert_eq!(collected_in(said), Some(1_234_567));
        assert_eq!(collected_in("nothing"), None);
    }

    #[test]
    fn lackeys_stores_are_read() {
        assert_eq!(store_in(b" S 1ffefff0d8,8\n"), Some(Store { address: 0x1f_feff_f0d8, bytes: 8 }));
        assert_eq!(store_in(b" M 10,4\n"), Some(Store { address: 16, bytes: 4 }));
        assert_eq!(store_in(b" L 10,4\n"), None);
        assert_eq!(store_in(b"I  10,4\n"), None);
        assert_eq!(store_in(b""), None);
    }

    /// The segment is [1000, 2000), the marker 8. One store in the hits' phase misses the segment, one grazes it.
    #[test]
    fn stores_into_the_segment_are_counted_by_phase() {
        let at = |address| Store { address, bytes: 8 };
        let seen = [0x1000, 8, 0x800, 0xffc, 8, 0x1008, 0x1010, 0x1fff, 0x2000, 8, 0x1000].map(at);
        let found = per_lookup("8 1000 2000 2\n", &seen).unwrap();
        assert_eq!(found, Stores { per_hit: 0.001, per_touch: 1.5, lines_per_touch: 1.0 });
        assert_eq!(per_lookup("9 1000 2000 2\n", &seen), None);
        assert_eq!(per_lookup("", &seen), None);
    }

    #[test]
    fn every_case_can_be_made() {
        let command = |words: &[&str]| child(&words.iter().map(ToString::to_string).collect::<Vec<_>>());
        for case in Case::all() {
            command(&[CALLGRIND, case.word(), &(2 * case.lookups()).to_string()]).unwrap().unwrap();
        }
        assert!(command(&[CALLGRIND, "none", "100"]).unwrap().is_err());
        assert!(command(&[CALLGRIND, "loop", "many"]).unwrap().is_err());
        assert!(command(&["bench"]).is_none());
        command(&[LACKEY]).unwrap().unwrap();
    }
}
