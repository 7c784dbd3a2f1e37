//! An outcome that somebody asks for: the whole of it, as `conform` prints it, or conditions, as a clause has them.
//!
//! ```text
//! reader: v0, v1 after writer   writer: v1       what these backends answered, lookup by lookup; others may have any answers
//! reader.2 = v1 after writer and writer = v1     what these lookups answered; others may have any answers
//! ```
//!
//! In the first form `after` is as exact as it is in print: `v0` alone says that the lookup began after nobody's commit or
//! abort. In the second, `v0` alone leaves that open.

use super::lex::{Span, Token, tokens};
use super::parse::{Line, Reading, clause, value};
use super::{Answer, Litmus, LitmusError, Value};

/// What a lookup is to have answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Index into [`Litmus::backends`].
    pub backend: usize,
    /// Which of its lookups, counted from 0.
    pub lookup: usize,
    /// The answer.
    pub value: Value,
    /// Whose last commit or abort had returned when it began.
    pub after: Since,
}

/// Whose last commit or abort had returned when a lookup began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// Anybody's.
    Any,
    /// This backend's, perhaps others' too.
    With(usize),
    /// Just these, one bit each.
    Just(u8),
}

/// An outcome that is asked for: all of this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted(
    /// Each about another lookup.
    pub Vec<Want>,
);

impl Want {
    /// Is this the answer?
    pub fn is(&self, answer: Answer) -> bool {
        let since = match self.after {
            Since::Any => true,
            Since::With(backend) => answer.after & (1 << backend) != 0,
            Since::Just(backends) => answer.after == backends,
        };
        since && answer.value == self.value
    }
}

impl Wanted {
    /// Reads an outcome of `litmus`.
    ///
    /// # Errors
    /// It is not one; with the place.
    pub fn parse(litmus: &Litmus, text: &str) -> Result<Wanted, LitmusError> {
        // It is one line, wherever it was copied from.
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if litmus.lookups() == 0 && text.trim() == "no lookups" {
            return Ok(Wanted(Vec::new()));
        }
        let reading = Reading::of_line("outcome", &text, litmus.clone());
        let cut = tokens(1, &text);
        // As it stands in a file.
        let clause_of_file =
            matches!(cut.as_slice(), [(Token::Word("never" | "sometimes"), _), (Token::Word(_), _), ..]);
        let cut = &cut[usize::from(clause_of_file)..];
        let end = cut.last().map_or(1, |(_, last)| last.column + last.width);
        let mut line = Line::new(&reading, cut, Span { line: 1, column: end, width: 1 });
        if matches!(cut, [_, (Token::Mark(':'), _), ..]) {
            return printed(&mut line).map(Wanted);
        }
        let wants = clause(&mut line)?.conditions.into_iter().map(|c| Want {
            backend: c.backend,
            lookup: c.lookup,
            value: c.value,
            after: c.after.map_or(Since::Any, Since::With),
        });
        Ok(Wanted(wants.collect()))
    }

    /// Are all lookups answered, and as they are to be?
    pub fn holds(&self, answer: impl Fn(usize, usize) -> Option<Answer>) -> bool {
        self.0.iter().all(|want| answer(want.backend, want.lookup).is_some_and(|a| want.is(a)))
    }

    /// Has no lookup been answered otherwise yet?
    pub fn may_hold(&self, answer: impl Fn(usize, usize) -> Option<Answer>) -> bool {
        self.0.iter().all(|want| answer(want.backend, want.lookup).is_none_or(|a| want.is(a)))
    }

    /// The same answers, whoever had committed or aborted before.
    pub fn whenever(&self) -> Wanted {
        Wanted(self.0.iter().map(|want| Want { after: Since::Any, ..*want }).collect())
    }
}

/// `reader: v0, v1 after writer+other   writer: v1`
fn printed(line: &mut Line<'_, '_>) -> Result<Vec<Want>, LitmusError> {
    let litmus = &line.reading().litmus;
    let names: Vec<&str> = litmus.backends.iter().map(|b| b.name.as_str()).collect();
    let (mut wants, mut told): (Vec<Want>, Vec<usize>) = (Vec::new(), Vec::new());
    while line.peek().is_some() {
        let (name, at) = line.name("a backend", &names)?;
        let backend = line.reading().backend((name, at))?;
        if told.contains(&backend) {
            return Err(line.reading().meaning(at, format!("the answers of `{name}` are there already")));
        }
        told.push(backend);
        line.mark(':')?;
        let lookups: Vec<usize> = litmus.backends[backend].lookups().collect();
        let many = |n: usize| if n == 1 { "1 lookup".to_owned() } else { format!("{n} lookups") };
        for (lookup, key) in lookups.iter().enumerate() {
            if lookup > 0 && !line.takes(',') {
                let message = format!("`{name}` has {}: an answer is missing", many(lookups.len()));
                return Err(line.reading().meaning(line.span(), message));
            }
            let value = value(line, *key)?;
            let mut after = 0;
            if line.takes_word("after") {
                loop {
                    let (other, at) = line.name("a backend", &names)?;
                    let index = line.reading().backend((other, at))?;
                    if !litmus.backends[index].ops.iter().any(|op| op.ends_transaction()) {
                        return Err(line.reading().meaning(at, format!("`{other}` never commits or aborts")));
                    }
                    after |= 1 << index;
                    if !line.takes('+') {
                        break;
                    }
                }
            }
            wants.push(Want { backend, lookup, value, after: Since::Just(after) });
        }
        if lookups.is_empty() || line.peek() == Some(Token::Mark(',')) {
            let message = format!("`{name}` has {}: an answer too many", many(lookups.len()));
            return Err(line.reading().meaning(line.span(), message));
        }
    }
    Ok(wants)
}
