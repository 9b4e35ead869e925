//! The estimate, and the rate that follows from it.

mod draining;
mod filling;
mod judging;
mod others;
mod reported;
mod starting;

use std::time::{Duration, Instant};

use crate::base::BaseRtt;
use crate::history::{History, OTHER_BITS, REPEATED_BITS, SENT_BITS};
use crate::limits::Limits;
use crate::probe::{Probing, Trip};
use crate::told::{self, Told};
use crate::view::{LEAST_CAPACITY, NOTICED_BESIDE, NOTICED_TOLD, View, excess, noticed};
use crate::word::Word;
use crate::{Reading, Reason, WayThere};
use filling::FILLED;
use others::Others;
use starting::Flights;

/// Arrivals are counted over a quarter of the round trip, within these bounds, and over at least so
/// many packets.
const LEAST_WINDOW: Duration = Duration::from_millis(80);
const MOST_WINDOW: Duration = Duration::from_millis(200);
const WINDOW_BITS: f64 = 16.0 * 12_000.0;
/// A hop of a few kbit/s has windows of seconds, but not of minutes.
const LONGEST_WINDOW: Duration = Duration::from_secs(3);
/// Where arrivals come in bunches, a window holds so many of them.
const WINDOW_BUNCHES: u32 = 3;

/// While the way back has a queue, arrivals are counted over so long, and their rate may be so many
/// times too low.
const SHIFTED: Duration = Duration::from_secs(1);
const SHIFTED_BY: f64 = 1.25;
/// On a link with capacity on demand, all but small amounts wait for a round trip and for the next
/// frames, and for these at most so long.
const MOST_FRAMES: Duration = Duration::from_millis(400);
/// Sending at this part of the estimate tells a wait for access from a queue: the wait stays as
/// long, the queue shrinks.
const TRIED_PART: f64 = 0.9;
/// The wait for access varies by this part of it (1/n): with the rate, and with where in a frame
/// something comes.
const ACCESS_VARIES_PART: u32 = 8;

/// How long losses are counted over, and the most that counts as the link's own: a queue that
/// overflows loses, too.
const LOSS_WINDOW: Duration = Duration::from_secs(2);
const MOST_LOSS: f64 = 0.15;
/// Losses are not counted while more than this part of what is in flight waits for a repair: only a
/// queue that overflows loses so much at once.
const MOST_UNREPAIRED: f64 = 0.1;

/// After an estimate below `Limits::least_bps` nothing is estimated for so long.
const DOUBTED: Duration = Duration::from_secs(60);

/// A network with a shorter round trip is local: its queues are not worth an estimate.
const LEAST_RTT: Duration = Duration::from_millis(5);

/// Estimates what a link carries. The caller passes the time, which never steps back.
#[derive(Clone, Debug)]
pub struct Estimator {
    limits: Limits,
    /// The hint is another path's, so it is not used.
    elsewhere: bool,
    /// bit/s; `None` while nothing has shown that the link carries less than
    /// the ceiling.
    capacity: Option<f64>,
    /// What the capacity is based on.
    reason: Reason,
    /// Part of the packets that the link loses by itself.
    loss: f64,
    /// When that was last learned.
    loss_learned: Option<Instant>,
    /// When a queue may last have overflowed: what was lost then is repaired
    /// later.
    overflow: Option<Instant>,
    base: BaseRtt,
    /// How much longer than the base round trip data takes that is sent without a pause: it waits for
    /// access to the link, or in the queue of `others`.
    access: Duration,
    history: History,
    probing: Probing,
    drain: Option<Drain>,
    /// Drains in a row that changed nothing, and the estimate before the first of them, bit/s.
    unmoved: u32,
    before: f64,
    /// The most that the link was found to carry since a look far above an old estimate found less,
    /// bit/s. `None`: nothing was found, and it is thought to carry its ceiling.
    most_found: Option<f64>,
    /// When a backlog last showed what the link carries; `None`: not since that was told.
    tried: Option<Instant>,
    /// The estimate before it fell, bit/s, if that fall began the present drain.
    fallen_from: Option<f64>,
    /// The estimate before the present drain, bit/s, and what it was based on, if so little was sent
    /// when it began that the queue may be others' alone.
    doubtful: Option<(Option<f64>, Reason)>,
    /// When the estimate last came back after such a drain.
    restored: Option<Instant>,
    /// When the first of several such drains began, of which each soon followed the one before.
    doubted_since: Option<Instant>,
    /// Since when there has been a backlog.
    backlogged: Option<Instant>,
    /// When the backlog of the present flight began, and when it was last seen: a short pause does
    /// not end a flight.
    flight: Option<(Instant, Instant)>,
    drain_bits: f64,
    queue: Duration,
    told: Told,
    /// The peer's last report, if it is believed.
    reported: Option<WayThere>,
    others: Option<Others>,
    /// When the estimate was last below `Limits::least_bps`.
    doubted: Option<Instant>,
    /// A first flight has had no answer for too long.
    unanswered: bool,
    flights: Flights,
    word: Word,
}

/// A queue is being drained.
#[derive(Clone, Copy, Debug)]
struct Drain {
    /// The longest round trip until sending goes on.
    rtt: Duration,
    began: Instant,
    /// When sending went on: a round trip later it shows what has become of the queue.
    settling: Option<Instant>,
}

impl Estimator {
    /// A link of which nothing is known but `limits`.
    pub fn new(limits: Limits) -> Estimator {
        Estimator {
            limits,
            elsewhere: false,
            capacity: limits.hinted(),
            reason: Reason::Hint,
            loss: 0.0,
            loss_learned: None,
            overflow: None,
            base: BaseRtt::default(),
            access: Duration::ZERO,
            history: History::default(),
            probing: Probing::new(),
            drain: None,
            unmoved: 0,
            before: 0.0,
            most_found: None,
            tried: None,
            fallen_from: None,
            doubtful: None,
            restored: None,
            doubted_since: None,
            backlogged: None,
            flight: None,
            drain_bits: 0.0,
            queue: Duration::ZERO,
            told: Told::default(),
            reported: None,
            others: None,
            doubted: None,
            unanswered: false,
            flights: Flights::default(),
            word: Word::default(),
        }
    }

    /// Replaces the limits. The estimate goes on at a hint or ceiling that has changed: a ceiling
    /// set by an operator or a modem says what the link carries now.
    pub fn set_limits(&mut self, limits: Limits) {
        let before = std::mem::replace(&mut self.limits, limits);
        if let Some(bps) = limits
            .hint_bps
            .filter(|_| limits.hint_bps != before.hint_bps)
        {
            self.elsewhere = false;
            self.estimate(bps as f64, Reason::Hint);
        } else if limits.ceiling_bps.is_some() && limits.ceiling_bps != before.ceiling_bps {
            self.capacity = None;
            self.word.forget();
        } else {
            return;
        }
        self.go_on_as_told();
    }

    /// Ends a drain or probe that belongs to the estimate before.
    fn go_on_as_told(&mut self) {
        self.drain = None;
        self.others = None;
        (self.most_found, self.tried) = (None, None);
        self.fallen_from = None;
        self.doubtful = None;
        self.drain_bits = 0.0;
        self.probing = Probing::new();
    }

    /// Discards what was found of the capacity: the estimate begins anew at the hint.
    pub fn begin_anew(&mut self) {
        self.interrupt();
        self.capacity = self.limits.hinted().filter(|_| !self.elsewhere);
        (self.reason, self.others) = (Reason::Hint, None);
        (self.most_found, self.tried) = (None, None);
    }

    /// What the link is known to carry, bit/s of IP packets; `None` while
    /// nothing has shown that it is less than the ceiling.
    pub fn capacity_bps(&self) -> Option<u64> {
        self.capacity.map(|capacity| capacity as u64)
    }

    /// What [`Estimator::capacity_bps`] is based on; `None` as there.
    pub fn reason(&self) -> Option<Reason> {
        self.capacity.map(|_| self.reason)
    }

    /// What may be sent at `now`, bit/s of IP; `None`: no limit but [`Estimator::first_flight`].
    pub fn rate_bps(&self, now: Instant) -> Option<u64> {
        let rate = self.capacity.map(|capacity| {
            let probe = self.probing.sending(now);
            let gain = probe.map_or(0.0, |probe| probe.gain);
            (capacity * (1.0 + gain)) as u64
        });
        rate.into_iter().chain(self.limits.ceiling_bps).min()
    }

    /// The excess that has to drain before more is sent, bits of IP packets; of a longer drain, the
    /// part that lasts until the next reading but one.
    pub fn drain_bits(&self) -> u64 {
        self.drain_bits as u64
    }

    /// Whether a queue is being drained.
    pub fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// The round trip without a queue of its own, if it is known, for data that is sent without a
    /// pause: it includes the wait for access, or in others' queue.
    pub fn base_rtt(&self) -> Option<Duration> {
        self.base.get().map(|base| base + self.access)
    }

    /// The round trip without a queue for small amounts, which do not wait for access.
    pub fn path_rtt(&self) -> Option<Duration> {
        self.base.get()
    }

    /// How long the queue delays packets.
    pub fn queue(&self) -> Duration {
        self.queue
    }

    /// Part of the packets that the link loses by itself.
    pub fn loss(&self) -> f64 {
        self.loss
    }

    /// When [`Estimator::loss`] was last learned: few packets say nothing about it.
    pub fn loss_learned(&self) -> Option<Instant> {
        self.loss_learned
    }

    /// Notes that the link was blocked, or that its sessions were replaced: earlier readings say
    /// nothing any more. The capacity stays known.
    pub fn interrupt(&mut self) {
        self.history.clear();
        self.drain = None;
        self.restore_if_doubtful();
        self.fallen_from = None;
        self.drain_bits = 0.0;
        self.backlogged = None;
        self.flight = None;
        self.queue = Duration::ZERO;
        self.probing = Probing::new();
    }

    /// Whether the estimate was below `Limits::least_bps` less than a minute ago.
    pub fn doubts(&self, now: Instant) -> bool {
        self.doubted.is_some_and(|at| now < at + DOUBTED)
    }

    /// Takes a reading.
    pub fn read(&mut self, now: Instant, mut reading: Reading) {
        if self.doubts(now) {
            return;
        }
        let shared = reading.shared_queue.unwrap_or_default();
        let way_back = reading.way_back.unwrap_or_default();
        let measured = reading.rtt;
        let base = self.base.get().unwrap_or_default();
        let horizon = 3 * (base + self.access) + LOSS_WINDOW + LONGEST_WINDOW + self.probing.span();
        let each = reading.way_there.map(|told| told.each);
        let steady = self.told.is_steady(now, base, way_back, each);
        // These queues were measured at another moment, so they can be longer than the present one.
        let own = |rtt: Duration| rtt.saturating_sub(shared + way_back).max(base.min(rtt));
        reading.rtt = measured.map(own);
        let believed = self.told.believed(now, base, &reading, shared);
        let current = believed.filter(|told| !told::is_overtaken(base, *told, &reading));
        self.reported = current;
        reading.way_there = current.filter(|_| !steady);
        let told = reading.way_there.map(|told| WayThere {
            late: self.history.least_told(now, told),
            ..told
        });
        if let Some(told) = told {
            reading.rtt = measured.map(|_| base + told.late);
        }
        let since_last = self.history.since_last(now);
        let held = self.drain_bits > 0.0 || self.first_flight().is_some();
        if !self.history.push(now, reading, held, horizon) {
            return;
        }
        if let Some(rtt) = measured {
            self.see_rtt(now, rtt);
        }
        self.see_backlog(now, reading.backlogged);
        self.see_flight(now, base, reading.backlogged);
        let Some(base) = self.base.get().filter(|base| *base >= LEAST_RTT) else {
            return;
        };
        self.look_for_others(now, base);
        self.find_first(now, base, &reading, way_back, steady);
        let window = self.window(now, steady);
        let Some(mut view) = self.view(now, base + self.access, window, reading.allowed_bps) else {
            return;
        };
        self.see_access(now, base, &mut view, reading.allowed_bps);
        if reading.shared_queue.is_some() || (!steady && told.is_none()) {
            view.noticed *= NOTICED_BESIDE;
        } else if told.is_some() {
            view.noticed = view.noticed.mul_f64(NOTICED_TOLD);
        }
        view.steady = steady;
        view.way_back = way_back;
        if let Some(told) = told {
            view.tell(told, self.access);
            self.count_by_told(now, &mut view, told, reading.allowed_bps);
        }
        self.queue = view.queue + shared;
        self.learn_loss(now, &view, &reading);
        self.see_tried(now, view.backlogged);
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
            // Acknowledgements end with the queue: the rest of what counts as in flight was lost.
            // If this takes longer than the queue and a round trip, the estimate is still too high.
            let longest = measured.unwrap_or_default().max(view.latest) + view.base + view.window;
            let over = now >= drain.began + longest || self.history.is_silent(now, window);
            if excess == 0.0 || over {
                self.drain_bits = 0.0;
                drain.settling = Some(now);
                let rtt = drain.rtt;
                if let Some(capacity) = self.capacity
                    && self.unmoved > 0
                    && view.steady
                    && self.may_wait(rtt)
                {
                    // Otherwise the rest of our own queue would be taken for a wait for access.
                    self.estimate(capacity * TRIED_PART, Reason::Limit);
                }
            }
        }
        self.probe(now, &view);
        self.keep_below_ceiling();
        self.see_under_word(&view);
        let least = self.limits.least_bps.unwrap_or(0) as f64;
        if self.capacity.is_some_and(|capacity| capacity < least) {
            self.interrupt();
            self.capacity = None;
            self.doubted = Some(now);
        }
    }

    /// Lowers the wait for access. Data that is sent without a pause waits each time, so a shorter
    /// round trip shows that the wait has become shorter.
    fn see_access(&mut self, now: Instant, base: Duration, view: &mut View, allowed: Option<u64>) {
        if self.access.is_zero() {
            return;
        }
        let long_ago = 2 * view.base + view.window;
        let latest = view.base + view.queue;
        if view.backlogged && self.filled(now, long_ago, latest, allowed) {
            let least = self.history.least_rtt(now - view.window);
            let waits = least.map_or(self.access, |rtt| rtt.saturating_sub(base));
            if waits < self.access {
                self.access = waits;
                view.base = base + waits;
            }
        }
        view.noticed += self.access / ACCESS_VARIES_PART;
    }

    fn keep_below_ceiling(&mut self) {
        if let (Some(capacity), Some(ceiling)) = (self.capacity, self.limits.ceiling_bps)
            && capacity >= ceiling as f64
        {
            self.capacity = None;
        }
    }

    /// How long arrivals are counted over at present.
    fn window(&self, now: Instant, steady: bool) -> Duration {
        let base = self.base.get().unwrap_or_default();
        let by_rtt = (base / 4).clamp(LEAST_WINDOW, MOST_WINDOW);
        let rate = self.capacity.unwrap_or(f64::INFINITY).max(LEAST_CAPACITY);
        let by_packets = Duration::from_secs_f64(WINDOW_BITS / rate);
        let recent = now.checked_sub(Duration::from_secs(1)).unwrap_or(now);
        let gap = self.history.longest_gap(recent, steady.then_some(base));
        let by_bunches = WINDOW_BUNCHES * gap;
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
        let last_sent = least_rtt.unwrap_or(base);
        // Where nothing came for a while, arrivals are counted from before that on.
        let first_sent = last_sent + window.max(now.saturating_duration_since(since));
        if !self.history.reaches(now.checked_sub(first_sent)?) {
            return None;
        }
        let other = self.history.rate(OTHER_BITS, since, now);
        Some(View {
            base,
            window,
            other,
            carried: arrivals / (1.0 - self.loss) + other,
            allowed_bps,
            sent: self.sent(now, first_sent, last_sent),
            window_full: self.window_full(now, first_sent, last_sent, allowed_bps),
            backlogged: self.filled(now, first_sent, last_sent, allowed_bps),
            steady: true,
            told: None,
            way_back: Duration::ZERO,
            noticed: noticed(base),
            latest: self.history.latest_rtt().unwrap_or_default(),
            queue: least_rtt.map_or(Duration::ZERO, |rtt| rtt.saturating_sub(base)),
            heard: least_rtt.is_some(),
        })
    }

    /// While the way back has a queue: derives what the link carries from how fast the queue of
    /// this direction grows while a known rate is sent.
    fn count_by_told(
        &self,
        now: Instant,
        view: &mut View,
        told: WayThere,
        allowed_bps: Option<u64>,
    ) {
        let span = view.window.max(2 * told.each);
        let later = view.base + view.way_back + told.late + told.each / 2;
        let (Some(from), Some(told_from)) = (now.checked_sub(later + span), now.checked_sub(span))
        else {
            view.backlogged = false;
            return;
        };
        let to = from + span;
        let of_arrivals = to.checked_sub(SHIFTED).unwrap_or(from).min(from);
        let sent = self.history.sent(from, to);
        let before = self.history.told_at(told_from).unwrap_or(told.late);
        let grown = told.late.as_secs_f64() - before.as_secs_f64();
        view.sent = sent;
        view.window_full = self.window_was_full(from, to, allowed_bps);
        view.carried = sent / (1.0 + grown / span.as_secs_f64()).max(0.5);
        view.carried = view.carried.min(self.most_arrived(now, view));
        let filled = allowed_bps.is_none_or(|bps| sent >= FILLED * bps as f64);
        view.backlogged = (filled || view.window_full)
            && self.history.reaches(from)
            && self.history.backlogged(of_arrivals, to);
    }

    /// The highest rate, bit/s, at which packets can have arrived while a queue on the way back
    /// shifts the times of acknowledgements. A bound is needed since a full queue does not grow
    /// either.
    fn most_arrived(&self, now: Instant, view: &View) -> f64 {
        let arrivals = self.history.arrivals(now, SHIFTED.max(view.window));
        arrivals.map_or(f64::INFINITY, |(arrivals, _)| {
            SHIFTED_BY * arrivals / (1.0 - self.loss) + view.other
        })
    }

    /// Learns the link's own loss: what is lost while no queue overflows.
    fn learn_loss(&mut self, now: Instant, view: &View, reading: &Reading) {
        let Some(since) = now.checked_sub(LOSS_WINDOW) else {
            return;
        };
        let repairs = reading.lost_bits as f64 > MOST_UNREPAIRED * reading.in_flight_bits as f64;
        // The queue of others beside this hop overflows, too.
        if self.drain.is_some() || self.queue > view.noticed || repairs {
            self.overflow = Some(now);
        }
        let recent = |at: Instant| now < at + LOSS_WINDOW + 2 * view.base;
        if self.overflow.is_some_and(recent) || !self.history.reaches(since) {
            return;
        }
        if let Some(part) = self.recent_loss(now) {
            self.loss += (part - self.loss) * 0.05;
            self.loss_learned = Some(now);
        }
    }

    /// Part of the packets of the last seconds that was sent again; `None` if there were few.
    fn recent_loss(&self, now: Instant) -> Option<f64> {
        let since = now.checked_sub(LOSS_WINDOW)?;
        let sent = self.history.rate(SENT_BITS, since, now);
        let repeated = self.history.rate(REPEATED_BITS, since, now);
        let many = sent * LOSS_WINDOW.as_secs_f64() > 100.0 * 12_000.0;
        many.then(|| (repeated / sent).min(MOST_LOSS))
    }

    fn estimate(&mut self, capacity: f64, reason: Reason) {
        let kept = self.others.map_or(0.0, |others| others.least_bps);
        self.capacity = Some(capacity.max(kept).max(LEAST_CAPACITY));
        self.reason = reason;
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
        let queue = match view.told {
            Some(told) => self.history.mean_told(now, told),
            None => view.queue,
        };
        if self.drain.is_none() && self.backlogged.is_some() && queue < view.noticed {
            let trip = Trip {
                rtt: view.base,
                queue,
                told_later: view.told.map(|told| {
                    // One beacon is enough where round trips are less than half of the time between
                    // two.
                    let beacons = if told::is_older(told.each, view.base) {
                        1
                    } else {
                        2
                    };
                    beacons * told.each + view.way_back
                }),
            };
            let recent = now.checked_sub(Duration::from_secs(1)).unwrap_or(now);
            let bunch = self
                .history
                .longest_gap(recent, view.steady.then_some(view.base));
            if !view.steady {
                self.probing.flatten();
            }
            self.probing.begin(now, capacity, most, trip, bunch);
        }
    }
}
