//! The model as stateright's Explorer shows it.
//!
//! The Explorer lists the steps that are possible next by their text alone, and shows the first state as Rust's `Debug`.
//! A step's text needs the state that it is taken in, to say which operation it starts; so here an action carries its
//! text, and a state its program. The states, steps and properties are those of [`Coherence`].

use crate::coherence::{self, Action, Program, State};
use crate::diagram;
use stateright::{Model, Path, Property};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

#[cfg(doc)]
use crate::coherence::Coherence;

/// A program, to be walked through.
#[derive(Clone)]
pub struct Coherent(Arc<Program>);

impl Coherent {
    /// To walk through `program`.
    pub fn new(program: Program) -> Self {
        Coherent(Arc::new(program))
    }

    /// Where the Explorer shows the end of a run: what follows its address. Stops at an action that can't be taken.
    pub fn place(&self, run: &[Action]) -> String {
        let mut place = String::from("#/steps/0");
        let (mut state, mut possible) = (State::initial(&self.0), Vec::new());
        for action in run {
            possible.clear();
            self.0.actions_of(&state, &mut possible);
            let Some(index) = possible.iter().position(|a| a == action) else { break };
            let Some((next, _)) = self.0.step(&state, *action) else { break };
            place.push_str(&format!("/{index}"));
            state = next;
        }
        place
    }
}

/// A state whose `Debug` speaks to people.
#[derive(Clone)]
pub struct Shown {
    state: State,
    program: Arc<Program>,
}

/// A step with its text.
#[derive(Clone)]
pub struct Labelled {
    action: Action,
    label: String,
}

impl Model for Coherent {
    type State = Shown;
    type Action = Labelled;

    fn init_states(&self) -> Vec<Shown> {
        vec![Shown { state: State::initial(&self.0), program: Arc::clone(&self.0) }]
    }

    fn actions(&self, s: &Shown, actions: &mut Vec<Labelled>) {
        let mut plain = Vec::new();
        self.0.actions_of(&s.state, &mut plain);
        let labelled = |action| Labelled { action, label: diagram::action(&self.0, &s.state, &action) };
        actions.extend(plain.into_iter().map(labelled));
    }

    fn next_state(&self, s: &Shown, labelled: Labelled) -> Option<Shown> {
        let (state, _) = self.0.step(&s.state, labelled.action)?;
        Some(Shown { state, program: Arc::clone(&self.0) })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        coherence::properties()
    }

    fn format_action(&self, labelled: &Labelled) -> String {
        labelled.label.clone()
    }

    fn format_step(&self, s: &Shown, labelled: Labelled) -> Option<String> {
        diagram::step(&self.0, &s.state, &labelled.action)
    }

    fn as_svg(&self, path: Path<Shown, Labelled>) -> Option<String> {
        let actions: Vec<Action> = path.into_actions().into_iter().map(|l| l.action).collect();
        Some(diagram::svg(&self.0, &actions))
    }
}

impl AsRef<Program> for Coherent {
    fn as_ref(&self) -> &Program {
        &self.0
    }
}

impl AsRef<State> for Shown {
    fn as_ref(&self) -> &State {
        &self.state
    }
}

// The program is the same in all of them.
impl PartialEq for Shown {
    fn eq(&self, other: &Shown) -> bool {
        self.state == other.state
    }
}

impl Hash for Shown {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.state.hash(hasher);
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&diagram::state(&self.program, &self.state))?;
        // What the Explorer calls the complete state.
        if f.alternate() { write!(f, "\n\nIn full: {:#?}", self.state) } else { Ok(()) }
    }
}

impl PartialEq for Labelled {
    fn eq(&self, other: &Labelled) -> bool {
        self.action == other.action
    }
}

impl fmt::Debug for Labelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coherence::Scope;
    use stateright::Checker;

    /// As many states as the scope pins, and no two steps of a state that read alike.
    #[test]
    fn the_explorer_shows_the_same_states_and_tells_their_steps_apart() {
        for name in ["withdraw", "trim"] {
            let scope = Scope::named(name).expect("a shipped scope");
            let model = Coherent::new(scope.program.clone());
            let (mut seen, mut open) = (std::collections::HashSet::new(), model.init_states());
            while let Some(state) = open.pop() {
                let mut actions = Vec::new();
                model.actions(&state, &mut actions);
                let labels: std::collections::HashSet<&str> = actions.iter().map(|a| a.label.as_str()).collect();
                assert_eq!(labels.len(), actions.len(), "{actions:?}");
                let next = actions.into_iter().filter_map(|a| model.next_state(&state, a));
                open.extend(next.filter(|s| seen.insert(s.state.clone())));
            }
            let checker = model.checker().spawn_dfs().join();
            checker.assert_properties();
            assert_eq!((checker.unique_state_count(), seen.len() + 1), (scope.unique, scope.unique));
        }
    }

    #[test]
    fn a_step_says_what_it_starts_and_its_state_speaks() {
        let model = Coherent::new(Scope::named("tuple").expect("a shipped scope").program);
        let start = model.init_states().remove(0);
        let mut actions = Vec::new();
        model.actions(&start, &mut actions);
        let labels: Vec<&str> = actions.iter().map(|a| a.label.as_str()).collect();
        assert_eq!(labels[..2], ["reader: [lookup k0] Accept", "reader: [accept] Accept"]);
        let told = model.format_step(&start, actions.remove(0)).expect("it can be taken");
        assert!(told.starts_with("reader: [lookup k0] Accept (0 messages)\n\nclock 1,"), "{told}");
        assert!(told.contains("\nreader: in [lookup k0], next Find"), "{told}");
        assert!(format!("{start:#?}").contains("\ncatalog k0: committed v0"), "{start:?}");
    }
}
