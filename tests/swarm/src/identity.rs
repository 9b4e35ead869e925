//! Certificates: a terminal's own, and those of a whole swarm.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::time_provider::DefaultTimeProvider;
use thiserror::Error;
use underpass_identity::{
    ClientTls, NodeCredentials, PathVerifier, TlsConfigError, UriNodeIds, VerifierError,
    client_config,
};
use underpass_pki::{Authority, Credentials, PkiError};

/// Why there is no certificate to dial with.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// The folder's files cannot be used, or the authority's cannot.
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error(transparent)]
    Verifier(#[from] VerifierError),
    /// Certificate and key are not fit for TLS.
    #[error(transparent)]
    Tls(#[from] TlsConfigError),
}

/// TLS for dialling as `node`, with what the authority in `pki` has issued.
pub fn client(pki: &Path, node: u64) -> Result<ClientTls, IdentityError> {
    let credentials = Credentials::load(&pki.join("nodes").join(node.to_string()))?;
    let verifier = PathVerifier::new(&credentials.roots, Arc::new(|_: &[u8]| false))?;
    let own = NodeCredentials {
        chain: credentials.chain,
        key: credentials.key,
    };
    let config = client_config(Arc::new(verifier), own, Arc::new(DefaultTimeProvider))?;
    let revoked = Arc::new(|_: &[u8]| false);
    Ok(ClientTls::fixed(config, UriNodeIds::Ignored, revoked))
}

/// Makes an authority in `pki` and issues certificates for `nodes`.
pub fn issue(pki: &Path, nodes: impl Iterator<Item = u64>) -> Result<(), IdentityError> {
    let now = SystemTime::now();
    let mut authority = Authority::init(pki, "swarm", Authority::VALIDITY_DAYS, now)?;
    for node in nodes {
        authority.issue(node, Authority::NODE_VALIDITY_DAYS, now)?;
    }
    Ok(())
}
