//! Certificate signing requests (PKCS #10, RFC 2986): a node makes its key
//! itself, and only the request leaves it.

use std::path::Path;

use rcgen::{
    CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType, DnValue,
    KeyPair, PKCS_ECDSA_P256_SHA256, PublicKey, PublicKeyData,
};
use ring::digest::{SHA256, digest};

use crate::credentials::read_key;
use crate::error::PkiError;
use crate::files::{self, Readers};

/// A request of a P-256 key has some 400 bytes.
const LARGEST_REQUEST_BYTES: usize = 8 << 10;

/// A node's key, which never leaves the node.
#[derive(Debug)]
pub struct NodeKey(KeyPair);

impl NodeKey {
    /// The key in the file `dir/name`, which is made if it is not there; on the
    /// disk when this returns, so that a request that is made again after a
    /// crash is for the same key.
    pub fn load_or_make(dir: &Path, name: &str) -> Result<Self, PkiError> {
        let path = dir.join(name);
        if !path.exists() {
            let pem = KeyPair::generate()?.serialize_pem();
            files::write(dir, name, &pem, Readers::Owner)?;
        }
        NodeKey::load(&path)
    }

    /// The key in a file.
    pub fn load(path: &Path) -> Result<Self, PkiError> {
        read_key(path).map(NodeKey)
    }

    /// A request for the certificate of `node`, signed by the key, PEM.
    pub fn request(&self, node: u64) -> Result<String, PkiError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, format!("ipn:{node}.0"));
        Ok(params.serialize_request(&self.0)?.pem()?)
    }

    /// The public key as SubjectPublicKeyInfo, DER.
    pub(crate) fn public_key_info(&self) -> Vec<u8> {
        self.0.subject_public_key_info()
    }

    /// The key itself, PEM (PKCS #8).
    pub(crate) fn pem(&self) -> String {
        self.0.serialize_pem()
    }
}

/// A node's request, whose signature shows that the sender has the key.
#[derive(Clone, Debug)]
pub struct CertificateRequest {
    /// The node that it names.
    pub node: u64,
    pub(crate) key: PublicKey,
}

impl CertificateRequest {
    /// Reads a request, PEM, and verifies its signature. What else it asks for
    /// is not looked at: the authority says what a certificate has.
    pub fn parse(pem: &str) -> Result<Self, PkiError> {
        let refused = |reason: &str| PkiError::Request(reason.to_owned());
        if pem.len() > LARGEST_REQUEST_BYTES {
            return Err(refused("it is larger than 8 KiB"));
        }
        let request = CertificateSigningRequestParams::from_pem(pem)
            .map_err(|error| PkiError::Request(error.to_string()))?;
        let key = request.public_key;
        if *key.algorithm() != PKCS_ECDSA_P256_SHA256 {
            return Err(refused("the key is not ECDSA P-256 with SHA-256"));
        }
        let name = match request.params.distinguished_name.get(&DnType::CommonName) {
            Some(DnValue::Utf8String(name)) => name.clone(),
            Some(DnValue::PrintableString(name)) => name.to_string(),
            _ => String::new(),
        };
        let number = name.strip_prefix("ipn:").and_then(|n| n.strip_suffix(".0"));
        let node = number
            .and_then(|n| n.parse().ok())
            .filter(|node| format!("ipn:{node}.0") == name)
            .ok_or_else(|| refused("its common name is no node id, as ipn:10.0"))?;
        Ok(CertificateRequest { node, key })
    }

    /// SHA-256 of the key's SubjectPublicKeyInfo, hexadecimal: whose request it
    /// is, however often it is signed anew.
    pub fn key_sha256(&self) -> String {
        sha256(&self.key.subject_public_key_info())
    }
}

/// SHA-256 of some bytes, hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    let hash = digest(&SHA256, bytes);
    hash.as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
