//! One measured figure.

use serde::Serialize;

/// A figure with its target, as the project's benchmarks report it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Record {
    /// The figure's name.
    pub id: String,
    /// What was measured.
    pub subject: String,
    /// Unit of the values.
    pub unit: String,
    /// Number of runs.
    pub n: usize,
    /// Median of the runs.
    pub median: f64,
    /// The run that nine of ten are no worse than.
    pub p90: f64,
    /// The bound that `p90` is to keep.
    pub target: String,
    /// Whether `p90` keeps it.
    pub met: bool,
    /// The runs, the best first.
    pub values: Vec<f64>,
}

impl Record {
    /// A figure that should be small.
    pub(super) fn at_most(id: &str, unit: &str, mut runs: Vec<f64>, bound: f64) -> Self {
        runs.sort_by(f64::total_cmp);
        let p90 = quantile(&runs, 0.9);
        Self::new(id, unit, &runs, p90, format!("<= {bound}"), p90 <= bound)
    }

    /// A figure that should be large.
    pub(super) fn at_least(id: &str, unit: &str, mut runs: Vec<f64>, bound: f64) -> Self {
        runs.sort_by(|a, b| b.total_cmp(a));
        let p90 = quantile(&runs, 0.9);
        Self::new(id, unit, &runs, p90, format!(">= {bound}"), p90 >= bound)
    }

    fn new(id: &str, unit: &str, sorted: &[f64], p90: f64, target: String, met: bool) -> Self {
        Record {
            id: id.into(),
            subject: "satlink".into(),
            unit: unit.into(),
            n: sorted.len(),
            median: rounded(quantile(sorted, 0.5)),
            p90: rounded(p90),
            target,
            met,
            values: sorted.iter().copied().map(rounded).collect(),
        }
    }
}

/// To a thousandth, which is finer than any of the figures repeats.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// The smallest value that at least this share of the sorted values does not
/// exceed.
pub(super) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p90_is_the_worse_side_of_either_kind() {
        let runs: Vec<f64> = (1..=10).map(f64::from).collect();
        let small = Record::at_most("a", "ms", runs.clone(), 8.0);
        assert_eq!((small.median, small.p90, small.met), (5.0, 9.0, false));
        let large = Record::at_least("b", "ms", runs, 2.0);
        assert_eq!((large.median, large.p90, large.met), (6.0, 2.0, true));
    }
}
