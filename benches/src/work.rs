//! What the subjects are asked to do while they are measured.
//!
//! Each but [`mixed`] is a [`Task`](crate::rivals::Task), compiled once for each subject. An answer that is wrong makes the task fail: a
//! time for it would be worth nothing.

pub mod hits;
pub mod mixed;
pub mod processes;
pub mod replay;
pub mod storage;
pub mod storm;
pub mod touches;

use crate::rivals::Failure;

/// A subject gave wrong answers.
#[derive(Debug, thiserror::Error)]
#[error("{workload}: {wrong} of {lookups} answers are wrong; no figure of this run can be trusted")]
pub struct WrongAnswers {
    /// What was asked of it.
    pub workload: String,
    /// How many were wrong.
    pub wrong: u64,
    /// Of how many.
    pub lookups: u64,
}

/// What a thread of a workload returned, or why it could not.
fn joined<T>(result: std::thread::Result<Result<T, Failure>>) -> Result<T, Failure> {
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
