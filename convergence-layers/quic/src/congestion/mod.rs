//! The congestion controls, as QUIC asks for them.
//!
//! A session shares its [`Flow`] with the control of its connection: the rate and the blockage come
//! from above, the figures from below. With a rate, the window is that of `hybla_dama`, which does
//! not shrink at losses. Without one, or if configured, it is TCP Hybla's.
//! `docs/congestion-control.md` describes both.

mod flow;
mod hybla;

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use quinn::congestion::{Controller, ControllerFactory};
use quinn_proto::RttEstimator;

pub(crate) use flow::{Flow, Gate, Known};

/// The congestion control of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// The allocated rate, and Hybla while there is none.
    #[default]
    Allocated,
    /// TCP Hybla; an allocated rate only paces.
    Hybla,
}

impl Algorithm {
    /// The name in configuration and API, that of the kernel's control which
    /// does the same.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Allocated => "hybla_dama",
            Algorithm::Hybla => "hybla",
        }
    }
}

/// Makes the control of a connection.
pub(crate) struct Factory(pub(crate) Arc<Flow>);

impl ControllerFactory for Factory {
    fn build(self: Arc<Self>, _now: Instant, datagram_bytes: u16) -> Box<dyn Controller> {
        self.0.begin_path(datagram_bytes);
        Box::new(Control(self.0.clone()))
    }
}

struct Control(Arc<Flow>);

impl Controller for Control {
    fn on_sent(&mut self, now: Instant, bytes: u64, _last_packet_number: u64) {
        self.0.sent(now, bytes);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        _app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.0.acknowledged(now, sent, bytes, rtt.get(), rtt.min());
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        _app_limited: bool,
        _largest_packet_num_acked: Option<u64>,
    ) {
        self.0.settle(now, in_flight);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.0.lost(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, datagram_bytes: u16) {
        self.0.set_datagram_bytes(datagram_bytes);
    }

    fn window(&self) -> u64 {
        self.0.window(Instant::now())
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Control(self.0.clone()))
    }

    fn initial_window(&self) -> u64 {
        self.0.window(Instant::now())
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
