//! Agents side by side: what a node does with bundles, its neighbours' and its own.
//!
//! One program: each links all that the crate needs.

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
