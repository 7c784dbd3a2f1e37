//! What can go wrong, said so that a user knows what to do.
//!
//! The hot path has no errors: where the cache can't help, an answer is `None` or `Private`, and the caller loads for
//! itself. Errors come from a wrong configuration, from a segment that can't be made or attached, and from limits of
//! attaching.

use std::io;
use std::path::PathBuf;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration contradicts itself or a limit.
    #[error("configuration: `{field}` is {found}, but {expected}")]
    Config {
        /// The field of `Config`.
        field: &'static str,
        /// Its value.
        found: u64,
        /// What it may be.
        expected: String,
    },
    /// The operating system refused something.
    #[error("{path}: cannot {action} the segment: {source}{hint}")]
    Io {
        /// What was to be done.
        action: &'static str,
        /// The file, or what stands for it.
        path: PathBuf,
        /// Advice, or empty.
        hint: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The path names something that can't be mapped.
    #[error("{path}: is a {found}, not a regular file; give the path of a segment, such as /dev/shm/catcache")]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// The file is no segment.
    #[error("{path}: is not a segment of this cache (it begins with {found:#018x}); check the path")]
    Foreign {
        /// The path.
        path: PathBuf,
        /// The first eight bytes.
        found: u64,
    },
    /// A segment of a machine with the other byte order.
    #[error(
        "{path}: the segment was made on a machine of the other byte order; remove it and create it on this machine"
    )]
    ByteOrder {
        /// The path.
        path: PathBuf,
    },
    /// A segment of another version of the layout.
    #[error(
        "{path}: the segment has layout version {found}, this program needs {expected}; stop the programs that use it, \
         remove it and create it anew with this version"
    )]
    Version {
        /// The path.
        path: PathBuf,
        /// The version in the header.
        found: u64,
        /// The version of this program.
        expected: u64,
    },
    /// The file is shorter or longer than its header says.
    #[error(
        "{path}: the file has {found} bytes, but {expected} are needed; it was truncated, or is still being created: \
         try again, or remove it and create it anew"
    )]
    Size {
        /// The path.
        path: PathBuf,
        /// Size of the file.
        found: u64,
        /// Size by the header, or the least possible one.
        expected: u64,
    },
    /// Creation of the segment has not been finished.
    #[error("{path}: the segment is not ready; its creator is at work or has died: try again, or remove it")]
    NotReady {
        /// The path.
        path: PathBuf,
    },
    /// The header contradicts itself: it was damaged.
    #[error("{path}: the segment's header is damaged ({reason}); remove the file and create it anew")]
    Damaged {
        /// The path.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Every backend slot of the segment is taken.
    #[error("all {limit} backend slots of the segment are taken; detach a backend, or create it with more `backends`")]
    TooManyBackends {
        /// `Config::backends`.
        limit: u32,
    },
    /// Commit or abort outside a transaction, or begin inside one.
    #[error("{operation}: {reason}")]
    Transaction {
        /// What was called.
        operation: &'static str,
        /// Why it can't be done now.
        reason: &'static str,
    },
    /// Not in this build.
    #[error("{what} is not available in builds over a simulator")]
    Modelled {
        /// What was asked for.
        what: &'static str,
    },
}
