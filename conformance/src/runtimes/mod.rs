//! The code under test in its three builds: over real threads, over shuttle, over loom; and the first of them in
//! processes of its own.
//!
//! The three packages build one source, but their types are not the same; so the driver ([`real::body`] and its twins)
//! is compiled once for each.

pub mod processes;
pub mod real;
pub mod under_loom;
pub mod under_shuttle;
