//! The build over shuttle.

use shared_catcache_under_shuttle as cache;
use shuttle::thread;

#[path = "body.rs"]
pub mod body;

#[path = "slots.rs"]
pub mod slots;
