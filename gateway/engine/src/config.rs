//! The configuration of an engine.

use std::collections::BTreeMap;
use std::time::Duration;

use underpass_bundle as bundle;
use underpass_cla::Class;
use underpass_plans::Direction;
use underpass_scheduler as scheduler;
use underpass_streams::Announcement;

use crate::budget::MeterConfig;
use crate::hop::HopId;
use crate::on_demand::OnDemand;
use crate::policy::Policy;

/// The configuration of an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// This node's ipn node number.
    pub node: u64,
    /// This process' incarnation, higher than any before.
    pub incarnation: u64,
    /// The bundle node. Its routes are for destinations that are neither neighbours nor in
    /// `routes`.
    pub agent: bundle::Config,
    /// Classes and utilisation of the links.
    pub scheduler: scheduler::Config,
    /// Capacity that all hops on the beam share, bit/s of IP bytes.
    pub beam_rate_bps: Option<u64>,
    /// The hops to the neighbours.
    pub hops: Vec<HopConfig>,
    /// Routes to nodes that are no neighbours.
    pub routes: Vec<RouteEntry>,
    /// Streams open at once with one peer.
    pub max_streams: usize,
    /// Overrides the credit per peer, bytes.
    pub window_bytes: Option<u64>,
    /// Overrides the bytes that a stream may have waiting for the link.
    pub send_buffer_bytes: Option<u64>,
    /// Lifetime of the bundles that carry streams.
    pub lifetime: Duration,
    /// How long a blocked link holds a connection before it is reset.
    pub hold: Duration,
    /// Whether this node has an edge: streams begin and end here.
    pub edge: bool,
    /// Address families that the edge reaches.
    pub reaches: Announcement,
    /// The class of bundles from peers that do not know classes.
    pub default_class: Class,
    /// By which of several paths each class goes; by default it is bonded over all.
    pub policies: BTreeMap<Class, Policy>,
}

/// A hop to a neighbour over one path.
#[derive(Clone, Debug)]
pub struct HopConfig {
    /// Its number, unique in the engine.
    pub id: HopId,
    /// The path's or terminal's name.
    pub name: String,
    /// The other names by which sessions and policies know it: at the side that dials, its path; at
    /// the side that accepts, the listeners that it comes in by.
    pub known_as: Vec<String>,
    /// The neighbour's ipn node number.
    pub neighbour: u64,
    /// Whether it shares the beam's capacity with others; else it has a link of its own.
    pub on_beam: bool,
    /// Share of the beam while no plan says otherwise.
    pub weight: u64,
    /// Rate from this node, bit/s of IP bytes, that no plan exceeds.
    pub send_rate_bps: Option<u64>,
    /// Where the estimate of what the link carries starts, bit/s of IP bytes; `None`: with what the
    /// first packets show.
    pub rate_hint_bps: Option<u64>,
    /// The round trip without a queue that was measured with that, if it comes from an earlier run:
    /// on a path with quite another one it is not used.
    pub rate_hint_rtt: Option<Duration>,
    /// Rate from this node while there has been no plan, bit/s of IP bytes;
    /// none is `send_rate_bps`.
    pub guaranteed_rate_bps: Option<u64>,
    /// The line that it follows in plans, if it follows any.
    pub line: Option<PlanLine>,
    /// Rate to this node, bit/s of IP bytes.
    pub receive_rate_bps: Option<u64>,
    /// Round-trip time without load.
    pub rtt: Duration,
    /// The round trip is a guess, which a measured one replaces.
    pub rtt_is_guess: bool,
    /// Largest IP packet, bytes.
    pub mtu_bytes: u32,
    /// Whether this node dials its sessions, as terminals do: then its obstructions are mostly at
    /// this end.
    pub dials: bool,
    /// Whether bundles are sent by it; else it only receives.
    pub sends: bool,
    /// Whether sessions run over IPv6.
    pub ipv6: bool,
    /// Whether sessions run over TLS.
    pub tls: bool,
    /// What may be spent on it, if its bytes are paid for.
    pub meter: Option<MeterConfig>,
    /// When it is up, if not always.
    pub on_demand: Option<OnDemand>,
}

/// A terminal's line in the plans of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanLine {
    /// The forward link: the line gives the hop its share of the beam. The
    /// return link: the line gives the hop its rate.
    pub link: Direction,
    /// The terminal's ipn node number.
    pub terminal: u64,
}

/// Window where no rate is known: enough for 10 Gbit/s over 50 ms.
const UNLIMITED_WINDOW_BYTES: u64 = 64 << 20;
/// With a smaller window, credit on a narrow hop would cost as much as custody signals.
const LEAST_WINDOW_BYTES: u64 = 4 << 20;
const LEAST_SEND_BUFFER_BYTES: u64 = 64 << 10;
const MOST_SEND_BUFFER_BYTES: u64 = 4 << 20;
/// Windows cover so many bandwidth-delay products: one in flight, one for a
/// repair, one for the repair of a repair that was lost (at 1 % loss there is
/// one in every round trip), one for the credit's way back.
const WINDOW_PRODUCTS: u64 = 4;
/// A send buffer holds so much line time: two bundles.
const SEND_BUFFER_MS: u64 = 100;

/// The window that stream credit, socket buffers and custody each cover on a hop, bytes: 4 × rate ×
/// RTT; 64 MiB where the rate is not known.
pub fn window_bytes(rate_bps: Option<u64>, rtt: Duration) -> u64 {
    let Some(rate_bps) = rate_bps else {
        return UNLIMITED_WINDOW_BYTES;
    };
    let bytes = u128::from(rate_bps) * rtt.as_micros() * u128::from(WINDOW_PRODUCTS) / 8_000_000;
    u64::try_from(bytes)
        .unwrap_or(u64::MAX)
        .max(LEAST_WINDOW_BYTES)
}

impl HopConfig {
    /// A hop over a satellite without limits, by sessions over IPv4 and TLS.
    pub fn new(id: HopId, name: String, neighbour: u64) -> HopConfig {
        HopConfig {
            id,
            name,
            known_as: Vec::new(),
            neighbour,
            on_beam: true,
            weight: 1,
            send_rate_bps: None,
            rate_hint_bps: None,
            rate_hint_rtt: None,
            guaranteed_rate_bps: None,
            line: None,
            receive_rate_bps: None,
            rtt: Duration::from_millis(600),
            rtt_is_guess: false,
            mtu_bytes: 1500,
            dials: false,
            sends: true,
            ipv6: false,
            tls: true,
            meter: None,
            on_demand: None,
        }
    }

    /// The window of the direction with `rate_bps`, bytes.
    pub fn window_bytes(&self, rate_bps: Option<u64>) -> u64 {
        window_bytes(rate_bps, self.rtt)
    }

    /// The same hop with another to the same neighbour beside it: the rates add
    /// up, and the longer round trip counts.
    pub(crate) fn beside(mut self, other: &HopConfig) -> HopConfig {
        let sum = |one: Option<u64>, other: Option<u64>| {
            one.zip(other).map(|(one, other)| one.saturating_add(other))
        };
        self.send_rate_bps = sum(self.send_rate_bps, other.send_rate_bps);
        self.receive_rate_bps = sum(self.receive_rate_bps, other.receive_rate_bps);
        self.rtt = self.rtt.max(other.rtt);
        self
    }

    /// The bytes that one stream may have waiting for the link: 100 ms of line time.
    pub fn send_buffer_bytes(&self) -> u64 {
        send_buffer_bytes(self.send_rate_bps)
    }
}

/// The same for a rate, bit/s.
pub(crate) fn send_buffer_bytes(rate_bps: Option<u64>) -> u64 {
    rate_bps
        .map_or(MOST_SEND_BUFFER_BYTES, |rate| {
            rate / 8 * SEND_BUFFER_MS / 1000
        })
        .clamp(LEAST_SEND_BUFFER_BYTES, MOST_SEND_BUFFER_BYTES)
}

/// A static route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteEntry {
    /// Destination's ipn node number.
    pub node: u64,
    /// The neighbour to give bundles to.
    pub via: u64,
    /// Whether this node takes custody of what it forwards there.
    pub custody: bool,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn hop(rate: Option<u64>) -> HopConfig {
        HopConfig {
            send_rate_bps: rate,
            receive_rate_bps: rate,
            ..HopConfig::new(HopId(0), "sat".to_owned(), 1)
        }
    }

    #[test]
    fn a_window_covers_four_bandwidth_delay_products() {
        assert_eq!(hop(None).window_bytes(Some(140_000_000)), 42_000_000);
        assert_eq!(hop(None).window_bytes(Some(8_000)), LEAST_WINDOW_BYTES);
    }

    #[test]
    fn a_send_buffer_covers_two_bundles() {
        assert_eq!(hop(Some(40_000_000)).send_buffer_bytes(), 500_000);
        assert_eq!(
            hop(Some(64_000)).send_buffer_bytes(),
            LEAST_SEND_BUFFER_BYTES
        );
    }
}
