//! The vectors of `docs/vectors/deferred-messages.json` in both directions, and arbitrary
//! bytes.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use underpass_deferred::wire::{Body, Fate, Message, Of, Part};

const VECTORS: &str = include_str!("../../../docs/vectors/deferred-messages.json");

fn payload(vector: &Value) -> Bytes {
    let hex = vector["hex"].as_str().unwrap();
    (0..hex.len() / 2)
        .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
        .collect()
}

fn with_part(part: &Part, mut fields: Value) -> Value {
    fields["total_bytes"] = json!(part.object.total_bytes);
    fields["head_bytes"] = json!(part.object.head_bytes);
    fields["part_bytes"] = json!(part.object.part_bytes);
    fields["index"] = json!(part.index);
    fields["data"] = json!(String::from_utf8_lossy(&part.data));
    fields
}

fn as_json(body: &Body) -> Value {
    match body {
        Body::Request {
            repeatable,
            lifetime_ms,
            part,
        } => {
            let own = json!({"repeatable": repeatable, "lifetime_ms": lifetime_ms});
            json!({"request": with_part(part, own)})
        }
        Body::Response { own, part } => json!({"response": with_part(part, json!({"own": own}))}),
        Body::Ack { of, next } => {
            let of = match of {
                Of::Request => "request",
                Of::Response => "response",
                Of::Notice => "notice",
            };
            json!({"ack": {"of": of, "next": next}})
        }
        Body::Notice { fate, text } => {
            let fate = match fate {
                Fate::Sent => "sent",
                Fate::Unknown => "unknown",
                Fate::Expired => "expired",
                Fate::Cancelled => "cancelled",
            };
            json!({"notice": {"fate": fate, "text": text}})
        }
        Body::Cancel { lifetime_ms } => json!({"cancel": {"lifetime_ms": lifetime_ms}}),
    }
}

#[test]
fn vectors_decode_and_encode() {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    for vector in vectors["messages"].as_array().unwrap() {
        let raw = payload(vector);
        let message = Message::decode(raw.clone()).unwrap();
        assert_eq!(as_json(&message.body), vector["message"], "{vector}");
        assert_eq!(message.key.id.to_string(), vector["id"]);
        assert_eq!(message.key.attempt, vector["attempt"]);
        assert_eq!(message.encode(), raw);
    }
}

#[test]
fn what_is_no_message_is_refused() {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    for vector in vectors["refused"].as_array().unwrap() {
        assert!(Message::decode(payload(vector)).is_err(), "{vector}");
    }
}

#[test]
fn a_lifetime_shrinks_with_the_age_of_its_message() {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    let cancel = vectors["messages"].as_array().unwrap().last().unwrap();
    let message = Message::decode(payload(cancel)).unwrap();
    let left = |age_ms| match message.clone().aged(age_ms).body {
        Body::Cancel { lifetime_ms } => lifetime_ms,
        other => panic!("{other:?}"),
    };
    assert_eq!((left(600_000), left(u64::MAX)), (3_000_000, 0));
}

proptest! {
    #[test]
    fn any_payload_is_read_or_refused_and_what_is_read_is_canonical(
        mut data in prop::collection::vec(any::<u8>(), 0..200),
        kind in 0u8..7,
    ) {
        // Random bytes would hardly ever hit a version and a kind.
        if data.len() > 1 {
            data[0] = 1;
            data[1] = kind;
        }
        let raw = Bytes::from(data);
        if let Ok(message) = Message::decode(raw.clone()) {
            prop_assert_eq!(message.encode(), raw);
        }
    }
}
