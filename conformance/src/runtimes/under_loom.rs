//! The build over loom.

use loom::thread;
use shared_catcache_under_loom as cache;

#[path = "body.rs"]
pub mod body;

#[path = "slots.rs"]
pub mod slots;
