//! The modem's lock, read from its messages to the antenna.

/// Longer lines are never lock messages.
const LINE_BYTES: usize = 256;

/// What a modem says of its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    pub receives: bool,
    pub transmits: bool,
}

/// Reads lines as they come, in whatever pieces.
#[derive(Debug, Default)]
pub struct LockReader {
    line: Vec<u8>,
    /// The present line is too long; its rest is skipped.
    overlong: bool,
}

impl LockReader {
    /// Takes bytes of the modem. Returns the last lock that they complete, if any.
    pub fn read(&mut self, bytes: &[u8]) -> Option<Lock> {
        let mut last = None;
        for byte in bytes {
            if *byte == b'\n' {
                let whole = !std::mem::take(&mut self.overlong);
                last = whole.then(|| parse(&self.line)).flatten().or(last);
                self.line.clear();
            } else if self.line.len() < LINE_BYTES {
                self.line.push(*byte);
            } else {
                self.overlong = true;
            }
        }
        last
    }
}

/// `L` with two numbers: 1 if the receiver is locked, 1 if the modem may transmit. Later versions
/// may append more.
fn parse(line: &[u8]) -> Option<Lock> {
    let text = std::str::from_utf8(line).ok()?;
    let mut words = text.split_ascii_whitespace();
    if words.next() != Some("L") {
        return None;
    }
    let mut flag = || match words.next() {
        Some("1") => Some(true),
        Some("0") => Some(false),
        _ => None,
    };
    Some(Lock {
        receives: flag()?,
        transmits: flag()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(receives: bool, transmits: bool) -> Option<Lock> {
        Some(Lock {
            receives,
            transmits,
        })
    }

    #[test]
    fn the_lock_is_read_from_lines_in_any_pieces() {
        let mut reader = LockReader::default();
        let said = b"S -15.0 0.0 0.0\nA 15\nL 1 0\nL 1 1\r\nK 90.0\n";
        assert_eq!(reader.read(said), lock(true, true));
        assert_eq!(reader.read(b"L 0"), None);
        assert_eq!(reader.read(b" 0\nW 3"), lock(false, false));
        assert_eq!(reader.read(b"00\n"), None);
    }

    #[test]
    fn what_is_no_lock_changes_nothing() {
        let mut reader = LockReader::default();
        for said in [
            "L\n",
            "L 1\n",
            "L 2 1\n",
            "l 1 1\n",
            "LL 1 1\n",
            "\n",
            "L one 1\n",
        ] {
            assert_eq!(reader.read(said.as_bytes()), None, "{said}");
        }
        assert_eq!(reader.read(b"L \xff 1\n"), None);
    }

    #[test]
    fn a_line_without_end_costs_no_memory_and_hides_no_later_one() {
        let mut reader = LockReader::default();
        for _ in 0..10_000 {
            assert_eq!(reader.read(&[b'x'; 1_000]), None);
        }
        assert!(reader.line.capacity() <= 4 * LINE_BYTES);
        assert_eq!(reader.read(b"\nL 0 1\n"), lock(false, true));
    }
}
