//! The contents of the certificates of authority and nodes.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose, SanType, SerialNumber,
};
use time::OffsetDateTime;
use yasna::Tag;
use yasna::models::ObjectIdentifier;

use crate::error::PkiError;
use crate::serial::Serial;

/// `id-ce-subjectAltName` (RFC 5280, section 4.2.1.6).
const SUBJECT_ALT_NAME: &[u64] = &[2, 5, 29, 17];
/// `id-on-bundleEID` (RFC 9174, section 4.4.2.1).
const BUNDLE_EID: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 8, 11];
/// `id-kp-bundleSecurity` (RFC 9174, section 4.4.2.1).
const BUNDLE_SECURITY: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 3, 35];

/// How far a node's clock may be behind when its certificate is new.
pub(crate) const CLOCK_SLACK: Duration = Duration::from_secs(24 * 3600);

const LONGEST_VALIDITY_DAYS: u64 = 36_500;

/// The end of a validity that begins at `now`.
pub(crate) fn end(now: SystemTime, days: u64) -> Result<OffsetDateTime, PkiError> {
    if !(1..=LONGEST_VALIDITY_DAYS).contains(&days) {
        return Err(PkiError::Validity(days));
    }
    Ok(OffsetDateTime::from(
        now + Duration::from_secs(days * 24 * 3600),
    ))
}

fn params(
    name: String,
    serial: &Serial,
    now: SystemTime,
    end: OffsetDateTime,
) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.serial_number = Some(SerialNumber::from_slice(serial.as_bytes()));
    params.not_before = OffsetDateTime::from(now - CLOCK_SLACK);
    params.not_after = end;
    params
}

/// A self-signed authority that signs nodes' certificates and nothing below.
pub(crate) fn authority(
    name: &str,
    serial: &Serial,
    now: SystemTime,
    end: OffsetDateTime,
) -> CertificateParams {
    let mut params = params(name.to_owned(), serial, now, end);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

/// A node's certificate.
pub(crate) fn node(
    number: u64,
    serial: &Serial,
    now: SystemTime,
    end: OffsetDateTime,
) -> CertificateParams {
    let node_id = format!("ipn:{number}.0");
    let mut params = params(node_id.clone(), serial, now, end);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::Other(BUNDLE_SECURITY.to_vec()),
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    params.use_authority_key_identifier_extension = true;
    params.custom_extensions = vec![node_id_name(&node_id)];
    params
}

/// A certificate for HTTPS.
pub(crate) fn server(
    name: &str,
    alternatives: Vec<SanType>,
    serial: &Serial,
    now: SystemTime,
    end: OffsetDateTime,
) -> CertificateParams {
    let mut params = params(name.to_owned(), serial, now, end);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    params.subject_alt_names = alternatives;
    params
}

/// A SAN with the node id and nothing else. Built here, since `rcgen` writes
/// otherNames as UTF8String and RFC 9174 asks for IA5String.
fn node_id_name(node_id: &str) -> CustomExtension {
    let content = yasna::construct_der(|writer| {
        writer.write_sequence(|names| {
            // otherName [0] IMPLICIT SEQUENCE { type-id, value [0] EXPLICIT }
            names
                .next()
                .write_tagged_implicit(Tag::context(0), |writer| {
                    writer.write_sequence(|name| {
                        name.next()
                            .write_oid(&ObjectIdentifier::from_slice(BUNDLE_EID));
                        name.next().write_tagged(Tag::context(0), |writer| {
                            writer.write_ia5_string(node_id);
                        });
                    });
                });
        });
    });
    CustomExtension::from_oid_content(SUBJECT_ALT_NAME, content)
}
