//! Streams between two nodes, in virtual time.

mod claims;
mod exchange;
mod long_fat_path;
mod pair;
mod restarts;
mod turns;
