//! The node's hold on a session.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use underpass_cla::{Activity, Down, PathFigures, Session, Transfer};

use super::Link;
use crate::code;
use crate::congestion::Known;

/// Implements [`Session`]. An offer after the session's end is dropped:
/// [`underpass_cla::Node::session_down`] has ended all its transfers.
pub(super) struct Handle(pub(super) Arc<Link>);

impl Session for Handle {
    fn offer(&self, transfer: Transfer) {
        self.0.outgoing().offer(transfer);
        self.0.writable.notify_waiters();
    }

    fn set_rate(&self, ip_bps: Option<u64>) {
        if self.0.flow.set_rate(Instant::now(), ip_bps) {
            self.0.writable.notify_waiters();
            self.0.wake();
        }
    }

    fn figures(&self) -> PathFigures {
        let unsent_bytes = self.0.outgoing().unwritten_bytes();
        let stats = self.0.connection.stats();
        let coded = self.0.coded.figures();
        let known = Known {
            unsent_bytes,
            receiving: self.0.owed_bundles.load(Relaxed) > 0 || self.0.coded.is_owed(),
            data_frames: stats.frame_rx.stream + stats.frame_rx.datagram,
        };
        let flow = self.0.flow.figures(Instant::now(), &stats.path, known);
        let keepalives_sent = self.0.pings_sent.load(Relaxed);
        PathFigures {
            coded,
            keepalives_sent,
            keepalives_received: self.0.pings_received.load(Relaxed),
            // The flow cannot distinguish these short packets from acknowledgements.
            data_segments_sent: flow.data_segments_sent + keepalives_sent,
            ..flow
        }
    }

    fn share(&self, activity: Arc<Activity>) {
        self.0.flow.share(activity);
    }

    fn suspend(&self, blocked: bool) {
        if self.0.flow.set_blocked(Instant::now(), blocked) && !blocked {
            self.0.nudge();
            self.0.resumed.notify_one();
            self.0.writable.notify_waiters();
        }
    }

    fn rest(&self, rests: bool) {
        self.0.rests.store(rests, Relaxed);
        self.0.rest_changed.notify_one();
    }

    fn ask(&self) {
        if !self.0.flow.is_blocked() {
            self.0.nudge();
        }
    }

    fn renew(&self) {
        if let Some(renew) = &self.0.renew {
            renew();
        }
    }

    fn close(&self) {
        self.0.outgoing().close();
        self.0.closing.notify_one();
        self.0.say_bye();
    }

    fn abort(&self, reason: &str) {
        // The first reason counts.
        let _ = self.0.reason.set(Down::Broken(reason.to_owned()));
        self.0.connection.close(code::ABORTED, reason.as_bytes());
    }
}
