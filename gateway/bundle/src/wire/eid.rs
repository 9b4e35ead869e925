//! Endpoint identifiers (RFC 9171 §4.2.5.1, RFC 9758).

use bp7::eid::IpnAddress;

use super::cbor::{ARRAY, CborError, Reader, TEXT, UNSIGNED, write_head};

/// An endpoint identifier.
pub use bp7::EndpointID as Eid;

/// The most bytes of an endpoint of the dtn scheme after `dtn:`. Sources and custodians are
/// remembered for a day, hundreds of thousands of them.
pub const MOST_NAME_BYTES: usize = 255;

const DTN: u64 = 1;
const IPN: u64 = 2;

/// The endpoint `ipn:node.service`; node 0 gives the null endpoint.
pub fn ipn(node: u64, service: u64) -> Eid {
    let service = if node == 0 { 0 } else { service };
    Eid::Ipn(IPN as u8, IpnAddress::new(node, service))
}

/// The node and service number of an `ipn` endpoint other than the null one.
pub fn ipn_parts(eid: &Eid) -> Option<(u64, u64)> {
    match eid {
        Eid::Ipn(_, address) if address.node_number() != 0 => {
            Some((address.node_number(), address.service_number()))
        }
        _ => None,
    }
}

/// Whether a node number, allocator included, names one node everywhere (RFC 9758): 0 is no node's,
/// whatever the allocator, and 2³²−1 of the default allocator (`ipn:!`) means the node that reads
/// it.
pub fn names_node(number: u64) -> bool {
    number & u64::from(u32::MAX) != 0 && number != u64::from(u32::MAX)
}

/// Whether no one can be reached or named by this endpoint.
pub fn is_null(eid: &Eid) -> bool {
    match eid {
        Eid::DtnNone(..) => true,
        Eid::Ipn(_, address) => address.node_number() == 0,
        Eid::Dtn(..) => false,
    }
}

/// Reads an EID; `ipn` with an allocator is folded into the two-element form
/// that equals it (RFC 9758 §3.3).
///
/// # Errors
/// When it is of no scheme that RFC 9171 defines.
pub fn read_eid(reader: &mut Reader<'_>) -> Result<Eid, CborError> {
    let length = reader.array()?;
    let eid = match reader.unsigned()? {
        DTN if reader.peek_major()? == UNSIGNED => match reader.unsigned()? {
            0 => Eid::none(),
            _ => return Err(CborError::Malformed),
        },
        DTN => {
            let ssp = reader.text()?;
            if !ssp.starts_with("//") {
                return Err(CborError::Malformed);
            }
            Eid::with_dtn(ssp).map_err(|_| CborError::Malformed)?
        }
        IPN => read_ipn(reader)?,
        _ => return Err(CborError::Malformed),
    };
    reader.array_end(length, 2)?;
    Ok(eid)
}

fn read_ipn(reader: &mut Reader<'_>) -> Result<Eid, CborError> {
    let length = reader.array()?;
    let first = reader.unsigned()?;
    let second = reader.unsigned()?;
    if reader.more(length, 2)? {
        let service = reader.unsigned()?;
        reader.array_end(length, 3)?;
        if first > u64::from(u32::MAX) || second > u64::from(u32::MAX) {
            return Err(CborError::Malformed);
        }
        return Ok(ipn(first << 32 | second, service));
    }
    match length {
        // `more` has read the break.
        None | Some(2) => Ok(ipn(first, second)),
        Some(_) => Err(CborError::WrongCount),
    }
}

/// Whether an EID is taken from a neighbour or an application: it has only characters
/// that a URI may have (RFC 9171 §4.2.5.1.1: VCHAR), for it is shown on terminals, too,
/// and is not long, for it is remembered.
pub fn is_taken(eid: &Eid) -> bool {
    match eid {
        Eid::Dtn(_, address) => {
            let text = address.to_string();
            text.len() <= MOST_NAME_BYTES && text.bytes().all(|byte| byte.is_ascii_graphic())
        }
        Eid::Ipn(..) | Eid::DtnNone(..) => true,
    }
}

/// Bytes of an EID's text where that may be long: in the `dtn` scheme.
pub(super) fn name_bytes(eid: &Eid) -> usize {
    match eid {
        Eid::Dtn(_, address) => address.to_string().len(),
        Eid::Ipn(..) | Eid::DtnNone(..) => 0,
    }
}

/// Writes an EID in its two-element form.
pub fn write_eid(out: &mut Vec<u8>, eid: &Eid) {
    write_head(out, ARRAY, 2);
    match eid {
        Eid::Ipn(_, address) => {
            write_head(out, UNSIGNED, IPN);
            write_head(out, ARRAY, 2);
            write_head(out, UNSIGNED, address.node_number());
            write_head(out, UNSIGNED, address.service_number());
        }
        Eid::Dtn(_, address) => {
            let ssp = address.to_string();
            write_head(out, UNSIGNED, DTN);
            write_head(out, TEXT, ssp.len() as u64);
            out.extend(ssp.as_bytes());
        }
        Eid::DtnNone(..) => {
            write_head(out, UNSIGNED, DTN);
            write_head(out, UNSIGNED, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Eid, CborError> {
        let mut reader = Reader::new(bytes);
        let eid = read_eid(&mut reader)?;
        reader.end()?;
        Ok(eid)
    }

    #[test]
    fn every_form_reads_back() {
        let eids = [
            ipn(977_000, 64),
            ipn(0, 7),
            Eid::none(),
            Eid::with_dtn("//node1/in").unwrap(),
        ];
        for eid in eids {
            let mut out = Vec::new();
            write_eid(&mut out, &eid);
            assert_eq!(read(&out), Ok(eid));
        }
    }

    #[test]
    fn an_allocator_folds_into_the_node_number() {
        let three = [0x82, 0x02, 0x83, 0x03, 0x05, 0x07];
        assert_eq!(read(&three), Ok(ipn(3 << 32 | 5, 7)));
    }

    #[test]
    fn malformed_eids_are_errors() {
        for bytes in [
            &[0x82, 0x02, 0x81, 0x01][..],
            &[0x82, 0x03, 0x00],
            &[0x82, 0x01, 0x01],
            &[0x82, 0x01, 0x61, b'x'],
            &[0x83, 0x02, 0x82, 0x01, 0x01, 0x00],
            &[0x82, 0x02, 0x84, 0x01, 0x01, 0x01, 0x01],
        ] {
            assert!(read(bytes).is_err(), "{bytes:02x?}");
        }
    }
}
