//! What the backend layer asks of the host's catalog: the rows behind the cache, and the transaction that changes them.
//!
//! The cache decides *when* each of these is called, and never holds a lock of its own across a call: an implementation
//! may wait, recurse into the host, take its own locks and fail where it is allowed to. The order is part of the
//! protocol:
//!
//! ```text
//!     load:    (token) → snapshot → scan → (publish)
//!     commit:  log → (open the bracket) → make_visible → (close it) → (send messages) → unlock
//!     abort:   undo
//!     subtransaction (see [`Subtransactions`]):  begin_sub → commit_sub, or abort_sub
//! ```

use super::list::Rows;
use crate::key::Key;

/// One backend's session with the host's catalog. It holds the state of the backend's transaction.
///
/// Each backend owns one: `&mut self` everywhere, no sharing.
pub trait Catalog {
    /// Fixes which committed transactions a scan sees. The backend keeps one and reuses it for several loads (A12); it is
    /// dropped as soon as a message, a reset, a command's end or a newer entry makes it too old, and at the latest with
    /// the transaction.
    type Snapshot;

    /// Why the catalog could not be read or a commit not be carried out.
    type Error: std::error::Error + 'static;

    /// Takes a new snapshot of what is committed now.
    ///
    /// # Errors
    /// The host's; the lookup that needed the snapshot returns it.
    fn snapshot(&mut self) -> Result<Self::Snapshot, Self::Error>;

    /// Reads the row of `key` as of `snapshot`, with the own changes of finished commands on top (A23), into `row`, which
    /// is empty; returns whether there is one. All versions must be judged by that one snapshot (B52), and the row must
    /// be self-contained: what lies out of line is fetched here (A42). A scan that meets an invalidation in the middle,
    /// as PostgreSQL does when it opens a toast table, calls [`Nested::accept`] (A13, A44).
    ///
    /// # Errors
    /// The host's; the lookup returns it, and nothing of the load is left behind (B11, B67).
    fn scan(
        &mut self,
        key: &Key<'_>,
        snapshot: &Self::Snapshot,
        row: &mut Vec<u8>,
        nested: &mut dyn Nested,
    ) -> Result<bool, Self::Error>;

    /// The own changes of the running command become visible to the own scans (A23). Can't fail.
    fn command_end(&mut self);

    /// C: makes the commit durable. After it the transaction can only go forward. Nothing is visible yet.
    ///
    /// # Errors
    /// The host's; the backend then aborts.
    fn log(&mut self) -> Result<(), Self::Error>;

    /// P: the changes become visible to snapshots taken from now on, at one instant. It runs inside the bracket: no log
    /// flush, no waiting for a standby, no deletion of files.
    ///
    /// # Errors
    /// The host's, and then *nothing* has become visible: the bracket is withdrawn and the backend aborts.
    fn make_visible(&mut self) -> Result<(), Self::Error>;

    /// L: releases the locks that the transaction held on what it changed, after its messages were sent (A5, A16).
    fn unlock(&mut self);

    /// Abort: forgets the changes and releases the locks. Called also for a transaction that changed nothing.
    fn undo(&mut self);
}

/// A catalog that can be searched by a part of the key: for lists (A37).
pub trait PartialScans: Catalog {
    /// Reads all rows whose keys begin with `partial`'s columns, as of `snapshot`, with the own changes of finished commands on
    /// top, into `rows`, which is empty: each with the hash and the columns of its whole key. Otherwise as [`Catalog::scan`]; an
    /// accept in the middle throws the result away if *any* row of the cache was changed (B03).
    ///
    /// # Errors
    /// The host's; the lookup returns it, and nothing of the load is left behind.
    fn scan_list(
        &mut self,
        partial: &Key<'_>,
        snapshot: &Self::Snapshot,
        rows: &mut Rows,
        nested: &mut dyn Nested,
    ) -> Result<(), Self::Error>;
}

/// A catalog whose transactions have subtransactions, as `SAVEPOINT` makes them. They nest; a commit or an abort of the
/// transaction counts as one of all that are still open.
pub trait Subtransactions: Catalog {
    /// A subtransaction begins: what is changed from now on belongs to it. The running command has changed nothing (A26).
    /// Can't fail.
    fn begin_sub(&mut self);

    /// The innermost subtransaction ends, and what it has changed and locked is its parent's. Can't fail.
    fn commit_sub(&mut self);

    /// The innermost subtransaction is undone: the own scans see what they saw before it, and the locks that it took are
    /// released. Can't fail.
    fn abort_sub(&mut self);
}

/// What a running scan may do with the backend that it runs for.
///
/// Only accepting: a lookup inside a scan would need the same session twice.
pub trait Nested {
    /// Accepts the pending messages, as [`Backend::accept`](super::Backend::accept). If one of them touches the row that
    /// is being loaded, the scan's result will be thrown away and the load starts again (B01).
    fn accept(&mut self);
}
