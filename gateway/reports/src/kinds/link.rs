//! Reports of links: their state, and their blockages.

use serde::{Deserialize, Serialize};
use underpass_plans::Direction;

/// What a node's links do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The node's clock, ms since the Unix epoch; absent if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_ms: Option<u64>,
    /// The node's clock minus the control service's, ms; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_offset_ms: Option<i64>,
    /// Whether the kernel says that the node's clock is synchronised.
    #[serde(default)]
    pub synchronised: bool,
    /// The node's report about itself; absent in most, as it seldom changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeReport>,
    /// A terminal's proof that it is at a gateway; absent in most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    /// Its links.
    pub links: Vec<LinkReport>,
}

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// The version of its software: 1 to 64 visible ASCII characters.
    pub version: String,
    /// When its certificate ends, ms since the Unix epoch; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_end_ms: Option<u64>,
}

/// A terminal's word that it is at a gateway, which moves it there at the control service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// The gateway's ipn node number.
    pub gateway: u64,
    /// When it was made, ms since the Unix epoch by the control service's clock.
    pub time_ms: u64,
    /// HMAC-SHA256 by the terminal's token, 64 lower-case hexadecimal digits.
    pub mac: String,
}

/// One direction of one terminal's link, as its sending node sees it. Counts
/// are since the node's start, so that a lost report loses nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// The terminal's ipn node number.
    pub terminal: u64,
    /// The sender's name of the path.
    pub path: String,
    /// The direction in which this node sends.
    pub direction: Direction,
    /// Whether it can be sent on.
    pub state: LinkState,
    /// Bytes that clients have handed in for it, streams' payload.
    pub offered_bytes: u64,
    /// Bytes that wait to be sent.
    pub backlogged_bytes: u64,
    /// IP bytes sent.
    pub sent_bytes: u64,
    /// Streams open.
    pub streams: u64,
    /// The allocated rate, bit/s of IP bytes; absent if it is unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// The version of the plan in force; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_version: Option<u64>,
    /// Bits per unit of the beam's capacity in the present MODCOD, above 0;
    /// absent if neither a modem nor an operator has told it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub efficiency: Option<f64>,
    /// The measured capacity; absent while no measurement shows less than what is allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured: Option<MeasuredCapacity>,
    /// Further figures, for people: no plan uses them. Absent from nodes of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub figures: Option<LinkFigures>,
}

/// Figures of a link that plans do not use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkFigures {
    /// The smoothed round trip, queues included, ms; absent if not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<u64>,
    /// How long the link's queue delays packets, ms.
    pub queue_ms: u64,
    /// Part of the packets that the link loses by itself, 0 to 1.
    pub loss: f64,
    /// Bundles that this node keeps for the node at the other end.
    pub stored_bundles: u64,
    /// The bytes of these.
    pub stored_bytes: u64,
    /// What each class has open or waiting, at most [`MAX_CLASSES`]; classes
    /// without either are left out, and so are those with a longer name.
    pub classes: Vec<ClassFigures>,
}

/// Classes in a link's figures at most.
pub const MAX_CLASSES: usize = 8;

/// Bytes of a class's name in them at most.
pub const MAX_CLASS_NAME_BYTES: usize = 32;

/// What streams of one class ask of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassFigures {
    /// The class's name.
    pub name: String,
    /// Its streams; absent where there are too many streams to count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<u64>,
    /// Bytes that wait to be sealed.
    pub backlogged_bytes: u64,
}

/// The measured capacity of a link in the direction of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredCapacity {
    /// bit/s of IP bytes.
    pub capacity_bps: u64,
    /// What it goes back to.
    pub reason: CapacityReason,
}

/// What a measured capacity goes back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CapacityReason {
    /// The configuration, or the measurement of the last run: the link has not been measured yet.
    Hint,
    /// The rate at which the first packets arrived: the link may well carry more.
    Start,
    /// A probe that arrived: the link carries this much, and may carry more.
    Probe,
    /// More was sent than arrived: the link carries this much and no more.
    Limit,
    /// A reason of a later release.
    #[serde(other)]
    Other,
}

impl Status {
    /// Whether it has news since `earlier`. The passing of time is no news, nor are bytes on the
    /// hop that no client has handed in, since the reports themselves cause such bytes. Figures
    /// alone are no news either.
    pub fn has_news(&self, earlier: &Status) -> bool {
        let plain = |link: &LinkReport| LinkReport {
            sent_bytes: 0,
            figures: None,
            ..link.clone()
        };
        self.synchronised != earlier.synchronised
            || self.clock_offset_ms.is_some() != earlier.clock_offset_ms.is_some()
            || !self
                .links
                .iter()
                .map(plain)
                .eq(earlier.links.iter().map(plain))
            || self.links.iter().any(|link| link.backlogged_bytes > 0)
    }
}

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// A session is up and may send.
    Up,
    /// Nothing is sent: the link is blocked.
    Blocked,
    /// No session is up.
    Down,
}

/// A blockage of a link on which the node sends: reported when it begins, and again, with the same
/// entry, when it ends. Times are the control service's, as far as the node knows its own clock's
/// offset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Blockage {
    /// The terminal's ipn node number.
    pub terminal: u64,
    /// The sender's name of the path.
    pub path: String,
    /// The direction in which this node sends.
    pub direction: Direction,
    /// When it began, ms since the Unix epoch; for one found by probing, when
    /// the peer was last heard.
    pub entry_ms: u64,
    /// Who said so first.
    pub source: BlockageSource,
    /// The node has not heard the peer since its process began: an earlier process may have
    /// reported the same blockage, with an earlier entry.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unheard: bool,
    /// When it ended, ms since the Unix epoch; absent while it lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_ms: Option<u64>,
}

/// Who says that a link is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockageSource {
    /// The plan.
    Plan,
    /// The modem.
    Modem,
    /// An operator.
    Operator,
    /// The peer's silence.
    Probing,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(change: impl FnOnce(&mut LinkReport)) -> Status {
        let mut link = LinkReport {
            terminal: 10,
            path: "satellite".to_owned(),
            direction: Direction::Return,
            state: LinkState::Up,
            offered_bytes: 1_000,
            backlogged_bytes: 0,
            sent_bytes: 2_000,
            streams: 1,
            rate_bps: Some(2_000_000),
            plan_version: Some(7),
            efficiency: None,
            measured: None,
            figures: None,
        };
        change(&mut link);
        Status {
            time_ms: Some(1),
            clock_offset_ms: Some(3),
            synchronised: true,
            node: None,
            proof: None,
            links: vec![link],
        }
    }

    #[test]
    fn what_clients_planner_or_link_do_is_news() {
        let before = status(|_| {});
        let changes: [fn(&mut LinkReport); 7] = [
            |link| link.state = LinkState::Blocked,
            |link| link.offered_bytes += 1,
            |link| link.streams = 0,
            |link| link.rate_bps = None,
            |link| link.plan_version = Some(8),
            |link| link.efficiency = Some(0.5),
            |link| {
                link.measured = Some(MeasuredCapacity {
                    capacity_bps: 500_000,
                    reason: CapacityReason::Limit,
                });
            },
        ];
        for change in changes {
            assert!(status(change).has_news(&before));
        }
        let busy = status(|link| link.backlogged_bytes = 5);
        assert!(busy.has_news(&busy), "a backlog is served");
        let mut more = before.clone();
        more.links.push(more.links[0].clone());
        assert!(more.has_news(&before));
    }

    #[test]
    fn time_and_the_reports_own_bytes_are_none() {
        let before = status(|_| {});
        let mut later = status(|link| {
            link.sent_bytes += 500;
            link.figures = Some(LinkFigures {
                stored_bundles: 1,
                ..LinkFigures::default()
            });
        });
        later.time_ms = Some(1_001);
        later.clock_offset_ms = Some(4);
        assert!(!later.has_news(&before));
    }
}
