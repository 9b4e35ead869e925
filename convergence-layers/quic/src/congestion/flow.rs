//! What a connection's congestion control and its session share.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use quinn::PathStats;
use underpass_cla::{Activity, CodedFigures, LtpFigures, PathFigures};
use underpass_hybla::arithmetic::allocated_window;

use super::Algorithm;
use super::hybla::{Acknowledgement, Hybla};
use crate::pace::{bundle_bytes_per_second, cost_of_datagram};

/// Headers and tag of a packet, bytes. Together with those of UDP and IP they are as long as the
/// node counts for TCP: the rest of a packet is its payload.
const PACKET_BYTES: u64 = 24;
/// A shorter datagram carries only acknowledgements or control messages.
const LEAST_DATA_BYTES: u64 = 128;
/// After this time without bytes received, nothing follows them any more: QUIC acknowledges within
/// 25 ms. TCP's sessions have the same bound.
const STILL: Duration = Duration::from_millis(250);
/// After this long without the rest of a bundle, it is no longer waited for, as in TCP's sessions.
const STILL_RECEIVING: Duration = Duration::from_secs(2);
/// Times of arrivals are exact to this.
const LOOKED_EACH: Duration = Duration::from_millis(100);
/// While the link is blocked nothing leaves: QUIC forbids a window of 0.
const SHUT: u64 = 1;
/// A path with no more than this part (1/n) of the window in flight is nearly empty.
const NEARLY_EMPTY: u64 = 8;
/// The shortest time over which the delivery rate is measured.
const LEAST_RATE_TIME: Duration = Duration::from_millis(50);

/// Whether bundle bytes may go to QUIC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Gate {
    /// Not before something changes.
    Shut,
    /// At this many bundle bytes per second, or as the window allows.
    Open(Option<f64>),
}

/// What a session knows beside its flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    /// Bytes of bundles that QUIC has not taken yet.
    pub(crate) unsent_bytes: u64,
    /// Whether the rest of a bundle is due from the peer.
    pub(crate) receiving: bool,
    /// Frames with data that QUIC has received in all, including those after a gap.
    pub(crate) data_frames: u64,
}

#[derive(Debug)]
pub(crate) struct Flow {
    state: Mutex<State>,
    activity: OnceLock<Arc<Activity>>,
}

#[derive(Debug)]
struct State {
    algorithm: Algorithm,
    ipv6: bool,
    datagram_bytes: u64,
    rate_bps: Option<u64>,
    /// The window before the rate fell, and until when it counts: bytes sent at the old rate are
    /// still in flight, and must not stop sending at the new one.
    kept: Option<(u64, Instant)>,
    blocked: bool,
    /// The end of the last blockage.
    resumed: Option<Instant>,
    /// The bytes in flight then: most of them are lost, and must not stop the packets that detect
    /// this.
    surplus: u64,
    hybla: Hybla,
    srtt: Duration,
    min_rtt: Duration,
    in_flight: u64,
    sent: u64,
    delivered: u64,
    lost: u64,
    received: u64,
    packets: u64,
    acks: u64,
    heard: Option<Instant>,
    /// When the peer was asked for a sign that has not come.
    asked: Option<Instant>,
    /// Data frames at the last reading of the figures, and when that was.
    data_frames: u64,
    looked: Instant,
    /// By this time data after a gap have come.
    heard_by: Option<Instant>,
    moved: Instant,
    rate: DeliveryRate,
}

#[derive(Clone, Copy, Debug)]
struct DeliveryRate {
    since: Instant,
    delivered: u64,
    bps: u64,
}

impl Flow {
    pub(crate) fn new(algorithm: Algorithm, ipv6: bool, now: Instant) -> Arc<Flow> {
        Arc::new(Flow {
            state: Mutex::new(State {
                algorithm,
                ipv6,
                datagram_bytes: 1200,
                rate_bps: None,
                kept: None,
                blocked: false,
                resumed: None,
                surplus: 0,
                hybla: Hybla::new(now),
                srtt: Duration::ZERO,
                min_rtt: Duration::ZERO,
                in_flight: 0,
                sent: 0,
                delivered: 0,
                lost: 0,
                received: 0,
                packets: 0,
                acks: 0,
                heard: None,
                asked: None,
                data_frames: 0,
                looked: now,
                heard_by: None,
                moved: now,
                rate: DeliveryRate {
                    since: now,
                    delivered: 0,
                    bps: 0,
                },
            }),
            activity: OnceLock::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Something has come or gone.
    fn moved(&self, state: &mut State, now: Instant) {
        state.moved = now;
        if let Some(activity) = self.activity.get() {
            activity.moved();
        }
    }

    /// Counts what moves in `activity`, too.
    pub(crate) fn share(&self, activity: Arc<Activity>) {
        // A session stays on one hop.
        let _ = self.activity.set(activity);
    }

    /// The connection begins on a path, on which nothing is in flight.
    pub(super) fn begin_path(&self, datagram_bytes: u16) {
        let mut state = self.lock();
        state.datagram_bytes = datagram_bytes.into();
        state.in_flight = 0;
    }

    pub(super) fn set_datagram_bytes(&self, datagram_bytes: u16) {
        self.lock().datagram_bytes = datagram_bytes.into();
    }

    /// Datagrams of together `bytes` have left.
    pub(super) fn sent(&self, now: Instant, bytes: u64) {
        let mut state = self.lock();
        if bytes < LEAST_DATA_BYTES {
            state.acks += 1;
        } else {
            let packets = bytes.div_ceil(state.datagram_bytes);
            state.packets += packets;
            state.sent += payload(bytes, packets);
            state.in_flight += bytes;
        }
        self.moved(&mut state, now);
    }

    /// A datagram that left at `sent` has arrived.
    pub(super) fn acknowledged(
        &self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        srtt: Duration,
        min_rtt: Duration,
    ) {
        let mut state = self.lock();
        (state.srtt, state.min_rtt) = (srtt, min_rtt);
        state.heard = Some(now);
        state.asked = state.asked.filter(|asked| sent < *asked);
        if bytes >= LEAST_DATA_BYTES {
            state.delivered += payload(bytes, 1);
        }
        if state.resumed.is_none_or(|resumed| sent >= resumed) {
            state.surplus = 0;
        }
        let acknowledgement = Acknowledgement {
            now,
            sent,
            bytes,
            datagram_bytes: state.datagram_bytes,
            in_flight: state.in_flight,
            min_rtt,
        };
        state.hybla.acknowledged(&acknowledgement);
        self.moved(&mut state, now);
    }

    /// Some acknowledgements have come together; `in_flight` is what remains in flight.
    pub(super) fn settle(&self, now: Instant, in_flight: u64) {
        let mut state = self.lock();
        state.in_flight = in_flight;
        let time = now - state.rate.since;
        if time >= LEAST_RATE_TIME.max(state.srtt / 4) {
            let bits = 8 * (state.delivered - state.rate.delivered);
            state.rate = DeliveryRate {
                since: now,
                delivered: state.delivered,
                bps: (bits as f64 / time.as_secs_f64()) as u64,
            };
        }
    }

    /// Datagrams, the last of which left at `sent`, are lost.
    pub(super) fn lost(&self, now: Instant, sent: Instant, persistent: bool, bytes: u64) {
        let mut state = self.lock();
        state.in_flight = state.in_flight.saturating_sub(bytes);
        state.lost += payload(bytes, bytes.div_ceil(state.datagram_bytes));
        // Losses in a blockage are no sign of congestion.
        if state.resumed.is_none_or(|resumed| sent >= resumed) {
            state.hybla.lost(now, sent, persistent);
        }
        self.moved(&mut state, now);
    }

    /// Bundle bytes or control messages have come.
    pub(crate) fn received(&self, now: Instant, bytes: u64) {
        let mut state = self.lock();
        state.received += bytes;
        (state.heard, state.asked) = (Some(now), None);
        self.moved(&mut state, now);
    }

    /// The peer is asked for a sign: it owes an acknowledgement.
    pub(crate) fn ask(&self, now: Instant) {
        self.lock().asked.get_or_insert(now);
    }

    /// Sets the rate, bit/s of IP. Returns whether it has changed.
    pub(crate) fn set_rate(&self, now: Instant, ip_bps: Option<u64>) -> bool {
        let mut state = self.lock();
        if state.rate_bps == ip_bps {
            return false;
        }
        let before = state.open_window();
        state.rate_bps = ip_bps;
        if state.open_window() < before {
            state.kept = Some((before, now + state.srtt));
        }
        true
    }

    /// The link is known to be blocked, or free again. Returns whether that has changed.
    pub(crate) fn set_blocked(&self, now: Instant, blocked: bool) -> bool {
        let mut state = self.lock();
        if state.blocked == blocked {
            return false;
        }
        state.blocked = blocked;
        if !blocked {
            state.resumed = Some(now);
            state.surplus = state.in_flight;
        }
        true
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.lock().blocked
    }

    /// When the peer was heard last, if it ever was.
    pub(crate) fn heard(&self) -> Option<Instant> {
        self.lock().heard
    }

    /// Whether the peer was heard since the last blockage has ended.
    pub(crate) fn is_heard_again(&self) -> bool {
        let state = self.lock();
        state.heard >= state.resumed
    }

    /// Whether bundle bytes may be given to QUIC, and how fast.
    pub(crate) fn gate(&self) -> Gate {
        let state = self.lock();
        if state.blocked {
            return Gate::Shut;
        }
        match state.rate_bps {
            Some(0) => Gate::Shut,
            None => Gate::Open(None),
            Some(bps) => {
                let datagram = u16::try_from(state.datagram_bytes).unwrap_or(u16::MAX);
                Gate::Open(Some(bundle_bytes_per_second(bps, datagram, state.ipv6)))
            }
        }
    }

    /// The bundle bytes that take the same time as a datagram frame of `bytes`.
    pub(crate) fn cost_of_datagram(&self, bytes: usize) -> u64 {
        let state = self.lock();
        let datagram = u16::try_from(state.datagram_bytes).unwrap_or(u16::MAX);
        cost_of_datagram(bytes as u64, datagram, state.ipv6)
    }

    /// Bytes that may be in flight, of UDP payload.
    pub(crate) fn window(&self, now: Instant) -> u64 {
        let state = self.lock();
        if state.blocked {
            return SHUT;
        }
        let window = state.open_window();
        let kept = state.kept.filter(|(_, until)| now < *until);
        window.max(kept.map_or(0, |(window, _)| window)) + state.surplus
    }

    /// Whether the link is open and has room for most of the window: a sender that waits then does
    /// not wait for the path.
    pub(crate) fn is_nearly_empty(&self, now: Instant) -> bool {
        let window = self.window(now);
        let state = self.lock();
        !state.blocked && state.rate_bps != Some(0) && state.in_flight <= window / NEARLY_EMPTY
    }

    /// Payload bytes lost in all.
    pub(crate) fn lost_bytes(&self) -> u64 {
        self.lock().lost
    }

    /// The figures, with QUIC's own figures of the path.
    pub(crate) fn figures(&self, now: Instant, path: &PathStats, known: Known) -> PathFigures {
        let window = self.window(now);
        let mut state = self.lock();
        state.look(now, known.data_frames);
        let heard = state.heard.max(state.heard_by.filter(|_| known.receiving));
        let unsent_bytes = known.unsent_bytes;
        let lasting = match known.receiving {
            true => STILL_RECEIVING,
            false => STILL,
        };
        let at_rest = now.saturating_duration_since(state.moved) >= lasting;
        // What asks for a sign is too short to be counted when it leaves.
        let asking = u64::from(state.asked.is_some());
        let is_still = state.in_flight + asking == 0 && at_rest;
        PathFigures {
            rtt: path.rtt,
            min_rtt: path.min_rtt,
            delivery_rate_bps: state.rate.bps,
            cwnd_bytes: window,
            in_flight_bytes: state.in_flight + asking + unsent_bytes,
            unsent_bytes,
            sent_bytes: state.sent,
            retransmitted_bytes: state.lost,
            delivered_bytes: state.delivered,
            on_their_way_bytes: state.in_flight,
            // QUIC retransmits lost bytes at once.
            lost_bytes: 0,
            segment_bytes: u32::try_from(state.datagram_bytes - PACKET_BYTES).unwrap_or(u32::MAX),
            segments_sent: state.packets + state.acks,
            data_segments_sent: state.packets,
            received_bytes: state.received,
            out_of_order_segments: 0,
            // The session counts them.
            keepalives_sent: 0,
            keepalives_received: 0,
            coded: CodedFigures::default(),
            ltp: LtpFigures::default(),
            receiving: known.receiving,
            heard_ago: heard.map(|at| now.saturating_duration_since(at)),
            subflows: None,
            still: is_still && unsent_bytes == 0,
        }
    }
}

impl State {
    /// Notes how many data frames have come. Those after a gap are read only once the gap is
    /// filled, a round trip later, and yet show that the peer is heard. Their time is known only
    /// from one reading to the next. It counts if nothing else has come since then, so that what
    /// is read at once keeps its exact time.
    fn look(&mut self, now: Instant, data_frames: u64) {
        let lately = now.checked_sub(LOOKED_EACH).unwrap_or(now);
        let since = self.looked.max(lately);
        if data_frames != self.data_frames && self.heard.is_none_or(|heard| heard < since) {
            self.heard_by = Some(now);
        }
        (self.data_frames, self.looked) = (data_frames, now);
    }

    /// The window of a link that is not blocked.
    fn open_window(&self) -> u64 {
        let least = 2 * self.datagram_bytes;
        match (self.algorithm, self.rate_bps) {
            (Algorithm::Allocated, Some(bps)) => self.allocated(bps).max(least),
            _ => self.hybla.window(self.datagram_bytes).max(least),
        }
    }

    fn allocated(&self, ip_bps: u64) -> u64 {
        let headers = if self.ipv6 { 48 } else { 28 };
        let datagram = self.datagram_bytes;
        let rate = ip_bps / 8 * datagram / (datagram + headers);
        let us = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        let bytes = u32::try_from(datagram).unwrap_or(u32::MAX);
        let segments = allocated_window(rate, us(self.srtt), us(self.min_rtt), bytes);
        u64::from(segments) * datagram
    }
}

fn payload(bytes: u64, packets: u64) -> u64 {
    bytes.saturating_sub(packets * PACKET_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(600);

    fn flow(now: Instant) -> Arc<Flow> {
        let flow = Flow::new(Algorithm::Allocated, false, now);
        flow.begin_path(1452);
        flow
    }

    /// Sends and has acknowledged one datagram.
    fn one_round(flow: &Flow, now: Instant) {
        flow.sent(now, 1452);
        flow.acknowledged(now + RTT, now, 1452, RTT, RTT);
        flow.settle(now + RTT, 0);
    }

    #[test]
    fn an_allocated_window_is_the_rates_and_losses_do_not_shrink_it() {
        let now = Instant::now();
        let flow = flow(now);
        flow.set_rate(now, Some(80_000_000));
        one_round(&flow, now);
        let window = flow.window(now);
        // 1.25 times 10 MB/s in 600 ms, and some slack.
        assert!((7_300_000..7_700_000).contains(&window), "{window}");
        flow.sent(now, window);
        flow.lost(now + RTT, now, true, window);
        assert_eq!(flow.window(now), window);
    }

    #[test]
    fn a_window_outlives_a_fall_of_the_rate_by_a_round_trip() {
        let now = Instant::now();
        let flow = flow(now);
        flow.set_rate(now, Some(80_000_000));
        one_round(&flow, now);
        let window = flow.window(now);
        assert!(flow.set_rate(now, Some(8_000_000)) && !flow.set_rate(now, Some(8_000_000)));
        assert_eq!(flow.window(now + RTT / 2), window);
        assert!(flow.window(now + RTT) < window / 8);
    }

    #[test]
    fn a_blockage_shuts_the_window_and_its_end_opens_it_beyond_what_was_lost() {
        let now = Instant::now();
        let flow = flow(now);
        flow.set_rate(now, Some(8_000_000));
        one_round(&flow, now);
        let window = flow.window(now);
        flow.sent(now, window);
        flow.set_blocked(now, true);
        assert_eq!(flow.window(now), SHUT);
        assert_eq!(flow.gate(), Gate::Shut);
        let later = now + Duration::from_secs(30);
        assert!(flow.set_blocked(later, false) && !flow.is_heard_again());
        assert_eq!(flow.window(later), 2 * window, "all in flight may be lost");
        one_round(&flow, later);
        assert!(flow.is_heard_again());
        assert_eq!(flow.window(later + RTT), window);
    }

    #[test]
    fn a_rate_of_nothing_shuts_and_none_lifts_the_limit() {
        let now = Instant::now();
        let flow = flow(now);
        assert_eq!(flow.gate(), Gate::Open(None));
        flow.set_rate(now, Some(0));
        assert_eq!(flow.gate(), Gate::Shut);
        flow.set_rate(now, Some(8_000_000));
        assert!(matches!(flow.gate(), Gate::Open(Some(rate)) if rate < 1e6));
    }

    #[test]
    fn a_path_is_nearly_empty_while_it_is_open_and_little_is_in_flight() {
        let now = Instant::now();
        let flow = flow(now);
        flow.set_rate(now, Some(80_000_000));
        one_round(&flow, now);
        let window = flow.window(now);
        assert!(flow.is_nearly_empty(now));
        flow.sent(now, window / 16);
        assert!(flow.is_nearly_empty(now));
        flow.sent(now, window / 8);
        assert!(!flow.is_nearly_empty(now));
        flow.settle(now, 0);
        flow.set_blocked(now, true);
        assert!(!flow.is_nearly_empty(now));
        flow.set_blocked(now, false);
        flow.set_rate(now, Some(0));
        assert!(!flow.is_nearly_empty(now));
    }

    #[test]
    fn figures_are_still_only_when_nothing_moves() {
        let now = Instant::now();
        let flow = flow(now);
        let path = PathStats::default();
        let later = now + Duration::from_secs(1);
        assert!(flow.figures(later, &path, Known::default()).still);
        let unsent = Known {
            unsent_bytes: 1,
            ..Known::default()
        };
        assert!(!flow.figures(later, &path, unsent).still);
        flow.sent(later, 60);
        assert!(
            !flow.figures(later, &path, Known::default()).still,
            "an acknowledgement"
        );
        one_round(&flow, later);
        let figures = flow.figures(later + RTT, &path, Known::default());
        assert_eq!((figures.segments_sent, figures.data_segments_sent), (2, 1));
        assert_eq!((figures.sent_bytes, figures.delivered_bytes), (1428, 1428));
        assert!(flow.figures(later + 2 * RTT, &path, Known::default()).still);
    }

    #[test]
    fn the_rest_of_a_bundle_is_waited_for_and_not_for_ever() {
        let begin = Instant::now();
        let (flow, path) = (flow(begin), PathStats::default());
        let receiving = Known {
            receiving: true,
            ..Known::default()
        };
        let figures = flow.figures(begin + STILL, &path, receiving);
        assert!(figures.receiving && !figures.still);
        let figures = flow.figures(begin + STILL_RECEIVING, &path, receiving);
        assert!(figures.still);
    }

    #[test]
    fn what_comes_after_a_gap_in_a_bundle_shows_that_the_peer_is_heard() {
        let begin = Instant::now();
        let (flow, path) = (flow(begin), PathStats::default());
        let ms = Duration::from_millis(1);
        let heard_ago = |at: Duration, data_frames: u64| {
            let known = Known {
                receiving: true,
                data_frames,
                ..Known::default()
            };
            flow.figures(begin + at, &path, known).heard_ago
        };
        flow.received(begin + 50 * ms, 1_000);
        // What is read at once keeps its exact time.
        assert_eq!(heard_ago(100 * ms, 1), Some(50 * ms));
        // A packet is lost, and those behind it come.
        assert_eq!(heard_ago(200 * ms, 90), Some(Duration::ZERO));
        assert_eq!(heard_ago(300 * ms, 90), Some(100 * ms));
        flow.received(begin + 310 * ms, 90_000);
        assert_eq!(heard_ago(390 * ms, 91), Some(80 * ms));
    }

    #[test]
    fn a_sign_that_was_asked_for_is_owed_until_what_asked_is_acknowledged() {
        let before = Instant::now();
        let (flow, path) = (flow(before), PathStats::default());
        let asked = before + RTT;
        flow.ask(asked);
        let figures = |at: Instant| flow.figures(at, &path, Known::default());
        flow.acknowledged(asked, before, 60, RTT, RTT);
        let later = figures(asked + 2 * RTT);
        assert!(later.is_unanswered() && !later.still);
        flow.acknowledged(asked + RTT, asked, 60, RTT, RTT);
        assert!(!figures(asked + 2 * RTT).is_unanswered());
    }
}
