//! Targets, hosts and users from a request head.

use std::net::Ipv6Addr;

use hyper::Version;
use hyper::header::{HOST, HeaderMap, PROXY_AUTHORIZATION};
use hyper::http::uri::Authority;

use crate::stream::Target;

/// The target of an authority, with `default_port` if it names no port.
pub(super) fn target(authority: &Authority, default_port: Option<u16>) -> Result<Target, String> {
    if authority.as_str().contains('@') {
        // RFC 9110 §4.2.4: userinfo in a request target is an error.
        return Err("the target must not contain user information".into());
    }
    // No part of the authority is ignored: only a port may follow the host (RFC 3986 §3.2).
    let behind = authority.as_str().strip_prefix(authority.host());
    let port = match behind {
        Some("") => default_port.ok_or("the target names no port")?,
        Some(":") => default_port.ok_or("the target's port is empty")?,
        _ => {
            let digits = behind.and_then(|behind| behind.strip_prefix(':'));
            let plain = digits.filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
            let port = plain.and_then(|digits| digits.parse::<u16>().ok());
            port.ok_or("the target's port is no number below 65536")?
        }
    };
    Target::parse(authority.host(), port).map_err(|error| error.to_string())
}

/// What is wrong with the Host of a request, for which it must be refused (RFC 9112 §3.2). One that
/// is good need not be that of the target, and may be empty.
pub(super) fn fault_of_host(version: Version, headers: &HeaderMap) -> Option<&'static str> {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if version == Version::HTTP_10 => None,
        (None, _) => Some("a request of HTTP/1.1 must have a Host field"),
        (Some(_), Some(_)) => Some("the request has more than one Host field"),
        (Some(host), None) => {
            let is_valid = host.to_str().is_ok_and(is_host);
            (!is_valid).then_some("the request's Host field is no host with or without a port")
        }
    }
}

/// Whether `value` is `uri-host [ ":" port ]` (RFC 9110 §7.2, RFC 3986 §3.2.2).
fn is_host(value: &str) -> bool {
    let behind = match value.find(']') {
        Some(end) => end + 1,
        None => value.find(':').unwrap_or(value.len()),
    };
    let (host, port) = value.split_at(behind);
    let digits = port.strip_prefix(':').unwrap_or(port);
    let is_port = digits.bytes().all(|octet| octet.is_ascii_digit())
        && (port.is_empty() || port.starts_with(':'));
    let literal = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    is_port
        && match literal {
            Some(literal) => literal.parse::<Ipv6Addr>().is_ok(),
            None => is_registered_name(host),
        }
}

fn is_registered_name(name: &str) -> bool {
    let is_plain =
        |octet: u8| octet.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&octet);
    let is_encoded = |piece: &str| {
        let digits = piece.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    name.bytes().all(is_plain) && name.split('%').skip(1).all(is_encoded)
}

/// User and password of Basic credentials (RFC 7617).
pub(super) fn credentials(headers: &HeaderMap) -> Option<(Vec<u8>, Vec<u8>)> {
    let value = headers.get(PROXY_AUTHORIZATION)?;
    let (scheme, encoded) = value.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = decode_base64(encoded.trim().as_bytes())?;
    let colon = decoded.iter().position(|octet| *octet == b':')?;
    Some((decoded[..colon].to_vec(), decoded[colon + 1..].to_vec()))
}

/// Base64 with padding (RFC 4648 §4).
fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut decoded = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0u32);
    let digits = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"="));
    for octet in digits.unwrap_or(text) {
        let digit = ALPHABET.iter().position(|known| known == octet)?;
        bits = (bits << 6) | digit as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            decoded.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    (text.len().is_multiple_of(4) && bits == 0).then_some(decoded)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn basic_credentials_are_read_as_in_rfc_7617() {
        let read = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(PROXY_AUTHORIZATION, value.parse().unwrap());
            credentials(&headers)
        };
        let aladdin = Some((b"Aladdin".to_vec(), b"open sesame".to_vec()));
        assert_eq!(read("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), aladdin);
        assert_eq!(read("basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), aladdin);
        for wrong in [
            "Basic QWxhZGRpbjpvcGVuIHNlc2FtZR==",
            "Basic QWxhZGRpbg==",
            "Basic ?",
            "Basic",
            "Bearer QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!(credentials(&HeaderMap::new()), None);
    }

    #[test]
    fn a_host_is_a_name_or_an_address_with_or_without_a_port() {
        for valid in [
            "",
            ":",
            "example.org",
            "example.org:80",
            "a_b.example:",
            "xn--e1aybc.example",
            "a%2Db.example",
            "192.0.2.1:8080",
            "[2001:db8::1]",
            "[::ffff:192.0.2.1]:443",
        ] {
            assert!(is_host(valid), "{valid}");
        }
        for wrong in [
            "a b",
            "a/b",
            "http://a",
            "user@a",
            "a:b",
            "a:80:80",
            "a:-1",
            "a%2",
            "a%zz",
            "2001:db8::1",
            "[2001:db8::1",
            "2001:db8::1]",
            "[a.example]",
            "[::1]80",
            "x[::1]",
        ] {
            assert!(!is_host(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_request_has_one_host_and_that_of_http_1_0_may_have_none() {
        let fault = |version, hosts: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(HOST, HeaderValue::from_static(host));
            }
            fault_of_host(version, &headers)
        };
        let (old, new) = (Version::HTTP_10, Version::HTTP_11);
        assert!(fault(new, &[]).is_some_and(|fault| fault.contains("must have")));
        assert_eq!(fault(old, &[]), None);
        for version in [old, new] {
            assert_eq!(fault(version, &["a.example"]), None);
            let two = fault(version, &["a.example", "a.example"]);
            assert!(two.is_some_and(|fault| fault.contains("more than one")));
            assert!(fault(version, &["a b"]).is_some_and(|fault| fault.contains("no host")));
        }
    }

    #[test]
    fn targets_need_a_port_and_no_user() {
        let parse = |text: &str, port| target(&text.parse().unwrap(), port);
        assert_eq!(parse("[::1]:443", None).unwrap().to_string(), "[::1]:443");
        assert_eq!(
            parse("example.org", Some(80)).unwrap().to_string(),
            "example.org:80"
        );
        assert!(parse("example.org", None).is_err());
        assert!(parse("user@example.org:80", None).is_err());
    }

    #[test]
    fn a_port_that_is_none_is_no_other_port() {
        let parse = |text: &str| target(&text.parse().unwrap(), Some(80));
        for port in ["", ":", ":80", ":0080"] {
            let target = parse(&format!("example.org{port}")).unwrap();
            assert_eq!(target.to_string(), "example.org:80", "{port}");
        }
        assert_eq!(parse("[::1]").unwrap().to_string(), "[::1]:80");
        for wrong in [
            "example.org:65536",
            "example.org:https",
            "example.org:+80",
            "[::1]:70000",
            "[::1]x:80",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
