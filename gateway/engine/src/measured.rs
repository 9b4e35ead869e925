//! What the links were measured to carry, and what the engine does with it.

use std::time::{Duration, Instant};

use underpass_capacity::{FirstFlight, Reason};
use underpass_plans::Direction;

use crate::config::HopConfig;
use crate::engine::Engine;
use crate::hop::HopId;

/// A link's measured loss counts for so long: on an idle link nothing would show that it loses less
/// again.
const LOSS_COUNTS: Duration = Duration::from_secs(60);

/// What was measured of a hop's link, in the direction from here to the neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeasuredLink {
    /// What may be sent at present, bit/s of IP bytes; `None` while nothing has
    /// shown that the link carries less than is allowed.
    pub rate_bps: Option<u64>,
    /// What it carries, bit/s of IP bytes; `None` as above.
    pub capacity_bps: Option<u64>,
    /// What the capacity is based on; `None` as above.
    pub reason: Option<Reason>,
    /// The bound on what is sent at first, while nothing is known and no rate is in force.
    pub first: Option<FirstFlight>,
    /// The round trip without a queue, if it is known: for data that is sent without a pause, and
    /// for small amounts, which do not wait for access.
    pub base_rtt: Option<Duration>,
    /// See there.
    pub path_rtt: Option<Duration>,
    /// How long its queue delays packets.
    pub queue: Duration,
    /// Part of the packets that it loses by itself.
    pub loss: f64,
    /// When that was last learned, if that is known.
    pub loss_learned: Option<Instant>,
    /// The smoothed round trip, queues included, and when it was measured.
    pub smoothed_rtt: Option<(Instant, Duration)>,
    /// Part of the packets that begin a recovery: all that are lost within a
    /// round trip count as one.
    pub recovery_loss: f64,
}

impl MeasuredLink {
    /// Part of the packets that it is known to lose by itself at present.
    pub(crate) fn present_loss(&self, now: Instant) -> f64 {
        let counts = self.loss_learned.is_none_or(|at| now < at + LOSS_COUNTS);
        if counts { self.loss } else { 0.0 }
    }
}

/// How a hop sends at one moment, for the estimator of its link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sending {
    /// Nothing is sent.
    pub blocked: bool,
    /// Bundles wait for the rate.
    pub waits: bool,
    /// The rate in force, bit/s of IP bytes.
    pub rate_bps: Option<u64>,
    /// What the rate never exceeds, bit/s of IP bytes, plans apart.
    pub ceiling_bps: Option<u64>,
    /// Where the estimate starts, bit/s of IP bytes.
    pub hint_bps: Option<u64>,
    /// The round trip that was measured with it, if it comes from an earlier run.
    pub hint_rtt: Option<Duration>,
    /// Bits per unit of the beam's capacity in the present MODCOD, as its modem says.
    pub efficiency: Option<f64>,
    /// It shares a beam with the other hops of a hub, and a rate of the beam is known. Without one
    /// the beam is not measured, so each hop has to judge the whole queue that it sees.
    pub shares: bool,
    /// The round trip without a queue that is assumed, where that is a guess.
    pub guessed_rtt: Option<Duration>,
    /// The round trip without a queue, as far as it is known.
    pub round_trip: Duration,
    /// When the peer was last heard.
    pub heard: Option<Instant>,
}

impl Engine {
    /// How a hop sends.
    pub fn sending(&self, id: HopId) -> Option<Sending> {
        let hop = self.hops.get(&id)?;
        Some(Sending {
            blocked: hop.blocked,
            waits: !hop.ready.is_empty(),
            rate_bps: hop.rate_bps(),
            ceiling_bps: hop.ceiling_bps(),
            hint_bps: hop.config.rate_hint_bps,
            hint_rtt: hop.config.rate_hint_rtt,
            efficiency: hop.efficiency,
            shares: hop.follows(Direction::Forward).is_some() && self.beam_allowed_bps.is_some(),
            guessed_rtt: hop.config.rtt_is_guess.then_some(hop.config.rtt),
            round_trip: hop.round_trip(),
            heard: hop.link.last_heard(),
        })
    }

    /// Takes the modem's word about a hop's MODCOD: bits per unit of the beam's capacity; `None`
    /// takes back its word.
    pub fn set_efficiency(&mut self, id: HopId, efficiency: Option<f64>) {
        if let Some(hop) = self.hops.get_mut(&id) {
            hop.efficiency = efficiency;
        }
    }

    /// Replaces a hop's round trip without a queue, if that is a guess. Windows do not shrink with
    /// it.
    pub fn correct_rtt(&mut self, now: Instant, id: HopId, rtt: Duration) {
        let Some(hop) = self.hops.get(&id).filter(|hop| hop.config.rtt_is_guess) else {
            return;
        };
        let config = HopConfig {
            rtt,
            ..hop.config.clone()
        };
        self.change_hop(now, &config);
        self.after_change(now);
    }

    /// Takes what a hop's link was measured to carry. `drain_bytes` of IP were sent beyond that:
    /// until the link could have carried them, nothing more is granted except to classes above
    /// those that sent most of it.
    pub fn measured(&mut self, now: Instant, id: HopId, link: MeasuredLink, drain_bytes: u64) {
        let Some(hop) = self.hops.get_mut(&id) else {
            return;
        };
        let before = (hop.rate_bps(), hop.first_flight(), hop.draining);
        hop.measured = link;
        if let Some(bps) = link.capacity_bps.or(hop.ceiling_bps()) {
            hop.trial.found(now, bps);
        }
        hop.draining = drain_bytes > 0;
        if (hop.rate_bps(), hop.first_flight(), hop.draining) != before {
            self.apply_rate(now, id);
        }
        if drain_bytes > 0 {
            self.scheduler.make_up_for(now, id.terminal(), drain_bytes);
        }
        self.after_change(now);
    }

    /// Takes what the beam was measured to carry, bit/s of IP bytes; `None` while
    /// nothing has shown that it is less than is allowed. It counts for all
    /// engines of the node, which are told the same.
    pub fn measured_beam(&mut self, now: Instant, rate_bps: Option<u64>) {
        if std::mem::replace(&mut self.beam_measured_bps, rate_bps) != rate_bps {
            self.apply_beam_rate(now);
            self.after_change(now);
        }
    }

    /// Notes that `bytes` of IP were sent to the terminals of the beam beyond its capacity: nothing
    /// more is granted to any until the beam could have carried them. Only one engine of a node is
    /// told.
    pub fn drain_beam(&mut self, now: Instant, bytes: u64) {
        self.scheduler.make_up_for_all(now, bytes);
        self.after_change(now);
    }
}
