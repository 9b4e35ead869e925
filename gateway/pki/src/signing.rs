//! Certificates for keys that the nodes have made themselves.

use std::time::{Duration, SystemTime};

use rcgen::PublicKeyData;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::authority::{Authority, Issued, check_number};
use crate::certificate::CLOCK_SLACK;
use crate::credentials::read_certificates;
use crate::error::PkiError;
use crate::files::{CA_CERTIFICATE, NODE_CERTIFICATE, REVOCATION_LIST};
use crate::request::CertificateRequest;
use crate::serial::Serial;

/// What a node is given for its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// What was issued.
    pub issued: Issued,
    /// Whether it is a new certificate, and not the one that the key has.
    pub is_new: bool,
    /// The certificate, PEM.
    pub certificate: String,
    /// The authority's certificate, PEM.
    pub authority: String,
    /// The revocation list, PEM.
    pub revocations: String,
}

/// When a node asks for its next certificate: once two thirds of the time for
/// which it was issued are over.
pub fn renewal_due(not_before: SystemTime, not_after: SystemTime) -> SystemTime {
    let (issued, lasts) = issued(not_before, not_after);
    issued + lasts * 2 / 3
}

/// When a certificate was issued, and for how long.
fn issued(not_before: SystemTime, not_after: SystemTime) -> (SystemTime, Duration) {
    let issued = not_before + CLOCK_SLACK;
    (issued, not_after.duration_since(issued).unwrap_or_default())
}

/// The certificate in a node's folder.
struct Present {
    serial: Serial,
    key: Vec<u8>,
    not_before: SystemTime,
    not_after: SystemTime,
}

impl Present {
    /// Whether it is too young to be replaced. The authority's limit is earlier than
    /// [`renewal_due`], so that no clock has to be exact.
    fn is_fresh(&self, now: SystemTime) -> bool {
        let (issued, lasts) = issued(self.not_before, self.not_after);
        now < issued + lasts / 2
    }
}

impl Authority {
    /// Signs the request of a node that may be enrolled. A node whose answer
    /// was lost asks again with the same key, and is given the same
    /// certificate.
    pub fn sign(
        &mut self,
        node: u64,
        request: &CertificateRequest,
        days: u64,
        now: SystemTime,
    ) -> Result<Signed, PkiError> {
        check_number(node)?;
        if request.node != node {
            let named = request.node;
            return Err(PkiError::OtherNode { named, node });
        }
        Authority::check_enrollable(&self.dir, node)?;
        let own = self.present_of(request)?;
        if own.as_ref().is_some_and(|own| self.is_revoked(&own.serial)) {
            return Err(PkiError::NodeRevoked(node));
        }
        self.signed(request, own, days, now)
    }

    /// Signs the request of a node for the key of its present certificate. The signature of that
    /// key is the only proof of who asks; so the sender of a copied request gets a certificate that
    /// only the node can use.
    pub fn renew_by_request(
        &mut self,
        request: &CertificateRequest,
        days: u64,
        now: SystemTime,
    ) -> Result<Signed, PkiError> {
        let node = request.node;
        let own = self.present_of(request)?;
        let own = own.ok_or(PkiError::KeyUnknown(node))?;
        if self.is_revoked(&own.serial) {
            return Err(PkiError::NodeRevoked(node));
        }
        if own.not_after <= now {
            return Err(PkiError::KeyUnknown(node));
        }
        self.signed(request, Some(own), days, now)
    }

    fn signed(
        &mut self,
        request: &CertificateRequest,
        own: Option<Present>,
        days: u64,
        now: SystemTime,
    ) -> Result<Signed, PkiError> {
        let node = request.node;
        let fresh = own.filter(|own| own.is_fresh(now));
        let is_new = fresh.is_none();
        let issued = match fresh {
            None => self.certify_key(node, &request.key, None, days, now)?,
            Some(own) => Issued {
                node,
                serial: own.serial,
                not_after: own.not_after,
                dir: self.node_dir(node),
            },
        };
        let path = issued.dir.join(NODE_CERTIFICATE);
        let certificate = crate::files::read(&path)?.ok_or(PkiError::Missing(path))?;
        Ok(Signed {
            issued,
            is_new,
            certificate,
            authority: self.public_file(CA_CERTIFICATE)?,
            revocations: self.public_file(REVOCATION_LIST)?,
        })
    }

    /// The node's present certificate, if it is of the request's key.
    fn present_of(&self, request: &CertificateRequest) -> Result<Option<Present>, PkiError> {
        let path = self.node_dir(request.node).join(NODE_CERTIFICATE);
        if !path.exists() {
            return Ok(None);
        }
        let der = read_certificates(&path)?.swap_remove(0);
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|error| PkiError::Malformed {
            path,
            reason: error.to_string(),
        })?;
        let validity = parsed.validity();
        let present = Present {
            serial: Serial::from_bytes(parsed.raw_serial()),
            key: parsed.public_key().raw.to_vec(),
            not_before: validity.not_before.to_datetime().into(),
            not_after: validity.not_after.to_datetime().into(),
        };
        Ok(Some(present).filter(|own| own.key == request.key.subject_public_key_info()))
    }
}
