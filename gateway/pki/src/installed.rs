//! A node's own folder, filled with what its authority has delivered.

use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::credentials::{Credentials, read_certificates};
use crate::error::PkiError;
use crate::files::{self, CA_CERTIFICATE, NODE_CERTIFICATE, NODE_KEY, REVOCATION_LIST, Readers};
use crate::request::NodeKey;
use crate::revocation::RevocationList;

/// What an authority gives a node for its request, PEM each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The node's certificate.
    pub certificate: String,
    /// The authority's certificate.
    pub authority: String,
    /// The authority's revocation list.
    pub revocations: String,
}

/// Puts a node's key and what was delivered for it into the folder `dir`, once
/// all of it is known to fit together; else nothing is written. What was cut
/// short is completed by the same call. A folder with another key is
/// left alone unless `replace` is set.
///
/// # Errors
/// When the delivered is not for the node or the key, or cannot be written.
pub fn install(
    dir: &Path,
    node: u64,
    key: &NodeKey,
    delivered: &Delivered,
    replace: bool,
) -> Result<Credentials, PkiError> {
    check(dir, node, key, delivered)?;
    let key = key.pem();
    let path = dir.join(NODE_KEY);
    if !replace && files::read(&path)?.is_some_and(|other| other != key) {
        return Err(PkiError::InTheWay(path));
    }
    files::make_dir(dir)?;
    write(dir, &key, delivered)?;
    Credentials::load(dir)
}

/// Replaces the revocation list in a node's folder, if the given one is signed
/// by the node's authority and newer. Returns whether it was.
///
/// # Errors
/// When it is malformed or signed by somebody else.
pub fn replace_revocation_list(dir: &Path, text: &str) -> Result<bool, PkiError> {
    let path = dir.join(REVOCATION_LIST);
    let issuers = read_certificates(&dir.join(CA_CERTIFICATE))?;
    let given = RevocationList::parse(&path, text, &issuers)?;
    if let Some(present) = files::read(&path)? {
        // One that is broken is mended.
        let present = RevocationList::parse(&path, &present, &issuers);
        if present.is_ok_and(|present| present.number() >= given.number()) {
            return Ok(false);
        }
    }
    files::write(dir, REVOCATION_LIST, text, Readers::Everybody)?;
    Ok(true)
}

/// The certificate last: until it is there, the folder is incomplete and not
/// half new.
fn write(dir: &Path, key: &str, delivered: &Delivered) -> Result<(), PkiError> {
    let open = Readers::Everybody;
    files::write(dir, CA_CERTIFICATE, &delivered.authority, open)?;
    files::write(dir, REVOCATION_LIST, &delivered.revocations, open)?;
    files::write(dir, NODE_KEY, key, Readers::Owner)?;
    files::write(dir, NODE_CERTIFICATE, &delivered.certificate, open)
}

/// Whether the certificate is the node's and the key's, and all is signed by the
/// authority.
fn check(dir: &Path, node: u64, key: &NodeKey, delivered: &Delivered) -> Result<(), PkiError> {
    let wrong = |what, reason: &str| PkiError::Delivered {
        what,
        reason: reason.to_owned(),
    };
    let der = |what, text: &str| {
        CertificateDer::from_pem_slice(text.as_bytes())
            .map_err(|error| wrong(what, &error.to_string()))
    };
    let own = der("certificate", &delivered.certificate)?;
    let authority_der = der("authority", &delivered.authority)?;
    let (_, own) = X509Certificate::from_der(&own)
        .map_err(|error| wrong("certificate", &error.to_string()))?;
    let (_, authority) = X509Certificate::from_der(&authority_der)
        .map_err(|error| wrong("authority", &error.to_string()))?;
    let name = own.subject().iter_common_name().next();
    let name = name.and_then(|name| name.as_str().ok());
    if name != Some(format!("ipn:{node}.0").as_str()) {
        let reason = format!("it is of {}, not of ipn:{node}.0", name.unwrap_or("nobody"));
        return Err(wrong("certificate", &reason));
    }
    if own.public_key().raw != key.public_key_info() {
        return Err(wrong("certificate", "it is of another key"));
    }
    let issuers = std::slice::from_ref(&authority_der);
    let list = dir.join(REVOCATION_LIST);
    RevocationList::parse(&list, &delivered.revocations, issuers)
        .map_err(|error| wrong("revocations", &error.to_string()))?;
    let is_signed = own.issuer() == authority.subject()
        && own.verify_signature(Some(authority.public_key())).is_ok();
    match is_signed {
        true => Ok(()),
        false => Err(wrong("certificate", "the authority has not signed it")),
    }
}
