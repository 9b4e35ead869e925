//! Streams between two nodes, in virtual time.

mod begun_anew;
mod claims;
mod exchange;
mod long_fat_path;
mod pair;
mod restarts;
mod turns;
