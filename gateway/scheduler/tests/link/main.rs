//! The link scheduler in virtual time.

mod claims;
mod laws;
mod line;
mod node;
mod shard_laws;
mod shards;
