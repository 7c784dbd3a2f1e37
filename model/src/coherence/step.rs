//! The transition function: every atomic step of the protocol, pure and total.
//!
//! [`Program::choices`] says what a backend may do next; [`Program::step`] does it. Nothing else changes a state. The
//! grain is one lock section or one atomic access; what a backend does privately in between belongs to the step before.

use super::fault::Fault;
use super::program::{CATALOG, Item, Key, MEMBERS, Message, Op, Program};
use super::property::Property;
use super::state::{Answer, Backend, Life, List, Local, NONE, Outer, Own, Pc, Row, Slot, Snapshot, Stamp, State, Todo};
use smallvec::SmallVec;

/// An atomic step. The same names stand in the code's probe, in traces and in the docs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// Answer from the local view.
    LocalHit,
    /// Take the pending messages out of the ring.
    Accept,
    /// Find the entry of a key in the shared table and take a reference.
    Find,
    /// Load a stamp of an entry.
    Check,
    /// Unlink an entry that was found invalid, and drop the own reference.
    Unlink,
    /// Load the clock, for the token of a snapshot to be taken.
    Token,
    /// Take a catalog snapshot.
    Snapshot,
    /// Read the row from the catalog.
    Scan,
    /// Take a slot.
    Allocate,
    /// Unlink an unreferenced entry.
    Evict,
    /// Link an entry into the shared table.
    Publish,
    /// Drop a reference.
    Release,
    /// Give a slot back.
    Free,
    /// Change a row in the catalog, or all of a catalog or database, and take the heavyweight locks.
    Write,
    /// Take the heavyweight lock of a row for an in-place update.
    Lock,
    /// Change the bytes of a row where it lies.
    Overwrite,
    /// End a command.
    CommandEnd,
    /// Start a subtransaction.
    SubBegin,
    /// End a command and the subtransaction, whose changes become the parent's.
    SubCommit,
    /// Undo a subtransaction in the catalog, and release the locks that it took.
    SubAbort,
    /// C: log the commit.
    Log,
    /// Count a stamp up.
    Open,
    /// P: become visible.
    Visible,
    /// Advance the clock.
    Advance,
    /// Mark a stamp and count it down.
    Close,
    /// Count a stamp down without marking it.
    Withdraw,
    /// S: put a message into the ring.
    Send,
    /// L: release the heavyweight locks.
    Unlock,
    /// Undo in the catalog, and release the heavyweight locks.
    Undo,
}

/// What a step saw or did, as far as both model and code can say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seen {
    /// Nothing to tell.
    Nothing,
    /// A row, or that there is none.
    Row {
        /// Is there a row?
        present: bool,
    },
    /// Messages taken out of the ring.
    Messages {
        /// How many.
        count: u16,
        /// Was it a reset?
        reset: bool,
    },
    /// The slot found.
    Found(Option<u8>),
    /// A stamp, as read or as left.
    Stamp(Stamp),
    /// The clock, as read or as left.
    Clock(u16),
    /// The slot taken.
    Slot(Option<u8>),
    /// An entry was linked, or an existing one stays.
    Published {
        /// The slot that now holds the key.
        slot: u8,
        /// The slot that was unlinked for it.
        replaced: Option<u8>,
        /// Does an entry of somebody else stay?
        existing: bool,
    },
    /// The last reference of the unlinked entry?
    Unlinked {
        /// The slot.
        slot: u8,
        /// Is it to be freed?
        free: bool,
    },
    /// A reference was dropped.
    Released {
        /// The slot.
        slot: u8,
        /// Is it to be freed?
        free: bool,
    },
    /// The slot evicted.
    Evicted(Option<u8>),
    /// The slot given back.
    Freed(u8),
    /// The catalog refused.
    Fail,
}

/// A step of one backend, with the choice where there is one: which item to start, which token to read, which slot to
/// evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Action {
    /// Which backend.
    pub backend: u8,
    /// Its step.
    pub step: Step,
    /// The choice, else 0.
    pub choice: u16,
}

/// What a load of shared memory returned, where it may be old (weak memory); the model itself reads what is current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// What is there now.
    Current,
    /// An earlier value of the stamp.
    Old(Stamp),
    /// An earlier tail of the ring: no message was seen.
    NoMessages,
}

/// The kinds of stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Stripe,
    List,
    Catalog,
    Database,
}

/// The stages of a commit, in the order of DESIGN section 3; those of an in-place update have Overwrite for Log and Visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Log,
    Open,
    Visible,
    Overwrite,
    Advance,
    Close,
    Send,
    Unlock,
}

impl Stage {
    fn step(self) -> Step {
        match self {
            Stage::Log => Step::Log,
            Stage::Open => Step::Open,
            Stage::Visible => Step::Visible,
            Stage::Overwrite => Step::Overwrite,
            Stage::Advance => Step::Advance,
            Stage::Close => Step::Close,
            Stage::Send => Step::Send,
            Stage::Unlock => Step::Unlock,
        }
    }
}

impl Program {
    fn stages(&self) -> &'static [Stage] {
        use Stage::*;
        match self.fault {
            Some(Fault::OpenLeftOut) => &[Log, Visible, Advance, Close, Send, Unlock],
            Some(Fault::OpenAfterVisible) => &[Log, Visible, Open, Advance, Close, Send, Unlock],
            Some(Fault::CloseBeforeVisible) => &[Log, Open, Advance, Close, Visible, Send, Unlock],
            Some(Fault::ClockNotAdvanced) => &[Log, Open, Visible, Close, Send, Unlock],
            Some(Fault::SendBeforeVisible) => &[Log, Open, Send, Visible, Advance, Close, Unlock],
            Some(Fault::UnlockBeforeSend) => &[Log, Open, Visible, Advance, Close, Unlock, Send],
            Some(Fault::SendLeftOut) => &[Log, Open, Visible, Advance, Close, Unlock],
            _ => &[Log, Open, Visible, Advance, Close, Send, Unlock],
        }
    }

    fn broken(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// The stages of an in-place update.
    fn in_place_stages(&self) -> &'static [Stage] {
        use Stage::*;
        match self.fault {
            Some(Fault::InPlaceNotBracketed) => &[Overwrite, Send, Unlock],
            Some(Fault::InPlaceClosedBefore) => &[Open, Advance, Close, Overwrite, Send, Unlock],
            Some(Fault::InPlaceNotSent) => &[Open, Overwrite, Advance, Close, Unlock],
            _ => &[Open, Overwrite, Advance, Close, Send, Unlock],
        }
    }

    /// The stamps that a bracket opens.
    fn opened(&self, messages: &[Message]) -> List<u8> {
        let mut stamps = self.stamps_for(messages);
        match self.fault {
            Some(Fault::ListNotOpened) => stamps.retain(|s| self.kind_of(usize::from(*s)) != Kind::List),
            Some(Fault::CatalogNotOpened) => stamps.retain(|s| self.kind_of(usize::from(*s)) != Kind::Catalog),
            Some(Fault::DatabaseNotOpened) => stamps.retain(|s| self.kind_of(usize::from(*s)) != Kind::Database),
            Some(Fault::EscalationOpensOne) => stamps.truncate(1),
            _ => {}
        }
        stamps
    }

    /// What a stamp is of.
    fn kind_of(&self, stamp: usize) -> Kind {
        let lists = self.stripes as usize;
        let catalogs = lists + self.list_stamps();
        let databases = catalogs + self.catalogs();
        match stamp {
            s if s < lists => Kind::Stripe,
            s if s < catalogs => Kind::List,
            s if s < databases => Kind::Catalog,
            _ => Kind::Database,
        }
    }

    /// Does the dirty set of a backend cover a key, or a list?
    pub fn covers(&self, b: &Backend, item: Item) -> bool {
        let wide = !self.broken(Fault::CatalogNotCovered);
        if self.list(item).is_some() && self.broken(Fault::ListNotCovered) {
            return false;
        }
        b.changed().any(|message| self.names(message, item) && (wide || message & CATALOG == 0))
    }

    /// What the running lookup of a backend publishes next: a member of its list, or itself.
    fn target(&self, b: &Backend) -> Item {
        if b.part == NONE { b.key } else { self.parts(b.key)[b.part as usize] }
    }

    /// The operation that a backend is in, or would start with item `item`.
    fn op(&self, backend: usize, b: &Backend, item: u8) -> Option<Op> {
        let (item, at) = if b.item == NONE { (item, 0) } else { (b.item, b.at) };
        self.plans[backend].items.get(item as usize)?.get(at as usize).copied()
    }

    /// The first step of an operation; `None` if it has to wait.
    fn first_step(&self, s: &State, b: &Backend, me: u8, op: Op) -> Option<Step> {
        Some(match op {
            Op::Lookup(k) if b.local[k as usize].row.known() => Step::LocalHit,
            Op::Lookup(k) if self.broken(Fault::AcceptBeforeProbeLeftOut) => {
                if self.covers(b, k) {
                    self.load_step(b)
                } else {
                    Step::Find
                }
            }
            Op::Lookup(_) | Op::Accept | Op::Begin => Step::Accept,
            Op::Insert(k) | Op::Update(k) | Op::Delete(k) => {
                let owner = s.catalog[k as usize].owner;
                if owner != NONE && owner != me {
                    return None;
                }
                Step::Write
            }
            Op::Rewrite(_) | Op::DropDatabase(_) => {
                let locked = |k: Key| s.catalog[k as usize].owner != NONE && s.catalog[k as usize].owner != me;
                if self.named(self.whole(op)).any(locked) {
                    return None;
                }
                Step::Write
            }
            // The row's own writer can't: it would change what others see of a row that it has replaced.
            Op::InPlace(k) if s.catalog[k as usize].owner != NONE || !s.catalog[k as usize].committed.present() => {
                return None;
            }
            Op::InPlace(_) => Step::Lock,
            Op::CommandEnd => Step::CommandEnd,
            // A26: not while the running command has changed something.
            Op::SubBegin if !b.pending.is_empty() => return None,
            Op::SubBegin => Step::SubBegin,
            Op::SubCommit => Step::SubCommit,
            Op::SubAbort => Step::SubAbort,
            Op::Commit | Op::CommitFails => Step::Log,
            Op::Abort => Step::Undo,
            Op::Evict(_) => Step::Evict,
        })
    }

    /// What an operation on a whole catalog or database says.
    fn whole(&self, op: Op) -> Message {
        match op {
            Op::DropDatabase(k) => self.database_of(k),
            op => self.catalog_of(op.key().unwrap_or(0)),
        }
    }

    fn load_step(&self, b: &Backend) -> Step {
        match b.snapshot {
            Some(_) => Step::Scan,
            None if self.broken(Fault::TokenAfterSnapshot) => Step::Snapshot,
            None => Step::Token,
        }
    }

    /// The stamp that a backend is about to check.
    pub fn checking(&self, b: &Backend) -> Option<usize> {
        let nth = match b.pc {
            Pc::Check(_, nth) | Pc::PublishCheck(nth) | Pc::ExistingCheck(_, nth) => nth,
            _ => return None,
        };
        self.stamps_of(self.target(b)).nth(nth.into())
    }

    /// Everything that a backend may do next: a step, and a choice where the step has one.
    pub fn choices(&self, s: &State, backend: usize) -> List<(Step, u16)> {
        let b = &s.backends[backend];
        let mut out = List::new();
        if s.broken.is_some() {
            return out;
        }
        match b.todo.first() {
            Some(Todo::Release(_)) => out.push((Step::Release, 0)),
            Some(Todo::Free(_)) => out.push((Step::Free, 0)),
            None => {}
        }
        if !out.is_empty() {
            return out;
        }
        match b.pc {
            Pc::Idle if b.item != NONE => {
                let step = self.op(backend, b, NONE).and_then(|op| self.first_step(s, b, backend as u8, op));
                out.extend(step.map(|step| (step, 0)));
            }
            Pc::Idle if b.starts == 0 => {}
            Pc::Idle => {
                for item in 0..self.plans[backend].items.len() as u8 {
                    let step = self.op(backend, b, item).and_then(|op| self.first_step(s, b, backend as u8, op));
                    out.extend(step.map(|step| (step, u16::from(item))));
                }
            }
            Pc::Token if self.stale_tokens => out.extend((b.clock..=s.clock).map(|clock| (Step::Token, clock))),
            Pc::Token => out.push((Step::Token, s.clock)),
            Pc::Evict => {
                let may = |i: &usize| {
                    s.slots[*i].linked() && (s.slots[*i].references == 0 || self.broken(Fault::EvictIgnoresReferences))
                };
                out.extend((0..s.slots.len()).filter(may).map(|i| (Step::Evict, i as u16)));
                if out.is_empty() {
                    out.push((Step::Evict, u16::from(NONE)));
                }
            }
            pc => out.push((self.step_at(b, pc), 0)),
        }
        out
    }

    fn step_at(&self, b: &Backend, pc: Pc) -> Step {
        match pc {
            Pc::Find => Step::Find,
            Pc::Check(..) | Pc::PublishCheck(_) | Pc::ExistingCheck(..) => Step::Check,
            Pc::Unlink(_) => Step::Unlink,
            Pc::Token | Pc::Idle => Step::Token,
            Pc::Snapshot(..) => Step::Snapshot,
            Pc::Scan => Step::Scan,
            Pc::Nested | Pc::AcceptOwn => Step::Accept,
            Pc::Allocate(_) => Step::Allocate,
            Pc::Evict => Step::Evict,
            Pc::Publish(_) => Step::Publish,
            Pc::FreeEvicted(_) | Pc::FreeReplaced(..) | Pc::FreeOwn(..) | Pc::FreeVictim(_) => Step::Free,
            // The last two have no step of their own: they follow on the last thing to do.
            Pc::ReleaseExisting(_) | Pc::Adopt(_) | Pc::Private(_) => Step::Release,
            Pc::Commit(stage, ..) => self.stages()[stage as usize].step(),
            Pc::InPlace(stage, ..) => self.in_place_stages()[stage as usize].step(),
            Pc::Withdraw(i) if usize::from(i) < self.opened(&b.sending).len() => Step::Withdraw,
            Pc::Withdraw(_) | Pc::Undo => Step::Undo,
        }
    }

    /// All actions of a state.
    pub fn actions_of(&self, s: &State, out: &mut Vec<Action>) {
        for backend in 0..s.backends.len() {
            let of = |(step, choice)| Action { backend: backend as u8, step, choice };
            out.extend(self.choices(s, backend).into_iter().map(of));
        }
    }

    /// Takes one step: the next state and what the step saw, or `None` if it can't be taken here.
    pub fn step(&self, s: &State, a: Action) -> Option<(State, Seen)> {
        self.step_reading(s, a, Reading::Current)
    }

    /// As [`Program::step`], but with what a load of shared memory returned: for runs of real code, which may read old
    /// values. Properties that speak of real time (I1h) are not judged where the reading is old.
    pub fn step_reading(&self, s: &State, a: Action, reading: Reading) -> Option<(State, Seen)> {
        let backend = a.backend as usize;
        if backend >= s.backends.len() || !self.choices(s, backend).contains(&(a.step, a.choice)) {
            return None;
        }
        let mut m = Move { p: self, s: s.clone(), me: backend, reading };
        let seen = m.take(a);
        m.judge();
        Some((m.s, seen))
    }
}

/// The rows of the cells of an item.
fn pair(cells: &[Row]) -> [Row; MEMBERS] {
    [cells[0], cells.get(1).copied().unwrap_or(Row::UNKNOWN)]
}

/// A step being taken.
struct Move<'p> {
    p: &'p Program,
    s: State,
    me: usize,
    reading: Reading,
}

impl Move<'_> {
    fn b(&mut self) -> &mut Backend {
        &mut self.s.backends[self.me]
    }

    fn fault(&self, fault: Fault) -> bool {
        self.p.fault == Some(fault)
    }

    fn violate(&mut self, property: Property) {
        self.s.broken.get_or_insert(property);
    }

    fn take(&mut self, a: Action) -> Seen {
        if !self.b().todo.is_empty() {
            let seen = match self.b().todo.remove(0) {
                Todo::Release(slot) => self.release(slot),
                Todo::Free(slot) => self.free(slot),
            };
            self.finish_list();
            return seen;
        }
        match self.b().pc {
            Pc::Idle => self.start(a),
            Pc::Find => self.find(),
            Pc::Check(slot, i) => self.check(slot, i),
            Pc::Unlink(slot) => self.unlink(slot),
            Pc::Token => self.token(a.choice),
            Pc::Snapshot(token, exact) => self.snapshot(token, exact),
            Pc::Scan => self.scan(),
            Pc::Nested => self.nested(),
            Pc::PublishCheck(i) => self.publish_check(i),
            Pc::Allocate(again) => self.allocate(again),
            Pc::Evict => self.make_room(a.choice),
            Pc::FreeEvicted(slot) => {
                self.b().pc = Pc::Allocate(true);
                self.free(slot)
            }
            Pc::Publish(slot) => self.publish(slot),
            Pc::FreeReplaced(replaced, own) => {
                self.published(own);
                self.free(replaced)
            }
            Pc::FreeOwn(own, existing) => {
                self.b().pc = Pc::ExistingCheck(existing, 0);
                self.free(own)
            }
            Pc::ExistingCheck(slot, i) => self.existing_check(slot, i),
            Pc::ReleaseExisting(slot) => {
                let seen = self.release(slot);
                self.stay_private(false);
                seen
            }
            Pc::Adopt(_) | Pc::Private(_) => Seen::Nothing,
            Pc::Commit(stage, i, clock) => self.commit(stage, i, clock),
            Pc::InPlace(stage, i, clock) => self.in_place(stage, i, clock),
            Pc::AcceptOwn => {
                let seen = self.accept();
                self.finish_op();
                seen
            }
            Pc::Withdraw(i) => {
                let stamps = self.p.opened(&self.b().sending.clone());
                match stamps.get(i as usize) {
                    Some(stamp) => self.withdraw(*stamp, i),
                    None => self.undo(),
                }
            }
            Pc::Undo => self.undo(),
            Pc::FreeVictim(slot) => {
                self.finish_op();
                self.free(slot)
            }
        }
    }

    // ---- operations -------------------------------------------------------------------------------------------------

    fn start(&mut self, a: Action) -> Seen {
        let me = self.me;
        let p = self.p;
        if self.b().item == NONE {
            self.b().item = a.choice as u8;
            self.b().at = 0;
            self.b().starts -= 1;
        }
        let Some(op) = p.op(me, &self.s.backends[me], NONE) else { return Seen::Nothing };
        match op {
            Op::Lookup(k) => self.lookup(k, a.step),
            Op::Accept => {
                let seen = self.accept();
                self.finish_op();
                seen
            }
            Op::Begin => {
                let seen = if self.fault(Fault::AcceptAtBeginLeftOut) {
                    self.raise_floor();
                    Seen::Messages { count: 0, reset: false }
                } else {
                    self.accept()
                };
                self.b().snapshot = None;
                self.b().in_transaction = true;
                if p.record {
                    self.s.done &= !(1 << me);
                }
                self.finish_op();
                seen
            }
            Op::Insert(k) | Op::Update(k) => self.write(k, true),
            Op::Delete(k) => self.write(k, false),
            Op::Rewrite(_) => self.write_all(p.whole(op), true),
            Op::DropDatabase(_) => self.write_all(p.whole(op), false),
            Op::InPlace(k) => {
                self.s.catalog[k as usize].owner = me as u8;
                self.b().sending = List::from_slice(&[p.class(k)]);
                self.b().pc = Pc::InPlace(0, 0, 0);
                Seen::Nothing
            }
            Op::CommandEnd => {
                self.end_command();
                self.finish_op();
                Seen::Nothing
            }
            Op::SubBegin => self.sub_begin(),
            Op::SubCommit => self.sub_commit(),
            Op::SubAbort => self.sub_abort(),
            Op::Commit | Op::CommitFails => {
                let b = self.b();
                b.sending = List::new();
                for class in b.dirty() {
                    if !b.sending.contains(&class) {
                        b.sending.push(class);
                    }
                }
                if self.fault(Fault::OnlyIfCached) {
                    let cached = |b: &Backend, m: Message| p.named(m).any(|k| b.local[k as usize].row.known());
                    let b = self.b();
                    let sending = b.sending.clone();
                    b.sending = sending.into_iter().filter(|c| cached(b, *c)).collect();
                }
                self.commit(0, 0, 0)
            }
            Op::Abort => self.undo(),
            Op::Evict(k) => self.evict(k),
        }
    }

    fn finish_op(&mut self) {
        let me = self.me;
        let items = &self.p.plans[me].items;
        let b = &mut self.s.backends[me];
        b.pc = Pc::Idle;
        b.key = NONE;
        b.part = NONE;
        b.members = [NONE; MEMBERS];
        b.row = Row::UNKNOWN;
        b.second = Row::UNKNOWN;
        b.token = 0;
        b.found = ([Row::UNKNOWN; MEMBERS], 0);
        b.mark = 0;
        b.doomed = false;
        b.expected = [Row::UNKNOWN; MEMBERS];
        b.sent = List::new();
        b.probe = [0; MEMBERS];
        b.after = 0;
        b.at += 1;
        if usize::from(b.at) == items[b.item as usize].len() {
            b.item = NONE;
            b.at = 0;
        }
    }

    // ---- lookup -----------------------------------------------------------------------------------------------------

    fn lookup(&mut self, k: Item, step: Step) -> Seen {
        let done = self.s.done;
        let sent = self.s.catalog.iter().map(|c| c.sent).collect();
        let cells = self.p.cells(k);
        let b = self.b();
        b.key = k;
        b.expected = pair(&b.stable[cells]);
        b.after = done;
        match step {
            Step::LocalHit => {
                let rows = b.local[k as usize].rows();
                self.answer(rows, false);
                self.finish_op();
                self.shown(k, rows)
            }
            Step::Accept => {
                b.sent = sent;
                if self.reading == Reading::NoMessages {
                    // Nothing that this backend knows of was queued before the lookup.
                    self.b().sent.clear();
                }
                let seen = self.accept();
                self.go_probe();
                seen
            }
            _ => {
                b.sent = sent;
                self.go_probe();
                match self.b().pc {
                    Pc::Find => self.find(),
                    Pc::Token => self.token(self.s.clock),
                    _ => self.scan(),
                }
            }
        }
    }

    /// What the step after the accept is.
    fn go_probe(&mut self) {
        let covered = self.p.covers(&self.s.backends[self.me], self.s.backends[self.me].key);
        if covered && !self.fault(Fault::DirtyNotConsultedAtProbe) {
            self.go_load();
        } else {
            self.b().pc = Pc::Find;
        }
    }

    /// What a scan or a local hit shows: is there a row? Of a list, that there is one: it is never absent itself.
    fn shown(&self, item: Item, rows: [Row; MEMBERS]) -> Seen {
        Seen::Row { present: self.p.list(item).is_some() || rows[0].present() }
    }

    /// The versions that are committed now, of the parts of what is looked for.
    fn committed(&self, item: Item) -> [u8; MEMBERS] {
        let mut versions = [0; MEMBERS];
        for (version, key) in versions.iter_mut().zip(self.p.parts(item)) {
            *version = self.s.catalog[key as usize].committed.version();
        }
        versions
    }

    fn find(&mut self) -> Seen {
        let k = self.b().key;
        self.b().probe = self.committed(k);
        let found = self.s.slots.iter().position(|slot| slot.linked() && slot.key == k);
        match found {
            None => self.go_load(),
            Some(slot) => {
                self.hold(slot);
                self.b().pc = Pc::Check(slot as u8, 0);
            }
        }
        Seen::Found(found.map(|s| s as u8))
    }

    /// Takes a reference to the entry in a slot, and remembers what it says.
    fn hold(&mut self, slot: usize) {
        let entry = self.s.slots[slot];
        self.b().found = (entry.rows(), entry.token);
        if self.p.memory() && !self.fault(Fault::ReferenceNotTaken) {
            self.s.slots[slot].references += 1;
        }
    }

    /// Reads a stamp of the running lookup's key: its value, whether a token is good for it, and whether there are more.
    fn read_stamp(&mut self, nth: u8, token: u16) -> (Stamp, bool, bool) {
        let Some(at) = self.p.checking(&self.s.backends[self.me]) else { return (Stamp::default(), false, false) };
        let target = self.p.target(&self.s.backends[self.me]);
        let more = self.p.stamps_of(target).nth(usize::from(nth) + 1).is_some();
        let stamp = match self.reading {
            Reading::Old(stamp) => stamp,
            Reading::Current | Reading::NoMessages => self.s.stamps[at],
        };
        let kind = self.p.kind_of(at);
        let good = match self.p.fault {
            Some(Fault::CheckLeftOut) => true,
            Some(Fault::CheckIgnoresOpen) => stamp.mark <= token,
            Some(Fault::CheckIgnoresMark) => stamp.open == 0,
            Some(Fault::ListNotChecked) if kind == Kind::List => true,
            Some(Fault::CatalogNotChecked) if kind == Kind::Catalog => true,
            Some(Fault::DatabaseNotChecked) if kind == Kind::Database => true,
            _ => stamp.good(token),
        };
        let b = self.b();
        b.mark = b.mark.max(stamp.mark);
        (stamp, good, more)
    }

    fn check(&mut self, slot: u8, nth: u8) -> Seen {
        let (stamp, good, more) = self.read_stamp(nth, self.s.backends[self.me].found.1);
        match (good, more) {
            (true, true) => self.b().pc = Pc::Check(slot, nth + 1),
            (true, false) => {
                self.judge_found();
                self.adopt(slot);
                self.finish_op();
            }
            (false, _) => {
                self.b().mark = 0;
                self.b().pc = Pc::Unlink(slot);
            }
        }
        Seen::Stamp(stamp)
    }

    /// A shared entry becomes the answer, and goes into the local view.
    fn adopt(&mut self, slot: u8) {
        let (rows, mark) = (self.b().found.0, self.b().mark);
        let k = self.b().key as usize;
        self.b().local[k] = Local { row: rows[0], second: rows[1], slot };
        let newer = self.b().snapshot.as_ref().is_some_and(|snapshot| mark > snapshot.token);
        if newer && !self.fault(Fault::SnapshotKeptOnNewerHit) {
            self.b().snapshot = None;
        }
        self.answer(rows, true);
    }

    /// An entry was found good: was it current at some instant since the probe began?
    fn judge_found(&mut self) {
        let (rows, probe) = (self.b().found.0, self.b().probe);
        let parts = self.p.parts(self.p.target(&self.s.backends[self.me])).len();
        let old = rows.iter().zip(probe).take(parts).any(|(row, version)| row.version() < version);
        if self.reading == Reading::Current && old {
            self.violate(Property::I1h);
        }
    }

    fn unlink(&mut self, slot: u8) -> Seen {
        let memory = self.p.memory();
        let found = self.b().found;
        let entry = &mut self.s.slots[slot as usize];
        let mut free = false;
        if !memory {
            // Without modelled memory slot k is for key k: unlink only what was found invalid, not a newer entry.
            if entry.linked() && (entry.rows(), entry.token) == found {
                *entry = Slot::FREE;
            }
        } else {
            entry.life = if entry.linked() { Life::Unlinked } else { entry.life };
            entry.references = entry.references.saturating_sub(1);
            free = entry.references == 0 && entry.life == Life::Unlinked;
        }
        self.go_load();
        if free {
            self.dispose(slot);
        }
        Seen::Unlinked { slot, free }
    }

    // ---- load -------------------------------------------------------------------------------------------------------

    fn go_load(&mut self) {
        let after = self.fault(Fault::TokenAfterSnapshot);
        let b = self.b();
        b.doomed = false;
        b.found = ([Row::UNKNOWN; MEMBERS], 0);
        b.mark = 0;
        b.pc = match b.snapshot {
            Some(_) => Pc::Scan,
            None if after => Pc::Snapshot(0, 0),
            None => Pc::Token,
        };
    }

    fn token(&mut self, clock: u16) -> Seen {
        let exact = if clock == self.s.clock { clock } else { 0 };
        let stale = self.p.stale_tokens;
        let first = self.fault(Fault::TokenTooOld);
        let b = self.b();
        if stale {
            b.clock = clock;
        }
        if let Some(snapshot) = &mut b.snapshot {
            // Only with the fault that takes the token after the snapshot.
            snapshot.token = clock;
            b.pc = Pc::Scan;
        } else {
            b.pc = Pc::Snapshot(if first { 1 } else { clock }, exact);
        }
        Seen::Clock(clock)
    }

    fn snapshot(&mut self, token: u16, exact: u16) -> Seen {
        let rows = self.s.catalog.iter().map(|c| c.committed).collect();
        self.b().snapshot = Some(Snapshot { token, rows, exact, useless: false });
        self.b().pc = if self.fault(Fault::TokenAfterSnapshot) { Pc::Token } else { Pc::Scan };
        Seen::Nothing
    }

    fn scan(&mut self) -> Seen {
        let clock = self.s.clock;
        let item = self.b().key;
        let parts = self.p.parts(item);
        let toasted = parts.iter().any(|k| self.p.keys[*k as usize].toasted);
        let fresh = self.fault(Fault::TokenAtMiss);
        let b = self.b();
        let mut rows = [Row::UNKNOWN; MEMBERS];
        if let Some(snapshot) = &b.snapshot {
            for (row, k) in rows.iter_mut().zip(&parts) {
                let own = b.own[*k as usize].finished;
                *row = if own.known() { own } else { snapshot.rows[*k as usize] };
            }
            b.token = if fresh { clock } else { snapshot.token };
        }
        [b.row, b.second] = rows;
        b.pc = Pc::Nested;
        if !toasted {
            self.go_publish();
        }
        self.shown(item, rows)
    }

    /// The accept inside a load, as detoasting makes it (A13).
    fn nested(&mut self) -> Seen {
        let before = self.b().snapshot.clone();
        let seen = self.accept();
        if self.b().doomed {
            if self.fault(Fault::DoomedKeepsSnapshot) {
                self.b().snapshot = before;
            }
            self.go_load();
        } else {
            self.go_publish();
        }
        seen
    }

    fn go_publish(&mut self) {
        let covered = self.p.covers(&self.s.backends[self.me], self.s.backends[self.me].key);
        if covered && !self.fault(Fault::DirtyNotConsultedAtPublish) {
            self.answer_private();
        } else if self.p.list(self.b().key).is_some() {
            self.publish_part(0);
        } else {
            self.b().pc = Pc::PublishCheck(0);
        }
    }

    /// Goes on with the first member from `part` on that has a row, or, if there is none, with the list itself.
    fn publish_part(&mut self, part: usize) {
        let rows = [self.b().row, self.b().second];
        let next = (part..MEMBERS).find(|j| rows[*j].present());
        let b = self.b();
        b.part = next.map_or(NONE, |j| j as u8);
        b.mark = 0;
        b.found = ([Row::UNKNOWN; MEMBERS], 0);
        b.probe = [0; MEMBERS];
        b.pc = Pc::PublishCheck(0);
    }

    /// What is published next, and of a list both its rows.
    fn target_rows(&mut self) -> [Row; MEMBERS] {
        let b = self.b();
        match b.part {
            NONE => [b.row, b.second],
            0 => [b.row, Row::UNKNOWN],
            _ => [b.second, Row::UNKNOWN],
        }
    }

    /// The load stays private: at once, or, with members published already, once they are released.
    /// `useless`: because the token is too old, so the snapshot goes, too.
    fn stay_private(&mut self, useless: bool) {
        self.release_members();
        self.b().pc = Pc::Private(useless);
        self.finish_list();
    }

    /// The own members are not needed: somebody else's list is there, or there is to be none.
    fn release_members(&mut self) {
        let b = self.b();
        let members = std::mem::replace(&mut b.members, [NONE; MEMBERS]);
        b.todo.extend(members.into_iter().filter(|m| *m != NONE).map(Todo::Release));
    }

    /// Ends a lookup that waited for the last thing to do.
    fn finish_list(&mut self) {
        if !self.b().todo.is_empty() {
            return;
        }
        match self.b().pc {
            Pc::Adopt(slot) => {
                self.adopt(slot);
                self.finish_op();
            }
            Pc::Private(useless) => {
                if useless {
                    self.b().snapshot = None;
                }
                self.answer_private();
            }
            _ => {}
        }
    }

    fn answer_private(&mut self) {
        let k = self.b().key as usize;
        let (row, second) = (self.b().row, self.b().second);
        self.b().local[k] = Local { row, second, slot: NONE };
        self.answer([row, second], true);
        self.finish_op();
    }

    fn publish_check(&mut self, nth: u8) -> Seen {
        let token = self.b().token;
        let (stamp, good, more) = self.read_stamp(nth, token);
        if good {
            // What counts is the mark as it stands when an existing entry is checked.
            self.b().mark = 0;
            if more {
                self.b().pc = Pc::PublishCheck(nth + 1);
            } else if self.p.memory() {
                self.b().pc = Pc::Allocate(false);
            } else {
                self.b().pc = Pc::Publish(self.p.target(&self.s.backends[self.me]));
            }
            return Seen::Stamp(stamp);
        }
        if self.b().snapshot.as_ref().is_some_and(|s| s.useless) {
            self.violate(Property::Renewed);
        }
        // Quiet since the token was read, and yet it is not good: the token was too old.
        if self.b().snapshot.as_ref().is_some_and(|s| stamp.open == 0 && s.exact >= stamp.mark && s.exact != 0) {
            self.violate(Property::Useful);
        }
        if self.fault(Fault::SnapshotKeptWhenUseless)
            && let Some(snapshot) = &mut self.b().snapshot
        {
            snapshot.useless = true;
        }
        self.stay_private(!self.fault(Fault::SnapshotKeptWhenUseless));
        Seen::Stamp(stamp)
    }

    fn allocate(&mut self, again: bool) -> Seen {
        let free = self.s.slots.iter().position(|s| s.life == Life::Free);
        match free {
            Some(slot) => {
                self.s.slots[slot].life = Life::Taken;
                self.b().pc = Pc::Publish(slot as u8);
            }
            None if again => self.stay_private(false),
            None => self.b().pc = Pc::Evict,
        }
        Seen::Slot(free.map(|s| s as u8))
    }

    fn make_room(&mut self, victim: u16) -> Seen {
        if victim == u16::from(NONE) {
            self.stay_private(false);
            return Seen::Evicted(None);
        }
        self.take_out(victim as u8);
        self.b().pc = Pc::FreeEvicted(victim as u8);
        Seen::Evicted(Some(victim as u8))
    }

    fn publish(&mut self, slot: u8) -> Seen {
        let (k, token) = (self.p.target(&self.s.backends[self.me]), self.b().token);
        let rows = self.target_rows();
        let memory = self.p.memory();
        let existing = self.s.slots.iter().position(|s| s.linked() && s.key == k);
        let stays = existing.filter(|e| self.s.slots[*e].token >= token && !self.fault(Fault::OlderReplacesNewer));
        if let Some(e) = stays {
            self.b().probe = self.committed(k);
            self.hold(e);
            let own = if memory { Pc::FreeOwn(slot, e as u8) } else { Pc::ExistingCheck(e as u8, 0) };
            self.b().pc = own;
            return Seen::Published { slot: e as u8, replaced: None, existing: true };
        }
        if existing.is_some_and(|e| self.s.slots[e].token > token) {
            self.violate(Property::Newest);
        }
        let mut freed = None;
        if let Some(e) = existing.filter(|_| memory) {
            if self.s.slots[e].references == 0 {
                self.take_out(e as u8);
                freed = Some(e as u8);
            } else {
                self.s.slots[e].life = Life::Unlinked;
            }
        }
        let references = u8::from(memory);
        // A list takes the references to its members over.
        let members = match self.p.list(k) {
            Some(_) => std::mem::replace(&mut self.b().members, [NONE; MEMBERS]),
            None => [NONE; MEMBERS],
        };
        let [row, second] = rows;
        self.s.slots[slot as usize] = Slot { life: Life::Linked, key: k, row, second, members, token, references };
        match freed {
            Some(e) => self.b().pc = Pc::FreeReplaced(e, slot),
            None => self.published(slot),
        }
        Seen::Published { slot, replaced: existing.map(|e| e as u8), existing: false }
    }

    /// The own published entry becomes the answer, or a member of the list that is being built.
    fn published(&mut self, slot: u8) {
        if self.b().part != NONE {
            return self.member(slot);
        }
        let (k, rows) = (self.b().key as usize, [self.b().row, self.b().second]);
        self.b().local[k] = Local { row: rows[0], second: rows[1], slot };
        self.answer(rows, true);
        self.finish_op();
    }

    /// A member of the list is in the shared table; the list will refer to it.
    fn member(&mut self, slot: u8) {
        let part = usize::from(self.b().part);
        if self.p.memory() {
            if self.fault(Fault::MembersNotPinned) {
                let entry = &mut self.s.slots[slot as usize];
                entry.references = entry.references.saturating_sub(1);
            }
            self.b().members[part] = slot;
        }
        self.publish_part(part + 1);
    }

    fn existing_check(&mut self, slot: u8, nth: u8) -> Seen {
        let (stamp, good, more) = self.read_stamp(nth, self.s.backends[self.me].found.1);
        let good = good || self.fault(Fault::ExistingNotChecked);
        // Should a member show another row than the list's scan has read, then its cache has changed since, and the list is not
        // published: its stamp is checked after this.
        let member = self.b().part != NONE;
        if good && more {
            self.b().pc = Pc::ExistingCheck(slot, nth + 1);
        } else if good {
            self.judge_found();
            if member {
                self.member(slot);
            } else {
                self.release_members();
                self.b().pc = Pc::Adopt(slot);
                self.finish_list();
            }
        } else if self.p.memory() {
            self.b().mark = 0;
            self.b().pc = Pc::ReleaseExisting(slot);
        } else {
            self.stay_private(false);
        }
        Seen::Stamp(stamp)
    }

    // ---- references and slots ---------------------------------------------------------------------------------------

    fn release(&mut self, slot: u8) -> Seen {
        let entry = &mut self.s.slots[slot as usize];
        entry.references = entry.references.saturating_sub(1);
        let free = entry.references == 0 && entry.life == Life::Unlinked && !self.fault(Fault::LastReferenceLeaks);
        if free {
            self.dispose(slot);
        }
        Seen::Released { slot, free }
    }

    /// An entry that nobody finds or refers to: what it refers to is released first, then its slot is given back.
    fn dispose(&mut self, slot: u8) {
        self.b().todo.insert(0, Todo::Free(slot));
        self.take_out(slot);
    }

    /// Takes a slot out of the table, to be freed; a list's references to its members are to be released before.
    fn take_out(&mut self, slot: u8) {
        let entry = &mut self.s.slots[slot as usize];
        entry.life = Life::Taken;
        let members = std::mem::replace(&mut entry.members, [NONE; MEMBERS]);
        if self.fault(Fault::MembersNotReleased) || self.fault(Fault::MembersNotPinned) {
            return;
        }
        for member in members.into_iter().rev().filter(|m| *m != NONE) {
            self.b().todo.insert(0, Todo::Release(member));
        }
    }

    fn free(&mut self, slot: u8) -> Seen {
        self.s.slots[slot as usize] = Slot::FREE;
        Seen::Freed(slot)
    }

    fn evict(&mut self, k: Key) -> Seen {
        let ignore = self.fault(Fault::EvictIgnoresReferences);
        let victim = self
            .s
            .slots
            .iter()
            .position(|s| s.linked() && s.key == k && (s.references == 0 || ignore))
            .map(|v| v as u8);
        match victim {
            Some(v) => {
                self.take_out(v);
                self.b().pc = Pc::FreeVictim(v);
            }
            None => self.finish_op(),
        }
        Seen::Evicted(victim)
    }

    // ---- accept -----------------------------------------------------------------------------------------------------

    /// The contract's side of an accept, whatever the code does (A1, A5).
    fn raise_floor(&mut self) {
        let keys = self.s.catalog.len();
        for k in 0..keys {
            let sent = self.s.catalog[k].sent.max(self.s.catalog[k].unlocked);
            let b = self.b();
            b.floor[k] = b.floor[k].max(sent);
        }
        for item in 0..self.p.items() as Item {
            for (cell, k) in self.p.cells(item).zip(self.p.parts(item)) {
                let b = self.b();
                if b.answered[cell] <= b.floor[k as usize] {
                    b.answered[cell] = 0;
                }
            }
        }
    }

    fn accept(&mut self) -> Seen {
        // A look that read an old tail promises nothing: there was no message that it had to see.
        if self.reading != Reading::NoMessages {
            self.raise_floor();
        }
        let tail = self.s.ring.tail;
        let p = self.p;
        self.b().stable.fill(Row::UNKNOWN);
        let reset = self.b().reset;
        let mut count = 0;
        if self.reading != Reading::NoMessages {
            if reset {
                self.after_reset();
            } else {
                let behind = usize::from(tail - self.b().position);
                let from = self.s.ring.messages.len() - behind;
                let messages: List<Message> = self.s.ring.messages[from..].iter().copied().collect();
                count = messages.len() as u16;
                for message in messages {
                    self.process(message);
                }
            }
            self.b().position = tail;
            self.trim_ring();
        }
        if let Some(limit) = p.local {
            let limit = usize::from(limit);
            let (keys, all) = (p.keys.len(), p.items());
            let held =
                |b: &Backend, items: std::ops::Range<usize>| b.local[items].iter().filter(|l| l.row.known()).count();
            // Keys make room before lists do.
            let lists = held(self.b(), keys..all);
            self.trim(0..keys, limit.saturating_sub(lists));
            let left = held(self.b(), 0..keys);
            self.trim(keys..all, limit.saturating_sub(left));
        }
        let slots = &self.s.slots;
        self.s.backends[self.me].todo.sort_by_key(|todo| match todo {
            Todo::Release(slot) | Todo::Free(slot) => slots[*slot as usize].key,
        });
        Seen::Messages { count, reset: reset && self.reading != Reading::NoMessages }
    }

    /// Brings a part of the local view within a limit: private entries go first, then the smallest.
    fn trim(&mut self, items: std::ops::Range<usize>, limit: usize) {
        let held = |b: &Backend| b.local[items.clone()].iter().filter(|l| l.row.known()).count();
        if held(self.b()) > limit {
            for l in self.b().local[items.clone()].iter_mut().filter(|l| l.slot == NONE) {
                *l = Local::ABSENT;
            }
        }
        for k in items.clone() {
            if held(self.b()) > limit {
                self.drop_local(k);
            }
        }
    }

    /// One message: obeyed if it is of the own database, or of a shared catalog (A28, A31).
    fn process(&mut self, message: Message) {
        let p = self.p;
        if !p.concerns(message, self.me) || (p.is_shared(message) && self.fault(Fault::SharedIgnored)) {
            return;
        }
        let whole = message & CATALOG != 0;
        let (keeps, negative, one) = (
            self.fault(Fault::AcceptKeepsLocal),
            self.fault(Fault::AcceptKeepsNegative),
            self.fault(Fault::AcceptDropsOne),
        );
        if !keeps {
            for k in (0..p.items()).filter(|k| p.names(message, *k as Item)) {
                let held = self.b().local[k].row;
                let list = k >= p.keys.len();
                if list && self.fault(Fault::AcceptKeepsLists) {
                    continue;
                }
                if held.known() && (held.present() || !negative) && !(whole && self.fault(Fault::CatalogKeepsLocal)) {
                    self.drop_local(k);
                    if one {
                        break;
                    }
                }
            }
        }
        if !self.fault(Fault::AcceptKeepsSnapshot) {
            self.b().snapshot = None;
        }
        let key = self.b().key;
        let list = key != NONE && p.list(key).is_some();
        let doomed = key != NONE
            && p.names(message, key)
            && !(whole && self.fault(Fault::CatalogDoesNotDoom))
            && !(list && self.fault(Fault::ListNotDoomed));
        if doomed && !self.fault(Fault::LoadNotDoomed) {
            self.b().doomed = true;
        }
    }

    fn after_reset(&mut self) {
        if !self.fault(Fault::ResetKeepsLocal) {
            (0..self.p.items()).for_each(|k| self.drop_local(k));
        }
        let (undoomed, clears) = (self.fault(Fault::ResetDoesNotDoom), self.fault(Fault::ResetClearsDirty));
        let b = self.b();
        b.reset = false;
        b.snapshot = None;
        b.doomed |= !undoomed;
        if clears {
            b.pending.clear();
            b.finished.clear();
            b.outer.iter_mut().for_each(|outer| outer.finished.clear());
        }
    }

    /// Takes an entry out of the local view; its reference is released in a step of its own.
    fn drop_local(&mut self, k: usize) {
        let memory = self.p.memory();
        let b = self.b();
        let local = std::mem::replace(&mut b.local[k], Local::ABSENT);
        if memory && local.row.known() && local.slot != NONE {
            b.todo.push(Todo::Release(local.slot));
        }
    }

    /// Takes everything that some of the messages name out of the local view.
    fn drop_named(&mut self, messages: &[Message]) {
        let p = self.p;
        for k in (0..p.items()).filter(|k| messages.iter().any(|m| p.names(*m, *k as Item))) {
            self.drop_local(k);
        }
    }

    fn trim_ring(&mut self) {
        let ring = &mut self.s.ring;
        let live = self.s.backends.iter().filter(|b| !b.reset).map(|b| ring.tail - b.position).max().unwrap_or(0);
        let excess = ring.messages.len().saturating_sub(usize::from(live));
        ring.messages.drain(..excess);
    }

    // ---- writer -----------------------------------------------------------------------------------------------------

    fn write(&mut self, k: Key, present: bool) -> Seen {
        self.write_row(k, present);
        self.changed(self.p.class(k));
        self.finish_op();
        Seen::Row { present }
    }

    /// Writes every row that is there of those that a message about a whole catalog or database names.
    fn write_all(&mut self, message: Message, keep: bool) -> Seen {
        let p = self.p;
        for k in p.named(message) {
            let own = self.b().own[k as usize].newest();
            let now = if own.known() { own } else { self.s.catalog[k as usize].committed };
            if now.present() {
                self.write_row(k, keep);
            }
        }
        self.changed(message);
        self.finish_op();
        Seen::Nothing
    }

    fn write_row(&mut self, k: Key, present: bool) {
        let c = &mut self.s.catalog[k as usize];
        c.owner = self.me as u8;
        c.writes += 1;
        let row = Row::new(c.writes, present);
        self.b().own[k as usize].pending = row;
    }

    /// Registers a message of the running command (A25).
    fn changed(&mut self, message: Message) {
        let b = self.b();
        if !b.pending.contains(&message) {
            b.pending.push(message);
        }
    }

    /// What the end of a command does, which is also a part of a subtransaction's.
    fn end_command(&mut self) {
        self.b().stable.fill(Row::UNKNOWN);
        let changed = self.b().pending.clone();
        if !changed.is_empty() {
            if !self.fault(Fault::CommandEndKeepsLocal) {
                self.drop_named(&changed);
            }
            self.b().snapshot = None;
        }
        let b = self.b();
        for own in b.own.iter_mut().filter(|own| own.pending.known()) {
            own.finished = std::mem::replace(&mut own.pending, Row::UNKNOWN);
        }
        for class in changed {
            if !b.finished.contains(&class) {
                b.finished.push(class);
            }
        }
        b.pending.clear();
    }

    fn sub_begin(&mut self) -> Seen {
        let b = self.b();
        let outer = Outer { own: b.own.clone(), finished: std::mem::take(&mut b.finished) };
        b.outer.push(outer);
        self.finish_op();
        Seen::Nothing
    }

    fn sub_commit(&mut self) -> Seen {
        self.end_command();
        let forgets = self.fault(Fault::SubCommitForgets);
        let b = self.b();
        if let Some(outer) = b.outer.pop() {
            let changed = std::mem::replace(&mut b.finished, outer.finished);
            for class in changed {
                if !forgets && !b.finished.contains(&class) {
                    b.finished.push(class);
                }
            }
        }
        self.finish_op();
        Seen::Nothing
    }

    /// Undo in the catalog, then drop what the subtransaction covers (A26, A27).
    fn sub_abort(&mut self) -> Seen {
        let (keeps, all) = (self.fault(Fault::SubAbortKeepsLocal), self.fault(Fault::SubAbortForgetsParent));
        let b = self.b();
        let Some(outer) = b.outer.pop() else { return Seen::Nothing };
        let mut changed = std::mem::take(&mut b.finished);
        changed.extend(std::mem::take(&mut b.pending));
        self.abandon(&outer.own);
        if !keeps {
            self.drop_named(&changed);
        }
        let b = self.b();
        b.own = outer.own;
        b.finished = outer.finished;
        if all {
            b.finished.clear();
        }
        b.snapshot = None;
        b.stable.fill(Row::UNKNOWN);
        self.finish_op();
        Seen::Nothing
    }

    fn commit(&mut self, stage: u8, i: u8, clock: u16) -> Seen {
        let p = self.p;
        let me = self.me;
        let sending = self.b().sending.clone();
        let stamps = p.opened(&sending);
        let mut done = i + 1;
        let mut now = clock;
        let stages = p.stages();
        let at = stages[stage as usize];
        let seen = match at {
            Stage::Log => Seen::Nothing,
            Stage::Overwrite => Seen::Nothing,
            Stage::Open => self.open(stamps[i as usize]),
            Stage::Visible => {
                if p.op(me, &self.s.backends[me], NONE) == Some(Op::CommitFails) {
                    let withdraws = !self.fault(Fault::WithdrawLeftOut);
                    self.b().pc = if withdraws { Pc::Withdraw(0) } else { Pc::Undo };
                    return Seen::Fail;
                }
                for k in 0..self.s.catalog.len() {
                    let row = self.b().own[k].newest();
                    if row.known() {
                        self.s.catalog[k].committed = row;
                    }
                }
                Seen::Nothing
            }
            Stage::Advance => {
                now = self.advance();
                Seen::Clock(now)
            }
            Stage::Close => {
                if !stages.contains(&Stage::Advance) && i == 0 {
                    now = self.s.clock;
                }
                self.close(stamps[i as usize], now)
            }
            Stage::Send => {
                self.send_own(sending[i as usize]);
                Seen::Nothing
            }
            Stage::Unlock => {
                for k in 0..self.s.catalog.len() {
                    let row = self.b().own[k].newest();
                    if row.known() {
                        self.s.catalog[k].unlocked = row.version();
                        self.s.catalog[k].owner = NONE;
                    }
                }
                Seen::Nothing
            }
        };
        let steps = match at {
            Stage::Open | Stage::Close => stamps.len(),
            Stage::Send => sending.len(),
            Stage::Log | Stage::Visible | Stage::Overwrite | Stage::Advance | Stage::Unlock => 1,
        };
        if usize::from(done) < steps {
            self.b().pc = Pc::Commit(stage, done, now);
            return seen;
        }
        let last_of_bracket = match (sending.is_empty(), stamps.is_empty()) {
            (true, _) => Stage::Visible,
            (false, true) => Stage::Advance,
            (false, false) => Stage::Close,
        };
        if at == last_of_bracket {
            let b = self.b();
            b.pending.clear();
            b.finished.clear();
            b.outer.clear();
            b.snapshot = None;
        }
        done = 0;
        let nothing = |s: &Stage| stamps.is_empty() && matches!(s, Stage::Open | Stage::Close);
        let skip =
            |s: &Stage| nothing(s) || sending.is_empty() && !matches!(s, Stage::Log | Stage::Visible | Stage::Unlock);
        match stages.iter().enumerate().skip(stage as usize + 1).find(|(_, s)| !skip(s)) {
            Some((next, _)) => self.b().pc = Pc::Commit(next as u8, done, now),
            None => self.end_transaction(),
        }
        seen
    }

    /// The steps of an in-place update once the row is locked (A58): a bracket round the instant at which the bytes change,
    /// and its message at once, whatever becomes of the transaction.
    fn in_place(&mut self, stage: u8, i: u8, clock: u16) -> Seen {
        let p = self.p;
        let sending = self.b().sending.clone();
        let stamps = p.opened(&sending);
        let Some(k) = p.op(self.me, &self.s.backends[self.me], NONE).and_then(Op::key) else { return Seen::Nothing };
        let at = k as usize;
        let stages = p.in_place_stages();
        let mut now = clock;
        let seen = match stages[stage as usize] {
            Stage::Open => self.open(stamps[i as usize]),
            Stage::Overwrite => {
                let c = &mut self.s.catalog[at];
                c.writes += 1;
                let (old, new) = (c.committed, Row::new(c.writes, true));
                c.committed = new;
                // It is the same row: every snapshot that sees it sees its bytes as they are.
                for snapshot in self.s.backends.iter_mut().filter_map(|b| b.snapshot.as_mut()) {
                    if snapshot.rows[at] == old {
                        snapshot.rows[at] = new;
                    }
                }
                Seen::Nothing
            }
            Stage::Advance => {
                now = self.advance();
                Seen::Clock(now)
            }
            Stage::Close => self.close(stamps[i as usize], now),
            Stage::Send => {
                self.send(sending[0]);
                self.s.catalog[at].sent = self.s.catalog[at].committed.version();
                Seen::Nothing
            }
            Stage::Unlock => {
                self.s.catalog[at].unlocked = self.s.catalog[at].committed.version();
                self.s.catalog[at].owner = NONE;
                Seen::Nothing
            }
            Stage::Log | Stage::Visible => Seen::Nothing,
        };
        let many = matches!(stages[stage as usize], Stage::Open | Stage::Close);
        let next = match i + 1 {
            more if many && usize::from(more) < stamps.len() => Pc::InPlace(stage, more, now),
            _ if usize::from(stage) + 1 < stages.len() => Pc::InPlace(stage + 1, 0, now),
            _ => Pc::AcceptOwn,
        };
        let b = self.b();
        b.pc = next;
        if next == Pc::AcceptOwn {
            b.sending.clear();
        }
        seen
    }

    fn open(&mut self, stamp: u8) -> Seen {
        let stamp = &mut self.s.stamps[stamp as usize];
        stamp.open += 1;
        Seen::Stamp(*stamp)
    }

    fn advance(&mut self) -> u16 {
        self.s.clock += 1;
        let now = self.s.clock;
        if self.p.stale_tokens {
            self.b().clock = now;
        }
        now
    }

    fn close(&mut self, stamp: u8, now: u16) -> Seen {
        let (unopened, unmarked, plain) =
            (self.fault(Fault::OpenLeftOut), self.fault(Fault::MarkLeftOut), self.fault(Fault::MarkNotMax));
        let stamp = &mut self.s.stamps[stamp as usize];
        if !unmarked {
            stamp.mark = if plain { now } else { stamp.mark.max(now) };
        }
        stamp.open -= u8::from(!unopened);
        Seen::Stamp(*stamp)
    }

    fn end_transaction(&mut self) {
        let me = self.me;
        if self.p.record {
            self.s.done |= 1 << me;
        }
        let b = self.b();
        b.in_transaction = false;
        b.own.fill(Own::NOTHING);
        b.sending.clear();
        b.stable.fill(Row::UNKNOWN);
        self.finish_op();
    }

    fn send(&mut self, message: Message) {
        let capacity = self.p.ring;
        let tail = self.s.ring.tail;
        let unnoticed = self.fault(Fault::OverrunUnnoticed);
        for b in self.s.backends.iter_mut().filter(|b| !b.reset && tail - b.position == capacity) {
            if unnoticed {
                b.position += 1;
            } else {
                b.reset = true;
            }
        }
        self.s.ring.messages.push(message);
        self.s.ring.tail += 1;
        self.trim_ring();
    }

    /// Sends a message of the running commit.
    fn send_own(&mut self, message: Message) {
        self.send(message);
        for k in self.p.named(message).map(usize::from) {
            let row = self.b().own[k].newest();
            if row.known() {
                self.s.catalog[k].sent = row.version();
            }
        }
    }

    fn withdraw(&mut self, stamp: u8, i: u8) -> Seen {
        let stamp = &mut self.s.stamps[stamp as usize];
        // A broken rule may have left it unopened, which is told by then.
        stamp.open = stamp.open.saturating_sub(1);
        let seen = Seen::Stamp(*stamp);
        self.b().pc = Pc::Withdraw(i + 1);
        seen
    }

    /// Takes the own writes back to what they were, and releases the locks of what was not written then.
    fn abandon(&mut self, kept: &List<Own>) {
        for (k, kept) in kept.iter().enumerate() {
            let c = &mut self.s.catalog[k];
            if self.s.backends[self.me].own[k] == *kept {
                continue;
            }
            // The lock was held since the first of them, so all of these are own writes, or were aborted before.
            for version in c.committed.version() + 1..=c.writes {
                if [kept.pending, kept.finished].iter().all(|row| !row.known() || row.version() != version) {
                    c.aborted |= 1 << version;
                }
            }
            if *kept == Own::NOTHING {
                c.owner = NONE;
            }
        }
    }

    /// Undo in the catalog, then drop what the transaction covers (A18).
    fn undo(&mut self) -> Seen {
        let p = self.p;
        self.abandon(&SmallVec::from_elem(Own::NOTHING, p.keys.len()));
        if !self.fault(Fault::AbortKeepsLocal) {
            let changed: List<Message> = self.b().changed().collect();
            self.drop_named(&changed);
        }
        let b = self.b();
        b.pending.clear();
        b.finished.clear();
        b.outer.clear();
        b.snapshot = None;
        self.end_transaction();
        Seen::Nothing
    }

    // ---- judgement --------------------------------------------------------------------------------------------------

    /// The running lookup answers; `missed` if the local view did not have it.
    fn answer(&mut self, rows: [Row; MEMBERS], missed: bool) {
        let item = self.b().key;
        let parts = self.p.parts(item);
        let cells = self.p.cells(item);
        for ((k, row), cell) in parts.iter().zip(rows).zip(cells.clone()) {
            self.answer_part(usize::from(*k), row, cell);
        }
        if self.b().expected[0].known() && self.b().expected != rows {
            self.violate(Property::A7);
        }
        if missed {
            let p = self.p;
            let b = self.b();
            let behind = |item: usize| {
                let rows = b.local[item].rows().into_iter().zip(p.parts(item as Item));
                let old = |(row, k): (Row, Key)| row.version() < b.sent.get(usize::from(k)).copied().unwrap_or(0);
                b.local[item].row.known() && rows.into_iter().any(old)
            };
            if (0..b.local.len()).any(behind) {
                self.violate(Property::Composite);
            }
        }
        let record = self.p.record;
        let b = self.b();
        for (row, cell) in rows.into_iter().zip(cells) {
            b.stable[cell] = row;
        }
        if record {
            let (after, [row, second]) = (b.after, rows);
            b.answers.push(Answer { row, second, after });
        }
    }

    /// What is answered for one key, by itself or as a member of a list.
    fn answer_part(&mut self, k: usize, row: Row, cell: usize) {
        let c = self.s.catalog[k].clone();
        let own = self.b().own[k];
        let version = row.version();
        let mine = own.finished.known();
        if mine != (row == own.finished) {
            self.violate(Property::A23);
        }
        if !mine && (version > c.committed.version() || c.aborted >> version & 1 == 1) {
            self.violate(Property::A24);
        }
        if version < self.b().floor[k] {
            self.violate(Property::A1);
        }
        if version < self.b().answered[cell] {
            self.violate(Property::A8);
        }
        let b = self.b();
        if !mine && version > b.floor[k] {
            b.answered[cell] = b.answered[cell].max(version);
        }
    }

    /// The properties of every state.
    fn judge(&mut self) {
        let p = self.p;
        let s = &self.s;
        let wrong = |slot: &Slot| {
            slot.linked()
                && p.stamps_of(slot.key).all(|i| s.stamps[i].good(slot.token))
                && p.parts(slot.key).iter().zip(slot.rows()).any(|(k, row)| row != s.catalog[*k as usize].committed)
        };
        let mut broken = s.slots.iter().any(wrong).then_some(Property::I1);
        for b in &s.backends {
            let newer = |item: usize, snapshot: &Snapshot| {
                let newer = |(k, held): (Key, Row)| {
                    let k = usize::from(k);
                    held != b.own[k].finished && held.version() > snapshot.rows[k].version()
                };
                b.local[item].row.known() && p.parts(item as Item).into_iter().zip(b.local[item].rows()).any(newer)
            };
            if b.snapshot.as_ref().is_some_and(|snapshot| (0..b.local.len()).any(|k| newer(k, snapshot))) {
                broken = broken.or(Some(Property::A9));
            }
            if p.memory() {
                let altered = |k: usize| {
                    let l = b.local[k];
                    let alive = |slot: &Slot| {
                        matches!(slot.life, Life::Linked | Life::Unlinked)
                            && slot.key == k as Item
                            && slot.rows() == l.rows()
                    };
                    l.row.known() && l.slot != NONE && !alive(&s.slots[l.slot as usize])
                };
                if (0..b.local.len()).any(altered) {
                    broken = broken.or(Some(Property::A39));
                }
            }
        }
        if p.memory() {
            // A list that somebody can find or has, and one of its members is gone.
            let altered = |slot: &Slot| {
                let lives = |(member, row): (u8, Row)| {
                    let entry = &s.slots[member as usize];
                    matches!(entry.life, Life::Linked | Life::Unlinked) && entry.row == row
                };
                let members = slot.members.into_iter().zip(slot.rows()).filter(|(member, _)| *member != NONE);
                matches!(slot.life, Life::Linked | Life::Unlinked) && !members.into_iter().all(lives)
            };
            if s.slots.iter().any(altered) {
                broken = broken.or(Some(Property::A39));
            }
            for (i, slot) in s.slots.iter().enumerate() {
                let i = i as u8;
                let members = s.slots.iter().flat_map(|slot| slot.members).filter(|m| *m == i).count();
                let held = members + s.backends.iter().flat_map(|b| b.references()).filter(|r| *r == i).count();
                let taken = s.backends.iter().flat_map(|b| b.taken()).filter(|r| *r == i).count();
                let counted = match slot.life {
                    Life::Free => held == 0 && taken == 0,
                    Life::Taken => held == 0 && taken == 1,
                    Life::Linked => held == usize::from(slot.references) && taken == 0,
                    Life::Unlinked => held == usize::from(slot.references) && taken == 0 && held > 0,
                };
                let uncounted = self.fault(Fault::ReferenceNotTaken) || self.fault(Fault::MembersNotPinned);
                if !counted && !uncounted {
                    broken = broken.or(Some(Property::Leak));
                }
            }
        }
        if self.p.fault != Some(Fault::OpenLeftOut) {
            for (i, stamp) in s.stamps.iter().enumerate() {
                let open = s.backends.iter().filter(|b| self.is_open(b, i as u8)).count();
                if usize::from(stamp.open) != open {
                    broken = broken.or(Some(Property::Balance));
                }
            }
        }
        if let Some(property) = broken {
            self.violate(property);
        }
    }

    /// Is a backend between opening and closing a stamp?
    fn is_open(&self, b: &Backend, stamp: u8) -> bool {
        let stamps = self.p.opened(&b.sending);
        let Some(nth) = stamps.iter().position(|s| *s == stamp) else { return false };
        let within = |stages: &[Stage], stage: u8, i: u8| {
            let passed = |wanted: Stage| match stages.iter().position(|s| *s == wanted) {
                Some(at) => usize::from(stage) > at || (usize::from(stage) == at && usize::from(i) > nth),
                None => false,
            };
            passed(Stage::Open) && !passed(Stage::Close)
        };
        match b.pc {
            Pc::Commit(stage, i, _) => within(self.p.stages(), stage, i),
            Pc::InPlace(stage, i, _) => within(self.p.in_place_stages(), stage, i),
            Pc::Withdraw(i) => usize::from(i) <= nth,
            _ => false,
        }
    }
}
