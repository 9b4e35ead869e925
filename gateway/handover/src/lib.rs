//! The form in which one process gives its state to the next one of the same
//! node: `docs/upgrade.md` is the specification.
//!
//! A head with the version, then one CBOR item (RFC 8949) whose maps have the fields' names as
//! keys. A reader ignores fields that it does not know, and uses defaults for fields that are
//! missing because a later version has added them; any other change needs another [`VERSION`].
//!
//! Each crate describes its state in separate types, not in those it works with. The reader checks
//! that they are consistent ([`HandoverError::Inconsistent`]): the other process may be of another
//! version, and a mistake there must not cause one here.

mod moment;

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

pub use moment::Moment;

/// The version that this program writes and reads.
pub const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"UPHANDOV";

/// The deepest nesting of values: far more than any state here has.
const MOST_NESTED: usize = 32;

/// Why a state was not handed over or taken over.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum HandoverError {
    #[error("the state could not be carried: {0}")]
    Io(#[from] io::Error),
    #[error("this is no state of a node")]
    NoState,
    #[error("the state is of version {0}, and this program reads version {VERSION}")]
    Version(u32),
    #[error("the state has more than {0} bytes")]
    TooLong(u64),
    #[error("the state is malformed: {0}")]
    Malformed(String),
    #[error("the state contradicts itself: {0}")]
    Inconsistent(&'static str),
}

/// Writes a state.
///
/// # Errors
/// When `out` fails.
pub fn write(state: &impl Serialize, mut out: impl Write) -> Result<(), HandoverError> {
    out.write_all(&MAGIC)?;
    out.write_all(&VERSION.to_be_bytes())?;
    ciborium::into_writer(state, &mut out).map_err(|error| match error {
        ciborium::ser::Error::Io(error) => HandoverError::Io(error),
        ciborium::ser::Error::Value(what) => HandoverError::Malformed(what),
    })?;
    Ok(out.flush()?)
}

/// Reads a state of at most `most_bytes`, using memory in proportion to its bytes. Nothing may
/// follow it.
///
/// # Errors
/// When it is not one, or of another version.
pub fn read<T: DeserializeOwned>(input: impl Read, most_bytes: u64) -> Result<T, HandoverError> {
    // One more byte shows whether it is too long.
    let mut input = input.take(most_bytes.saturating_add(1));
    let state = read_state(&mut input);
    if input.limit() == 0 {
        return Err(HandoverError::TooLong(most_bytes));
    }
    let state = state?;
    match input.read(&mut [0])? {
        0 => Ok(state),
        _ => Err(HandoverError::Malformed("something follows it".to_owned())),
    }
}

fn read_state<T: DeserializeOwned>(input: &mut impl Read) -> Result<T, HandoverError> {
    let (mut magic, mut version) = ([0; MAGIC.len()], [0; 4]);
    input.read_exact(&mut magic).map_err(ended)?;
    if magic != MAGIC {
        return Err(HandoverError::NoState);
    }
    input.read_exact(&mut version).map_err(ended)?;
    let version = u32::from_be_bytes(version);
    if version != VERSION {
        return Err(HandoverError::Version(version));
    }
    ciborium::de::from_reader_with_recursion_limit(input, MOST_NESTED).map_err(
        |error| match error {
            ciborium::de::Error::Io(error) => ended(error),
            ciborium::de::Error::Syntax(at) => {
                HandoverError::Malformed(format!("no CBOR at byte {at}"))
            }
            ciborium::de::Error::Semantic(_, what) => HandoverError::Malformed(what),
            ciborium::de::Error::RecursionLimitExceeded => {
                HandoverError::Malformed("it is nested too deep".to_owned())
            }
        },
    )
}

fn ended(error: io::Error) -> HandoverError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => HandoverError::Malformed("it is cut short".to_owned()),
        _ => HandoverError::Io(error),
    }
}

/// Checks that a state is consistent.
///
/// # Errors
/// [`HandoverError::Inconsistent`] with `what` unless `holds`.
pub fn ensure(holds: bool, what: &'static str) -> Result<(), HandoverError> {
    match holds {
        true => Ok(()),
        false => Err(HandoverError::Inconsistent(what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Earlier {
        pieces: Vec<Bytes>,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Later {
        pieces: Vec<Bytes>,
        #[serde(default)]
        added: u64,
    }

    fn written(state: &impl Serialize) -> Vec<u8> {
        let mut out = Vec::new();
        write(state, &mut out).unwrap();
        out
    }

    #[test]
    fn a_field_more_or_less_is_no_other_version() {
        let pieces = vec![Bytes::from(vec![7; 100_000]), Bytes::new()];
        let earlier = Earlier { pieces };
        let later: Later = read(&*written(&earlier), 1 << 20).unwrap();
        assert_eq!((&later.pieces, later.added), (&earlier.pieces, 0));
        let again: Earlier = read(&*written(&Later { added: 9, ..later }), 1 << 20).unwrap();
        assert_eq!(again, earlier);
    }

    #[test]
    fn bytes_are_not_written_one_by_one() {
        let pieces = vec![Bytes::from(vec![0xff; 100_000])];
        assert!(written(&Earlier { pieces }).len() < 100_100);
    }

    #[test]
    fn what_is_cut_long_or_foreign_is_refused() {
        let pieces = vec![Bytes::from_static(b"abc")];
        let whole = written(&Earlier { pieces });
        let refused = |state: &[u8], most| read::<Earlier>(state, most).unwrap_err();
        let most = whole.len() as u64;
        assert!(read::<Earlier>(&*whole, most).is_ok());
        for cut in 0..whole.len() {
            let error = refused(&whole[..cut], most);
            assert!(matches!(error, HandoverError::Malformed(_)), "{error}");
        }
        let error = refused(&whole, most - 1);
        assert!(matches!(error, HandoverError::TooLong(_)), "{error}");
        let longer = [&*whole, b"x"].concat();
        let error = refused(&longer, most + 9);
        assert!(matches!(error, HandoverError::Malformed(_)), "{error}");
        let mut other = whole.clone();
        other[11] = 2;
        assert!(matches!(refused(&other, most), HandoverError::Version(2)));
        other[0] = 0;
        assert!(matches!(refused(&other, most), HandoverError::NoState));
    }

    #[test]
    fn a_length_that_is_not_there_takes_no_memory() {
        // A map with one entry: "pieces", then an array, or a byte string in one, that
        // announces 2^60 entries.
        let head = [&MAGIC[..], &VERSION.to_be_bytes(), b"\xa1\x66pieces"].concat();
        for lie in [&b"\x9b"[..], b"\x81\x5b"] {
            let bytes = [&*head, lie, &(1u64 << 60).to_be_bytes(), b"\x41x"].concat();
            let error = read::<Earlier>(&*bytes, 1 << 20).unwrap_err();
            assert!(matches!(error, HandoverError::Malformed(_)), "{error}");
        }
    }
}
