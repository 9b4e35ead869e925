//! The store over a simulated disk, in virtual time.

mod bench;
mod claims;
mod custody;
mod laws;
