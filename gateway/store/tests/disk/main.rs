//! The store over a simulated disk, in virtual time.

mod bench;
mod claims;
mod counted;
mod custody;
mod faults;
mod files;
mod laws;
mod load;
mod shards;
mod threads;
