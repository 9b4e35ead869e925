//! The results of a simulated run.

use underpass_capacity::Reason;

use crate::model::STEP_S;

/// The results of a run from some time on.
#[derive(Debug, Default)]
pub struct Course {
    /// For each millisecond: bits that the link could carry beside others' traffic, bits
    /// of the sender that were delivered, the queue in s, the estimate.
    pub steps: Vec<(f64, f64, f64, Option<f64>)>,
    /// The reason for the estimate at the end of each second.
    pub reasons: Vec<Option<Reason>>,
}

impl Course {
    fn part(&self, from_s: f64, to_s: f64) -> &[(f64, f64, f64, Option<f64>)] {
        let index = |s: f64| ((s * 1e3) as usize).min(self.steps.len());
        &self.steps[index(from_s)..index(to_s)]
    }

    /// Bits delivered for the first time, as a part of what the link could carry.
    pub fn used(&self, from_s: f64, to_s: f64) -> f64 {
        let part = self.part(from_s, to_s);
        let could: f64 = part.iter().map(|step| step.0).sum();
        part.iter().map(|step| step.1).sum::<f64>() / could
    }

    /// This quantile of the queue over time, s.
    pub fn queue(&self, quantile: f64, from_s: f64, to_s: f64) -> f64 {
        let mut queues: Vec<f64> = self.part(from_s, to_s).iter().map(|s| s.2).collect();
        queues.sort_by(f64::total_cmp);
        queues[((queues.len() - 1) as f64 * quantile) as usize]
    }

    /// The mean queue over time, s.
    pub fn mean_queue(&self, from_s: f64, to_s: f64) -> f64 {
        let part = self.part(from_s, to_s);
        part.iter().map(|step| step.2).sum::<f64>() / part.len() as f64
    }

    /// The lowest estimate, bit/s; infinite if there was none.
    pub fn least_estimate(&self, from_s: f64, to_s: f64) -> f64 {
        let known = self.part(from_s, to_s).iter().filter_map(|step| step.3);
        known.fold(f64::INFINITY, f64::min)
    }

    /// The time from which on the estimate is never below `bps`.
    pub fn reaches(&self, bps: f64, from_s: f64) -> f64 {
        let part = self.part(from_s, f64::MAX);
        let first = part.iter().position(|s| s.3.is_none_or(|e| e >= bps));
        first.map_or(f64::INFINITY, |steps| steps as f64 * STEP_S)
    }
}
