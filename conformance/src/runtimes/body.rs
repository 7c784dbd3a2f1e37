//! Runs the programs of a litmus file over the code of one build, each operation watched.

use super::{cache, thread};
use crate::desk::{Answered, Desk, Levels};
use crate::litmus::{Litmus, Op};
use crate::refinement::{Change, EntryView, LocalView, Name, Names, PrivateView, Saw, SharedView, Sizes, Writer};
use crate::rules::Rule;
use cache::backend::{Backend, MemoryCatalog, MemorySession, WriteError};
use catcache_model::coherence::Step;
use std::sync::Arc;

/// Watches one backend and reports to the desk.
pub struct Watch {
    desk: Arc<Desk>,
    me: u8,
    shared: cache::Shared,
    names: Arc<Names>,
    broken: Option<Rule>,
}

/// `None`: not a step of this program's model.
fn step(step: cache::Step, levels: Levels) -> Option<Step> {
    let counts = |level: cache::Level| match level {
        cache::Level::Stripe => true,
        cache::Level::List => levels.lists,
        cache::Level::Catalog => levels.catalogs,
        cache::Level::Database => levels.databases,
    };
    Some(match step {
        cache::Step::LocalHit => Step::LocalHit,
        cache::Step::Accept => Step::Accept,
        cache::Step::Find => Step::Find,
        cache::Step::Check(level) => return counts(level).then_some(Step::Check),
        cache::Step::Unlink => Step::Unlink,
        cache::Step::Token => Step::Token,
        cache::Step::Snapshot => Step::Snapshot,
        cache::Step::Scan => Step::Scan,
        cache::Step::Allocate => Step::Allocate,
        cache::Step::Evict => Step::Evict,
        cache::Step::Publish => Step::Publish,
        cache::Step::Release => Step::Release,
        cache::Step::Free => Step::Free,
        cache::Step::Write => Step::Write,
        cache::Step::Lock => Step::Lock,
        cache::Step::Overwrite => Step::Overwrite,
        cache::Step::CommandEnd => Step::CommandEnd,
        cache::Step::SubBegin => Step::SubBegin,
        cache::Step::SubCommit => Step::SubCommit,
        cache::Step::SubAbort => Step::SubAbort,
        cache::Step::Log => Step::Log,
        cache::Step::Open(level) => return counts(level).then_some(Step::Open),
        cache::Step::Visible => Step::Visible,
        cache::Step::Advance => Step::Advance,
        cache::Step::Close(level) => return counts(level).then_some(Step::Close),
        cache::Step::Withdraw(level) => return counts(level).then_some(Step::Withdraw),
        cache::Step::Send => Step::Send,
        cache::Step::Unlock => Step::Unlock,
        cache::Step::Undo => Step::Undo,
    })
}

pub(super) fn saw(seen: &cache::Seen) -> Saw {
    let place = |at: &cache::EntryAt| at.0;
    match seen {
        cache::Seen::Nothing => Saw::Nothing,
        cache::Seen::Messages { count, reset } => Saw::Messages { count: *count, reset: *reset },
        cache::Seen::Found(at) => Saw::Found(at.as_ref().map(place)),
        cache::Seen::Stamp(stamp) => Saw::Stamp { mark: stamp.mark, open: stamp.open },
        cache::Seen::Clock(clock) => Saw::Clock(*clock),
        cache::Seen::Slot(at) => Saw::Slot(at.as_ref().map(place)),
        cache::Seen::Published { entry, replaced, kept_existing } => {
            Saw::Published { entry: place(entry), replaced: replaced.as_ref().map(place), existing: *kept_existing }
        }
        cache::Seen::Unlinked { entry, free } => Saw::Unlinked { entry: place(entry), free: *free },
        cache::Seen::Released { entry, free } => Saw::Released { entry: place(entry), free: *free },
        cache::Seen::Evicted(at) => Saw::Evicted(at.as_ref().map(place)),
        cache::Seen::Freed(at) => Saw::Freed(place(at)),
        cache::Seen::Row { present } => Saw::Row { present: *present },
        cache::Seen::Fail => Saw::Fail,
    }
}

pub(super) fn rule(rule: cache::Rule) -> Rule {
    macro_rules! same {
        ($($name:ident)+) => { match rule { $(cache::Rule::$name => Rule::$name),+ } };
    }
    crate::rules::each_rule!(same)
}

fn change(message: cache::Message) -> Change {
    match message {
        cache::Message::Row { database, cache, hash } => Change::Row(database, cache, hash),
        cache::Message::Catalog { database, cache } => Change::Catalog(database, cache),
        cache::Message::Database { database } => Change::Database(database),
    }
}

/// The shared state; all backends must be parked.
fn view(shared: &cache::Shared, levels: Levels, names: &Names) -> SharedView {
    let image = shared.peek();
    let lists = image.lists.iter().filter(|_| levels.lists);
    let catalogs = image.catalogs.iter().filter(|_| levels.catalogs);
    let databases = image.databases.iter().filter(|_| levels.databases);
    SharedView {
        clock: image.clock,
        stamps: image.stripes.iter().chain(lists).chain(catalogs).chain(databases).map(|s| (s.mark, s.open)).collect(),
        entries: image
            .entries
            .iter()
            .map(|e| {
                let members = e.members.as_deref().unwrap_or_default();
                let (key, [writer, second]) = match e.members {
                    None => (names.key(&e.key.bytes), [Writer::shown(e.row.as_deref()), None]),
                    Some(_) => {
                        // A member that isn't there is one that is none of the list's.
                        let member = |at: &cache::EntryAt| {
                            let entry = image.entries.iter().find(|entry| entry.at == *at);
                            let row =
                                entry.and_then(|entry| Some((names.key(&entry.key.bytes), entry.row.as_deref()?)));
                            row.unwrap_or((u8::MAX, &[]))
                        };
                        let list = names.list(&e.key.bytes);
                        (list, names.members(list, members.iter().map(member)))
                    }
                };
                EntryView {
                    at: e.at.0,
                    key,
                    writer,
                    second,
                    members: members.iter().map(|at| at.0).collect(),
                    token: e.token,
                    linked: e.linked,
                    references: e.references,
                }
            })
            .collect(),
        ring_tail: image.ring_tail,
        positions: image.ring_positions.iter().flatten().copied().collect(),
        free_slots: image.free_slots,
    }
}

impl Watch {
    fn step(&self, at: cache::Step) -> Option<Step> {
        step(at, self.desk.levels())
    }

    fn view(&self) -> SharedView {
        view(&self.shared, self.desk.levels(), &self.names)
    }
}

impl cache::Probe for Watch {
    fn before(&self, at: cache::Step) {
        if self.desk.before(self.me, self.step(at), &|| self.view()) {
            thread::yield_now();
        }
    }

    fn took(&self, at: cache::Step, seen: cache::Seen) {
        self.desk.took(self.me, self.step(at), saw(&seen));
    }

    fn private(&self, image: impl FnOnce() -> cache::PrivateImage) {
        if !self.desk.wants_images() {
            return;
        }
        let image = image();
        let names = &self.names;
        let rows = image.local.iter().map(|l| LocalView {
            key: names.key(&l.key.bytes),
            entry: l.entry.map(|at| at.0),
            writer: Writer::shown(l.row.as_deref()),
            second: None,
        });
        let lists = image.lists.iter().map(|l| {
            let key = names.list(&l.key.bytes);
            let members = l.members.iter().map(|(key, row)| (names.key(&key.bytes), &row[..]));
            let [writer, second] = names.members(key, members);
            LocalView { key, entry: l.entry.map(|at| at.0), writer, second }
        });
        let local = rows.chain(lists).collect();
        let dirty = image.dirty.into_iter().map(change).collect();
        self.desk.private(self.me, PrivateView { local, snapshot: image.snapshot, dirty });
    }

    fn keeps(&self, asked: cache::Rule) -> bool {
        self.broken.is_none_or(|broken| broken != rule(asked))
    }
}

type Session = Backend<MemorySession<Arc<Watch>>, Arc<Watch>>;

/// A backend that is attached and has its program before it.
pub struct Actor {
    backend: Session,
    watch: Arc<Watch>,
    desk: Arc<Desk>,
    names: Arc<Names>,
    ops: Vec<Op>,
    me: u8,
}

/// The key, or the partial key of a list.
fn key(names: &Names, item: usize) -> cache::Key<'_> {
    let Name { database, cache, hash, bytes } = &names.items[item];
    cache::Key { database: *database, cache: *cache, hash: *hash, bytes }
}

/// Builds the world of a litmus file: a segment of these sizes, a catalog, and its backends, attached.
///
/// # Errors
/// What the code refused, in words.
pub fn world(litmus: &Litmus, sizes: Sizes, desk: &Arc<Desk>, broken: Option<Rule>) -> Result<Vec<Actor>, String> {
    let shared = cache::Shared::anonymous(&config(litmus, sizes)).map_err(|e| e.to_string())?;
    let catalog = MemoryCatalog::new();
    fill(litmus, &catalog);
    (0..litmus.backends.len()).map(|me| actor(litmus, me, &shared, &catalog, desk, broken)).collect()
}

/// The parameters of a litmus file's segment.
pub fn config(litmus: &Litmus, sizes: Sizes) -> cache::Config {
    cache::Config {
        stripes: litmus.stripes,
        lists: sizes.lists,
        catalogs: sizes.catalogs,
        databases: sizes.databases,
        ring: litmus.ring,
        backends: litmus.backends.len() as u32,
        uniform: Some(cache::shared::Uniform { slots: sizes.slots, bytes: 64 }),
        ..cache::Config::tiny()
    }
}

/// Puts the first rows of a litmus file into an empty catalog.
pub fn fill(litmus: &Litmus, catalog: &MemoryCatalog) {
    let names = Names::new(litmus);
    for (k, decl) in litmus.keys.iter().enumerate() {
        let key = key(&names, k);
        if !decl.absent {
            catalog.fill(&key, &Writer::FIRST.bytes());
        }
        if decl.toasted {
            catalog.toast(&key);
        }
    }
}

/// Attaches one backend of a litmus file.
///
/// # Errors
/// What the code refused, in words.
pub fn actor(
    litmus: &Litmus,
    me: usize,
    shared: &cache::Shared,
    catalog: &MemoryCatalog,
    desk: &Arc<Desk>,
    broken: Option<Rule>,
) -> Result<Actor, String> {
    let names = Arc::new(Names::new(litmus));
    let decl = &litmus.backends[me];
    let watch = Arc::new(Watch {
        desk: Arc::clone(desk),
        me: me as u8,
        shared: shared.clone(),
        names: Arc::clone(&names),
        broken,
    });
    let session = catalog.session(Arc::clone(&watch));
    let mut backend =
        Backend::attach_with(shared, decl.database, session, Arc::clone(&watch)).map_err(|e| e.to_string())?;
    if let Some(limit) = litmus.local {
        backend.set_local_limit(limit);
    }
    backend.set_escalation(litmus.escalate.unwrap_or(u32::MAX));
    Ok(Actor { backend, watch, desk: Arc::clone(desk), names, ops: decl.ops.clone(), me: me as u8 })
}

impl Actor {
    /// Runs the program, operation by operation, and returns the backend, so that detaching is not part of the run.
    pub fn run(mut self) -> Actor {
        for op in 0..self.ops.len() {
            if let Err(why) = self.operate(op) {
                self.desk.fail(why);
                break;
            }
        }
        self.desk.finish(self.me, &|| self.watch.view());
        self
    }

    fn operate(&mut self, nth: usize) -> Result<(), String> {
        let names = Arc::clone(&self.names);
        match self.ops[nth] {
            Op::Lookup(k) => {
                let after = self.desk.asked();
                let item = key(&names, k);
                let [writer, second] = if names.is_list(k) {
                    let rows = self.backend.list(&item).map_err(|e| e.to_string())?;
                    names.members(k as u8, rows.map(|(key, row)| (names.key(key.bytes), row)))
                } else {
                    [self.backend.lookup(&item).map(Writer::shown).map_err(|e| e.to_string())?, None]
                };
                self.desk.answered(self.me, Answered { key: k as u8, writer, second, after });
            }
            Op::Accept => self.backend.accept(),
            Op::Begin => {
                self.desk.done(self.me, false);
                self.backend.begin().map_err(|e| e.to_string())?;
            }
            Op::Insert(k) | Op::Update(k) => self.write(nth, k, true)?,
            Op::Delete(k) => self.write(nth, k, false)?,
            Op::InPlace(k) => self.overwrite(nth, k)?,
            Op::Rewrite(k) => {
                self.write_all(nth, |key, named| (key.database, key.cache) == (named.database, named.cache), k)?
            }
            Op::DropDatabase(k) => self.write_all(nth, |key, named| key.database == named.database, k)?,
            Op::CommandEnd => self.backend.command_end(),
            Op::SubBegin => self.backend.begin_sub().map_err(|e| e.to_string())?,
            Op::SubCommit => self.backend.commit_sub().map_err(|e| e.to_string())?,
            Op::SubAbort => self.backend.abort_sub().map_err(|e| e.to_string())?,
            Op::Commit => {
                self.backend.commit().map_err(|e| e.to_string())?;
                self.desk.done(self.me, true);
            }
            Op::CommitFails => {
                self.backend.catalog_mut().refuse_next_visible();
                if self.backend.commit().is_ok() {
                    return Err("a commit that was to fail did not".into());
                }
                self.desk.done(self.me, true);
            }
            Op::Abort => {
                self.backend.abort().map_err(|e| e.to_string())?;
                self.desk.done(self.me, true);
            }
            Op::Evict(k) => {
                let item = key(&names, k);
                match names.is_list(k) {
                    true => self.watch.shared.evict_list(&self.watch, &item),
                    false => self.watch.shared.evict(&self.watch, &item),
                };
            }
        }
        Ok(())
    }

    /// A row is locked by whoever wrote it first, to the end of its transaction: wait for it.
    fn write(&mut self, nth: usize, k: usize, present: bool) -> Result<(), String> {
        let names = Arc::clone(&self.names);
        let by = Writer { backend: self.me, op: nth as u8 };
        self.desk.not_writing(self.me);
        self.desk.writing(self.me, k as u8, by);
        loop {
            let key = key(&names, k);
            match if present { self.backend.put(&key, &by.bytes()) } else { self.backend.delete(&key) } {
                Ok(()) => return Ok(()),
                Err(WriteError::Conflict(_)) => thread::yield_now(),
                Err(e) => return Err(e.to_string()),
            }
        }
    }
}

impl Actor {
    /// As `write`, for the bytes of a row that nobody has locked.
    fn overwrite(&mut self, nth: usize, k: usize) -> Result<(), String> {
        let names = Arc::clone(&self.names);
        let by = Writer { backend: self.me, op: nth as u8 };
        self.desk.not_writing(self.me);
        self.desk.writing(self.me, k as u8, by);
        while self.backend.overwrite(&key(&names, k), &by.bytes()).is_err() {
            thread::yield_now();
        }
        Ok(())
    }

    /// As `write`, for every row of the catalog or the database of a key.
    fn write_all(&mut self, nth: usize, of: impl Fn(&cache::Key<'_>, &Name) -> bool, k: usize) -> Result<(), String> {
        let names = Arc::clone(&self.names);
        let named = &names.items[k];
        let by = Writer { backend: self.me, op: nth as u8 };
        let drops = matches!(self.ops[nth], Op::DropDatabase(_));
        let (desk, me) = (Arc::clone(&self.desk), self.me);
        loop {
            desk.not_writing(me);
            let done = self.backend.catalog_mut().put_all(
                |key| of(key, named),
                |key, _| {
                    desk.writing(me, names.key(key.bytes), by);
                    (!drops).then(|| by.bytes().to_vec())
                },
            );
            match done {
                Ok(()) => break,
                Err(_) => thread::yield_now(),
            }
        }
        let changed = match drops {
            true => self.backend.changed_database(named.database),
            false => self.backend.changed_catalog(named.database, named.cache),
        };
        changed.map_err(|e| e.to_string())
    }
}

/// Runs the actors as threads of this build, and waits for all.
pub fn run(actors: Vec<Actor>) -> Result<(), String> {
    let threads: Vec<_> = actors.into_iter().map(|actor| thread::spawn(move || actor.run())).collect();
    // They detach when all have ended: that takes steps of its own, which belong to no program and are not reported.
    let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
    if ended.iter().any(Result::is_err) { Err("a backend panicked".into()) } else { Ok(()) }
}
