//! Standard output. Whoever reads it may have gone (`catcache check | head -1`); the run then ends as it would have.

use anyhow::{Context, Result};
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::Mutex;

/// Why a line could not be said, the first time that one could not.
static UNSAID: Mutex<Option<io::Error>> = Mutex::new(None);

/// Prints a line, as `println!` does, but does not panic.
macro_rules! say {
    ($($text:tt)*) => {
        crate::front::screen::line(format_args!($($text)*))
    };
}

/// Prints `text` and ends the line.
pub fn line(text: Arguments<'_>) {
    if let Err(error) = writeln!(io::stdout().lock(), "{text}")
        && let Ok(mut unsaid) = UNSAID.lock()
    {
        unsaid.get_or_insert(error);
    }
}

/// Was everything said that somebody wanted to hear?
///
/// # Errors
/// A line was lost, and not because the reader had gone.
pub fn said() -> Result<()> {
    io::stdout().flush().or_else(gone).context("standard output can't be written")?;
    let unsaid = UNSAID.lock().ok().and_then(|mut unsaid| unsaid.take());
    unsaid.map_or(Ok(()), gone).context("standard output can't be written")
}

fn gone(error: io::Error) -> io::Result<()> {
    if error.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(error) }
}
