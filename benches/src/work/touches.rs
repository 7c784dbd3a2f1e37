//! First touches: misses of the local view that the shared table answers, because another backend has loaded the rows
//! already. This is what a new backend does, and where the locks of the table matter.

use std::time::Duration;

use super::hits::{HitCosts, Mix, together};
use crate::measure::{Slice, cpu_time, wall_ns};
use crate::rivals::{Failure, Handle, Subject, Task};
use crate::script::BenchKey;
use crate::statistics::summary;

/// Touches of a slice: some 20 µs.
pub const TOUCHES: usize = 100;

/// The first touches of a new backend, when another has filled the cache already.
pub struct FirstTouches<'a> {
    /// Whose stream.
    pub mix: &'a Mix,
    /// How many new backends.
    pub backends: usize,
}

impl Task for FirstTouches<'_> {
    /// CPU time of one answer, a median over the backends; `None` if a lookup was answered otherwise.
    type Output = Result<Option<f64>, Failure>;

    fn run<S: Subject>(&self) -> Self::Output {
        let subject: S = self.mix.subject()?;
        let _filled = self.mix.warm(&subject)?;
        let touches = self.mix.first_touches();
        let mut costs = Vec::new();
        for _ in 0..self.backends {
            let mut handle = subject.attach()?;
            let (cpu_ns, result) = cpu_time(|| self.mix.touch(&mut handle, &touches));
            result?;
            if handle.stats().loads > 0 {
                return Ok(None);
            }
            costs.push(cpu_ns as f64 / touches.len() as f64);
        }
        Ok(summary(costs).map(|summary| summary.median))
    }
}

/// First touches by one new backend after another: on one thread, then on two at the same time.
pub struct Touches<'a> {
    /// Whose stream.
    pub mix: &'a Mix,
    /// How long one thread is measured.
    pub one: Duration,
    /// How long two threads are measured; zero for not at all.
    pub two: Duration,
}

/// Cuts first touches into slices of so many `lookups`, with a new backend whenever one has touched everything, for as long as
/// `go_on` says. To attach and to end a backend is in no slice.
///
/// # Panics
/// If `lookups` is 0.
///
/// # Errors
/// The subject's; or a lookup had to be loaded, so that the cache was not filled.
pub fn touch_slices<H: Handle>(
    mix: &Mix,
    touches: &[BenchKey],
    lookups: usize,
    attach: impl Fn() -> Result<H, Failure>,
    mut go_on: impl FnMut(u64) -> bool,
) -> Result<Vec<Slice>, Failure> {
    let mut slices = Vec::new();
    let start = wall_ns();
    while go_on(wall_ns() - start) {
        let mut handle = attach()?;
        for keys in touches.chunks_exact(lookups) {
            let mut result = Ok(());
            slices.push(Slice::of(|| result = mix.touch(&mut handle, keys)));
            result?;
            if !go_on(wall_ns() - start) {
                break;
            }
        }
        let loads = handle.stats().loads;
        if loads > 0 {
            return Err(format!("{loads} rows had to be loaded where the shared table was to answer").into());
        }
    }
    Ok(slices)
}

impl Task for Touches<'_> {
    type Output = Result<HitCosts, Failure>;

    fn run<S: Subject>(&self) -> Self::Output {
        let subject: S = self.mix.subject()?;
        let _filled = self.mix.warm(&subject)?;
        let touches = self.mix.first_touches();
        let (one, two) = (self.one.as_nanos() as u64, self.two.as_nanos() as u64);
        let attach = || subject.attach();
        let alone = touch_slices(self.mix, &touches, TOUCHES, attach, |ns| ns < one)?;
        let both = together(two, || {
            |go_on: &mut dyn FnMut(u64) -> bool| touch_slices(self.mix, &touches, TOUCHES, attach, go_on)
        })?;
        Ok(HitCosts::new(&alone, &both, TOUCHES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::Kind;

    /// Only what is shared can answer a new backend; a private cache must load, and the task says so.
    #[test]
    fn the_shared_table_answers_and_a_private_cache_loads() {
        let mix = Mix::small(256, 4_096);
        assert!(mix.first_touches().len() >= 2 * TOUCHES);
        for kind in Kind::ALL {
            let answered = kind.run(&FirstTouches { mix: &mix, backends: 2 }).unwrap().is_some();
            assert_eq!(answered, !kind.is_private(), "{}", kind.name());
            let task = Touches { mix: &mix, one: Duration::from_millis(2), two: Duration::from_millis(2) };
            match kind.run(&task) {
                Ok(costs) => assert!(!kind.is_private() && costs.slices > 0, "{}", kind.name()),
                Err(error) => assert!(kind.is_private() && error.to_string().contains("loaded"), "{error}"),
            }
        }
    }
}
