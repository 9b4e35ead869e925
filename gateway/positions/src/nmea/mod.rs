//! NMEA 0183: sentences in, fixes out.
//!
//! RMC, GGA, GNS, GLL, VTG, GST and ZDA of any talker (GP, GN, GL, GA, GB, BD, QZ, …) are read;
//! everything else is skipped. Sentences of one *epoch*, which have the same time of day, make one
//! fix. The control service reads logs in the same way; both are tested with
//! `docs/vectors/nmea.json`.

mod fields;
mod reader;
mod sentence;
mod stream;

pub use reader::Reader;
pub use sentence::{MAX_SENTENCE, Sentence, SentenceError};
pub use stream::Stream;

#[cfg(test)]
mod vectors;
