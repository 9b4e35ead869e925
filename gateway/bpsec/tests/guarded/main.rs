//! Which bundles the rules of [`Guard`](underpass_bpsec::Guard) let pass, with two nodes,
//! a relay between them and an attacker that writes what it likes.

mod accepted;
mod cut;
mod cut_long;
mod long;
mod nodes;
mod recorded;
mod refused;
mod rotated;
