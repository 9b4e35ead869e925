//! By what the service's certificate is judged.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper_rustls::ConfigBuilderExt;
use ring::digest::{SHA256, digest};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::service::ConfigError;

/// Whom a service's certificate must come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The system's authorities.
    System,
    /// The authorities in a file, PEM.
    File(PathBuf),
    /// The certificate with this SHA-256, which the service shows: its own, or
    /// that of an authority in its chain.
    Fingerprint([u8; 32]),
}

impl Trust {
    /// TLS that is judged so; `needed` is false where there is none.
    pub(crate) fn client_config(&self, needed: bool) -> Result<ClientConfig, ConfigError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone());
        let config = config.with_safe_default_protocol_versions()?;
        let config = match self {
            Trust::File(path) => config.with_root_certificates(authorities(path)?),
            Trust::Fingerprint(sha256) => {
                let verifier = Pinned {
                    sha256: *sha256,
                    provider,
                };
                let config = config.dangerous();
                config.with_custom_certificate_verifier(Arc::new(verifier))
            }
            Trust::System if needed => config
                .with_native_roots()
                .map_err(ConfigError::NoAuthorities)?,
            Trust::System => config.with_root_certificates(RootCertStore::empty()),
        };
        Ok(config.with_no_client_auth())
    }
}

fn authorities(path: &Path) -> Result<RootCertStore, ConfigError> {
    let failed = |reason: String| ConfigError::Authorities {
        path: path.to_owned(),
        reason,
    };
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(path);
    for certificate in certificates.map_err(|error| failed(error.to_string()))? {
        let certificate = certificate.map_err(|error| failed(error.to_string()))?;
        let added = roots.add(certificate);
        added.map_err(|error| failed(error.to_string()))?;
    }
    match roots.is_empty() {
        true => Err(failed("holds no certificate".to_owned())),
        false => Ok(roots),
    }
}

const NOT_SHOWN: &str = "no certificate that the server shows has the expected fingerprint: it is another server, or somebody is in between; it was told nothing";

/// Trusts one certificate, known by its fingerprint, and what it has signed.
#[derive(Debug)]
struct Pinned {
    sha256: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    fn is_it(&self, certificate: &CertificateDer<'_>) -> bool {
        digest(&SHA256, certificate).as_ref() == self.sha256
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The server itself is known: the handshake shows that it has the key.
        if self.is_it(end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        let authority = intermediates.iter().find(|one| self.is_it(one));
        let authority = authority.ok_or_else(|| Error::General(NOT_SHOWN.to_owned()))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
            .build()
            .map_err(|error| Error::General(error.to_string()))?
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
