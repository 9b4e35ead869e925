//! What a bundle weighs on the hop, in IP bytes.

/// A segment head, and once per transfer the head of its extension items with
/// the Transfer Length item (RFC 9174, sections 5.2.2 and 5.2.5).
const SEGMENT_HEAD_BYTES: u64 = 18;
const TRANSFER_HEAD_BYTES: u64 = 4;
const TRANSFER_LENGTH_BYTES: u64 = 13;

/// A TLS 1.3 record: header, content type and tag (RFC 8446, section 5.2), for
/// at most 2¹⁴ bytes.
const TLS_RECORD_BYTES: u64 = 22;
const TLS_RECORD_PAYLOAD_BYTES: u64 = 1 << 14;

const IPV4_BYTES: u64 = 20;
const IPV6_BYTES: u64 = 40;
const TCP_BYTES: u64 = 20;
/// The timestamps option with its padding (RFC 7323, appendix A).
const TIMESTAMP_BYTES: u64 = 12;

/// The least MTU of IPv4 that the sums are meant for (RFC 791: every host
/// takes 576 bytes).
const LEAST_MTU_BYTES: u64 = 576;

/// How a TCPCL session puts bundles on the hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpWire {
    headers: u64,
    mss: u64,
    tls: bool,
    segment_bytes: u64,
}

impl TcpWire {
    /// A session over `mtu_bytes` of IP, with TCP timestamps; `segment_bytes`
    /// is the most data it puts into one XFER_SEGMENT.
    pub fn new(mtu_bytes: u32, ipv6: bool, tls: bool, segment_bytes: u64) -> Self {
        let ip = if ipv6 { IPV6_BYTES } else { IPV4_BYTES };
        let headers = ip + TCP_BYTES + TIMESTAMP_BYTES;
        let mss = u64::from(mtu_bytes).max(LEAST_MTU_BYTES) - headers;
        TcpWire {
            headers,
            mss,
            tls,
            segment_bytes: segment_bytes.max(1),
        }
    }

    /// IP bytes of a bundle of `bundle_bytes`: its TCPCL segments, TLS
    /// records, TCP and IP headers, each sent once.
    pub fn ip_bytes(&self, bundle_bytes: u64) -> u64 {
        let segments = bundle_bytes.div_ceil(self.segment_bytes).max(1);
        let length_item = if segments > 1 {
            TRANSFER_LENGTH_BYTES
        } else {
            0
        };
        let heads = segments * SEGMENT_HEAD_BYTES + TRANSFER_HEAD_BYTES + length_item;
        self.ip_bytes_of_stream(bundle_bytes.saturating_add(heads))
    }

    /// IP bytes of `stream_bytes` of TCPCL's byte stream.
    fn ip_bytes_of_stream(&self, stream_bytes: u64) -> u64 {
        let records = if self.tls {
            stream_bytes.div_ceil(TLS_RECORD_PAYLOAD_BYTES)
        } else {
            0
        };
        let payload = stream_bytes.saturating_add(records * TLS_RECORD_BYTES);
        self.ip_bytes_of_tcp(payload)
    }

    fn ip_bytes_of_tcp(&self, payload_bytes: u64) -> u64 {
        payload_bytes.saturating_add(
            payload_bytes
                .div_ceil(self.mss)
                .saturating_mul(self.headers),
        )
    }

    /// IP bytes of a keepalive, which is a byte of TCPCL's stream.
    pub fn keepalive_bytes(&self) -> u64 {
        self.ip_bytes_of_stream(1)
    }

    /// IP bytes of a segment without payload.
    pub fn ack_bytes(&self) -> u64 {
        self.headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_bundle_is_one_packet() {
        let wire = TcpWire::new(1500, false, false, 1 << 16);
        assert_eq!(wire.ip_bytes(100), 100 + 18 + 4 + 52);
        let wire = TcpWire::new(1500, true, true, 1 << 16);
        assert_eq!(wire.ip_bytes(100), 100 + 18 + 4 + 22 + 72);
    }

    #[test]
    fn a_keepalive_is_a_packet_of_its_own() {
        let bytes = |ipv6, tls| TcpWire::new(1500, ipv6, tls, 1 << 16).keepalive_bytes();
        assert_eq!([bytes(false, false), bytes(false, true)], [53, 75]);
        assert_eq!(bytes(true, true), 95);
    }

    #[test]
    fn large_bundle_counts_every_layer() {
        let wire = TcpWire::new(1500, false, true, 1 << 16);
        let stream: u64 = (1 << 20) + 16 * 18 + 4 + 13;
        let tcp = stream + 65 * 22;
        assert_eq!(wire.ip_bytes(1 << 20), tcp + tcp.div_ceil(1448) * 52);
    }

    #[test]
    fn no_mtu_and_no_size_breaks_the_sum() {
        let wire = TcpWire::new(0, true, true, 0);
        assert!(wire.ip_bytes(0) > 0);
        assert!(TcpWire::new(1500, true, true, 1 << 14).ip_bytes(u64::MAX / 2) > u64::MAX / 2);
        assert_eq!(
            TcpWire::new(1500, false, false, 1).ip_bytes_of_tcp(u64::MAX),
            u64::MAX
        );
    }
}
