//! The life of a slot: is anything read after it was freed, freed twice, or never; is a slot that was used again taken for what
//! it held before?
//!
//! An entry has one word, linked or not and how many refer to it. Who unlinks it, or drops the last reference to an entry that is
//! unlinked already, frees its slot, and nobody else does. Whether an entry is *valid* is not in this model: a backend may find it
//! good or bad as it likes. So what holds here holds whatever the stamps do, and [`coherence`](crate::coherence) may speak of
//! entries as if memory were endless where nothing runs out.
//!
//! Each step is one lock section or one atomic access of the code:
//!
//! ```text
//! get     Find ─ none ─▶ ·                      put     Allocate ─ full ─▶ Evict ─ nothing ─▶ ·
//!          │ reference                                   │ slot            └▶ Free ─▶ Allocate once more
//!          ├─ good ─▶ Release ─ last ─▶ Free            Publish ─ stays ─▶ Free the own ─▶ Release ─ last ─▶ Free
//!          └─ bad ──▶ Unlink ── last ─▶ Free             └─ own ─ replaced, unreferenced ─▶ Free ─▶ Release ─ last ─▶ Free
//! evict   Evict ─▶ Free
//! ```
//!
//! An eviction may always find nothing: references are dropped without a lock, so a word that is looked at may say that somebody
//! refers to an entry that nobody refers to any more.
//!
//! The content of a slot is the number of the write that filled it: each is another, so that a slot used again is told from what it
//! was before.

use crate::search;
use smallvec::SmallVec;
use stateright::{Checker, Model, Property as Checked};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// "None" in a field of one byte.
pub const NONE: u8 = u8::MAX;

/// What a thread can be asked to do; each takes one or more steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Find the entry of a key, look at it, and let it go; or find it bad.
    Get(u8),
    /// Publish an entry of a key, look at what is then there, and let it go.
    Put(u8),
    /// Take the entry of a key out, if nobody refers to it.
    Evict(u8),
}

/// An atomic step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// Look for the entry and take a reference.
    Find,
    /// Take an entry that was found bad out of the table, and drop the reference.
    Unlink,
    /// Drop a reference.
    Release,
    /// Give a slot back.
    Free,
    /// Take a slot.
    Allocate,
    /// Take an entry that nobody refers to out of the table.
    Evict,
    /// Link the own entry, or refer to the one that is there.
    Publish,
    /// Not even begin to publish: the token is not good. No step of the code.
    Refuse,
}

/// What a step saw; slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Seen {
    Nothing,
    Found(Option<u8>),
    Slot(Option<u8>),
    Evicted(Option<u8>),
    /// The entry that the publisher then refers to, the one that was taken out, and whether the former is another's.
    Published {
        slot: u8,
        replaced: Option<u8>,
        stays: bool,
    },
    /// An entry, and whether it is to be freed.
    Dropped {
        slot: u8,
        free: bool,
    },
    Freed(u8),
}

/// A step of a thread, with its choice: of Evict the slot, of Publish whether (1) the other's entry stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Action {
    /// Which thread.
    pub thread: u8,
    /// What it does.
    pub step: Step,
    /// See above.
    pub choice: u8,
}

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Property {
    /// What a thread refers to is what it referred to first.
    Stable,
    /// A slot that is free is not linked, and nobody refers to it.
    Free,
    /// A slot is freed once.
    Once,
    /// A word counts the threads that refer to the entry.
    Counted,
    /// When all is done every slot is free, or linked and not referred to.
    NoLeak,
}

impl Property {
    /// All of them.
    pub const ALL: [Property; 5] =
        [Property::Stable, Property::Free, Property::Once, Property::Counted, Property::NoLeak];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Property::Stable => "lifetime-stable",
            Property::Free => "lifetime-free",
            Property::Once => "lifetime-once",
            Property::Counted => "lifetime-counted",
            Property::NoLeak => "lifetime-no-leak",
        }
    }
}

/// A rule that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// A probe takes no reference to what it finds.
    FindTakesNoReference,
    /// An eviction takes what somebody refers to.
    EvictTakesReferenced,
    /// An evicted entry stays linked.
    EvictLeavesLinked,
    /// Whoever drops the last reference to an unlinked entry does not free it.
    LastReleaseLeaks,
    /// Whoever unlinks an entry frees it, though others refer to it.
    UnlinkFreesAtOnce,
    /// A replaced entry is freed, though others refer to it.
    ReplacedFreedAtOnce,
    /// A replaced entry that nobody refers to is not freed.
    ReplacedLeaks,
    /// The own slot is not given back when another's entry stays.
    OwnLeaks,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Fault; 8] = [
        Fault::FindTakesNoReference,
        Fault::EvictTakesReferenced,
        Fault::EvictLeavesLinked,
        Fault::LastReleaseLeaks,
        Fault::UnlinkFreesAtOnce,
        Fault::ReplacedFreedAtOnce,
        Fault::ReplacedLeaks,
        Fault::OwnLeaks,
    ];

    /// Which rule is broken.
    pub fn about(self) -> &'static str {
        match self {
            Fault::FindTakesNoReference => "A probe takes no reference to what it finds.",
            Fault::EvictTakesReferenced => "An eviction takes what somebody refers to.",
            Fault::EvictLeavesLinked => "An evicted entry stays linked.",
            Fault::LastReleaseLeaks => "Whoever drops the last reference to an unlinked entry does not free it.",
            Fault::UnlinkFreesAtOnce => "Whoever unlinks an entry frees it, though others refer to it.",
            Fault::ReplacedFreedAtOnce => "A replaced entry is freed, though others refer to it.",
            Fault::ReplacedLeaks => "A replaced entry that nobody refers to is not freed.",
            Fault::OwnLeaks => "The own slot is not given back when another's entry stays.",
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Fault::FindTakesNoReference => "FindTakesNoReference",
            Fault::EvictTakesReferenced => "EvictTakesReferenced",
            Fault::EvictLeavesLinked => "EvictLeavesLinked",
            Fault::LastReleaseLeaks => "LastReleaseLeaks",
            Fault::UnlinkFreesAtOnce => "UnlinkFreesAtOnce",
            Fault::ReplacedFreedAtOnce => "ReplacedFreedAtOnce",
            Fault::ReplacedLeaks => "ReplacedLeaks",
            Fault::OwnLeaks => "OwnLeaks",
        }
    }
}

/// A bounded system: threads that each do a few things, over few slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// Slots.
    pub slots: u8,
    /// Keys that have an entry at first, in the first slots.
    pub linked: u8,
    /// What each thread does, in order.
    pub threads: Vec<Vec<Op>>,
    /// The rule that is broken.
    pub fault: Option<Fault>,
    /// Distinct and generated states, pinned.
    pub pinned: (usize, usize),
}

impl Program {
    /// Every scope.
    pub fn all() -> Vec<Program> {
        use Op::{Evict, Get, Put};
        let program = |name, about, slots, linked, threads: &[&[Op]], pinned| {
            let threads = threads.iter().map(|ops| ops.to_vec()).collect();
            Program { name, about, slots, linked, threads, fault: None, pinned }
        };
        vec![
            program(
                "slot-reused",
                "one slot for two keys, and readers of both",
                1,
                1,
                &[&[Get(0), Get(1), Get(0)], &[Put(1), Get(0), Put(0)], &[Evict(0), Put(0), Get(1)]],
                (2207, 6506),
            ),
            program(
                "slot-replaced",
                "an entry that two replace while another refers to it",
                3,
                1,
                &[&[Get(0), Get(0), Put(0)], &[Put(0), Put(0), Get(0)], &[Put(0), Get(0), Evict(0)]],
                (211677, 686099),
            ),
            program(
                "slot-evicted",
                "two evict what a third refers to",
                2,
                2,
                &[&[Get(0), Get(1), Put(0)], &[Evict(0), Evict(1), Get(0)], &[Get(0), Evict(0), Put(1)]],
                (4244, 12315),
            ),
            program(
                "slots-full",
                "three publish three keys into two slots",
                2,
                0,
                &[&[Put(0), Get(1), Put(2)], &[Put(1), Get(0), Get(2)], &[Put(2), Get(0), Put(1)]],
                (48827, 142470),
            ),
        ]
    }
}

/// A slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// Is it in the slab?
    pub free: bool,
    /// Is its entry found by probes?
    pub linked: bool,
    /// References, as the word counts them.
    pub references: u8,
    /// The key of its entry.
    pub key: u8,
    /// The number of the write that filled it.
    pub content: u8,
}

/// Where a thread stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pc {
    /// Before an operation, or at its end.
    Start,
    /// It refers to an entry, which may still be found bad (true), with the content that it saw first.
    Held(u8, u8, bool),
    /// It is to free a slot, and then it is done.
    FreeLast(u8),
    /// It is to take a slot; true: it has made room.
    Allocate(bool),
    /// It is to make room.
    Room,
    /// It is to free the slot of the evicted entry, and then to take one.
    FreeVictim(u8),
    /// It is to link the entry in its slot.
    Publish(u8),
    /// It is to free the first, and refers to the second.
    FreeOther(u8, u8),
}

/// A thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thread {
    /// Its operation.
    pub op: u8,
    /// Where it stands.
    pub pc: Pc,
}

/// A state of a [`Program`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The slots.
    pub slots: SmallVec<[Slot; 4]>,
    /// The threads.
    pub threads: SmallVec<[Thread; 4]>,
    /// Writes so far.
    pub writes: u8,
    /// The first property that was broken on the way here.
    pub broken: Option<Property>,
}

impl State {
    /// Nothing has happened yet.
    pub fn initial(program: &Program) -> State {
        let slot = |n: u8| {
            let linked = n < program.linked;
            Slot { free: !linked, linked, references: 0, key: if linked { n } else { NONE }, content: n }
        };
        State {
            slots: (0..program.slots).map(slot).collect(),
            threads: program.threads.iter().map(|_| Thread { op: 0, pc: Pc::Start }).collect(),
            writes: program.slots,
            broken: None,
        }
    }

    fn linked(&self, key: u8) -> Option<u8> {
        self.slots.iter().position(|s| s.linked && s.key == key).map(|s| s as u8)
    }

    /// Has every thread done everything?
    pub fn finished(&self, program: &Program) -> bool {
        self.threads.iter().zip(&program.threads).all(|(t, ops)| usize::from(t.op) == ops.len())
    }

    /// Is what each thread refers to what it referred to first?
    fn is_stable(&self) -> bool {
        self.threads.iter().all(|t| match t.pc {
            Pc::Held(slot, content, _) => self.slots[usize::from(slot)].content == content,
            _ => true,
        })
    }

    fn judge(&self, program: &Program) -> Option<Property> {
        let held = |t: &Thread| match t.pc {
            Pc::Held(slot, ..) | Pc::FreeOther(_, slot) => Some(slot),
            _ => None,
        };
        let count = |n: usize| self.threads.iter().filter(|t| held(t) == Some(n as u8)).count();
        let mut slots = self.slots.iter().enumerate();
        if !self.is_stable() {
            return Some(Property::Stable);
        }
        if self.slots.iter().any(|s| s.free && (s.linked || s.references > 0)) {
            return Some(Property::Free);
        }
        if slots.any(|(n, s)| usize::from(s.references) != count(n)) {
            return Some(Property::Counted);
        }
        let leaked = |s: &Slot| !(s.free || s.linked && s.references == 0);
        (self.finished(program) && self.slots.iter().any(leaked)).then_some(Property::NoLeak)
    }
}

impl Program {
    fn broken(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// What a thread may do next, each with its choice.
    pub fn choices(&self, s: &State, thread: usize) -> SmallVec<[(Step, u8); 4]> {
        let mut out = SmallVec::new();
        let t = s.threads[thread];
        if s.broken.is_some() {
            return out;
        }
        match (t.pc, self.threads[thread].get(usize::from(t.op))) {
            (Pc::Start, None) => {}
            (Pc::Start, Some(Op::Get(_))) => out.push((Step::Find, 0)),
            (Pc::Start, Some(Op::Put(_))) => out.extend([(Step::Allocate, 0), (Step::Refuse, 0)]),
            (Pc::Start, Some(Op::Evict(key))) => {
                let victim = s.linked(*key).filter(|slot| self.may_go(s, *slot));
                out.extend(victim.map(|slot| (Step::Evict, slot)));
                out.push((Step::Evict, NONE));
            }
            (Pc::Held(_, _, may_be_bad), _) => {
                out.push((Step::Release, 0));
                if may_be_bad {
                    out.push((Step::Unlink, 0));
                }
            }
            (Pc::FreeLast(_) | Pc::FreeVictim(_) | Pc::FreeOther(..), _) => out.push((Step::Free, 0)),
            (Pc::Allocate(_), _) => out.push((Step::Allocate, 0)),
            (Pc::Room, _) => {
                let victims =
                    (0..self.slots).filter(|slot| s.slots[usize::from(*slot)].linked && self.may_go(s, *slot));
                out.extend(victims.map(|slot| (Step::Evict, slot)));
                out.push((Step::Evict, NONE));
            }
            (Pc::Publish(own), _) => {
                out.push((Step::Publish, 0));
                if s.linked(s.slots[usize::from(own)].key).is_some() {
                    out.push((Step::Publish, 1));
                }
            }
        }
        out
    }

    fn may_go(&self, s: &State, slot: u8) -> bool {
        s.slots[usize::from(slot)].references == 0 || self.broken(Fault::EvictTakesReferenced)
    }

    /// Takes a step: the next state and what the step saw; `None` if it can't be taken here.
    pub fn step(&self, s: &State, action: Action) -> Option<(State, Seen)> {
        let me = usize::from(action.thread);
        if me >= s.threads.len() || !self.choices(s, me).contains(&(action.step, action.choice)) {
            return None;
        }
        let mut next = s.clone();
        let seen = self.take(&mut next, me, action);
        next.broken = next.broken.or_else(|| next.judge(self));
        Some((next, seen))
    }

    fn take(&self, s: &mut State, me: usize, action: Action) -> Seen {
        let t = s.threads[me];
        let op = self.threads[me].get(usize::from(t.op)).copied();
        match (t.pc, action.step, op) {
            (_, Step::Find, Some(Op::Get(key))) => {
                let found = s.linked(key);
                match found {
                    None => self.done(s, me),
                    Some(slot) => {
                        let entry = &mut s.slots[usize::from(slot)];
                        entry.references += u8::from(!self.broken(Fault::FindTakesNoReference));
                        s.threads[me].pc = Pc::Held(slot, entry.content, true);
                    }
                }
                Seen::Found(found)
            }
            (Pc::Held(slot, ..), step, _) => {
                let entry = &mut s.slots[usize::from(slot)];
                if step == Step::Unlink {
                    entry.linked = false;
                }
                entry.references = entry.references.saturating_sub(1);
                let last = !entry.linked && entry.references == 0;
                let free = match step {
                    Step::Unlink => last || self.broken(Fault::UnlinkFreesAtOnce),
                    _ => last && !self.broken(Fault::LastReleaseLeaks),
                };
                if free {
                    s.threads[me].pc = Pc::FreeLast(slot);
                } else {
                    self.done(s, me);
                }
                Seen::Dropped { slot, free }
            }
            (Pc::FreeLast(slot), ..) => {
                self.free(s, slot);
                self.done(s, me);
                Seen::Freed(slot)
            }
            (Pc::FreeVictim(slot), ..) => {
                self.free(s, slot);
                s.threads[me].pc = Pc::Allocate(true);
                Seen::Freed(slot)
            }
            (Pc::FreeOther(slot, held), ..) => {
                self.free(s, slot);
                s.threads[me].pc = Pc::Held(held, s.slots[usize::from(held)].content, false);
                Seen::Freed(slot)
            }
            (pc, Step::Allocate, Some(Op::Put(key))) => {
                let free = s.slots.iter().position(|slot| slot.free).map(|slot| slot as u8);
                match free {
                    Some(slot) => {
                        let content = s.writes;
                        s.slots[usize::from(slot)] = Slot { free: false, linked: false, references: 0, key, content };
                        s.writes += 1;
                        s.threads[me].pc = Pc::Publish(slot);
                    }
                    None if pc == Pc::Allocate(true) => self.done(s, me),
                    None => s.threads[me].pc = Pc::Room,
                }
                Seen::Slot(free)
            }
            (pc, Step::Evict, _) => {
                let victim = Some(action.choice).filter(|slot| *slot != NONE);
                match victim {
                    None => self.done(s, me),
                    Some(slot) => {
                        s.slots[usize::from(slot)].linked &= self.broken(Fault::EvictLeavesLinked);
                        s.threads[me].pc = if pc == Pc::Room { Pc::FreeVictim(slot) } else { Pc::FreeLast(slot) };
                    }
                }
                Seen::Evicted(victim)
            }
            (Pc::Publish(own), ..) => self.publish(s, me, own, action.choice == 1),
            // Refuse, and what `choices` never gives.
            _ => {
                self.done(s, me);
                Seen::Nothing
            }
        }
    }

    fn publish(&self, s: &mut State, me: usize, own: u8, stays: bool) -> Seen {
        let other = s.linked(s.slots[usize::from(own)].key);
        if let (true, Some(other)) = (stays, other) {
            let entry = &mut s.slots[usize::from(other)];
            entry.references += 1;
            s.threads[me].pc = match self.broken(Fault::OwnLeaks) {
                true => Pc::Held(other, entry.content, false),
                false => Pc::FreeOther(own, other),
            };
            return Seen::Published { slot: other, replaced: None, stays: true };
        }
        let mut frees = None;
        if let Some(other) = other {
            let entry = &mut s.slots[usize::from(other)];
            entry.linked = false;
            let unreferenced = entry.references == 0 && !self.broken(Fault::ReplacedLeaks);
            frees = Some(other).filter(|_| unreferenced || self.broken(Fault::ReplacedFreedAtOnce));
        }
        let entry = &mut s.slots[usize::from(own)];
        (entry.linked, entry.references) = (true, 1);
        s.threads[me].pc = match frees {
            Some(other) => Pc::FreeOther(other, own),
            None => Pc::Held(own, entry.content, false),
        };
        Seen::Published { slot: own, replaced: other, stays: false }
    }

    fn free(&self, s: &mut State, slot: u8) {
        let entry = &mut s.slots[usize::from(slot)];
        if entry.free {
            s.broken = Some(Property::Once);
        }
        entry.free = true;
    }

    fn done(&self, s: &mut State, me: usize) {
        let t = &mut s.threads[me];
        (t.op, t.pc) = (t.op + 1, Pc::Start);
    }
}

impl Model for Program {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::initial(self)]
    }

    fn actions(&self, s: &State, out: &mut Vec<Action>) {
        for thread in 0..s.threads.len() {
            let of = |(step, choice)| Action { thread: thread as u8, step, choice };
            out.extend(self.choices(s, thread).into_iter().map(of));
        }
    }

    fn next_state(&self, s: &State, action: Action) -> Option<State> {
        self.step(s, action).map(|(next, _)| next)
    }

    fn properties(&self) -> Vec<Checked<Self>> {
        vec![
            Checked::always(Property::Stable.name(), |_, s: &State| s.broken != Some(Property::Stable)),
            Checked::always(Property::Free.name(), |_, s: &State| s.broken != Some(Property::Free)),
            Checked::always(Property::Once.name(), |_, s: &State| s.broken != Some(Property::Once)),
            Checked::always(Property::Counted.name(), |_, s: &State| s.broken != Some(Property::Counted)),
            Checked::always(Property::NoLeak.name(), |_, s: &State| s.broken != Some(Property::NoLeak)),
            // Or a scope would be about less than it says.
            Checked::sometimes("lifetime-ends", |program: &Program, s: &State| s.finished(program)),
        ]
    }
}

/// What an exhaustive check of a scope said.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Distinct states.
    pub unique: usize,
    /// Generated states.
    pub generated: usize,
    /// Wall time.
    pub took: Duration,
    /// Properties that were broken, with a run that breaks each as columns.
    pub broken: Vec<(String, String)>,
}

impl Verdict {
    /// Nothing broken, and the counts are those that are pinned.
    pub fn held(&self, program: &Program) -> bool {
        self.broken.is_empty() && (self.unique, self.generated) == program.pinned
    }
}

/// Explores a scope to its end.
pub fn check(program: &Program) -> Verdict {
    let start = Instant::now();
    // One thread: they are small.
    let checker = program.clone().checker().threads(1).spawn_bfs().join();
    let shown = |(name, path): (&'static str, stateright::Path<State, Action>)| {
        (name.to_owned(), columns(program, &path.into_actions()))
    };
    let discoveries = checker.discoveries();
    let mut broken: Vec<(String, String)> =
        discoveries.into_iter().filter(|(name, _)| *name != "lifetime-ends").map(shown).collect();
    if checker.discovery("lifetime-ends").is_none() {
        broken.push(("lifetime-ends".to_owned(), "no run comes to its end".to_owned()));
    }
    broken.sort();
    Verdict { unique: checker.unique_state_count(), generated: checker.state_count(), took: start.elapsed(), broken }
}

/// A shortest run that shows a fault, in the first scope that does: the scope, the property that it breaks, and its steps.
pub fn fault(fault: Fault) -> Option<(Program, Property, Vec<Action>)> {
    Program::all().into_iter().find_map(|program| {
        let program = Program { fault: Some(fault), ..program };
        let (found, _) = search::first_broken(
            State::initial(&program),
            |s, out| program.actions(s, out),
            |s, action| program.step(s, action).map(|(next, _)| next),
            |s| s.broken,
        );
        found.map(|(property, actions)| (program.clone(), property, actions))
    })
}

/// A run as columns, one for each thread.
pub fn columns(program: &Program, actions: &[Action]) -> String {
    const WIDTH: usize = 34;
    let mut state = State::initial(program);
    let mut text = String::new();
    for (n, ops) in program.threads.iter().enumerate() {
        let _ = write!(text, "{:WIDTH$}", format!("{n}: {ops:?}"));
    }
    for (n, action) in actions.iter().enumerate() {
        let Some((next, seen)) = program.step(&state, *action) else {
            let _ = write!(text, "\n{:3}  thread {} can't do {:?} here", n + 1, action.thread, action.step);
            break;
        };
        let indent = usize::from(action.thread) * WIDTH;
        let _ = write!(text, "\n{:3}  {:indent$}{:?} {seen:?}", n + 1, "", action.step);
        state = next;
    }
    if let Some(property) = state.broken {
        let _ = write!(text, "\nbreaks {}", property.name());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_scope_holds_with_its_pinned_counts() {
        let counts = Program::all().into_iter().map(|program| {
            let verdict = check(&program);
            assert!(verdict.broken.is_empty(), "{}: {:?}", program.name, verdict.broken);
            (program.name, (verdict.unique, verdict.generated))
        });
        let pinned = Program::all().into_iter().map(|program| (program.name, program.pinned));
        assert_eq!(counts.collect::<Vec<_>>(), pinned.collect::<Vec<_>>());
    }

    #[test]
    fn every_fault_is_found_and_every_property_is_broken_by_one() {
        let mut broken = HashSet::new();
        for fault in Fault::ALL {
            let (program, property, actions) = super::fault(fault).unwrap_or_else(|| panic!("{fault:?} is not found"));
            let shown = columns(&program, &actions);
            assert!(shown.ends_with(&format!("breaks {}", property.name())), "{shown}");
            broken.insert(property);
        }
        assert!(broken.len() >= 3, "{broken:?}");
    }

    /// That a slot is used again under somebody's eyes is never the first thing to go wrong; so a run is followed beyond that.
    #[test]
    fn a_slot_that_is_used_again_is_not_taken_for_what_it_was() {
        for fault in [Fault::FindTakesNoReference, Fault::EvictTakesReferenced] {
            let program = Program { fault: Some(fault), ..Program::all().swap_remove(0) };
            let (found, _) = search::first_broken(
                State::initial(&program),
                |s, out| program.actions(s, out),
                |s, action| program.step(s, action).map(|(next, _)| State { broken: None, ..next }),
                |s| (!s.is_stable()).then_some(()),
            );
            assert!(found.is_some(), "{fault:?}");
        }
    }
}
