//! What is wrong with a litmus file, said so that it can be put right at once: where, what was expected, and the
//! nearest word that would have been known.

use std::fmt;

/// Whether the text breaks the grammar, or keeps it and says something that can't be meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The text is not in the language that the grammar describes.
    Grammar,
    /// The text is in the language, but names something unknown, repeats itself, or describes what can't happen.
    Meaning,
}

/// A litmus file that was refused. Its `Display` shows the place the way a compiler does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LitmusError {
    /// Name of the file, as it was given.
    pub file: Box<str>,
    /// Line, counted from 1.
    pub line: usize,
    /// First column of what is wrong, counted in characters from 1.
    pub column: usize,
    /// How many characters are wrong; at least 1.
    pub width: usize,
    /// The line itself.
    pub text: Box<str>,
    /// Broken grammar or broken meaning.
    pub fault: Fault,
    /// What is wrong, and what was expected instead.
    pub message: Box<str>,
    /// What to do about it, when that can be guessed.
    pub hint: Option<Box<str>>,
}

impl fmt::Display for LitmusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        // One column a character, or the caret would stand elsewhere.
        let text: Vec<char> = self.text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let (text, before) = around(&text, self.column.saturating_sub(1));
        let caret = format!("{}{}", " ".repeat(before), "^".repeat(self.width.clamp(1, SHOWN)));
        writeln!(f, "{}", self.message)?;
        writeln!(f, "{margin}--> {}:{}:{}", self.file, self.line, self.column)?;
        writeln!(f, "{margin} |")?;
        writeln!(f, "{number} | {text}")?;
        write!(f, "{margin} | {caret}")?;
        if let Some(hint) = &self.hint {
            write!(f, "\n{margin} = hint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for LitmusError {}

/// Characters of a line that are shown: a line may be as long as it likes, a screen not.
const SHOWN: usize = 160;

/// A line, or the part of it around a place that is `before` characters behind its start; and how many characters then
/// stand before that place.
fn around(text: &[char], before: usize) -> (String, usize) {
    if text.len() <= SHOWN {
        return (text.iter().collect(), before);
    }
    let from = before.saturating_sub(SHOWN / 2).min(text.len());
    let to = (from + SHOWN).min(text.len());
    let (left, right) = (if from > 0 { "…" } else { "" }, if to < text.len() { "…" } else { "" });
    let shown: String = text[from..to].iter().collect();
    (format!("{left}{shown}{right}"), before - from + left.chars().count())
}

/// The one of `known` that `word` was probably meant to be, if any is near enough to be worth naming.
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    // A third of the letters wrong is a slip; more is another word.
    let most = (word.chars().count() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|k| (distance(word, k), k))
        .filter(|&(d, _)| d <= most)
        .min_by_key(|&(d, _)| d)
        .map(|(_, k)| k)
}

/// Edits (insert, drop, change, swap of neighbours) that turn `a` into `b`. Cost: product of the lengths.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = change.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_line_the_part_around_the_place_is_shown() {
        let text = format!("{}X{}", "a".repeat(5_000), "b".repeat(5_000));
        let error = LitmusError {
            file: "f".into(),
            line: 1,
            column: 5_001,
            width: 1,
            text: text.into(),
            fault: Fault::Grammar,
            message: "m".into(),
            hint: None,
        };
        let shown = error.to_string();
        let lines: Vec<&str> = shown.lines().skip(3).collect();
        assert!(lines.iter().all(|l| l.chars().count() < 200), "{shown}");
        let place = |line: &str, c: char| line.chars().position(|found| found == c);
        assert_eq!((place(lines[0], 'X'), place(lines[0], '…').is_some()), (place(lines[1], '^'), true), "{shown}");
    }

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let words = ["lookup", "accept", "commit", "begin"];
        assert_eq!(nearest("lokup", words), Some("lookup"));
        assert_eq!(nearest("comimt", words), Some("commit"));
        assert_eq!(nearest("release", words), None);
        assert_eq!(nearest("", words), None);
        assert_eq!(nearest("k3", ["k1", "reader"]), Some("k1"));
    }
}
