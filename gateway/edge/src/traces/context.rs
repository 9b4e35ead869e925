//! The name of a span among all traces (W3C Trace Context, §3.2).

use std::fmt;

/// A trace that is sampled, and a span of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// The trace; not all zero.
    pub trace_id: [u8; 16],
    /// The span; not all zero.
    pub span_id: [u8; 8],
}

impl TraceContext {
    /// What a `traceparent` header says: the caller's span, and whether the caller samples the
    /// trace. `None` unless the header is of version 00, or of a later version with the same
    /// beginning (§4.3).
    pub fn of_header(text: &str) -> Option<(TraceContext, bool)> {
        let bytes = text.as_bytes();
        let version = hex::<1>(bytes.get(..2)?)?[0];
        let later = match bytes.len() {
            55 => true,
            // A later version may have more fields after the known ones.
            56.. => version != 0 && bytes[55] == b'-',
            _ => false,
        };
        let dashes = [2, 35, 52].iter().all(|at| bytes.get(*at) == Some(&b'-'));
        if version == 0xff || !later || !dashes {
            return None;
        }
        let context = TraceContext {
            trace_id: hex(&bytes[3..35])?,
            span_id: hex(&bytes[36..52])?,
        };
        let flags = hex::<1>(&bytes[53..55])?[0];
        context.is_named().then_some((context, flags & 1 != 0))
    }

    fn is_named(&self) -> bool {
        self.trace_id != [0; 16] && self.span_id != [0; 8]
    }
}

/// The `traceparent` header of a sampled span.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("00-")?;
        self.trace_id
            .iter()
            .try_for_each(|b| write!(f, "{b:02x}"))?;
        f.write_str("-")?;
        self.span_id.iter().try_for_each(|b| write!(f, "{b:02x}"))?;
        f.write_str("-01")
    }
}

/// Bytes from lower-case hexadecimal digits, as the header has them.
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_header_names_trace_span_and_whether_it_is_sampled() {
        let (context, sampled) = TraceContext::of_header(HEADER).unwrap();
        assert!(sampled);
        assert_eq!(context.to_string(), HEADER);
        let unsampled = HEADER.replace("-01", "-00");
        assert_eq!(TraceContext::of_header(&unsampled), Some((context, false)));
        // A later version may have more fields.
        let later = format!("cc{}-what-else", &HEADER[2..]);
        assert_eq!(TraceContext::of_header(&later), Some((context, true)));
    }

    #[test]
    fn what_is_no_header_names_nothing() {
        for wrong in [
            "",
            "00",
            &HEADER[..54],
            &format!("{HEADER}-more"),
            &format!("ff{}", &HEADER[2..]),
            &format!("cc{}.more", &HEADER[2..]),
            &HEADER.replace('f', "F"),
            &HEADER.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &HEADER.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &HEADER.replace("-01", "_01"),
            &HEADER.replace("-01", "-0x"),
        ] {
            assert_eq!(TraceContext::of_header(wrong), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_judged(text in "\\PC{0,80}") {
            TraceContext::of_header(&text);
        }

        #[test]
        fn any_context_comes_back_from_its_header(trace_id: [u8; 16], span_id: [u8; 8]) {
            let context = TraceContext { trace_id, span_id };
            let read = TraceContext::of_header(&context.to_string());
            prop_assert_eq!(read, context.is_named().then_some((context, true)));
        }
    }
}
