//! Holds the shared catalog cache to its model.

pub mod acceptance;
pub mod desk;
pub mod litmus;
pub mod oracle;
pub mod outcomes;
pub mod quiet;
pub mod refinement;
pub mod replay;
pub mod rules;
#[allow(missing_docs, reason = "one body, documented where it stands, compiled once for each build")]
pub mod runtimes;
pub mod seal;
pub mod suite;
