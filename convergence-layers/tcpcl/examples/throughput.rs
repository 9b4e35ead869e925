//! Measures one session on loopback, plain and under TLS: bundles of 64 KiB,
//! 256 KiB and 1 MiB, in GB/s of payload.
//!
//! `cargo run --release -p underpass-tcpcl --example throughput`

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::time_provider::DefaultTimeProvider;
use tokio::sync::Notify;
use underpass_cla::{Down, Node, Outcome, Refusal, Session, SessionId, SessionInfo, Transfer};
use underpass_identity::{
    ClientTls, IsRevoked, NodeCredentials, PathVerifier, ServerTls, UriNodeIds, client_config,
    server_config,
};
use underpass_tcpcl::{Dialer, DialerConfig, Listener, ListenerConfig, SessionDefaults};

const TOTAL_BYTES: u64 = 4 << 30;

/// Offers the same bundle whenever the session is ready.
struct Source {
    bundle: Bytes,
    session: OnceLock<Arc<dyn Session>>,
    left: AtomicU64,
    done: Notify,
}

impl Node for Source {
    fn session_up(&self, id: SessionId, _: SessionInfo, session: Arc<dyn Session>) -> SessionId {
        let _ = self.session.set(session);
        id
    }

    fn ready(&self, _: SessionId) {
        let length = self.bundle.len() as u64;
        let took = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(length)
            });
        if let (Ok(key), Some(session)) = (took, self.session.get()) {
            let chunks = vec![self.bundle.clone()];
            session.offer(Transfer::new(key, chunks));
        }
    }

    fn admit(&self, _: SessionId, _: Option<u64>) -> Result<(), Refusal> {
        Ok(())
    }

    fn received(&self, _: SessionId, _: Bytes) -> Result<(), Refusal> {
        Ok(())
    }

    fn progress(&self, _: SessionId, _: u64, _: u64) {}

    fn finished(&self, _: SessionId, key: u64, outcome: Outcome) {
        assert_eq!(outcome, Outcome::Acknowledged);
        if key == self.bundle.len() as u64 {
            self.done.notify_one();
        }
    }

    fn session_down(&self, _: SessionId, _: Down) {}
}

fn source(length: usize, total: u64) -> Arc<Source> {
    Arc::new(Source {
        bundle: Bytes::from(vec![7; length]),
        session: OnceLock::new(),
        left: AtomicU64::new(total),
        done: Notify::new(),
    })
}

/// One certificate that both ends use and trust.
struct Certificate {
    certificate: CertificateDer<'static>,
    key: KeyPair,
    is_revoked: IsRevoked,
}

impl Certificate {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        for node_id in ["ipn:1.0", "ipn:2.0"] {
            let uri = node_id.try_into().expect("ASCII");
            params.subject_alt_names.push(rcgen::SanType::URI(uri));
        }
        let certificate = params.self_signed(&key).expect("a certificate");
        Self {
            certificate: certificate.der().clone(),
            key,
            is_revoked: Arc::new(|_| false),
        }
    }

    fn parts(&self) -> (Arc<PathVerifier>, NodeCredentials) {
        let roots = std::slice::from_ref(&self.certificate);
        let verifier = PathVerifier::new(roots, self.is_revoked.clone());
        let credentials = NodeCredentials {
            chain: roots.to_vec(),
            key: PrivateKeyDer::Pkcs8(self.key.serialize_der().into()),
        };
        (Arc::new(verifier.expect("a root")), credentials)
    }

    fn client(&self) -> ClientTls {
        let (verifier, credentials) = self.parts();
        let config = client_config(verifier, credentials, Arc::new(DefaultTimeProvider));
        let config = config.expect("usable");
        ClientTls::fixed(config, UriNodeIds::Accepted, self.is_revoked.clone())
    }

    fn server(&self) -> ServerTls {
        let (verifier, credentials) = self.parts();
        let config = server_config(verifier, credentials, Arc::new(DefaultTimeProvider));
        let config = config.expect("usable");
        ServerTls::fixed(config, UriNodeIds::Accepted, self.is_revoked.clone())
    }
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let certificate = Certificate::new();
    for tls in [false, true] {
        for kib in [64, 256, 1024] {
            let certificate = tls.then_some(&certificate);
            let rate = measure(kib << 10, certificate).await?;
            let kind = if tls { "TLS" } else { "plain" };
            println!("{kind:5} {kib:5} KiB bundles: {rate:.2} GB/s");
        }
    }
    Ok(())
}

async fn measure(length: usize, certificate: Option<&Certificate>) -> std::io::Result<f64> {
    let ids = Arc::new(AtomicU64::new(1));
    let listener = Listener::bind(
        ListenerConfig {
            local: ([127, 0, 0, 1], 0).into(),
            session: SessionDefaults::new("in", "ipn:2.0", ids.clone()),
            tls: certificate.map(Certificate::server),
            max_half_open: 1,
            max_half_open_per_source: 1,
            max_connections: 1,
        },
        source(1, 0),
    )?;
    let source = source(length, TOTAL_BYTES);
    let session = SessionDefaults::new("out", "ipn:1.0", ids);
    let mut config = DialerConfig::new(listener.local_addr(), session);
    config.tls = certificate.map(Certificate::client);
    let start = Instant::now();
    let dialer = Dialer::spawn(config, source.clone());
    source.done.notified().await;
    let rate = TOTAL_BYTES as f64 / start.elapsed().as_secs_f64() / 1e9;
    dialer.shutdown().await;
    Ok(rate)
}
