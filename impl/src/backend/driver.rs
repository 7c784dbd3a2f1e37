//! The protocol's order of events: what a lookup beyond the local view, a command's end, a commit and an abort do, one after
//! another. [`Backend`](super::Backend) is the door to it.
//!
//! Here the catalog session meets the rest of the backend ([`Core`]).

use super::core::{Core, Running};
use super::list::{List, Rows};
use super::local_view::Local;
use super::{Catalog, CommitError, LookupError, Nested, PartialScans, Subtransactions};
use crate::error::Error;
use crate::key::{Key, Packed};
use crate::message::Message;
use crate::probe::{Probe, Rule, Seen, Step};
use crate::shared::Token;

/// A row that has grown the buffer beyond this does not keep it.
const ROW_BUFFER_MAX: usize = 64 << 10;

/// A backend but for the handle that its answers are borrowed from.
pub(super) struct Driver<C: Catalog, P: Probe> {
    pub(super) core: Core<P>,
    pub(super) catalog: C,
    /// See [`Core::held`].
    pub(super) snapshot: Option<C::Snapshot>,
    /// A buffer for the row that is being loaded.
    pub(super) row: Vec<u8>,
    /// A buffer for the rows of the list that is being loaded.
    pub(super) rows: Rows,
}

impl<C: Catalog, P: Probe> Driver<C, P> {
    /// See [`Backend::lookup`](super::Backend::lookup): the rest of it, for what is not the first of its hash in the local view.
    /// The parts of the key are those of [`Packed`].
    #[cold]
    #[inline(never)]
    pub(super) fn lookup_beyond(
        &mut self,
        name: u64,
        hash: u32,
        bytes: &[u8],
    ) -> Result<Option<&[u8]>, LookupError<C::Error>> {
        let packed = Packed { name, hash, bytes };
        if let Some(found) = self.core.local.find(&self.core.shared, packed) {
            self.core.probe.before(Step::LocalHit);
            let row = self.core.row(found);
            self.core.probe.took(Step::LocalHit, Seen::Row { present: row.is_some() });
            return Ok(row);
        }
        let found = match self.miss(packed)? {
            Some(found) => found,
            None => self.load(packed).map_err(LookupError::Catalog)?,
        };
        self.drop_stale_snapshot();
        Ok(self.core.row(found))
    }

    /// What is not in the local view: accept, then look into the shared table.
    fn miss(&mut self, key: Packed<'_>) -> Result<Option<Local>, LookupError<C::Error>> {
        self.core.stats.misses += 1;
        let (asked, own) = (key.database(), self.core.database);
        if asked != own && asked != 0 {
            return Err(LookupError::ForeignDatabase { asked, own });
        }
        if self.core.probe.keeps(Rule::AcceptBeforeProbe) {
            self.accept();
        }
        Ok(self.core.find(key))
    }

    /// Reads the row from the catalog, publishes it if that is allowed, and puts it into the local view.
    fn load(&mut self, packed: Packed<'_>) -> Result<Local, C::Error> {
        let key = packed.unpack();
        let mut row = std::mem::take(&mut self.row);
        let scanned = self.scan(packed, |catalog, snapshot, nested| {
            row.clear();
            catalog.scan(&key, snapshot, &mut row, nested)
        });
        let (present, token) = scanned?;
        let local = self.core.keep(packed, present.then_some(&row[..]), token);
        if row.capacity() <= ROW_BUFFER_MAX {
            self.row = row;
        }
        Ok(local)
    }

    /// Scans until a scan was not doomed; what it answered, and the token of its snapshot.
    fn scan<R>(
        &mut self,
        key: Packed<'_>,
        mut scan: impl FnMut(&mut C, &C::Snapshot, &mut dyn Nested) -> Result<R, C::Error>,
    ) -> Result<(R, Token), C::Error> {
        loop {
            let (token, snapshot) = self.hold_snapshot()?;
            self.core.running = Some(Running::new(key));
            self.core.stats.scans += 1;
            let scanned = scan(&mut self.catalog, &snapshot, &mut self.core);
            let doomed = self.core.running.take().is_some_and(|running| running.doomed);
            let scanned = match scanned {
                Ok(scanned) => scanned,
                Err(error) => {
                    self.core.held = None;
                    self.core.show();
                    return Err(error);
                }
            };
            // An accept inside the scan may have dropped it.
            if self.core.held.is_some() {
                self.snapshot = Some(snapshot);
            }
            if !doomed {
                return Ok((scanned, token));
            }
            self.core.stats.restarts += 1;
        }
    }

    /// The catalog snapshot to load with, and the token that belongs to it (K5): the held one, or a new one, which is then
    /// held.
    fn hold_snapshot(&mut self) -> Result<(Token, C::Snapshot), C::Error> {
        if let (Some(token), Some(snapshot)) = (self.core.held, self.snapshot.take()) {
            if self.core.probe.keeps(Rule::TokenPerSnapshot) {
                return Ok((token, snapshot));
            }
            let token = self.core.shared.token(&self.core.probe);
            self.core.held = Some(token);
            self.core.show();
            return Ok((token, snapshot));
        }
        self.core.held = None;
        // The clock before the snapshot: what is not in the snapshot closes its bracket at a later clock.
        let token = self.core.shared.token(&self.core.probe);
        let snapshot = self.catalog.snapshot()?;
        self.core.held = Some(token);
        self.core.show();
        Ok((token, snapshot))
    }

    /// Lets go of a catalog snapshot that counts as dropped, so that the host can clean up behind it.
    fn drop_stale_snapshot(&mut self) {
        if self.core.held.is_none() {
            self.snapshot = None;
        }
    }

    /// See [`Backend::accept`](super::Backend::accept).
    pub(super) fn accept(&mut self) {
        self.core.accept(false);
        self.drop_stale_snapshot();
    }

    /// See [`Backend::begin`](super::Backend::begin).
    pub(super) fn begin(&mut self) -> Result<(), Error> {
        if self.core.in_transaction {
            return Err(Error::Transaction {
                operation: "begin",
                reason: "a transaction is running already; commit or abort it first",
            });
        }
        self.core.in_transaction = true;
        self.core.accept(true);
        self.drop_stale_snapshot();
        Ok(())
    }

    /// See [`Backend::command_end`](super::Backend::command_end).
    pub(super) fn command_end(&mut self) {
        self.core.probe.before(Step::CommandEnd);
        self.catalog.command_end();
        let changed = self.core.dirty.end_command();
        self.core.probe.took(Step::CommandEnd, Seen::Nothing);
        self.show_own(&changed);
    }

    /// The second half of a command's end, with what the command has changed.
    fn show_own(&mut self, changed: &[Message]) {
        if self.core.probe.keeps(Rule::DropLocalAtCommandEnd) {
            self.core.drop_local(changed);
        }
        if !changed.is_empty() && self.core.probe.keeps(Rule::DropSnapshotAtCommandEnd) {
            self.core.held = None;
        }
        self.core.show();
        self.core.release_dropped();
        self.core.call_back(changed);
        self.drop_stale_snapshot();
    }

    /// See [`Backend::commit`](super::Backend::commit).
    pub(super) fn commit(&mut self) -> Result<(), CommitError<C::Error>> {
        self.core.require_transaction("commit").map_err(CommitError::Misuse)?;
        // Everything that is allocated is allocated here: from C on a commit must not fail (D20).
        let messages = self.core.dirty.flatten().to_vec();
        let rows = messages.iter().filter(|message| matches!(message, Message::Row { .. })).count();
        let escalated = rows > self.core.escalation as usize;
        let stamped = messages.iter().map(|m| if escalated { m.of_catalog() } else { *m });
        let mut bracket = self.core.shared.bracket(stamped);
        if let Err(error) = self.catalog.log() {
            self.undo();
            return Err(CommitError::Log(error));
        }
        bracket.open(&self.core.probe);
        if let Err(error) = self.catalog.make_visible() {
            if self.core.probe.keeps(Rule::WithdrawOnFailure) {
                bracket.withdraw(&self.core.probe);
            } else {
                bracket.abandon();
            }
            self.undo();
            return Err(CommitError::Visible(error));
        }
        bracket.close(&self.core.probe);
        // Not before the close: an old entry of an own row would still be taken for valid (D41).
        self.core.forget_changes();
        self.core.held = None;
        self.core.show();
        if self.core.probe.keeps(Rule::SendMessages) {
            self.core.ring.send(&self.core.probe, &messages);
        }
        self.catalog.unlock();
        self.core.in_transaction = false;
        self.drop_stale_snapshot();
        Ok(())
    }

    /// See [`Backend::in_place`](super::Backend::in_place).
    pub(super) fn in_place<E>(&mut self, key: &Key<'_>, change: impl FnOnce(&mut C) -> Result<(), E>) -> Result<(), E> {
        let message = Message::from(key);
        let bracketed = self.core.probe.keeps(Rule::BracketInPlace);
        let mut bracket = self.core.shared.bracket(bracketed.then_some(message));
        bracket.open(&self.core.probe);
        if let Err(error) = change(&mut self.catalog) {
            bracket.withdraw(&self.core.probe);
            return Err(error);
        }
        bracket.close(&self.core.probe);
        // At once: the transaction may abort, the bytes stay changed (B19).
        if self.core.probe.keeps(Rule::SendInPlace) {
            self.core.ring.send(&self.core.probe, &[message]);
        }
        Ok(())
    }

    /// Aborts: what the transaction has touched leaves the local view as it was before and as it was after (A27).
    pub(super) fn undo(&mut self) {
        self.catalog.undo();
        let changed = self.core.dirty.flatten().to_vec();
        if self.core.probe.keeps(Rule::DropLocalOnAbort) {
            self.core.drop_local(&changed);
        }
        if self.core.probe.keeps(Rule::DropSnapshotOnAbort) {
            self.core.held = None;
        }
        self.core.forget_changes();
        self.core.in_transaction = false;
        self.core.show();
        self.core.release_dropped();
        self.core.call_back(&changed);
        self.drop_stale_snapshot();
    }
}

impl<C: PartialScans, P: Probe> Driver<C, P> {
    /// See [`Backend::list`](super::Backend::list).
    pub(super) fn list(&mut self, partial: &Key<'_>) -> Result<List<'_>, LookupError<C::Error>> {
        let key = Packed::list(partial);
        self.core.stats.lookups += 1;
        let found = match self.core.lists.find(&self.core.shared, key) {
            Some(found) => {
                self.core.probe.before(Step::LocalHit);
                self.core.probe.took(Step::LocalHit, Seen::Row { present: true });
                found
            }
            None => {
                let found = match self.miss(key)? {
                    Some(found) => found,
                    None => self.load_list(key).map_err(LookupError::Catalog)?,
                };
                self.drop_stale_snapshot();
                found
            }
        };
        Ok(self.core.list(found, partial))
    }

    /// As [`Driver::load`], for all rows of a partial key.
    fn load_list(&mut self, key: Packed<'_>) -> Result<Local, C::Error> {
        let partial = key.unpack();
        let mut rows = std::mem::take(&mut self.rows);
        let scanned = self.scan(key, |catalog, snapshot, nested| {
            rows.clear();
            catalog.scan_list(&partial, snapshot, &mut rows, nested)
        });
        let ((), token) = scanned?;
        let local = self.core.keep_list(key, &rows, token);
        if rows.capacity() <= ROW_BUFFER_MAX {
            self.rows = rows;
        }
        Ok(local)
    }
}

impl<C: Subtransactions, P: Probe> Driver<C, P> {
    /// See [`Backend::begin_sub`](super::Backend::begin_sub).
    pub(super) fn begin_sub(&mut self) -> Result<(), Error> {
        self.core.require_transaction("begin_sub")?;
        if self.core.dirty.is_pending() {
            return Err(Error::Transaction {
                operation: "begin_sub",
                reason: "the running command has changed something; call command_end first",
            });
        }
        self.core.probe.before(Step::SubBegin);
        self.catalog.begin_sub();
        self.core.dirty.begin_sub();
        self.core.probe.took(Step::SubBegin, Seen::Nothing);
        self.core.show();
        Ok(())
    }

    /// See [`Backend::commit_sub`](super::Backend::commit_sub).
    pub(super) fn commit_sub(&mut self) -> Result<(), Error> {
        self.core.require_sub("commit_sub")?;
        self.core.probe.before(Step::SubCommit);
        self.catalog.command_end();
        self.catalog.commit_sub();
        let changed = self.core.dirty.end_command();
        if self.core.probe.keeps(Rule::KeepDirtyAtSubCommit) {
            self.core.dirty.commit_sub();
        } else {
            self.core.dirty.abort_sub();
        }
        self.core.probe.took(Step::SubCommit, Seen::Nothing);
        self.show_own(&changed);
        Ok(())
    }

    /// See [`Backend::abort_sub`](super::Backend::abort_sub): as [`Driver::undo`], for the innermost level alone.
    pub(super) fn abort_sub(&mut self) -> Result<(), Error> {
        self.core.require_sub("abort_sub")?;
        self.catalog.abort_sub();
        let changed = self.core.dirty.abort_sub();
        if !self.core.probe.keeps(Rule::KeepParentOnSubAbort) {
            self.core.dirty.forget();
        }
        if self.core.probe.keeps(Rule::DropLocalOnSubAbort) {
            self.core.drop_local(&changed);
        }
        if self.core.probe.keeps(Rule::DropSnapshotOnSubAbort) {
            self.core.held = None;
        }
        self.core.show();
        self.core.release_dropped();
        self.core.call_back(&changed);
        self.drop_stale_snapshot();
        Ok(())
    }
}
