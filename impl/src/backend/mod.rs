//! The backend layer: one backend's use of the shared cache, whole.
//!
//! A [`Backend`] is what a process or thread of the host holds: it answers lookups, follows its own transaction and
//! tells the others what has changed. It stands on the shared layer, which knows entries and stamps but no
//! transactions, and adds what PostgreSQL has of its own (and therefore uses in place of this layer): a local table, a
//! message ring, the bookkeeping of own changes.
//!
//! ```text
//!     lookup ─▶ local view ──hit──▶ row                                            no atomic access, nothing shared written
//!                  │ miss
//!                  ▼
//!               accept messages ─▶ shared table ──valid entry──▶ reference into the local view ─▶ row
//!                                     │ none, invalid, or covered by the own dirty set
//!                                     ▼
//!                                  token ─▶ snapshot ─▶ scan ─▶ publish ─▶ local view ─▶ row
//! ```
//!
//! | file | idea |
//! | --- | --- |
//! | `list` | the rows of a partial key (A37) |
//! | `local_view` | what this backend has used, stable between two accepts (A7) |
//! | `dirty_set` | what its transaction has changed (A23 to A27) |
//! | `ring` | how it hears of what the others have changed (A48 to A51) |
//! | `core` | all of a backend but its catalog session: accept, adopt, publish, release |
//! | `driver` | the order of events in a lookup, a command's end, a commit, an abort |
//! | [`catalog`] | what it asks of the host |
//! | [`memory_catalog`] | a host's catalog for tests, benchmarks and as an example |
//!
//! # What is kept
//!
//! * **K1, freshness.** A lookup reflects every commit whose messages this backend has accepted (A1): accepting drops what
//!   they name from the local view, and what is in the shared table is never stale.
//! * **K2, stability.** Between two accepts, command ends or aborts of its own, a backend gets the same answer for the
//!   same key: a hit in the local view accepts nothing (A4), and nothing leaves the view but at those three (A7).
//! * **K3, no dirty read.** What a backend reads while its transaction has changed the row's hash is neither taken from
//!   nor put into the shared table (D7, D8), and leaves the local view with the transaction if that aborts (A27).
//! * **K4, order.** The held catalog snapshot is never older than an entry that was taken from the shared table (A9): a newer
//!   one drops it.
//! * **K5, one token per snapshot.** A snapshot carries the clock as read before it was taken, for as long as it is used
//!   (D3).
//!
//! # Order of effects
//!
//! Each step is one lock section or one atomic access. What it means for the backend's private state is done at once
//! right after it; only then are the references that were dropped by it released, one step each. Invalidation callbacks
//! come last, when everything has been flushed (A36); they have no access to the backend, so nothing can re-enter it.
//!
//! Running loads: a lookup inside a scan is impossible ([`Nested`] can only accept), so at most one load runs, and its
//! state is one field. A load that is doomed starts again without a bound: each turn has consumed messages, which
//! others had to commit; forced flushing alone never dooms (A47).
//!
//! # Example
//!
//! ```
//! use shared_catcache::backend::{Backend, MemoryCatalog};
//! use shared_catcache::{Config, Key, Shared};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let shared = Shared::anonymous(&Config::default())?;
//! let catalog = MemoryCatalog::new();
//! let mut alice = Backend::attach(&shared, 1, catalog.session(()))?;
//! let mut bob = Backend::attach(&shared, 1, catalog.session(()))?;
//!
//! let key = Key { database: 1, cache: 0, hash: 42, bytes: b"accounts" };
//! assert_eq!(bob.lookup(&key)?, None);
//!
//! alice.begin()?;
//! alice.put(&key, b"(aid int)")?;
//! alice.commit()?;
//!
//! assert_eq!(bob.lookup(&key)?, None); // stable until bob accepts messages
//! bob.accept();
//! assert_eq!(bob.lookup(&key)?, Some(&b"(aid int)"[..]));
//! # Ok(())
//! # }
//! ```

pub mod catalog;
mod core;
mod dirty_set;
mod driver;
mod list;
mod local_view;
pub mod memory_catalog;
mod ring;

use self::core::Core;
use crate::error::Error;
use crate::key::{Key, Packed};
use crate::message::Message;
use crate::probe::{Probe, Rule, Seen, Step};
use crate::shared::Shared;
use crate::sync::{MODELLED, panicking};
use driver::Driver;
use ring::Ring;
use std::fmt;

pub use catalog::{Catalog, Nested, PartialScans, Subtransactions};
pub use list::{List, Rows};
pub use memory_catalog::{Conflict, MemoryCatalog, MemoryError, MemorySession, MemorySnapshot, WriteError};

/// How many entries a local view may keep at an accept, unless [`Backend::set_local_limit`] says otherwise.
pub const LOCAL_LIMIT_DEFAULT: u32 = 1 << 16;

/// Why a lookup has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError<E: std::error::Error + 'static> {
    /// The catalog could not be read; the cache is as if the lookup had not been made.
    #[error("the catalog could not be read: {0}")]
    Catalog(#[source] E),
    /// A backend hears of changes in its own database and in the shared catalogs only, so it can't cache others' rows.
    #[error("the key is of database {asked}, but this backend is of database {own}: attach a backend to {asked}")]
    ForeignDatabase {
        /// The key's.
        asked: u32,
        /// The backend's.
        own: u32,
    },
}

/// Why a transaction has not committed. Except for [`CommitError::Misuse`] it has been aborted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError<E: std::error::Error + 'static> {
    /// There is no transaction to commit.
    #[error(transparent)]
    Misuse(Error),
    /// The catalog could not log the commit (C).
    #[error("the commit could not be logged, the transaction was aborted: {0}")]
    Log(#[source] E),
    /// The catalog could not make the commit visible (P). Nothing has become visible.
    #[error("the commit could not be made visible, the transaction was aborted: {0}")]
    Visible(#[source] E),
}

/// What a callback hears: something that was derived from the cache may be out of date (A36).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// Anything: the backend fell too far behind.
    Everything,
    /// What this message names.
    Of(Message),
}

/// What a backend has done since it was attached, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackendStats {
    /// Lookups.
    pub lookups: u64,
    /// Lookups that were not answered by the local view.
    pub misses: u64,
    /// Lookups answered by a valid entry of the shared table.
    pub shared_hits: u64,
    /// Scans of the catalog.
    pub scans: u64,
    /// Scans that were thrown away because the row changed meanwhile (B01).
    pub restarts: u64,
    /// Loads that were published.
    pub published: u64,
    /// Loads that found an entry of another backend at the end, and took that.
    pub adopted: u64,
    /// Loads that stayed private.
    pub kept_private: u64,
    /// Messages accepted, those of other databases included.
    pub messages: u64,
    /// Resets: so often the backend had fallen too far behind.
    pub resets: u64,
    /// Entries in the local view, lists not counted.
    pub local_entries: u32,
    /// Lists in the local view.
    pub local_lists: u32,
    /// Private ones among both.
    pub private_entries: u32,
    /// Bytes of the local view's table, private rows not counted.
    pub local_bytes: u64,
}

/// One backend's handle on the cache. See the module's docs for what it keeps.
///
/// It is `Send` if its catalog session is, and used by one thread at a time.
pub struct Backend<C: Catalog, P: Probe = ()> {
    /// What answers are borrowed from: apart from the driver, so that a hit may be returned from where it was found.
    shared: Shared,
    driver: Driver<C, P>,
}

impl<C: Catalog, P: Probe> fmt::Debug for Backend<C, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("database", &self.driver.core.database)
            .field("ring", &self.driver.core.ring)
            .field("in_transaction", &self.driver.core.in_transaction)
            .field("held", &self.driver.core.held)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl<C: Catalog> Backend<C> {
    /// Joins the cache as a backend of `database` (A51: the ring first, so nothing that is cached later can be missed).
    /// O(backends).
    ///
    /// # Errors
    /// [`Error::TooManyBackends`] when all slots of the segment are in use.
    pub fn attach(shared: &Shared, database: u32, catalog: C) -> Result<Backend<C>, Error> {
        Backend::attach_with(shared, database, catalog, ())
    }
}

impl<C: Catalog, P: Probe> Backend<C, P> {
    /// As [`Backend::attach`], watched by `probe`.
    ///
    /// # Errors
    /// [`Error::TooManyBackends`] when all slots of the segment are in use.
    pub fn attach_with(shared: &Shared, database: u32, catalog: C, probe: P) -> Result<Backend<C, P>, Error> {
        let core = Core::new(Ring::join(shared)?, shared.clone(), database, probe);
        Ok(Backend {
            shared: shared.clone(),
            driver: Driver { core, catalog, snapshot: None, row: Vec::new(), rows: Rows::default() },
        })
    }

    /// The row of `key`, or `None` if there is none (a negative answer is cached as well, A35). The row is not copied: it
    /// is borrowed from the segment, and stays what it is for as long as it is borrowed (A39).
    ///
    /// A hit in the local view is O(1) and takes part in nothing shared. Everything else accepts messages first, looks into
    /// the shared table, and at last reads the catalog. Works outside a transaction too.
    ///
    /// # Errors
    /// [`LookupError::Catalog`] if the catalog could not be read; nothing of the load is left (B11, B67).
    /// [`LookupError::ForeignDatabase`] if the key is of another database than the backend.
    // Always inlined: a hit is some 60 instructions, a call of this signature costs a dozen more.
    #[inline(always)]
    pub fn lookup(&mut self, key: &Key<'_>) -> Result<Option<&[u8]>, LookupError<C::Error>> {
        let key = Packed::new(key);
        let driver = &mut self.driver;
        driver.core.stats.lookups += 1;
        if let Some(row) = driver.core.local.find_first(&self.shared, key) {
            driver.core.probe.before(Step::LocalHit);
            driver.core.probe.took(Step::LocalHit, Seen::Row { present: row.is_some() });
            return Ok(row);
        }
        // The key goes in parts and the answer is put together anew: so neither need be in memory on a hit.
        match driver.lookup_beyond(key.name, key.hash, key.bytes) {
            Ok(row) => Ok(row),
            Err(error) => Err(error),
        }
    }

    /// Accepts the pending messages: everything that they name leaves the local view, and the next lookups reflect what
    /// they were sent for (A1). PostgreSQL does it after getting a lock (A5), so that what the lock protects is seen.
    /// Also the only place where the local view is brought within its limit. One atomic load if there is nothing to do.
    pub fn accept(&mut self) {
        self.driver.accept();
    }

    /// Begins a transaction: accepts (A3), and drops the catalog snapshot (A12).
    ///
    /// # Errors
    /// [`Error::Transaction`] if one is running already.
    pub fn begin(&mut self) -> Result<(), Error> {
        self.driver.begin()
    }

    /// Notes that the running command has changed the row of `key`: inserted, updated or deleted it, whether or not it is
    /// cached anywhere (A25). To be called after the change and before the command ends, once for each cache that the row
    /// is in, twice if its key has changed. Amortised O(1).
    ///
    /// # Errors
    /// [`Error::Transaction`] outside a transaction.
    pub fn changed(&mut self, key: &Key<'_>) -> Result<(), Error> {
        self.driver.core.require_transaction("changed")?;
        if self.driver.core.probe.keeps(Rule::RegisterMessage) {
            self.driver.core.dirty.register(key.into());
            self.driver.core.show();
        }
        Ok(())
    }

    /// Notes that the running command has rewritten a whole catalog, as VACUUM FULL does: every row of the cache has another
    /// place now (A32). Otherwise as [`Backend::changed`].
    ///
    /// # Errors
    /// [`Error::Transaction`] outside a transaction.
    pub fn changed_catalog(&mut self, database: u32, cache: u8) -> Result<(), Error> {
        self.changed_whole("changed_catalog", Message::Catalog { database, cache })
    }

    /// Notes that the running command has dropped or moved a whole database (D30). Otherwise as [`Backend::changed`].
    ///
    /// # Errors
    /// [`Error::Transaction`] outside a transaction.
    pub fn changed_database(&mut self, database: u32) -> Result<(), Error> {
        self.changed_whole("changed_database", Message::Database { database })
    }

    fn changed_whole(&mut self, operation: &'static str, message: Message) -> Result<(), Error> {
        self.driver.core.require_transaction(operation)?;
        if self.driver.core.probe.keeps(Rule::RegisterMessage) {
            self.driver.core.dirty.register(message);
            self.driver.core.show();
        }
        Ok(())
    }

    /// Changes the row of `key` where it lies, as PostgreSQL does for a few counters and flags: the change is visible to all
    /// at once, and stays whatever becomes of the transaction (A58). `change` does it, between the opening and the closing of
    /// a bracket, and nothing slow may happen in it; then the message is sent. No transaction is needed.
    ///
    /// The host holds the row's lock around this call, against transactions that replace the row and against other such
    /// updates, and calls [`Backend::accept`] when it has released it. The key must not change.
    ///
    /// # Errors
    /// What `change` says; nothing may have changed then, and nothing is sent.
    pub fn in_place<E>(&mut self, key: &Key<'_>, change: impl FnOnce(&mut C) -> Result<(), E>) -> Result<(), E> {
        self.driver.in_place(key, change)
    }

    /// Ends the running command: its changes become visible to this backend (A23). What they touched leaves the local
    /// view, and the catalog snapshot is dropped. O(changes of the command).
    pub fn command_end(&mut self) {
        self.driver.command_end();
    }

    /// Commits, with all subtransactions that are open: C, then the bracket around P, then the messages, then L (A15, A16).
    /// O(changes).
    ///
    /// The own local view is left alone: the own messages come back through the ring (A17).
    ///
    /// # Errors
    /// [`CommitError::Misuse`] outside a transaction. Otherwise what the catalog said when it refused C or P; the
    /// transaction has then been aborted, and nothing of it has become visible.
    pub fn commit(&mut self) -> Result<(), CommitError<C::Error>> {
        self.driver.commit()
    }

    /// Aborts, with all subtransactions that are open: the catalog forgets the changes, and what the transaction had touched
    /// leaves the local view, as it was before and as it was after (A27). Nothing is sent (A18). O(changes).
    ///
    /// # Errors
    /// [`Error::Transaction`] outside a transaction.
    pub fn abort(&mut self) -> Result<(), Error> {
        self.driver.core.require_transaction("abort")?;
        self.driver.undo();
        Ok(())
    }

    /// The catalog session, for writing through it. Tell the cache what was written with [`Backend::changed`].
    pub fn catalog_mut(&mut self) -> &mut C {
        &mut self.driver.catalog
    }

    /// Sets how many entries the local view may keep. The limit is enforced at accept only (A7); until then the view may
    /// overshoot. At the accept all private entries go first, then references.
    pub fn set_local_limit(&mut self, entries: u32) {
        self.driver.core.local_limit = entries;
    }

    /// Sets how many changes a commit may have whose bracket opens the stamps of rows; one of more opens those of their
    /// catalogs, which takes less time and invalidates more. Unless it is set, a fourth of the segment's stripes.
    pub fn set_escalation(&mut self, rows: u32) {
        self.driver.core.escalation = rows;
    }

    /// Has `callback` called with each invalidation from now on: for what the host derives from cached rows (A36). It is
    /// called when the entries have left the local view already, and has no access to the backend; it may be called
    /// outside a transaction and in the middle of a load, and should only mark what it keeps as out of date.
    pub fn on_invalidation(&mut self, callback: impl FnMut(Invalidation) + Send + 'static) {
        self.driver.core.callbacks.push(Box::new(callback));
    }

    /// What the backend has done and what it holds.
    pub fn stats(&self) -> BackendStats {
        BackendStats {
            local_entries: self.driver.core.local.len(),
            local_lists: self.driver.core.lists.len(),
            private_entries: self.driver.core.local.private_len() + self.driver.core.lists.private_len(),
            local_bytes: (self.driver.core.local.table_bytes() + self.driver.core.lists.table_bytes()) as u64,
            ..self.driver.core.stats
        }
    }
}

impl<C: PartialScans, P: Probe> Backend<C, P> {
    /// The rows of a partial key, with their whole keys (A37): `partial` has the leading columns, and a hash of them. As
    /// [`Backend::lookup`]; any change of the cache takes a list out of the local view and makes it invalid in the shared table
    /// (A28), and a transaction that has changed the cache builds its lists for itself. An empty list is an answer as well.
    ///
    /// # Errors
    /// As [`Backend::lookup`].
    pub fn list(&mut self, partial: &Key<'_>) -> Result<List<'_>, LookupError<C::Error>> {
        self.driver.list(partial)
    }
}

impl<C: Subtransactions, P: Probe> Backend<C, P> {
    /// Begins a subtransaction, in a transaction or in another subtransaction: what is changed from now on can be undone by
    /// itself. O(1).
    ///
    /// # Errors
    /// [`Error::Transaction`] outside a transaction, and if the running command has changed something (A26).
    pub fn begin_sub(&mut self) -> Result<(), Error> {
        self.driver.begin_sub()
    }

    /// Ends the innermost subtransaction: what it has changed is its parent's from now on, and stays a change of this
    /// transaction (A26, D7). Ends the running command too. O(changes of the subtransaction).
    ///
    /// # Errors
    /// [`Error::Transaction`] if none is open.
    pub fn commit_sub(&mut self) -> Result<(), Error> {
        self.driver.commit_sub()
    }

    /// Undoes the innermost subtransaction: what it had touched leaves the local view, as it was before and as it was after
    /// (A27); what its parent has changed stays changed (A26). O(changes of the subtransaction).
    ///
    /// # Errors
    /// [`Error::Transaction`] if none is open.
    pub fn abort_sub(&mut self) -> Result<(), Error> {
        self.driver.abort_sub()
    }
}

impl<C: Catalog, P: Probe> Drop for Backend<C, P> {
    /// Aborts what has not been committed, and releases all references. The ring is left after it.
    fn drop(&mut self) {
        // A simulator that unwinds a failed test must not be asked for a lock again.
        if MODELLED && panicking() {
            return;
        }
        if self.driver.core.in_transaction {
            self.driver.undo();
        }
        let Core { local, lists, dropped, .. } = &mut self.driver.core;
        local.clear(dropped);
        lists.clear(dropped);
        self.driver.core.release_dropped();
    }
}

#[cfg(test)]
mod tests;
