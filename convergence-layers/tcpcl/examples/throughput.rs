//! Measures one plain session on loopback: bundles of 64 KiB, 256 KiB and
//! 1 MiB, in GB/s of payload.
//!
//! `cargo run --release -p underpass-tcpcl --example throughput`

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::Notify;
use underpass_cla::{Down, Node, Outcome, Refusal, Session, SessionId, SessionInfo, Transfer};
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
    fn session_up(&self, _: SessionId, _: SessionInfo, session: Arc<dyn Session>) {
        let _ = self.session.set(session);
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
            session.offer(Transfer { key, chunks });
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

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let ids = Arc::new(AtomicU64::new(1));
    for kib in [64, 256, 1024] {
        let listener = Listener::bind(
            ListenerConfig {
                local: ([127, 0, 0, 1], 0).into(),
                session: SessionDefaults::new("in", "ipn:2.0", ids.clone()),
                tls: None,
                max_half_open: 1,
                max_connections: 1,
            },
            source(1, 0),
        )?;
        let source = source(kib << 10, TOTAL_BYTES);
        let start = Instant::now();
        let session = SessionDefaults::new("out", "ipn:1.0", ids.clone());
        let config = DialerConfig::new(listener.local_addr(), session);
        let dialer = Dialer::spawn(config, source.clone());
        source.done.notified().await;
        let rate = TOTAL_BYTES as f64 / start.elapsed().as_secs_f64() / 1e9;
        println!("{kib:5} KiB bundles: {rate:.2} GB/s");
        dialer.shutdown().await;
    }
    Ok(())
}
