//! The parts of a stored bundle that do not change from hop to hop.

/// A bundle's primary block, its payload block up to the payload, and what
/// follows the payload, as they are sent: copied into one allocation. So a
/// stored bundle keeps nothing of the received one in memory, and thousands
/// that wait in a blockage cost little.
#[derive(Clone, Debug)]
pub(crate) struct FixedParts {
    bytes: Box<[u8]>,
    payload_head_at: u32,
    trailer_at: u32,
}

impl FixedParts {
    pub fn new(primary: &[u8], payload_head: &[u8], trailer: &[u8]) -> FixedParts {
        // Headers are bounded far below.
        let at = |at: usize| u32::try_from(at).expect("a header of less than 4 GiB");
        let trailer_at = primary.len() + payload_head.len();
        FixedParts {
            bytes: [primary, payload_head, trailer].concat().into(),
            payload_head_at: at(primary.len()),
            trailer_at: at(trailer_at),
        }
    }

    pub fn primary(&self) -> &[u8] {
        &self.bytes[..self.payload_head_at as usize]
    }

    pub fn payload_head(&self) -> &[u8] {
        &self.bytes[self.payload_head_at as usize..self.trailer_at as usize]
    }

    pub fn trailer(&self) -> &[u8] {
        &self.bytes[self.trailer_at as usize..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_what_they_were_made_of() {
        for [primary, head, trailer] in [["primary", "head", "end"], ["", "", ""], ["p", "", "e"]] {
            let parts = FixedParts::new(primary.as_bytes(), head.as_bytes(), trailer.as_bytes());
            assert_eq!(parts.primary(), primary.as_bytes());
            assert_eq!(parts.payload_head(), head.as_bytes());
            assert_eq!(parts.trailer(), trailer.as_bytes());
        }
    }
}
