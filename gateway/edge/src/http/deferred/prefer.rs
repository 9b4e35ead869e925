//! The Prefer field (RFC 7240).

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

const PREFER: HeaderName = HeaderName::from_static("prefer");

/// Removes from Prefer what this proxy applies: `respond-async`, and the `wait` that goes with it.
/// Returns whether `respond-async` was there.
pub(super) fn take_respond_async(headers: &mut HeaderMap) -> bool {
    let values: Vec<String> = headers
        .get_all(PREFER)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(preferences)
        .map(str::to_owned)
        .collect();
    if !values.iter().any(|one| name(one) == "respond-async") {
        return false;
    }
    headers.remove(PREFER);
    let others = values.iter().filter(|one| {
        let name = name(one);
        name != "respond-async" && name != "wait"
    });
    for other in others {
        if let Ok(value) = HeaderValue::from_str(other) {
            headers.append(PREFER, value);
        }
    }
    true
}

/// The preferences of a field value, cut at commas outside quotes.
fn preferences(value: &str) -> Vec<&str> {
    let mut quoted = false;
    let mut escaped = false;
    let cut = |octet: char| {
        let was_escaped = escaped;
        escaped = quoted && octet == '\\' && !was_escaped;
        if octet == '"' && !was_escaped {
            quoted = !quoted;
        }
        octet == ',' && !quoted
    };
    let all = value.split(cut).map(str::trim);
    all.filter(|one| !one.is_empty()).collect()
}

/// A preference's name, in lower case.
fn name(preference: &str) -> String {
    let end = preference.find(['=', ';']).unwrap_or(preference.len());
    preference[..end].trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(values: &[&'static str]) -> (bool, Vec<String>) {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(PREFER, HeaderValue::from_static(value));
        }
        let taken = take_respond_async(&mut headers);
        let left = headers.get_all(PREFER).iter();
        (
            taken,
            left.map(|v| v.to_str().unwrap().to_owned()).collect(),
        )
    }

    #[test]
    fn respond_async_is_found_in_every_form() {
        for value in ["respond-async", "Respond-Async", "respond-async; x=1"] {
            assert_eq!(taken(&[value]), (true, vec![]), "{value}");
        }
        let (found, left) = taken(&["return=minimal, respond-async, wait=10", "handling=lenient"]);
        assert!(found);
        assert_eq!(left, ["return=minimal", "handling=lenient"]);
    }

    #[test]
    fn what_only_looks_like_it_passes_untouched() {
        for value in [
            "foo=\"a, respond-async\"",
            "respond-asynchronously",
            "wait=5",
        ] {
            assert_eq!(taken(&[value]), (false, vec![value.to_owned()]));
        }
    }
}
