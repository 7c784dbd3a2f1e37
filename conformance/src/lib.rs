//! Holds the shared catalog cache to its model.
//!
//! ```text
//!     litmus file ──▶ program of the model ──▶ graph ──▶ outcomes          what a reader sees
//!          │                                     │
//!          │                                     ├──▶ replay               the model drives the code: every edge, lock step
//!          └──▶ body, over three builds ◀────────┤
//!                 shuttle, loom: acceptance ─────┘                          the code drives the model
//!                 real threads and processes: outcomes ⊆ allowed; oracle    shares nothing with the model
//! ```
//!
//! [`litmus`] reads the files; [`explain`] says why an outcome of one comes about, or which rule forbids it;
//! [`refinement`] says which value of the code each variable of the model stands for; [`replay`] and [`acceptance`] hold
//! the two together step by step; [`outcomes`] runs the files on real threads,
//! [`processes`](runtimes::processes) on real processes; [`lifetime`] holds entries and slab to a model of their own; [`oracle`] judges long random histories by
//! rules of its own; [`suite`] does it all, with faults of the code ([`rules`]) that must be caught; [`seal`] records that
//! this very code has passed.
//!
//! # What is not checked
//!
//! * Two-phase commit: not in the model yet. Lists have two members, and a key is in one list at most.
//! * Death of a process. Processes run as they come; lock step and the simulators drive threads.
//! * Our own lock below the table: in the simulated builds the simulator's lock stands in its place; ours has a suite of
//!   its own (`tests/lock.rs`), and the real builds use it (real threads, oracle, thread sanitizer).
//! * Store buffering beyond what loom models (it has no load buffering), and anything on machines other than x86-64.
//! * loom's runs reach only the edges that its preemption bound and its pruning leave; the table says how many.
//! * Under loom a look at the ring, a stamp or the clock may be as old as the same backend's last read of it: the
//!   acceptor does not follow happens-before across backends; the properties judge the run.
//! * Private images are compared when a backend stands still, so a private value that is wrong only in the middle of a
//!   step goes unseen.

#![allow(clippy::duplicate_mod, reason = "the driver is compiled once for each of the three builds, on purpose")]

pub mod acceptance;
pub mod desk;
pub mod explain;
pub mod lifetime;
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
