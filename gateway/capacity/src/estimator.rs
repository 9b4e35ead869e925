//! The estimate, and the rate that follows from it.

use std::time::{Duration, Instant};

use crate::base::BaseRtt;
use crate::history::{History, Total};
use crate::probe::{Probe, Probing};
use crate::{Reading, Reason};

/// Arrivals are counted over so much, and over as many packets at least.
const LEAST_WINDOW: Duration = Duration::from_millis(80);
const MOST_WINDOW: Duration = Duration::from_millis(200);
const WINDOW_BITS: f64 = 16.0 * 12_000.0;
/// A hop of some kbit/s has windows of seconds, but not of minutes.
const LONGEST_WINDOW: Duration = Duration::from_secs(3);
/// Where arrivals come in bunches, a window has so many of them.
const WINDOW_BUNCHES: u32 = 3;

/// More is sent than the link carries if the round trip grows by this part of
/// the time, and the queue is above a bound.
const GROWS: f64 = 0.04;
/// A queue is noticed from this part of the base round trip (1/n) on, within
/// bounds; from half of it, it is one; less is the sender's own bursts.
const NOTICED_PART: u32 = 16;
const LEAST_NOTICED: Duration = Duration::from_millis(12);
const MOST_NOTICED: Duration = Duration::from_millis(30);
/// Beside a queue of others or of the way back, so many times as much: it is
/// known of another moment.
const NOTICED_BESIDE: u32 = 2;
/// From here on there is a queue on the way back.
const LEAST_WAY_BACK: Duration = Duration::from_millis(4);
/// One that has stood for a round trip, and at least so long, tells the same by
/// itself: the excess is too small to be seen growing.
const LEAST_STANDING: Duration = Duration::from_millis(200);
/// After a drain, an estimate that is too high by this part of it shows.
const TOO_MUCH: f64 = 0.05;
/// So many drains in a row that leave half of a queue at all times show that
/// there is none of ours in it.
const UNMOVED: u32 = 2;
/// What waits is no backlog unless this part of what was allowed was sent: little
/// that waits for something else shows nothing of the link.
const FILLED: f64 = 0.6;
/// What may be on its way beyond the link's own product while a queue is
/// drained.
const SLACK: Duration = Duration::from_millis(5);

/// What a probe must bring of what it sends above the estimate.
const FOUND: f64 = 0.6;
/// What is really sent of what is allowed, at least: the link scheduler leaves
/// a part of it, and a sender that stops now and then does.
const UTILISATION: f64 = 0.95;
/// What is missing of a probe can be counted if as many bunches of arrivals fit
/// into it, at least.
const BUNCHES_PER_PROBE: u32 = 2;
/// A probe that sent less than this part of what it was to says nothing.
const SENT: f64 = 0.5;

/// Over how long losses are counted, and the most that is believed to be the
/// link's own: a queue that overflows loses, too.
const LOSS_WINDOW: Duration = Duration::from_secs(2);
const MOST_LOSS: f64 = 0.15;
/// What is kept of it each time that the estimate was too high.
const LOSS_KEPT: f64 = 0.9;
/// Of what is on its way, at most so much may wait for a repair while losses are
/// counted: more has been lost at once, by a queue that overflowed.
const MOST_UNREPAIRED: f64 = 0.1;

/// No estimate is below this, bit/s: less cannot carry what measures it.
const LEAST_CAPACITY: f64 = 8_000.0;

/// A network with a shorter round trip is a local one: there is no queue that is
/// worth an estimate.
const LEAST_RTT: Duration = Duration::from_millis(5);

/// What bounds the estimate. Rates are bit/s of IP packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Where the estimate starts. `None`: at the ceiling, or else with what the
    /// first packets show.
    pub hint_bps: Option<u64>,
    /// More is never sent.
    pub ceiling_bps: Option<u64>,
}

/// Finds what a link carries. Times are told; they do not step back.
#[derive(Clone, Debug)]
pub struct Estimator {
    limits: Limits,
    /// bit/s; `None` while nothing has shown that the link carries less than
    /// the ceiling.
    capacity: Option<f64>,
    /// What the capacity goes back to.
    reason: Reason,
    /// Part of the packets that the link loses by itself.
    loss: f64,
    /// When a queue may last have overflowed: what was lost then is repaired
    /// later.
    overflow: Option<Instant>,
    base: BaseRtt,
    history: History,
    probing: Probing,
    drain: Option<Drain>,
    /// Drains in a row that changed nothing, and what the capacity was thought to
    /// be before the first of them, bit/s.
    unmoved: u32,
    before: f64,
    /// Since when there has been a backlog.
    backlogged: Option<Instant>,
    drain_bits: f64,
    queue: Duration,
}

/// A queue is being drained.
#[derive(Clone, Copy, Debug)]
struct Drain {
    /// The longest round trip until then.
    rtt: Duration,
    began: Instant,
    /// Since when sending goes on: a round trip later it shows what has become
    /// of the queue.
    settling: Option<Instant>,
}

const DELIVERED_BITS: Total = |reading| reading.delivered_bits;
const SENT_BITS: Total = |reading| reading.sent_bits;
const REPEATED_BITS: Total = |reading| reading.repeated_bits;
const OTHER_BITS: Total = |reading| reading.other_bits;

impl Estimator {
    /// A link of which nothing is known but `limits`.
    pub fn new(limits: Limits) -> Estimator {
        Estimator {
            limits,
            capacity: limits.hint_bps.map(|bps| bps as f64),
            reason: Reason::Hint,
            loss: 0.0,
            overflow: None,
            base: BaseRtt::default(),
            history: History::default(),
            probing: Probing::new(),
            drain: None,
            unmoved: 0,
            before: 0.0,
            backlogged: None,
            drain_bits: 0.0,
            queue: Duration::ZERO,
        }
    }

    /// Takes other limits. What is told anew is where the estimate goes on: a
    /// ceiling that operator or modem have set says what the link carries now.
    pub fn set_limits(&mut self, limits: Limits) {
        let before = std::mem::replace(&mut self.limits, limits);
        if let Some(bps) = limits
            .hint_bps
            .filter(|_| limits.hint_bps != before.hint_bps)
        {
            self.estimate(bps as f64, Reason::Hint);
        } else if limits.ceiling_bps.is_some() && limits.ceiling_bps != before.ceiling_bps {
            self.capacity = None;
        } else {
            return;
        }
        self.drain = None;
        self.drain_bits = 0.0;
        self.probing = Probing::new();
    }

    /// What was found of the capacity so far does not count: the estimate begins
    /// anew at what is told.
    pub fn begin_anew(&mut self) {
        self.interrupt();
        self.capacity = self.limits.hint_bps.map(|bps| bps as f64);
        self.reason = Reason::Hint;
    }

    /// What the link is known to carry, bit/s of IP packets; `None` while
    /// nothing has shown that it is less than the ceiling.
    pub fn capacity_bps(&self) -> Option<u64> {
        self.capacity.map(|capacity| capacity as u64)
    }

    /// What [`Estimator::capacity_bps`] goes back to; `None` as there.
    pub fn reason(&self) -> Option<Reason> {
        self.capacity.map(|_| self.reason)
    }

    /// What may be sent at `now`, bit/s of IP packets; `None` is unlimited.
    pub fn rate_bps(&self, now: Instant) -> Option<u64> {
        let rate = self.capacity.map(|capacity| {
            let probe = self.probing.sending(now);
            let gain = probe.map_or(0.0, |probe| probe.gain);
            (capacity * (1.0 + gain)) as u64
        });
        rate.into_iter().chain(self.limits.ceiling_bps).min()
    }

    /// What has been sent too much and is to be drained before more is sent,
    /// bits of IP packets; of a longer drain, what lasts until the next reading
    /// but one.
    pub fn drain_bits(&self) -> u64 {
        self.drain_bits as u64
    }

    /// The round trip without a queue, if it is known.
    pub fn base_rtt(&self) -> Option<Duration> {
        self.base.get()
    }

    /// How long the queue holds packets up.
    pub fn queue(&self) -> Duration {
        self.queue
    }

    /// Part of the packets that the link loses by itself.
    pub fn loss(&self) -> f64 {
        self.loss
    }

    /// The link was blocked, or its sessions are others: what was on its way
    /// tells nothing any more. What the link carries stays known.
    pub fn interrupt(&mut self) {
        self.history.clear();
        self.drain = None;
        self.drain_bits = 0.0;
        self.backlogged = None;
        self.queue = Duration::ZERO;
        self.probing = Probing::new();
    }

    /// Takes a reading.
    pub fn read(&mut self, now: Instant, mut reading: Reading) {
        let shared = reading.shared_queue.unwrap_or_default();
        let way_back = reading.way_back.unwrap_or_default();
        let measured = reading.rtt;
        let base = self.base.get().unwrap_or_default();
        let horizon = 3 * base + LOSS_WINDOW + LONGEST_WINDOW + self.probing.length();
        // What is known of another moment can be more than there is at this one.
        let own = |rtt: Duration| rtt.saturating_sub(shared + way_back).max(base.min(rtt));
        reading.rtt = measured.map(own);
        let since_last = self.history.since_last(now);
        let held = self.drain_bits > 0.0;
        if !self.history.push(now, reading, held, horizon) {
            return;
        }
        if let Some(rtt) = measured {
            self.base.see(now, rtt);
        }
        self.backlogged = match reading.backlogged {
            true => self.backlogged.or(Some(now)),
            false => None,
        };
        let Some(base) = self.base.get().filter(|base| *base >= LEAST_RTT) else {
            return;
        };
        let window = self.window(now);
        let Some(mut view) = self.view(now, base, window, reading.allowed_bps) else {
            return;
        };
        if reading.shared_queue.is_some() || way_back >= LEAST_WAY_BACK {
            view.noticed *= NOTICED_BESIDE;
        }
        view.steady = way_back < LEAST_WAY_BACK;
        self.queue = view.queue + shared;
        self.learn_loss(now, &view, &reading);
        match self.drain {
            Some(drain) => self.go_on_draining(now, &view, drain),
            None => self.find_excess(now, &view),
        }
        self.drain_bits = 0.0;
        if let Some(drain) = &mut self.drain
            && drain.settling.is_none()
        {
            drain.rtt = drain.rtt.max(view.latest);
            let excess = excess(self.capacity, &view, &reading);
            let until_next = self.capacity.unwrap_or(0.0) * (2 * since_last).as_secs_f64();
            self.drain_bits = excess.min(until_next);
            // Acknowledgements end with the queue: what else counts as on its
            // way was lost. What takes longer than the queue and a round trip is
            // no drain, but an estimate that is still too high.
            let longest = view.latest + view.base + view.window;
            let over = now >= drain.began + longest || self.history.is_silent(now, window);
            if excess == 0.0 || over {
                self.drain_bits = 0.0;
                drain.settling = Some(now);
            }
        }
        self.find_first(now, &view);
        self.probe(now, &view);
        self.keep_below_ceiling();
    }

    fn keep_below_ceiling(&mut self) {
        if let (Some(capacity), Some(ceiling)) = (self.capacity, self.limits.ceiling_bps)
            && capacity >= ceiling as f64
        {
            self.capacity = None;
        }
    }

    /// Over how long arrivals are counted at present.
    fn window(&self, now: Instant) -> Duration {
        let base = self.base.get().unwrap_or_default();
        let by_rtt = (base / 4).clamp(LEAST_WINDOW, MOST_WINDOW);
        let rate = self.capacity.unwrap_or(f64::INFINITY).max(LEAST_CAPACITY);
        let by_packets = Duration::from_secs_f64(WINDOW_BITS / rate);
        let recent = now.checked_sub(Duration::from_secs(1)).unwrap_or(now);
        let by_bunches = WINDOW_BUNCHES * self.history.longest_gap(recent);
        by_rtt
            .max(by_packets)
            .max(by_bunches.min(2 * MOST_WINDOW))
            .min(LONGEST_WINDOW)
    }

    /// What the last window shows; `None` until there is one.
    fn view(
        &self,
        now: Instant,
        base: Duration,
        window: Duration,
        allowed_bps: Option<u64>,
    ) -> Option<View> {
        let (arrivals, since) = self.history.arrivals(now, window)?;
        let least_rtt = self.history.least_rtt(now.checked_sub(window)?);
        let sent_to = now.checked_sub(least_rtt.unwrap_or(base))?;
        let sent_from = sent_to.checked_sub(window)?;
        if !self.history.reaches(sent_from) {
            return None;
        }
        let other = self.history.rate(OTHER_BITS, since, now);
        let sent = self.history.rate(SENT_BITS, sent_from, sent_to)
            + self.history.rate(OTHER_BITS, sent_from, sent_to);
        let filled = allowed_bps.is_none_or(|bps| sent >= FILLED * bps as f64);
        Some(View {
            base,
            window,
            other,
            carried: arrivals / (1.0 - self.loss) + other,
            backlogged: filled && self.history.backlogged(sent_from, sent_to),
            steady: true,
            noticed: (base / NOTICED_PART).clamp(LEAST_NOTICED, MOST_NOTICED),
            latest: self.history.latest_rtt().unwrap_or_default(),
            queue: least_rtt.map_or(Duration::ZERO, |rtt| rtt.saturating_sub(base)),
        })
    }

    /// What is lost while no queue overflows is the link's own loss.
    fn learn_loss(&mut self, now: Instant, view: &View, reading: &Reading) {
        let Some(since) = now.checked_sub(LOSS_WINDOW) else {
            return;
        };
        let repairs = reading.lost_bits as f64 > MOST_UNREPAIRED * reading.in_flight_bits as f64;
        if self.drain.is_some() || view.queue > view.noticed || repairs {
            self.overflow = Some(now);
        }
        let recent = |at: Instant| now < at + LOSS_WINDOW + 2 * view.base;
        if self.overflow.is_some_and(recent) || !self.history.reaches(since) {
            return;
        }
        if let Some(part) = self.recent_loss(now) {
            self.loss += (part - self.loss) * 0.05;
        }
    }

    /// Part of the packets of the last seconds that was sent again, if they were
    /// many.
    fn recent_loss(&self, now: Instant) -> Option<f64> {
        let since = now.checked_sub(LOSS_WINDOW)?;
        let sent = self.history.rate(SENT_BITS, since, now);
        let repeated = self.history.rate(REPEATED_BITS, since, now);
        let many = sent * LOSS_WINDOW.as_secs_f64() > 100.0 * 12_000.0;
        many.then(|| (repeated / sent).min(MOST_LOSS))
    }

    /// Whether more is sent than the link carries.
    fn find_excess(&mut self, now: Instant, view: &View) {
        if !view.backlogged {
            return;
        }
        let grows = self.history.rtt_grows(now, now - view.window, GROWS);
        if grows && view.latest > view.base + view.noticed {
            self.lower(now, view, view.carried);
            return;
        }
        let standing = view.base.max(LEAST_STANDING);
        let stands = now.checked_sub(standing).is_some_and(|since| {
            let least = self.history.least_rtt(since);
            least.is_some_and(|rtt| rtt > view.base + view.noticed)
        });
        if stands && let Some((arrivals, _)) = self.history.arrivals(now, standing) {
            let carried = arrivals / (1.0 - self.loss) + view.other;
            self.lower(now, view, carried);
        }
    }

    fn lower(&mut self, now: Instant, view: &View, carried: f64) {
        let before = self.capacity.unwrap_or(f64::INFINITY);
        if self.drain.is_none() {
            self.before = before;
        }
        // Losses of before may be over, and then what is carried is less.
        self.loss *= LOSS_KEPT;
        self.estimate(before.min(carried), Reason::Limit);
        self.begin_drain(now, view);
        self.probing.step_back(now, view.base);
    }

    fn estimate(&mut self, capacity: f64, reason: Reason) {
        self.capacity = Some(capacity.max(LEAST_CAPACITY));
        self.reason = reason;
    }

    fn begin_drain(&mut self, now: Instant, view: &View) {
        self.drain = Some(Drain {
            rtt: view.latest,
            began: now,
            settling: None,
        });
    }

    fn go_on_draining(&mut self, now: Instant, view: &View, drain: Drain) {
        let queued = view.queue > view.noticed / 2;
        if !queued && drain.settling.is_some() {
            self.end_drain(now, view);
            return;
        }
        let before = self.capacity.unwrap_or(view.carried);
        let too_high = view.carried < before * (1.0 - TOO_MUCH)
            && self.history.rtt_grows(now, now - view.window, GROWS);
        // While a queue stands, what arrives is what the link carries.
        if queued && view.backlogged && drain.settling.is_none() {
            self.estimate(view.carried, Reason::Limit);
        } else if queued && view.backlogged && too_high {
            self.lower(now, view, view.carried);
            return;
        }
        let Some(since) = drain.settling else {
            return;
        };
        if now < since + drain.rtt + 2 * view.window {
            return;
        }
        let had = drain.rtt.saturating_sub(view.base);
        let least = self.history.least_rtt(since + drain.rtt);
        let left = least.map_or(had, |rtt| rtt.saturating_sub(view.base));
        if left > had / 2 {
            // The drain has changed nothing: if another does not either, what
            // stands is another's, or the way has become longer.
            self.unmoved += 1;
            if self.unmoved < UNMOVED {
                self.begin_drain(now, view);
            } else {
                self.base.forget_before(since + drain.rtt);
                self.end_drain(now, view);
                // What arrived was less for as long as the way became longer.
                if let Some(capacity) = self.capacity.filter(|one| *one < self.before) {
                    self.probing.look_for(now, self.before / capacity - 1.0);
                }
            }
        } else {
            self.unmoved = 0;
            self.lower(now, view, view.carried);
        }
    }

    fn end_drain(&mut self, now: Instant, view: &View) {
        self.unmoved = 0;
        self.drain = None;
        self.drain_bits = 0.0;
        self.probing.pause(now, view.base);
    }

    /// Without hint and ceiling, what has arrived after some round trips is a
    /// first estimate, and likely too low.
    fn find_first(&mut self, now: Instant, view: &View) {
        if self.capacity.is_some() || self.limits.ceiling_bps.is_some() {
            return;
        }
        if let Some(since) = self.backlogged
            && now >= since + 2 * view.base + view.window
            && view.backlogged
        {
            self.estimate(view.carried, Reason::Start);
            self.probing.double(now);
        }
    }

    fn probe(&mut self, now: Instant, view: &View) {
        if let Some(probe) = self.probing.answered(now) {
            self.answer(now, view, probe);
        }
        self.keep_below_ceiling();
        let Some(capacity) = self.capacity else {
            return;
        };
        let most = self
            .limits
            .ceiling_bps
            .map_or(f64::INFINITY, |bps| bps as f64);
        if self.drain.is_none() && self.backlogged.is_some() && view.queue < view.noticed {
            let trip = (view.base, view.queue);
            let recent = now.checked_sub(Duration::from_secs(1)).unwrap_or(now);
            let bunch = self.history.longest_gap(recent);
            self.probing.begin(now, capacity, most, trip, bunch);
        }
    }

    /// What a probe has shown.
    fn answer(&mut self, now: Instant, view: &View, probe: Probe) {
        let sent = self.history.rate(SENT_BITS, probe.began, probe.ends)
            + self.history.rate(OTHER_BITS, probe.began, probe.ends);
        if sent < probe.capacity * UTILISATION * (1.0 + SENT * probe.gain) {
            self.probing.inconclusive(now);
            return;
        }
        let wanted = probe.capacity + FOUND * (sent - probe.capacity);
        let risen = view.queue.saturating_sub(probe.queue);
        // What is lost at present without a queue is lost by the link.
        let loss = match risen < view.noticed / 4 {
            true => self.loss.max(self.recent_loss(now).unwrap_or_default()),
            false => self.loss,
        };
        let length = probe.ends - probe.began;
        let first = probe.began + view.base + length;
        let best = self.best_arrivals(first, probe.answered, length) / (1.0 - loss) + view.other;
        let arrived = match view.steady {
            true => best.max(self.counted_arrivals(now, probe, view, sent, loss)),
            false => best,
        };
        if arrived >= wanted && risen < view.noticed / 2 {
            let capacity = self.capacity.unwrap_or(0.0);
            self.estimate(capacity.max(arrived.min(sent)), Reason::Probe);
            self.probing.found(now);
        } else {
            self.reason = Reason::Limit;
            let more = arrived / probe.capacity - 1.0;
            self.probing.found_less(now, view.base, more);
            if view.latest > view.base + probe.queue + view.noticed / 4 {
                self.before = probe.capacity;
                self.begin_drain(now, view);
            }
        }
    }

    /// How fast a probe arrived by what is missing of all that was sent from its
    /// beginning on, bit/s. Zero where arrivals come in bunches too long for that.
    fn counted_arrivals(
        &self,
        now: Instant,
        probe: Probe,
        view: &View,
        sent: f64,
        loss: f64,
    ) -> f64 {
        let length = probe.ends - probe.began;
        let way = view.base + probe.queue;
        let Some(from) = self.history.reading_at(probe.began + way) else {
            return 0.0;
        };
        if self.history.longest_gap(from) > length / BUNCHES_PER_PROBE {
            return 0.0;
        }
        let shift = |at: Instant| at.checked_sub(way).unwrap_or(at);
        let was_sent = self.history.total_at(SENT_BITS, shift(now))
            - self.history.total_at(SENT_BITS, shift(from));
        let has_come = self.history.total_at(DELIVERED_BITS, now)
            - self.history.total_at(DELIVERED_BITS, from);
        let missing = was_sent - has_come / (1.0 - loss);
        sent - missing / length.as_secs_f64()
    }

    /// The fastest arrivals, bit/s: over `length`, and that ends between two times.
    fn best_arrivals(&self, first: Instant, last: Instant, length: Duration) -> f64 {
        let mut best = 0.0_f64;
        let mut end = first;
        while end <= last {
            if let Some((arrivals, _)) = self.history.arrivals(end, length) {
                best = best.max(arrivals);
            }
            end += Duration::from_millis(10);
        }
        best
    }
}

/// What the last window shows.
#[derive(Clone, Copy, Debug)]
struct View {
    base: Duration,
    window: Duration,
    /// How fast else is sent, bit/s.
    other: f64,
    /// What the link carries, if it carries as much as it can, bit/s.
    carried: f64,
    /// Whether as much was sent as was allowed when that was sent which arrives
    /// in the window.
    backlogged: bool,
    /// No queue on the way back changes when arrivals are told.
    steady: bool,
    /// From when on a queue is noticed.
    noticed: Duration,
    /// The last round trip.
    latest: Duration,
    /// By how much the least in the window is above the base.
    queue: Duration,
}

/// What is on its way beyond what the link itself holds, bits.
fn excess(capacity: Option<f64>, view: &View, reading: &Reading) -> f64 {
    let Some(capacity) = capacity else {
        return 0.0;
    };
    let of_data = (capacity - view.other).max(LEAST_CAPACITY);
    let held = of_data * (view.base + SLACK).as_secs_f64() + 4.0 * 12_000.0;
    (reading.in_flight_bits as f64 - held).max(0.0)
}
