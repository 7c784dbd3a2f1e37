//! How much memory a workload leaves behind.

use super::WrongAnswers;
use super::replay::play;
use crate::rivals::{Failure, Handle, HandleStats, Subject, Task};
use crate::script::Script;

/// So many backends have played a script, one after another, and are all still there.
pub struct Storage<'a> {
    /// What they play.
    pub script: &'a Script,
    /// How many they are.
    pub backends: u32,
}

/// What is held afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// By all in common.
    pub shared_bytes: u64,
    /// By the backends for themselves, all together.
    pub stats: HandleStats,
}

impl Stored {
    /// Everything.
    pub fn bytes(&self) -> u64 {
        self.shared_bytes + self.stats.bytes
    }
}

impl Task for Storage<'_> {
    type Output = Result<Stored, Failure>;

    fn run<S: Subject>(&self) -> Self::Output {
        let subject = S::new(&self.script.catalog(self.backends))?;
        let mut attached = Vec::new();
        let mut stats = HandleStats::default();
        for backend in 1..=self.backends {
            let mut handle = subject.attach()?;
            let played = play(&mut handle, self.script, &self.script.keys(backend))?;
            if played.wrong > 0 {
                let workload = format!("trace {}, backend {backend}", self.script.name);
                return Err(WrongAnswers { workload, wrong: played.wrong, lookups: played.lookups }.into());
            }
            stats = stats.plus(handle.stats());
            // What one private cache holds does not depend on the others: it is counted, and need not stay.
            if !S::PRIVATE {
                attached.push(handle);
            }
        }
        Ok(Stored { shared_bytes: subject.shared_bytes(), stats })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::Kind;
    use crate::trace::packed;

    /// Private memory grows with the backends, shared memory does not.
    #[test]
    fn private_caches_pay_once_per_backend() {
        let traces = packed().unwrap();
        let script = Script::new(traces.iter().find(|trace| trace.name == "simple").unwrap());
        for kind in Kind::ALL {
            let one = kind.run(&Storage { script: &script, backends: 1 }).unwrap();
            let four = kind.run(&Storage { script: &script, backends: 4 }).unwrap();
            assert_eq!(four.stats.bytes, 4 * one.stats.bytes, "{}", kind.name());
            assert_eq!(four.shared_bytes, one.shared_bytes, "{}", kind.name());
            let held_by_backends = kind.is_private() || kind.lacks().is_empty();
            assert_eq!(one.stats.bytes > 0, held_by_backends, "{}", kind.name());
        }
    }
}
