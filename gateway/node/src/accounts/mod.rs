//! The outcome of clients' connections and exchanges: statistics and the access log.

mod line;
mod log;

use std::io;

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use underpass_edge::Ended;

use crate::config::Config;

pub use log::AccessLog;

/// Upper bounds of the answer-time buckets, s; one of them is a satellite's round trip.
const ANSWERED_S: [f64; 14] = [
    0.05, 0.1, 0.25, 0.5, 0.6, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0,
];
/// And those of connections.
const TOOK_S: [f64; 10] = [0.1, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 300.0, 1_800.0, 7_200.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    listener: String,
    outcome: &'static str,
}

/// Keeps account of what is over.
pub struct Accounts {
    answered: Histogram,
    took: Family<Labels, Histogram, fn() -> Histogram>,
    log: Option<AccessLog>,
}

impl Accounts {
    /// With an access log where `config` has one.
    ///
    /// # Errors
    /// When its file cannot be opened.
    pub fn new(config: &Config) -> io::Result<Accounts> {
        let log = config.log.access.as_ref();
        let log = log.map(|access| AccessLog::open(access, &config.node.state_dir));
        Ok(Accounts {
            answered: Histogram::new(ANSWERED_S),
            took: Family::new_with_constructor(|| Histogram::new(TOOK_S)),
            log: log.transpose()?,
        })
    }

    /// Lines that were lost because the log's queue was full; `None` without a log.
    pub fn lines_lost(&self) -> Option<u64> {
        self.log.as_ref().map(AccessLog::lost)
    }

    /// From a forwarded request to the head of its response, s.
    pub fn answered(&self) -> &impl EncodeMetric {
        &self.answered
    }

    /// From the beginning of a client's connection or exchange to its end, s.
    pub fn took(&self) -> &impl EncodeMetric {
        &self.took
    }
}

impl underpass_edge::Accounts for Accounts {
    fn ended(&self, ended: &Ended<'_>) {
        if let Some(answered) = ended.answered {
            self.answered.observe(answered.as_secs_f64());
        }
        let labels = Labels {
            listener: ended.listener.to_owned(),
            outcome: match ended.failure {
                Some(_) => "failed",
                None if ended.cut => "cut",
                None => "ended",
            },
        };
        let took = self.took.get_or_create(&labels);
        took.observe(ended.took.as_secs_f64());
        drop(took);
        if let Some(log) = &self.log {
            log.note(ended);
        }
    }
}
