//! Metered hops: those whose bytes are paid for. What was spent is counted in
//! both directions against a budget for each period; above it a hop carries only
//! the classes that its configuration names.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use time::{Date, OffsetDateTime, Time};
use underpass_cla::Class;
use underpass_work::each;

use crate::engine::Engine;
use crate::hop::{Hop, HopId};

/// Headers of a datagram.
const IPV4_UDP_BYTES: u64 = 28;
const IPV6_UDP_BYTES: u64 = 48;

/// When a budget is renewed, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// Never: it is spent once, and an operator adds to it.
    Once,
    /// At the beginning of each day.
    Day,
    /// At the beginning of this day of each month, 1 to 28.
    Month(u8),
}

impl Period {
    /// When the period that contains `utc_ms` began, ms since 1970; `None` for a budget that is
    /// never renewed and for a time beyond the calendar.
    pub fn begin_ms(self, utc_ms: u64) -> Option<u64> {
        let seconds = i64::try_from(utc_ms / 1_000).ok()?;
        let now = OffsetDateTime::from_unix_timestamp(seconds).ok()?.date();
        let begin = match self {
            Period::Once => return None,
            Period::Day => now,
            Period::Month(day) => {
                let this = now.replace_day(day).ok()?;
                match this <= now {
                    true => this,
                    false => month_before(this)?,
                }
            }
        };
        let begin = begin.with_time(Time::MIDNIGHT).assume_utc();
        u64::try_from(begin.unix_timestamp())
            .ok()?
            .checked_mul(1_000)
    }
}

/// The same day, 28 at most, of the month before.
fn month_before(date: Date) -> Option<Date> {
    let last = date.replace_day(1).ok()?.previous_day()?;
    last.replace_day(date.day()).ok()
}

/// What is configured of a metered hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterConfig {
    /// What may be spent in a period, bytes of IP in both directions; `None`: spending is counted
    /// without a limit.
    pub budget_bytes: Option<u64>,
    /// When it is renewed.
    pub period: Period,
    /// The classes that it carries above its budget.
    pub beyond: Vec<Class>,
}

/// What was spent of a budget; this outlives the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Bytes of IP in both directions in this period.
    pub spent_bytes: u64,
    /// What an operator has added to the budget of this period, bytes.
    pub added_bytes: u64,
    /// When the period began, ms since 1970; `None` until the time was known.
    pub begun_ms: Option<u64>,
}

/// A metered hop at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterSnapshot {
    /// What was spent.
    pub spent: Spent,
    /// What may be spent in this period, with what was added, bytes.
    pub budget_bytes: Option<u64>,
    /// Whether that is spent.
    pub exhausted: bool,
    /// As configured.
    pub config: MeterConfig,
}

/// Counts against a budget.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    config: MeterConfig,
    spent: Spent,
}

impl Meter {
    pub fn new(config: MeterConfig) -> Meter {
        Meter {
            config,
            spent: Spent::default(),
        }
    }

    /// Replaces the configuration; what was spent stays.
    pub fn reconfigure(&mut self, config: MeterConfig) {
        self.config = config;
    }

    fn budget_bytes(&self) -> Option<u64> {
        let budget = self.config.budget_bytes?;
        Some(budget.saturating_add(self.spent.added_bytes))
    }

    /// Whether the budget is spent.
    pub fn is_exhausted(&self) -> bool {
        let spent = self.spent.spent_bytes;
        self.budget_bytes().is_some_and(|budget| spent >= budget)
    }

    /// Whether a class may go by it now.
    fn allows(&self, class: Class) -> bool {
        !self.is_exhausted() || self.config.beyond.contains(&class)
    }

    /// Whether it carries nothing more.
    pub fn is_closed(&self) -> bool {
        self.is_exhausted() && self.config.beyond.is_empty()
    }

    fn spend(&mut self, bytes: u64) {
        self.spent.spent_bytes = self.spent.spent_bytes.saturating_add(bytes);
    }

    /// Begins the period that contains `utc_ms`, if it is a later one. A clock that is set back
    /// renews nothing.
    fn renew(&mut self, utc_ms: u64) {
        let Some(begin) = self.config.period.begin_ms(utc_ms) else {
            return;
        };
        match self.spent.begun_ms {
            // What was spent before the time was known counts in this period.
            None => self.spent.begun_ms = Some(begin),
            Some(begun) if begin > begun => {
                self.spent = Spent {
                    begun_ms: Some(begin),
                    ..Spent::default()
                };
            }
            Some(_) => {}
        }
    }

    /// Forgets what was spent and added. The period begins at the next look at the clock, which may
    /// have been ahead when the present period began.
    fn reset(&mut self) {
        self.spent = Spent::default();
    }

    pub fn snapshot(&self) -> MeterSnapshot {
        MeterSnapshot {
            spent: self.spent,
            budget_bytes: self.budget_bytes(),
            exhausted: self.is_exhausted(),
            config: self.config.clone(),
        }
    }
}

impl Hop {
    /// Whether its budget lets it carry a class.
    pub(crate) fn may_spend_for(&self, class: Class) -> bool {
        self.meter.as_ref().is_none_or(|meter| meter.allows(class))
    }
}

impl Engine {
    /// What is spent of a hop's budget; `None` of a hop that is not metered.
    pub fn meter(&self, id: HopId) -> Option<MeterSnapshot> {
        self.hops.get(&id)?.meter.as_ref().map(Meter::snapshot)
    }

    /// Every metered hop, with its path's or terminal's name.
    pub fn meters(&self) -> Vec<(HopId, String, MeterSnapshot)> {
        let metered = each(self.hops.iter()).filter_map(|(id, hop)| {
            let meter = hop.meter.as_ref()?.snapshot();
            Some((*id, hop.config.name.clone(), meter))
        });
        metered.collect()
    }

    /// Sets what was spent of a hop's budget in earlier runs; what this one has
    /// spent by now is added.
    pub fn restore_spent(&mut self, now: Instant, id: HopId, before: Spent) {
        self.change_meter(now, id, |meter| {
            let since = meter.spent.spent_bytes;
            meter.spent = before;
            meter.spend(since);
        });
    }

    /// Lets so many bytes more be spent in this period.
    pub fn add_to_budget(&mut self, now: Instant, id: HopId, bytes: u64) {
        self.change_meter(now, id, |meter| {
            meter.spent.added_bytes = meter.spent.added_bytes.saturating_add(bytes);
        });
    }

    /// Forgets what was spent and added, and when the period began.
    pub fn reset_budget(&mut self, now: Instant, id: HopId) {
        self.change_meter(now, id, Meter::reset);
    }

    /// Renews the budgets whose period has ended.
    pub fn renew_budgets(&mut self, now: Instant) {
        let Some(utc_ms) = self.utc_ms(now) else {
            return;
        };
        for id in self.hop_ids() {
            let metered = self.hops.get(&id).is_some_and(|hop| hop.meter.is_some());
            if metered {
                self.change_meter(now, id, |meter| meter.renew(utc_ms));
            }
        }
    }

    /// The hops whose bytes are paid for.
    pub fn metered_hops(&self) -> Vec<HopId> {
        let metered = each(self.hops.iter()).filter(|(_, hop)| hop.meter.is_some());
        metered.map(|(id, _)| *id).collect()
    }

    /// Counts what a hop has carried beside bundles: bytes of IP, and datagrams with a
    /// payload of so many bytes each.
    pub fn spend_beside(
        &mut self,
        now: Instant,
        id: HopId,
        ip_bytes: u64,
        (datagrams, payload_bytes): (u64, u64),
    ) {
        let ipv6 = self.hops.get(&id).is_some_and(|hop| hop.config.ipv6);
        let headers = if ipv6 { IPV6_UDP_BYTES } else { IPV4_UDP_BYTES };
        self.spend(now, id, ip_bytes + datagrams * (payload_bytes + headers));
    }

    /// Counts bytes of IP that a hop has carried, in either direction. It may be
    /// called while bundles are being given out, so the hops are asked later.
    pub(crate) fn spend(&mut self, now: Instant, id: HopId, ip_bytes: u64) {
        let Some(hop) = self.hops.get_mut(&id) else {
            return;
        };
        let neighbour = hop.config.neighbour;
        let Some(meter) = &mut hop.meter else {
            return;
        };
        let before = meter.is_exhausted();
        meter.spend(ip_bytes);
        if meter.is_exhausted() != before {
            for id in self.ways.shared_hops_to(neighbour).iter() {
                self.ask_again(now, *id, Duration::ZERO);
            }
        }
    }

    /// Changes a meter; when that exhausts the budget or gives room again, all
    /// hops to the neighbour are asked anew for what waits.
    fn change_meter(&mut self, now: Instant, id: HopId, change: impl FnOnce(&mut Meter)) {
        let Some(hop) = self.hops.get_mut(&id) else {
            return;
        };
        let neighbour = hop.config.neighbour;
        let Some(meter) = &mut hop.meter else {
            return;
        };
        let before = meter.is_exhausted();
        change(meter);
        if meter.is_exhausted() != before {
            self.leaves_changed(id);
            self.hops_have_changed(now, neighbour);
            self.after_change(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = 86_400_000;
    /// 2026-01-01T00:00:00Z.
    const NEW_YEAR_MS: u64 = 1_767_225_600_000;

    fn meter(budget_bytes: u64, period: Period) -> Meter {
        Meter::new(MeterConfig {
            budget_bytes: Some(budget_bytes),
            period,
            beyond: vec![Class(0)],
        })
    }

    #[test]
    fn periods_begin_at_midnight_and_at_the_day_of_the_bill() {
        let noon = NEW_YEAR_MS + 9 * DAY_MS + DAY_MS / 2;
        let begin = |period: Period, at| period.begin_ms(at);
        assert_eq!(begin(Period::Once, noon), None);
        assert_eq!(begin(Period::Day, noon), Some(NEW_YEAR_MS + 9 * DAY_MS));
        assert_eq!(begin(Period::Month(1), noon), Some(NEW_YEAR_MS));
        // On the tenth the month of the tenth has just begun, and that of the
        // eleventh began in December.
        let tenth = NEW_YEAR_MS + 9 * DAY_MS;
        assert_eq!(begin(Period::Month(10), tenth), Some(tenth));
        let eleventh_before = NEW_YEAR_MS - 21 * DAY_MS;
        assert_eq!(begin(Period::Month(11), noon), Some(eleventh_before));
        assert_eq!(begin(Period::Day, u64::MAX), None);
    }

    #[test]
    fn a_spent_budget_carries_only_what_is_named_until_the_next_period() {
        let mut meter = meter(1_000, Period::Day);
        meter.renew(NEW_YEAR_MS);
        meter.spend(999);
        assert!(meter.allows(Class(3)));
        meter.spend(1);
        assert!(!meter.allows(Class(3)) && meter.allows(Class(0)));
        meter.renew(NEW_YEAR_MS + DAY_MS - 1);
        assert!(!meter.allows(Class(3)));
        meter.renew(NEW_YEAR_MS + DAY_MS);
        assert!(meter.allows(Class(3)));
        assert_eq!(meter.spent.spent_bytes, 0);
    }

    #[test]
    fn neither_a_clock_set_back_nor_one_that_becomes_known_renews() {
        let mut meter = meter(1_000, Period::Month(1));
        meter.spend(600);
        meter.renew(NEW_YEAR_MS + DAY_MS);
        assert_eq!(meter.spent.spent_bytes, 600);
        meter.renew(NEW_YEAR_MS - DAY_MS);
        assert_eq!(meter.spent.spent_bytes, 600);
        meter.renew(NEW_YEAR_MS + 2 * DAY_MS);
        assert_eq!(meter.spent.spent_bytes, 600);
    }

    #[test]
    fn a_reset_lets_go_of_a_period_that_a_clock_ahead_began() {
        let mut meter = meter(1_000, Period::Day);
        meter.renew(NEW_YEAR_MS + 365 * DAY_MS);
        meter.spend(1_000);
        meter.renew(NEW_YEAR_MS);
        assert!(meter.is_exhausted());
        meter.reset();
        meter.renew(NEW_YEAR_MS);
        meter.spend(1_000);
        assert!(meter.is_exhausted());
        meter.renew(NEW_YEAR_MS + DAY_MS);
        assert!(!meter.is_exhausted());
    }

    #[test]
    fn counts_do_not_wrap() {
        let mut meter = meter(u64::MAX, Period::Once);
        meter.spend(u64::MAX - 1);
        meter.spend(5);
        meter.spent.added_bytes = u64::MAX;
        assert_eq!(meter.spent.spent_bytes, u64::MAX);
        assert!(meter.is_exhausted());
    }
}
