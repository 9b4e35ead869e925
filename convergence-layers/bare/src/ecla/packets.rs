//! The packets of the daemon's external convergence layer, each a JSON object
//! with its `type`, as dtn7-rs 0.21.0 has them.

use std::borrow::Cow;
use std::io;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;
use underpass_cla::Transfer;

/// The longest message that the daemon takes, bytes.
const MOST_MESSAGE_BYTES: u64 = 64 << 20;

/// The longest bundle that is sent to the daemon, bytes: in base64, with the
/// packet around it, it is a message that the daemon takes.
pub(crate) const MOST_SENT_BYTES: u64 = MOST_MESSAGE_BYTES / 4 * 3 - 4096;

pub(super) fn base64_bytes(bytes: usize) -> usize {
    bytes.div_ceil(3).saturating_mul(4)
}

/// What the daemon says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Packet {
    /// The daemon has accepted this convergence layer; its node id.
    Registered(String),
    /// A bundle for one of its peers beyond this node.
    Bundle(Bytes),
    /// It says that it is there.
    Beacon,
    /// What it does not like.
    Error(String),
}

#[derive(Deserialize)]
struct Read<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default, borrow)]
    data: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    reason: Option<Cow<'a, str>>,
    #[serde(default)]
    eid: Option<serde_json::Value>,
}

#[derive(Serialize)]
struct ForwardData<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    src: &'a str,
    dst: &'a str,
    bundle_id: &'a str,
    data: String,
}

/// Reads a packet of the daemon.
///
/// # Errors
/// When the text is not a packet.
pub(super) fn read(text: &str) -> io::Result<Packet> {
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let read: Read<'_> = serde_json::from_str(text).map_err(|error| invalid(error.to_string()))?;
    let missing = |what: &str| invalid(format!("{} without {what}", read.kind));
    match &*read.kind {
        "Registered" => {
            let eid = read.eid.as_ref().ok_or_else(|| missing("eid"))?;
            let node_id = node_id(eid).unwrap_or_else(|| eid.to_string());
            Ok(Packet::Registered(node_id))
        }
        "ForwardData" => {
            let data = read.data.as_ref().ok_or_else(|| missing("data"))?;
            let bundle = BASE64_STANDARD.decode(data.as_bytes());
            let bundle = bundle.map_err(|error| invalid(format!("data: {error}")))?;
            Ok(Packet::Bundle(bundle.into()))
        }
        "Beacon" => Ok(Packet::Beacon),
        "Error" => {
            let reason = read.reason.as_deref().unwrap_or("no reason");
            Ok(Packet::Error(reason.to_owned()))
        }
        other => Err(invalid(format!("unknown packet {other:?}"))),
    }
}

/// A node id `ipn:N.0` from an endpoint as CBOR's structure has it in JSON.
fn node_id(eid: &serde_json::Value) -> Option<String> {
    let scheme = eid.get(0)?.as_u64()?;
    let parts = eid.get(1)?;
    let (node, service) = (parts.get(0)?.as_u64()?, parts.get(1)?.as_u64()?);
    (scheme == 2 && service == 0).then(|| format!("ipn:{node}.0"))
}

/// Registers this convergence layer with the daemon.
pub(super) fn register(name: &str) -> Vec<u8> {
    let packet = json!({"type": "Register", "name": name, "enable_beacon": false, "port": null});
    packet.to_string().into_bytes()
}

/// Announces to the daemon a peer that this convergence layer reaches.
pub(super) fn beacon(name: &str, node: u64) -> Vec<u8> {
    // Its convergence layers, each a name and a port, and services: none.
    let mut services = vec![0x82, 0x81, 0x82];
    services.push(0x60 | u8::try_from(name.len()).unwrap_or(0));
    services.extend(name.as_bytes());
    services.extend([0xF6, 0xA0]);
    let packet = json!({
        "type": "Beacon",
        "eid": [2, [node, 0]],
        "addr": format!("ipn:{node}"),
        "service_block": BASE64_STANDARD.encode(services),
    });
    packet.to_string().into_bytes()
}

/// A bundle for the daemon. Waits for the disk.
///
/// # Errors
/// When its payload cannot be read.
pub(super) fn forward(name: &str, transfer: &Transfer) -> io::Result<Vec<u8>> {
    let length = usize::try_from(transfer.len()).unwrap_or(usize::MAX);
    let mut bundle = Vec::with_capacity(length);
    for (index, chunk) in transfer.chunks.iter().enumerate() {
        bundle.extend_from_slice(chunk);
        if let (0, Some(file)) = (index, &transfer.file) {
            let at = bundle.len();
            bundle.resize(at + usize::try_from(file.len()).unwrap_or(0), 0);
            file.read_at(&mut bundle[at..], 0)?;
        }
    }
    let packet = ForwardData {
        kind: "ForwardData",
        src: name,
        dst: "",
        bundle_id: "",
        data: BASE64_STANDARD.encode(bundle),
    };
    serde_json::to_vec(&packet).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_daemon_says_is_read() {
        let registered = r#"{"type":"Registered","eid":[2,[20,0]],"nodeid":"ipn:20.0"}"#;
        let node = Packet::Registered("ipn:20.0".to_owned());
        assert_eq!(read(registered).unwrap(), node);
        let by_name = r#"{"type":"Registered","eid":[1,"//node1/"],"nodeid":"node1"}"#;
        let node = Packet::Registered(r#"[1,"//node1/"]"#.to_owned());
        assert_eq!(read(by_name).unwrap(), node);
        let data =
            r#"{"type":"ForwardData","src":"","dst":"ipn:21:0","bundle_id":"x","data":"n/8="}"#;
        let bundle = Packet::Bundle(Bytes::from_static(&[0x9F, 0xFF]));
        assert_eq!(read(data).unwrap(), bundle);
        let error = r#"{"type":"Error","reason":"already registered"}"#;
        assert_eq!(
            read(error).unwrap(),
            Packet::Error("already registered".to_owned())
        );
    }

    #[test]
    fn what_is_no_packet_is_told() {
        for text in [
            "",
            "{}",
            "[1]",
            r#"{"type":"ForwardData"}"#,
            r#"{"type":"ForwardData","data":"*"}"#,
            r#"{"type":"Registered"}"#,
            r#"{"type":"Other"}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_bundle_and_its_packet_fit_what_the_daemon_takes() {
        let most = usize::try_from(MOST_SENT_BYTES).unwrap();
        assert!(base64_bytes(most) + 1024 <= 64 << 20);
        let pieces = vec![Bytes::from_static(b"\x9F"), Bytes::from_static(b"\xFF")];
        let message = forward("underpass", &Transfer::new(1, pieces)).unwrap();
        let bundle = Packet::Bundle(Bytes::from_static(&[0x9F, 0xFF]));
        assert_eq!(
            read(std::str::from_utf8(&message).unwrap()).unwrap(),
            bundle
        );
    }

    #[test]
    fn a_beacon_names_the_peer_and_this_layer() {
        let beacon: serde_json::Value = serde_json::from_slice(&beacon("underpass", 21)).unwrap();
        assert_eq!(beacon["eid"], json!([2, [21, 0]]));
        let block = BASE64_STANDARD.decode(beacon["service_block"].as_str().unwrap());
        let expected = [&[0x82, 0x81, 0x82, 0x69][..], b"underpass", &[0xF6, 0xA0]].concat();
        assert_eq!(block.unwrap(), expected);
    }
}
