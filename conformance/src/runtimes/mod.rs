//! The code under test in its three builds: over real threads, over shuttle, over loom.
//!
//! The three packages build one source, but their types are not the same; so the driver ([`real::body`] and its twins)
//! is compiled once for each.

pub mod real;
pub mod under_loom;
pub mod under_shuttle;
