//! The build that users get, on real threads.

use shared_catcache as cache;
use std::thread;

#[path = "body.rs"]
pub mod body;

#[path = "slots.rs"]
pub mod slots;
