//! What beacons promise, in virtual time.

mod authentic;
mod hop;
mod hurried;
mod idle;
mod vectors;
