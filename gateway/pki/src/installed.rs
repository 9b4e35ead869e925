//! A node's own folder, filled with what its authority has delivered.

use std::path::Path;
use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::credentials::{Credentials, read_certificates};
use crate::error::PkiError;
use crate::files::{self, CA_CERTIFICATE, NODE_CERTIFICATE, NODE_KEY, REVOCATION_LIST, Readers};
use crate::request::{NodeKey, sha256};
use crate::revocation::RevocationList;

/// What an authority gives a node for its request, PEM each.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Delivered {
    /// The node's certificate.
    pub certificate: String,
    /// The authority's certificate.
    pub authority: String,
    /// The authority's revocation list.
    pub revocations: String,
}

/// Writes a node's key and what was delivered for it to the folder `dir`, after checking that all
/// of it fits together; otherwise writes nothing. The same call completes an interrupted one. A
/// folder with another key, or that trusts another authority, is not changed unless `replace` is
/// set. A revocation list that is newer than the delivered one stays.
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
    if !replace {
        check_same_authority(dir, &delivered.authority)?;
    }
    files::make_dir(dir)?;
    write(dir, &key, delivered)?;
    Credentials::load(dir)
}

/// Puts a certificate that continues the present one into a node's folder, as [`install`] does. A
/// late or repeated one changes nothing: the one that ends later stays. Returns whether it was
/// taken.
///
/// # Errors
/// When the delivered is not for the node or the key of the folder, or cannot
/// be written.
pub fn continue_with(dir: &Path, node: u64, delivered: &Delivered) -> Result<bool, PkiError> {
    let key = NodeKey::load(&dir.join(NODE_KEY))?;
    let present = Credentials::load(dir)?;
    let not_after = check(dir, node, &key, delivered)?;
    if not_after <= present.not_after {
        return Ok(false);
    }
    install(dir, node, &key, delivered, false)?;
    Ok(true)
}

/// The revocation list in a node's folder, PEM, and its SHA-256, hexadecimal;
/// `None` if there is none.
///
/// # Errors
/// When it cannot be read.
pub fn revocation_list(dir: &Path) -> Result<Option<(String, String)>, PkiError> {
    let text = files::read(&dir.join(REVOCATION_LIST))?;
    Ok(text.map(|text| {
        let digest = sha256(text.as_bytes());
        (text, digest)
    }))
}

/// Replaces the revocation list in a node's folder, if the given one is signed
/// by the node's authority and newer. Returns whether it was.
///
/// # Errors
/// When it is malformed or signed by somebody else.
pub fn replace_revocation_list(dir: &Path, text: &str) -> Result<bool, PkiError> {
    let issuers = read_certificates(&dir.join(CA_CERTIFICATE))?;
    let is_newer = is_newer_list(dir, text, &issuers)?;
    if is_newer {
        files::write(dir, REVOCATION_LIST, text, Readers::Everybody)?;
    }
    Ok(is_newer)
}

/// Whether a list is newer than the folder's of the same authority.
fn is_newer_list(dir: &Path, text: &str, issuers: &[CertificateDer<'_>]) -> Result<bool, PkiError> {
    let path = dir.join(REVOCATION_LIST);
    let given = RevocationList::parse(&path, text, issuers)?;
    let Some(present) = files::read(&path)? else {
        return Ok(true);
    };
    // A damaged list is replaced.
    let present = RevocationList::parse(&path, &present, issuers);
    Ok(present.map_or(true, |present| given.number() > present.number()))
}

/// The certificate is written last: until then, the folder is incomplete, but never a mix of old
/// and new.
fn write(dir: &Path, key: &str, delivered: &Delivered) -> Result<(), PkiError> {
    let open = Readers::Everybody;
    let issuer = certificate("authority", &delivered.authority)?;
    files::write(dir, CA_CERTIFICATE, &delivered.authority, open)?;
    if is_newer_list(dir, &delivered.revocations, &[issuer])? {
        files::write(dir, REVOCATION_LIST, &delivered.revocations, open)?;
    }
    files::write(dir, NODE_KEY, key, Readers::Owner)?;
    files::write(dir, NODE_CERTIFICATE, &delivered.certificate, open)
}

fn wrong(what: &'static str, reason: &str) -> PkiError {
    PkiError::Delivered {
        what,
        reason: reason.to_owned(),
    }
}

fn certificate(what: &'static str, text: &str) -> Result<CertificateDer<'static>, PkiError> {
    let all = CertificateDer::pem_slice_iter(text.as_bytes());
    let all: Result<Vec<_>, _> = all.collect();
    let mut all = all.map_err(|error| wrong(what, &error.to_string()))?;
    match (all.pop(), all.is_empty()) {
        (Some(one), true) => Ok(one),
        (None, _) => Err(wrong(what, "it holds no certificate")),
        _ => Err(wrong(what, "it holds more than one certificate")),
    }
}

/// Checks that a node's folder trusts no other authority than this one: whoever answers a renewal
/// must not choose whom the node trusts. The authority's certificate may be a later one for the
/// same name and key.
fn check_same_authority(dir: &Path, authority: &str) -> Result<(), PkiError> {
    let path = dir.join(CA_CERTIFICATE);
    if !path.exists() {
        return Ok(());
    }
    let given = certificate("authority", authority)?;
    let (_, given) = X509Certificate::from_der(&given)
        .map_err(|error| wrong("authority", &error.to_string()))?;
    let is_same = |present: &CertificateDer<'_>| {
        X509Certificate::from_der(present).is_ok_and(|(_, present)| {
            present.subject() == given.subject() && present.public_key() == given.public_key()
        })
    };
    match read_certificates(&path)?.iter().any(is_same) {
        true => Ok(()),
        false => Err(wrong(
            "authority",
            "it is another one than this node trusts; enrol the node again with --force",
        )),
    }
}

/// Makes sure that the certificate is the node's and the key's, and all is
/// signed by the authority. Returns the certificate's end.
fn check(
    dir: &Path,
    node: u64,
    key: &NodeKey,
    delivered: &Delivered,
) -> Result<SystemTime, PkiError> {
    let own = certificate("certificate", &delivered.certificate)?;
    let authority_der = certificate("authority", &delivered.authority)?;
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
        true => Ok(own.validity().not_after.to_datetime().into()),
        false => Err(wrong("certificate", "the authority has not signed it")),
    }
}
