//! What a real PostgreSQL asked of its catalog caches, event by event.
//!
//! A trace is text, one event a line, and its own header explains it:
//!
//! | line | event |
//! | --- | --- |
//! | `<cache> <hash> H`, `N` | a hit on a row, a hit on a negative entry |
//! | `<cache> <hash> M`, `m` | a miss whose load found a row, or found none |
//! | `<cache> <hash> LH`, `LM` `<keys> <members>` | a list was searched: hit, miss |
//! | `X <cache> <hash>`, `XR -2 <relation>` | an invalidation was carried out locally: catcache, relcache |
//! | `S <cache> <hash>`, `SR -2 <relation>` | a message was sent to the other backends |
//! | `# C`, `# A` | the transaction committed, aborted |
//!
//! Any other line that begins with `#` is a note. Caches are numbered as in PostgreSQL 15's
//! `enum SysCacheIdentifier`; hashes and relations are hexadecimal.
//!
//! **The archive** is one zstd frame round the texts themselves, each after a line `@ name`, so that `zstdcat` shows
//! what is in it. The same [`parse`] reads a file and a member of the archive. [`pack`] made the archive that is in
//! this repository, and makes it again from the texts.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// How many catcaches PostgreSQL 15 has; an id in a trace lies below.
pub const CACHES: u8 = 84;

/// The archive of this repository: see `data/README.md`.
const ARCHIVE: &[u8] = include_bytes!("../data/traces.zst");

/// zstd's level for the archive; the archive is written once and read often.
const LEVEL: i32 = 19;

/// Files beside the traces that are not traces.
const NOT_TRACES: [&str; 2] = ["README.txt", "cacheids.txt"];

/// Which row a trace speaks of: the cache and the hash of its key columns. The key columns themselves were not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceKey {
    /// PostgreSQL's number of the cache.
    pub cache: u8,
    /// PostgreSQL's hash of the key columns.
    pub hash: u32,
}

/// One line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// `H`: the backend had the row.
    Hit(TraceKey),
    /// `N`: the backend knew that there is no such row.
    NegativeHit(TraceKey),
    /// `M`: the backend read the row from the catalog.
    Load(TraceKey),
    /// `m`: the backend looked into the catalog, and there is no such row.
    NegativeLoad(TraceKey),
    /// `LH`: the backend had the list.
    ListHit(TraceKey),
    /// `LM`: the backend built the list.
    ListLoad(TraceKey),
    /// `X`: entries of this hash were dropped.
    Invalidate(TraceKey),
    /// `XR`: a relation descriptor was dropped.
    InvalidateRelation,
    /// `S`: the others were told.
    Send(TraceKey),
    /// `SR`: the others were told of a relation descriptor.
    SendRelation,
    /// `# C`.
    Commit,
    /// `# A`.
    Abort,
}

/// How many events of each kind a trace holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// `H`.
    pub hits: u32,
    /// `N`.
    pub negative_hits: u32,
    /// `M`.
    pub loads: u32,
    /// `m`.
    pub negative_loads: u32,
    /// `LH`.
    pub list_hits: u32,
    /// `LM`.
    pub list_loads: u32,
    /// `X`.
    pub invalidations: u32,
    /// `XR`.
    pub relation_invalidations: u32,
    /// `S`.
    pub sends: u32,
    /// `SR`.
    pub relation_sends: u32,
    /// `# C`.
    pub commits: u32,
    /// `# A`.
    pub aborts: u32,
}

impl Counts {
    /// Lookups of single rows.
    pub fn lookups(&self) -> u32 {
        self.hits + self.negative_hits + self.loads + self.negative_loads
    }

    /// Searches of lists.
    pub fn lists(&self) -> u32 {
        self.list_hits + self.list_loads
    }

    fn count(&mut self, event: Event) {
        *match event {
            Event::Hit(_) => &mut self.hits,
            Event::NegativeHit(_) => &mut self.negative_hits,
            Event::Load(_) => &mut self.loads,
            Event::NegativeLoad(_) => &mut self.negative_loads,
            Event::ListHit(_) => &mut self.list_hits,
            Event::ListLoad(_) => &mut self.list_loads,
            Event::Invalidate(_) => &mut self.invalidations,
            Event::InvalidateRelation => &mut self.relation_invalidations,
            Event::Send(_) => &mut self.sends,
            Event::SendRelation => &mut self.relation_sends,
            Event::Commit => &mut self.commits,
            Event::Abort => &mut self.aborts,
        } += 1;
    }
}

/// What one backend of PostgreSQL asked, from its start on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The case, for instance `simple_S`.
    pub name: String,
    /// What was asked, in its order.
    pub events: Vec<Event>,
}

impl Trace {
    /// The same up to and with its `lookups`-th lookup of a row; the whole if it has not so many.
    #[must_use]
    pub fn first(&self, lookups: usize) -> Trace {
        let is_lookup = |event: &Event| {
            matches!(event, Event::Hit(_) | Event::NegativeHit(_) | Event::Load(_) | Event::NegativeLoad(_))
        };
        let mut at = self.events.iter().enumerate().filter(|(_, event)| is_lookup(event)).map(|(at, _)| at);
        let end = lookups.checked_sub(1).map_or(0, |last| at.nth(last).map_or(self.events.len(), |at| at + 1));
        Trace { name: self.name.clone(), events: self.events[..end].to_vec() }
    }

    /// Events by kind.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for event in &self.events {
            counts.count(*event);
        }
        counts
    }
}

/// Why traces could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A line is not of the form that the module's table shows.
    #[error("trace {trace}, line {line}: {fault}, in `{text}`")]
    Line {
        /// The case.
        trace: String,
        /// Counted from 1.
        line: usize,
        /// What was expected.
        fault: Fault,
        /// The line.
        text: String,
    },
    /// The archive's text does not begin with the name of a trace.
    #[error("the archive of traces: a line `@ name` was expected before line {line}")]
    NoName {
        /// Counted from 1, in the archive's text.
        line: usize,
    },
    /// A file, a folder or the archive could not be read.
    #[error("{path}: {source}")]
    Io {
        /// What was to be read.
        path: PathBuf,
        /// Why it could not.
        source: io::Error,
    },
    /// The folder holds no trace.
    #[error("{0}: no traces (`*.txt`) in this folder")]
    Empty(PathBuf),
}

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The cache's number.
    Cache,
    /// The hash.
    Hash,
    /// The letters for what came of it.
    Outcome,
    /// A list's number of keys or members.
    List,
    /// The relation of `XR` and `SR`.
    Relation,
    /// Something stands after the event.
    Excess,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Cache => write!(f, "expected the number of a cache, 0 to {}, or X, XR, S, SR, #", CACHES - 1),
            Fault::Hash => f.write_str("expected a hash, up to 8 hexadecimal digits"),
            Fault::Outcome => f.write_str("expected one of H, N, M, m, LH, LM"),
            Fault::List => f.write_str("expected a list's number of keys and number of members"),
            Fault::Relation => f.write_str("expected -2 and a relation, up to 8 hexadecimal digits"),
            Fault::Excess => f.write_str("expected the end of the line"),
        }
    }
}

/// Reads one trace in the form of the module's table.
///
/// # Errors
/// The first line that has another form, with its number.
pub fn parse(name: &str, text: &str) -> Result<Trace, TraceError> {
    let mut events = Vec::new();
    for (index, line) in text.lines().enumerate() {
        match parse_line(line) {
            Ok(Some(event)) => events.push(event),
            Ok(None) => {}
            Err(fault) => {
                return Err(TraceError::Line { trace: name.to_owned(), line: index + 1, fault, text: line.to_owned() });
            }
        }
    }
    Ok(Trace { name: name.to_owned(), events })
}

/// `None` for a note and for an empty line.
fn parse_line(line: &str) -> Result<Option<Event>, Fault> {
    let mut words = line.split_ascii_whitespace();
    let Some(first) = words.next() else { return Ok(None) };
    let event = match first {
        "#" => match (words.next(), words.next()) {
            (Some("C"), None) => return Ok(Some(Event::Commit)),
            (Some("A"), None) => return Ok(Some(Event::Abort)),
            _ => return Ok(None),
        },
        note if note.starts_with('#') => return Ok(None),
        "X" => Event::Invalidate(parse_key(words.next(), &mut words)?),
        "S" => Event::Send(parse_key(words.next(), &mut words)?),
        "XR" | "SR" => {
            let relation = words.next() == Some("-2") && words.next().is_some_and(|word| parse_hex(word).is_some());
            match (relation, first) {
                (false, _) => return Err(Fault::Relation),
                (true, "XR") => Event::InvalidateRelation,
                (true, _) => Event::SendRelation,
            }
        }
        cache => {
            let key = parse_key(Some(cache), &mut words)?;
            match words.next() {
                Some("H") => Event::Hit(key),
                Some("N") => Event::NegativeHit(key),
                Some("M") => Event::Load(key),
                Some("m") => Event::NegativeLoad(key),
                Some(list @ ("LH" | "LM")) => {
                    let mut number = || words.next().and_then(|word| word.parse::<u32>().ok()).ok_or(Fault::List);
                    number()?;
                    number()?;
                    if list == "LH" { Event::ListHit(key) } else { Event::ListLoad(key) }
                }
                _ => return Err(Fault::Outcome),
            }
        }
    };
    if words.next().is_some() {
        return Err(Fault::Excess);
    }
    Ok(Some(event))
}

fn parse_key<'a>(cache: Option<&str>, words: &mut impl Iterator<Item = &'a str>) -> Result<TraceKey, Fault> {
    let cache = cache.and_then(|word| word.parse().ok()).filter(|cache| *cache < CACHES).ok_or(Fault::Cache)?;
    let hash = words.next().and_then(parse_hex).ok_or(Fault::Hash)?;
    Ok(TraceKey { cache, hash })
}

fn parse_hex(word: &str) -> Option<u32> {
    let plain = word.len() <= 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u32::from_str_radix(word, 16).ok()).flatten()
}

/// The traces of this repository, in the order of their names.
///
/// # Errors
/// Only if the archive was replaced by something else.
pub fn packed() -> Result<Vec<Trace>, TraceError> {
    unpack(ARCHIVE)
}

/// Reads an archive that [`pack`] made.
///
/// # Errors
/// Not a zstd frame of text, no name before the first line, or a line of another form.
pub fn unpack(archive: &[u8]) -> Result<Vec<Trace>, TraceError> {
    let broken = |source| TraceError::Io { path: PathBuf::from("the archive of traces"), source };
    let bytes = zstd::decode_all(archive).map_err(broken)?;
    let text = String::from_utf8(bytes).map_err(|error| broken(io::Error::new(io::ErrorKind::InvalidData, error)))?;
    let mut traces = Vec::new();
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let name = rest.strip_prefix("@ ").and_then(|rest| rest.split_once('\n'));
        let Some((name, after)) = name else {
            let line = 1 + text[..text.len() - rest.len()].lines().count();
            return Err(TraceError::NoName { line });
        };
        let end = after.find("\n@ ").map_or(after.len(), |newline| newline + 1);
        traces.push(parse(name, &after[..end])?);
        rest = &after[end..];
    }
    Ok(traces)
}

/// Packs every trace of a folder (`*.txt`, except `README.txt` and `cacheids.txt`) into one archive, in the order of
/// their names. The same texts give the same archive.
///
/// # Errors
/// A file that cannot be read, no file at all, or a line of another form.
pub fn pack(folder: &Path) -> Result<Vec<u8>, TraceError> {
    let io_error = |path: &Path| {
        let path = path.to_owned();
        move |source| TraceError::Io { path, source }
    };
    let mut paths = Vec::new();
    for item in fs::read_dir(folder).map_err(io_error(folder))? {
        let path = item.map_err(io_error(folder))?.path();
        let is_trace = path.extension().is_some_and(|extension| extension == "txt")
            && !path.file_name().is_some_and(|name| NOT_TRACES.iter().any(|other| name == *other));
        if is_trace {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        return Err(TraceError::Empty(folder.to_owned()));
    }
    paths.sort();
    let mut archive = String::new();
    for path in &paths {
        let text = fs::read_to_string(path).map_err(io_error(path))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        parse(&name, &text)?;
        archive.push_str(&format!("@ {name}\n{text}"));
        if !archive.ends_with('\n') {
            archive.push('\n');
        }
    }
    zstd::encode_all(archive.as_bytes(), LEVEL).map_err(io_error(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# a note\n10 1c15e696 M\n10 1c15e696 H\n54 bd42169a m\n54 bd42169a N\n37 f66de3cb LM 3 1\n\
                        37 f66de3cb LH 3 1\nX 7 1301239e\nXR -2 000103a1\n# C\nS 7 1301239e\nSR -2 000103a1\n# A\n";

    #[test]
    fn every_kind_of_line_is_read() {
        let trace = parse("all", TEXT).unwrap();
        let one_each = Counts {
            hits: 1,
            negative_hits: 1,
            loads: 1,
            negative_loads: 1,
            list_hits: 1,
            list_loads: 1,
            invalidations: 1,
            relation_invalidations: 1,
            sends: 1,
            relation_sends: 1,
            commits: 1,
            aborts: 1,
        };
        assert_eq!(trace.counts(), one_each);
        assert_eq!(trace.events[0], Event::Load(TraceKey { cache: 10, hash: 0x1c15_e696 }));
    }

    #[test]
    fn a_trace_can_be_cut() {
        let trace = parse("all", TEXT).unwrap();
        assert_eq!(trace.first(3).events, trace.events[..3]);
        assert_eq!(trace.first(4), trace.first(4).first(4));
        assert_eq!((trace.first(5), trace.first(0).events.len()), (trace, 0));
    }

    #[test]
    fn errors_name_the_line_and_what_was_expected() {
        let cases = [
            ("84 1 H", "line 2: expected the number of a cache, 0 to 83"),
            ("1 xyz H", "line 2: expected a hash"),
            ("1 +1 H", "line 2: expected a hash"),
            ("1 123456789 H", "line 2: expected a hash"),
            ("1 1", "line 2: expected one of H, N, M, m, LH, LM"),
            ("1 1 Q", "line 2: expected one of H, N, M, m, LH, LM"),
            ("1 1 LH 1", "line 2: expected a list's number of keys"),
            ("XR -3 1", "line 2: expected -2 and a relation"),
            ("X 1 1 1", "line 2: expected the end of the line, in `X 1 1 1`"),
            ("1 1 H 1", "line 2: expected the end of the line"),
        ];
        for (line, expected) in cases {
            let message = parse("bad", &format!("1 1 H\n{line}\n")).unwrap_err().to_string();
            assert!(message.contains("trace bad") && message.contains(expected), "{line}: {message}");
        }
    }

    #[test]
    fn packing_and_unpacking_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("b.txt"), TEXT).unwrap();
        fs::write(folder.path().join("a.txt"), TEXT.trim_end()).unwrap();
        fs::write(folder.path().join("README.txt"), "not a trace").unwrap();
        let archive = pack(folder.path()).unwrap();
        assert_eq!(archive, pack(folder.path()).unwrap());
        assert_eq!(unpack(&archive).unwrap(), [parse("a", TEXT).unwrap(), parse("b", TEXT).unwrap()]);
    }

    #[test]
    fn what_is_no_archive_is_refused() {
        assert!(matches!(unpack(b"text"), Err(TraceError::Io { .. })));
        let nameless = zstd::encode_all(&b"1 1 H\n"[..], 1).unwrap();
        assert!(matches!(unpack(&nameless), Err(TraceError::NoName { line: 1 })));
        assert!(matches!(pack(tempfile::tempdir().unwrap().path()), Err(TraceError::Empty(_))));
    }

    /// The counts were taken from the source texts with `awk`, before they were packed.
    #[test]
    fn the_repository_holds_the_measured_traces() {
        let found: Vec<_> = packed().unwrap().iter().map(|trace| (trace.name.clone(), trace.counts())).collect();
        assert_eq!(found.len(), PINNED.len());
        for ((name, counts), (pinned_name, n)) in found.iter().zip(PINNED) {
            let expected = Counts {
                hits: n[0],
                negative_hits: n[1],
                loads: n[2],
                negative_loads: n[3],
                list_hits: n[4],
                list_loads: n[5],
                invalidations: n[6],
                relation_invalidations: n[7],
                sends: n[8],
                relation_sends: n[9],
                commits: n[10],
                aborts: n[11],
            };
            assert_eq!((name.as_str(), *counts), (pinned_name, expected));
        }
    }

    const PINNED: [(&str, [u32; 12]); 13] = [
        ("d_part", [38149, 276, 4095, 199, 302, 43, 0, 0, 0, 0, 11, 0]),
        ("d_plus", [6720, 227, 417, 202, 373, 45, 0, 0, 0, 0, 12, 0]),
        ("d_table", [13863, 616, 358, 194, 1248, 35, 0, 0, 0, 0, 37, 0]),
        ("ddl_alter", [4947, 1240, 518, 111, 196, 5, 1287, 495, 650, 250, 51, 0]),
        ("ddl_create", [12952, 1659, 1922, 690, 172, 6, 13715, 3487, 7046, 1850, 89, 0]),
        ("ddl_temp", [9885, 744, 1240, 512, 98, 3, 12808, 1900, 6604, 1050, 202, 0]),
        ("initstart", [35, 0, 28, 2, 0, 2, 0, 0, 0, 0, 2, 0]),
        ("partscan", [23400, 0, 10026, 9566, 0, 1, 0, 0, 0, 0, 1, 0]),
        ("prepared", [42768, 1, 48, 5, 25, 7, 0, 0, 0, 0, 828, 0]),
        ("prepared_S", [14118, 0, 26, 2, 5, 2, 0, 0, 0, 0, 2002, 0]),
        ("simple", [40536, 1233, 47, 5, 991, 7, 0, 0, 0, 0, 248, 0]),
        ("simple_S", [39882, 1375, 25, 2, 1374, 2, 0, 0, 0, 0, 1376, 0]),
        ("startup", [6, 0, 8, 0, 0, 0, 0, 0, 0, 0, 2, 0]),
    ];
}
