//! Paths whose bytes are paid for, and their budgets.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::traffic::{ClassSettings, class_named};

/// Budgets that can be set, bytes.
pub const BUDGETS_BYTES: std::ops::RangeInclusive<u64> = 1..=1_000_000_000_000_000;

/// When a budget is renewed, in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BudgetPeriod {
    /// Each day at midnight.
    Day,
    /// Each month.
    #[default]
    Month,
    /// Never.
    Once,
}

/// A path whose bytes are paid for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeterSettings {
    /// What may be sent and received in a period, bytes of IP. Default: bytes are
    /// counted, and nothing limits them.
    pub budget_bytes: Option<u64>,
    /// When it is renewed, in UTC: day, month or once, which is never. Default
    /// month.
    #[serde(default)]
    pub period: BudgetPeriod,
    /// The day on which a month begins, 1 to 28. Default 1.
    #[serde(default = "default_first_day")]
    pub first_day: u8,
    /// Classes that go by the path though its budget is spent. Default: none.
    #[serde(default)]
    pub beyond: Vec<String>,
}

fn default_first_day() -> u8 {
    1
}

impl MeterSettings {
    pub(super) fn check(&self, at: &str, classes: &[ClassSettings], problems: &mut Vec<String>) {
        if let Some(bytes) = self.budget_bytes
            && !BUDGETS_BYTES.contains(&bytes)
        {
            problems.push(format!(
                "{at}: meter.budget_bytes = {bytes}: must be 1 to 1000000000000000"
            ));
        }
        if !(1..=28).contains(&self.first_day) {
            problems.push(format!(
                "{at}: meter.first_day = {}: must be 1 to 28, a day that every month has",
                self.first_day
            ));
        }
        if self.first_day != default_first_day() && self.period != BudgetPeriod::Month {
            problems.push(format!(
                "{at}: meter.first_day is of no use without period = \"month\""
            ));
        }
        if self.budget_bytes.is_none() && !self.beyond.is_empty() {
            problems.push(format!(
                "{at}: meter.beyond is of no use without budget_bytes"
            ));
        }
        let mut named = BTreeSet::new();
        for class in &self.beyond {
            if class_named(classes, class).is_none() {
                problems.push(format!("{at}: meter.beyond: there is no class {class:?}"));
            }
            if !named.insert(class) {
                problems.push(format!("{at}: meter.beyond: {class:?} is there twice"));
            }
        }
    }
}
