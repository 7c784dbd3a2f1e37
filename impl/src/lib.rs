//! One catalog cache in shared memory for all backends.
//!
//! Every backend of a database keeps a private copy of the catalog rows that it has touched; memory is therefore *backends ×
//! objects touched*. This crate keeps one copy for all of them, in a segment of fixed size, and never answers with a row
//! that is out of date.
//!
//! # The idea
//!
//! **An entry keeps the token of the snapshot that read it, and is valid as long as that token is good for all its stamps.**
//! The token is a clock, read *before* the snapshot was taken; a stamp says when a stripe of keys, a catalog or a database
//! was last changed, and whether somebody is changing it now. Writers touch stamps, never entries: a commit takes no lock of
//! ours and can't wait, fail or allocate, and a row that was read before a commit and published after it is harmless, since
//! it is never valid. Hence
//!
//! > **I1. Every linked, valid entry equals the committed row as of now.**
//!
//! # The two layers
//!
//! * [`shared`]: the segment, stamps, table, references. Find, publish, release, and the [`Bracket`] that a writer puts around
//!   the instant at which its changes become visible. This layer alone serves a host that has its own local cache.
//! * [`backend`]: on top of it, for everybody else: the local view with its stable answers, own changes, and the ring of
//!   invalidation messages.
//!
//! ```
//! use shared_catcache::{Config, Key, Publication, Shared};
//!
//! # fn main() -> Result<(), shared_catcache::Error> {
//! let shared = Shared::anonymous(&Config::default())?;
//! let key = Key { database: 5, cache: 7, hash: 0x5eed, bytes: b"pg_class" };
//!
//! // A load: the token, then the snapshot, then the scan; then publish what the scan read.
//! let token = shared.token(&());
//! let row = b"what the scan found under a snapshot taken just now";
//! if let Publication::Published(reference) = shared.publish(&(), &key, Some(row), token) {
//!     shared.release(&(), reference);
//! }
//!
//! // Anybody who maps the segment finds it.
//! let found = shared.find(&(), &key).expect("nothing has changed");
//! assert_eq!(shared.row(&found), Some(&row[..]));
//! shared.release(&(), found);
//!
//! // A commit: the bracket around the instant at which the change becomes visible.
//! let mut bracket = shared.bracket([(key.database, key.cache, key.hash)]);
//! bracket.open(&());
//! // … here it becomes visible …
//! bracket.close(&());
//! assert!(shared.find(&(), &key).is_none());
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//!
//! | what | limit |
//! | --- | --- |
//! | segment | [`shared::SEGMENT_BYTES_MAX`], 16 GiB; it never grows |
//! | backends attached at once | [`shared::BACKENDS_MAX`], 1,024 |
//! | caches | [`CACHES_MAX`], 256 |
//! | key | [`KEY_BYTES_MAX`], 264 bytes; longer: private |
//! | row | [`shared::ROW_BYTES_MAX`], 64 KiB; longer: private |
//! | commits | 2^48 |
//!
//! # Watching and proving
//!
//! The atomic steps of the protocol are one enum, [`Step`]; a [`Probe`] sees each of them, and can switch off each [`Rule`].
//! The production probe is `()` and costs nothing. The same source is built over shuttle and loom by
//! `shared-catcache-under-shuttle` and `-under-loom`; [`sync`] is the only file that knows.

#![deny(unsafe_code)]

pub mod backend;
mod error;
mod key;
#[doc(hidden)]
pub mod lock_suite;
mod message;
pub mod probe;
pub mod shared;
mod stats;
pub mod sync;

/// The package folder in which this was compiled. The same source is compiled in three of them; whoever vouches for a build
/// must know that all are of one checkout.
#[doc(hidden)]
pub const BUILT_IN: &str = env!("CARGO_MANIFEST_DIR");

pub use error::Error;
pub use key::{CACHES_MAX, KEY_BYTES_MAX, Key, OwnedKey};
pub use message::Message;
pub use probe::{EntryAt, Level, ListImage, LocalImage, PrivateImage, Probe, Rule, Seen, StampValue, Step};
pub use shared::{Bracket, Config, EntryImage, Members, Publication, Reference, Shared, SharedImage, Token};
pub use stats::Stats;
