//! What a node loads to authenticate itself and its peers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rcgen::{KeyPair, PublicKeyData};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use time::OffsetDateTime;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::error::PkiError;
use crate::files::{self, CA_CERTIFICATE, NODE_CERTIFICATE, NODE_KEY, REVOCATION_LIST};
use crate::fingerprint::Fingerprint;
use crate::revocation::RevocationList;
use crate::serial::Serial;

/// A node's certificate and key, its trusted authorities, and the revoked certificates.
#[derive(Debug)]
pub struct Credentials {
    /// The node's chain, its own certificate first.
    pub chain: Vec<CertificateDer<'static>>,
    /// The key of the first certificate.
    pub key: PrivateKeyDer<'static>,
    /// The authorities that it trusts.
    pub roots: Vec<CertificateDer<'static>>,
    /// Serial numbers of revoked certificates.
    pub revoked: BTreeSet<Serial>,
    /// The beginning of the node's own certificate: it is later by now.
    pub not_before: SystemTime,
    /// The end of the node's own certificate.
    pub not_after: SystemTime,
    /// The state of the folder when it was read; if that has changed, load it again.
    pub fingerprint: Fingerprint,
}

impl Credentials {
    /// Loads a node's folder: `node.crt`, `node.key`, `ca.crt`, `ca.crl`, all PEM. Checks that
    /// certificate and key belong together: during a renewal they may not, and the next attempt
    /// succeeds.
    pub fn load(dir: &Path) -> Result<Self, PkiError> {
        // Taken first: a change in the meantime leads to one load too many,
        // not to one too few.
        let fingerprint = Fingerprint::of(dir);
        let chain = read_certificates(&dir.join(NODE_CERTIFICATE))?;
        let roots = read_certificates(&dir.join(CA_CERTIFICATE))?;
        let key_pair = read_key(&dir.join(NODE_KEY))?;
        let (not_before, not_after) = check_pair(dir, &chain[0], &key_pair)?;
        let list_path = dir.join(REVOCATION_LIST);
        let list = require(&list_path)?;
        let issuers = [&roots[..], &chain[1..]].concat();
        let list = RevocationList::parse(&list_path, &list, &issuers)?;
        Ok(Credentials {
            chain,
            key: PrivateKeyDer::try_from(key_pair.serialize_der())
                .map_err(|reason| malformed(dir.join(NODE_KEY), reason))?,
            roots,
            revoked: list.revoked.into_keys().collect(),
            not_before: not_before.into(),
            not_after: not_after.into(),
            fingerprint,
        })
    }

    /// Whether the certificate with this serial number (big-endian, with or
    /// without leading zeros) is revoked.
    pub fn is_revoked(&self, serial: &[u8]) -> bool {
        self.revoked.contains(&Serial::from_bytes(serial))
    }
}

fn malformed(path: PathBuf, reason: impl ToString) -> PkiError {
    PkiError::Malformed {
        path,
        reason: reason.to_string(),
    }
}

fn require(path: &Path) -> Result<String, PkiError> {
    files::read(path)?.ok_or_else(|| PkiError::Missing(path.to_owned()))
}

/// Certificates of a PEM file, at least one.
pub(crate) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, PkiError> {
    let text = require(path)?;
    let certificates = CertificateDer::pem_slice_iter(text.as_bytes());
    let certificates: Vec<_> = certificates
        .collect::<Result<_, _>>()
        .map_err(|error| malformed(path.into(), error))?;
    if certificates.is_empty() {
        return Err(malformed(path.into(), "it holds no certificate"));
    }
    Ok(certificates)
}

/// A private key that not everybody can read.
pub(crate) fn read_key(path: &Path) -> Result<KeyPair, PkiError> {
    let text = require(path)?;
    files::require_private(path)?;
    KeyPair::from_pem(&text).map_err(|error| malformed(path.into(), error))
}

/// Serial number and end of a certificate.
pub(crate) fn serial_and_end(
    path: &Path,
    certificate: &CertificateDer<'_>,
) -> Result<(Serial, OffsetDateTime), PkiError> {
    let (_, parsed) = X509Certificate::from_der(certificate)
        .map_err(|error| malformed(path.to_owned(), error))?;
    let end = parsed.validity().not_after.to_datetime();
    Ok((Serial::from_bytes(parsed.raw_serial()), end))
}

/// Checks that the key is the certificate's, and returns the certificate's end.
fn check_pair(
    dir: &Path,
    certificate: &CertificateDer<'_>,
    key: &KeyPair,
) -> Result<(OffsetDateTime, OffsetDateTime), PkiError> {
    let path = dir.join(NODE_CERTIFICATE);
    let (_, parsed) =
        X509Certificate::from_der(certificate).map_err(|error| malformed(path, error))?;
    if parsed.public_key().raw != key.subject_public_key_info() {
        return Err(PkiError::Mismatch(dir.join(NODE_KEY)));
    }
    let validity = parsed.validity();
    Ok((
        validity.not_before.to_datetime(),
        validity.not_after.to_datetime(),
    ))
}
