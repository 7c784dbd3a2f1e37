//! One catalog cache in shared memory for all backends.
//!
//! An entry keeps the token of the snapshot that read it, and is valid as long as that token is good for all its stamps.
//! Writers touch stamps, never entries.

#![deny(unsafe_code)]

pub mod backend;
mod error;
mod key;
pub mod probe;
pub mod shared;
mod stats;
pub mod sync;

#[doc(hidden)]
pub mod lock_suite;

pub use error::Error;
pub use key::{CACHES_MAX, KEY_BYTES_MAX, Key, OwnedKey};
pub use probe::{EntryAt, Level, LocalImage, PrivateImage, Probe, Rule, Seen, StampValue, Step};
pub use shared::{Bracket, Config, EntryImage, Publication, Reference, Shared, SharedImage, Token};
pub use stats::Stats;
