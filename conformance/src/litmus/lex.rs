//! One line of a litmus file, cut into words.

/// What a piece of a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'t> {
    /// A letter, then letters, digits, `_` and `-`.
    Word(&'t str),
    /// Digits.
    Number(&'t str),
    /// One of `= , ; : / . +`
    Mark(char),
    /// Anything else.
    Strange(char),
}

impl Token<'_> {
    /// How an error shows it.
    pub(super) fn shown(&self) -> String {
        match self {
            Token::Word(text) | Token::Number(text) => format!("`{text}`"),
            Token::Mark(c) | Token::Strange(c) => format!("`{}`", c.escape_debug()),
        }
    }
}

/// Where a piece stands: line and column from 1, width in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) width: usize,
}

/// Cuts a line up to its comment. Total: every text has a list of tokens. Cost: linear.
pub(super) fn tokens(line: usize, text: &str) -> Vec<(Token<'_>, Span)> {
    let code = text.split('#').next().unwrap_or_default();
    let mut found = Vec::new();
    let mut rest = code.char_indices().enumerate().peekable();
    while let Some((column, (start, c))) = rest.next() {
        if c.is_whitespace() {
            continue;
        }
        let (mut end, mut width) = (start + c.len_utf8(), 1);
        let continues = |next: char| match c {
            'a'..='z' | 'A'..='Z' => next.is_ascii_alphanumeric() || next == '_' || next == '-',
            '0'..='9' => next.is_ascii_digit(),
            _ => false,
        };
        while let Some((_, (at, next))) = rest.next_if(|(_, (_, next))| continues(*next)) {
            (end, width) = (at + next.len_utf8(), width + 1);
        }
        let token = match c {
            'a'..='z' | 'A'..='Z' => Token::Word(&code[start..end]),
            '0'..='9' => Token::Number(&code[start..end]),
            '=' | ',' | ';' | ':' | '/' | '.' | '+' => Token::Mark(c),
            other => Token::Strange(other),
        };
        found.push((token, Span { line, column: column + 1, width }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_with_its_columns() {
        let cut = tokens(3, "keys k1 = rel/07 ö # no");
        let shown: Vec<_> = cut.iter().map(|(t, s)| (t.shown(), s.column, s.width)).collect();
        let expected =
            [("keys", 1, 4), ("k1", 6, 2), ("=", 9, 1), ("rel", 11, 3), ("/", 14, 1), ("07", 15, 2), ("ö", 18, 1)];
        assert_eq!(shown, expected.map(|(t, c, w)| (format!("`{t}`"), c, w)));
    }
}
