//! What sessions are told of links that rest.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use tokio::time::advance;
use underpass_engine::{MeterConfig, Period};

use super::*;

/// A session that knows whether its link rests.
#[derive(Default)]
struct Resting(AtomicBool);

impl Session for Resting {
    fn offer(&self, _: Transfer) {}

    fn set_rate(&self, _: Option<u64>) {}

    fn figures(&self) -> PathFigures {
        PathFigures::default()
    }

    fn rest(&self, rests: bool) {
        self.0.store(rests, SeqCst);
    }

    fn close(&self) {}

    fn abort(&self, _: &str) {}
}

#[tokio::test(start_paused = true)]
async fn sessions_hear_that_their_link_rests_and_that_it_does_not_any_more() {
    for count in COUNTS {
        let terminals = terminals();
        let mut config = hub(&terminals);
        config.hops[0].meter = Some(MeterConfig {
            budget_bytes: None,
            period: Period::Day,
            beyond: Vec::new(),
        });
        let (shell, _inbound) = shell(&config, count);
        let hop = shell.hop_named(&format!("terminal-{}", terminals[0]));
        let hop = hop.expect("it is configured");
        let sessions = [(); 3].map(|()| Arc::new(Resting::default()));
        let rest = || sessions.each_ref().map(|session| session.0.load(SeqCst));
        let [first, second, other] = sessions.each_ref().map(Arc::clone);
        shell.session_up(SessionId(1), info(terminals[0]), first);
        shell.session_up(SessionId(2), info(terminals[1]), other);
        advance(Duration::from_secs(20)).await;
        shell.with_hop(hop, |engine, now| engine.let_rest(now, hop));
        assert_eq!(rest(), [true, false, false]);
        shell.session_up(SessionId(3), info(terminals[0]), second);
        assert_eq!(rest(), [false; 3]);
        advance(Duration::from_secs(20)).await;
        shell.with_hop(hop, |engine, now| engine.let_rest(now, hop));
        assert_eq!(rest(), [true, true, false]);
    }
}
