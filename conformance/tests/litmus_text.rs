//! The litmus language: its grammar is the parser's, its errors help, its files say what they stand for.

use catcache_conformance::litmus::{self, Fault, Litmus, Op, Value};
use proptest::prelude::*;

// ---- the shipped files --------------------------------------------------------------------------------------------

#[test]
fn every_shipped_file_is_sound_and_says_what_it_stands_for() {
    let files = litmus::shipped().unwrap_or_else(|e| panic!("{e}"));
    assert!(files.len() >= 24, "only {} litmus files", files.len());
    for file in &files {
        let name = &file.name;
        assert!(!file.cites.is_empty(), "{name}: the title names no statement");
        assert!(!file.story.is_empty(), "{name}: there is no story");
        assert!(!file.never.is_empty() && !file.sometimes.is_empty(), "{name}: needs `never` and `sometimes`");
        assert!(file.title.ends_with('.') && file.title.contains(": "), "{name}: the title is a sentence after a cite");
        assert!(file.lookups() >= 2, "{name}: an outcome needs something to compare");
        // a05-… stands for A5, b01-… for B01; s01-… for several.
        let (part, number) = (name[..1].to_uppercase(), name[1..3].parse::<u32>());
        let number = number.unwrap_or_else(|e| panic!("{name}: the name begins with a statement: {e}"));
        let cite = if part == "B" { format!("B{number:02}") } else { format!("{part}{number}") };
        assert!(part == "S" || file.cites.contains(&cite), "{name}: {cite} is not among {:?}", file.cites);
    }
    let mut titles: Vec<&String> = files.iter().map(|f| &f.title).collect();
    titles.sort();
    titles.dedup();
    assert_eq!(titles.len(), files.len(), "two files have one title");
}

#[test]
fn the_shipped_files_use_every_word_of_the_language() {
    let all: String = litmus::SHIPPED.iter().map(|(_, text)| *text).collect();
    let code: Vec<&str> = all.lines().map(|l| l.split('#').next().unwrap_or_default()).collect();
    let grammar = Grammar::read(litmus::GRAMMAR);
    for word in grammar.literals().into_iter().filter(|w| w.chars().all(char::is_alphabetic) && w != "shared") {
        assert!(
            code.iter().any(|l| l.split(|c: char| !c.is_alphanumeric()).any(|w| *w == word)),
            "nobody uses `{word}`"
        );
    }
}

#[test]
fn every_shipped_file_survives_printing() {
    for (name, text) in litmus::SHIPPED {
        let read = Litmus::parse(name, text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(Litmus::parse(name, &read.to_string()).unwrap_or_else(|e| panic!("{e}")), read);
    }
}

#[test]
fn a_file_reads_as_the_documentation_says() {
    let text = "# b1: a row, A05 and D3, B01 again.\n#   why\n#\nlayer backend\n\n\
                keys k1 = rel/7, k2 = typ/7 absent toasted # a note\nstripes 2   ring 2\nentries 1 local 0\n\
                backend a: lookup k1; begin; insert k2; end; commit fails; evict k1\n\
                backend b-1: begin; update k1; abort\n\
                never a = v0 after b-1\nsometimes a.1 = none\n";
    let read = Litmus::parse("some/where/x-1.litmus", text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(read.name, "x-1");
    assert_eq!(read.title, "b1: a row, A05 and D3, B01 again.");
    assert_eq!(read.story, ["  why", ""]);
    assert_eq!(read.cites, ["A5", "D3", "B01"]);
    assert_eq!((read.stripes, read.ring, read.entries, read.local), (2, 2, Some(1), Some(0)));
    assert_eq!((read.cache_id(0), read.cache_id(1)), (0, 1));
    assert!(read.keys[1].absent && read.keys[1].toasted && !read.keys[0].absent);
    let ops = [Op::Lookup(0), Op::Begin, Op::Insert(1), Op::CommandEnd, Op::CommitFails, Op::Evict(0)];
    assert_eq!(read.backends[0].ops, ops);
    let (never, sometimes) = (read.never[0].conditions[0], read.sometimes[0].conditions[0]);
    assert_eq!((never.lookup, never.value, never.after), (0, Value::Version(0), Some(1)));
    assert_eq!((sometimes.lookup, sometimes.value, sometimes.after), (0, Value::None, None));
    let answer = |value, after| move |_, lookup| (lookup == 0).then_some(litmus::Answer { value, after });
    assert!(read.never[0].holds(answer(Value::Version(0), 0b10)));
    assert!(!read.never[0].holds(answer(Value::Version(0), 0b01)));
    assert!(!read.never[0].holds(answer(Value::None, 0b10)));
    assert!(!read.never[0].holds(|_, _| None));
    assert_eq!(Litmus::parse("x-1", &read.to_string()).unwrap_or_else(|e| panic!("{e}")), read);
}

// ---- errors -------------------------------------------------------------------------------------------------------

#[test]
fn an_error_shows_the_place_and_the_nearest_word() {
    let text = "# A1: x.\nlayer backend\nkeys k1 = rel/7\nbackend loader: lokup k1\n";
    let error = Litmus::parse("a.litmus", text).unwrap_err();
    let expected = "\
expected one of lookup, evict, accept, insert, update, delete, inplace, rewrite, dropdb, begin, end, commit, abort, subbegin, subcommit, subabort, found `lokup`
 --> a.litmus:4:17
  |
4 | backend loader: lokup k1
  |                 ^^^^^
  = hint: did you mean `lookup`?";
    assert_eq!(error.to_string(), expected);
    assert_eq!(error.fault, Fault::Grammar);
}

/// What stands behind `lines` of a file that is fine so far, and the error: line (from the first of `lines`), column,
/// part of the message, part of the hint.
#[test]
fn every_mistake_is_refused_with_its_place_and_advice() {
    let mistakes: &[(&str, usize, usize, &str, &str)] = &[
        // Grammar.
        ("leyer backend", 1, 1, "expected one of layer, keys", "`layer`"),
        ("keys k3 = rel 7", 1, 15, "expected `/`, found `7`", ""),
        ("keys k3 = rel/x", 1, 15, "expected a hash", ""),
        ("keys k3 = rel/7 abesnt", 1, 17, "expected `absent`, `toasted`, `database`, `,`", "`absent`"),
        ("keys k3 = rel/7,", 1, 17, "the name of a key, found the end of the line", ""),
        ("ring two", 1, 6, "expected a number", ""),
        ("ring 2 stirpes 2", 1, 8, "expected `stripes`, `ring`, `entries`, `local` or `escalate`", "`stripes`"),
        ("backend x lookup k1", 1, 11, "expected `:`", ""),
        ("backend x: lookup", 1, 18, "expected a key", ""),
        ("backend x: commit failed", 1, 19, "expected `;` or the end of the line", "`fails`"),
        ("backend x: lookup k1 k2", 1, 22, "expected `;`", ""),
        ("backend x: ", 1, 11, "expected one of lookup", ""),
        ("never reader.1 v0", 1, 16, "expected `=`", ""),
        ("never reader.1 = 0", 1, 18, "expected `none` or a version", ""),
        ("never reader.1 = vx", 1, 18, "expected `none` or a version", ""),
        ("never reader.1 = v0 adn writer = v0", 1, 21, "expected `and`, `after`", "`and`"),
        ("never reader.1 = v0 after", 1, 26, "expected a backend", ""),
        ("keys k3 = rel/7 §", 1, 17, "found `§`", ""),
        ("7", 1, 1, "expected one of layer", ""),
        ("keys k3 = rel/7 database x", 1, 26, "the number of a database", ""),
        ("lists l = rel/7 k1 k2", 1, 17, "expected `of` and two keys", ""),
        ("lists l = rel/7 of k1", 1, 22, "expected a key, found the end of the line", ""),
        // Meaning.
        ("lists k1 = rel/7 of k1 k2", 1, 7, "there is a key or list `k1` already", ""),
        ("lists l = rel/7 of k1 k2\nbackend x: lookup l\nnever x = v0", 3, 13, "two rows", "`v0+none`"),
        ("never reader.1 = v0+v0", 1, 20, "`k1` is a key: it has one row", ""),
        ("lists l = typ/7 of k1 k2", 1, 20, "`k1` is of cache `rel`, not `typ`", ""),
        ("lists l = rel/7 of k2 k1", 1, 20, "in the order of their hashes", "`of k1 k2`"),
        ("lists l = rel/7 of k1 k1", 1, 23, "`k1` is of the list already", ""),
        ("lists l = rel/7 of k1 k2, m = rel/7 of k1 k2", 1, 40, "`k1` is of another list already", ""),
        ("lists l = rel/7 of k1 kx", 1, 23, "unknown key `kx`", "`k1`"),
        ("keys k3 = rel/9 database 2\nlists l = rel/7 of k1 k3", 2, 23, "are of two databases", ""),
        ("lists l = rel/7 of k1 k2\nkeys k3 = rel/9", 2, 6, "keys are declared before lists", ""),
        ("lists l = rel/7 of k1 k2\nbackend x: begin; update l; commit", 2, 26, "`l` is a list", ""),
        ("keys k3 = rel/7 database 4", 1, 26, "databases are numbered from 0, which all share, to 3", ""),
        ("backend x database 0: accept", 1, 20, "0 is what all of them share", ""),
        ("backend x database 2: lookup k1", 1, 23, "`k1` is of database 1, `x` is connected to 2", "database 1"),
        ("backend x: begin; update k1; inplace k1; commit", 1, 30, "it would wait for itself", ""),
        ("backend x: rewrite k1", 1, 12, "`rewrite k1` outside a transaction", "`begin`"),
        ("backend x: begin; dropdb k1; update k1; commit", 1, 30, "`k1` has no row here", "`insert k1`"),
        ("layer shared", 1, 1, "`layer` is said twice", ""),
        ("keys k1 = rel/9", 1, 6, "there is a key `k1` already", ""),
        ("keys k3 = rel/99999999999", 1, 15, "99999999999 is too large", ""),
        ("keys a = r/1, b = r/1, c = r/1", 1, 24, "too many keys: at most 4", ""),
        ("ring 3", 1, 6, "`ring` must be a power of two", "`ring 4`"),
        ("ring 1", 1, 6, "a ring has at least two messages", "`ring 2`"),
        ("stripes 0", 1, 9, "`stripes` must be a power of two", "`stripes 1`"),
        ("ring 128", 1, 6, "too large: `ring` is at most 64", "`ring 64`"),
        ("entries 0", 1, 9, "at least one entry", ""),
        ("ring 2\nring 2", 2, 1, "`ring` is said twice", ""),
        ("backend reader: accept", 1, 9, "there is a backend `reader` already", ""),
        ("backend x: accept\nbackend y: accept\nbackend z: accept", 3, 9, "too many backends: at most 4", ""),
        ("backend x: lookup k12", 1, 19, "unknown key or list `k12`", "`k1`"),
        ("backend x: lookup other", 1, 19, "unknown key or list `other`", "k1, k2"),
        ("backend x: update k1; commit", 1, 12, "`update k1` outside a transaction", "`begin`"),
        ("backend x: commit", 1, 12, "`commit` outside a transaction", "`begin`"),
        ("backend x: end", 1, 12, "`end` outside a transaction", "`begin`"),
        ("backend x: subbegin", 1, 12, "`subbegin` outside a transaction", "`begin`"),
        ("backend x: begin; subabort; commit", 1, 19, "`subabort` outside a subtransaction", "`subbegin`"),
        ("backend x: begin; update k1; subbegin; commit", 1, 30, "A26", "put `end` before it"),
        ("backend x: begin; begin; commit", 1, 19, "`begin` inside a transaction", "`abort`"),
        ("backend x: lookup k1; begin; end", 1, 23, "of `x` is never ended", "`commit`"),
        (
            "backend x: accept; accept; accept; accept; accept; accept; accept; accept; accept",
            1,
            76,
            "too many operations",
            "",
        ),
        ("backend x: begin; update k2; commit", 1, 19, "`k2` has no row here", "`insert k2`"),
        ("backend x: begin; insert k2; insert k2; abort", 1, 30, "`k2` has a row already", "`update k2`"),
        ("backend x: begin; insert k2; abort; begin; delete k2; abort", 1, 44, "`k2` has no row here", "`insert k2`"),
        (
            "backend x: begin; insert k2; commit; begin; insert k2; abort",
            1,
            45,
            "`k2` has a row already",
            "`update k2`",
        ),
        ("never writr = v0", 1, 7, "unknown backend `writr`", "`writer`"),
        ("never reader = v0", 1, 7, "`reader` has 2 lookups, not just one", "`reader.1`"),
        ("never writer = v0", 1, 7, "`writer` has 0 lookups", ""),
        ("never reader.0 = v0", 1, 14, "counted from 1", ""),
        ("never reader.3 = v0", 1, 14, "`reader` has 2 lookups", ""),
        ("never reader.1 = v2", 1, 18, "`k1` is written once: its last version is v1", ""),
        ("never reader.2 = v0", 1, 18, "`k2` has no row at first", "`none`"),
        ("never reader.2 = v1", 1, 18, "`k2` is written 0 times", ""),
        ("never reader.1 = v0 after reader", 1, 27, "one of `reader` itself", ""),
        ("backend x: accept\nnever reader.1 = v0 after x", 2, 27, "`x` never commits or aborts", ""),
        ("never reader.1 = v0 and reader.1 = v1", 1, 25, "speaks of this lookup already", ""),
        (
            "backend x: begin; insert k2; end; delete k2; commit\nnever reader.2 = v2",
            2,
            18,
            "write 2 of `k2` is a delete",
            "`none`",
        ),
    ];
    let sound = "# A1: x.\nlayer backend\nkeys k1 = rel/7, k2 = rel/8 absent\n\
                 backend reader: lookup k1; lookup k2\nbackend writer: begin; update k1; commit\n";
    assert!(Litmus::parse("x", sound).is_ok());
    for (at, (lines, line, column, message, hint)) in mistakes.iter().enumerate() {
        let error = match Litmus::parse("x", &format!("{sound}{lines}\n")) {
            Ok(_) => panic!("not refused: {lines}"),
            Err(error) => error,
        };
        let first = sound.lines().count();
        assert_eq!((error.line - first, error.column), (*line, *column), "{lines}\n{error}");
        assert!(error.message.contains(message), "{lines}\n{error}");
        assert_eq!(error.hint.is_some(), !hint.is_empty(), "{lines}\n{error}");
        assert!(error.hint.as_deref().unwrap_or_default().contains(hint), "{lines}\n{error}");
        assert_eq!(error.fault == Fault::Grammar, at < 22, "{lines}\n{error}");
        assert_eq!(&*error.text, lines.lines().nth(line - 1).unwrap_or_default());
    }
}

#[test]
fn what_is_missing_altogether_is_named() {
    let missing = |text: &str| Litmus::parse("x", text).unwrap_err().message;
    assert!(missing("").contains("a comment that says what the file stands for"));
    assert!(missing("\n# late\n").contains("a comment"));
    assert!(missing("#  \nlayer backend\n").contains("a comment"));
    assert!(missing("# A1\nkeys k = r/1\nbackend b: accept\n").contains("no `layer` line"));
    assert!(missing("# A1\nlayer backend\n").contains("no `keys` line"));
    assert!(missing("# A1\nlayer backend\nkeys k = r/1").contains("no `backend` line"));
    let shared = "# A1\nlayer shared\nlocal 1\nkeys k = r/1\nbackend b: accept\n";
    assert!(missing(shared).contains("`layer shared` has no local view"));
    let unknown = Litmus::parse("x", "# A1\nbackend b: lookup k1\n").unwrap_err();
    assert_eq!(unknown.hint.as_deref(), Some("no key or list is declared above this line"));
}

#[test]
fn what_another_writer_may_have_done_is_not_certain() {
    let text = "# A1\nlayer backend\nkeys k = r/1 absent\n\
                backend a: begin; insert k; commit; begin; insert k; abort\nbackend b: begin; delete k; commit\n";
    assert!(Litmus::parse("x", text).is_ok());
}

#[test]
fn a_file_on_the_disk_is_loaded_or_the_reason_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some.litmus");
    let missing = Litmus::load(&path).unwrap_err().to_string();
    assert!(missing.starts_with("can't read ") && missing.contains("some.litmus"), "{missing}");
    std::fs::write(&path, b"# A1\n\xff").unwrap();
    let binary = Litmus::load(&path).unwrap_err().to_string();
    assert!(binary.contains("byte 5 is not UTF-8"), "{binary}");
    std::fs::write(&path, "# A1\nlayer x\n").unwrap();
    let refused = Litmus::load(&path).unwrap_err().to_string();
    assert!(refused.contains("some.litmus:2:7"), "{refused}");
    std::fs::write(&path, litmus::SHIPPED[0].1).unwrap();
    assert_eq!(Litmus::load(&path).unwrap_or_else(|e| panic!("{e}")).name, "some");
}

// ---- any text at all ----------------------------------------------------------------------------------------------

/// A sound file: what the parser must read back.
fn sound() -> impl Strategy<Value = Litmus> {
    let keys = prop::collection::vec((any::<u32>(), any::<bool>(), any::<bool>(), 0..2usize), 1..=4);
    let ops = prop::collection::vec((0..11u8, 0..5usize), 1..=6);
    let sizes = (0..7u32, 1..7u32, prop::option::of(1..=64u32), prop::option::of(0..=64u32));
    let clauses = prop::collection::vec((any::<bool>(), prop::collection::vec(any::<[usize; 4]>(), 1..4)), 0..4);
    (keys, prop::collection::vec(ops, 1..=4), sizes, clauses, "[ -~]{0,20}").prop_map(
        |(keys, programs, sizes, clauses, story)| {
            let keys: Vec<litmus::KeyDecl> = keys
                .into_iter()
                .enumerate()
                .map(|(i, (hash, absent, toasted, cache))| litmus::KeyDecl {
                    name: format!("k{i}"),
                    cache: ["rel", "typ_x"][cache].to_owned(),
                    hash,
                    absent,
                    toasted,
                    database: u32::from(hash % 4 != 0),
                })
                .collect();
            // The first two keys that may be, in their order.
            let pairs = (1..keys.len()).flat_map(|b| (0..b).map(move |a| [a, b]));
            let like =
                |[a, b]: &[usize; 2]| (&keys[*a].cache, keys[*a].database) == (&keys[*b].cache, keys[*b].database);
            let ordered = |[a, b]: [usize; 2]| if keys[a].hash > keys[b].hash { [b, a] } else { [a, b] };
            let lists: Vec<litmus::ListDecl> = pairs
                .filter(like)
                .take(1)
                .map(|pair| litmus::ListDecl { name: "l".to_owned(), hash: keys[0].hash, members: ordered(pair) })
                .collect();
            let program = |ops: Vec<(u8, usize)>| {
                let (mut program, mut open, mut dropped) = (Vec::new(), false, false);
                for (op, key) in ops {
                    let item = key % (keys.len() + lists.len());
                    let key = key % keys.len();
                    let op = match op {
                        0 => Op::Accept,
                        1 => Op::Evict(item),
                        2 if !open => Op::Begin,
                        3 if open => Op::Commit,
                        4 if open => Op::CommitFails,
                        5 if open && !keys[key].absent && !dropped => Op::Update(key),
                        6 if open => Op::CommandEnd,
                        7 if open => Op::Rewrite(key),
                        8 if open && keys[key].database == 0 => Op::DropDatabase(key),
                        9 if !open && !keys[key].absent && !dropped => Op::InPlace(key),
                        _ => Op::Lookup(item),
                    };
                    dropped |= matches!(op, Op::DropDatabase(_));
                    open = (open || op == Op::Begin) && !op.ends_transaction();
                    program.push(op);
                }
                program.extend(open.then_some(Op::Abort));
                program
            };
            let backends: Vec<litmus::BackendDecl> = programs
                .into_iter()
                .enumerate()
                .map(|(i, ops)| litmus::BackendDecl { name: format!("b{i}"), ops: program(ops), database: 1 })
                .collect();
            let mut file = Litmus {
                name: "x".to_owned(),
                title: "A1: generated.".to_owned(),
                story: vec![story.trim_end().to_owned()],
                cites: vec!["A1".to_owned()],
                layer: litmus::Layer::Backend,
                keys,
                lists,
                stripes: 1 << sizes.0,
                ring: 1 << sizes.1,
                entries: sizes.2,
                local: sizes.3,
                escalate: sizes.3.filter(|n| n % 2 == 0),
                backends,
                never: Vec::new(),
                sometimes: Vec::new(),
            };
            let drops = |file: &Litmus, key| {
                let drop = |op: &Op| matches!(op, Op::DropDatabase(_)) && file.op_writes(*op, key);
                file.backends.iter().any(|b| b.ops.iter().any(drop))
            };
            for (never, conditions) in clauses {
                let mut clause = litmus::Clause { conditions: Vec::new() };
                for [backend, lookup, value, after] in conditions {
                    let (backend, after) = (backend % file.backends.len(), after % (file.backends.len() + 1));
                    let items: Vec<usize> = file.backends[backend].lookups().collect();
                    if items.is_empty()
                        || clause.conditions.iter().any(|c| (c.backend, c.lookup) == (backend, lookup % items.len()))
                    {
                        continue;
                    }
                    let item = items[lookup % items.len()];
                    let row = |key: usize, value: usize| match value % 3 {
                        0 if !file.keys[key].absent => Some(0),
                        1 if file.writes(key) > 0 && !drops(&file, key) => Some(file.writes(key) as u32),
                        _ => None,
                    };
                    let value = match file.list(item) {
                        Some(list) => Value::List([row(list.members[0], value), row(list.members[1], value / 3)]),
                        None => row(item, value).map_or(Value::None, Value::Version),
                    };
                    let ends = |b: &litmus::BackendDecl| b.ops.iter().any(|op| op.ends_transaction());
                    let after = file.backends.get(after).filter(|b| after != backend && ends(b)).map(|_| after);
                    clause.conditions.push(litmus::Condition { backend, lookup: lookup % items.len(), value, after });
                }
                if !clause.conditions.is_empty() {
                    if never { &mut file.never } else { &mut file.sometimes }.push(clause);
                }
            }
            file
        },
    )
}

proptest! {
    #[test]
    fn what_is_printed_is_what_was_meant(file in sound()) {
        let mut read = Litmus::parse("x.litmus", &file.to_string()).map_err(|e| TestCaseError::fail(e.to_string()))?;
        // The story is noise and may name statements of its own.
        read.cites.truncate(1);
        prop_assert_eq!(read, file);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in any::<String>(), bytes in any::<Vec<u8>>()) {
        for text in [text, String::from_utf8_lossy(&bytes).into_owned()] {
            if let Err(e) = Litmus::parse("x", &text) {
                prop_assert!(e.line >= 1 && e.column >= 1 && e.width >= 1);
                prop_assert!(!e.to_string().is_empty());
            }
        }
    }

    #[test]
    fn no_edit_of_a_file_makes_the_parser_panic(
        file in 0..litmus::SHIPPED.len(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), "[ -~\n§\t]{0,3}", 0..4usize), 1..6),
    ) {
        let mut text: Vec<char> = litmus::SHIPPED[file].1.chars().collect();
        for (at, new, cut) in edits {
            let at = at.index(text.len());
            let end = (at + cut).min(text.len());
            text.splice(at..end, new.chars());
            if text.is_empty() {
                break;
            }
        }
        let text: String = text.into_iter().collect();
        match Litmus::parse("x", &text) {
            Ok(read) => prop_assert_eq!(Litmus::parse("x", &read.to_string()).map_err(|e| TestCaseError::fail(e.to_string()))?, read),
            Err(e) => {
                prop_assert_eq!(text.lines().nth(e.line - 1).unwrap_or_default(), &*e.text);
                prop_assert!(e.column <= e.text.chars().count() + 1, "the caret stands outside the line: {}", e);
            }
        }
    }
}

// ---- the grammar --------------------------------------------------------------------------------------------------

#[derive(Clone, Debug)]
enum Rule {
    Literal(String),
    Name(String),
    All(Vec<Rule>),
    Any(Vec<Rule>),
    Maybe(Box<Rule>),
    Many(Box<Rule>),
}

/// The documented grammar, read from the documentation.
struct Grammar(Vec<(String, Rule)>);

impl Grammar {
    fn read(text: &str) -> Grammar {
        let spaced = text.split('"').enumerate().map(|(i, part)| {
            // Inside quotes every sign stands for itself.
            if i % 2 == 1 {
                format!(" \"{part} ")
            } else {
                part.chars().map(|c| if "()[]{}|;=".contains(c) { format!(" {c} ") } else { c.to_string() }).collect()
            }
        });
        let spaced: String = spaced.collect();
        let mut words = spaced.split_whitespace().peekable();
        let mut rules = Vec::new();
        while let Some(name) = words.next() {
            assert_eq!(words.next(), Some("="), "rule {name}");
            rules.push((name.to_owned(), Grammar::any(&mut words)));
            assert_eq!(words.next(), Some(";"), "rule {name}");
        }
        Grammar(rules)
    }

    fn any<'w>(words: &mut std::iter::Peekable<impl Iterator<Item = &'w str>>) -> Rule {
        let mut ways = vec![Vec::new()];
        while let Some(word) = words.next_if(|w| !matches!(*w, ")" | "]" | "}" | ";")) {
            let rule = match word {
                "|" => {
                    ways.push(Vec::new());
                    continue;
                }
                "(" | "[" | "{" => {
                    let inner = Grammar::any(words);
                    words.next();
                    match word {
                        "(" => inner,
                        "[" => Rule::Maybe(inner.into()),
                        _ => Rule::Many(inner.into()),
                    }
                }
                _ => match word.strip_prefix('"') {
                    Some(literal) => Rule::Literal(literal.to_owned()),
                    None => Rule::Name(word.to_owned()),
                },
            };
            ways.last_mut().unwrap().push(rule);
        }
        Rule::Any(ways.into_iter().map(Rule::All).collect())
    }

    fn rule(&self, name: &str) -> Option<&Rule> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, rule)| rule)
    }

    fn literals(&self) -> Vec<String> {
        fn collect(rule: &Rule, found: &mut Vec<String>) {
            match rule {
                Rule::Literal(word) => found.push(word.clone()),
                Rule::Name(_) => {}
                Rule::All(rules) | Rule::Any(rules) => rules.iter().for_each(|r| collect(r, found)),
                Rule::Maybe(rule) | Rule::Many(rule) => collect(rule, found),
            }
        }
        let mut found = Vec::new();
        self.0.iter().for_each(|(_, rule)| collect(rule, &mut found));
        found.sort();
        found.dedup();
        found
    }

    /// A random sentence of `rule`; `dice(n)` is below n.
    fn derive(&self, rule: &Rule, dice: &mut impl FnMut(usize) -> usize, out: &mut Vec<String>) {
        match rule {
            Rule::Literal(word) => out.push(word.clone()),
            Rule::All(rules) => rules.iter().for_each(|r| self.derive(r, dice, out)),
            Rule::Any(rules) => self.derive(&rules[dice(rules.len())], dice, out),
            Rule::Maybe(rule) => (0..dice(2)).for_each(|_| self.derive(rule, dice, out)),
            Rule::Many(rule) => (0..dice(4)).for_each(|_| self.derive(rule, dice, out)),
            Rule::Name(name) => match (self.rule(name), name.as_str()) {
                (Some(rule), _) => self.derive(rule, dice, out),
                (None, "NEWLINE") => out.push("\n".to_owned()),
                (None, "TEXT") => out.push("words of any kind; k1".to_owned()),
                (None, "NAME") => out.push(["k1", "k2", "reader", "writer", "x"][dice(5)].to_owned()),
                (None, "NUMBER") => out.push(["1", "2", "7"][dice(3)].to_owned()),
                (None, "VERSION") => out.push(["v0", "v1"][dice(2)].to_owned()),
                (None, other) => panic!("the grammar does not say what {other} is"),
            },
        }
    }

    /// Where in `words` a sentence of `rule` that begins at `at` can end.
    fn ends(&self, rule: &Rule, words: &[String], at: usize) -> Vec<usize> {
        let mut ends = match rule {
            Rule::Literal(word) => (words.get(at) == Some(word)).then_some(at + 1).into_iter().collect(),
            Rule::All(rules) => rules.iter().fold(vec![at], |starts, rule| {
                starts.iter().flat_map(|&start| self.ends(rule, words, start)).collect()
            }),
            Rule::Any(rules) => rules.iter().flat_map(|rule| self.ends(rule, words, at)).collect(),
            Rule::Maybe(rule) => [vec![at], self.ends(rule, words, at)].concat(),
            Rule::Many(rule) => {
                let (mut all, mut next) = (vec![at], vec![at]);
                while !next.is_empty() {
                    next = next.iter().flat_map(|&start| self.ends(rule, words, start)).collect();
                    next.retain(|end| !all.contains(end));
                    next.sort();
                    next.dedup();
                    all.extend(&next);
                }
                all
            }
            Rule::Name(name) => match self.rule(name) {
                Some(rule) => self.ends(rule, words, at),
                None => {
                    let word = words.get(at).map(String::as_str).unwrap_or_default();
                    let first = |f: fn(&char) -> bool| word.chars().next().is_some_and(|c| f(&c));
                    let fits = match name.as_str() {
                        "NAME" => first(char::is_ascii_alphabetic),
                        "NUMBER" => first(char::is_ascii_digit),
                        "VERSION" => {
                            word.len() > 1 && word.starts_with('v') && word[1..].bytes().all(|b| b.is_ascii_digit())
                        }
                        "NEWLINE" => word == "\n",
                        _ => false,
                    };
                    fits.then_some(at + 1).into_iter().collect()
                }
            },
        };
        ends.sort();
        ends.dedup();
        ends
    }
}

/// A fixed sequence that looks random.
fn dice(mut seed: u64) -> impl FnMut(usize) -> usize {
    move |below| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below
    }
}

#[test]
fn every_sentence_of_the_documented_grammar_is_read() {
    let grammar = Grammar::read(litmus::GRAMMAR);
    let file = grammar.rule("file").unwrap();
    let mut seen: Vec<String> = Vec::new();
    for seed in 0..20_000 {
        let mut words = Vec::new();
        grammar.derive(file, &mut dice(seed), &mut words);
        let text = words.join(" ").replace("\n ", "\n");
        if let Err(e) = Litmus::parse("x", &text) {
            assert_eq!(e.fault, Fault::Meaning, "the grammar allows it, the parser doesn't:\n{e}");
        }
        seen.extend(words);
        seen.sort();
        seen.dedup();
    }
    for word in grammar.literals() {
        assert!(seen.contains(&word), "no sentence had `{word}`");
    }
}

#[test]
fn the_parser_finds_fault_with_the_grammar_of_just_what_the_grammar_forbids() {
    let grammar = Grammar::read(litmus::GRAMMAR);
    let line = grammar.rule("line").unwrap();
    let words: Vec<String> = grammar.literals().into_iter().filter(|w| w != "#").collect();
    let sound = "# A1: x.\nlayer backend\nkeys k1 = rel/7, k2 = rel/8\n\
                 backend reader: lookup k1\nbackend writer: begin; update k1; commit; lookup k1\n";
    let (mut allowed, mut forbidden) = (0, 0);
    for seed in 0..60_000 {
        let mut dice = dice(seed);
        let mut sentence = Vec::new();
        grammar.derive(line, &mut dice, &mut sentence);
        if sentence.contains(&"#".to_owned()) {
            continue;
        }
        sentence.pop();
        for _ in 0..dice(3) {
            let at = dice(sentence.len() + 1);
            match dice(3) {
                0 if at < sentence.len() => drop(sentence.remove(at)),
                1 if at < sentence.len() => sentence[at] = words[dice(words.len())].clone(),
                _ => sentence.insert(at, words[dice(words.len())].clone()),
            }
        }
        let mut ended = sentence.clone();
        ended.push("\n".to_owned());
        let fits = grammar.ends(line, &ended, 0).contains(&ended.len());
        let text = format!("{sound}{}\n", sentence.join(" "));
        match Litmus::parse("x", &text) {
            Ok(_) => {
                assert!(fits, "the parser allows it, the grammar doesn't: {}", sentence.join(" "));
                allowed += 1;
            }
            Err(e) if e.fault == Fault::Grammar => {
                assert!(!fits, "the grammar allows it, the parser doesn't:\n{e}");
                forbidden += 1;
            }
            // Said of something that comes before what the grammar may forbid.
            Err(_) => {}
        }
    }
    assert!(
        allowed > 500 && forbidden > 5_000,
        "{allowed} allowed, {forbidden} forbidden: the test has lost its teeth"
    );
}
