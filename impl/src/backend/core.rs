//! What a backend does with its private state: everything but the catalog session.
//!
//! It is a part of its own because a running scan may reach it (through [`Nested`]) while the session is busy. Here the
//! steps of the shared layer and of the ring meet the local view, the dirty set and the held snapshot; each rule of the
//! protocol that the backend layer is answerable for is asked for at one place, here or in [`Backend`](super::Backend).
//!
//! Invariant: what leaves the local view is in `dropped` until it has been released, so no reference is lost even if a
//! probe or a callback unwinds.

use super::catalog::Nested;
use super::dirty_set::DirtySet;
use super::list::{List, Pieces, Rows};
use super::local_view::{Entries, Kind, Local, LocalView};
use super::ring::{Accepted, Ring};
use super::{BackendStats, Invalidation, LOCAL_LIMIT_DEFAULT};
use crate::error::Error;
use crate::key::{Key, Packed};
use crate::message::Message;
use crate::probe::{EntryAt, ListImage, LocalImage, PrivateImage, Probe, Rule};
use crate::shared::{Publication, Reference, Shared, Token};
use crate::sync::MODELLED;

/// A function to be called with each invalidation.
pub(super) type Callback = Box<dyn FnMut(Invalidation) + Send>;

/// The load that is running.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    database: u32,
    cache: u8,
    /// Of the row's key; `None`: a list, which every message of its cache names.
    hash: Option<u32>,
    /// A message has named it: it starts again.
    pub(super) doomed: bool,
}

impl Running {
    pub(super) fn new(key: Packed<'_>) -> Running {
        let hash = (!key.is_list()).then_some(key.hash);
        Running { database: key.database(), cache: key.cache(), hash, doomed: false }
    }

    fn named_by(&self, message: Message) -> bool {
        match (message, self.hash) {
            (Message::Row { database, cache, .. }, None) => (database, cache) == (self.database, self.cache),
            (message, hash) => message.names(self.database, self.cache, hash.unwrap_or(0)),
        }
    }
}

/// All of a backend but its catalog session: what a running scan may reach through [`Nested`].
pub(super) struct Core<P: Probe> {
    pub(super) shared: Shared,
    pub(super) probe: P,
    /// The database that the backend works in.
    pub(super) database: u32,
    pub(super) local: LocalView,
    /// The local view's lists.
    pub(super) lists: LocalView,
    pub(super) local_limit: u32,
    /// A bracket of more rows opens the stamps of their catalogs.
    pub(super) escalation: u32,
    pub(super) dirty: DirtySet,
    pub(super) ring: Ring,
    /// The token of the held catalog snapshot. The snapshot itself lies in `Backend::snapshot`; it counts as dropped
    /// once this is `None`.
    pub(super) held: Option<Token>,
    pub(super) running: Option<Running>,
    pub(super) in_transaction: bool,
    pub(super) callbacks: Vec<Callback>,
    /// References that have left the local view and are still to be released.
    pub(super) dropped: Vec<u32>,
    pub(super) stats: BackendStats,
}

/// A bracket of a fourth of all stripes invalidates a fourth of everything anyhow.
fn escalation_default(stripes: u32) -> u32 {
    (stripes / 4).max(64)
}

impl Entries for Shared {
    #[inline(always)]
    fn key_of(&self, reference: u32) -> Key<'_> {
        Shared::key_of(self, reference)
    }

    #[inline(always)]
    fn row_if(&self, reference: u32, key: Packed<'_>) -> Option<Option<&[u8]>> {
        Shared::row_if(self, reference, key)
    }
}

impl<P: Probe> Nested for Core<P> {
    fn accept(&mut self) {
        Core::accept(self, false);
    }
}

impl<P: Probe> Core<P> {
    /// A backend that has joined the ring, with nothing cached.
    pub(super) fn new(ring: Ring, shared: Shared, database: u32, probe: P) -> Core<P> {
        let escalation = escalation_default(shared.config().stripes);
        Core {
            shared,
            probe,
            database,
            local: LocalView::new(),
            lists: LocalView::new(),
            local_limit: LOCAL_LIMIT_DEFAULT,
            escalation,
            dirty: DirtySet::default(),
            ring,
            held: None,
            running: None,
            in_transaction: false,
            callbacks: Vec::new(),
            dropped: Vec::new(),
            stats: BackendStats::default(),
        }
    }

    /// The row of an entry of the local view.
    pub(super) fn row(&self, found: Local) -> Option<&[u8]> {
        match found.kind() {
            Kind::Shared(reference) => self.shared.row_of(reference),
            Kind::Private(index) => self.local.private_row(index),
        }
    }

    /// The members of a list of the local view.
    pub(super) fn list(&self, found: Local, partial: &Key<'_>) -> List<'_> {
        match found.kind() {
            Kind::Shared(reference) => List::shared(self.shared.members_of(reference)),
            Kind::Private(index) => {
                let rest = self.lists.private_row(index).unwrap_or_default();
                List::private(Pieces { rest, database: partial.database, cache: partial.cache })
            }
        }
    }

    /// Has the own transaction changed what this key, or this list, is of?
    fn covers(&self, key: Packed<'_>) -> bool {
        if key.is_list() {
            return self.probe.keeps(Rule::CoverLists) && self.dirty.covers_lists(key.database(), key.cache());
        }
        self.dirty.covers((&key.unpack()).into(), self.probe.keeps(Rule::CoverWholeCatalog))
    }

    /// Looks into the shared table, unless the transaction has changed the row's hash, or the list's cache, itself.
    pub(super) fn find(&mut self, key: Packed<'_>) -> Option<Local> {
        if self.covers(key) && self.probe.keeps(Rule::ConsultDirtyAtProbe) {
            return None;
        }
        let partial = key.unpack();
        let found = match key.is_list() {
            true => self.shared.find_list(&self.probe, &partial),
            false => self.shared.find(&self.probe, &partial),
        };
        let reference = found?;
        self.stats.shared_hits += 1;
        Some(self.adopt(key, reference))
    }

    /// Takes over a reference to an entry that another load has published.
    fn adopt(&mut self, key: Packed<'_>, reference: Reference) -> Local {
        // A9: something that the held snapshot doesn't see has closed its bracket before this entry was found valid.
        if self.held.is_some_and(|token| reference.mark() > token.value())
            && self.probe.keeps(Rule::DropSnapshotOnNewerHit)
        {
            self.held = None;
        }
        self.take_in(key, reference)
    }

    /// Puts a reference into the local view.
    fn take_in(&mut self, key: Packed<'_>, reference: Reference) -> Local {
        let view = if key.is_list() { &mut self.lists } else { &mut self.local };
        let local = view.insert_shared(&self.shared, key, reference.into_raw());
        self.show();
        local
    }

    /// Publishes what a load has read, or keeps it for this backend alone.
    pub(super) fn keep(&mut self, key: Packed<'_>, row: Option<&[u8]>, token: Token) -> Local {
        let publish = |core: &Core<P>| core.shared.publish(&core.probe, &key.unpack(), row, token);
        self.keep_by(key, publish, row)
    }

    /// Likewise, what a load of a list has read.
    pub(super) fn keep_list(&mut self, key: Packed<'_>, rows: &Rows, token: Token) -> Local {
        let partial = key.unpack();
        let all = rows.of(partial.database, partial.cache);
        self.keep_by(key, |core| core.shared.publish_list(&core.probe, &partial, all, token), Some(rows.bytes()))
    }

    fn keep_by(
        &mut self,
        key: Packed<'_>,
        publish: impl FnOnce(&Core<P>) -> Publication,
        private: Option<&[u8]>,
    ) -> Local {
        let covered = self.covers(key) && self.probe.keeps(Rule::ConsultDirtyAtPublish);
        if !covered {
            match publish(self) {
                Publication::Published(reference) => {
                    self.stats.published += 1;
                    return self.take_in(key, reference);
                }
                Publication::Existing(reference) => {
                    self.stats.adopted += 1;
                    return self.adopt(key, reference);
                }
                Publication::Private { useless } => {
                    if useless && self.probe.keeps(Rule::DropSnapshotOnUselessPublish) {
                        self.held = None;
                    }
                }
            }
        }
        self.stats.kept_private += 1;
        let view = if key.is_list() { &mut self.lists } else { &mut self.local };
        let local = view.insert_private(&self.shared, key, private);
        self.show();
        local
    }

    /// Step Accept and what follows from it. `begin`: a transaction begins, which drops the snapshot in any case (A12).
    pub(super) fn accept(&mut self, begin: bool) {
        let accepted = self.ring.accept(&self.probe);
        if accepted != Accepted::Nothing || begin || self.local.len() + self.lists.len() > self.local_limit {
            self.obey(accepted, begin);
        }
    }

    /// What follows from an accept.
    #[inline(never)]
    fn obey(&mut self, accepted: Accepted, begin: bool) {
        let mut messages = self.ring.take_pending();
        self.stats.messages += messages.len() as u64;
        // A31: those of other databases are not for us; 0 is for everybody (A57).
        let database = self.database;
        messages.retain(|message| message.database() == database || message.database() == 0);

        let reset = accepted == Accepted::Reset;
        if reset {
            self.stats.resets += 1;
            if self.probe.keeps(Rule::ResetDropsLocal) {
                self.local.clear(&mut self.dropped);
                self.lists.clear(&mut self.dropped);
            }
            if !self.probe.keeps(Rule::KeepDirtyOnReset) {
                self.dirty.forget();
            }
        }
        if self.probe.keeps(Rule::DropLocalOnAccept) {
            self.drop_local(&messages);
        }
        if let Some(running) = &mut self.running
            && (reset || messages.iter().any(|message| running.named_by(*message)))
            && self.probe.keeps(if running.hash.is_some() { Rule::DoomRunningLoad } else { Rule::DoomRunningList })
        {
            running.doomed = true;
        }
        let too_old = (reset || !messages.is_empty()) && self.probe.keeps(Rule::DropSnapshotOnAccept);
        if begin || too_old {
            self.held = None;
        }
        // Rows make room before lists do.
        let limit = self.local_limit;
        self.local.trim(&self.shared, limit.saturating_sub(self.lists.len()), &mut self.dropped);
        self.lists.trim(&self.shared, limit.saturating_sub(self.local.len()), &mut self.dropped);
        self.show();
        self.release_dropped();
        if reset {
            self.callbacks.iter_mut().for_each(|callback| callback(Invalidation::Everything));
        }
        self.call_back(&messages);
        self.ring.recycle(messages);
    }

    /// Takes everything that `messages` name out of the local view.
    pub(super) fn drop_local(&mut self, messages: &[Message]) {
        for message in messages {
            let kept = !matches!(message, Message::Row { .. }) && !self.probe.keeps(Rule::DropWholeCatalog);
            if !kept {
                self.local.drop_matching(&self.shared, *message, &mut self.dropped);
            }
            if !kept && self.lists.len() > 0 && self.probe.keeps(Rule::DropListsOnAccept) {
                let goes = |key: Key<'_>| message.of_catalog().names(key.database, key.cache, 0);
                self.lists.drop_if(&self.shared, &mut self.dropped, goes);
            }
        }
    }

    /// Steps Release: gives the references back that have left the local view.
    pub(super) fn release_dropped(&mut self) {
        if MODELLED {
            // A fixed order keeps the model small. The references still hold, so the keys can be read.
            let shared = &self.shared;
            self.dropped.sort_by_key(|&raw| std::cmp::Reverse((shared.is_list(raw), shared.key_of(raw))));
        }
        // One by one off the list: a probe or a callback that unwinds leaves the rest to the next call.
        while let Some(reference) = self.dropped.pop() {
            self.shared.release(&self.probe, Reference::from_raw(reference));
        }
    }

    pub(super) fn call_back(&mut self, messages: &[Message]) {
        for &message in messages {
            self.callbacks.iter_mut().for_each(|callback| callback(Invalidation::Of(message)));
        }
    }

    /// Drops the dirty set at the end of the transaction.
    pub(super) fn forget_changes(&mut self) {
        if self.probe.keeps(Rule::DropDirtyAtEnd) {
            self.dirty.clear();
        }
    }

    pub(super) fn require_transaction(&self, operation: &'static str) -> Result<(), Error> {
        if self.in_transaction {
            return Ok(());
        }
        Err(Error::Transaction { operation, reason: "no transaction is running; call begin first" })
    }

    pub(super) fn require_sub(&self, operation: &'static str) -> Result<(), Error> {
        self.require_transaction(operation)?;
        if self.dirty.depth() > 0 {
            return Ok(());
        }
        Err(Error::Transaction { operation, reason: "no subtransaction is open; call begin_sub first" })
    }

    /// Hands the private state over to a harness.
    #[inline(always)]
    pub(super) fn show(&self) {
        self.probe.private(|| self.image());
    }

    pub(super) fn image(&self) -> PrivateImage {
        let mut local: Vec<LocalImage> = self
            .local
            .iter()
            .map(|(hash, local)| LocalImage {
                key: self.local.key_at(&self.shared, hash, local).to_owned(),
                entry: match local.kind() {
                    Kind::Shared(reference) => Some(EntryAt(reference)),
                    Kind::Private(_) => None,
                },
                row: self.row(local).map(<[u8]>::to_vec),
            })
            .collect();
        local.sort_by(|a, b| a.key.cmp(&b.key));
        let list = |(hash, found): (u32, Local)| {
            let key = self.lists.key_at(&self.shared, hash, found).to_owned();
            let entry = match found.kind() {
                Kind::Shared(reference) => Some(EntryAt(reference)),
                Kind::Private(_) => None,
            };
            let members = self.list(found, &key.as_key()).map(|(key, row)| (key.to_owned(), row.to_vec())).collect();
            ListImage { key, entry, members }
        };
        let mut lists: Vec<ListImage> = self.lists.iter().map(list).collect();
        lists.sort_by(|a, b| a.key.cmp(&b.key));
        PrivateImage {
            local,
            lists,
            snapshot: self.held.map(|token| token.value()),
            dirty: self.dirty.messages().collect(),
            ring_position: self.ring.position(),
        }
    }
}
