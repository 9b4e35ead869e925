//! A session with what its transport measures.

use serde::{Deserialize, Serialize};
use underpass_cla::{Class, LtpFigures, PathFigures};
use underpass_engine::SessionSnapshot;

use crate::api::ApiState;

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
    /// Whether only the neighbour sends by it.
    #[serde(default)]
    pub receives_only: bool,
    pub remote: String,
    /// Whether TLS authenticates the peer.
    pub tls: bool,
    /// The convergence layer, as the configuration names it.
    pub convergence_layer: String,
    pub congestion_control: String,
    /// Subflows of its MPTCP connection when bytes last moved; 0 if it fell back to plain TCP; null
    /// if MPTCP was not requested.
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
    /// Lost symbols that repair symbols have recovered here without a round trip.
    pub symbols_recovered: u64,
    /// With LTP: what is in progress, and what was given up or refused.
    pub ltp: Option<LtpView>,
}

/// What is in progress with a neighbour over LTP, and what was given up or refused.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct LtpView {
    /// Blocks under way to the neighbour.
    pub sending_blocks: u64,
    /// Blocks under way from it.
    pub receiving_blocks: u64,
    /// Memory for blocks from it that are not taken yet, bytes.
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

impl ApiState {
    pub(super) fn session_view(
        &self,
        session: SessionSnapshot,
        measured: PathFigures,
    ) -> SessionView {
        SessionView {
            id: session.id,
            class: session.class.map(|class| self.class_name(Class(class))),
            standby: session.standby,
            carrying: session.carrying,
            receives_only: session.receives_only,
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
}
