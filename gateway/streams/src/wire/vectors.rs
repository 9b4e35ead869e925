//! The vectors of `docs/vectors/stream-payloads.json`, both ways.

use std::net::SocketAddr;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Frame, Header, Sealer, Target, decode_frames};
use crate::stream::Pieces;

const VECTORS: &str = include_str!("../../../../docs/vectors/stream-payloads.json");

fn payload(vector: &Value) -> Bytes {
    let hex = vector["hex"].as_str().unwrap();
    (0..hex.len() / 2)
        .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn address(address: &SocketAddr) -> Value {
    json!({"address": address.ip().to_string(), "port": address.port()})
}

fn as_json(frame: &Frame) -> Value {
    match frame {
        Frame::Hello(hello) => json!({"hello": {
            "sequence": hello.sequence,
            "peer_window_bytes": hello.peer_window_bytes,
            "stream_window_bytes": hello.stream_window_bytes,
            "floor_bytes": hello.floor_bytes,
            "first_valid": hello.first_valid.0,
            "ipv4": hello.announcement.ipv4,
            "ipv6": hello.announcement.ipv6,
        }}),
        Frame::Open { id, open } => json!({"open": {
            "id": id.0,
            "class": open.class.0,
            "report_connected": open.report_connected,
            "target": match &open.target {
                Target::Address(target) => address(target),
                Target::Name { host, port } => json!({"name": host, "port": port}),
            },
            "client": open.client.as_ref().map(address),
            "trace": open.trace.as_ref().map(|trace| json!({
                "trace_id": hex(&trace.trace_id),
                "span_id": hex(&trace.span_id),
            })),
        }}),
        Frame::Opened { id } => json!({"opened": {"id": id.0}}),
        Frame::Credit { id, consumed } => json!({"credit": {"id": id.0, "consumed": consumed}}),
        Frame::Reset {
            id,
            code,
            final_offset,
            at_once,
            reason,
        } => json!({"reset": {
            "id": id.0,
            "code": code.number(),
            "final_offset": final_offset,
            "at_once": at_once,
            "reason": reason,
        }}),
        Frame::Stop { id, code } => json!({"stop": {"id": id.0, "code": code.number()}}),
        Frame::Data {
            id,
            offset,
            fin,
            data,
        } => json!({"data": {
            "id": id.0,
            "offset": offset,
            "fin": fin,
            "data_hex": hex(data),
        }}),
        Frame::Settled => json!({"settled": {}}),
        Frame::Expired { id, below } => json!({"expired": {"id": id.0, "below": below}}),
        Frame::Held { run, id } => json!({"held": {"run": run, "id": id.0}}),
        Frame::Limit { run, id, below } => {
            json!({"limit": {"run": run, "id": id.0, "below": below}})
        }
        Frame::Unknown { kind } => json!({"unknown": {"type": kind}}),
    }
}

fn sealed(header: Header, frames: &[Frame]) -> Bytes {
    let mut sealer = Sealer::new(1 << 20, header.sender, header.receiver);
    for frame in frames {
        if let Frame::Data {
            id,
            offset,
            fin,
            data,
        } = frame
        {
            let mut pieces = Pieces::default();
            pieces.push(data.clone(), Default::default());
            sealer.data(*id, *offset, *fin, &mut pieces, data.len());
        } else {
            assert!(sealer.frame(frame));
        }
    }
    sealer.finish().concat().into()
}

#[test]
fn vectors_decode_and_canonical_ones_are_what_is_sealed() {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    for vector in vectors["payloads"].as_array().unwrap() {
        let name = &vector["name"];
        let (header, frames) = decode_frames(&payload(vector)).unwrap();
        assert_eq!(json!(header.sender), vector["sender"], "{name}");
        assert_eq!(json!(header.receiver), vector["receiver"], "{name}");
        let decoded: Vec<Value> = frames.iter().map(as_json).collect();
        assert_eq!(json!(decoded), vector["frames"], "{name}");
        if vector["canonical"] == true {
            assert_eq!(sealed(header, &frames), payload(vector), "{name}");
        }
    }
}

#[test]
fn malformed_vectors_are_refused() {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    for vector in vectors["malformed"].as_array().unwrap() {
        assert!(
            decode_frames(&payload(vector)).is_err(),
            "{}",
            vector["name"]
        );
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut payload = vec![1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        let _ = decode_frames(&body.clone().into());
        payload.extend(body);
        let _ = decode_frames(&payload.into());
    }

    #[test]
    fn damaged_vectors_never_panic(which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let vectors: Value = serde_json::from_str(VECTORS).unwrap();
        let vectors = vectors["payloads"].as_array().unwrap();
        let mut bytes = payload(which.get(vectors)).to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok((_, frames)) = decode_frames(&bytes.into()) {
            for frame in &frames {
                as_json(frame);
            }
        }
    }
}
