//! What the local API shows, as JSON.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use underpass_bpsec::{Guard, Operation, Outcome};
use underpass_cla::{Class, LtpFigures, PathFigures};
use underpass_engine::{
    HopSnapshot, LinkSnapshot, MeasuredLink, OnDemandSnapshot, PlannedBlockage, SessionSnapshot,
    Source,
};
use underpass_reports::CapacityReason;
use underpass_store::Figures;

use super::ApiState;
use super::budgets::MeterView;
use super::cdni::CdniView;
use super::contact_plan::ContactPlanView;
use super::control::ControlView;
use super::edge::EdgeSwitches;
use super::holds::HoldView;
use super::migrations::MigrationView;
use super::mptcp::{MptcpView, PathMptcp};
use super::plans::PlansView;
use crate::config::Durability;
use crate::confinement::Confinement;
use crate::positions::PositionView;
use crate::run::reports::reported;

/// The node at one moment.
#[derive(Debug, Serialize, Deserialize)]
pub struct Status {
    /// The node's id, `ipn:N.0`.
    pub node: String,
    /// terminal, hub or relay.
    pub role: String,
    /// The program's version.
    pub version: String,
    /// Count of the node's starts.
    pub incarnation: u64,
    /// Since the start, s.
    pub uptime_s: f64,
    /// The hops to the neighbours.
    pub paths: Vec<PathView>,
    /// Where the classes go that move between paths.
    #[serde(default)]
    pub migrations: Vec<MigrationView>,
    /// What operators have set.
    #[serde(default)]
    pub holds: Vec<HoldView>,
    /// The classes' names in the order of their numbers.
    pub classes: Vec<String>,
    /// Streams by class name.
    pub streams: BTreeMap<String, StreamsView>,
    /// The plans that the links follow, and those that are passed on.
    pub plans: PlansView,
    /// The contact plan that bundles go by; null without one.
    #[serde(default)]
    pub contact_plan: Option<ContactPlanView>,
    /// What is in custody.
    pub custody: CustodyView,
    /// Payloads on disk; null where there are none.
    #[serde(default)]
    pub payloads: Option<PayloadsView>,
    /// What came of the rules of `[bpsec]`.
    #[serde(default)]
    pub bpsec: BpsecView,
    /// What is taken in, and what is switched off.
    pub edge: EdgeSwitches,
    /// The contact with the control service; null without one.
    pub control: Option<ControlView>,
    /// Where it is; null where it has no receiver.
    pub position: Option<PositionView>,
    /// Congestion controls that this machine offers, and why not others.
    pub congestion_controls: Vec<String>,
    /// Where sizes of objects are told; null without `[cdni]`.
    #[serde(default)]
    pub cdni: Option<CdniView>,
    /// What was asked of the kernel for MPTCP; null where nothing has it.
    #[serde(default)]
    pub mptcp: Option<MptcpView>,
    /// What its process may still do.
    #[serde(default)]
    pub confinement: Confinement,
}

/// Payloads that are too long for memory.
#[derive(Debug, Serialize, Deserialize)]
pub struct PayloadsView {
    /// How many there are.
    pub count: usize,
    /// Their bytes, those that are still to come included.
    pub bytes: u64,
    /// The most there may be, bytes.
    pub quota_bytes: u64,
}

/// Bundles that the rules of `[bpsec]` were applied to.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct BpsecView {
    /// Rules in force.
    pub rules: usize,
    /// By outcome: bundles that were authenticated here, and those that came in.
    pub integrity: BTreeMap<String, u64>,
    /// By outcome: bundles that were encrypted here, and those that came in.
    pub confidentiality: BTreeMap<String, u64>,
}

impl BpsecView {
    fn of(guard: &Guard) -> BpsecView {
        let counts = |operation| {
            let outcomes = Outcome::ALL.into_iter();
            let counts = outcomes.map(|outcome| {
                let count = guard.counts().get(operation, outcome);
                (outcome.name().to_owned(), count)
            });
            counts.collect()
        };
        BpsecView {
            rules: guard.rules_in_force(),
            integrity: counts(Operation::Integrity),
            confidentiality: counts(Operation::Confidentiality),
        }
    }
}

/// A hop with its sessions.
#[derive(Debug, Serialize, Deserialize)]
pub struct PathView {
    /// The hop.
    #[serde(flatten)]
    pub hop: HopFields,
    /// Its sessions that were to be over MPTCP; null if none was.
    #[serde(default)]
    pub mptcp: Option<PathMptcp>,
    /// Its sessions.
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
    /// Whether the link is blocked.
    pub blocked: bool,
    /// Whether its sessions offer no extension items, since the neighbour ends
    /// those that do.
    #[serde(default)]
    pub without_items: bool,
    /// both, or receive: this node sends nothing by it.
    #[serde(default)]
    pub direction: String,
    /// What is known of the link.
    pub link: LinkView,
    /// Rate from this node, bit/s of IP bytes; null is unlimited.
    pub rate_bps: Option<u64>,
    /// Whether it follows plan and configuration: no operator has set it.
    pub follow_plan: bool,
    /// Taken from the rate for ACKs and plain IP, bit/s.
    pub subtracted_bps: u64,
    /// What its link was measured to carry.
    pub measured: MeasuredView,
    /// Bits per unit of the beam's capacity in the present MODCOD, as it was
    /// told; null if nobody has told it.
    pub efficiency: Option<f64>,
    /// What is spent on it; null where its bytes are not paid for.
    #[serde(default)]
    pub meter: Option<MeterView>,
    /// Whether it is up; null where it always is.
    #[serde(default)]
    pub on_demand: Option<OnDemandView>,
}

/// A path that is up on demand.
#[derive(Debug, Serialize, Deserialize)]
pub struct OnDemandView {
    /// Whether this node brings it up; else it asks the neighbour to.
    pub dials: bool,
    /// Whether it is brought up.
    pub up: bool,
    /// Since when it is so, s.
    pub since_s: f64,
    /// operator, pinned, others-down, backlog or neighbour; null if nothing needs
    /// it.
    pub need: Option<String>,
    /// Whether an operator has it up (true) or released (false); null: neither.
    pub held: Option<bool>,
    /// How long it was up since the start, s.
    pub up_s: f64,
    /// How often it was brought up since the start, by why.
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
    /// What it carries, bit/s of IP bytes; null while nothing has shown that it is
    /// less than the rate that is set.
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

/// Whether a link is there.
#[derive(Debug, Serialize, Deserialize)]
pub struct LinkView {
    /// operator, modem, contact, plan or probing; null if it is not blocked.
    pub blocked_by: Option<Source>,
    /// How long it has been blocked, s.
    pub blocked_s: Option<f64>,
    /// How long the peer has not been heard, s; null if it never was.
    pub silence_s: Option<f64>,
    /// Whether the peer's silence would tell of a blockage.
    pub probed: bool,
    /// Planned blockages that are not over.
    pub planned: Vec<PlannedView>,
    /// Whether the peer is heard in the planned blockage in force.
    pub plan_contradicted: bool,
}

/// A planned blockage.
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

/// A session with what its transport measures.
#[derive(Debug, Serialize, Deserialize)]
pub struct SessionView {
    /// Its number.
    pub id: u64,
    /// Its class by name; null carries all.
    pub class: Option<String>,
    /// Whether it was set up as a standby.
    pub standby: bool,
    /// Whether it carries its class at present.
    pub carrying: bool,
    /// Remote address.
    pub remote: String,
    /// Whether TLS authenticates the peer.
    pub tls: bool,
    /// The convergence layer, as the configuration names it.
    pub convergence_layer: String,
    /// Congestion control in use.
    pub congestion_control: String,
    /// Subflows of its MPTCP connection, as of when bytes last moved; 0 where it
    /// is plain TCP for want of MPTCP; null where none was asked for.
    #[serde(default)]
    pub subflows: Option<u32>,
    /// Smoothed round-trip time, ms.
    pub rtt_ms: f64,
    /// Least round-trip time, ms.
    pub min_rtt_ms: f64,
    /// Delivery rate, bit/s.
    pub delivery_rate_bps: u64,
    /// Congestion window, bytes.
    pub cwnd_bytes: u64,
    /// Bytes sent and not acknowledged.
    pub in_flight_bytes: u64,
    /// Bytes sent in all, retransmissions included.
    pub sent_bytes: u64,
    /// Bytes sent again in all.
    pub retransmitted_bytes: u64,
    /// Bytes received in all.
    pub received_bytes: u64,
    /// Symbols of bundles sent as coded datagrams, each counted once.
    pub symbols_sent: u64,
    /// Repair symbols sent ahead of any request.
    pub repair_symbols_sent: u64,
    /// Symbols sent because the neighbour lacked them.
    pub asked_symbols_sent: u64,
    /// Lost symbols that repair has given here without a round trip.
    pub symbols_recovered: u64,
    /// With LTP: what is under way, and what was given up or refused.
    pub ltp: Option<LtpView>,
}

/// What a neighbour over LTP has under way, and what was given up or refused.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct LtpView {
    /// Blocks under way to the neighbour.
    pub sending_blocks: u64,
    /// Blocks under way from it.
    pub receiving_blocks: u64,
    /// Memory for incomplete blocks from it, bytes.
    pub receiving_bytes: u64,
    /// Blocks to it that either side has given up, in all.
    pub cancelled_sent_blocks: u64,
    /// Blocks from it that either side has given up, in all.
    pub cancelled_received_blocks: u64,
    /// Segments from it that were refused, by reason, in all.
    pub refused_segments: RefusedSegmentsView,
}

/// Segments that were refused, by reason.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct RefusedSegmentsView {
    /// No segment.
    pub malformed: u64,
    /// Of a session that is not with this node.
    pub foreign: u64,
    /// Of a session that is over.
    pub closed: u64,
    /// Contradicts others.
    pub impossible: u64,
    /// Beyond a bound of `[ltp]`.
    pub no_room: u64,
}

impl LtpView {
    fn of(measured: LtpFigures) -> LtpView {
        LtpView {
            sending_blocks: measured.sending_blocks,
            receiving_blocks: measured.receiving_blocks,
            receiving_bytes: measured.receiving_bytes,
            cancelled_sent_blocks: measured.cancelled_sent_blocks,
            cancelled_received_blocks: measured.cancelled_received_blocks,
            refused_segments: RefusedSegmentsView {
                malformed: measured.malformed_segments,
                foreign: measured.foreign_segments,
                closed: measured.closed_segments,
                impossible: measured.impossible_segments,
                no_room: measured.no_room_segments,
            },
        }
    }
}

/// The streams of one class.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct StreamsView {
    /// Streams with both directions open.
    pub open: u64,
    /// Streams with one direction ended.
    pub half_closed: u64,
    /// Streams whose peer has not confirmed the end.
    pub draining: u64,
    /// Bytes sent in all.
    pub sent_bytes: u64,
    /// Bytes received in all.
    pub received_bytes: u64,
    /// Bytes that wait for the link.
    pub backlog_bytes: u64,
}

/// The custody store.
#[derive(Debug, Serialize, Deserialize)]
pub struct CustodyView {
    /// Bundles stored.
    pub bundles: u64,
    /// Bytes stored, as the quota counts them.
    pub used_bytes: u64,
    /// The quota, bytes.
    pub quota_bytes: u64,
    /// What custody outlives: memory or disk.
    pub durability: String,
    /// The store on the disk; null without one.
    pub disk: Option<DiskView>,
    /// By class name.
    pub classes: BTreeMap<String, CustodyClassView>,
    /// By neighbour.
    pub neighbours: Vec<CustodyNeighbourView>,
}

/// What is stored for one neighbour.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct CustodyNeighbourView {
    /// Its node number.
    pub neighbour: u64,
    /// Bundles stored.
    pub bundles: u64,
    /// Bytes stored, as the quota counts them.
    pub used_bytes: u64,
    /// Bundles that have room whatever others have.
    pub guaranteed_bundles: u64,
    /// Bytes that have room whatever others have.
    pub guaranteed_bytes: u64,
}

/// The custody store on a disk.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DiskView {
    /// Bytes of its files.
    pub log_bytes: u64,
    /// Bytes in them of bundles that are kept.
    pub live_bytes: u64,
    /// Its files.
    pub segments: u64,
    /// Payload in memory that is not on the disk yet, bytes.
    pub uncommitted_bytes: u64,
    /// Payload in memory that is on the disk too, bytes.
    pub resident_bytes: u64,
    /// Bundles written since the start.
    pub committed_bundles: u64,
    /// Their bytes.
    pub committed_bytes: u64,
    /// Times that the disk made something durable.
    pub commits: u64,
    /// Payloads read since the start.
    pub loaded_bundles: u64,
    /// Bundles restored at the start.
    pub restored_bundles: u64,
    /// Damaged places found at the start.
    pub damaged_at_start: u64,
    /// Bundles found damaged since.
    pub lost_bundles: u64,
    /// Files that the disk could not read, since the start.
    pub failed_segments: u64,
    /// Why nothing can be written at present; null if it can.
    pub stalled: Option<String>,
}

impl From<Figures> for DiskView {
    fn from(figures: Figures) -> DiskView {
        DiskView {
            log_bytes: figures.log_bytes,
            live_bytes: figures.live_bytes,
            segments: figures.segments as u64,
            uncommitted_bytes: figures.uncommitted_bytes,
            resident_bytes: figures.resident_bytes,
            committed_bundles: figures.committed_bundles,
            committed_bytes: figures.committed_bytes,
            commits: figures.commits,
            loaded_bundles: figures.loaded_bundles,
            restored_bundles: figures.restored_bundles,
            damaged_at_start: figures.damaged_at_start,
            lost_bundles: figures.lost_bundles,
            failed_segments: figures.failed_segments,
            stalled: figures.stalled,
        }
    }
}

/// The custody store's bundles of one class.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct CustodyClassView {
    /// Bundles stored.
    pub bundles: u64,
    /// Payload bytes stored.
    pub bytes: u64,
    /// Those in this node's custody.
    pub custody_bundles: u64,
    /// Their payload bytes.
    pub custody_bytes: u64,
    /// Age of the oldest, s.
    pub oldest_s: f64,
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
    /// Times beyond the year 9999 cannot be told.
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

    /// As the engine knows it; none if it does not lie after 1970, or ends
    /// before it begins.
    pub fn planned(&self) -> Option<PlannedBlockage> {
        let ms = |time: OffsetDateTime| u64::try_from(time.unix_timestamp_nanos() / 1_000_000).ok();
        let (entry_ms, exit_ms) = (ms(self.entry)?, ms(self.exit)?);
        (entry_ms < exit_ms).then_some(PlannedBlockage { entry_ms, exit_ms })
    }
}

impl ApiState {
    pub(super) fn class_name(&self, class: Class) -> String {
        let place = usize::from(class.0);
        let config = self.config.get();
        let named = config.classes.get(place).map(|class| &class.name);
        named.cloned().unwrap_or_else(|| class.to_string())
    }

    /// The node at this moment.
    pub fn status(&self) -> Status {
        let config = self.config.get();
        Status {
            node: format!("ipn:{}.0", config.node.number),
            role: config.node.role.name().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            incarnation: self.incarnation,
            uptime_s: self.started.elapsed().as_secs_f64(),
            paths: self.paths(),
            migrations: self.migrations(),
            holds: self.holds_view(),
            classes: config.classes.iter().map(|c| c.name.clone()).collect(),
            streams: self.streams(),
            plans: self.plans_view(),
            contact_plan: self.contact_plan(),
            custody: self.custody(),
            payloads: self.payloads(),
            bpsec: BpsecView::of(&self.bpsec),
            edge: self.switches(),
            control: self.control(),
            position: self.positions.as_ref().map(|positions| positions.view()),
            congestion_controls: self.congestion_controls.clone(),
            cdni: self.cdni.as_ref().map(|cdni| cdni.figures().into()),
            mptcp: self.mptcp.state().map(MptcpView::of),
            confinement: self.confinement.clone(),
        }
    }

    pub(super) fn payloads(&self) -> Option<PayloadsView> {
        let payloads = self.shell.payloads()?;
        let (count, bytes) = payloads.used();
        Some(PayloadsView {
            count,
            bytes,
            quota_bytes: payloads.quota_bytes(),
        })
    }

    pub(super) fn paths(&self) -> Vec<PathView> {
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
                efficiency: self.reporter.efficiency(hop.id),
                meter: hop.meter.as_ref().map(|meter| self.meter_view(meter)),
                on_demand: hop.on_demand.as_ref().map(OnDemandView::of),
            },
        };
        view.mptcp = PathMptcp::of(&view);
        view
    }

    fn session_view(&self, session: SessionSnapshot, measured: PathFigures) -> SessionView {
        SessionView {
            id: session.id,
            class: session.class.map(|class| self.class_name(Class(class))),
            standby: session.standby,
            carrying: session.carrying,
            remote: session.remote,
            tls: session.tls,
            ltp: (session.convergence_layer == "ltp").then(|| LtpView::of(measured.ltp)),
            convergence_layer: session.convergence_layer.to_owned(),
            congestion_control: session.congestion_control,
            subflows: measured.subflows,
            rtt_ms: measured.rtt.as_secs_f64() * 1e3,
            min_rtt_ms: measured.min_rtt.as_secs_f64() * 1e3,
            delivery_rate_bps: measured.delivery_rate_bps,
            cwnd_bytes: measured.cwnd_bytes,
            in_flight_bytes: measured.in_flight_bytes,
            sent_bytes: measured.sent_bytes,
            retransmitted_bytes: measured.retransmitted_bytes,
            received_bytes: measured.received_bytes,
            symbols_sent: measured.coded.symbols_sent,
            repair_symbols_sent: measured.coded.repair_symbols_sent,
            asked_symbols_sent: measured.coded.asked_symbols_sent,
            symbols_recovered: measured.coded.symbols_recovered,
        }
    }

    pub(super) fn streams(&self) -> BTreeMap<String, StreamsView> {
        let totals = self.shell.stream_totals();
        totals
            .into_iter()
            .map(|(class, total)| {
                let view = StreamsView {
                    open: total.open,
                    half_closed: total.half_closed,
                    draining: total.draining,
                    sent_bytes: total.sent_bytes,
                    received_bytes: total.received_bytes,
                    backlog_bytes: total.backlog_bytes,
                };
                (self.class_name(class), view)
            })
            .collect()
    }

    pub(super) fn custody(&self) -> CustodyView {
        let figures = self.shell.custody(Instant::now());
        let classes = figures.classes.iter().map(|(class, figures)| {
            let view = CustodyClassView {
                bundles: figures.bundles,
                bytes: figures.bytes,
                custody_bundles: figures.custody_bundles,
                custody_bytes: figures.custody_bytes,
                oldest_s: figures.oldest.as_secs_f64(),
            };
            (self.class_name(*class), view)
        });
        let neighbours = self.shell.custody_by_neighbour().into_iter();
        let neighbours = neighbours.map(|(neighbour, figures)| CustodyNeighbourView {
            neighbour: neighbour.0,
            bundles: figures.used.bundles,
            used_bytes: figures.used.bytes,
            guaranteed_bundles: figures.guaranteed.bundles,
            guaranteed_bytes: figures.guaranteed.bytes,
        });
        let config = self.config.get();
        let custody = &config.custody;
        CustodyView {
            bundles: figures.bundles as u64,
            used_bytes: figures.used_bytes,
            quota_bytes: custody.quota_bytes,
            durability: match custody.is_durable() {
                true => Durability::Disk.name().to_owned(),
                false => Durability::Memory.name().to_owned(),
            },
            disk: self.custody.monitor().map(|disk| disk.figures().into()),
            classes: classes.collect(),
            neighbours: neighbours.collect(),
        }
    }
}
