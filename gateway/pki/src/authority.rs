//! The authority: one verb of `underpass pki` per method.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::fcntl::Flock;
use rcgen::{Issuer, KeyPair, PublicKeyData};
use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::certificate;
use crate::credentials::{read_certificates, read_key, serial_and_end};
use crate::error::PkiError;
use crate::files::{
    self, CA_CERTIFICATE, CA_KEY, NODE_CERTIFICATE, NODE_KEY, REVOCATION_LIST, Readers,
};
use crate::issued::{Entry, Record};
use crate::revocation::RevocationList;
use crate::serial::Serial;

const NODES: &str = "nodes";

/// Which key a renewed certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewKey {
    /// The node's present key.
    Keep,
    /// A new key.
    New,
}

/// A certificate that was issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// The node's number.
    pub node: u64,
    /// The certificate's serial number.
    pub serial: Serial,
    /// The end of its validity.
    pub not_after: SystemTime,
    /// The folder with all that the node needs.
    pub dir: PathBuf,
}

/// An open authority; while it is open, no other process can open it.
#[derive(Debug)]
pub struct Authority {
    pub(crate) dir: PathBuf,
    pub(crate) issuer: Issuer<'static, KeyPair>,
    pub(crate) not_after: OffsetDateTime,
    revocations: RevocationList,
    /// Held until the authority is dropped.
    _lock: Flock<File>,
}

impl Authority {
    /// The validity of an authority's certificate if none is asked for, days.
    pub const VALIDITY_DAYS: u64 = 3_650;
    /// The validity of a node's certificate if none is asked for, days.
    pub const NODE_VALIDITY_DAYS: u64 = 365;

    /// Makes an authority called `name` in `dir`.
    pub fn init(dir: &Path, name: &str, days: u64, now: SystemTime) -> Result<Self, PkiError> {
        let not_after = certificate::end(now, days)?;
        files::make_dir(dir)?;
        let _lock = files::lock(dir)?;
        if dir.join(CA_KEY).exists() || dir.join(CA_CERTIFICATE).exists() {
            return Err(PkiError::AuthorityExists(dir.to_owned()));
        }
        let key = KeyPair::generate()?;
        let params = certificate::authority(name, &Serial::random()?, now, not_after);
        let certificate = params.self_signed(&key)?;
        let key_pem = key.serialize_pem();
        let list =
            RevocationList::default().sign(&Issuer::new(params, key), now.into(), not_after)?;
        files::write(dir, REVOCATION_LIST, &list, Readers::Everybody)?;
        files::write(dir, CA_CERTIFICATE, &certificate.pem(), Readers::Everybody)?;
        // The key is written last: with it the authority is complete.
        files::write(dir, CA_KEY, &key_pem, Readers::Owner)?;
        Self::open_locked(dir, _lock)
    }

    /// Makes an authority in `dir` of a certificate and a key that another one
    /// has issued, PEM each: nodes trust that certificate, and need no other.
    ///
    /// # Errors
    /// When they do not belong together, or may not sign certificates and
    /// revocation lists.
    pub fn adopt(
        dir: &Path,
        certificate_file: &Path,
        key_file: &Path,
        now: SystemTime,
    ) -> Result<Self, PkiError> {
        let certificate = read_certificates(certificate_file)?.swap_remove(0);
        let key = read_key(key_file)?;
        check_authority(certificate_file, &certificate, &key)?;
        let (_, not_after) = serial_and_end(certificate_file, &certificate)?;
        let key_pem = key.serialize_pem();
        let certificate_pem = first_certificate(certificate_file)?;
        files::make_dir(dir)?;
        let lock = files::lock(dir)?;
        if dir.join(CA_KEY).exists() || dir.join(CA_CERTIFICATE).exists() {
            return Err(PkiError::AuthorityExists(dir.to_owned()));
        }
        let issuer = Issuer::from_ca_cert_der(&certificate, key)?;
        let list = RevocationList::default().sign(&issuer, now.into(), not_after)?;
        files::write(dir, REVOCATION_LIST, &list, Readers::Everybody)?;
        files::write(dir, CA_CERTIFICATE, &certificate_pem, Readers::Everybody)?;
        files::write(dir, CA_KEY, &key_pem, Readers::Owner)?;
        Self::open_locked(dir, lock)
    }

    /// Opens the authority in `dir`.
    pub fn open(dir: &Path) -> Result<Self, PkiError> {
        if !dir.join(CA_KEY).exists() {
            return Err(PkiError::NoAuthority(dir.to_owned()));
        }
        Self::open_locked(dir, files::lock(dir)?)
    }

    /// Refuses the number of a node whose key was made in `dir`: a node may be running from that
    /// folder.
    pub fn check_enrollable(dir: &Path, node: u64) -> Result<(), PkiError> {
        let key = dir.join(NODES).join(node.to_string()).join(NODE_KEY);
        if key.exists() {
            return Err(PkiError::KeyHere(key));
        }
        Ok(())
    }

    fn open_locked(dir: &Path, lock: Flock<File>) -> Result<Self, PkiError> {
        let path = dir.join(CA_CERTIFICATE);
        let certificate = read_certificates(&path)?.swap_remove(0);
        let (_, not_after) = serial_and_end(&path, &certificate)?;
        let key = read_key(&dir.join(CA_KEY))?;
        let issuer = Issuer::from_ca_cert_der(&certificate, key)?;
        let path = dir.join(REVOCATION_LIST);
        let list = files::read(&path)?.ok_or_else(|| PkiError::Missing(path.clone()))?;
        let issuers = std::slice::from_ref(&certificate);
        let revocations = RevocationList::parse(&path, &list, issuers)?;
        let dir = dir.to_owned();
        Ok(Authority {
            dir,
            issuer,
            not_after,
            revocations,
            _lock: lock,
        })
    }

    /// Makes a key and a certificate for a node that has none, or whose
    /// certificate is revoked. It ends with the authority's if `days` are more.
    pub fn issue(&mut self, node: u64, days: u64, now: SystemTime) -> Result<Issued, PkiError> {
        check_number(node)?;
        let present = self.present(node)?;
        if present.is_some_and(|serial| !self.revocations.revoked.contains_key(&serial)) {
            return Err(PkiError::AlreadyIssued(node));
        }
        self.certify(node, RenewKey::New, days, now)
    }

    /// Makes a new certificate for a node that has one. The old one remains
    /// good until its end.
    pub fn renew(
        &mut self,
        node: u64,
        key: RenewKey,
        days: u64,
        now: SystemTime,
    ) -> Result<Issued, PkiError> {
        let present = self.present(node)?.ok_or(PkiError::NotIssued(node))?;
        if self.revocations.revoked.contains_key(&present) {
            return Err(PkiError::NodeRevoked(node));
        }
        self.certify(node, key, days, now)
    }

    /// Revokes every certificate of a node that has not ended, and brings the
    /// revocation list in all nodes' folders up to date. Returns the serial
    /// numbers that were added.
    pub fn revoke(&mut self, node: u64, now: SystemTime) -> Result<Vec<Serial>, PkiError> {
        let record = Record::load(&self.dir)?;
        let last = record
            .of(node)
            .next_back()
            .ok_or(PkiError::NotIssued(node))?
            .serial
            .clone();
        let time = OffsetDateTime::from(now);
        let live = record.of(node).filter(|entry| entry.not_after > time);
        let added: Vec<Serial> = live
            .map(|entry| entry.serial.clone())
            .filter(|serial| !self.revocations.revoked.contains_key(serial))
            .collect();
        if !added.is_empty() {
            let mut revocations = self.revocations.clone();
            revocations
                .revoked
                .extend(added.iter().map(|serial| (serial.clone(), time)));
            let list = revocations.sign(&self.issuer, time, self.not_after)?;
            files::write(&self.dir, REVOCATION_LIST, &list, Readers::Everybody)?;
            self.revocations = revocations;
        }
        // Also if nothing is new: an earlier run may have been interrupted.
        for folder in files::folders(&self.dir.join(NODES))? {
            self.copy(REVOCATION_LIST, &folder)?;
        }
        if added.is_empty() {
            Err(PkiError::AlreadyRevoked { node, last })
        } else {
            Ok(added)
        }
    }

    /// The serial number of the certificate in a node's folder.
    pub(crate) fn present(&self, node: u64) -> Result<Option<Serial>, PkiError> {
        let path = self.node_dir(node).join(NODE_CERTIFICATE);
        if !path.exists() {
            return Ok(None);
        }
        let certificates = read_certificates(&path)?;
        Ok(Some(serial_and_end(&path, &certificates[0])?.0))
    }

    pub(crate) fn node_dir(&self, node: u64) -> PathBuf {
        self.dir.join(NODES).join(node.to_string())
    }

    pub(crate) fn is_revoked(&self, serial: &Serial) -> bool {
        self.revocations.revoked.contains_key(serial)
    }

    /// A file of the authority, as it is given to nodes.
    pub(crate) fn public_file(&self, name: &str) -> Result<String, PkiError> {
        let path = self.dir.join(name);
        files::read(&path)?.ok_or(PkiError::Missing(path))
    }

    fn certify(
        &mut self,
        node: u64,
        key: RenewKey,
        days: u64,
        now: SystemTime,
    ) -> Result<Issued, PkiError> {
        let dir = self.node_dir(node);
        let pair = match key {
            RenewKey::Keep => read_key(&dir.join(NODE_KEY))?,
            RenewKey::New => KeyPair::generate()?,
        };
        let pem = (key == RenewKey::New).then(|| pair.serialize_pem());
        self.certify_key(node, &pair, pem, days, now)
    }

    /// Makes a certificate for a key, and puts it into the node's folder; the
    /// private key `pem` as well, if it is given.
    pub(crate) fn certify_key(
        &mut self,
        node: u64,
        key: &impl PublicKeyData,
        pem: Option<String>,
        days: u64,
        now: SystemTime,
    ) -> Result<Issued, PkiError> {
        let not_after = certificate::end(now, days)?.min(self.not_after);
        if not_after <= OffsetDateTime::from(now) {
            return Err(PkiError::AuthorityEnded);
        }
        let dir = self.node_dir(node);
        files::make_dir(&dir)?;
        let serial = Serial::random()?;
        let params = certificate::node(node, &serial, now, not_after);
        let certificate = params.signed_by(key, &self.issuer)?;
        let mut record = Record::load(&self.dir)?;
        record.add(Entry {
            node,
            serial: serial.clone(),
            not_after,
        });
        record.store(&self.dir)?;
        self.copy(CA_CERTIFICATE, &dir)?;
        self.copy(REVOCATION_LIST, &dir)?;
        if let Some(pem) = pem {
            files::write(&dir, NODE_KEY, &pem, Readers::Owner)?;
        }
        files::write(
            &dir,
            NODE_CERTIFICATE,
            &certificate.pem(),
            Readers::Everybody,
        )?;
        Ok(Issued {
            node,
            serial,
            not_after: not_after.into(),
            dir,
        })
    }

    fn copy(&self, name: &str, to: &Path) -> Result<(), PkiError> {
        files::write(to, name, &self.public_file(name)?, Readers::Everybody)
    }
}

/// The text of a file's first certificate: nodes are to trust no other one.
fn first_certificate(path: &Path) -> Result<String, PkiError> {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let missing = || PkiError::Missing(path.to_owned());
    let text = files::read(path)?.ok_or_else(missing)?;
    let begin = text.find(BEGIN).ok_or_else(missing)?;
    let length = text[begin..].find(END).ok_or_else(missing)? + END.len();
    Ok(format!("{}\n", &text[begin..begin + length]))
}

/// Whether a certificate is the key's, and may sign what an authority signs.
fn check_authority(
    path: &Path,
    certificate: &CertificateDer<'_>,
    key: &KeyPair,
) -> Result<(), PkiError> {
    let unusable = |reason: String| PkiError::Malformed {
        path: path.to_owned(),
        reason,
    };
    let (_, parsed) =
        X509Certificate::from_der(certificate).map_err(|error| unusable(error.to_string()))?;
    if parsed.public_key().raw != key.subject_public_key_info() {
        return Err(unusable("it is of another key".to_owned()));
    }
    let usage = parsed.key_usage().ok().flatten();
    let may_sign = usage.is_some_and(|usage| usage.value.key_cert_sign() && usage.value.crl_sign());
    if !parsed.is_ca() || !may_sign {
        let reason = "it is no authority that may sign certificates and revocation lists";
        return Err(unusable(reason.to_owned()));
    }
    Ok(())
}

pub(crate) fn check_number(node: u64) -> Result<(), PkiError> {
    if node == 0 || node == u64::from(u32::MAX) {
        return Err(PkiError::NodeNumber(node));
    }
    Ok(())
}
