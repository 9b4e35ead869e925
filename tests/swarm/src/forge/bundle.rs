//! BPv7 bundles (RFC 9171) by hand.

use bytes::Bytes;
use underpass_bundle::wire::{ARRAY, BYTES, TEXT, UNSIGNED, write_head};

const CRC_32C: u64 = 2;
/// Bundle processing control flags: the payload is an administrative record.
const ADMINISTRATIVE: u64 = 0x2;
/// Reports on reception, forwarding, delivery and deletion are asked for.
const REPORTS: u64 = 0x4000 | 0x1_0000 | 0x2_0000 | 0x4_0000;

const PAYLOAD_BLOCK: u64 = 1;
const AGE_BLOCK: u64 = 7;
/// Custody transfer extension block, as ION-DTN numbers it.
const CUSTODY_BLOCK: u64 = 13;

/// An endpoint id as it goes onto the wire, whether or not it may exist.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// `dtn:none`.
    None,
    /// `dtn:` with a name.
    Dtn(&'static str),
    /// `ipn:node.service`.
    Ipn(u64, u64),
    /// `ipn:allocator.node.service` (RFC 9758).
    Allocated(u64, u64, u64),
}

/// A custody block.
#[derive(Clone, Debug)]
pub struct Custodian {
    /// Who is said to have custody.
    pub endpoint: Endpoint,
    /// The custodian's name for the sequence.
    pub sequence: u64,
    /// Number of the bundle in it.
    pub number: u64,
}

/// A bundle in the making.
#[derive(Clone, Debug)]
pub struct Forged {
    destination: Endpoint,
    source: Endpoint,
    report_to: Endpoint,
    flags: u64,
    sequence: u64,
    lifetime_ms: u64,
    custodian: Option<Custodian>,
    payload: Vec<u8>,
}

impl Forged {
    /// A bundle that asks for nothing, valid for an hour. `sequence` tells
    /// bundles of one source apart.
    pub fn new(source: Endpoint, destination: Endpoint, sequence: u64) -> Forged {
        Forged {
            destination,
            source,
            report_to: Endpoint::None,
            flags: 0,
            sequence,
            lifetime_ms: 3_600_000,
            custodian: None,
            payload: b"forged".to_vec(),
        }
    }

    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> Forged {
        self.payload = payload.into();
        self
    }

    /// With all status reports, to this endpoint.
    pub fn report_to(mut self, endpoint: Endpoint) -> Forged {
        self.report_to = endpoint;
        self.flags |= REPORTS;
        self
    }

    /// The payload is an administrative record.
    pub fn administrative(mut self) -> Forged {
        self.flags |= ADMINISTRATIVE;
        self
    }

    pub fn lifetime_ms(mut self, lifetime_ms: u64) -> Forged {
        self.lifetime_ms = lifetime_ms;
        self
    }

    /// In somebody's custody.
    pub fn custodian(mut self, custodian: Custodian) -> Forged {
        self.custodian = Some(custodian);
        self
    }

    pub fn encode(&self) -> Bytes {
        let mut out = vec![0x9f];
        self.primary(&mut out);
        let mut age = Vec::new();
        write_head(&mut age, UNSIGNED, 0);
        block(&mut out, AGE_BLOCK, 2, &age);
        if let Some(custodian) = &self.custodian {
            let mut content = Vec::new();
            write_head(&mut content, ARRAY, 3);
            write_head(&mut content, UNSIGNED, custodian.number);
            write_head(&mut content, UNSIGNED, custodian.sequence);
            endpoint(&mut content, &custodian.endpoint);
            block(&mut out, CUSTODY_BLOCK, 3, &content);
        }
        block(&mut out, PAYLOAD_BLOCK, 1, &self.payload);
        out.push(0xff);
        out.into()
    }

    fn primary(&self, out: &mut Vec<u8>) {
        let start = out.len();
        write_head(out, ARRAY, 9);
        for number in [7, self.flags, CRC_32C] {
            write_head(out, UNSIGNED, number);
        }
        for eid in [&self.destination, &self.source, &self.report_to] {
            endpoint(out, eid);
        }
        write_head(out, ARRAY, 2);
        write_head(out, UNSIGNED, 0);
        write_head(out, UNSIGNED, self.sequence);
        write_head(out, UNSIGNED, self.lifetime_ms);
        seal(out, start);
    }
}

/// Appends the CRC of the block that begins at `start`: it is computed with
/// zeros in its place (RFC 9171, 4.2.1).
fn seal(out: &mut Vec<u8>, start: usize) {
    write_head(out, BYTES, 4);
    let place = out.len();
    out.extend([0; 4]);
    let crc = crc32c::crc32c(&out[start..]);
    out[place..].copy_from_slice(&crc.to_be_bytes());
}

fn block(out: &mut Vec<u8>, kind: u64, number: u64, content: &[u8]) {
    let start = out.len();
    write_head(out, ARRAY, 6);
    for field in [kind, number, 0, CRC_32C] {
        write_head(out, UNSIGNED, field);
    }
    write_head(out, BYTES, content.len() as u64);
    out.extend_from_slice(content);
    seal(out, start);
}

fn endpoint(out: &mut Vec<u8>, endpoint: &Endpoint) {
    write_head(out, ARRAY, 2);
    match endpoint {
        Endpoint::None => {
            write_head(out, UNSIGNED, 1);
            write_head(out, UNSIGNED, 0);
        }
        Endpoint::Dtn(name) => {
            write_head(out, UNSIGNED, 1);
            write_head(out, TEXT, name.len() as u64);
            out.extend_from_slice(name.as_bytes());
        }
        Endpoint::Ipn(node, service) => numbers(out, &[*node, *service]),
        Endpoint::Allocated(allocator, node, service) => {
            numbers(out, &[*allocator, *node, *service]);
        }
    }
}

fn numbers(out: &mut Vec<u8>, numbers: &[u64]) {
    write_head(out, UNSIGNED, 2);
    write_head(out, ARRAY, numbers.len() as u64);
    for number in numbers {
        write_head(out, UNSIGNED, *number);
    }
}

#[cfg(test)]
mod tests {
    use underpass_bundle::wire::{CodePoints, DecodeLimits, Malformed, decode, ipn};

    use super::*;

    #[test]
    fn what_is_forged_is_a_bundle_to_the_project() {
        let forged = Forged::new(Endpoint::Ipn(1, 83), Endpoint::Allocated(0, 11, 83), 5)
            .payload(vec![7; 3000])
            .report_to(Endpoint::Ipn(12, 0))
            .lifetime_ms(86_400_000 * 365)
            .custodian(Custodian {
                endpoint: Endpoint::Ipn(11, 0),
                sequence: 3,
                number: 4,
            });
        let limits = DecodeLimits {
            allow_missing_primary_crc: false,
            ..DecodeLimits::default()
        };
        let bundle = decode(&forged.encode(), &limits, &CodePoints::default()).expect("a bundle");
        assert_eq!(bundle.primary.source, ipn(1, 83));
        assert_eq!(bundle.primary.destination, ipn(11, 83));
        assert_eq!(bundle.primary.report_to, ipn(12, 0));
        assert_eq!(bundle.payload.len(), 3000);
        let custodian = bundle.cteb.expect("a custody block").1.custodian;
        assert_eq!(custodian, ipn(11, 0));
    }

    #[test]
    fn a_changed_bundle_is_none() {
        let forged = Forged::new(Endpoint::None, Endpoint::Dtn("//hub/"), 5);
        let mut raw = forged.encode().to_vec();
        raw[8] ^= 1;
        let codes = CodePoints::default();
        let error = decode(&raw.into(), &DecodeLimits::default(), &codes).expect_err("changed");
        assert!(!matches!(error.reason, Malformed::Unsupported(_)));
    }
}
