//! The vectors of `docs/vectors/beacons.json`.

use std::time::Duration;

use serde_json::Value;
use underpass_beacon::{Beacon, Key, Kind, Late, Sequence};

const VECTORS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/vectors/beacons.json"
);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = (0..hex.len()).step_by(2);
    digits
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

#[test]
fn documented_beacons_are_what_is_sealed_and_taken() {
    let text = std::fs::read_to_string(VECTORS).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    for vector in file["beacons"].as_array().unwrap() {
        let key = Key::from_hex(vector["secret"].as_str().unwrap()).unwrap();
        let beacon = Beacon {
            deaf: vector["deaf"].as_bool().unwrap(),
            wants: vector["wants"].as_bool().unwrap(),
            rests: vector["rests"].as_bool().unwrap(),
            late: vector["late_ms"]
                .as_u64()
                .map(|ms| Late::of(Duration::from_millis(ms))),
            key: key.id(),
            node: u32::try_from(vector["node"].as_u64().unwrap()).unwrap(),
            sequence: Sequence {
                incarnation: vector["incarnation"].as_u64().unwrap(),
                counter: u32::try_from(vector["counter"].as_u64().unwrap()).unwrap(),
            },
        };
        assert_eq!(vector["key_id"], hex(&key.id().0));
        let sealed = key.seal(&beacon);
        assert_eq!(vector["datagram"], hex(&sealed));
        assert_eq!(Beacon::parse(&sealed), Some((Kind::Beacon, beacon)));
        assert!(key.is_authentic(&sealed));
        let given_back = bytes(vector["given_back"].as_str().unwrap());
        let parsed = Beacon::parse(&given_back);
        // The end may let the link rest or not.
        let beacon = Beacon {
            rests: false,
            ..beacon
        };
        assert_eq!(parsed, Some((Kind::KeyUnknown, beacon)));
        assert!(key.is_authentic(&given_back));
    }
    for vector in file["refused"].as_array().unwrap() {
        let key = Key::from_hex(vector["secret"].as_str().unwrap()).unwrap();
        let datagram = bytes(vector["datagram"].as_str().unwrap());
        let taken = Beacon::parse(&datagram).is_some() && key.is_authentic(&datagram);
        assert!(!taken, "{}", vector["why"]);
    }
}
