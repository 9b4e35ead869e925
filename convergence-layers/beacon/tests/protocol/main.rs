//! What beacons promise, in virtual time.

mod authentic;
mod hop;
mod idle;
mod probing;
mod resting;
mod vectors;
