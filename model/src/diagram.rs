//! Runs for people: columns on a terminal, one per backend, and a sequence diagram for the Explorer.

use crate::coherence::state::{NONE, Row};
use crate::coherence::{Action, Op, Program, Seen, State, Step};
use std::fmt::Write;

/// A row as litmus files write it.
pub fn row(row: Row) -> String {
    match row {
        Row::UNKNOWN => "-".into(),
        row if row.present() => format!("v{}", row.version()),
        _ => "none".into(),
    }
}

/// An operation as litmus files write it.
pub fn op(program: &Program, op: Op) -> String {
    let key = op.key().map(|k| program.keys[k as usize].name.clone()).unwrap_or_default();
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
        Op::Abort => "abort",
        Op::Evict(_) => "evict",
    };
    format!("{word} {key}").trim_end().into()
}

/// An action: who takes which step.
pub fn action(program: &Program, a: &Action) -> String {
    let name = &program.plans[a.backend as usize].name;
    match a.step {
        Step::Token | Step::Evict if a.choice != 0 && a.choice != u16::from(NONE) => {
            format!("{name}: {:?} {}", a.step, a.choice)
        }
        _ => format!("{name}: {:?}", a.step),
    }
}

/// What a step saw, in a few words; empty where it saw nothing.
pub fn seen(program: &Program, next: &State, seen: Seen) -> String {
    let key = |slot: u8| {
        let entry = &next.slots[slot as usize];
        let name = program.keys.get(entry.key as usize).map_or("-", |k| k.name.as_str());
        format!("{name} {} @{}", row(entry.row), entry.token)
    };
    match seen {
        Seen::Nothing => String::new(),
        Seen::Row { present } => if present { "row" } else { "no row" }.into(),
        Seen::Messages { reset: true, .. } => "reset".into(),
        Seen::Messages { count, .. } => format!("{count} messages"),
        Seen::Found(None) => "nothing".into(),
        Seen::Found(Some(slot)) => key(slot),
        Seen::Stamp(s) => format!("mark {} open {}", s.mark, s.open),
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

/// A step with the state that it led to.
pub fn step(program: &Program, next: &State, a: &Action, s: Seen) -> String {
    let mut text = action(program, a);
    let saw = seen(program, next, s);
    if !saw.is_empty() {
        let _ = write!(text, " ({saw})");
    }
    let stamps: Vec<String> = next.stamps.iter().map(|s| format!("{}/{}", s.mark, s.open)).collect();
    let _ = write!(text, "\nclock {}   stamps mark/open {}", next.clock, stamps.join(" "));
    for (k, c) in program.keys.iter().zip(&next.catalog) {
        let _ = write!(text, "\n{}: committed {}", k.name, row(c.committed));
    }
    for slot in next.slots.iter().filter(|s| s.key != NONE) {
        let name = &program.keys[slot.key as usize].name;
        let _ = write!(text, "\n{:?} {name} {} token {}", slot.life, row(slot.row), slot.token);
    }
    for (plan, b) in program.plans.iter().zip(&next.backends) {
        let view: Vec<String> = program
            .keys
            .iter()
            .zip(&b.local)
            .filter(|(_, l)| l.row.known())
            .map(|(k, l)| format!("{}={}{}", k.name, row(l.row), if l.slot == NONE { " private" } else { "" }))
            .collect();
        let token = b.snapshot.as_ref().map(|s| format!("  snapshot @{}", s.token)).unwrap_or_default();
        let _ = write!(text, "\n{}: {:?}  view {{{}}}{token}", plan.name, b.pc, view.join(", "));
    }
    if let Some(broken) = next.broken {
        let _ = write!(text, "\nBROKEN: {} -- {}", broken.name(), broken.about());
    }
    text
}

/// A run as columns, one per backend, each line a step; the last line says what it broke.
pub fn columns(program: &Program, actions: &[Action]) -> String {
    let mut state = State::initial(program);
    let mut lines = Vec::new();
    for a in actions {
        let at = a.backend as usize;
        let starts = state.backends[at].pc == crate::coherence::state::Pc::Idle && state.backends[at].idle();
        let Some((next, s)) = program.step(&state, *a) else {
            lines.push((at, format!("{:?} is not possible here", a.step)));
            break;
        };
        let mut text = String::new();
        if starts {
            let b = &state.backends[at];
            let (item, nth) = if b.item == NONE { (a.choice as usize, 0) } else { (b.item as usize, b.at as usize) };
            if let Some(o) = program.plans[at].items.get(item).and_then(|i| i.get(nth)) {
                text = format!("[{}] ", op(program, *o));
            }
        }
        let _ = write!(text, "{:?}", a.step);
        let saw = seen(program, &next, s);
        if !saw.is_empty() {
            let _ = write!(text, " ({saw})");
        }
        let (before, after) = (&state.backends[at], &next.backends[at]);
        let finished = before.key != NONE && after.key == NONE || a.step == Step::LocalHit;
        let answered = (0..program.keys.len())
            .find(|k| after.stable[*k].known() && (before.key == *k as u8 || a.step == Step::LocalHit) && finished);
        if let Some(k) = answered {
            let _ = write!(text, " => {} = {}", program.keys[k].name, row(after.stable[k]));
        }
        lines.push((at, text));
        state = next;
    }
    let widths: Vec<usize> = (0..program.plans.len())
        .map(|b| {
            let longest = lines.iter().filter(|(at, _)| *at == b).map(|(_, t)| t.chars().count()).max().unwrap_or(0);
            longest.max(program.plans[b].name.chars().count())
        })
        .collect();
    let mut out = String::new();
    for (plan, width) in program.plans.iter().zip(&widths) {
        let _ = write!(out, "{:<width$}  ", plan.name);
    }
    out = format!("     {}\n", out.trim_end());
    for (i, (at, text)) in lines.iter().enumerate() {
        let indent: usize = widths[..*at].iter().map(|w| w + 2).sum();
        let _ = writeln!(out, "{:>3}  {:indent$}{text}", i + 1, "");
    }
    if let Some(broken) = state.broken {
        let _ = writeln!(out, "     breaks {}: {}", broken.name(), broken.about().trim());
    }
    out
}

/// A run as a sequence diagram: one lifeline per backend, one for the shared segment, one for the catalog.
pub fn svg(program: &Program, path: &[(State, Option<Action>)]) -> String {
    let lanes = program.plans.len();
    let (left, lane, top, line) = (20, 190, 40, 26);
    let x = |i: usize| left + lane * i + lane / 2;
    let steps: Vec<(&State, Action)> = path.iter().filter_map(|(s, a)| a.map(|a| (s, a))).collect();
    let (width, height) = (left * 2 + lane * (lanes + 2), top + line * (steps.len() + 2));
    let mut out = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' viewBox='0 0 {width} {height}' \
         font-family='sans-serif' font-size='12'><rect width='{width}' height='{height}' fill='white'/>"
    );
    let names = program.plans.iter().map(|p| p.name.as_str()).chain(["segment", "catalog"]);
    for (i, name) in names.enumerate() {
        let _ = write!(
            out,
            "<text x='{0}' y='20' text-anchor='middle' font-weight='bold'>{1}</text>\
             <line x1='{0}' y1='28' x2='{0}' y2='{2}' stroke='#bbb'/>",
            x(i),
            escape(name),
            height - 8
        );
    }
    for (i, (state, a)) in steps.iter().enumerate() {
        let y = top + line * (i + 1);
        let from = x(a.backend as usize);
        let Some((next, s)) = program.step(state, *a) else { continue };
        let saw = seen(program, &next, s);
        let label = if saw.is_empty() { format!("{:?}", a.step) } else { format!("{:?} ({saw})", a.step) };
        let to = match a.step {
            Step::LocalHit | Step::CommandEnd => None,
            Step::Snapshot | Step::Scan | Step::Write | Step::Log | Step::Visible | Step::Unlock | Step::Undo => {
                Some(x(lanes + 1))
            }
            _ => Some(x(lanes)),
        };
        let colour = if next.broken.is_some() { "#c00" } else { "#036" };
        match to {
            Some(to) => {
                let _ = write!(
                    out,
                    "<line x1='{from}' y1='{y}' x2='{to}' y2='{y}' stroke='{colour}'/>\
                     <circle cx='{to}' cy='{y}' r='3' fill='{colour}'/>"
                );
            }
            None => {
                let _ = write!(out, "<circle cx='{from}' cy='{y}' r='4' fill='{colour}'/>");
            }
        }
        let _ = write!(out, "<text x='{}' y='{}' fill='{colour}'>{}</text>", from + 6, y - 4, escape(&label));
        if let Some(broken) = next.broken {
            let at = y + line - 8;
            let _ = write!(out, "<text x='{from}' y='{at}' fill='#c00'>breaks {}</text>", escape(broken.name()));
        }
    }
    out.push_str("</svg>");
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
