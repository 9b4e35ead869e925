//! Lines of what comes in pieces.

/// Cuts bytes into lines, and skips those that are too long.
#[derive(Debug)]
pub(crate) struct Lines {
    line: Vec<u8>,
    most: usize,
    /// The present line is too long; its rest is skipped.
    overlong: bool,
}

/// What ends where a line ends.
#[derive(Debug, PartialEq)]
pub(crate) enum Line<'a> {
    /// A line, without its end.
    Whole(&'a [u8]),
    /// One that was longer than allowed.
    Overlong,
}

impl Lines {
    /// Lines of at most `most` bytes.
    pub fn new(most: usize) -> Lines {
        Lines {
            line: Vec::new(),
            most,
            overlong: false,
        }
    }

    /// Takes bytes, and gives `each` the lines that they end. Empty ones are
    /// none, so that the two bytes of CR LF end one line.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(Line<'_>)) {
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (text, ends) = match piece {
                [text @ .., b'\n' | b'\r'] => (text, true),
                text => (text, false),
            };
            self.take(text);
            if ends {
                self.end(&mut each);
            }
        }
    }

    /// Ends the present line, where what comes next cannot belong to it.
    pub fn end(&mut self, mut each: impl FnMut(Line<'_>)) {
        if std::mem::take(&mut self.overlong) {
            each(Line::Overlong);
        } else if !self.line.is_empty() {
            each(Line::Whole(&self.line));
        }
        self.line.clear();
    }

    fn take(&mut self, text: &[u8]) {
        if self.line.len() + text.len() > self.most {
            self.overlong = true;
        }
        if self.overlong {
            self.line.clear();
        } else {
            self.line.extend_from_slice(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(lines: &mut Lines, bytes: &[u8]) -> Vec<Option<Vec<u8>>> {
        let mut seen = vec![];
        lines.push(bytes, |line| {
            seen.push(match line {
                Line::Whole(line) => Some(line.to_vec()),
                Line::Overlong => None,
            });
        });
        seen
    }

    #[test]
    fn a_line_without_end_costs_no_memory_and_hides_no_later_one() {
        let mut lines = Lines::new(100);
        for _ in 0..1_000 {
            assert!(read(&mut lines, &[b'x'; 1_000]).is_empty());
        }
        assert!(lines.line.capacity() <= 200);
        let seen = read(&mut lines, b"\nafter\r\n");
        assert_eq!(seen, [None, Some(b"after".to_vec())]);
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            bytes in prop::collection::vec(prop_oneof![4 => any::<u8>(), 1 => Just(b'\n')], 0..300),
            cuts in prop::collection::vec(0usize..300, 0..8),
        ) {
            let whole = read(&mut Lines::new(20), &bytes);
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.push(bytes.len());
            cuts.sort_unstable();
            let (mut lines, mut from, mut seen) = (Lines::new(20), 0, vec![]);
            for to in cuts {
                seen.extend(read(&mut lines, &bytes[from..to]));
                from = to;
            }
            prop_assert_eq!(seen, whole);
        }
    }
}
