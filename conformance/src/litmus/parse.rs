//! From text to [`Litmus`]: one line after the other, names resolved as they are met. What concerns more than one line
//! is left to [`meaning`](super::meaning).

use super::error::nearest;
use super::lex::{Span, Token, tokens};
use super::{
    BACKENDS_MAX, BackendDecl, Clause, Condition, DATABASE_DEFAULT, DATABASES_MAX, Fault, KEYS_MAX, KeyDecl, LISTS_MAX,
    Layer, ListDecl, Litmus, LitmusError, OPS_MAX, Op, RING_DEFAULT, SIZE_MAX, STRIPES_DEFAULT, Value, meaning,
};

const LINES: [&str; 11] =
    ["layer", "keys", "lists", "stripes", "ring", "entries", "local", "escalate", "backend", "never", "sometimes"];
const OPS: [&str; 16] = [
    "lookup",
    "evict",
    "accept",
    "insert",
    "update",
    "delete",
    "inplace",
    "rewrite",
    "dropdb",
    "begin",
    "end",
    "commit",
    "abort",
    "subbegin",
    "subcommit",
    "subabort",
];

/// The file as far as it was read, with the places that later checks point at.
pub(super) struct Reading<'t> {
    file: &'t str,
    lines: Vec<&'t str>,
    pub(super) litmus: Litmus,
    /// Place of each operation, per backend.
    pub(super) op_spans: Vec<Vec<Span>>,
    /// Place of each backend's name.
    pub(super) backend_spans: Vec<Span>,
    /// Where names that it may use are declared, for errors.
    declared: &'static str,
}

impl<'t> Reading<'t> {
    /// A line that stands for itself, about a file that has been read.
    pub(super) fn of_line(file: &'t str, line: &'t str, litmus: Litmus) -> Reading<'t> {
        Reading {
            file,
            lines: vec![line],
            litmus,
            op_spans: Vec::new(),
            backend_spans: Vec::new(),
            declared: "in the file",
        }
    }

    pub(super) fn error(&self, fault: Fault, at: Span, message: String, hint: Option<String>) -> LitmusError {
        let text = self.lines.get(at.line - 1).copied().unwrap_or_default().into();
        let (line, column, width) = (at.line, at.column, at.width);
        LitmusError {
            file: self.file.into(),
            line,
            column,
            width,
            text,
            fault,
            message: message.into(),
            hint: hint.map(Into::into),
        }
    }

    pub(super) fn meaning(&self, at: Span, message: impl Into<String>) -> LitmusError {
        self.error(Fault::Meaning, at, message.into(), None)
    }

    /// The place behind the last line: where something is missing.
    fn end(&self) -> Span {
        let line = self.lines.len().max(1);
        Span { line, column: self.lines.last().map_or(0, |l| l.chars().count()) + 1, width: 1 }
    }

    fn key(&self, (name, at): (&str, Span)) -> Result<usize, LitmusError> {
        let names = || self.litmus.keys.iter().map(|k| k.name.as_str());
        names().position(|n| n == name).ok_or_else(|| self.unknown("key", name, at, names()))
    }

    /// The number of a key or a list.
    fn item(&self, (name, at): (&str, Span)) -> Result<usize, LitmusError> {
        let names = || self.names();
        names().position(|n| n == name).ok_or_else(|| self.unknown("key or list", name, at, names()))
    }

    /// The names of keys and lists.
    fn names(&self) -> impl Iterator<Item = &str> {
        let lists = self.litmus.lists.iter().map(|l| l.name.as_str());
        self.litmus.keys.iter().map(|k| k.name.as_str()).chain(lists)
    }

    pub(super) fn backend(&self, (name, at): (&str, Span)) -> Result<usize, LitmusError> {
        let names = || self.litmus.backends.iter().map(|b| b.name.as_str());
        names().position(|n| n == name).ok_or_else(|| self.unknown("backend", name, at, names()))
    }

    fn unknown<'k>(&self, what: &str, name: &str, at: Span, known: impl Iterator<Item = &'k str>) -> LitmusError {
        let known: Vec<&str> = known.collect();
        let hint = match (nearest(name, known.iter().copied()), known.is_empty()) {
            (Some(near), _) => format!("did you mean `{near}`?"),
            (None, true) => format!("no {what} is declared {}", self.declared),
            (None, false) => format!("declared {}: {}", self.declared, known.join(", ")),
        };
        self.error(Fault::Meaning, at, format!("unknown {what} `{name}`"), Some(hint))
    }
}

/// One line and how far it was read.
pub(super) struct Line<'r, 't> {
    reading: &'r Reading<'t>,
    tokens: &'r [(Token<'t>, Span)],
    at: usize,
    /// The place behind the last token.
    end: Span,
}

impl<'r, 't> Line<'r, 't> {
    pub(super) fn new(reading: &'r Reading<'t>, tokens: &'r [(Token<'t>, Span)], end: Span) -> Line<'r, 't> {
        Line { reading, tokens, at: 0, end }
    }

    pub(super) fn reading(&self) -> &'r Reading<'t> {
        self.reading
    }

    pub(super) fn peek(&self) -> Option<Token<'t>> {
        self.tokens.get(self.at).map(|(token, _)| *token)
    }

    pub(super) fn span(&self) -> Span {
        self.tokens.get(self.at).map_or(self.end, |(_, span)| *span)
    }

    fn expected(&self, what: &str, known: &[&str]) -> LitmusError {
        let found = self.peek().map_or("the end of the line".to_owned(), |t| t.shown());
        let hint = match self.peek() {
            Some(Token::Word(word)) => {
                nearest(word, known.iter().copied()).map(|near| format!("did you mean `{near}`?"))
            }
            _ => None,
        };
        self.reading.error(Fault::Grammar, self.span(), format!("expected {what}, found {found}"), hint)
    }

    /// Takes the mark `c` if it is next.
    pub(super) fn takes(&mut self, c: char) -> bool {
        self.takes_token(Token::Mark(c))
    }

    fn takes_token(&mut self, token: Token<'_>) -> bool {
        let takes = self.peek() == Some(token);
        self.at += usize::from(takes);
        takes
    }

    /// Takes the word if it is next.
    pub(super) fn takes_word(&mut self, word: &str) -> bool {
        self.takes_token(Token::Word(word))
    }

    pub(super) fn mark(&mut self, c: char) -> Result<(), LitmusError> {
        if self.takes(c) { Ok(()) } else { Err(self.expected(&format!("`{c}`"), &[])) }
    }

    pub(super) fn name(&mut self, what: &str, known: &[&str]) -> Result<(&'t str, Span), LitmusError> {
        let Some(Token::Word(word)) = self.peek() else { return Err(self.expected(what, known)) };
        self.at += 1;
        Ok((word, self.tokens[self.at - 1].1))
    }

    fn number(&mut self, what: &str) -> Result<(u32, Span), LitmusError> {
        let Some(Token::Number(digits)) = self.peek() else { return Err(self.expected(what, &[])) };
        let at = self.span();
        self.at += 1;
        let number = digits.parse().map_err(|_| self.reading.meaning(at, format!("{digits} is too large")))?;
        Ok((number, at))
    }

    fn done(&self, else_expected: &str, known: &[&str]) -> Result<(), LitmusError> {
        if self.at == self.tokens.len() { Ok(()) } else { Err(self.expected(else_expected, known)) }
    }

    fn new_name(&mut self, what: &str, taken: &[&str]) -> Result<(&'t str, Span), LitmusError> {
        let (name, at) = self.name(&format!("the name of a {what}"), &[])?;
        match taken.contains(&name) {
            true => Err(self.reading.meaning(at, format!("there is a {what} `{name}` already"))),
            false => Ok((name, at)),
        }
    }
}

/// See [`Litmus::parse`].
pub(super) fn parse(file: &str, text: &str) -> Result<Litmus, LitmusError> {
    let lines: Vec<&str> = text.lines().collect();
    let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
    let litmus = Litmus {
        name: name.strip_suffix(".litmus").unwrap_or(name).to_owned(),
        title: String::new(),
        story: Vec::new(),
        cites: Vec::new(),
        layer: Layer::Backend,
        keys: Vec::new(),
        lists: Vec::new(),
        stripes: STRIPES_DEFAULT,
        ring: RING_DEFAULT,
        entries: None,
        local: None,
        escalate: None,
        backends: Vec::new(),
        never: Vec::new(),
        sometimes: Vec::new(),
    };
    let (op_spans, backend_spans, declared) = (Vec::new(), Vec::new(), "above this line");
    let mut reading = Reading { file, lines, litmus, op_spans, backend_spans, declared };
    let first = title(&mut reading)?;
    let mut said: Vec<&str> = Vec::new();
    for at in first..reading.lines.len() {
        let text = reading.lines[at];
        let tokens = tokens(at + 1, text);
        let Some((_, last)) = tokens.last() else { continue };
        let end = Span { line: at + 1, column: last.column + last.width, width: 1 };
        line(&mut reading, &mut said, &tokens, end)?;
    }
    for (word, missing) in [
        ("layer", !said.contains(&"layer")),
        ("keys", reading.litmus.keys.is_empty()),
        ("backend", reading.litmus.backends.is_empty()),
    ] {
        if missing {
            return Err(reading.error(Fault::Meaning, reading.end(), format!("the file has no `{word}` line"), None));
        }
    }
    meaning::check(&reading)?;
    Ok(reading.litmus)
}

/// Reads the first comment; answers with the index of the line behind it.
fn title(reading: &mut Reading<'_>) -> Result<usize, LitmusError> {
    let comment: Vec<&str> = reading.lines.iter().map_while(|l| l.strip_prefix('#')).collect();
    let Some((first, story)) = comment.split_first().filter(|(first, _)| !first.trim().is_empty()) else {
        let hint = Some("write `# B01: what must hold` in the first line".to_owned());
        let empty = reading.lines.iter().all(|l| l.trim().is_empty());
        let message = if empty { "the file is empty; " } else { "" };
        let message = format!("{message}expected a comment that says what the file stands for");
        return Err(reading.error(Fault::Grammar, Span { line: 1, column: 1, width: 1 }, message, hint));
    };
    reading.litmus.title = first.trim().to_owned();
    reading.litmus.story = story.iter().map(|l| l.strip_prefix(' ').unwrap_or(l).trim_end().to_owned()).collect();
    for text in &comment {
        for word in text.split(|c: char| !c.is_ascii_alphanumeric()) {
            if let Some(cite) = cite(word).filter(|c| !reading.litmus.cites.contains(c)) {
                reading.litmus.cites.push(cite);
            }
        }
    }
    Ok(comment.len())
}

/// `B1` → `B01`, `A05` → `A5`: the contract's own spelling of a statement; `None` if the word isn't one.
fn cite(word: &str) -> Option<String> {
    let (part, number) = word.split_at_checked(1)?;
    let number: u8 = number.parse().ok().filter(|n| (1..100).contains(n))?;
    match part {
        "B" => Some(format!("B{number:02}")),
        "A" | "D" => Some(format!("{part}{number}")),
        _ => None,
    }
}

fn line<'t>(
    reading: &mut Reading<'t>,
    said: &mut Vec<&'t str>,
    tokens: &[(Token<'t>, Span)],
    end: Span,
) -> Result<(), LitmusError> {
    let mut line = Line::new(reading, tokens, end);
    let what = format!("one of {}", LINES.join(", "));
    let (word, at) = line.name(&what, &LINES)?;
    match word {
        "layer" => {
            once(&line, said, word, at)?;
            let (name, _) = line.name("`backend` or `shared`", &[])?;
            let layer = match name {
                "backend" => Layer::Backend,
                "shared" => Layer::Shared,
                _ => {
                    line.at -= 1;
                    return Err(line.expected("`backend` or `shared`", &["backend", "shared"]));
                }
            };
            line.done("the end of the line", &[])?;
            reading.litmus.layer = layer;
        }
        "keys" => {
            let keys = keys(&mut line)?;
            reading.litmus.keys.extend(keys);
        }
        "lists" => {
            let lists = lists(&mut line)?;
            reading.litmus.lists.extend(lists);
        }
        "stripes" | "ring" | "entries" | "local" | "escalate" => {
            line.at = 0;
            let mut sizes = Vec::new();
            while line.at == 0 || line.peek().is_some() {
                sizes.push(size(&mut line, said)?);
            }
            for (word, size) in sizes {
                match word {
                    "stripes" => reading.litmus.stripes = size,
                    "ring" => reading.litmus.ring = size,
                    "entries" => reading.litmus.entries = Some(size),
                    "escalate" => reading.litmus.escalate = Some(size),
                    _ => reading.litmus.local = Some(size),
                }
            }
        }
        "backend" => {
            let (backend, at, spans) = backend(&mut line)?;
            reading.litmus.backends.push(backend);
            reading.backend_spans.push(at);
            reading.op_spans.push(spans);
        }
        "never" | "sometimes" => {
            let clause = clause(&mut line)?;
            let list = if word == "never" { &mut reading.litmus.never } else { &mut reading.litmus.sometimes };
            list.push(clause);
        }
        _ => {
            line.at -= 1;
            return Err(line.expected(&what, &LINES));
        }
    }
    Ok(())
}

fn once<'t>(line: &Line<'_, 't>, said: &mut Vec<&'t str>, word: &'t str, at: Span) -> Result<(), LitmusError> {
    if said.contains(&word) {
        return Err(line.reading.meaning(at, format!("`{word}` is said twice")));
    }
    said.push(word);
    Ok(())
}

fn keys(line: &mut Line<'_, '_>) -> Result<Vec<KeyDecl>, LitmusError> {
    let mut keys: Vec<KeyDecl> = Vec::new();
    loop {
        let taken: Vec<&str> = line.reading.names().chain(keys.iter().map(|k| k.name.as_str())).collect();
        let (name, at) = line.new_name("key", &taken)?;
        if !line.reading.litmus.lists.is_empty() {
            return Err(line.reading.meaning(at, "keys are declared before lists"));
        }
        if taken.len() == KEYS_MAX {
            return Err(line.reading.meaning(at, format!("too many keys: at most {KEYS_MAX}")));
        }
        line.mark('=')?;
        let (cache, _) = line.name("the name of a cache", &[])?;
        line.mark('/')?;
        let (hash, _) = line.number("a hash")?;
        let (name, cache) = (name.to_owned(), cache.to_owned());
        let mut key = KeyDecl { name, cache, hash, absent: false, toasted: false, database: DATABASE_DEFAULT };
        loop {
            if line.takes_word("absent") {
                key.absent = true;
            } else if line.takes_word("toasted") {
                key.toasted = true;
            } else if line.takes_word("database") {
                key.database = database(line)?;
            } else {
                break;
            }
        }
        keys.push(key);
        if !line.takes(',') {
            let words = ["absent", "toasted", "database"];
            line.done("`absent`, `toasted`, `database`, `,` or the end of the line", &words)?;
            return Ok(keys);
        }
    }
}

/// The number of a database.
fn database(line: &mut Line<'_, '_>) -> Result<u32, LitmusError> {
    let (number, at) = line.number("the number of a database")?;
    if number < DATABASES_MAX {
        return Ok(number);
    }
    Err(line.reading.meaning(at, format!("databases are numbered from 0, which all share, to {}", DATABASES_MAX - 1)))
}

fn size<'t>(line: &mut Line<'_, 't>, said: &mut Vec<&'t str>) -> Result<(&'t str, u32), LitmusError> {
    const SIZES: [&str; 5] = ["stripes", "ring", "entries", "local", "escalate"];
    let what = "`stripes`, `ring`, `entries`, `local` or `escalate`";
    let (word, at) = line.name(what, &SIZES)?;
    if !SIZES.contains(&word) {
        line.at -= 1;
        return Err(line.expected(what, &SIZES));
    }
    let (size, size_at) = line.number("a number")?;
    once(line, said, word, at)?;
    let (power, least) = (matches!(word, "stripes" | "ring"), if word == "ring" { 2 } else { 1 });
    let message = if size > SIZE_MAX {
        format!("too large: `{word}` is at most {SIZE_MAX}, litmus files are small")
    } else if power && !size.is_power_of_two() {
        format!("`{word}` must be a power of two")
    } else if word == "entries" && size == 0 {
        "a shared table has at least one entry".to_owned()
    } else if word == "ring" && size < 2 {
        "a ring has at least two messages".to_owned()
    } else {
        return Ok((word, size));
    };
    let hint = power.then(|| format!("`{word} {}`", size.clamp(least, SIZE_MAX).next_power_of_two()));
    Err(line.reading.error(Fault::Meaning, size_at, message, hint))
}

fn backend(line: &mut Line<'_, '_>) -> Result<(BackendDecl, Span, Vec<Span>), LitmusError> {
    let taken: Vec<&str> = line.reading.litmus.backends.iter().map(|b| b.name.as_str()).collect();
    let (name, name_at) = line.new_name("backend", &taken)?;
    if taken.len() == BACKENDS_MAX {
        return Err(line.reading.meaning(name_at, format!("too many backends: at most {BACKENDS_MAX}")));
    }
    let mut connected = DATABASE_DEFAULT;
    if line.takes_word("database") {
        let at = line.span();
        connected = database(line)?;
        if connected == 0 {
            return Err(line.reading.meaning(at, "a backend is connected to a database; 0 is what all of them share"));
        }
    }
    line.mark(':')?;
    let (mut ops, mut spans) = (Vec::new(), Vec::new());
    loop {
        let at = line.span();
        let op = op(line)?;
        if ops.len() == OPS_MAX {
            return Err(line.reading.meaning(at, format!("too many operations: at most {OPS_MAX} a backend")));
        }
        ops.push(op);
        spans.push(at);
        if !line.takes(';') {
            line.done("`;` or the end of the line", &["fails"])?;
            return Ok((BackendDecl { name: name.to_owned(), ops, database: connected }, name_at, spans));
        }
    }
}

fn op(line: &mut Line<'_, '_>) -> Result<Op, LitmusError> {
    let what = format!("one of {}", OPS.join(", "));
    let (word, _) = line.name(&what, &OPS)?;
    let with_key: fn(usize) -> Op = match word {
        "lookup" => Op::Lookup,
        "evict" => Op::Evict,
        "insert" => Op::Insert,
        "update" => Op::Update,
        "delete" => Op::Delete,
        "inplace" => Op::InPlace,
        "rewrite" => Op::Rewrite,
        "dropdb" => Op::DropDatabase,
        "accept" => return Ok(Op::Accept),
        "begin" => return Ok(Op::Begin),
        "end" => return Ok(Op::CommandEnd),
        "abort" => return Ok(Op::Abort),
        "subbegin" => return Ok(Op::SubBegin),
        "subcommit" => return Ok(Op::SubCommit),
        "subabort" => return Ok(Op::SubAbort),
        "commit" => return Ok(if line.takes_word("fails") { Op::CommitFails } else { Op::Commit }),
        _ => {
            line.at -= 1;
            return Err(line.expected(&what, &OPS));
        }
    };
    let names: Vec<&str> = line.reading.names().collect();
    if matches!(word, "lookup" | "evict") {
        let name = line.name("a key or a list", &names)?;
        return Ok(with_key(line.reading.item(name)?));
    }
    let name = line.name("a key", &names)?;
    if line.reading.litmus.lists.iter().any(|l| l.name == name.0) {
        let message = format!("`{}` is a list: rows are changed, and lists show it", name.0);
        return Err(line.reading.meaning(name.1, message));
    }
    Ok(with_key(line.reading.key(name)?))
}

pub(super) fn clause(line: &mut Line<'_, '_>) -> Result<Clause, LitmusError> {
    let mut conditions: Vec<Condition> = Vec::new();
    loop {
        let at = line.span();
        let condition = condition(line)?;
        if conditions.iter().any(|c| (c.backend, c.lookup) == (condition.backend, condition.lookup)) {
            return Err(line.reading.meaning(at, "the clause speaks of this lookup already"));
        }
        conditions.push(condition);
        if !line.takes_word("and") {
            line.done("`and`, `after` or the end of the line", &["and", "after"])?;
            return Ok(Clause { conditions });
        }
    }
}

fn condition(line: &mut Line<'_, '_>) -> Result<Condition, LitmusError> {
    let litmus = &line.reading.litmus;
    let names: Vec<&str> = litmus.backends.iter().map(|b| b.name.as_str()).collect();
    let (name, at) = line.name("a backend", &names)?;
    let backend = line.reading.backend((name, at))?;
    let lookups: Vec<usize> = litmus.backends[backend].lookups().collect();
    let plural = |n: usize| if n == 1 { "1 lookup".to_owned() } else { format!("{n} lookups") };
    let lookup = if line.takes('.') {
        let (number, at) = line.number("the number of a lookup")?;
        if number == 0 || number as usize > lookups.len() {
            let message = format!("`{name}` has {}, counted from 1", plural(lookups.len()));
            return Err(line.reading.meaning(at, message));
        }
        number as usize - 1
    } else if lookups.len() == 1 {
        0
    } else {
        let hint = (!lookups.is_empty()).then(|| format!("say which: `{name}.1`"));
        let message = format!("`{name}` has {}, not just one", plural(lookups.len()));
        return Err(line.reading.error(Fault::Meaning, at, message, hint));
    };
    line.mark('=')?;
    let value = value(line, lookups[lookup])?;
    let after = match line.takes_word("after") {
        false => None,
        true => {
            let other = line.name("a backend", &names)?;
            Some(line.reading.backend(other).and_then(|b| meaning::after(line.reading, backend, b, other.1))?)
        }
    };
    Ok(Condition { backend, lookup, value, after })
}

pub(super) fn value(line: &mut Line<'_, '_>, item: usize) -> Result<Value, LitmusError> {
    let name = line.reading.litmus.name_of(item);
    let Some(list) = line.reading.litmus.list(item) else {
        let row = row(line, item)?;
        let at = line.span();
        if line.takes('+') {
            return Err(line.reading.meaning(at, format!("`{name}` is a key: it has one row")));
        }
        return Ok(row.map_or(Value::None, Value::Version));
    };
    let [first, second] = list.members;
    let first = row(line, first)?;
    let at = line.span();
    if !line.takes('+') {
        let hint = Some("say both, as in `v0+none`".to_owned());
        return Err(line.reading.error(Fault::Meaning, at, format!("`{name}` is a list: it has two rows"), hint));
    }
    Ok(Value::List([first, row(line, second)?]))
}

fn lists(line: &mut Line<'_, '_>) -> Result<Vec<ListDecl>, LitmusError> {
    let mut lists: Vec<ListDecl> = Vec::new();
    loop {
        let litmus = &line.reading.litmus;
        let taken: Vec<&str> = line.reading.names().chain(lists.iter().map(|l| l.name.as_str())).collect();
        let (name, at) = line.new_name("key or list", &taken)?;
        if litmus.lists.len() + lists.len() == LISTS_MAX {
            return Err(line.reading.meaning(at, format!("too many lists: at most {LISTS_MAX}")));
        }
        line.mark('=')?;
        let (cache, cache_at) = line.name("the name of a cache", &[])?;
        line.mark('/')?;
        let (hash, _) = line.number("a hash")?;
        if !line.takes_word("of") {
            return Err(line.expected("`of` and two keys", &["of"]));
        }
        let names: Vec<&str> = litmus.keys.iter().map(|k| k.name.as_str()).collect();
        let first = line.name("a key", &names)?;
        let second = line.name("a key", &names)?;
        let members = [line.reading.key(first)?, line.reading.key(second)?];
        let list = ListDecl { name: name.to_owned(), hash, members };
        meaning::list(line.reading, &lists, &list, cache, [cache_at, first.1, second.1])?;
        lists.push(list);
        if !line.takes(',') {
            line.done("`,` or the end of the line", &[])?;
            return Ok(lists);
        }
    }
}

fn row(line: &mut Line<'_, '_>, key: usize) -> Result<Option<u32>, LitmusError> {
    let what = "`none` or a version such as `v0`";
    let (word, at) = line.name(what, &["none"])?;
    if word == "none" {
        return Ok(None);
    }
    let digits = word.strip_prefix('v').filter(|d| !d.is_empty() && d.chars().all(|c| c.is_ascii_digit()));
    let Some(digits) = digits else {
        line.at -= 1;
        return Err(line.expected(what, &["none"]));
    };
    meaning::version(line.reading, key, digits.parse().ok(), at).map(Some)
}
