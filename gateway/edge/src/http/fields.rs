//! Header fields that end at a proxy (RFC 9110 §7.6), and those it adds.

use hyper::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRANSFER_ENCODING, UPGRADE, VIA,
};
use hyper::{Method, Version};

/// Fields for one hop beside those that Connection names (RFC 9110 §7.6.1).
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];
const MAX_FORWARDS: HeaderName = HeaderName::from_static("max-forwards");
/// This proxy's name in Via; without the host, which is no client's business.
const PSEUDONYM: &str = "underpass";

/// Removes what concerns only the hop that the message came over. Gives the
/// protocol that the message wants to switch to, if it does.
pub(super) fn strip(headers: &mut HeaderMap) -> Option<HeaderValue> {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let upgrade = if named.contains(&UPGRADE) {
        headers.get(UPGRADE).cloned()
    } else {
        None
    };
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    upgrade
}

/// Asks for, or confirms, a switch to `protocol`.
pub(super) fn set_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// Adds this hop to Via (RFC 9110 §7.6.3). `version` is the one the message
/// came in.
pub(super) fn add_via(headers: &mut HeaderMap, version: Version) {
    let number = if version == Version::HTTP_10 {
        "1.0"
    } else {
        "1.1"
    };
    if let Ok(value) = HeaderValue::from_str(&format!("{number} {PSEUDONYM}")) {
        headers.append(VIA, value);
    }
}

/// Whether the body is in a transfer coding other than chunked, which this
/// proxy could not pass on as what it is (RFC 9112 §6.1).
pub(super) fn has_foreign_coding(headers: &HeaderMap) -> bool {
    let codings = headers.get_all(TRANSFER_ENCODING).iter();
    codings
        .flat_map(|value| value.as_bytes().split(|octet| *octet == b','))
        .any(|coding| !coding.trim_ascii().eq_ignore_ascii_case(b"chunked"))
}

/// Counts Max-Forwards down (RFC 9110 §7.6.2); `false` when this proxy is
/// where the request ends.
pub(super) fn may_forward(method: &Method, headers: &mut HeaderMap) -> bool {
    if *method != Method::TRACE && *method != Method::OPTIONS {
        return true;
    }
    let left = headers.get(MAX_FORWARDS);
    let left: Option<u64> = left.and_then(|value| value.to_str().ok()?.trim().parse().ok());
    match left {
        None => true,
        Some(0) => false,
        Some(left) => {
            headers.insert(MAX_FORWARDS, HeaderValue::from(left - 1));
            true
        }
    }
}

/// Fuzz entry: header fields from any bytes, "name:value" by line, are
/// stripped of everything that concerns one hop.
pub fn fuzz(data: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in data.split(|octet| *octet == b'\n').take(100) {
        let Some(colon) = line.iter().position(|octet| *octet == b':') else {
            continue;
        };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(&line[colon + 1..]);
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    let _ = has_foreign_coding(&headers);
    let _ = may_forward(&Method::TRACE, &mut headers);
    strip(&mut headers);
    assert!(HOP_BY_HOP.iter().all(|name| !headers.contains_key(name)));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn fields_of_the_hop_end_here_and_others_pass() {
        let mut headers = headers(&[
            ("connection", "keep-alive, X-Hop"),
            ("connection", "x-other"),
            ("x-hop", "1"),
            ("x-other", "2"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "Basic x"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("accept", "*/*"),
        ]);
        assert_eq!(strip(&mut headers), None);
        assert_eq!(headers.len(), 1);
        assert!(headers.contains_key("accept"));
    }

    #[test]
    fn an_upgrade_is_one_only_where_connection_names_it() {
        let mut with = headers(&[("connection", "Upgrade"), ("upgrade", "websocket")]);
        assert_eq!(strip(&mut with).unwrap(), "websocket");
        assert!(with.is_empty());
    }

    #[test]
    fn codings_that_would_be_lost_are_found() {
        assert!(has_foreign_coding(&headers(&[(
            "transfer-encoding",
            "gzip, chunked"
        )])));
        assert!(!has_foreign_coding(&headers(&[(
            "transfer-encoding",
            "Chunked"
        )])));
        assert!(!has_foreign_coding(&HeaderMap::new()));
    }

    #[test]
    fn max_forwards_counts_down_for_trace_and_options_only() {
        let mut last = headers(&[("max-forwards", "0")]);
        assert!(!may_forward(&Method::OPTIONS, &mut last));
        assert!(may_forward(&Method::GET, &mut last));
        let mut more = headers(&[("max-forwards", "3")]);
        assert!(may_forward(&Method::TRACE, &mut more));
        assert_eq!(more["max-forwards"], "2");
    }

    #[test]
    fn via_grows_by_this_hop() {
        let mut headers = headers(&[("via", "1.0 fred")]);
        add_via(&mut headers, Version::HTTP_11);
        let all: Vec<_> = headers.get_all(VIA).iter().collect();
        assert_eq!(all, ["1.0 fred", "1.1 underpass"]);
    }

    proptest! {
        #[test]
        fn no_field_of_the_hop_survives(data in "(([a-zA-Z-]{1,12}|connection|te|upgrade):[ -~]{0,20}\n){0,20}") {
            fuzz(data.as_bytes());
        }
    }
}
