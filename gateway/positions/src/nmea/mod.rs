//! NMEA 0183: sentences in, fixes out.
//!
//! Read are RMC, GGA, GNS, GLL, VTG, GST and ZDA of any talker (GP, GN, GL,
//! GA, GB, BD, QZ, …); everything else is passed over. Sentences of one
//! *epoch*, told by their time of day, make one fix. The control service reads
//! logs in the same way; `docs/vectors/nmea.json` holds both to it.

mod fields;
mod reader;
mod sentence;
mod stream;

pub use reader::Reader;
pub use sentence::{MAX_SENTENCE, Sentence, SentenceError};
pub use stream::Stream;

#[cfg(test)]
mod vectors;
