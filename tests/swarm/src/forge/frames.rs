//! Payloads of the streams protocol (`docs/stream-protocol.md`) by hand.

use std::net::{IpAddr, SocketAddr};

/// Frame types.
pub mod kind {
    pub const HELLO: u64 = 0x01;
    pub const OPEN: u64 = 0x02;
    pub const CREDIT: u64 = 0x04;
    pub const RESET: u64 = 0x05;
    pub const STOP: u64 = 0x06;
    pub const DATA: u64 = 0x08;
    pub const DATA_FIN: u64 = 0x09;
    pub const EXPIRED: u64 = 0x0a;
    pub const HELD: u64 = 0x0b;
    pub const LIMIT: u64 = 0x0c;
}

/// The largest number of a varint (RFC 9000, section 16).
pub const MOST: u64 = (1 << 62) - 1;

/// A payload in the making.
#[derive(Clone, Debug)]
pub struct FrameBuilder(Vec<u8>);

impl FrameBuilder {
    /// A payload between two runs.
    pub fn new(sender: u64, receiver: u64) -> FrameBuilder {
        let mut out = vec![1];
        out.extend(sender.to_be_bytes());
        out.extend(receiver.to_be_bytes());
        FrameBuilder(out)
    }

    /// A frame of some numbers, then bytes, with its true length.
    pub fn frame(&mut self, kind: u64, numbers: &[u64], bytes: &[u8]) -> &mut FrameBuilder {
        let mut body = Vec::with_capacity(numbers.len() * 8 + bytes.len());
        for number in numbers {
            varint(&mut body, *number);
        }
        body.extend_from_slice(bytes);
        let length = body.len() as u64;
        self.lying(kind, length, &body)
    }

    /// A frame that says `length` of itself, whatever it has.
    pub fn lying(&mut self, kind: u64, length: u64, body: &[u8]) -> &mut FrameBuilder {
        varint(&mut self.0, kind);
        varint(&mut self.0, length);
        self.0.extend_from_slice(body);
        self
    }

    /// HELLO with all windows at `window`.
    pub fn hello(&mut self, sequence: u64, window: u64) -> &mut FrameBuilder {
        let floor = window.max(64 << 10);
        self.frame(kind::HELLO, &[sequence, window, window, floor, 0, 1], &[])
    }

    /// OPEN of a stream to an address, which names no client.
    pub fn open(&mut self, id: u64, class: u8, target: SocketAddr) -> &mut FrameBuilder {
        self.open_for(id, class, target, None)
    }

    /// OPEN of a stream to an address, for a client.
    pub fn open_for(
        &mut self,
        id: u64,
        class: u8,
        target: SocketAddr,
        client: Option<SocketAddr>,
    ) -> &mut FrameBuilder {
        let mut body = Vec::new();
        varint(&mut body, id);
        body.push(class);
        varint(&mut body, 0);
        endpoint(&mut body, target);
        match client {
            Some(client) => endpoint(&mut body, client),
            None => body.push(0),
        }
        self.lying(kind::OPEN, body.len() as u64, &body)
    }

    /// OPEN of a stream to a name.
    pub fn open_name(&mut self, id: u64, class: u8, host: &str, port: u16) -> &mut FrameBuilder {
        let mut body = Vec::new();
        varint(&mut body, id);
        body.push(class);
        varint(&mut body, 0);
        body.push(0);
        body.extend(port.to_be_bytes());
        varint(&mut body, host.len() as u64);
        body.extend_from_slice(host.as_bytes());
        body.push(0);
        self.lying(kind::OPEN, body.len() as u64, &body)
    }

    /// DATA of a stream.
    pub fn data(&mut self, id: u64, offset: u64, bytes: &[u8]) -> &mut FrameBuilder {
        self.frame(kind::DATA, &[id, offset], bytes)
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn finish(&self) -> Vec<u8> {
        self.0.clone()
    }
}

fn endpoint(out: &mut Vec<u8>, address: SocketAddr) {
    let port = address.port().to_be_bytes();
    match address.ip() {
        IpAddr::V4(ip) => {
            out.push(4);
            out.extend(port);
            out.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(6);
            out.extend(port);
            out.extend(ip.octets());
        }
    }
}

fn varint(out: &mut Vec<u8>, value: u64) {
    match value {
        0..=0x3f => out.push(value as u8),
        0x40..=0x3fff => out.extend((value as u16 | 0x4000).to_be_bytes()),
        0x4000..=0x3fff_ffff => out.extend((value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend((value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use underpass_streams::{Frame, StreamId, decode_frames};

    use super::*;

    #[test]
    fn what_is_forged_is_a_payload_to_the_project() {
        let mut builder = FrameBuilder::new(7, 9);
        let target: SocketAddr = "192.0.2.1:80".parse().expect("an address");
        builder.hello(3, 1 << 20).open(5, 2, target);
        builder.data(5, MOST - 5, b"bytes");
        let client: SocketAddr = "[2001:db8::7]:40000".parse().expect("an address");
        builder.open_for(7, 2, target, Some(client));
        let payload = Bytes::from(builder.finish());
        let (header, frames) = decode_frames(&payload).expect("a payload");
        assert_eq!((header.sender, header.receiver), (7, 9));
        assert!(matches!(&frames[0], Frame::Hello(hello) if hello.sequence == 3));
        assert!(matches!(
            &frames[1],
            Frame::Open {
                id: StreamId(5),
                ..
            }
        ));
        assert!(matches!(&frames[2], Frame::Data { offset, .. } if *offset == MOST - 5));
        assert!(matches!(
            &frames[3],
            Frame::Open {
                id: StreamId(7),
                open,
            } if open.client == Some(client)
        ));
    }
}
