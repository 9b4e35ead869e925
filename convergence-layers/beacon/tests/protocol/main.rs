//! The promises of beacons, in virtual time.

mod authentic;
mod hop;
mod idle;
mod probing;
mod resting;
mod vectors;
