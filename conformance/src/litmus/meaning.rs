//! What the grammar can't say: transactions are begun and ended, rows are there when they must be, versions exist.

use super::lex::Span;
use super::parse::Reading;
use super::{Fault, Layer, ListDecl, LitmusError, Op};

/// Checks what concerns a whole program or the whole file.
pub(super) fn check(reading: &Reading<'_>) -> Result<(), LitmusError> {
    let litmus = &reading.litmus;
    if litmus.layer == Layer::Shared && litmus.local.is_some() {
        let at = reading.backend_spans[0];
        return Err(reading.meaning(at, "`layer shared` has no local view: leave `local` out or say `layer backend`"));
    }
    for backend in 0..litmus.backends.len() {
        databases(reading, backend)?;
        transactions(reading, backend)?;
        subtransactions(reading, backend)?;
        for key in 0..litmus.keys.len() {
            rows(reading, backend, key)?;
        }
    }
    Ok(())
}

/// A backend reads what is its own database's, or everybody's.
fn databases(reading: &Reading<'_>, backend: usize) -> Result<(), LitmusError> {
    let decl = &reading.litmus.backends[backend];
    for (&op, &at) in decl.ops.iter().zip(&reading.op_spans[backend]) {
        let Op::Lookup(item) = op else { continue };
        let (name, own, other) = (reading.litmus.name_of(item), decl.database, reading.litmus.database_of(item));
        if other != 0 && other != own {
            let message = format!("`{name}` is of database {other}, `{}` is connected to {own}", decl.name);
            let hint = Some(format!("`backend {} database {other}: …`", decl.name));
            return Err(reading.error(Fault::Meaning, at, message, hint));
        }
    }
    Ok(())
}

/// The members of a list are of one cache and database, of no other list, and in the order in which a scan finds them. `at`: where
/// the line names the cache and the members.
pub(super) fn list(
    reading: &Reading<'_>,
    others: &[ListDecl],
    list: &ListDecl,
    cache: &str,
    at: [Span; 3],
) -> Result<(), LitmusError> {
    let litmus = &reading.litmus;
    let [first, second] = list.members.map(|k| &litmus.keys[k]);
    let refuse = |at, message: String, hint: Option<String>| Err(reading.error(Fault::Meaning, at, message, hint));
    for (key, at) in [(first, at[1]), (second, at[2])] {
        if key.cache != cache {
            return refuse(at, format!("`{}` is of cache `{}`, not `{cache}`", key.name, key.cache), None);
        }
        if litmus.lists.iter().chain(others).any(|l| l.members.iter().any(|m| litmus.keys[*m].name == key.name)) {
            return refuse(at, format!("`{}` is of another list already", key.name), None);
        }
    }
    if list.members[0] == list.members[1] {
        return refuse(at[2], format!("`{}` is of the list already", second.name), None);
    }
    if first.database != second.database {
        return refuse(at[2], format!("`{}` and `{}` are of two databases", first.name, second.name), None);
    }
    if (first.hash, list.members[0]) > (second.hash, list.members[1]) {
        let message = "members stand in the order of their hashes, and then of the file".to_owned();
        return refuse(at[1], message, Some(format!("`of {} {}`", second.name, first.name)));
    }
    Ok(())
}

/// Transaction commands stand in pairs, writes within.
fn transactions(reading: &Reading<'_>, backend: usize) -> Result<(), LitmusError> {
    let decl = &reading.litmus.backends[backend];
    let mut begun: Option<Span> = None;
    for (&op, &at) in decl.ops.iter().zip(&reading.op_spans[backend]) {
        let outside = begun.is_none();
        let sub = matches!(op, Op::SubBegin | Op::SubCommit | Op::SubAbort);
        let needs = op.is_transactional() || op.ends_transaction() || op == Op::CommandEnd || sub;
        if needs && outside {
            let message = format!("`{}` outside a transaction", reading.litmus.op_text(op));
            return Err(reading.error(Fault::Meaning, at, message, Some("put `begin` before it".to_owned())));
        }
        if op == Op::Begin && !outside {
            let hint = Some("end the first one with `commit` or `abort`".to_owned());
            return Err(reading.error(Fault::Meaning, at, "`begin` inside a transaction".to_owned(), hint));
        }
        if op == Op::Begin {
            begun = Some(at);
        } else if op.ends_transaction() {
            begun = None;
        }
    }
    match begun {
        Some(at) => {
            let message = format!("this transaction of `{}` is never ended", decl.name);
            Err(reading.error(Fault::Meaning, at, message, Some("add `commit` or `abort`".to_owned())))
        }
        None => Ok(()),
    }
}

/// Subtransactions are begun before they are ended, and not in the middle of a command (A26).
fn subtransactions(reading: &Reading<'_>, backend: usize) -> Result<(), LitmusError> {
    let decl = &reading.litmus.backends[backend];
    let (mut depth, mut pending) = (0, false);
    for (&op, &at) in decl.ops.iter().zip(&reading.op_spans[backend]) {
        let refuse =
            |message: String, hint: &str| Err(reading.error(Fault::Meaning, at, message, Some(hint.to_owned())));
        match op {
            Op::SubBegin if pending => {
                let message = "`subbegin` while the command has changes that it has not ended with (A26)".to_owned();
                return refuse(message, "put `end` before it");
            }
            Op::SubBegin => depth += 1,
            Op::SubCommit | Op::SubAbort if depth == 0 => {
                let message = format!("`{}` outside a subtransaction", reading.litmus.op_text(op));
                return refuse(message, "put `subbegin` before it");
            }
            Op::SubCommit | Op::SubAbort => depth -= 1,
            _ if op.ends_transaction() => depth = 0,
            _ => {}
        }
        pending = match op {
            Op::Lookup(_) | Op::Accept | Op::Evict(_) | Op::InPlace(_) => pending,
            _ => op.is_transactional(),
        };
    }
    Ok(())
}

/// A row is inserted only where there is none, changed only where there is one, as far as that is certain: always if
/// nobody else writes the key, else only for what this very transaction has written (it holds the key's lock).
fn rows(reading: &Reading<'_>, backend: usize, key: usize) -> Result<(), LitmusError> {
    let litmus = &reading.litmus;
    let alone = litmus
        .backends
        .iter()
        .enumerate()
        .all(|(b, decl)| b == backend || decl.ops.iter().all(|op| !litmus.op_writes(*op, key)));
    let first = if alone { Some(!litmus.keys[key].absent) } else { None };
    let (mut committed, mut present) = (first, first);
    // What it was before each open subtransaction.
    let mut before = Vec::new();
    // Has the transaction replaced the row?
    let mut replaced = false;
    for (&op, &at) in litmus.backends[backend].ops.iter().zip(&reading.op_spans[backend]) {
        let name = &litmus.keys[key].name;
        if op.ends_transaction() {
            replaced = false;
        }
        if op.is_transactional() {
            replaced |= litmus.op_writes(op, key);
        }
        match (op, present) {
            (Op::InPlace(k), _) if k == key && replaced => {
                let message = format!("`{name}` was replaced by this very transaction: it would wait for itself");
                return Err(reading.error(Fault::Meaning, at, message, None));
            }
            (Op::DropDatabase(_), _) if litmus.op_writes(op, key) => present = Some(false),
            (Op::Insert(k), Some(true)) if k == key => {
                return Err(reading.error(
                    Fault::Meaning,
                    at,
                    format!("`{name}` has a row already"),
                    Some(format!("`update {name}`")),
                ));
            }
            (Op::Update(k) | Op::Delete(k) | Op::InPlace(k), Some(false)) if k == key => {
                return Err(reading.error(
                    Fault::Meaning,
                    at,
                    format!("`{name}` has no row here"),
                    Some(format!("`insert {name}`")),
                ));
            }
            (Op::Insert(k) | Op::Update(k), _) if k == key => present = Some(true),
            (Op::Delete(k), _) if k == key => present = Some(false),
            (Op::SubBegin, _) => before.push(present),
            (Op::SubCommit, _) => {
                before.pop();
            }
            // Not written before, so not locked: somebody else may have.
            (Op::SubAbort, _) => present = before.pop().flatten(),
            (Op::Commit, _) => {
                committed = if alone { present } else { None };
                present = committed;
            }
            (Op::Abort | Op::CommitFails, _) => present = committed,
            _ => {}
        }
        if op.ends_transaction() {
            before.clear();
        }
    }
    Ok(())
}

/// `after other` needs something that `other` ends.
pub(super) fn after(reading: &Reading<'_>, own: usize, other: usize, at: Span) -> Result<usize, LitmusError> {
    let name = &reading.litmus.backends[other].name;
    if own == other {
        return Err(reading.meaning(at, format!("the lookup is one of `{name}` itself: its program says the order")));
    }
    if !reading.litmus.backends[other].ops.iter().any(|op| op.ends_transaction()) {
        return Err(reading.meaning(at, format!("`{name}` never commits or aborts")));
    }
    Ok(other)
}

/// A version that no run can have is a slip of the pen, and would make `never` empty.
pub(super) fn version(reading: &Reading<'_>, key: usize, number: Option<u32>, at: Span) -> Result<u32, LitmusError> {
    let litmus = &reading.litmus;
    let (name, writes) = (&litmus.keys[key].name, litmus.writes(key));
    let Some(number) = number.filter(|n| *n as usize <= writes) else {
        let times = if writes == 1 { "once".to_owned() } else { format!("{writes} times") };
        return Err(reading.meaning(at, format!("`{name}` is written {times}: its last version is v{writes}")));
    };
    if number == 0 {
        let none = Some("before the first insert the answer is `none`".to_owned());
        return match litmus.keys[key].absent {
            true => Err(reading.error(Fault::Meaning, at, format!("`{name}` has no row at first"), none)),
            false => Ok(0),
        };
    }
    // Whose write is the n-th is known only if one backend writes them all.
    let mut writers = litmus.backends.iter().filter(|b| b.ops.iter().any(|op| litmus.op_writes(*op, key)));
    if let (Some(writer), None) = (writers.next(), writers.next()) {
        let nth = writer.ops.iter().filter(|op| litmus.op_writes(**op, key)).nth(number as usize - 1);
        if matches!(nth, Some(Op::Delete(_) | Op::DropDatabase(_))) {
            let hint = Some("say `none`".to_owned());
            return Err(reading.error(Fault::Meaning, at, format!("write {number} of `{name}` is a delete"), hint));
        }
    }
    Ok(number)
}
