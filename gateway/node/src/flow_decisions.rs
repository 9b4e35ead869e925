//! `underpass decisions`: follows the decisions of a running node about flows.

use std::fmt::Write;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::api::{ComparedView, DecisionView, FlowView, counted};
use crate::cli::DecisionsCommand;
use crate::client::{self, ClientError};

/// Prints each decision about the selected flows.
///
/// # Errors
/// When no node answers, or it refuses.
pub fn execute(command: &DecisionsCommand) -> Result<(), ClientError> {
    let mut path = format!("/v1/decisions?for_s={}", command.r#for);
    let filters = [
        ("client", &command.client),
        ("destination", &command.destination),
        ("rule", &command.rule),
    ];
    for (key, value) in filters {
        if let Some(value) = value {
            path += &format!("&{key}={}", encoded(value));
        }
    }
    client::follow(&command.socket, &path, |line| {
        if line.is_empty() {
            return Ok(());
        }
        if command.json {
            return client::print(&format!("{}\n", String::from_utf8_lossy(line)));
        }
        client::print(&shown(&serde_json::from_slice(line)?))
    })
}

/// A value of a query (RFC 3986 § 2.1): all but its unreserved characters encoded.
fn encoded(text: &str) -> String {
    let mut value = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                value.push(byte.into());
            }
            _ => value += &format!("%{byte:02X}"),
        }
    }
    value
}

fn shown(decision: &DecisionView) -> String {
    match decision {
        DecisionView::Flow(flow) => flow_shown(flow),
        DecisionView::Path(news) => {
            let moved = news.class.as_ref().zip(news.to.as_ref());
            let moved = moved.map_or(String::new(), |(class, to)| {
                format!(": {class} goes by {to} from now on")
            });
            let (time, missed) = (time_of(news.at), missed(news.missed));
            let (path, change, reason) = (&news.path, &news.change, &news.reason);
            format!("{missed}{time} {path} {change} ({reason}){moved}\n")
        }
    }
}

fn flow_shown(flow: &FlowView) -> String {
    let or_none = |text: &Option<String>| text.clone().unwrap_or("-".to_owned());
    let mut text = missed(flow.missed);
    let size = match (flow.size_bytes, &flow.size_from) {
        (Some(bytes), Some(from)) => format!(", {bytes} bytes ({from})"),
        _ => String::new(),
    };
    let by_rule = flow
        .rule
        .as_ref()
        .map_or(String::new(), |rule| format!(" by rule {rule:?}"));
    let by_path = match (&flow.chosen, &flow.policy) {
        (Some(path), Some(policy)) => format!(", goes by {path} ({policy})"),
        (None, Some(policy)) if flow.compared.is_empty() => {
            format!(", no path can carry ({policy})")
        }
        (None, Some(policy)) => format!(", each bundle by itself ({policy})"),
        _ => String::new(),
    };
    let _ = writeln!(
        text,
        "{} {} from {} to {} (host {}): class {}{by_rule}{size}{by_path}",
        time_of(flow.at),
        flow.cause,
        flow.client,
        flow.target,
        or_none(&flow.host),
        or_none(&flow.class),
    );
    for path in &flow.compared {
        text += &compared_shown(path);
    }
    text
}

fn compared_shown(path: &ComparedView) -> String {
    let capacity = path
        .capacity_bps
        .map_or("unlimited".to_owned(), |bps| format!("{bps} bit/s"));
    let completes = path.completes_ms.map_or(String::new(), |ms| {
        let others = path.others_wait_ms;
        format!(", complete in {ms:.0} ms, others {others:.0} ms later")
    });
    format!(
        "    {}: delay {:.1} ms, {capacity}, loss {:.4}, busy {:.0} ms, {} with {} bytes, \
         {} bytes before{completes}\n",
        path.path,
        path.delay_ms,
        path.loss,
        path.busy_ms,
        counted(path.flows, "flow"),
        path.competing_bytes,
        path.before_bytes,
    )
}

fn time_of(at: Option<OffsetDateTime>) -> String {
    let text = at.and_then(|at| at.format(&Rfc3339).ok());
    text.unwrap_or("time unknown".to_owned())
}

fn missed(count: usize) -> String {
    match count {
        0 => String::new(),
        count => {
            let decisions = counted(count as u64, "decision");
            format!("({decisions} left out: too many at once)\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_query_could_take_for_its_own_is_encoded() {
        assert_eq!(encoded("10.0.0.0/24"), "10.0.0.0%2F24");
        assert_eq!(encoded("a&b=ü c"), "a%26b%3D%C3%BC%20c");
    }
}
