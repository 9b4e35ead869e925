//! Agents connected directly: what a node does with bundles, its own and its neighbours'.
//!
//! This is one test program, since each one links the whole crate.

mod authority;
mod bibe;
mod bounded;
mod clauses;
mod confirming;
mod conservation;
mod custody;
mod documented;
mod fragments;
mod full_beyond;
mod hops;
mod hostile;
mod long;
mod long_fragments;
mod long_without_room;
mod named;
mod net;
mod order;
mod own_name;
mod planned;
mod several;
mod vectors;
