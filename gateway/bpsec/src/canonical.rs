//! Converts other encodings to deterministic encoding (RFC 9172 §4).

use underpass_bundle::wire::{ARRAY, BYTES, CborError, Reader, TEXT, UNSIGNED, write_head};

/// The deepest nesting of arrays; a primary block needs three, with the arrays of its
/// EIDs.
const MAX_DEPTH: usize = 4;
const NEGATIVE: u8 = 1;

/// A primary block in deterministic encoding (RFC 8949 §4.2): heads in their shortest
/// form, arrays of definite length. Its values do not change: an EID keeps its form.
///
/// # Errors
/// When it is not a single item of integers, strings and arrays.
pub fn canonical(raw: &[u8]) -> Result<Vec<u8>, CborError> {
    let mut reader = Reader::new(raw);
    let mut out = Vec::with_capacity(raw.len());
    copy(&mut reader, &mut out, MAX_DEPTH)?;
    reader.end()?;
    Ok(out)
}

fn copy(reader: &mut Reader<'_>, out: &mut Vec<u8>, depth: usize) -> Result<(), CborError> {
    let head = reader.head()?;
    match (head.major, head.argument) {
        (major @ (UNSIGNED | NEGATIVE), Some(value)) => write_head(out, major, value),
        (major @ (BYTES | TEXT), Some(length)) => {
            write_head(out, major, length);
            out.extend(reader.take(length)?);
        }
        (ARRAY, length) if depth > 0 => {
            let mut elements = Vec::new();
            let mut count = 0;
            while reader.more(length, count)? {
                copy(reader, &mut elements, depth - 1)?;
                count += 1;
            }
            write_head(out, ARRAY, count);
            out.extend(elements);
        }
        _ => return Err(CborError::UnexpectedType),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_heads_and_indefinite_arrays_become_short_and_definite() {
        let long = [
            0x9F, 0x18, 0x07, 0x9F, 0x19, 0x00, 0x05, 0xFF, 0x58, 0x01, 0xAA, 0xFF,
        ];
        let short = [0x83, 0x07, 0x81, 0x05, 0x41, 0xAA];
        assert_eq!(canonical(&long), Ok(short.to_vec()));
        assert_eq!(canonical(&short), Ok(short.to_vec()));
    }

    #[test]
    fn nesting_without_end_ends_at_once() {
        assert!(canonical(&[0x81; 100_000]).is_err());
        assert!(canonical(&[0x9B, 0xFF]).is_err());
        assert!(canonical(&[0x9B, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]).is_err());
    }
}
