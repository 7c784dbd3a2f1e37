//! The desk: where the backends of one run report, and where a harness parks them.
//!
//! It belongs to the harness, not to the code: its mutex is the standard library's, taken by one thread at a time under
//! the simulators, and never held across a facade operation.

use crate::refinement::{Event, PrivateView, Saw, SharedView, Writer};
use catcache_model::coherence::{Program, Step};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An answer of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The key or list, as an index of the file.
    pub key: u8,
    /// The write that made the row; `None`: no row. Of a list, the first member's.
    pub writer: Option<Writer>,
    /// Of a list, the second member's.
    pub second: Option<Writer>,
    /// The backends whose last commit or abort had returned when the lookup was called, one bit each.
    pub after: u8,
}

/// What one backend has reported.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// The step that it is about to take, parked.
    pub pending: Option<Step>,
    /// The step that it took last, and what that saw, if the harness has not looked yet.
    pub took: Option<(Step, Saw)>,
    /// Steps taken since the harness last looked.
    pub steps: u32,
    /// Its private state.
    pub private: PrivateView,
    /// The writes that it is about to make: the key of the file, and who.
    pub writing: Vec<(u8, Writer)>,
    /// Its answers.
    pub answers: Vec<Answered>,
    /// Has it done everything?
    pub finished: bool,
}

/// What all backends of a run have reported.
#[derive(Debug, Default)]
pub struct Board {
    /// One a backend.
    pub places: Vec<Place>,
    /// Every step of the code in order, if the run is recorded.
    pub events: Vec<Event>,
    /// For each event that is a write, the key of the file and who wrote.
    pub writes: Vec<(u8, Writer)>,
    /// Backends whose last commit or abort has returned, one bit each.
    pub done: u8,
    /// What went wrong, first thing first.
    pub failure: Option<String>,
}

/// Which stamps somebody may open, so that their checks count as steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// Those of lists.
    pub lists: bool,
    /// Those of catalogs.
    pub catalogs: bool,
    /// Those of databases.
    pub databases: bool,
}

/// How the backends of a run are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each step waits for the harness.
    Gated,
    /// They run; their steps are recorded.
    Recorded,
    /// They run; only answers are kept.
    Free,
}

/// What a harness does when a backend has arrived at a gate or has finished; called by that backend, all others parked.
pub type Arrival = dyn Fn(&mut Board, u8, &dyn Fn() -> SharedView) + Send + Sync;

/// What the desks of several processes have in common; each of them has one backend.
pub trait Common: Send + Sync {
    /// Who has finished by now: see [`Board::done`].
    fn asked(&self) -> u8;
    /// A transaction has begun, or its commit or abort has returned.
    fn done(&self, me: u8, done: bool);
    /// A write has been made; called inside its step.
    fn wrote(&self, key: u8, writer: Writer);
    /// Shall the others be let run before the next step?
    fn pauses(&self) -> bool;
}

/// The desk of one run.
pub struct Desk {
    board: Mutex<Board>,
    mode: Mode,
    memory: bool,
    levels: Levels,
    arrival: Option<Arc<Arrival>>,
    common: Option<Arc<dyn Common>>,
}

impl Desk {
    /// A desk for the backends of a program.
    pub fn new(program: &Program, mode: Mode, arrival: Option<Arc<Arrival>>) -> Arc<Desk> {
        Arc::new(Desk { arrival, ..Desk::plain(program, mode) })
    }

    /// The desk of one backend of a run of processes.
    pub fn of_process(program: &Program, common: Arc<dyn Common>) -> Arc<Desk> {
        Arc::new(Desk { common: Some(common), ..Desk::plain(program, Mode::Free) })
    }

    fn plain(program: &Program, mode: Mode) -> Desk {
        let board = Board { places: vec![Place::default(); program.plans.len()], ..Board::default() };
        let levels = Levels {
            lists: program.opens_lists(),
            catalogs: program.opens_catalogs(),
            databases: program.opens_databases(),
        };
        let memory = program.memory();
        Desk { board: Mutex::new(board), mode, memory, levels, arrival: None, common: None }
    }

    /// Which stamps are part of the model.
    pub fn levels(&self) -> Levels {
        self.levels
    }

    /// The board. A panic of a simulated thread must not hide what it had reported.
    pub fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is this step part of the model at all?
    fn counts(&self, step: Option<Step>) -> Option<Step> {
        step.filter(|step| self.memory || !matches!(step, Step::Allocate | Step::Release | Step::Free))
    }

    /// A backend is about to take a step. True if it must be parked now.
    pub fn before(&self, me: u8, step: Option<Step>, shared: &dyn Fn() -> SharedView) -> bool {
        if let Some(common) = &self.common {
            return common.pauses();
        }
        let Some(step) = self.counts(step) else { return false };
        if self.mode != Mode::Gated || self.board().places[me as usize].finished {
            return false;
        }
        let mut board = self.board();
        if board.failure.is_some() {
            return false;
        }
        if let Some(arrival) = &self.arrival {
            arrival(&mut board, me, shared);
        }
        board.places[me as usize].pending = Some(step);
        true
    }

    /// A backend has taken a step.
    pub fn took(&self, me: u8, step: Option<Step>, saw: Saw) {
        let writes = matches!(step, Some(Step::Write | Step::Overwrite));
        if self.mode == Mode::Free && !writes {
            return;
        }
        let mut board = self.board();
        if board.places[me as usize].finished {
            return;
        }
        if writes && saw != Saw::Fail {
            let writing = std::mem::take(&mut board.places[me as usize].writing);
            match &self.common {
                Some(common) => writing.into_iter().for_each(|(key, writer)| common.wrote(key, writer)),
                None => board.writes.extend(writing),
            }
        }
        let Some(step) = self.counts(step) else { return };
        if self.mode == Mode::Recorded {
            board.events.push(Event { backend: me, step: Some(step), saw });
        }
        let place = &mut board.places[me as usize];
        place.took = Some((step, saw));
        place.steps += 1;
    }

    /// A backend's private state has changed.
    pub fn private(&self, me: u8, image: PrivateView) {
        if self.mode == Mode::Gated {
            self.board().places[me as usize].private = image;
        }
    }

    /// Are images wanted?
    pub fn wants_images(&self) -> bool {
        self.mode == Mode::Gated
    }

    /// A backend is about to write, one row or several by one step.
    pub fn writing(&self, me: u8, key: u8, writer: Writer) {
        self.board().places[me as usize].writing.push((key, writer));
    }

    /// What a backend was about to write was refused.
    pub fn not_writing(&self, me: u8) {
        self.board().places[me as usize].writing.clear();
    }

    /// A backend has called a lookup: who had finished by then?
    pub fn asked(&self) -> u8 {
        match &self.common {
            Some(common) => common.asked(),
            None => self.board().done,
        }
    }

    /// A lookup has returned.
    pub fn answered(&self, me: u8, answer: Answered) {
        self.board().places[me as usize].answers.push(answer);
    }

    /// A transaction has begun, or its commit or abort has returned.
    pub fn done(&self, me: u8, done: bool) {
        if let Some(common) = &self.common {
            return common.done(me, done);
        }
        let mut board = self.board();
        board.done = if done { board.done | 1 << me } else { board.done & !(1 << me) };
    }

    /// A backend has done everything.
    pub fn finish(&self, me: u8, shared: &dyn Fn() -> SharedView) {
        let mut board = self.board();
        if self.mode == Mode::Gated
            && board.failure.is_none()
            && let Some(arrival) = &self.arrival
        {
            arrival(&mut board, me, shared);
        }
        board.places[me as usize].finished = true;
    }

    /// Something went wrong.
    pub fn fail(&self, what: impl Into<String>) {
        self.board().failure.get_or_insert(what.into());
    }
}
