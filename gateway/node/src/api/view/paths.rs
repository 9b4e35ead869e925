//! The hops to the neighbours, and what is known of their links.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use underpass_cla::PathFigures;
use underpass_engine::{
    HopSnapshot, LinkSnapshot, MeasuredLink, OnDemandSnapshot, PlannedBlockage, Source,
};
use underpass_reports::CapacityReason;

use super::SessionView;
use crate::api::ApiState;
use crate::api::budgets::MeterView;
use crate::api::mptcp::PathMptcp;
use crate::run::reports::reported;

/// A hop with its sessions.
#[derive(Debug, Serialize, Deserialize)]
pub struct PathView {
    #[serde(flatten)]
    pub hop: HopFields,
    /// Its sessions that were to be over MPTCP; null if none was.
    #[serde(default)]
    pub mptcp: Option<PathMptcp>,
    pub sessions: Vec<SessionView>,
}

/// A hop without its sessions.
#[derive(Debug, Serialize, Deserialize)]
pub struct HopFields {
    /// The path's or terminal's name.
    pub name: String,
    /// The neighbour's ipn node number.
    pub neighbour: u64,
    /// Whether any session is up.
    pub up: bool,
    pub blocked: bool,
    /// Whether its sessions offer no extension items, since the neighbour ends
    /// those that do.
    #[serde(default)]
    pub without_items: bool,
    /// both, or receive: this node sends nothing by it.
    #[serde(default)]
    pub direction: String,
    pub link: LinkView,
    /// Rate from this node, bit/s of IP bytes; null is unlimited.
    pub rate_bps: Option<u64>,
    /// Whether it follows plan and configuration, that is, no operator has set it.
    pub follow_plan: bool,
    /// Taken from the rate for ACKs and plain IP, bit/s.
    pub subtracted_bps: u64,
    /// What its link was measured to carry.
    pub measured: MeasuredView,
    /// Bits per unit of the beam's capacity in the present MODCOD, as reported; null if nobody has
    /// reported it.
    pub efficiency: Option<f64>,
    /// What is spent on it; null if it is not metered.
    #[serde(default)]
    pub meter: Option<MeterView>,
    /// Whether it is up; null where it always is.
    #[serde(default)]
    pub on_demand: Option<OnDemandView>,
}

/// A path that is up on demand.
#[derive(Debug, Serialize, Deserialize)]
pub struct OnDemandView {
    /// Whether this node brings it up; if not, it asks the neighbour to.
    pub dials: bool,
    pub up: bool,
    /// Since when it is so, s.
    pub since_s: f64,
    /// operator, pinned, others-down, backlog or neighbour; null if nothing needs
    /// it.
    pub need: Option<String>,
    /// Whether an operator has brought it up (true) or released it (false); null: neither.
    pub held: Option<bool>,
    /// How long it was up since the start, s.
    pub up_s: f64,
    /// How often it was brought up since the start, by reason.
    pub brought_up: BTreeMap<String, u64>,
}

impl OnDemandView {
    fn of(path: &OnDemandSnapshot) -> OnDemandView {
        let since = path.since.elapsed();
        let now = if path.dials && path.up {
            since
        } else {
            Duration::ZERO
        };
        let times = path.brought_up.iter();
        OnDemandView {
            dials: path.dials,
            up: path.up,
            since_s: since.as_secs_f64(),
            need: path.need.map(|need| need.name().to_owned()),
            held: path.held,
            up_s: (path.up_time + now).as_secs_f64(),
            brought_up: times.map(|(why, n)| (why.name().to_owned(), *n)).collect(),
        }
    }
}

/// What is known of a link by measuring.
#[derive(Debug, Serialize, Deserialize)]
pub struct MeasuredView {
    /// Its measured capacity, bit/s of IP bytes; null while no measurement shows less than the
    /// configured rate.
    pub capacity_bps: Option<u64>,
    /// What that goes back to; null as above.
    pub reason: Option<CapacityReason>,
    /// The round trip without a queue, ms; null if it is not known.
    pub base_rtt_ms: Option<f64>,
    /// How long its queue holds packets up, ms.
    pub queue_ms: f64,
    /// Part of the packets that it loses by itself.
    pub loss: f64,
}

impl MeasuredView {
    fn of(link: &MeasuredLink) -> MeasuredView {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        MeasuredView {
            capacity_bps: link.capacity_bps,
            reason: link.reason.map(reported),
            base_rtt_ms: link.base_rtt.map(ms),
            queue_ms: ms(link.queue),
            loss: link.loss,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct LinkView {
    /// operator, modem, contact, plan or probing; null if it is not blocked.
    pub blocked_by: Option<Source>,
    pub blocked_s: Option<f64>,
    /// Time since the peer was last heard, s; null if it never was.
    pub silence_s: Option<f64>,
    /// Whether silence of the peer would indicate a blockage.
    pub probed: bool,
    /// Planned blockages that are not over.
    pub planned: Vec<PlannedView>,
    /// Whether the peer is heard in the planned blockage in force.
    pub plan_contradicted: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedView {
    /// Nothing is sent from here on, RFC 3339.
    #[serde(with = "time::serde::rfc3339")]
    pub entry: OffsetDateTime,
    /// Sending starts again, RFC 3339.
    #[serde(with = "time::serde::rfc3339")]
    pub exit: OffsetDateTime,
}

impl LinkView {
    fn of(link: &LinkSnapshot) -> LinkView {
        LinkView {
            blocked_by: link.blocked.map(|(source, _)| source),
            blocked_s: link.blocked.map(|(_, since)| since.elapsed().as_secs_f64()),
            silence_s: link.heard.map(|at| at.elapsed().as_secs_f64()),
            probed: link.probed,
            planned: link.planned.iter().filter_map(PlannedView::of).collect(),
            plan_contradicted: link.plan_contradicted,
        }
    }
}

impl PlannedView {
    /// Times beyond the year 9999 have no RFC 3339 form.
    fn of(planned: &PlannedBlockage) -> Option<PlannedView> {
        let time = |ms: u64| {
            let nanoseconds = i128::from(ms) * 1_000_000;
            OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).ok()
        };
        Some(PlannedView {
            entry: time(planned.entry_ms)?,
            exit: time(planned.exit_ms)?,
        })
    }

    /// In the engine's form; none if it does not lie after 1970, or ends before it begins.
    pub fn planned(&self) -> Option<PlannedBlockage> {
        let ms = |time: OffsetDateTime| u64::try_from(time.unix_timestamp_nanos() / 1_000_000).ok();
        let (entry_ms, exit_ms) = (ms(self.entry)?, ms(self.exit)?);
        (entry_ms < exit_ms).then_some(PlannedBlockage { entry_ms, exit_ms })
    }
}

impl ApiState {
    pub(in crate::api) fn paths(&self) -> Vec<PathView> {
        let figures: BTreeMap<u64, PathFigures> = self
            .shell
            .session_figures()
            .into_iter()
            .map(|reading| (reading.id.0, reading.figures))
            .collect();
        let hops = self.shell.hops();
        hops.into_iter()
            .map(|hop| self.path_view(hop, &figures))
            .collect()
    }

    fn path_view(&self, hop: HopSnapshot, figures: &BTreeMap<u64, PathFigures>) -> PathView {
        let sessions = hop.sessions.into_iter().map(|session| {
            let measured = figures.get(&session.id).copied().unwrap_or_default();
            self.session_view(session, measured)
        });
        let mut view = PathView {
            mptcp: None,
            sessions: sessions.collect(),
            hop: HopFields {
                without_items: (self.without_items)(&hop.name),
                name: hop.name,
                neighbour: hop.neighbour,
                up: hop.up,
                blocked: hop.blocked,
                direction: if hop.sends { "both" } else { "receive" }.to_owned(),
                link: LinkView::of(&hop.link),
                rate_bps: hop.send_rate_bps,
                follow_plan: !hop.rate_by_operator,
                subtracted_bps: hop.subtracted_bps,
                measured: MeasuredView::of(&hop.measured),
                efficiency: hop.efficiency,
                meter: hop.meter.as_ref().map(|meter| self.meter_view(meter)),
                on_demand: hop.on_demand.as_ref().map(OnDemandView::of),
            },
        };
        view.mptcp = PathMptcp::of(&view);
        view
    }
}
