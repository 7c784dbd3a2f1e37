//! The build over loom.

use shared_catcache_under_loom as cache;
use loom::thread;

#[path = "body.rs"]
pub mod body;
