//! Self-delimiting numeric values (RFC 5050, 4.1): seven bits a byte, the
//! highest first, with the top bit set in all bytes but the last.

/// Most bytes of a value of 64 bits.
pub const MOST_BYTES: usize = 10;

/// Appends a value.
pub fn put(value: u64, out: &mut Vec<u8>) {
    let count = len(value);
    for index in (0..count).rev() {
        let more = if index == 0 { 0 } else { 0x80 };
        out.push(((value >> (7 * index)) & 0x7f) as u8 | more);
    }
}

/// Bytes of a value.
pub fn len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Takes a value off the front; none if it is cut short, or has more than 64
/// bits.
pub fn take(input: &mut &[u8]) -> Option<u64> {
    let mut value: u64 = 0;
    for (index, byte) in input.iter().enumerate().take(MOST_BYTES) {
        if value >> 57 != 0 {
            return None;
        }
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            *input = &input[index + 1..];
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_the_rfc() {
        // RFC 5050, 4.1.
        for (value, bytes) in [
            (0xabc, &[0x95, 0x3c][..]),
            (0x1234, &[0xa4, 0x34]),
            (0x4234, &[0x81, 0x84, 0x34]),
            (0x7f, &[0x7f]),
        ] {
            let mut out = Vec::new();
            put(value, &mut out);
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn what_is_cut_short_or_too_large_is_none() {
        assert_eq!(take(&mut &[][..]), None);
        assert_eq!(take(&mut &[0x80, 0x80][..]), None);
        assert_eq!(take(&mut &[0xff; 20][..]), None);
        let mut larger = vec![0x82];
        larger.extend([0x80; 8]);
        larger.push(0);
        assert_eq!(take(&mut &larger[..]), None, "2^64");
    }

    proptest! {
        #[test]
        fn values_come_back(value: u64, rest: Vec<u8>) {
            let mut out = Vec::new();
            put(value, &mut out);
            assert_eq!(out.len(), len(value));
            out.extend(&rest);
            let mut input = &out[..];
            assert_eq!(take(&mut input), Some(value));
            assert_eq!(input, &rest[..]);
        }
    }
}
