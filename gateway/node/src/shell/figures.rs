//! What is looked at again and again: the clock, and what the sessions measure;
//! the traffic that the scheduler does not send is taken from its rates.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use underpass_cla::{PathFigures, SessionId};
use underpass_engine::{HopId, SessionPlace};
use underpass_scheduler::UnscheduledTraffic;

use super::{Shell, timer};
use crate::clock::ControlClock;

/// How often a node with few hops reads its sessions' figures: ACKs are a large
/// part of a terminal's return link, and bytes sent in excess before they are
/// counted fill its queue.
const INTERVAL: Duration = Duration::from_millis(200);
/// Others look at all of their sessions less often.
const INTERVAL_OF_MANY: Duration = Duration::from_secs(1);
const FEW_HOPS: usize = 4;

/// Watches the sessions of `shell`, and what time it is for the control
/// service. `plain_ip_bytes` tells the total of IP
/// bytes that pass `hop` beside the streams. Runs until dropped.
pub async fn watch(
    shell: Arc<Shell>,
    clock: Arc<ControlClock>,
    plain_ip_bytes: impl Fn(HopId) -> Option<u64> + Send + 'static,
) {
    let mut traffic: HashMap<HopId, UnscheduledTraffic> = HashMap::new();
    let few = shell.read(|engine| engine.hop_ids().len() <= FEW_HOPS);
    let interval = if few { INTERVAL } else { INTERVAL_OF_MANY };
    let mut ticks = tokio::time::interval(interval);
    loop {
        ticks.tick().await;
        // Without a control service that is the time of day, whose clock may
        // be set at any time.
        shell.tell_time(&clock);
        let figures = shell.session_figures();
        let now = timer::now();
        let queues = standing_queues(&figures);
        for reading in figures {
            traffic
                .entry(reading.place.hop)
                .or_insert_with(|| UnscheduledTraffic::new(now))
                .observe_session(
                    reading.id,
                    reading.figures.segments_sent,
                    reading.figures.data_segments_sent,
                    reading.ack_bytes,
                );
        }
        for (hop, traffic) in &mut traffic {
            if let Some(total) = plain_ip_bytes(*hop) {
                traffic.observe_plain(total);
            }
            traffic.observe_queue(queues.get(hop).copied().unwrap_or_default());
            let bps = traffic.bps(now);
            shell.with(|engine, now| engine.subtract(now, *hop, bps));
        }
    }
}

/// How far the round-trip times of each hop's sessions that send are above the
/// least that any of its sessions has seen: of these the least, since a lone
/// session may be held up by a loss.
fn standing_queues(figures: &[SessionReading]) -> HashMap<HopId, Duration> {
    let mut least: HashMap<HopId, (Duration, Option<Duration>)> = HashMap::new();
    for SessionReading { place, figures, .. } in figures {
        if figures.min_rtt.is_zero() {
            continue;
        }
        let (base, now) = least.entry(place.hop).or_insert((Duration::MAX, None));
        *base = figures.min_rtt.min(*base);
        if figures.in_flight_bytes > 0 {
            *now = Some(now.map_or(figures.rtt, |rtt| rtt.min(figures.rtt)));
        }
    }
    let queue = |(hop, (base, now)): (HopId, (Duration, Option<Duration>))| {
        Some((hop, now?.saturating_sub(base)))
    };
    least.into_iter().filter_map(queue).collect()
}

/// A session's figures at one moment.
#[derive(Clone, Copy, Debug)]
pub struct SessionReading {
    /// The session.
    pub id: SessionId,
    /// Where it belongs.
    pub place: SessionPlace,
    /// IP bytes of one of its pure ACKs at present.
    pub ack_bytes: u64,
    /// What its transport measures.
    pub figures: PathFigures,
}

impl SessionReading {
    fn of(id: SessionId, place: SessionPlace, figures: PathFigures) -> SessionReading {
        SessionReading {
            id,
            place,
            ack_bytes: place.ack_bytes,
            figures,
        }
    }
}

impl Shell {
    /// Tells the engine the time by which plans count.
    pub fn tell_time(&self, clock: &ControlClock) {
        self.with(|engine, now| engine.set_utc(now, clock.ms_at(now)));
    }

    /// The least round-trip time that the sessions of a hop have measured.
    pub fn least_rtt(&self, hop: HopId) -> Option<Duration> {
        // The transports are asked outside of the lock.
        let sessions = self.sessions_of(hop).into_iter();
        let measured = sessions.map(|session| session.figures().min_rtt);
        measured.filter(|rtt| !rtt.is_zero()).min()
    }

    /// The figures of every session; they are noted in the sums of what the
    /// transports have moved.
    pub fn session_figures(&self) -> Vec<SessionReading> {
        let sessions: Vec<_> = {
            let inner = self.lock();
            inner
                .sessions
                .iter()
                .filter_map(|(id, session)| {
                    let place = inner.engine.session_place(*id)?;
                    Some((*id, place, session.clone()))
                })
                .collect()
        };
        let mut readings: Vec<_> = sessions
            .into_iter()
            .map(|(id, place, session)| SessionReading::of(id, place, session.figures()))
            .collect();
        let mut inner = self.lock();
        for reading in &mut readings {
            // One that ended meanwhile has been summed up for good.
            if inner.sessions.contains_key(&reading.id) {
                reading.ack_bytes = inner.transport.observe(reading);
            }
        }
        readings
    }

    /// The figures of one session.
    pub(super) fn session_reading(&self, id: SessionId) -> Option<SessionReading> {
        let (place, session) = {
            let inner = self.lock();
            let place = inner.engine.session_place(id)?;
            (place, inner.sessions.get(&id)?.clone())
        };
        Some(SessionReading::of(id, place, session.figures()))
    }
}
