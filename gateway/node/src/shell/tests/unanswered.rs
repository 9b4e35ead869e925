//! The effects of a session whose transport gets no acknowledgements.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use tokio::time::advance;
use underpass_engine::Sign;

use super::*;

/// A session whose transport is owed an acknowledgement from the start.
struct Unanswered {
    since: tokio::time::Instant,
    renewed: AtomicU64,
}

impl Session for Unanswered {
    fn offer(&self, _: Transfer) {}

    fn set_rate(&self, _: Option<u64>) {}

    fn figures(&self) -> PathFigures {
        PathFigures {
            in_flight_bytes: 1,
            heard_ago: Some(self.since.elapsed()),
            ..PathFigures::default()
        }
    }

    fn renew(&self) {
        self.renewed.fetch_add(1, SeqCst);
    }

    fn close(&self) {}

    fn abort(&self, _: &str) {}
}

#[tokio::test(start_paused = true)]
async fn a_session_is_replaced_where_its_peer_is_heard_long_after_it_owed_an_answer() {
    for count in COUNTS {
        let terminals = terminals();
        let (shell, _inbound) = shell(&hub(&terminals), count);
        let hop = shell.hop_named(&format!("terminal-{}", terminals[0]));
        let hop = hop.expect("it is configured");
        let session = Arc::new(Unanswered {
            since: tokio::time::Instant::now(),
            renewed: AtomicU64::new(0),
        });
        shell.session_up(SessionId(1), info(terminals[0]), session.clone());
        let mut renewed = Vec::new();
        for _ in 0..40 {
            advance(Duration::from_millis(100)).await;
            shell.with_hop(hop, |engine, now| {
                engine.heard(now, hop, now, Sign::Beacon);
            });
            shell.session_figures();
            renewed.push(session.renewed.load(SeqCst));
        }
        // This is after six round trips of 0.6 s.
        assert_eq!((renewed[34], renewed[39]), (0, 1));
    }
}
