//! Ranges of a stored response (RFC 9110 §14).

use hyper::header::{ETAG, HeaderMap, IF_RANGE, LAST_MODIFIED, RANGE};

/// What of a body is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All of it.
    Whole,
    /// From the first to the last octet, inclusive.
    Range(u64, u64),
    /// Nothing that there is.
    Unsatisfiable,
}

/// The part that the request wants of a body of `length` octets. A request for several ranges gets
/// the whole body: no server has to support them (RFC 9110 §14.2).
pub(super) fn wanted(request: &HeaderMap, stored: &HeaderMap, length: u64) -> Wanted {
    let Some(value) = request.get(RANGE).and_then(|value| value.to_str().ok()) else {
        return Wanted::Whole;
    };
    if !is_current(request, stored) {
        return Wanted::Whole;
    }
    let Some((unit, set)) = value.split_once('=') else {
        return Wanted::Whole;
    };
    if !unit.trim().eq_ignore_ascii_case("bytes") || set.contains(',') {
        return Wanted::Whole;
    }
    let Some((first, last)) = set.trim().split_once('-') else {
        return Wanted::Whole;
    };
    match (number(first), number(last), first.is_empty()) {
        (None, Some(0), true) => Wanted::Unsatisfiable,
        (None, Some(suffix), true) if length > 0 => {
            Wanted::Range(length.saturating_sub(suffix), length - 1)
        }
        (None, Some(_), true) => Wanted::Unsatisfiable,
        (Some(first), Some(last), _) if last < first => Wanted::Whole,
        (Some(first), _, _) if first >= length => Wanted::Unsatisfiable,
        (Some(first), Some(last), _) => Wanted::Range(first, last.min(length - 1)),
        (Some(first), None, _) if last.is_empty() => Wanted::Range(first, length - 1),
        _ => Wanted::Whole,
    }
}

fn number(digits: &str) -> Option<u64> {
    let all = !digits.is_empty() && digits.bytes().all(|octet| octet.is_ascii_digit());
    // A number beyond all lengths has the effect of the largest one.
    all.then(|| digits.parse().unwrap_or(u64::MAX))
}

/// Whether If-Range, if present, matches the stored response (RFC 9110 §13.1.5).
fn is_current(request: &HeaderMap, stored: &HeaderMap) -> bool {
    let Some(validator) = request.get(IF_RANGE) else {
        return true;
    };
    let weak = validator.as_bytes().starts_with(b"W/");
    !weak && (stored.get(ETAG) == Some(validator) || stored.get(LAST_MODIFIED) == Some(validator))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &'static str, length: u64) -> Wanted {
        let mut request = HeaderMap::new();
        request.insert(RANGE, value.parse().unwrap());
        wanted(&request, &HeaderMap::new(), length)
    }

    #[test]
    fn ranges_are_read_as_rfc_9110_has_them() {
        assert_eq!(of("bytes=0-499", 10_000), Wanted::Range(0, 499));
        assert_eq!(of("bytes=9500-", 10_000), Wanted::Range(9500, 9999));
        assert_eq!(of("bytes=-500", 10_000), Wanted::Range(9500, 9999));
        assert_eq!(of("bytes=-20000", 10_000), Wanted::Range(0, 9999));
        assert_eq!(of("bytes=5-99999", 10), Wanted::Range(5, 9));
        for impossible in ["bytes=10-", "bytes=10-20", "bytes=-0"] {
            assert_eq!(of(impossible, 10), Wanted::Unsatisfiable, "{impossible}");
        }
        assert_eq!(of("bytes=-1", 0), Wanted::Unsatisfiable);
        for ignored in [
            "bytes=5-4",
            "lines=1-2",
            "bytes=0-1,3-4",
            "bytes=x-",
            "bytes=-",
        ] {
            assert_eq!(of(ignored, 10), Wanted::Whole, "{ignored}");
        }
    }

    #[test]
    fn a_range_of_something_else_is_the_whole() {
        let mut request = HeaderMap::new();
        request.insert(RANGE, "bytes=0-1".parse().unwrap());
        request.insert(IF_RANGE, "\"a\"".parse().unwrap());
        let mut stored = HeaderMap::new();
        assert_eq!(wanted(&request, &stored, 9), Wanted::Whole);
        stored.insert(ETAG, "\"a\"".parse().unwrap());
        assert_eq!(wanted(&request, &stored, 9), Wanted::Range(0, 1));
    }
}
