//! Variable-length integers of RFC 9000, section 16.

/// The largest number a varint holds.
pub const VARINT_MAX: u64 = (1 << 62) - 1;

/// Bytes that `value` takes.
pub(crate) fn size(value: u64) -> usize {
    match value {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0x3fff_ffff => 4,
        _ => 8,
    }
}

/// Appends `value`, which is at most [`VARINT_MAX`].
pub(crate) fn put(out: &mut impl Extend<u8>, value: u64) {
    debug_assert!(value <= VARINT_MAX);
    match size(value) {
        1 => out.extend([value as u8]),
        2 => out.extend((value as u16 | 0x4000).to_be_bytes()),
        4 => out.extend((value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend((value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// Takes a varint off the front of `input`; `None` if it is cut short.
/// Longer forms than needed are accepted, as RFC 9000 does.
pub(crate) fn take(input: &mut &[u8]) -> Option<u64> {
    let first = *input.first()?;
    let length = 1 << (first >> 6);
    let (bytes, rest) = input.split_at_checked(length)?;
    *input = rest;
    Some(
        bytes[1..]
            .iter()
            .fold(u64::from(first & 0x3f), |value, byte| {
                value << 8 | u64::from(*byte)
            }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_rfc_9000_decode() {
        for (bytes, value) in [
            (&[0x25][..], 37),
            (&[0x40, 0x25], 37),
            (&[0x7b, 0xbd], 15_293),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (
                &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c],
                151_288_809_941_952_652,
            ),
        ] {
            assert_eq!(take(&mut &bytes[..]), Some(value));
        }
    }

    #[test]
    fn limits_of_each_length_round_trip_in_the_shortest_form() {
        for (value, length) in [
            (0, 1),
            (63, 1),
            (64, 2),
            (16_383, 2),
            (16_384, 4),
            ((1 << 30) - 1, 4),
            (1 << 30, 8),
            (VARINT_MAX, 8),
        ] {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            assert_eq!((bytes.len(), size(value)), (length, length));
            assert_eq!(take(&mut &bytes[..]), Some(value));
            assert_eq!(take(&mut &bytes[..length - 1]), None);
        }
    }
}
