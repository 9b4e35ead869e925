//! TLS of the sessions, from the node's folder of the private authority; read again when that
//! changes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustls::{ClientConfig, ServerConfig};
use thiserror::Error;
use underpass_identity::{
    ClientTls, IsRevoked, NodeCredentials, PathVerifier, Registry, ServerTls, Tls, TlsConfigError,
    UriNodeIds, VerifierError, client_config, peer_identity, server_config,
};
use underpass_pki::{Credentials, PkiError};
use underpass_tcpcl::session::same_node;

use crate::config::TlsConfig;
use crate::known_time::KnownTime;

/// How often the folder is looked at.
const INTERVAL: Duration = Duration::from_secs(2);

/// How often the node warns that its certificate is about to end.
const TOLD_EVERY: Duration = Duration::from_secs(24 * 3600);

/// How long before the end of the node's certificate warnings begin.
const WARNING: Duration = Duration::from_secs(30 * 24 * 3600);

/// Why certificates cannot be used.
#[derive(Debug, Error)]
pub enum SecurityError {
    /// The folder's files cannot be used.
    #[error("tls.pki_dir {dir}: {source}")]
    Credentials {
        dir: PathBuf,
        /// What is wrong and what to do.
        source: Box<PkiError>,
    },
    /// The authority's certificate cannot be trusted.
    #[error("tls.pki_dir {dir}: {source}")]
    Verifier { dir: PathBuf, source: VerifierError },
    /// The certificate is another node's: every peer would refuse it.
    #[error("tls.pki_dir {dir}: node.crt names {names}, and this node is {node}")]
    OtherNode {
        dir: PathBuf,
        /// The node ids that the certificate names.
        names: String,
        node: String,
    },
    /// Certificate or key are not fit for TLS.
    #[error("tls.pki_dir {dir}: {source}")]
    Tls {
        dir: PathBuf,
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
    node: u64,
    uris: UriNodeIds,
    time: Arc<KnownTime>,
    current: RwLock<Arc<Loaded>>,
}

/// What has sessions that live by certificates.
pub trait Certified {
    /// Closes sessions of each registry by `closing`, and returns how many.
    fn close(&self, closing: &dyn Fn(&Registry) -> usize) -> usize;
}

struct Loaded {
    credentials: Credentials,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Security {
    /// Reads the files that a node's configuration names.
    ///
    /// # Errors
    /// When a file is missing, malformed, or readable by everybody, or the
    /// certificate does not name the node.
    pub fn load(
        config: &TlsConfig,
        node: u64,
        time: &Arc<KnownTime>,
    ) -> Result<Security, SecurityError> {
        let Some(dir) = &config.pki_dir else {
            return Ok(Security::Plain);
        };
        let uris = if config.accept_uri_san {
            UriNodeIds::Accepted
        } else {
            UriNodeIds::Ignored
        };
        let loaded = Loaded::load(dir, node, uris, time)?;
        loaded.warn_of_end(time.now());
        Ok(Security::Tls(Arc::new(Identity {
            dir: dir.clone(),
            node,
            uris,
            time: time.clone(),
            current: RwLock::new(Arc::new(loaded)),
        })))
    }

    /// For the side that dials.
    pub fn client(&self) -> Option<ClientTls> {
        self.side(|loaded| &loaded.client)
    }

    /// For the side that listens.
    pub fn server(&self) -> Option<ServerTls> {
        self.side(|loaded| &loaded.server)
    }

    fn side<C: 'static>(&self, config: fn(&Loaded) -> &Arc<C>) -> Option<Tls<C>> {
        let Security::Tls(identity) = self else {
            return None;
        };
        let source = identity.clone();
        Some(Tls {
            source: Arc::new(move || config(&source.loaded()).clone()),
            uris: identity.uris,
            is_revoked: identity.clone().revocation(),
        })
    }

    /// The end of this node's certificate, if it has one.
    pub fn not_after(&self) -> Option<SystemTime> {
        match self {
            Security::Plain => None,
            Security::Tls(identity) => Some(identity.loaded().credentials.not_after),
        }
    }

    /// Reads the folder again whenever it has changed, and closes the sessions whose certificates
    /// are revoked or have ended. Warns daily of the end of this node's own. Runs until dropped.
    pub async fn watch(self, sessions: Arc<impl Certified + Send + Sync + 'static>) {
        let Security::Tls(identity) = self else {
            return;
        };
        let mut told = Instant::now();
        loop {
            tokio::time::sleep(INTERVAL).await;
            identity.close_ended(&*sessions);
            if told.elapsed() >= TOLD_EVERY {
                told = Instant::now();
                identity.loaded().warn_of_end(identity.time.now());
            }
            if !identity.loaded().credentials.fingerprint.is_outdated() {
                continue;
            }
            let (dir, time) = (&identity.dir, &identity.time);
            match Loaded::load(dir, identity.node, identity.uris, time) {
                Ok(loaded) => {
                    loaded.warn_of_end(identity.time.now());
                    identity.replace(loaded);
                    let is_revoked = identity.clone().revocation();
                    let closed = sessions.close(&|registry| registry.close_where(&*is_revoked));
                    tracing::info!(closed, "certificates read again");
                }
                // During a renewal the files may not match for a moment; those in memory stay in
                // use until they do.
                Err(error) => tracing::warn!(%error, "certificates not read again yet"),
            }
        }
    }
}

impl Identity {
    fn loaded(&self) -> Arc<Loaded> {
        self.current.read().unwrap().clone()
    }

    /// Closes what certificates no longer allow.
    fn close_ended(&self, sessions: &impl Certified) {
        let now = self.time.now();
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_s = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        let closed = sessions.close(&|registry| registry.close_ended(now_s));
        if closed > 0 {
            tracing::warn!(
                closed,
                "sessions closed: their peers' certificates have ended"
            );
        }
        if self.loaded().credentials.not_after < now {
            let closed = sessions.close(&Registry::close_certified);
            if closed > 0 {
                tracing::error!(closed, "sessions closed: this node's certificate has ended");
            }
        }
    }

    fn replace(&self, loaded: Loaded) {
        let mut current = self.current.write().unwrap();
        *current = Arc::new(loaded);
    }

    fn revocation(self: Arc<Self>) -> IsRevoked {
        Arc::new(move |serial| self.loaded().credentials.is_revoked(serial))
    }
}

impl Loaded {
    fn load(
        dir: &Path,
        node: u64,
        uris: UriNodeIds,
        time: &Arc<KnownTime>,
    ) -> Result<Loaded, SecurityError> {
        let dir = dir.to_owned();
        let credentials = Credentials::load(&dir).map_err(|source| SecurityError::Credentials {
            dir: dir.clone(),
            source: Box::new(source),
        })?;
        check_names(&dir, node, uris, &credentials)?;
        time.not_before(credentials.not_before);
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
        let client = client_config(verifier.clone(), own(), time.clone()).map_err(failed)?;
        let server = server_config(verifier, own(), time.clone()).map_err(failed)?;
        Ok(Loaded {
            client: Arc::new(client),
            server: Arc::new(server),
            credentials,
        })
    }

    fn warn_of_end(&self, now: SystemTime) {
        let left = self.credentials.not_after.duration_since(now);
        match left {
            Ok(left) if left > WARNING => {}
            Ok(left) => tracing::warn!(
                days = left.as_secs() / 86_400,
                "this node's certificate ends soon: renew it (docs/enrolment.md)"
            ),
            Err(_) => tracing::error!(
                "this node's certificate has ended, or its clock is wrong: peers will refuse it"
            ),
        }
    }
}

/// Checks the node's own certificate against its number, as its peers do.
fn check_names(
    dir: &Path,
    node: u64,
    uris: UriNodeIds,
    credentials: &Credentials,
) -> Result<(), SecurityError> {
    let certified = credentials
        .chain
        .first()
        .map(|own| peer_identity(own, uris));
    let names = certified.and_then(Result::ok).unwrap_or_default().node_ids;
    let node = format!("ipn:{node}.0");
    if names.iter().any(|name| same_node(name, &node)) {
        return Ok(());
    }
    let names = match names.is_empty() {
        true => "no node".to_owned(),
        false => names.join(", "),
    };
    let dir = dir.to_owned();
    Err(SecurityError::OtherNode { dir, names, node })
}

#[cfg(test)]
mod tests {
    use underpass_pki::Authority;

    use super::*;

    #[test]
    fn a_certificate_that_names_another_node_is_refused_before_any_peer_does() {
        let folder = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let mut authority = Authority::init(folder.path(), "test", 30, now).unwrap();
        let issued = authority.issue(10, 30, now).unwrap();
        let config = TlsConfig {
            pki_dir: Some(issued.dir),
            ..TlsConfig::default()
        };
        let time = KnownTime::load(None);
        assert!(Security::load(&config, 10, &time).is_ok());
        let told = Security::load(&config, 11, &time)
            .err()
            .unwrap()
            .to_string();
        let both = told.contains("names ipn:10.0") && told.contains("this node is ipn:11.0");
        assert!(both, "{told}");
    }
}
