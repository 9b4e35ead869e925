//! The properties of a link, as configuration and control give them.

use serde::{Deserialize, Serialize};

use super::{Nanos, TraceStep};

/// The longest delay, and the longest jitter, that a link may have, in ms.
pub const MAX_DELAY_MS: u64 = 60_000;

/// The queue's bound where neither bytes nor a rate give one.
const UNRATED_LIMIT_BYTES: u64 = 64 << 20;

/// One direction between the hub and one terminal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkProfile {
    /// Rate in bit/s, counting IP bytes; `None` is unlimited.
    pub rate_bps: Option<u64>,
    /// One-way delay after the last bit has left, in ms.
    pub delay_ms: f64,
    /// Additional delay, uniform from 0 to this, in ms.
    pub jitter_ms: f64,
    /// Whether jitter may reorder packets.
    pub reorder: bool,
    /// Loss of transmitted packets.
    pub loss: LossProfile,
    /// What waits for transmission.
    pub queue: QueueProfile,
    /// Packets arrive only at multiples of this time, in ms; 0 is at once.
    pub bunch_ms: f64,
    /// Whether capacity has to be requested; `None` gives all of it at once.
    pub demand: Option<DemandProfile>,
}

/// Capacity on demand: time is divided into frames, and a terminal sends only
/// in the slots of a frame that it was granted, from the frame's beginning on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DemandProfile {
    /// Length of a frame, in ms.
    pub frame_ms: f64,
    /// Time from a request, at a frame's beginning, to the first frame that can have its slots, in
    /// ms: a round trip to the granting station.
    pub grant_ms: f64,
    /// Part of each frame that the terminal has without asking, from 0 to 1.
    pub constant: f64,
}

/// Which packets are lost. They use the link's time all the same.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "kebab-case", deny_unknown_fields)]
pub enum LossProfile {
    /// None is lost.
    None {},
    /// Each packet with the same probability.
    Independent {
        /// Probability of loss.
        probability: f64,
    },
    /// Two states with a loss probability each (Gilbert 1960, Elliott 1963).
    GilbertElliott {
        /// Probability, per packet, to go from the good state to the bad one.
        to_bad: f64,
        /// Probability, per packet, to go from the bad state to the good one.
        to_good: f64,
        /// Probability of loss in the good state.
        #[serde(default)]
        loss_good: f64,
        /// Probability of loss in the bad state.
        #[serde(default = "certain")]
        loss_bad: f64,
    },
}

fn certain() -> f64 {
    1.0
}

impl LossProfile {
    fn validate(&self) -> Result<(), ProfileError> {
        match *self {
            LossProfile::None {} => Ok(()),
            LossProfile::Independent { probability: p } => probability("loss.probability", p),
            LossProfile::GilbertElliott {
                to_bad,
                to_good,
                loss_good,
                loss_bad,
            } => {
                probability("loss.to_bad", to_bad)?;
                probability("loss.to_good", to_good)?;
                probability("loss.loss_good", loss_good)?;
                probability("loss.loss_bad", loss_bad)
            }
        }
    }
}

impl Default for LossProfile {
    fn default() -> Self {
        LossProfile::None {}
    }
}

/// A link's queue. The packet being transmitted is not part of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueProfile {
    /// Bound in bytes.
    pub limit_bytes: Option<u64>,
    /// Bound in ms of the link's rate; without a rate, of the beam's capacity.
    pub limit_ms: Option<f64>,
    /// What to drop, and when.
    pub discipline: Discipline,
    /// CoDel's acceptable standing delay, in ms.
    pub target_ms: f64,
    /// CoDel's interval, in ms.
    pub interval_ms: f64,
}

impl Default for QueueProfile {
    fn default() -> Self {
        QueueProfile {
            limit_bytes: None,
            limit_ms: None,
            discipline: Discipline::DropTail,
            // RFC 8289, sections 4.3 and 4.4. A hop of 600 ms wants more.
            target_ms: 5.0,
            interval_ms: 100.0,
        }
    }
}

/// What a queue drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Discipline {
    /// Packets that find it full.
    DropTail,
    /// Those, and packets at its head when delay persists (RFC 8289).
    Codel,
    /// The newest packets of the flow with most bytes in the queue; flows take turns by bytes.
    FairQueue,
}

/// A value of a profile that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key}: {value} is not {wanted}")]
pub struct ProfileError {
    /// The key as configuration names it.
    pub key: &'static str,
    /// What it was.
    pub value: String,
    /// What it should be.
    pub wanted: &'static str,
}

impl ProfileError {
    pub(super) fn new(key: &'static str, value: impl ToString, wanted: &'static str) -> Self {
        ProfileError {
            key,
            value: value.to_string(),
            wanted,
        }
    }
}

impl LinkProfile {
    /// Checks every value.
    pub fn validate(&self) -> Result<(), ProfileError> {
        positive("rate_bps", self.rate_bps)?;
        milliseconds("delay_ms", self.delay_ms)?;
        milliseconds("jitter_ms", self.jitter_ms)?;
        self.loss.validate()?;
        self.queue.validate()?;
        milliseconds("bunch_ms", self.bunch_ms)?;
        match self.demand {
            Some(_) if self.rate_bps.is_none() => {
                let wanted = "possible without rate_bps";
                Err(ProfileError::new("demand", "capacity on demand", wanted))
            }
            Some(demand) => demand.validate(),
            None => Ok(()),
        }
    }

    /// The queue's bound in bytes; `capacity_bps` is the beam's.
    pub(super) fn queue_limit(&self, capacity_bps: Option<u64>) -> u64 {
        let rate = self.rate_bps.or(capacity_bps);
        match (self.queue.limit_bytes, self.queue.limit_ms, rate) {
            (Some(bytes), _, _) => bytes,
            (None, Some(ms), Some(rate)) => (ms / 1000.0 * rate as f64 / 8.0) as u64,
            // One second, the usual order of a satellite terminal's buffer.
            (None, None, Some(rate)) => rate / 8,
            (None, _, None) => UNRATED_LIMIT_BYTES,
        }
    }
}

impl DemandProfile {
    fn validate(&self) -> Result<(), ProfileError> {
        milliseconds("demand.grant_ms", self.grant_ms)?;
        probability("demand.constant", self.constant)?;
        milliseconds("demand.frame_ms", self.frame_ms)?;
        if self.frame_ms < 1.0 {
            let wanted = "at least 1 ms";
            return Err(ProfileError::new("demand.frame_ms", self.frame_ms, wanted));
        }
        Ok(())
    }
}

impl TraceStep {
    /// Checks every value but the time.
    pub fn validate(&self) -> Result<(), ProfileError> {
        milliseconds("delay_ms", self.delay_ms.unwrap_or(0.0))?;
        self.loss.unwrap_or_default().validate()
    }
}

impl QueueProfile {
    fn validate(&self) -> Result<(), ProfileError> {
        positive("queue.limit_bytes", self.limit_bytes)?;
        if let Some(limit) = self.limit_ms {
            milliseconds("queue.limit_ms", limit)?;
            if self.limit_bytes.is_some() {
                let wanted = "possible together with queue.limit_bytes: give one of them";
                return Err(ProfileError::new("queue.limit_ms", limit, wanted));
            }
        }
        milliseconds("queue.target_ms", self.target_ms)?;
        milliseconds("queue.interval_ms", self.interval_ms)
    }
}

/// Milliseconds as nanoseconds; the value has been validated.
pub(super) fn nanos(ms: f64) -> Nanos {
    (ms * 1e6).round() as Nanos
}

pub(super) fn positive(key: &'static str, value: Option<u64>) -> Result<(), ProfileError> {
    match value {
        Some(0) => Err(ProfileError::new(key, 0, "above 0 (leave it out for none)")),
        _ => Ok(()),
    }
}

fn milliseconds(key: &'static str, value: f64) -> Result<(), ProfileError> {
    if (0.0..=MAX_DELAY_MS as f64).contains(&value) {
        Ok(())
    } else {
        Err(ProfileError::new(key, value, "from 0 to 60000 ms"))
    }
}

fn probability(key: &'static str, value: f64) -> Result<(), ProfileError> {
    if (0.0..=1.0).contains(&value) {
        Ok(())
    } else {
        Err(ProfileError::new(key, value, "a part from 0 to 1"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_limit_follows_the_rate_given_in_ms() {
        let mut profile = LinkProfile {
            rate_bps: Some(140_000_000),
            ..LinkProfile::default()
        };
        profile.queue.limit_ms = Some(2000.0);
        assert_eq!(profile.queue_limit(None), 35_000_000);
        profile.rate_bps = None;
        assert_eq!(profile.queue_limit(Some(8_000_000)), 2_000_000);
    }

    #[test]
    fn impossible_values_name_their_key() {
        let mut profile = LinkProfile {
            delay_ms: f64::NAN,
            ..LinkProfile::default()
        };
        assert_eq!(profile.validate().unwrap_err().key, "delay_ms");
        profile.delay_ms = 1.0;
        profile.loss = LossProfile::Independent { probability: 1.5 };
        assert_eq!(profile.validate().unwrap_err().key, "loss.probability");
        profile.loss = LossProfile::default();
        profile.rate_bps = Some(0);
        assert_eq!(profile.validate().unwrap_err().key, "rate_bps");
    }
}
