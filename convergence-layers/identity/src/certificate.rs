//! The node ids that a certificate names (RFC 9174, 4.4.1 and 4.4.2).

use rustls::pki_types::CertificateDer;
use thiserror::Error;
use x509_parser::certificate::X509Certificate;
use x509_parser::der_parser::der::parse_der;
use x509_parser::der_parser::oid;
use x509_parser::extensions::GeneralName;
use x509_parser::oid_registry::Oid;
use x509_parser::prelude::FromDer;

/// `id-on-bundleEID`, the SAN otherName that holds a node id.
pub const NODE_ID_OID: Oid<'static> = oid!(1.3.6.1.5.5.7.8.11);

/// Whether a URI in the SAN counts as a node id: some peers put it there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UriNodeIds {
    /// Only the otherName of RFC 9174 counts.
    #[default]
    Ignored,
    /// A URI of scheme `ipn` or `dtn` counts as well.
    Accepted,
}

/// Whom a certificate names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerIdentity {
    /// Node ids.
    pub node_ids: Vec<String>,
    /// The certificate's serial number, big-endian, without leading zeros.
    pub serial: Vec<u8>,
    /// The end of its validity, s since the Unix epoch.
    pub not_after_s: i64,
}

/// Why a certificate cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IdentityError {
    /// It is no X.509 certificate.
    #[error("the peer's certificate is malformed: {0}")]
    Malformed(String),
}

/// Reads the node ids and the serial number of a certificate.
pub fn peer_identity(
    certificate: &CertificateDer<'_>,
    uris: UriNodeIds,
) -> Result<PeerIdentity, IdentityError> {
    let malformed = |error: &dyn std::fmt::Display| IdentityError::Malformed(error.to_string());
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|error| malformed(&error))?;
    let names = parsed
        .subject_alternative_name()
        .map_err(|error| malformed(&error))?;
    let node_ids = names
        .iter()
        .flat_map(|san| &san.value.general_names)
        .filter_map(|name| node_id(name, uris))
        .collect();
    Ok(PeerIdentity {
        node_ids,
        serial: without_leading_zeros(parsed.raw_serial()).to_vec(),
        not_after_s: parsed.validity().not_after.timestamp(),
    })
}

/// DER puts a zero byte before a number whose first bit is set.
pub(crate) fn without_leading_zeros(serial: &[u8]) -> &[u8] {
    let zeros = serial.iter().take_while(|byte| **byte == 0).count();
    &serial[zeros..]
}

fn node_id(name: &GeneralName<'_>, uris: UriNodeIds) -> Option<String> {
    match name {
        GeneralName::OtherName(oid, value) if *oid == NODE_ID_OID => string_in(value),
        GeneralName::URI(uri) if uris == UriNodeIds::Accepted => {
            (uri.starts_with("ipn:") || uri.starts_with("dtn:")).then(|| (*uri).to_owned())
        }
        _ => None,
    }
}

/// The string in an otherName's `[0] EXPLICIT` value. RFC 9174 asks for
/// IA5String; some tools can write only UTF8String.
fn string_in(value: &[u8]) -> Option<String> {
    let (_, outer) = parse_der(value).ok()?;
    let (_, inner) = parse_der(outer.as_slice().ok()?).ok()?;
    inner.as_str().ok().map(str::to_owned)
}
