//! Runs for people: columns on a terminal, one per backend, and a sequence diagram for the Explorer.

use crate::coherence::state::{Life, NONE, Own, Pc, Row};
use crate::coherence::{Action, KeySpec, Op, Program, Property, Seen, State, Step};
use crate::search::step_on;
use std::fmt::Write;

/// A row as litmus files write it.
pub fn row(row: Row) -> String {
    match row {
        Row::UNKNOWN => "-".into(),
        row if row.present() => format!("v{}", row.version()),
        _ => "none".into(),
    }
}

/// What an entry shows: a row, or those of a list.
fn rows(shown: &[Row]) -> String {
    let known: Vec<String> = shown.iter().filter(|r| r.known()).map(|r| row(*r)).collect();
    known.join("+")
}

/// An operation as litmus files write it.
pub fn op(program: &Program, op: Op) -> String {
    let key = op.key().map(|k| program.name(k)).unwrap_or_default();
    let word = match op {
        Op::Lookup(_) => "lookup",
        Op::Accept => "accept",
        Op::Begin => "begin",
        Op::Insert(_) => "insert",
        Op::Update(_) => "update",
        Op::Delete(_) => "delete",
        Op::CommandEnd => "end",
        Op::Commit => "commit",
        Op::CommitFails => "commit fails",
        Op::SubBegin => "subbegin",
        Op::SubCommit => "subcommit",
        Op::SubAbort => "subabort",
        Op::Abort => "abort",
        Op::Evict(_) => "evict",
        Op::InPlace(_) => "inplace",
        Op::Rewrite(_) => "rewrite",
        Op::DropDatabase(_) => "dropdb",
    };
    format!("{word} {key}").trim_end().into()
}

/// A program in words: its keys and sizes, then who may do what.
pub fn program(program: &Program) -> String {
    let database = |n: u8| if n == 1 { String::new() } else { format!(" database {n}") };
    let key = |k: &KeySpec| {
        let (absent, toasted) = (if k.present { "" } else { " absent" }, if k.toasted { " toasted" } else { "" });
        format!("{} = {}/{}{absent}{toasted}{}", k.name, k.cache, k.hash, database(k.database))
    };
    let keys: Vec<String> = program.keys.iter().map(key).collect();
    let mut text = format!("keys {}", keys.join(", "));
    for list in &program.lists {
        let [first, second] = list.members.map(|k| program.name(k));
        let _ = write!(text, "; list {} of {first} {second}", list.name);
    }
    let _ = write!(text, "; stripes {}, ring {}", program.stripes, program.ring);
    for (what, size) in [("entries", program.entries), ("local", program.local), ("escalate", program.escalate)] {
        if let Some(size) = size {
            let _ = write!(text, ", {what} {size}");
        }
    }
    for plan in &program.plans {
        let item = |ops: &Vec<Op>| ops.iter().map(|o| op(program, *o)).collect::<Vec<_>>().join("; ");
        let items: Vec<String> = plan.items.iter().map(item).collect();
        let how = match (plan.starts, items.len()) {
            (1, 1) => String::new(),
            (n, 1) => format!("up to {n} times "),
            (n, _) => format!("up to {n} of "),
        };
        let _ = write!(text, "\nbackend {}{}: {how}{}", plan.name, database(plan.database), items.join(" | "));
    }
    text
}

/// A step with its choice, where there is one.
fn step_text(a: &Action) -> String {
    match a.step {
        Step::Token => format!("Token {}", a.choice),
        Step::Evict if a.choice == u16::from(NONE) => "Evict nothing".into(),
        Step::Evict => format!("Evict slot {}", a.choice),
        step => format!("{step:?}"),
    }
}

/// The operation that a backend starts with `choice`, if it is to start one.
fn starts(program: &Program, state: &State, at: usize, choice: u16) -> Option<Op> {
    let b = &state.backends[at];
    if !b.idle() {
        return None;
    }
    let (item, nth) = if b.item == NONE { (choice as usize, 0) } else { (b.item as usize, b.at as usize) };
    program.plans[at].items.get(item)?.get(nth).copied()
}

/// An action in the state in which it is taken: who, what it starts, which step.
pub fn action(program: &Program, state: &State, a: &Action) -> String {
    let at = a.backend as usize;
    let name = &program.plans[at].name;
    match starts(program, state, at, a.choice) {
        // The slot of an operation `evict` is not a choice.
        Some(o) => format!("{name}: [{}] {:?}", op(program, o), a.step),
        None => format!("{name}: {}", step_text(a)),
    }
}

/// "1 message", "2 messages".
fn count_of(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// What a step saw, in a few words; empty where it saw nothing.
pub fn seen(program: &Program, next: &State, seen: Seen) -> String {
    let key = |slot: u8| {
        let entry = &next.slots[slot as usize];
        let name = if entry.key == NONE { "-" } else { program.name(entry.key) };
        format!("{name} {} @{}", rows(&entry.rows()), entry.token)
    };
    match seen {
        Seen::Nothing => String::new(),
        Seen::Row { present } => if present { "row" } else { "no row" }.into(),
        Seen::Messages { reset: true, .. } => "reset".into(),
        Seen::Messages { count, .. } => count_of(usize::from(count), "message"),
        Seen::Found(None) => "nothing".into(),
        Seen::Found(Some(slot)) => key(slot),
        Seen::Stamp(s) => format!("mark {}, open {}", s.mark, s.open),
        Seen::Clock(c) => format!("clock {c}"),
        Seen::Slot(None) => "full".into(),
        Seen::Slot(Some(slot)) => format!("slot {slot}"),
        Seen::Published { slot, existing: true, .. } => format!("stays: {}", key(slot)),
        Seen::Published { slot, .. } => key(slot),
        Seen::Unlinked { slot, free } | Seen::Released { slot, free } => {
            format!("slot {slot}{}", if free { ", the last" } else { "" })
        }
        Seen::Evicted(None) => "nothing can go".into(),
        Seen::Evicted(Some(slot)) | Seen::Freed(slot) => format!("slot {slot}"),
        Seen::Fail => "refused".into(),
    }
}

/// One line of a run.
struct Line {
    /// Who.
    at: usize,
    /// The operation that begins here.
    starts: Option<String>,
    /// The step.
    step: String,
    /// What it saw; empty where it saw nothing.
    saw: String,
    /// What the operation that ends here answers.
    answer: Option<String>,
    /// The property that it breaks.
    breaks: Option<Property>,
    /// To whom it speaks.
    to: Partner,
    /// Does the backend stand between two operations now?
    ends: bool,
}

impl Line {
    /// The step, with what it saw.
    fn text(&self) -> String {
        if self.saw.is_empty() { self.step.clone() } else { format!("{} ({})", self.step, self.saw) }
    }
}

/// Whose data a step touches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Partner {
    Nobody,
    Segment,
    Catalog,
}

fn partner(step: Step) -> Partner {
    match step {
        Step::LocalHit | Step::CommandEnd | Step::SubBegin | Step::SubCommit => Partner::Nobody,
        Step::Snapshot
        | Step::Scan
        | Step::Write
        | Step::Lock
        | Step::Overwrite
        | Step::Log
        | Step::Visible
        | Step::Unlock
        | Step::Undo
        | Step::SubAbort => Partner::Catalog,
        Step::Accept
        | Step::Find
        | Step::Check
        | Step::Unlink
        | Step::Token
        | Step::Allocate
        | Step::Evict
        | Step::Publish
        | Step::Release
        | Step::Free
        | Step::Open
        | Step::Advance
        | Step::Close
        | Step::Withdraw
        | Step::Send => Partner::Segment,
    }
}

/// Tells a step, taken in `state` and leading to `next`.
fn line(program: &Program, state: &State, a: &Action, next: &State, s: Seen) -> Line {
    let at = a.backend as usize;
    let started = starts(program, state, at, a.choice);
    let (before, after) = (&state.backends[at], &next.backends[at]);
    let key = match started {
        Some(Op::Lookup(k)) => Some(k),
        _ => (before.key != NONE).then_some(before.key),
    };
    let ends = after.pc == Pc::Idle;
    let answer = key.map(|k| (k, &after.stable[program.cells(k)])).filter(|(_, shown)| ends && shown[0].known());
    let answer = answer.map(|(k, shown)| format!("{} = {}", program.name(k), rows(shown)));
    Line {
        at,
        starts: started.map(|o| op(program, o)),
        step: format!("{:?}", a.step),
        saw: seen(program, next, s),
        answer,
        breaks: next.broken,
        to: partner(a.step),
        ends,
    }
}

/// A run from the start, told, also past a property that it breaks; and the state that it ends in. An action that can't be
/// taken ends it, and says so.
fn tell(program: &Program, actions: &[Action]) -> (Vec<Line>, State) {
    let mut state = State::initial(program);
    let mut lines: Vec<Line> = Vec::new();
    for a in actions {
        let Some((next, s)) = step_on(program, state.clone(), *a) else {
            let (at, step) = (a.backend as usize, format!("{:?} is not possible here", a.step));
            let (saw, to) = (String::new(), Partner::Nobody);
            lines.push(Line { at, starts: None, step, saw, answer: None, breaks: None, to, ends: false });
            break;
        };
        let told = line(program, &state, a, &next, s);
        // What is wrong from then on follows from the first.
        let before = lines.iter().any(|l| l.breaks.is_some());
        lines.push(Line { breaks: told.breaks.filter(|_| !before), ..told });
        state = next;
    }
    (lines, state)
}

/// "nobody can go on: a before [update l], waits for a lock; b ...", if that is so and not all have finished.
fn deadlock(program: &Program, s: &State) -> Option<String> {
    let s = State { broken: None, ..s.clone() };
    let backends = 0..s.backends.len();
    if s.finished() || !backends.clone().all(|b| program.choices(&s, b).is_empty()) {
        return None;
    }
    let stuck = backends.filter(|b| !s.backends[*b].idle() || s.backends[*b].item != NONE);
    let each: Vec<String> = stuck.map(|b| format!("{} {}", program.plans[b].name, stands(program, &s, b))).collect();
    Some(format!("nobody can go on: {}", each.join("; ")))
}

/// What a run breaks, and at which of its lines, counted from 0.
fn broken(lines: &[Line]) -> Option<(usize, Property)> {
    lines.iter().enumerate().find_map(|(i, l)| Some((i, l.breaks?)))
}

/// "breaks I1: Every ..."; with the step where it is not the last.
fn breaks(lines: &[Line]) -> Option<String> {
    let (at, property) = broken(lines)?;
    let step = if at + 1 == lines.len() { String::new() } else { format!("step {} ", at + 1) };
    Some(format!("{step}breaks {}: {}", property.name(), property.about().trim()))
}

/// A step of a run, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Who takes it.
    pub backend: String,
    /// The operation that begins with it.
    pub operation: Option<String>,
    /// Its name.
    pub step: String,
    /// What it saw; empty where it saw nothing.
    pub saw: String,
    /// What the operation that ends with it answers.
    pub answer: Option<String>,
    /// The property that the run breaks with it.
    pub breaks: Option<Property>,
}

/// A run, step by step.
pub fn told(program: &Program, actions: &[Action]) -> Vec<Told> {
    let one = |l: Line| Told {
        backend: program.plans[l.at].name.clone(),
        operation: l.starts,
        step: l.step,
        saw: l.saw,
        answer: l.answer,
        breaks: l.breaks,
    };
    tell(program, actions).0.into_iter().map(one).collect()
}

/// A step, what it saw, and the state that it leads to.
pub fn step(program: &Program, before: &State, a: &Action) -> Option<String> {
    let (next, s) = program.step(before, *a)?;
    let line = line(program, before, a, &next, s);
    let text = line.text();
    let starts = line.starts.map(|o| format!("[{o}] ")).unwrap_or_default();
    let answer = line.answer.map(|o| format!(" => {o}")).unwrap_or_default();
    let name = &program.plans[line.at].name;
    Some(format!("{name}: {starts}{text}{answer}\n\n{}", state(program, &next)))
}

/// A state in words: what is shared, then each backend.
pub fn state(program: &Program, s: &State) -> String {
    let mut text = format!("clock {}, {} sent", s.clock, count_of(usize::from(s.ring.tail), "message"));
    for (i, stamp) in s.stamps.iter().enumerate() {
        let keys = (0..program.items()).filter(|k| program.stamps_of(*k as u8).any(|s| s == i));
        let keys: Vec<&str> = keys.map(|k| program.name(k as u8)).collect();
        if !keys.is_empty() {
            let _ = write!(text, "\nstamp {i} ({}): mark {}, open {}", keys.join(", "), stamp.mark, stamp.open);
        }
    }
    for (k, c) in program.keys.iter().zip(&s.catalog) {
        let owner = program.plans.get(c.owner as usize).map(|p| format!(", locked by {}", p.name)).unwrap_or_default();
        let _ = write!(text, "\ncatalog {}: committed {}{owner}", k.name, row(c.committed));
    }
    for (i, slot) in s.slots.iter().enumerate().filter(|(_, slot)| slot.key != NONE) {
        let life = match slot.life {
            Life::Linked if program.stamps_of(slot.key).all(|i| s.stamps[i].good(slot.token)) => "valid".into(),
            Life::Linked => "not valid".into(),
            life => format!("{life:?}").to_lowercase(),
        };
        let name = program.name(slot.key);
        let _ = write!(text, "\nentry {i}: {name} = {}, token {}: {life}", rows(&slot.rows()), slot.token);
        if program.memory() {
            let _ = write!(text, ", {}", count_of(usize::from(slot.references), "reference"));
        }
    }
    for at in 0..s.backends.len() {
        let _ = write!(text, "\n{}: {}", program.plans[at].name, place(program, s, at));
    }
    if let Some(broken) = s.broken {
        let _ = write!(text, "\nBROKEN {}:{}", broken.name(), broken.about());
    }
    text
}

/// Where a backend stands.
fn stands(program: &Program, s: &State, at: usize) -> String {
    let b = &s.backends[at];
    // What it would do if nothing were broken.
    let next = program.choices(&State { broken: None, ..s.clone() }, at).first().map(|(step, _)| *step);
    let within = program.plans[at].items.get(b.item as usize).and_then(|i| i.get(b.at as usize));
    let within = within.map(|o| op(program, *o));
    match (within, next) {
        (Some(o), Some(step)) if b.pc == Pc::Idle => format!("before [{o}], next {step:?}"),
        (Some(o), Some(step)) => format!("in [{o}], next {step:?}"),
        (Some(o), None) => format!("before [{o}], waits for a lock"),
        (None, Some(step)) if !b.idle() => format!("between operations, next {step:?}"),
        (None, Some(_)) => format!("idle, may start {} more", b.starts),
        (None, None) if b.starts > 0 => format!("idle, may start {} more, waits for a lock", b.starts),
        (None, None) => "done".into(),
    }
}

/// Where a backend stands, and what it keeps for itself.
fn place(program: &Program, s: &State, at: usize) -> String {
    let b = &s.backends[at];
    let mut text = stands(program, s, at);
    let of_keys = |shown: &dyn Fn(usize) -> Option<String>| -> String {
        let texts = (0..program.items()).filter_map(|k| Some(format!("{} = {}", program.name(k as u8), shown(k)?)));
        texts.collect::<Vec<_>>().join(", ")
    };
    let mut add = |what: &str, shown: String| {
        if !shown.is_empty() {
            let _ = write!(text, "\n    {what}{shown}");
        }
    };
    add(
        "local view: ",
        of_keys(&|k| {
            let local = b.local[k];
            let private = if local.slot == NONE && program.memory() { " (private)" } else { "" };
            local.row.known().then(|| format!("{}{private}", rows(&local.rows())))
        }),
    );
    if let Some(snapshot) = &b.snapshot {
        let seen = of_keys(&|k| Some(row(*snapshot.rows.get(k)?)));
        add("snapshot: ", format!("token {}, {seen}", snapshot.token));
    }
    let own = |of: fn(&Own) -> Row| of_keys(&|k| b.own.get(k).map(of).filter(|own| own.known()).map(row));
    add("own changes: ", own(|own| own.finished));
    add("own changes of this command: ", own(|own| own.pending));
    match s.ring.tail.saturating_sub(b.position) {
        _ if b.reset => add("", "has fallen behind: a reset awaits it".into()),
        0 => {}
        unread => add("messages unread: ", unread.to_string()),
    }
    if b.doomed {
        add("", "the running load is doomed".into());
    }
    text
}

/// A run as columns, one per backend, each line a step; the last line says what it broke, and with which step where
/// that is not the last.
pub fn columns(program: &Program, actions: &[Action]) -> String {
    let (lines, end) = tell(program, actions);
    let texts: Vec<(usize, String)> = lines
        .iter()
        .map(|l| {
            let starts = l.starts.as_ref().map(|o| format!("[{o}] ")).unwrap_or_default();
            let answer = l.answer.as_ref().map(|o| format!(" => {o}")).unwrap_or_default();
            (l.at, format!("{starts}{}{answer}", l.text()))
        })
        .collect();
    let widths: Vec<usize> = (0..program.plans.len())
        .map(|b| {
            let longest = texts.iter().filter(|(at, _)| *at == b).map(|(_, t)| t.chars().count()).max().unwrap_or(0);
            longest.max(program.plans[b].name.chars().count())
        })
        .collect();
    let mut out = String::new();
    for (plan, width) in program.plans.iter().zip(&widths) {
        let _ = write!(out, "{:<width$}  ", plan.name);
    }
    out = format!("     {}\n", out.trim_end());
    for (i, (at, text)) in texts.iter().enumerate() {
        let indent: usize = widths[..*at].iter().map(|w| w + 2).sum();
        let _ = writeln!(out, "{:>3}  {:indent$}{text}", i + 1, "");
    }
    if let Some(breaks) = breaks(&lines) {
        let _ = writeln!(out, "     {breaks}");
    }
    if let Some(deadlock) = deadlock(program, &end) {
        let _ = writeln!(out, "     {deadlock}");
    }
    out
}

/// Pixels that a text of so many characters takes at most, at the size of the diagram.
fn pixels(text: &str) -> usize {
    text.chars().count() * 7
}

/// A run as a sequence diagram: one lifeline per backend, one for the shared segment, one for the catalog.
///
/// Left of a lifeline stands the operation that begins, right of it the step with what it saw and answered. A bar on the
/// lifeline lasts as long as the operation.
pub fn svg(program: &Program, actions: &[Action]) -> String {
    const TOP: usize = 46;
    const ROW: usize = 26;
    const GAP: usize = 110;
    let (lines, _) = tell(program, actions);
    let names: Vec<&str> = program.plans.iter().map(|p| p.name.as_str()).chain(["segment", "catalog"]).collect();
    let right = |l: &Line| pixels(&l.text()) + l.answer.as_deref().map_or(0, |a| pixels(a) + 30);
    let left = |l: &Line| l.starts.as_deref().map_or(0, pixels);
    let widest =
        |at: usize, of: &dyn Fn(&Line) -> usize| lines.iter().filter(|l| l.at == at).map(of).max().unwrap_or(0);
    // Between two lifelines there is room for what stands right of the one or left of the other, never in one row.
    let mut xs = vec![30 + widest(0, &left).max(pixels(names[0]) / 2) + 12];
    for at in 0..names.len() - 1 {
        let room = widest(at, &right).max(widest(at + 1, &left)) + 24;
        let names = (pixels(names[at]) + pixels(names[at + 1])) / 2 + 24;
        xs.push(xs[at] + room.max(names).max(GAP));
    }
    let width = xs[xs.len() - 1] + 60;
    let at_fault = broken(&lines).map(|(at, _)| at);
    let broken = breaks(&lines).map_or(Vec::new(), |text| wrap(&text, (width - 60) / 7));
    let bottom = TOP + ROW * (lines.len() + 1);
    let height = bottom + 18 * broken.len() + 8;
    let mut out = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' viewBox='0 0 {width} {height}' \
         style='max-width:100%;height:auto' font-family='sans-serif' font-size='12'><rect width='{width}' height='{height}' fill='white'/>"
    );
    for (x, name) in xs.iter().zip(&names) {
        let _ = write!(
            out,
            "<text x='{x}' y='20' text-anchor='middle' font-weight='bold' fill='#000'>{}</text>\
             <line x1='{x}' y1='28' x2='{x}' y2='{bottom}' stroke='#bbb'/>",
            escape(name)
        );
    }
    bars(&mut out, &lines, &xs, |i| TOP + ROW * (i + 1), bottom);
    for (i, l) in lines.iter().enumerate() {
        let y = TOP + ROW * (i + 1);
        let x = xs[l.at];
        let colour = if at_fault == Some(i) { "#c00" } else { "#036" };
        let _ = write!(out, "<text x='6' y='{}' fill='#777'>{}</text>", y + 4, i + 1);
        match l.to {
            Partner::Nobody => _ = write!(out, "<circle cx='{x}' cy='{y}' r='4' fill='{colour}'/>"),
            to => {
                let to = if to == Partner::Segment { xs[xs.len() - 2] } else { xs[xs.len() - 1] };
                let _ = write!(
                    out,
                    "<line x1='{x}' y1='{y}' x2='{to}' y2='{y}' stroke='{colour}'/>\
                     <circle cx='{to}' cy='{y}' r='3' fill='{colour}'/>"
                );
            }
        }
        // The white seam keeps a text readable where a lifeline runs behind it.
        let seam = "stroke='white' stroke-width='3' paint-order='stroke'";
        if let Some(starts) = &l.starts {
            let (x, y) = (x - 10, y + 4);
            let _ = write!(
                out,
                "<text x='{x}' y='{y}' text-anchor='end' font-weight='bold' fill='#000' {seam}>{}</text>",
                escape(starts)
            );
        }
        let answer = l.answer.as_deref().map_or(String::new(), |a| {
            format!("<tspan dx='6' font-weight='bold' fill='#060'>=&gt; {}</tspan>", escape(a))
        });
        let (x, y, text) = (x + 9, y - 5, escape(&l.text()));
        let _ = write!(out, "<text x='{x}' y='{y}' fill='{colour}' {seam}>{text}{answer}</text>");
    }
    for (i, text) in broken.iter().enumerate() {
        let y = bottom + 18 * i + 12;
        let _ = write!(out, "<text x='30' y='{y}' fill='#c00' font-weight='bold'>{}</text>", escape(text));
    }
    out.push_str("</svg>");
    out
}

/// The bars on the lifelines: from the row in which an operation begins to that in which it ends, or to the bottom.
fn bars(out: &mut String, lines: &[Line], xs: &[usize], y: impl Fn(usize) -> usize, bottom: usize) {
    for (i, l) in lines.iter().enumerate().filter(|(_, l)| l.starts.is_some()) {
        let end = (i..lines.len()).find(|j| lines[*j].at == l.at && lines[*j].ends).map_or(bottom, |j| y(j) + 6);
        let (x, from) = (xs[l.at] - 4, y(i) - 6);
        let _ = write!(
            out,
            "<rect x='{x}' y='{from}' width='8' height='{}' fill='#cde' stroke='#89a'/>",
            end.saturating_sub(from)
        );
    }
}

/// Text in lines of at most so many characters, where its words allow it.
fn wrap(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
