//! Child processes that do not outlive us, however we end.
//!
//! A child that is dropped is killed and waited for. Those that run are also on a list, for a process that is to end at once
//! and drops nothing.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal};

/// The children that run; `None` once they have been ended.
static CHILDREN: Mutex<Option<Vec<Pid>>> = Mutex::new(Some(Vec::new()));

/// Kills the children that run, and lets no more start: for a process that is to end at once.
pub fn end_all() {
    let running = children().take().unwrap_or_default();
    for pid in running {
        // One that has ended already is no reason to stay.
        rustix::process::kill_process(pid, Signal::KILL).ok();
    }
}

fn children() -> MutexGuard<'static, Option<Vec<Pid>>> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A child that does not outlive us.
#[derive(Debug)]
pub struct Running(pub Child);

/// Starts a child.
///
/// # Errors
/// It can't be started, or no child may start any more.
pub fn start(command: &mut Command) -> io::Result<Running> {
    let mut children = children();
    let Some(running) = &mut *children else { return Err(io::ErrorKind::Interrupted.into()) };
    let child = command.spawn()?;
    running.push(Pid::from_child(&child));
    Ok(Running(child))
}

impl Running {
    /// Its number.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// Waits for its end, which is near: it has closed its outputs, or was killed.
    ///
    /// # Errors
    /// The system's.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        // First off the list: once waited for, its number may be somebody else's.
        let own = self.pid();
        if let Some(running) = &mut *children() {
            running.retain(|pid| *pid != own);
        }
        self.0.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail if it has ended already, and then there is nothing to do.
        let _ = self.0.kill();
        let _ = self.wait();
    }
}
