//! loom's cell: it knows which accesses happen before which, and panics on a race.

use loom::cell::UnsafeCell;

/// Watches one unit of plain data.
#[derive(Debug)]
pub(crate) struct Tracker(UnsafeCell<()>);

impl Tracker {
    pub(crate) fn new() -> Tracker {
        Tracker(UnsafeCell::new(()))
    }

    /// The data is read: panics unless every write happens before.
    pub(crate) fn read(&self) {
        self.0.with(|_| ());
    }

    /// The data is written: panics unless every other access happens before.
    pub(crate) fn write(&self) {
        self.0.with_mut(|_| ());
    }
}
