//! The link scheduler in virtual time.

mod beside;
mod claims;
mod debts;
mod laws;
mod line;
mod node;
mod shard_laws;
mod shards;
