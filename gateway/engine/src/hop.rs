//! Hops: the ways to the neighbours, and the sessions that serve them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use underpass_capacity::FirstFlight;
use underpass_cla::{Class, SessionId, SessionInfo};
use underpass_completion::Arrivals;
use underpass_plans::{Direction, Segment, State};
use underpass_scheduler::{TcpWire, TerminalId};

use crate::budget::Meter;
use crate::choosing::Copies;
use crate::config::HopConfig;
use crate::doubt::Doubt;
use crate::lag::Lags;
use crate::link::LinkState;
use crate::measured::MeasuredLink;
use crate::on_demand::Presence;
use crate::planned::Followed;
use crate::standing::Standing;
use crate::trying::Trial;
use crate::unanswered::{Replacing, SlowestAnswer};

/// The largest TCPCL segment. It only refines the estimate of what a bundle costs on the hop.
const SEGMENT_BYTES: u64 = 1 << 20;
/// The most sessions of a class: one that carries, its standby, and as many older ones that may
/// still be dying. A listener has connections for as many.
const MOST_OF_CLASS: usize = 4;

/// Names a hop; the link scheduler knows it by the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HopId(pub u64);

impl HopId {
    pub(crate) fn terminal(self) -> TerminalId {
        TerminalId(self.0)
    }
}

/// Bundles of one class on one hop since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HopTraffic {
    /// Bundles given to the convergence layer, repetitions included.
    pub sent_bundles: u64,
    /// Their bytes, as bundles, including those left out of resumed transfers.
    pub sent_bytes: u64,
    /// Those that had been given to it before.
    pub repeated_bundles: u64,
    /// Their bytes, as bundles, including those left out of resumed transfers.
    pub repeated_bytes: u64,
    /// Bundles resumed where an earlier transfer had broken.
    pub resumed_bundles: u64,
    /// Bytes left out of these, since the neighbour had them.
    pub resumed_bytes: u64,
    /// Flows that chose this hop, to be complete first.
    pub flows: u64,
    /// Bundles that arrived and were kept.
    pub received_bundles: u64,
    /// Their bytes, as bundles.
    pub received_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Hop {
    pub config: HopConfig,
    /// The same with the highest rates that there have been: windows cover these, and never shrink.
    pub ceiling: HopConfig,
    /// What a TCP payload costs on the hop.
    pub wire: TcpWire,
    /// The sessions of each class, by age. The oldest carries, so that the standby takes over when
    /// the one before it is gone, and both ends agree without a message.
    pub sessions: Vec<BTreeSet<SessionId>>,
    /// Sessions of peers that do not know classes.
    pub classless: BTreeSet<SessionId>,
    /// Sessions that carry nothing from here: those of classes that this node does not have, and
    /// those that only receive.
    pub unusable: BTreeSet<SessionId>,
    pub link: LinkState,
    /// When that is to be judged anew.
    pub link_at: Option<Instant>,
    /// Nothing is sent.
    pub blocked: bool,
    /// When the peer was heard for the last time before the last blockage.
    pub heard_before_blockage: Option<Instant>,
    /// The largest bundle that the neighbour takes, as it said last.
    pub mru_bytes: Option<u64>,
    /// Traffic the scheduler does not send, bit/s of IP bytes.
    pub subtracted_bps: u64,
    pub measured: MeasuredLink,
    /// Bits per unit of the beam's capacity in the present MODCOD, as its modem says.
    pub efficiency: Option<f64>,
    /// The rate as an operator has set it, over any plan.
    pub by_operator: Option<Option<u64>>,
    /// The plans of its own return link.
    pub followed: Followed,
    /// Its share of the beam at present.
    pub weight: u64,
    /// Its part in the plan in force.
    pub segment: Option<Segment>,
    /// The rate guaranteed by the last plan that names it, bit/s of IP bytes.
    pub guaranteed_bps: Option<u64>,
    /// The rate that the sessions were told, bit/s of IP bytes.
    pub paced_bps: Option<u64>,
    /// The rate was lowered, and how much the sessions had not sent by then is not known yet.
    pub lowered: bool,
    /// A queue of bytes that were sent too fast is being drained.
    pub draining: bool,
    /// The first flight that the scheduler knows of.
    pub flight: Option<FirstFlight>,
    /// What the hop had been given before that flight, bytes of IP.
    pub before_flight_bytes: u64,
    /// By class.
    pub traffic: Vec<HopTraffic>,
    /// The flows of each class that were given to it lately.
    pub arrivals: BTreeMap<Class, Arrivals>,
    /// The classes that the scheduler counts as ready, and whether it counts what they send next as
    /// sparse. Only changes are passed to it.
    pub ready: BTreeMap<Class, bool>,
    /// When all that it was given will have left, at its rate.
    pub sent_by: Instant,
    /// All that it was given, bytes of IP.
    pub given_bytes: u64,
    /// Since when it has had something in flight, if it has.
    pub in_flight_since: Instant,
    /// When it was last given a bundle or brought one, or a session came up.
    pub moved: Instant,
    /// What was spent on it, if its bytes are paid for.
    pub meter: Option<Meter>,
    /// Whether it is up, if not always.
    pub presence: Option<Presence>,
    /// Copies of bundles that left by another hop and go by this one, too.
    pub copies: BTreeMap<Class, Copies>,
    /// Whether its answers are late while others could carry what it has.
    pub doubt: Doubt,
    /// Whether it stood still while others carried on.
    pub standing: Standing,
    /// When sessions of it were found dead, and others were to replace them.
    pub replacing: Replacing,
    /// The longest time that an answer on its sessions has taken lately.
    pub slowest_answer: SlowestAnswer,
    /// How much later bundles leave it than its rate suggests.
    pub lags: Lags,
    /// When the peer woke its link; cleared when what the peer sends has come or is missed.
    pub woken_by_peer: Option<Instant>,
    /// The trials by which flows use it again after its estimate has fallen.
    pub trial: Trial,
}

impl Hop {
    /// A hop without sessions; class numbers are below `classes`.
    pub fn new(now: Instant, config: HopConfig, classes: usize) -> Hop {
        let weight = config.weight;
        let wire = wire_of(&config, config.ipv6);
        let mut hop = Hop {
            meter: config.meter.clone().map(Meter::new),
            presence: config.on_demand.clone().map(|of| Presence::new(now, of)),
            link: LinkState::new(now, config.rtt),
            link_at: None,
            ceiling: config.clone(),
            config,
            wire,
            sessions: vec![BTreeSet::new(); classes],
            classless: BTreeSet::new(),
            unusable: BTreeSet::new(),
            blocked: false,
            heard_before_blockage: None,
            mru_bytes: None,
            subtracted_bps: 0,
            measured: MeasuredLink::default(),
            efficiency: None,
            by_operator: None,
            followed: Followed::default(),
            weight,
            segment: None,
            guaranteed_bps: None,
            paced_bps: None,
            lowered: false,
            draining: false,
            flight: None,
            before_flight_bytes: 0,
            traffic: vec![HopTraffic::default(); classes],
            arrivals: BTreeMap::new(),
            ready: BTreeMap::new(),
            sent_by: now,
            given_bytes: 0,
            in_flight_since: now,
            moved: now,
            copies: BTreeMap::new(),
            doubt: Doubt::default(),
            standing: Standing::default(),
            replacing: Replacing::default(),
            slowest_answer: SlowestAnswer::default(),
            lags: Lags::default(),
            woken_by_peer: None,
            trial: Trial::new(now),
        };
        hop.paced_bps = hop.rate_bps();
        hop
    }

    /// Replaces the configuration by another for the same neighbour. Windows never shrink, so the
    /// ceiling only rises. A hop that this node dials on demand stays one. For any other, this node
    /// begins or ceases to ask when it needs it.
    pub fn reconfigure(&mut self, now: Instant, config: HopConfig) {
        self.link.set_rtt(config.rtt);
        match (&mut self.meter, config.meter.clone()) {
            (Some(meter), Some(config)) => meter.reconfigure(config),
            (meter, config) => *meter = config.map(Meter::new),
        }
        let before = self.presence.as_ref().map(Presence::config);
        let either = before.or(config.on_demand.as_ref());
        let is_dialled = either.is_some_and(|of| of.dials);
        match (&mut self.presence, config.on_demand.clone()) {
            (Some(presence), Some(config)) => presence.reconfigure(config),
            (presence, of) if !is_dialled => *presence = of.map(|of| Presence::new(now, of)),
            _ => {}
        }
        let ceiling = &mut self.ceiling;
        Hop::raise(&mut ceiling.send_rate_bps, config.send_rate_bps);
        Hop::raise(&mut ceiling.receive_rate_bps, config.receive_rate_bps);
        ceiling.rtt = ceiling.rtt.max(config.rtt);
        self.config = HopConfig {
            // Known from its sessions.
            ipv6: self.config.ipv6,
            ..config
        };
        self.wire = wire_of(&self.config, self.config.ipv6);
    }

    /// Notes which IP version its sessions run over.
    pub fn runs_over(&mut self, ipv6: bool) {
        self.config.ipv6 = ipv6;
        self.wire = wire_of(&self.config, ipv6);
    }

    /// The rate from this node, bit/s of IP bytes: the allowed rate, but no more than the link was
    /// measured to carry.
    pub fn rate_bps(&self) -> Option<u64> {
        let measured = self.measured.rate_bps;
        self.allowed_bps().into_iter().chain(measured).min()
    }

    /// The allowed rate, bit/s of IP bytes: an operator's if there is one; otherwise, on a return
    /// link, the plan's, up to the configured rate.
    fn allowed_bps(&self) -> Option<u64> {
        if let Some(rate_bps) = self.by_operator {
            return rate_bps;
        }
        let most = self.config.send_rate_bps;
        let planned = self.follows(Direction::Return).and_then(|_| {
            let without = self.guaranteed_bps.or(self.config.guaranteed_rate_bps);
            self.planned_bps().or(without)
        });
        planned.into_iter().chain(most).min()
    }

    /// The terminal whose line in the plans of a link it follows.
    pub fn follows(&self, link: Direction) -> Option<u64> {
        let line = self.config.line.filter(|line| line.link == link);
        line.map(|line| line.terminal)
    }

    /// What the plan in force gives it, bit/s of IP bytes. In a planned blockage that is the
    /// guaranteed rate, at which sending goes on if the peer is heard all the same.
    pub fn planned_bps(&self) -> Option<u64> {
        let segment = self.segment?;
        match segment.state {
            State::Blocked => self.guaranteed_bps,
            _ => Some(segment.rate_bps),
        }
    }

    /// Raises a ceiling to a rate, `None` for unlimited. Returns whether it has risen.
    pub fn raise(ceiling_bps: &mut Option<u64>, rate_bps: Option<u64>) -> bool {
        let risen = match (*ceiling_bps, rate_bps) {
            (Some(ceiling), Some(rate)) => rate > ceiling,
            (ceiling, rate) => ceiling.is_some() && rate.is_none(),
        };
        if risen {
            *ceiling_bps = rate_bps;
        }
        risen
    }

    /// Counts a bundle given to the convergence layer.
    pub fn count_sent(&mut self, class: Class, bytes: u64, again: bool, left_out: u64) {
        if let Some(traffic) = self.traffic.get_mut(usize::from(class.0)) {
            traffic.sent_bundles += 1;
            traffic.sent_bytes += bytes;
            if again {
                traffic.repeated_bundles += 1;
                traffic.repeated_bytes += bytes;
            }
            if left_out > 0 {
                traffic.resumed_bundles += 1;
                traffic.resumed_bytes += left_out;
            }
        }
    }

    /// Counts a flow that is to go by it.
    pub fn count_flow(&mut self, class: Class) {
        if let Some(traffic) = self.traffic.get_mut(usize::from(class.0)) {
            traffic.flows += 1;
        }
    }

    /// Notes that a flow which is to go by this hop brings so many bytes that were not expected
    /// before.
    pub fn flow_brings(&mut self, now: Instant, class: Class, bytes: u64) {
        if bytes > 0 {
            self.arrivals.entry(class).or_default().began(now, bytes);
        }
    }

    /// The rate that new flows of a class bring to it, bit/s, counting at most `size_bytes` of
    /// each.
    pub fn arriving_bps(&self, now: Instant, class: Class, size_bytes: u64) -> u64 {
        let arrivals = self.arrivals.get(&class);
        arrivals.map_or(0, |arrivals| arrivals.bps(now, size_bytes))
    }

    /// Counts a bundle that arrived and was kept.
    pub fn count_received(&mut self, class: Class, bytes: u64) {
        if let Some(traffic) = self.traffic.get_mut(usize::from(class.0)) {
            traffic.received_bundles += 1;
            traffic.received_bytes += bytes;
        }
    }

    /// What the link's rate never exceeds, bit/s of IP bytes, plans apart.
    pub fn ceiling_bps(&self) -> Option<u64> {
        self.by_operator.unwrap_or(self.config.send_rate_bps)
    }

    /// The bound on what is sent at first, where there is no other.
    pub fn first_flight(&self) -> Option<FirstFlight> {
        self.measured.first.filter(|_| self.rate_bps().is_none())
    }

    /// What the scheduler grants, bit/s of IP bytes.
    pub fn granted_bps(&self) -> Option<u64> {
        let first = self.first_flight().map(|flight| flight.then_bps);
        self.rate_bps().or(first)
    }

    /// What the sessions may send, bit/s of IP bytes.
    pub fn pace_bps(&self) -> Option<u64> {
        let first = self.first_flight().map(|flight| flight.bps);
        self.usable_bps().or(first)
    }

    /// The rate at which the next bundle is sent, bit/s of IP bytes: low behind a first flight
    /// until that has been answered.
    pub fn next_bps(&self) -> Option<u64> {
        let first = self.first_flight().map(|flight| {
            let given = self.given_bytes.saturating_sub(self.before_flight_bytes);
            match given.saturating_mul(8) < flight.bits {
                true => flight.bps,
                false => flight.then_bps,
            }
        });
        self.usable_bps().or(first)
    }

    /// What is left of the rate for the sessions, bit/s of IP bytes.
    pub fn usable_bps(&self) -> Option<u64> {
        // A stale measurement must not silence the sessions.
        let rate = self.rate_bps()?;
        Some(rate.saturating_sub(self.subtracted_bps).max(rate / 10))
    }

    /// The highest rate that was found to be left for the sessions, within what is allowed at
    /// present, bit/s of IP bytes.
    pub fn best_bps(&self) -> u64 {
        let most = self.trial.most_bps();
        let most = self.allowed_bps().map_or(most, |bps| bps.min(most));
        most.saturating_sub(self.subtracted_bps)
    }

    /// The round trip without a queue: measured, or else configured.
    pub fn round_trip(&self) -> Duration {
        self.measured.base_rtt.unwrap_or(self.config.rtt)
    }

    /// The session that carries `class` at present: its own or one without a
    /// class. The first session to come up is signalling's, which carries all
    /// until another is there.
    pub fn carrier(&self, class: Class) -> Option<SessionId> {
        if self.is_released() {
            return None;
        }
        let of = |class: Class| self.sessions.get(usize::from(class.0));
        let mut own = of(class).into_iter().chain([&self.classless]);
        let alone = || {
            let up = self.sessions.iter().filter(|set| !set.is_empty());
            of(Class::SIGNALLING).filter(|_| up.count() == 1)?.first()
        };
        own.find_map(BTreeSet::first).or_else(alone).copied()
    }

    pub fn insert(&mut self, info: &SessionInfo, session: SessionId) {
        self.set_of(info).insert(session);
    }

    pub fn remove(&mut self, info: &SessionInfo, session: SessionId) {
        self.set_of(info).remove(&session);
    }

    fn set_of(&mut self, info: &SessionInfo) -> &mut BTreeSet<SessionId> {
        match info.class {
            _ if info.receives_only => &mut self.unusable,
            Some(class) => {
                let own = self.sessions.get_mut(usize::from(class.0));
                own.unwrap_or(&mut self.unusable)
            }
            None => &mut self.classless,
        }
    }

    /// If the peer has more sessions than it may: the oldest one of the class that has most.
    pub fn surplus(&self) -> Option<SessionId> {
        let all = || {
            self.sessions
                .iter()
                .chain([&self.classless, &self.unusable])
        };
        let count: usize = all().map(BTreeSet::len).sum();
        let most = self.sessions.len().max(1) * MOST_OF_CLASS;
        let largest = all().max_by_key(|set| set.len()).filter(|_| count > most);
        largest?.first().copied()
    }

    /// Whether a session of a class is in use or may be.
    pub fn has(&self, class: Class, session: SessionId) -> bool {
        let sessions = self.sessions.get(usize::from(class.0));
        sessions.is_some_and(|set| set.contains(&session))
    }

    /// The sessions of a class that came up before `session`.
    pub fn older(&self, class: Class, session: SessionId) -> Vec<SessionId> {
        let sessions = self.sessions.get(usize::from(class.0));
        sessions.map_or_else(Vec::new, |set| set.range(..session).copied().collect())
    }

    /// How long a full segment takes to leave at its rate, as far as that is known.
    pub fn segment_time(&self) -> Duration {
        let nanos = |bps: u64| u64::from(self.config.mtu_bytes) * 8_000_000_000 / bps.max(1);
        Duration::from_nanos(self.pace_bps().map_or(0, nanos))
    }

    /// Whether any session is up.
    pub fn is_up(&self) -> bool {
        !self.classless.is_empty() || self.sessions.iter().any(|set| !set.is_empty())
    }

    /// Whether it is up on demand, and released by this node.
    pub fn is_released(&self) -> bool {
        self.presence.as_ref().is_some_and(Presence::is_released)
    }

    /// The sessions by which bundles of such classes go or may go.
    pub fn sessions_for(&self, is_one: impl Fn(Class) -> bool) -> BTreeSet<SessionId> {
        let mut sessions: BTreeSet<SessionId> = &self.classless | &self.unusable;
        for (number, own) in (0..).zip(&self.sessions) {
            if is_one(Class(number)) {
                sessions.extend(own);
                sessions.extend(self.carrier(Class(number)));
            }
        }
        sessions
    }

    /// All sessions of the hop.
    pub fn all_sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.sessions
            .iter()
            .chain([&self.classless, &self.unusable])
            .flatten()
            .copied()
    }
}

fn wire_of(config: &HopConfig, ipv6: bool) -> TcpWire {
    TcpWire::new(config.mtu_bytes, ipv6, config.tls, SEGMENT_BYTES)
}
