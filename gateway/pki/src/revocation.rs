//! Certificate revocation lists (RFC 5280, section 5).

use std::collections::BTreeMap;
use std::path::Path;

use rcgen::{
    CertificateRevocationListParams, Issuer, KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use time::OffsetDateTime;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

use crate::error::PkiError;
use crate::serial::Serial;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RevocationList {
    /// Grows with each list.
    number: u64,
    /// When each certificate was revoked.
    pub revoked: BTreeMap<Serial, OffsetDateTime>,
}

impl RevocationList {
    /// How many lists were before it.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Reads the lists in a PEM text as one, if each is signed by one of
    /// `issuers`.
    pub fn parse(
        path: &Path,
        text: &str,
        issuers: &[CertificateDer<'_>],
    ) -> Result<Self, PkiError> {
        let malformed = |reason: String| PkiError::Malformed {
            path: path.to_owned(),
            reason,
        };
        let mut all = RevocationList::default();
        let mut lists = 0;
        for der in CertificateRevocationListDer::pem_slice_iter(text.as_bytes()) {
            let der = der.map_err(|error| malformed(error.to_string()))?;
            let (_, list) = CertificateRevocationList::from_der(&der)
                .map_err(|error| malformed(error.to_string()))?;
            if !issuers.iter().any(|issuer| is_signed_by(&list, issuer)) {
                return Err(PkiError::RevocationListSignature(path.to_owned()));
            }
            let number = list
                .crl_number()
                .and_then(|number| u64::try_from(number).ok());
            all.number = all.number.max(number.unwrap_or(0));
            for entry in list.iter_revoked_certificates() {
                let serial = Serial::from_bytes(entry.raw_serial());
                all.revoked
                    .insert(serial, entry.revocation_date.to_datetime());
            }
            lists += 1;
        }
        if lists == 0 {
            Err(malformed("it holds no list".to_owned()))
        } else {
            Ok(all)
        }
    }

    /// Signs the next list, PEM. It is good until `end`, the authority's own:
    /// lists are handed out when they change, and a node out of reach for long
    /// must not lose its peers over it.
    pub fn sign(
        &mut self,
        issuer: &Issuer<'_, KeyPair>,
        now: OffsetDateTime,
        end: OffsetDateTime,
    ) -> Result<String, PkiError> {
        self.number += 1;
        let revoked = self
            .revoked
            .iter()
            .map(|(serial, &time)| RevokedCertParams {
                serial_number: SerialNumber::from_slice(serial.as_bytes()),
                revocation_time: time,
                reason_code: None,
                invalidity_date: None,
            });
        let params = CertificateRevocationListParams {
            this_update: now,
            next_update: end,
            crl_number: SerialNumber::from(self.number),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Ok(params.signed_by(issuer)?.pem()?)
    }
}

fn is_signed_by(list: &CertificateRevocationList<'_>, issuer: &CertificateDer<'_>) -> bool {
    X509Certificate::from_der(issuer).is_ok_and(|(_, issuer)| {
        list.issuer() == issuer.subject() && list.verify_signature(issuer.public_key()).is_ok()
    })
}
