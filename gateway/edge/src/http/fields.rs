//! Header fields that end at a proxy (RFC 9110 §7.6), and those it adds.

use hyper::body::Frame;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE, VIA,
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
/// This proxy's name in Via. It does not reveal the host's name to clients.
const PSEUDONYM: &str = "underpass";

/// The fields of a message that concern only the hop that it came over.
pub(super) struct Hop {
    /// The protocol that it wants to switch to, or has switched to.
    pub upgrade: Option<HeaderValue>,
    /// Whether its sender takes the trailers of the response (RFC 9110
    /// §10.1.4).
    pub takes_trailers: bool,
    /// Fields that its Connection names.
    named: Vec<HeaderName>,
}

impl Hop {
    /// Removes from the trailers of the message's body what concerns only
    /// this hop.
    pub fn strip_trailers<D>(&self, mut frame: Frame<D>) -> Frame<D> {
        if let Some(trailers) = frame.trailers_mut() {
            remove(trailers, &self.named);
        }
        frame
    }
}

/// Removes what concerns only the hop that the message came over.
pub(super) fn strip(headers: &mut HeaderMap) -> Hop {
    let named: Vec<HeaderName> = tokens(headers, &CONNECTION)
        .filter_map(|name| name.parse().ok())
        .collect();
    let upgrade = headers.get(UPGRADE).filter(|_| named.contains(&UPGRADE));
    let hop = Hop {
        upgrade: upgrade.cloned(),
        takes_trailers: tokens(headers, &TE).any(|coding| coding.eq_ignore_ascii_case("trailers")),
        named,
    };
    // Once the transfer coding is removed, this length would apply, and it is not the body's (RFC
    // 9112 §6.3).
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
    } else {
        unite_lengths(headers);
    }
    remove(headers, &hop.named);
    hop
}

/// Leaves one Content-Length of several equal ones, as a recipient must that accepts them (RFC 9110
/// §8.6). hyper has refused a message whose body has different or invalid lengths; those of a
/// message without a body, such as a response to HEAD, say nothing and are removed.
fn unite_lengths(headers: &mut HeaderMap) {
    if !headers.contains_key(CONTENT_LENGTH) {
        return;
    }
    match length(headers) {
        Some(length) => headers.insert(CONTENT_LENGTH, HeaderValue::from(length)),
        None => headers.remove(CONTENT_LENGTH),
    };
}

/// The length in octets, if all values of Content-Length give the same.
fn length(headers: &HeaderMap) -> Option<u64> {
    let values = headers.get_all(CONTENT_LENGTH).iter();
    let mut lengths = values
        .flat_map(|value| value.to_str().unwrap_or_default().split(','))
        .map(number);
    let first = lengths.next()??;
    lengths.all(|other| other == Some(first)).then_some(first)
}

/// A number in decimal digits alone.
fn number(text: &str) -> Option<u64> {
    let digits = text.trim();
    let is_plain = digits.bytes().all(|octet| octet.is_ascii_digit());
    digits.parse().ok().filter(|_| is_plain)
}

fn remove(fields: &mut HeaderMap, named: &[HeaderName]) {
    for name in named.iter().chain(&HOP_BY_HOP) {
        fields.remove(name);
    }
}

/// The elements of a field that is a list (RFC 9110 §5.6.1).
fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

/// Asks the origin for trailers, as the client has (RFC 9110 §10.1.4).
pub(super) fn ask_for_trailers(headers: &mut HeaderMap) {
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.append(CONNECTION, HeaderValue::from_static("TE"));
}

/// Whether a switch to `taken` is one that `asked` asks for (RFC 9110 §7.8):
/// nobody switches to a protocol that was not named.
pub(super) fn is_asked_for(asked: Option<&HeaderValue>, taken: Option<&HeaderValue>) -> bool {
    let list = |value: Option<&HeaderValue>| -> Option<Vec<String>> {
        let protocols = value?.to_str().ok()?.split(',');
        Some(protocols.map(|p| p.trim().to_ascii_lowercase()).collect())
    };
    let (Some(asked), Some(taken)) = (list(asked), list(taken)) else {
        return false;
    };
    taken.iter().all(|protocol| asked.contains(protocol))
}

/// Asks for, or confirms, a switch to `protocol`.
pub(super) fn set_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.append(CONNECTION, HeaderValue::from_static("upgrade"));
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
        let hop = strip(&mut headers);
        assert_eq!(hop.upgrade, None);
        assert!(hop.takes_trailers);
        assert_eq!(headers.len(), 1);
        assert!(headers.contains_key("accept"));
    }

    #[test]
    fn a_length_beside_a_transfer_coding_ends_here_with_it() {
        let mut both = headers(&[("transfer-encoding", "chunked"), ("content-length", "2")]);
        strip(&mut both);
        assert!(both.is_empty(), "{both:?}");
        let mut alone = headers(&[("content-length", "2")]);
        strip(&mut alone);
        assert_eq!(alone["content-length"], "2");
    }

    #[test]
    fn equal_lengths_become_one_and_others_none() {
        let left = |fields: &[(&'static str, &'static str)]| {
            let mut headers = headers(fields);
            strip(&mut headers);
            let left = headers.get_all(CONTENT_LENGTH).iter();
            left.map(|value| value.to_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        let name = "content-length";
        assert_eq!(left(&[(name, "5, 5")]), ["5"]);
        assert_eq!(left(&[(name, "5"), (name, "5,05")]), ["5"]);
        for wrong in ["5, 6", "5,", "+5", "", "99999999999999999999"] {
            assert!(left(&[(name, wrong)]).is_empty(), "{wrong}");
        }
        assert!(left(&[(name, "5"), (name, "6")]).is_empty());
    }

    #[test]
    fn an_upgrade_is_one_only_where_connection_names_it() {
        let mut with = headers(&[("connection", "Upgrade"), ("upgrade", "websocket")]);
        assert_eq!(strip(&mut with).upgrade.unwrap(), "websocket");
        assert!(with.is_empty());
    }

    #[test]
    fn trailers_lose_what_the_message_names_for_its_hop() {
        let mut message = headers(&[("connection", "x-hop"), ("te", "gzip, Trailers")]);
        let hop = strip(&mut message);
        let frame: Frame<()> = Frame::trailers(headers(&[
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("x-sum", "7"),
        ]));
        let left = hop.strip_trailers(frame).into_trailers().unwrap();
        assert_eq!(left, headers(&[("x-sum", "7")]));
        ask_for_trailers(&mut message);
        set_upgrade(&mut message, HeaderValue::from_static("h2c"));
        let hop = strip(&mut message);
        assert!(hop.takes_trailers && hop.upgrade.unwrap() == "h2c" && message.is_empty());
    }

    #[test]
    fn only_a_switch_to_a_protocol_that_was_named_is_asked_for() {
        let value = |text| Some(HeaderValue::from_static(text));
        let asked = |asked: Option<HeaderValue>, taken: Option<HeaderValue>| {
            is_asked_for(asked.as_ref(), taken.as_ref())
        };
        assert!(asked(value("h2c, WebSocket"), value("websocket")));
        assert!(!asked(value("websocket"), value("h2c")));
        assert!(!asked(value("websocket"), None));
        assert!(!asked(None, value("websocket")));
        assert!(!asked(None, None));
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
