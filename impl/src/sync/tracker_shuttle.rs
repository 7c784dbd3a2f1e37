//! shuttle is sequentially consistent and has no cells; the arena's own rules (who holds which lock, which slot is
//! referenced) do the work.

/// Watches one unit of plain data.
#[derive(Debug)]
pub(crate) struct Tracker;

impl Tracker {
    pub(crate) fn new() -> Tracker {
        Tracker
    }

    pub(crate) fn read(&self) {}

    pub(crate) fn write(&self) {}
}
