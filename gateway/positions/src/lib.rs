//! The vehicle's position, from its receiver.
//!
//! A [`Feed`] makes fixes of what a source sends: [`gpsd::Client`] of gpsd's
//! JSON, [`nmea::Stream`] of NMEA 0183 sentences. [`Pace`] says which of the
//! fixes are reported, [`Replay`] moves the times of a recorded drive to
//! now. All of it is free of I/O and clocks: bytes and the time go in, fixes and
//! the next deadline come out.

mod calendar;
mod feed;
mod fix;
pub mod gpsd;
mod lines;
pub mod nmea;
mod pace;
mod replay;
mod sequence;
#[cfg(test)]
mod vectors;

pub use feed::{Counts, Event, Feed, FeedError};
pub use fix::{Fix, FixError, MAX_SPEED_MPS};
pub use pace::Pace;
pub use replay::Replay;
