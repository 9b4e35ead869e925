//! A line of the access log.

use std::fmt::{self, Write as _};

use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use underpass_edge::Ended;

use crate::config::AccessFormat;

/// As in the Common Log Format, always UTC.
const DATE: &[BorrowedFormatItem<'_>] =
    format_description!("[day]/[month repr:short]/[year]:[hour]:[minute]:[second] +0000");
/// Most bytes of a target that are written, since clients choose it.
const MOST_OF_TARGET: usize = 2_048;

/// As one JSON object. Times are in seconds.
#[derive(Serialize)]
struct Object<'a> {
    time: f64,
    listener: &'a str,
    client: std::net::SocketAddr,
    method: &'a str,
    target: &'a str,
    protocol: &'a str,
    status: u16,
    to_peer_bytes: u64,
    from_peer_bytes: u64,
    seconds: f64,
    answered_seconds: Option<f64>,
    failure: Option<String>,
    cut: bool,
}

/// The line of what has ended at `now`, with its line feed.
pub fn of(format: AccessFormat, ended: &Ended<'_>, now: OffsetDateTime) -> String {
    let target = shortened(ended.target);
    let mut line = match format {
        AccessFormat::Common => common(ended, target, now),
        AccessFormat::Json => {
            let object = Object {
                time: now.unix_timestamp_nanos() as f64 / 1e9,
                listener: ended.listener,
                client: ended.client,
                method: ended.method,
                target,
                protocol: ended.protocol,
                status: ended.status,
                to_peer_bytes: ended.to_peer_bytes,
                from_peer_bytes: ended.from_peer_bytes,
                seconds: ended.took.as_secs_f64(),
                answered_seconds: ended.answered.map(|answered| answered.as_secs_f64()),
                failure: ended.failure.map(ToString::to_string),
                cut: ended.cut,
            };
            serde_json::to_string(&object).unwrap_or_default()
        }
    };
    line.push('\n');
    line
}

/// `host ident authuser [date] "request" status bytes`.
fn common(ended: &Ended<'_>, target: &str, now: OffsetDateTime) -> String {
    let date = now.format(DATE).unwrap_or_default();
    let client = ended.client.ip().to_canonical();
    format!(
        "{client} - - [{date}] \"{} {} {}\" {} {}",
        Quoted(ended.method),
        Quoted(target),
        ended.protocol,
        ended.status,
        ended.from_peer_bytes
    )
}

/// A part of what stands in quotes: nothing in it ends them or the line.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.bytes() {
            match byte {
                b'"' | b'\\' => write!(f, "\\{}", byte as char)?,
                b'!'..=b'~' => f.write_char(byte as char)?,
                other => write!(f, "\\x{other:02x}")?,
            }
        }
        Ok(())
    }
}

fn shortened(text: &str) -> &str {
    let mut end = text.len().min(MOST_OF_TARGET);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use underpass_edge::stream::{Failure, FailureCode};

    use super::*;

    const ENDED: Ended<'static> = Ended {
        listener: "proxy",
        client: std::net::SocketAddr::new(
            std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 168, 8, 20)),
            50_000,
        ),
        method: "GET",
        target: "http://example.org:80/index.html",
        protocol: "HTTP/1.1",
        status: 200,
        to_peer_bytes: 12,
        from_peer_bytes: 5_120,
        took: Duration::from_millis(1_250),
        answered: Some(Duration::from_millis(610)),
        failure: None,
        cut: false,
    };

    fn now() -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_795_706_581).unwrap()
    }

    #[test]
    fn the_common_format_is_what_its_readers_expect() {
        assert_eq!(
            of(AccessFormat::Common, &ENDED, now()),
            "192.168.8.20 - - [26/Nov/2026:15:23:01 +0000] \
             \"GET http://example.org:80/index.html HTTP/1.1\" 200 5120\n"
        );
    }

    #[test]
    fn json_has_all_that_is_known() {
        let failure = Failure::new(FailureCode::TimedOut, "no answer in 30 s");
        let ended = Ended {
            failure: Some(&failure),
            answered: None,
            ..ENDED
        };
        let line = of(AccessFormat::Json, &ended, now());
        let object: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(object["client"], "192.168.8.20:50000");
        assert_eq!(object["seconds"], 1.25);
        assert_eq!(object["answered_seconds"], serde_json::Value::Null);
        assert_eq!(object["failure"], "no answer in 30 s");
    }

    #[test]
    fn no_target_ends_its_quotes_or_the_line() {
        let ended = Ended {
            target: "http://a/\" 200 1\n10.0.0.1 - - \\é",
            ..ENDED
        };
        let line = of(AccessFormat::Common, &ended, now());
        assert_eq!(line.matches('\n').count(), 1);
        assert!(line.contains(r#"http://a/\"\x20200\x201\x0a10.0.0.1\x20-\x20-\x20\\\xc3\xa9 "#));
        let json = of(AccessFormat::Json, &ended, now());
        assert_eq!(json.matches('\n').count(), 1);
    }

    #[test]
    fn a_long_target_is_cut_at_a_character() {
        let target = "é".repeat(2_000);
        let ended = Ended {
            target: &target,
            ..ENDED
        };
        let object: serde_json::Value =
            serde_json::from_str(&of(AccessFormat::Json, &ended, now())).unwrap();
        assert_eq!(object["target"].as_str().unwrap().len(), MOST_OF_TARGET);
    }
}
