//! The message from a hub to a terminal: its part of the return link's plan.

use serde::{Deserialize, Serialize};

use crate::document::{Direction, Document, Head};
use crate::error::PlanError;
use crate::plan::{Plan, VERSION, is_object};

/// The ipn service of plans; 1 to 127 are for private use.
pub const SERVICE: u64 = 83;

/// The largest message, bytes: one line of as many segments as there may be,
/// and as many steps of capacity.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// A terminal's part, and what time it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Control's time when the hub sent it, ms since 1970-01-01 UTC.
    pub control_ms: u64,
    /// The plan, with the terminal's line only.
    pub plan: Plan,
}

#[derive(Serialize)]
struct Outgoing<'a> {
    version: u64,
    control_ms: u64,
    plan: &'a Document,
}

#[derive(Deserialize)]
struct Incoming {
    control_ms: u64,
    plan: Document,
}

impl Message {
    /// Its bytes: JSON in UTF-8.
    pub fn encode(&self) -> Vec<u8> {
        let outgoing = Outgoing {
            version: VERSION,
            control_ms: self.control_ms,
            plan: self.plan.document(),
        };
        serde_json::to_vec(&outgoing).expect("names and numbers are always JSON")
    }

    /// Reads a payload. Unknown members are ignored.
    ///
    /// # Errors
    /// When it is not such a message.
    pub fn decode(payload: &[u8]) -> Result<Message, PlanError> {
        if payload.len() > MAX_MESSAGE_BYTES {
            return Err(PlanError::Large(payload.len()));
        }
        is_object(payload)?;
        let head: Head = serde_json::from_slice(payload)?;
        if head.version != VERSION {
            return Err(PlanError::Version(head.version));
        }
        let incoming: Incoming = serde_json::from_slice(payload)?;
        let plan = Plan::of(incoming.plan)?;
        if plan.link() != Direction::Return || plan.terminals().count() != 1 {
            return Err(PlanError::NoPart);
        }
        Ok(Message {
            control_ms: incoming.control_ms,
            plan,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = include_str!("../../../docs/control-protocol.md");

    fn documented() -> &'static str {
        let mut lines = DOCUMENT.lines();
        let line = lines.find(|line| line.starts_with("{\"version\":1,\"control_ms\""));
        line.expect("the document's example")
    }

    #[test]
    fn message_is_what_the_specification_shows() {
        let message = Message::decode(documented().as_bytes()).unwrap();
        assert_eq!(message.control_ms, 1_795_230_059_990);
        assert_eq!(message.plan.terminals().collect::<Vec<_>>(), [10]);
        assert_eq!(String::from_utf8(message.encode()).unwrap(), documented());
    }

    #[test]
    fn what_is_not_one_terminals_part_is_refused() {
        for (from, to) in [
            ("return", "forward"),
            ("[10]", "[10,11]"),
            ("\"lines\":[{", "\"lines\":[{},{"),
            ("\"control_ms\":17", "\"control_ms\":-17"),
            ("{\"version\":1,\"control", "{\"version\":2,\"control"),
            ("\"plan\":{\"version\":1", "\"plan\":{\"version\":2"),
        ] {
            let bad = documented().replace(from, to);
            assert_ne!(bad, documented());
            assert!(Message::decode(bad.as_bytes()).is_err(), "{to}");
        }
        let large = vec![b' '; MAX_MESSAGE_BYTES + 1];
        assert!(matches!(Message::decode(&large), Err(PlanError::Large(_))));
    }
}
