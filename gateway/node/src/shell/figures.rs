//! Periodic readings: the clock, and the sessions' figures. Traffic that the scheduler does not
//! send is subtracted from its rates.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use underpass_beacon::BEACON_BYTES;
use underpass_cla::{PathFigures, SessionId};
use underpass_engine::{HopId, Sending, SessionPlace};
use underpass_scheduler::UnscheduledTraffic;

use super::directory::of_session;
use super::measuring::{BeamMeter, LinkMeter, SharedQueue};
use super::{Shell, timer};
use crate::clock::ControlClock;

/// How often a node with few hops reads its sessions' figures: ACKs are a large
/// part of a terminal's return link, and bytes sent in excess before they are
/// counted fill its queue.
const INTERVAL: Duration = Duration::from_millis(100);
/// Nodes with more hops read their sessions less often.
const INTERVAL_OF_MANY: Duration = Duration::from_secs(1);
const FEW_HOPS: usize = 4;
/// How often the links of hops on which anything moves are measured, if the rate follows the
/// measurement: each at most this often, and all together at most `MEASURED_PER_S` times a second.
const MEASURED_EACH: Duration = Duration::from_millis(25);
const MEASURED_PER_S: u32 = 400;
/// Beacons of an idle metered hop are counted this many at a time: about 64 kB.
const BEACONS_AT_ONCE: u64 = 900;

/// Watches the sessions of `shell`, and the control service's time. `plain_ip_bytes` gives the
/// total of IP bytes that pass a hop beside the streams. Runs until dropped.
pub async fn watch(
    shell: Arc<Shell>,
    clock: Arc<ControlClock>,
    plain_ip_bytes: impl Fn(HopId) -> Option<u64> + Send + 'static,
) {
    let mut watched: HashMap<HopId, Watched> = HashMap::new();
    let hops = shell.portions_of_hops().into_iter();
    let few = hops.map(|(_, portion)| portion.len()).sum::<usize>() <= FEW_HOPS;
    let interval = if few { INTERVAL } else { INTERVAL_OF_MANY };
    let mut beam = BeamMeter::new();
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        let measures = watched.values().any(Watched::is_measured);
        tokio::select! {
            biased;
            _ = ticks.tick() => {}
            () = tokio::time::sleep(MEASURED_EACH), if measures => {
                let pause = measure_moving(&shell, &mut watched).await;
                if beam.is_due(pause) {
                    beam.look(&shell, moving_meters(&watched), &shared_queue(&watched));
                }
                continue;
            }
        }
        // Without a control service this is the time of day, and its clock may be set at any time.
        shell.tell_time(&clock);
        let portions = shell.portions_of_hops();
        let hops: HashSet<HopId> = portions
            .iter()
            .flat_map(|(_, hops)| hops)
            .copied()
            .collect();
        watched.retain(|hop, _| hops.contains(hop));
        let shared = shared_queue(&watched);
        let metered = shell.with_each(|engine, _| engine.metered_hops());
        let metered: HashSet<HopId> = metered.into_iter().flatten().collect();
        for (shard, hops) in portions {
            let at_rest = shell.at_rest(shard, &hops);
            for (hop, rest) in hops.into_iter().zip(at_rest) {
                let of_hop = watched.entry(hop).or_insert_with(Watched::new);
                of_hop.look(&shell, hop, rest, &shared);
                if let Some(total) = plain_ip_bytes(hop) {
                    of_hop.traffic.observe_plain(total);
                }
                of_hop.subtract(&shell, hop);
                let metered = metered.contains(&hop);
                of_hop.spend(&shell, hop, metered);
                if metered {
                    shell.with_hop(hop, |engine, now| engine.let_rest(now, hop));
                }
            }
            // Tasks that wait for this thread go first.
            tokio::task::yield_now().await;
        }
    }
}

/// Measures the links whose rates follow the measurement, of the hops on which anything moved at
/// the last check. Returns the least interval between two measurements of a link.
async fn measure_moving(shell: &Shell, watched: &mut HashMap<HopId, Watched>) -> Duration {
    let moving = watched.values().filter(|of_hop| of_hop.is_measured());
    let count = u32::try_from(moving.count()).unwrap_or(u32::MAX);
    let pause = MEASURED_EACH.max(Duration::from_secs(1) * count / MEASURED_PER_S);
    let now = timer::now();
    let beam = shared_queue(watched);
    for (hop, of_hop) in watched {
        if of_hop.is_measured() && now >= of_hop.meter.looked_at() + pause {
            let (readings, sending) = shell.look_at(*hop);
            of_hop.measure(shell, *hop, sending, &readings, &beam);
            // Tasks that wait for this thread go first.
            tokio::task::yield_now().await;
        }
    }
    pause
}

fn shared_queue(watched: &HashMap<HopId, Watched>) -> SharedQueue {
    SharedQueue::of(moving_meters(watched))
}

/// The meters of the hops on which anything moved at the last check.
fn moving_meters(watched: &HashMap<HopId, Watched>) -> impl Iterator<Item = (&HopId, &LinkMeter)> {
    let moving = watched.iter().filter(|(_, of_hop)| of_hop.rest.is_none());
    moving.map(|(hop, of_hop)| (hop, &of_hop.meter))
}

/// The traffic of a hop that the scheduler does not send.
struct Watched {
    traffic: UnscheduledTraffic,
    meter: LinkMeter,
    /// The hop's activity when its sessions were last read, if it was at rest.
    rest: Option<u64>,
    /// What the engine was told, bit/s.
    told_bps: u64,
    /// Beacons that the hop's meter has counted, if it has one.
    spent_beacons: Option<u64>,
    /// Bytes of IP beside bundles that the meter has not counted yet.
    unspent_bytes: u64,
}

impl Watched {
    fn new() -> Watched {
        Watched {
            traffic: UnscheduledTraffic::new(timer::now()),
            meter: LinkMeter::new(),
            rest: None,
            told_bps: 0,
            spent_beacons: None,
            unspent_bytes: 0,
        }
    }

    /// Its link is to be measured often.
    fn is_measured(&self) -> bool {
        self.rest.is_none() && self.meter.is_followed()
    }

    /// Reads the sessions, unless they can show nothing new: `rest` is the hop's activity, if it is
    /// at rest.
    fn look(&mut self, shell: &Shell, hop: HopId, rest: Option<u64>, beam: &SharedQueue) {
        let known = rest.is_some() && rest == self.rest;
        self.rest = rest;
        if known {
            self.meter.rest(shell, hop);
            return;
        }
        let (readings, sending) = shell.look_at(hop);
        self.measure(shell, hop, sending, &readings, beam);
        let there: Vec<SessionId> = readings.iter().map(|reading| reading.id).collect();
        self.traffic.keep_sessions(&there);
        for reading in &readings {
            self.traffic.observe_session(
                reading.id,
                reading.figures.segments_sent,
                reading.figures.data_segments_sent,
                reading.ack_bytes,
            );
        }
        let there = self.meter.queue_there();
        let queue = match self.meter.is_draining() {
            // The queue is being drained already.
            true => Duration::ZERO,
            false => there.unwrap_or_else(|| standing_queue(&readings)),
        };
        self.traffic.observe_queue(queue);
    }

    fn measure(
        &mut self,
        shell: &Shell,
        hop: HopId,
        sending: Option<Sending>,
        readings: &[SessionReading],
        beam: &SharedQueue,
    ) {
        if let Some(sending) = sending {
            self.meter.look(shell, hop, sending, readings, beam);
        }
    }

    /// Tells the engine what it comes to.
    fn subtract(&mut self, shell: &Shell, hop: HopId) {
        let bps = self.traffic.bps(timer::now());
        if bps != self.told_bps {
            self.told_bps = bps;
            shell.with_hop(hop, |engine, now| engine.subtract(now, hop, bps));
        }
    }
}

impl Watched {
    /// Lets the meter of a hop count traffic beside bundles. Beacons of an idle hop are counted
    /// many at a time, since each count is written to disk.
    fn spend(&mut self, shell: &Shell, hop: HopId, is_metered: bool) {
        let beside_bytes = self.meter.take_beside_bytes();
        if !is_metered {
            self.spent_beacons = None;
            return;
        }
        self.unspent_bytes += beside_bytes;
        let beacons = shell.beacons().map_or(0, |beacons| beacons.moved(hop));
        let new = unspent(&mut self.spent_beacons, beacons);
        if self.unspent_bytes == 0 && new < BEACONS_AT_ONCE {
            return;
        }
        self.spent_beacons = Some(beacons);
        let bytes = std::mem::take(&mut self.unspent_bytes);
        let datagrams = (new, BEACON_BYTES as u64);
        shell.with_hop(hop, |engine, now| {
            engine.spend_beside(now, hop, bytes, datagrams);
        });
    }
}

/// Beacons that the meter has not counted yet. When a socket is closed, its count vanishes from the
/// sum; beacons of other sockets do not become new by that.
fn unspent(spent: &mut Option<u64>, beacons: u64) -> u64 {
    let known = spent.map_or(beacons, |known| known.min(beacons));
    *spent = Some(known);
    beacons - known
}

/// The standing queue: by how much the round-trip times of a hop's sending sessions exceed the
/// least that any of its sessions has seen. The smallest excess counts, since a loss may delay a
/// single session.
fn standing_queue(readings: &[SessionReading]) -> Duration {
    let figures = readings.iter().map(|reading| reading.figures);
    let measured = figures.filter(|figures| !figures.min_rtt.is_zero());
    let base = measured.clone().map(|figures| figures.min_rtt).min();
    let sending = measured.filter(|figures| figures.in_flight_bytes > 0);
    let now = sending.map(|figures| figures.rtt).min();
    now.zip(base)
        .map_or(Duration::ZERO, |(now, base)| now.saturating_sub(base))
}

/// A session's figures at one moment.
#[derive(Clone, Copy, Debug)]
pub struct SessionReading {
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
    /// Gives the engines the time of plans, and that by which bundles are judged.
    pub fn tell_time(&self, clock: &ControlClock) {
        self.with_each(|engine, now| {
            engine.set_utc(now, clock.ms_at(now));
            engine.set_known_time(now, clock.known_dtn_time_ms(now));
        });
    }

    /// The least round-trip time that the sessions of a hop have measured.
    pub fn least_rtt(&self, hop: HopId) -> Option<Duration> {
        // The transports are asked outside of the lock.
        let sessions = self.sessions_of(hop).into_iter();
        let measured = sessions.map(|session| session.figures().min_rtt);
        measured.filter(|rtt| !rtt.is_zero()).min()
    }

    /// The figures of every session; also updates the transports' sums.
    pub fn session_figures(&self) -> Vec<SessionReading> {
        let portions = self.portions_of_hops().into_iter();
        let hops = portions.flat_map(|(_, hops)| hops);
        hops.flat_map(|hop| self.look_at(hop).0).collect()
    }

    /// The same for the sessions of one hop, and how it sends; no other hop is visited.
    pub(super) fn look_at(&self, hop: HopId) -> (Vec<SessionReading>, Option<Sending>) {
        let shard = self.directory().of_hop(hop);
        let (count, sessions) = {
            let mut inner = self.lock(shard);
            let count = inner.links.activity(hop).count();
            let ids = inner.engine.sessions_of(hop).into_iter();
            let sessions: Vec<_> = ids
                .filter_map(|id| {
                    let place = inner.engine.session_place(id)?;
                    Some((id, place, inner.sessions.get(&id)?.clone()))
                })
                .collect();
            (count, sessions)
        };
        // The transports are asked outside of the lock.
        let mut readings: Vec<_> = sessions
            .into_iter()
            .map(|(id, place, session)| SessionReading::of(id, place, session.figures()))
            .collect();
        let (signs, sending) = self.with_inner(shard, |inner, now| {
            for reading in &mut readings {
                // A session that ended meanwhile is already in the sums.
                if inner.sessions.contains_key(&reading.id) {
                    reading.ack_bytes = inner.transport.observe(reading);
                }
            }
            let sending = inner.engine.sending(hop);
            let unsent = readings
                .iter()
                .map(|reading| (reading.place.class, reading.figures.unsent_bytes));
            inner.engine.observe_unsent(now, hop, unsent);
            let figures: Vec<_> = readings.iter().map(|reading| reading.figures).collect();
            let signs = inner.learn(now, hop, count, &figures);
            let answers = readings
                .iter()
                .map(|reading| (reading.id, &reading.figures));
            inner.engine.observe_answers(now, hop, answers);
            (signs, sending)
        });
        // The beacons need not read them again.
        if let Some(beacons) = self.beacons() {
            beacons.note(hop, signs);
        }
        (readings, sending)
    }

    pub(super) fn session_reading(&self, id: SessionId) -> Option<SessionReading> {
        let (place, session) = {
            let inner = self.lock(of_session(self.shards.len(), id));
            let place = inner.engine.session_place(id)?;
            (place, inner.sessions.get(&id)?.clone())
        };
        Some(SessionReading::of(id, place, session.figures()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beacons_are_paid_for_once_though_a_socket_that_counted_some_is_closed() {
        let mut spent = None;
        assert_eq!(unspent(&mut spent, 5_000), 0);
        assert_eq!(unspent(&mut spent, 5_900), 900);
        spent = Some(5_900);
        // One of two sockets is left; the closed one had sent 3,000.
        assert_eq!(unspent(&mut spent, 2_900), 0);
        assert_eq!(unspent(&mut spent, 2_950), 50);
        // The last one is closed too.
        assert_eq!(unspent(&mut spent, 0), 0);
        assert_eq!(unspent(&mut spent, 7), 7);
    }
}
