//! What the sessions measure, gathered once a second: the traffic that the
//! scheduler does not send is taken from its rates.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use underpass_cla::{PathFigures, SessionId};
use underpass_engine::HopId;
use underpass_scheduler::UnscheduledTraffic;

use super::Shell;

const INTERVAL: Duration = Duration::from_secs(1);

/// Watches the sessions of `shell`. `plain_ip_bytes` tells the total of IP
/// bytes that pass `hop` beside the streams. Runs until dropped.
pub async fn watch(
    shell: Arc<Shell>,
    plain_ip_bytes: impl Fn(HopId) -> Option<u64> + Send + 'static,
) {
    let mut traffic: HashMap<HopId, UnscheduledTraffic> = HashMap::new();
    let mut ticks = tokio::time::interval(INTERVAL);
    loop {
        ticks.tick().await;
        let figures = shell.session_figures();
        let now = Instant::now();
        for (hop, session, ack_bytes, figures) in figures {
            traffic
                .entry(hop)
                .or_insert_with(|| UnscheduledTraffic::new(now))
                .observe_session(
                    session,
                    figures.segments_sent,
                    figures.data_segments_sent,
                    ack_bytes,
                );
        }
        for (hop, traffic) in &mut traffic {
            if let Some(total) = plain_ip_bytes(*hop) {
                traffic.observe_plain(total);
            }
            let bps = traffic.bps(now);
            shell.with(|engine, now| engine.subtract(now, *hop, bps));
        }
    }
}

impl Shell {
    /// The figures of every session with its hop and the IP size of its ACKs.
    pub fn session_figures(&self) -> Vec<(HopId, SessionId, u64, PathFigures)> {
        let sessions: Vec<_> = {
            let inner = self.lock();
            inner
                .sessions
                .iter()
                .filter_map(|(id, session)| {
                    let (hop, ack_bytes) = inner.engine.session_hop(*id)?;
                    Some((hop, *id, ack_bytes, session.clone()))
                })
                .collect()
        };
        sessions
            .into_iter()
            .map(|(hop, id, ack_bytes, session)| (hop, id, ack_bytes, session.figures()))
            .collect()
    }
}
