//! The coherence model: DESIGN section 3 for tuples, negative entries and lists, with what CONTRACT A asks of it.
//!
//! # What is in a state
//!
//! Shared: the clock, the stamps (of stripes; of catalogs and databases where somebody opens them), the message ring, the
//! table of entries. The catalog: committed rows, heavyweight locks. Each backend: its place in a program, its local view,
//! its catalog snapshot with the token, its dirty set, its place in the ring. And *ghosts*, which the properties read and no
//! step does.
//!
//! # The grain
//!
//! One lock section or one atomic access is a step ([`Step`]). A commit of one key is `Log, Open, Visible, Advance, Close,
//! Send, Unlock`; a load is `Token, Snapshot, Scan, Check, Allocate, Publish`; an in-place update is `Lock, Open, Overwrite,
//! Advance, Close, Send, Unlock, Accept`. Steps that touch what no other step of the program reads are left out: see
//! [`Program::memory`], and the stamps of catalogs and databases where nobody opens them.
//!
//! # What is not in it
//!
//! Two-phase commit, death. Reads are current except for the token, which may be old
//! ([`Program::stale_tokens`]); why older stamps can't hurt is DESIGN's argument, and loom's to check.

pub mod fault;
pub mod program;
pub mod property;
pub mod scope;
pub mod state;
pub mod step;

pub use fault::Fault;
pub use program::{Item, Key, KeySpec, ListSpec, Op, Plan, Program};
pub use property::Property;
pub use scope::Scope;
pub use state::State;
pub use step::{Action, Reading, Seen, Step};

use crate::coverage::Coverage;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A program as a stateright model.
#[derive(Clone)]
pub struct Coherence {
    /// What is explored.
    pub program: Program,
    /// Which branches were taken.
    pub coverage: Arc<Coverage>,
    /// Set to break the exploration off: no further state is then looked at, and what was found is no verdict.
    pub stop: Arc<AtomicBool>,
}

impl Coherence {
    /// A model of `program`, nothing covered yet.
    pub fn new(program: Program) -> Self {
        Coherence { program, coverage: Arc::default(), stop: Arc::default() }
    }
}

impl stateright::Model for Coherence {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::initial(&self.program)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.program.actions_of(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let (next, seen) = self.program.step(state, action)?;
        self.coverage.took(action.step, seen);
        Some(next)
    }

    fn properties(&self) -> Vec<stateright::Property<Self>> {
        properties()
    }

    fn within_boundary(&self, _: &State) -> bool {
        // Relaxed: a flag that asks to stop; it guards no data.
        !self.stop.load(Ordering::Relaxed)
    }
}

impl AsRef<Program> for Coherence {
    fn as_ref(&self) -> &Program {
        &self.program
    }
}

impl AsRef<State> for State {
    fn as_ref(&self) -> &State {
        self
    }
}

/// What must hold in every state, for a model whose states are those of a program.
pub(crate) fn properties<M>() -> Vec<stateright::Property<M>>
where
    M: stateright::Model + AsRef<Program>,
    M::State: AsRef<State>,
{
    macro_rules! held {
        ($($property:ident)+) => {
            vec![$(stateright::Property::always(Property::$property.name(), |_: &M, s: &M::State| {
                s.as_ref().broken != Some(Property::$property)
            })),+]
        };
    }
    let mut all = held!(I1 I1h A1 A7 A8 A9 A23 A24 A39 Composite Useful Renewed Newest Balance Leak);
    all.push(stateright::Property::always("no deadlock", |m: &M, s: &M::State| {
        let s = s.as_ref();
        let stuck = || (0..s.backends.len()).all(|b| m.as_ref().choices(s, b).is_empty());
        s.broken.is_some() || s.finished() || !stuck()
    }));
    all
}
