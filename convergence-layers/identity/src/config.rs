//! rustls configurations for both sides: TLS 1.3 only, both sides present a
//! certificate, no resumption.

use std::fmt;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::time_provider::TimeProvider;
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};
use thiserror::Error;

use crate::{IsRevoked, PathVerifier, UriNodeIds};

/// Our certificate chain, leaf first, and its key.
#[derive(Debug)]
pub struct NodeCredentials {
    /// The chain, leaf first.
    pub chain: Vec<CertificateDer<'static>>,
    /// The leaf's private key.
    pub key: PrivateKeyDer<'static>,
}

/// Why no configuration can be made.
#[derive(Debug, Error)]
pub enum TlsConfigError {
    /// Certificate and key do not fit, or are of no usable kind.
    #[error("certificate or key cannot be used: {0}")]
    Credentials(#[from] rustls::Error),
}

/// TLS of one side. The source is asked for each connection, so that renewed certificates
/// are used without a restart.
#[derive(Clone)]
pub struct Tls<C> {
    /// Gives the configuration at present.
    pub source: Arc<dyn Fn() -> Arc<C> + Send + Sync>,
    /// Whether node ids in URIs count.
    pub uris: UriNodeIds,
    /// Asked once more when the session is registered, so that a revocation
    /// during the handshake is not missed.
    pub is_revoked: IsRevoked,
}

/// TLS of a side that dials.
pub type ClientTls = Tls<ClientConfig>;
/// TLS of a side that listens.
pub type ServerTls = Tls<ServerConfig>;

impl<C: Send + Sync + 'static> Tls<C> {
    /// With a configuration that stays as it is.
    pub fn fixed(config: C, uris: UriNodeIds, is_revoked: IsRevoked) -> Self {
        let config = Arc::new(config);
        Self {
            source: Arc::new(move || config.clone()),
            uris,
            is_revoked,
        }
    }
}

impl<C> fmt::Debug for Tls<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// The configuration of a side that dials. A resumed handshake would skip the
/// check of the chain, of its dates and of its issuers' revocation, so there is none.
/// Certificates' dates are judged by `time`.
pub fn client_config(
    verifier: Arc<PathVerifier>,
    credentials: NodeCredentials,
    time: Arc<dyn TimeProvider>,
) -> Result<ClientConfig, TlsConfigError> {
    let mut config = ClientConfig::builder_with_details(default_provider().into(), time)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(credentials.chain, credentials.key)?;
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(config)
}

/// The configuration of a side that listens; it requires a certificate of the
/// peer. Its dates are judged by `time`.
pub fn server_config(
    verifier: Arc<PathVerifier>,
    credentials: NodeCredentials,
    time: Arc<dyn TimeProvider>,
) -> Result<ServerConfig, TlsConfigError> {
    let mut config = ServerConfig::builder_with_details(default_provider().into(), time)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(credentials.chain, credentials.key)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}
