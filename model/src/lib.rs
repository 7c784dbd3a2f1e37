//! The specification of the shared catalog cache, as models that are checked exhaustively.
//!
//! [`coherence`] is DESIGN section 3: stamps, tokens, brackets, loads, the local view, the ring. [`lifetime`] is the life of a
//! slot: references, eviction, reuse. [`check`] runs a scope
//! and gives a verdict that can be trusted; [`graph`] walks a small program's states and edges, for litmus outcomes,
//! replay and progress; [`search`] finds the shortest run to an end that is asked for; [`diagram`] prints runs as columns
//! and pictures, and [`explorer`] shows them in a browser.
//!
//! This crate does not know the implementation. What both share is a vocabulary, and `catcache-conformance` holds the
//! two together.

pub mod check;
pub mod coherence;
pub mod coverage;
pub mod diagram;
pub mod explorer;
pub mod graph;
pub mod lifetime;
pub mod search;

/// The package folder in which this was compiled, for whoever vouches for a build.
#[doc(hidden)]
pub const BUILT_IN: &str = env!("CARGO_MANIFEST_DIR");
