//! Path validation against private roots, without a host name.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use thiserror::Error as ThisError;
use tracing::warn;
use webpki::{EndEntityCert, KeyUsage};

use super::certificate::without_leading_zeros;

/// `id-kp-bundleSecurity`, 1.3.6.1.5.5.7.3.35, as DER content bytes. A
/// certificate that restricts its use must allow this one (RFC 9174, 4.4.2).
pub const BUNDLE_SECURITY_EKU: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 35];

/// Whether the certificate with this serial number (big-endian, without
/// leading zeros) is revoked.
pub type IsRevoked = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// Why no verifier can be made.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum VerifierError {
    /// There is nothing to trust.
    #[error("no trusted root certificate is given")]
    NoRoots,
    /// A root cannot be used.
    #[error("a root certificate cannot be used: {0}")]
    BadRoot(String),
}

/// Checks chain, validity, use and revocation of the certificates of either
/// side.
pub struct PathVerifier {
    roots: Vec<TrustAnchor<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
    is_revoked: IsRevoked,
}

impl PathVerifier {
    /// A verifier that trusts `roots`, self-signed certificates.
    pub fn new(roots: &[CertificateDer<'_>], is_revoked: IsRevoked) -> Result<Self, VerifierError> {
        let anchor = |root| match webpki::anchor_from_trusted_cert(root) {
            Ok(anchor) => Ok(anchor.to_owned()),
            Err(error) => Err(VerifierError::BadRoot(error.to_string())),
        };
        let roots = roots.iter().map(anchor).collect::<Result<Vec<_>, _>>()?;
        if roots.is_empty() {
            return Err(VerifierError::NoRoots);
        }
        let provider = rustls::crypto::ring::default_provider();
        Ok(Self {
            roots,
            algorithms: provider.signature_verification_algorithms,
            is_revoked,
        })
    }

    fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let certificate = EndEntityCert::try_from(end_entity).map_err(|error| refused(&error))?;
        let path = certificate
            .verify_for_usage(
                self.algorithms.all,
                &self.roots,
                intermediates,
                now,
                KeyUsage::required_if_present(BUNDLE_SECURITY_EKU),
                None,
                None,
            )
            .map_err(|error| refused(&error))?;
        let revoked = |serial: &[u8]| (self.is_revoked)(without_leading_zeros(serial));
        let mut issuers = path.intermediate_certificates();
        if revoked(certificate.serial()) || issuers.any(|issuer| revoked(issuer.serial())) {
            return Err(refused(&"it or its issuer's is revoked"));
        }
        Ok(())
    }
}

/// An invalid path must end the handshake with the alert `bad_certificate` (RFC 9174, 4.4.4).
/// rustls derives the alert from the error, and this error leads to it; the reason itself is only
/// logged.
fn refused(reason: &dyn fmt::Display) -> Error {
    warn!(%reason, "the peer's certificate is refused");
    CertificateError::BadEncoding.into()
}

impl fmt::Debug for PathVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathVerifier")
            .field("roots", &self.roots.len())
            .finish_non_exhaustive()
    }
}

impl ServerCertVerifier for PathVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify(end_entity, intermediates, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3 is spoken here".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for PathVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verify(end_entity, intermediates, now)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ServerCertVerifier::verify_tls12_signature(self, message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
