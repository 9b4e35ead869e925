//! One line: dollar sign, talker, type, fields, checksum.

use thiserror::Error;

/// The standard allows 82 characters; receivers that say more stay well below
/// this.
pub const MAX_SENTENCE: usize = 256;

/// Why a line is no sound sentence, or a sound one makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SentenceError {
    /// No dollar sign, or too long.
    #[error("no sentence")]
    None,
    /// Something between the dollar sign and the checksum is not as it should.
    #[error("not of the form $ttsss,…*hh")]
    Form,
    /// It has none, so its bytes cannot be trusted.
    #[error("without checksum")]
    Unsummed,
    /// It has another.
    #[error("checksum {given:02X} instead of {right:02X}")]
    Checksum {
        /// As the sentence has it.
        given: u8,
        /// As its bytes make it.
        right: u8,
    },
    /// A field is not what it stands for.
    #[error("no {what}: {text:?}")]
    Field {
        /// What it stands for.
        what: &'static str,
        /// The field.
        text: String,
    },
}

/// A sentence whose checksum is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sentence<'a> {
    /// Who speaks: P for a maker's own sentence, two letters otherwise.
    pub talker: &'a str,
    /// What it says.
    pub kind: &'a str,
    body: &'a str,
}

impl<'a> Sentence<'a> {
    /// Reads a line. Anything before its last dollar sign is passed over: a
    /// log's own time, or what a break left of an earlier sentence. So is what
    /// a log has behind the checksum, after a comma or a space.
    ///
    /// # Errors
    /// When there is no sound sentence in it.
    pub fn parse(line: &'a [u8]) -> Result<Sentence<'a>, SentenceError> {
        let head = &line[..line.len().min(MAX_SENTENCE)];
        let start = head.iter().rposition(|byte| *byte == b'$');
        let text = line[start.ok_or(SentenceError::None)?..].trim_ascii_end();
        if text.len() > MAX_SENTENCE {
            return Err(SentenceError::None);
        }
        let text = std::str::from_utf8(&text[1..]).map_err(|_| SentenceError::Form)?;
        let (inside, sum) = match text.split_once('*') {
            Some((inside, sum)) => (inside, Some(sum)),
            None => (text, None),
        };
        let (address, body) = inside.split_once(',').ok_or(SentenceError::Form)?;
        let (talker, kind) = split_address(address).ok_or(SentenceError::Form)?;
        let given = match sum {
            None => return Err(SentenceError::Unsummed),
            Some(sum) => {
                let end = sum.find([',', ' ', '\t']).unwrap_or(sum.len());
                hexadecimal(&sum[..end]).ok_or(SentenceError::Form)?
            }
        };
        let right = inside.bytes().fold(0, |sum, byte| sum ^ byte);
        match given == right {
            true => Ok(Sentence { talker, kind, body }),
            false => Err(SentenceError::Checksum { given, right }),
        }
    }

    /// A field, counted from 0 after the type; empty where the sentence ends
    /// before it.
    pub fn field(&self, number: usize) -> &'a str {
        self.body.split(',').nth(number).unwrap_or_default()
    }
}

/// Talker and type. A maker's own sentence has P and then the maker's name.
fn split_address(address: &str) -> Option<(&str, &str)> {
    let named = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    if !address.bytes().all(named) {
        return None;
    }
    let is_kind = |kind: &str| (3..=9).contains(&kind.len());
    if let Some(kind) = address.strip_prefix('P').filter(|kind| is_kind(kind)) {
        return Some(("P", kind));
    }
    let (talker, kind) = address.split_at_checked(2)?;
    let letters = talker.bytes().all(|byte| byte.is_ascii_uppercase());
    (letters && is_kind(kind)).then_some((talker, kind))
}

fn hexadecimal(sum: &str) -> Option<u8> {
    let digits = sum.len() == 2 && sum.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| u8::from_str_radix(sum, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_sentence_is_read() {
        let line = b"$GPRMC,112228.037,A,4719.9584,N,00749.2468,E,0.00,,030410,,,A*71\r\n";
        let read = Sentence::parse(line).unwrap();
        assert_eq!((read.talker, read.kind), ("GP", "RMC"));
        assert_eq!(read.field(0), "112228.037");
        assert_eq!(read.field(11), "A");
        assert_eq!(read.field(12), "");
    }

    #[test]
    fn what_is_no_sentence_is_told_why() {
        let told = |line: &str| Sentence::parse(line.as_bytes()).unwrap_err();
        assert_eq!(told("GPRMC,1*00"), SentenceError::None);
        assert_eq!(told("$GPRMC"), SentenceError::Form);
        assert_eq!(told("$gprmc,1*00"), SentenceError::Form);
        assert_eq!(told("$GPRMC,1*0g"), SentenceError::Form);
        assert_eq!(told("$GPRMC,1*00*00"), SentenceError::Form);
        assert_eq!(told("$GPRMC,1"), SentenceError::Unsummed);
        let wrong = told("$GPRMC,1*00").to_string();
        assert!(wrong.starts_with("checksum 00 instead of"), "{wrong}");
    }

    #[test]
    fn a_makers_own_sentence_has_one_letter_for_its_talker() {
        let read = Sentence::parse(b"$PSRF151,3,1577,55936,0x3D92CBF7*6D").unwrap();
        assert_eq!((read.talker, read.kind), ("P", "SRF151"));
    }
}
