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
mod tests {
    use super::Reader;
    use crate::{calendar, vectors};

    const VECTORS: &str = include_str!("../../../../docs/vectors/nmea.json");

    #[test]
    fn logs_are_read_as_the_vectors_say() {
        let gps_began = calendar::midnight_ms(1980, 1, 6).unwrap();
        vectors::check(VECTORS, |case| {
            let mut reader = Reader::new(case.not_before_ms.unwrap_or(gps_began));
            for line in &case.lines {
                reader.line(line.as_bytes());
            }
            reader.finish();
            (reader.take(), reader.counts())
        });
    }
}
