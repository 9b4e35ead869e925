//! TLS of the sessions, from the node's folder of the private authority, and
//! read anew when that changes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rustls::{ClientConfig, ServerConfig};
use thiserror::Error;
use underpass_pki::{Credentials, PkiError};
use underpass_tcpcl::tls::{
    ClientTls, IsRevoked, NodeCredentials, PathVerifier, ServerTls, TlsConfigError, UriNodeIds,
    VerifierError, client_config, server_config,
};

use crate::config::TlsConfig;

/// How often the folder is looked at.
const INTERVAL: Duration = Duration::from_secs(2);

/// When the end of the node's certificate is warned of.
const WARNING: Duration = Duration::from_secs(30 * 24 * 3600);

/// Why certificates cannot be used.
#[derive(Debug, Error)]
pub enum SecurityError {
    /// The folder's files cannot be used.
    #[error("tls.pki_dir {dir}: {source}")]
    Credentials {
        /// The folder.
        dir: PathBuf,
        /// What is wrong and what to do.
        source: Box<PkiError>,
    },
    /// The authority's certificate cannot be trusted.
    #[error("tls.pki_dir {dir}: {source}")]
    Verifier {
        /// The folder.
        dir: PathBuf,
        /// What is wrong.
        source: VerifierError,
    },
    /// Certificate or key are not fit for TLS.
    #[error("tls.pki_dir {dir}: {source}")]
    Tls {
        /// The folder.
        dir: PathBuf,
        /// What is wrong.
        source: TlsConfigError,
    },
}

/// How sessions are secured.
#[derive(Clone)]
pub enum Security {
    /// Not at all, on a network that is trusted.
    Plain,
    /// By TLS with mutual authentication.
    Tls(Arc<Identity>),
}

/// The node's folder, as it was last read.
pub struct Identity {
    dir: PathBuf,
    uris: UriNodeIds,
    current: RwLock<Arc<Loaded>>,
}

struct Loaded {
    credentials: Credentials,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Security {
    /// Reads what the configuration names.
    ///
    /// # Errors
    /// When a file is missing, malformed, or readable by everybody.
    pub fn load(config: &TlsConfig) -> Result<Security, SecurityError> {
        let Some(dir) = &config.pki_dir else {
            return Ok(Security::Plain);
        };
        let uris = if config.accept_uri_san {
            UriNodeIds::Accepted
        } else {
            UriNodeIds::Ignored
        };
        let loaded = Loaded::load(dir)?;
        loaded.warn_of_end();
        Ok(Security::Tls(Arc::new(Identity {
            dir: dir.clone(),
            uris,
            current: RwLock::new(Arc::new(loaded)),
        })))
    }

    /// For the side that dials.
    pub fn client(&self) -> Option<ClientTls> {
        let Security::Tls(identity) = self else {
            return None;
        };
        let source = identity.clone();
        Some(ClientTls {
            source: Arc::new(move || source.loaded().client.clone()),
            uris: identity.uris,
            is_revoked: identity.clone().revocation(),
        })
    }

    /// For the side that listens.
    pub fn server(&self) -> Option<ServerTls> {
        let Security::Tls(identity) = self else {
            return None;
        };
        let source = identity.clone();
        Some(ServerTls {
            source: Arc::new(move || source.loaded().server.clone()),
            uris: identity.uris,
            is_revoked: identity.clone().revocation(),
        })
    }

    /// Reads the folder again whenever it has changed, and has the sessions
    /// of revoked certificates closed. Runs until dropped.
    pub async fn watch(self, close_revoked: impl Fn(&IsRevoked) -> usize + Send + 'static) {
        let Security::Tls(identity) = self else {
            return;
        };
        loop {
            tokio::time::sleep(INTERVAL).await;
            if !identity.loaded().credentials.fingerprint.is_outdated() {
                continue;
            }
            match Loaded::load(&identity.dir) {
                Ok(loaded) => {
                    loaded.warn_of_end();
                    identity.replace(loaded);
                    let closed = close_revoked(&identity.clone().revocation());
                    tracing::info!(closed, "certificates read again");
                }
                // In the middle of a renewal the files do not fit together;
                // those in memory serve until they do.
                Err(error) => tracing::warn!(%error, "certificates not read again yet"),
            }
        }
    }
}

impl Identity {
    fn loaded(&self) -> Arc<Loaded> {
        let current = self.current.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(&self, loaded: Loaded) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(loaded);
    }

    fn revocation(self: Arc<Self>) -> IsRevoked {
        Arc::new(move |serial| self.loaded().credentials.is_revoked(serial))
    }
}

impl Loaded {
    fn load(dir: &Path) -> Result<Loaded, SecurityError> {
        let dir = dir.to_owned();
        let credentials = Credentials::load(&dir).map_err(|source| SecurityError::Credentials {
            dir: dir.clone(),
            source: Box::new(source),
        })?;
        let revoked = credentials.revoked.clone();
        let is_revoked: IsRevoked =
            Arc::new(move |serial| revoked.contains(&underpass_pki::Serial::from_bytes(serial)));
        let verifier = PathVerifier::new(&credentials.roots, is_revoked).map_err(|source| {
            SecurityError::Verifier {
                dir: dir.clone(),
                source,
            }
        })?;
        let verifier = Arc::new(verifier);
        let own = || NodeCredentials {
            chain: credentials.chain.clone(),
            key: credentials.key.clone_key(),
        };
        let failed = |source| SecurityError::Tls {
            dir: dir.clone(),
            source,
        };
        let client = client_config(verifier.clone(), own()).map_err(failed)?;
        let server = server_config(verifier, own()).map_err(failed)?;
        Ok(Loaded {
            client: Arc::new(client),
            server: Arc::new(server),
            credentials,
        })
    }

    fn warn_of_end(&self) {
        let left = self.credentials.not_after.duration_since(SystemTime::now());
        match left {
            Ok(left) if left > WARNING => {}
            Ok(left) => tracing::warn!(
                days = left.as_secs() / 86_400,
                "this node's certificate ends soon: run `underpass pki renew`"
            ),
            Err(_) => tracing::error!(
                "this node's certificate has ended, or its clock is wrong: peers will refuse it"
            ),
        }
    }
}
