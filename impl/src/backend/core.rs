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
use super::local_view::{Entries, Kind, Local, LocalView};
use super::ring::{Accepted, Ring};
use super::{BackendStats, Invalidation, LOCAL_LIMIT_DEFAULT};
use crate::error::Error;
use crate::key::{Key, Packed};
use crate::message::Message;
use crate::probe::{EntryAt, LocalImage, PrivateImage, Probe, Rule};
use crate::shared::{Publication, Reference, Shared, Token};
use crate::sync::MODELLED;

/// A function to be called with each invalidation.
pub(super) type Callback = Box<dyn FnMut(Invalidation) + Send>;

/// The load that is running.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    /// The row that is being loaded: what names it makes the load start again.
    pub(super) row: Message,
    /// It has been made.
    pub(super) doomed: bool,
}

/// All of a backend but its catalog session: what a running scan may reach through [`Nested`].
pub(super) struct Core<P: Probe> {
    pub(super) shared: Shared,
    pub(super) probe: P,
    /// The database that the backend works in.
    pub(super) database: u32,
    pub(super) local: LocalView,
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

/// Does a message name the row of another?
fn names(message: Message, row: Message) -> bool {
    match row {
        Message::Row { database, cache, hash } => message.names(database, cache, hash),
        whole => message == whole,
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

    /// Has the own transaction changed what this key is of?
    fn covers(&self, key: &Key<'_>) -> bool {
        self.dirty.covers(key.into(), self.probe.keeps(Rule::CoverWholeCatalog))
    }

    /// Looks into the shared table, unless the transaction has changed the row's hash itself.
    pub(super) fn find(&mut self, key: &Key<'_>) -> Option<Local> {
        if self.covers(key) && self.probe.keeps(Rule::ConsultDirtyAtProbe) {
            return None;
        }
        let reference = self.shared.find(&self.probe, key)?;
        self.stats.shared_hits += 1;
        Some(self.adopt(key, reference))
    }

    /// Takes over a reference to an entry that another load has published.
    pub(super) fn adopt(&mut self, key: &Key<'_>, reference: Reference) -> Local {
        // A9: something that the held snapshot doesn't see has closed its bracket before this entry was found valid.
        if self.held.is_some_and(|token| reference.mark() > token.value())
            && self.probe.keeps(Rule::DropSnapshotOnNewerHit)
        {
            self.held = None;
        }
        let local = self.local.insert_shared(&self.shared, key, reference.into_raw());
        self.show();
        local
    }

    /// Publishes what a load has read, or keeps it for this backend alone.
    pub(super) fn keep(&mut self, key: &Key<'_>, row: Option<&[u8]>, token: Token) -> Local {
        let covered = self.covers(key) && self.probe.keeps(Rule::ConsultDirtyAtPublish);
        if !covered {
            match self.shared.publish(&self.probe, key, row, token) {
                Publication::Published(reference) => {
                    self.stats.published += 1;
                    let local = self.local.insert_shared(&self.shared, key, reference.into_raw());
                    self.show();
                    return local;
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
        let local = self.local.insert_private(&self.shared, key, row);
        self.show();
        local
    }

    /// Step Accept and what follows from it. `begin`: a transaction begins, which drops the snapshot in any case (A12).
    pub(super) fn accept(&mut self, begin: bool) {
        let accepted = self.ring.accept(&self.probe);
        if accepted != Accepted::Nothing || begin || self.local.len() > self.local_limit {
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
            }
            if !self.probe.keeps(Rule::KeepDirtyOnReset) {
                self.dirty.forget();
            }
        }
        if self.probe.keeps(Rule::DropLocalOnAccept) {
            self.drop_local(&messages);
        }
        if let Some(running) = &mut self.running
            && (reset || messages.iter().any(|message| names(*message, running.row)))
            && self.probe.keeps(Rule::DoomRunningLoad)
        {
            running.doomed = true;
        }
        let too_old = (reset || !messages.is_empty()) && self.probe.keeps(Rule::DropSnapshotOnAccept);
        if begin || too_old {
            self.held = None;
        }
        self.local.trim(&self.shared, self.local_limit, &mut self.dropped);
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
        }
    }

    /// Steps Release: gives the references back that have left the local view.
    pub(super) fn release_dropped(&mut self) {
        if MODELLED {
            // A fixed order keeps the model small. The references still hold, so the keys can be read.
            let shared = &self.shared;
            self.dropped.sort_by_key(|&reference| std::cmp::Reverse(shared.key_of(reference)));
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
        PrivateImage {
            local,
            snapshot: self.held.map(|token| token.value()),
            dirty: self.dirty.messages().collect(),
            ring_position: self.ring.position(),
        }
    }
}
