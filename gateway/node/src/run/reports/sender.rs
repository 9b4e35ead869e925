//! The entrance for reports of the node's parts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::sync::mpsc;
use underpass_reports::{Body, Report, Stamps};

/// Reports that may wait for the task that sends them on, which never takes
/// long.
const WAITING: usize = 1024;

/// A report with the time at which it was made.
#[derive(Clone, Debug)]
pub struct Made {
    pub report: Report,
    pub at: Instant,
}

/// Takes reports from any part of the node.
#[derive(Clone, Debug)]
pub struct ReportSender(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    stamps: Mutex<Stamps>,
    made: mpsc::Sender<Made>,
    started: Instant,
    refused: AtomicU64,
}

impl ReportSender {
    /// A sender of this run of the node, and the queue of its reports.
    pub fn new(incarnation: u64, started: Instant) -> (ReportSender, mpsc::Receiver<Made>) {
        let (made, out) = mpsc::channel(WAITING);
        let shared = Shared {
            stamps: Mutex::new(Stamps::new(incarnation)),
            made,
            started,
            refused: AtomicU64::new(0),
        };
        (ReportSender(Arc::new(shared)), out)
    }

    /// Reports `body` with the present time. A report that is out of range, or finds no room, is
    /// logged and counted.
    pub fn send(&self, body: Body) {
        let shared = &*self.0;
        let kind = body.kind();
        if let Err(error) = body.check() {
            shared.refused.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(?kind, %error, "not reported");
            return;
        }
        let at = Instant::now();
        let uptime = at.duration_since(shared.started).as_millis();
        // Under the lock, so that they come out in the order of their stamps.
        let mut stamps = shared.stamps.lock().unwrap();
        let report = stamps.stamp(body, u64::try_from(uptime).unwrap_or(u64::MAX));
        if shared.made.try_send(Made { report, at }).is_err() {
            shared.refused.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(?kind, "not reported: too many reports wait");
        }
    }

    /// Reports that were refused here since the start.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use underpass_reports::{Position, Status};

    use super::*;

    #[test]
    fn what_is_out_of_range_is_counted_and_not_sent() {
        let (sender, mut made) = ReportSender::new(3, Instant::now());
        sender.send(Body::Position(Position::at(f64::NAN, 0.0)));
        sender.send(Body::Status(Status::default()));
        assert_eq!(made.try_recv().unwrap().report.incarnation, 3);
        assert!(made.try_recv().is_err());
        assert_eq!(sender.refused(), 1);
    }
}
