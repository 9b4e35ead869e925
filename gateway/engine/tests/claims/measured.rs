//! A node sends at the rate that its link was measured to carry.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use underpass_capacity::FirstFlight;
use underpass_cla::SessionId;
use underpass_engine::{Action, EngineConfig, HopId, MeasuredLink, PlanLine, SILENCE, Sign};
use underpass_plans::Direction;

use crate::bench::{BULK, CONTROL, Node, URGENT, config, pair, pair_by_two};
use crate::paths::{FAR, NEAR, drain, two_hops};

const HOP: HopId = HopId(0);

pub const FLIGHT: FirstFlight = FirstFlight {
    number: 0,
    bits: 768_000,
    bps: 19_200_000,
    then_bps: 320_000,
};

fn measured(rate_bps: Option<u64>) -> MeasuredLink {
    MeasuredLink {
        rate_bps,
        capacity_bps: rate_bps,
        ..MeasuredLink::default()
    }
}

#[test]
fn the_least_of_what_is_allowed_and_what_the_link_carries_is_sent() {
    let (mut terminal, _hub) = pair();
    let key = terminal.open(1, BULK);
    terminal.engine.set_rate(terminal.now, HOP, Some(8_000_000));
    terminal.write(key, 4_000_000);
    terminal.bytes_in(Duration::from_millis(500));
    let now = terminal.now;
    let rate = |node: &Node| node.engine.hop(HOP).and_then(|hop| hop.send_rate_bps);
    terminal
        .engine
        .measured(now, HOP, measured(Some(1_000_000)), 0);
    assert_eq!(rate(&terminal), Some(1_000_000));
    let bytes = terminal.bytes_in(Duration::from_secs(4));
    assert!((400_000..520_000).contains(&bytes), "{bytes}");
    terminal
        .engine
        .measured(terminal.now, HOP, measured(Some(20_000_000)), 0);
    assert_eq!(rate(&terminal), Some(8_000_000));
    terminal
        .engine
        .measured(terminal.now, HOP, measured(None), 0);
    assert_eq!(rate(&terminal), Some(8_000_000));
}

#[test]
fn what_a_modem_says_is_told_to_who_measures_and_to_who_reports() {
    let (mut terminal, _hub) = pair();
    let told = |node: &Node| {
        let measures = node.engine.sending(HOP).and_then(|of| of.efficiency);
        let reports = node.engine.hop(HOP).and_then(|hop| hop.efficiency);
        [measures, reports]
    };
    assert_eq!(told(&terminal), [None, None]);
    terminal.engine.set_efficiency(HOP, Some(0.25));
    assert_eq!(told(&terminal), [Some(0.25), Some(0.25)]);
    terminal.engine.set_efficiency(HOP, None);
    assert_eq!(told(&terminal), [None, None]);
}

#[test]
fn a_first_flight_leaves_at_once_and_little_behind_it_until_it_is_answered() {
    let (mut terminal, _hub) = pair();
    let key = terminal.open(1, BULK);
    let now = terminal.now;
    terminal.engine.set_rate(now, HOP, None);
    let unknown = MeasuredLink {
        first: Some(FLIGHT),
        ..MeasuredLink::default()
    };
    terminal.engine.measured(now, HOP, unknown, 0);
    let rate = |node: &Node| node.engine.hop(HOP).and_then(|hop| hop.send_rate_bps);
    assert_eq!(rate(&terminal), None);
    terminal.write(key, 1_000_000);
    let at_once = terminal.bytes_in(Duration::from_millis(250));
    assert!((85_000..120_000).contains(&at_once), "{at_once}");
    // The same measurement again does not count as a second one.
    terminal.engine.measured(terminal.now, HOP, unknown, 0);
    let then = terminal.bytes_in(Duration::from_secs(1));
    assert!((30_000..60_000).contains(&then), "{then}");
    let now = terminal.now;
    terminal
        .engine
        .measured(now, HOP, measured(Some(2_000_000)), 0);
    let answered = terminal.bytes_in(Duration::from_secs(1));
    assert!((220_000..300_000).contains(&answered), "{answered}");
    // A configured rate bounds what is sent without any measurement.
    terminal.engine.measured(terminal.now, HOP, unknown, 0);
    terminal.engine.set_rate(terminal.now, HOP, Some(1_000_000));
    let told = terminal.bytes_in(Duration::from_secs(2));
    assert!((200_000..290_000).contains(&told), "{told}");
}

#[test]
fn each_first_flight_leaves_at_once() {
    let (mut terminal, _hub) = pair();
    let key = terminal.open(1, BULK);
    let now = terminal.now;
    terminal.engine.set_rate(now, HOP, None);
    for number in 0..2 {
        let unknown = MeasuredLink {
            first: Some(FirstFlight { number, ..FLIGHT }),
            ..MeasuredLink::default()
        };
        terminal.engine.measured(terminal.now, HOP, unknown, 0);
        terminal.write(key, 200_000);
        let at_once = terminal.bytes_in(Duration::from_millis(250));
        assert!((85_000..120_000).contains(&at_once), "{at_once}");
    }
}

/// A slightly shorter round trip makes the flight slightly shorter.
#[test]
fn a_first_flight_of_another_length_is_no_second_one() {
    let (mut terminal, _hub) = pair();
    let key = terminal.open(1, BULK);
    let now = terminal.now;
    terminal.engine.set_rate(now, HOP, None);
    let of_bits = |bits: u64| MeasuredLink {
        first: Some(FirstFlight { bits, ..FLIGHT }),
        ..MeasuredLink::default()
    };
    let longer = of_bits(FLIGHT.bits);
    terminal.engine.measured(now, HOP, longer, 0);
    terminal.write(key, 1_000_000);
    let at_once = terminal.bytes_in(Duration::from_millis(250));
    assert!((85_000..120_000).contains(&at_once), "{at_once}");
    let shorter = of_bits(FLIGHT.bits - 24_000);
    terminal.engine.measured(terminal.now, HOP, shorter, 0);
    let then = terminal.bytes_in(Duration::from_secs(1));
    assert!((30_000..60_000).contains(&then), "{then}");
}

/// The near hop's rate is not configured, and its first flight is not acknowledged yet.
#[test]
fn what_waits_behind_the_first_flight_of_a_near_hop_goes_by_the_far_one() {
    let untold = |mut config: EngineConfig| {
        for hop in &mut config.hops {
            (hop.send_rate_bps, hop.receive_rate_bps) = (None, None);
        }
        config
    };
    let (mut terminal, _hub) = pair_by_two(untold(two_hops(10, 1)), untold(two_hops(1, 10)));
    let near = MeasuredLink {
        first: Some(FLIGHT),
        ..measured(None)
    };
    let now = terminal.now;
    terminal.engine.measured(now, NEAR, near, 0);
    terminal
        .engine
        .measured(now, FAR, measured(Some(20_000_000)), 0);
    terminal.send(1, BULK, 1_000_000);
    let mut sent = [0, 0];
    for (session, transfer) in drain(&mut terminal, Duration::from_millis(300)) {
        sent[usize::from(session.0 >= 200)] += transfer.len();
    }
    // 96 kB and 320 kbit/s, and 20 Mbit/s.
    assert!((80_000..140_000).contains(&sent[0]), "{sent:?}");
    assert!(sent[1] > 300_000, "{sent:?}");
}

#[test]
fn a_beam_sends_to_all_no_more_than_it_was_measured_to_carry() {
    let (_terminal, mut hub) = pair();
    hub.engine.set_beam_rate(hub.now, Some(8_000_000));
    hub.send(10, BULK, 4_000_000);
    let rates = |node: &Node| (node.engine.beam_rate_bps(), node.engine.beam_allowed_bps());
    hub.bytes_in(Duration::from_millis(500));
    hub.engine.measured_beam(hub.now, Some(1_000_000));
    assert_eq!(rates(&hub), (Some(1_000_000), Some(8_000_000)));
    let bytes = hub.bytes_in(Duration::from_secs(4));
    assert!((400_000..560_000).contains(&bytes), "{bytes}");
    // The bundles exceed the rate by half a second.
    hub.engine.drain_beam(hub.now, 62_500);
    assert_eq!(hub.bytes_in(Duration::from_millis(400)), 0);
    hub.engine.measured_beam(hub.now, Some(20_000_000));
    assert_eq!(rates(&hub), (Some(8_000_000), Some(8_000_000)));
    hub.engine.set_beam_rate(hub.now, None);
    assert_eq!(rates(&hub), (None, None));
}

/// Without a rate of the beam nothing measures it: a queue that several terminals see would be
/// nobody's.
#[test]
fn terminals_share_a_beam_only_while_a_rate_of_it_is_known() {
    let lines = |link: Direction, beam_rate_bps: Option<u64>| {
        let mut config = config(1, &[10, 11]);
        config.beam_rate_bps = beam_rate_bps;
        for hop in &mut config.hops {
            let terminal = hop.neighbour;
            hop.line = Some(PlanLine { link, terminal });
        }
        Node::new(Instant::now(), config)
    };
    let share = |node: &Node| {
        let sending = [0, 1].map(|hop| node.engine.sending(HopId(hop)));
        sending.map(|sending| sending.is_some_and(|sending| sending.shares))
    };
    let mut hub = lines(Direction::Forward, None);
    assert_eq!(share(&hub), [false, false]);
    hub.engine.set_beam_rate(hub.now, Some(8_000_000));
    assert_eq!(share(&hub), [true, true]);
    hub.engine.set_beam_rate(hub.now, None);
    assert_eq!(share(&hub), [false, false]);
    hub.engine.reset_beam_rate(hub.now);
    assert_eq!(share(&hub), [false, false]);
    assert_eq!(
        share(&lines(Direction::Forward, Some(8_000_000))),
        [true, true]
    );
    // Several return links of one node are different links.
    assert_eq!(
        share(&lines(Direction::Return, Some(8_000_000))),
        [false, false]
    );
}

#[test]
fn a_guessed_round_trip_gives_way_to_a_measured_one() {
    const GUESSED: Duration = Duration::from_millis(600);
    let mut config = config(10, &[1]);
    let mut told = Node::new(Instant::now(), config.clone());
    config.hops[0].rtt_is_guess = true;
    let mut node = Node::new(told.now, config);
    let guessed = |node: &Node| node.engine.sending(HOP).and_then(|now| now.guessed_rtt);
    assert_eq!(guessed(&told), None);
    assert_eq!(guessed(&node), Some(GUESSED));
    for measured in [1200, 700, 1200] {
        let measured = Duration::from_millis(measured);
        node.engine.correct_rtt(node.now, HOP, measured);
        assert_eq!(guessed(&node), Some(measured));
        told.engine.correct_rtt(told.now, HOP, measured);
    }
    for (node, patience) in [
        (&mut told, GUESSED + SILENCE),
        (&mut node, 2 * GUESSED + SILENCE),
    ] {
        let is_blocked = |node: &Node| node.engine.hop(HOP).is_some_and(|hop| hop.blocked);
        node.engine.heard(node.now, HOP, node.now, Sign::Beacon);
        node.pass(node.now + patience - Duration::from_millis(1));
        assert!(!is_blocked(node));
        node.pass(node.now + Duration::from_millis(1));
        assert!(is_blocked(node));
    }
}

#[test]
fn what_was_sent_too_fast_is_made_up_for_before_more_is_sent() {
    let (mut terminal, _hub) = pair();
    let key = terminal.open(1, BULK);
    terminal.engine.set_rate(terminal.now, HOP, Some(8_000_000));
    terminal.write(key, 4_000_000);
    terminal.bytes_in(Duration::from_millis(500));
    let link = measured(Some(1_000_000));
    // Half a second of the link.
    terminal.engine.measured(terminal.now, HOP, link, 62_500);
    assert_eq!(terminal.bytes_in(Duration::from_millis(400)), 0);
    let after = terminal.bytes_in(Duration::from_secs(2));
    assert!((170_000..270_000).contains(&after), "{after}");
}

#[test]
fn what_bulk_has_sent_too_fast_holds_up_no_class_above() {
    let (mut terminal, _hub) = pair();
    let bulk = terminal.open(1, BULK);
    terminal.engine.set_rate(terminal.now, HOP, Some(8_000_000));
    terminal.write(bulk, 4_000_000);
    terminal.bytes_in(Duration::from_millis(500));
    let (now, link) = (terminal.now, measured(Some(1_000_000)));
    // A second of the link.
    terminal.engine.measured(now, HOP, link, 125_000);
    let sessions = terminal.turns_behind(URGENT, Duration::from_millis(75));
    assert_eq!(sessions, [SessionId(100 + u64::from(URGENT.0))]);
    assert_eq!(terminal.bytes_in(Duration::from_millis(900)), 0);
    assert!(terminal.bytes_in(Duration::from_secs(1)) > 90_000);
}

/// The rates that a node's sessions are told while this many bytes are to drain.
fn paced(node: &mut Node, drain_bytes: u64) -> BTreeMap<u64, Option<u64>> {
    let link = measured(Some(1_000_000));
    node.offers();
    node.engine.measured(node.now, HOP, link, drain_bytes);
    let actions = std::iter::from_fn(|| node.engine.poll_action());
    let told = actions.filter_map(|action| match action {
        Action::SetRate { session, ip_bps } => Some((session.0, ip_bps)),
        _ => None,
    });
    told.collect()
}

#[test]
fn sessions_of_classes_above_keep_their_rate_while_a_queue_is_drained() {
    let (mut terminal, _hub) = pair();
    let bulk = terminal.open(1, BULK);
    terminal.engine.set_rate(terminal.now, HOP, Some(8_000_000));
    terminal.write(bulk, 4_000_000);
    terminal.bytes_in(Duration::from_millis(500));
    let (full, quarter) = (Some(1_000_000), Some(250_000));
    let told = |rates: [Option<u64>; 3]| BTreeMap::from_iter((100_u64..).zip(rates));
    assert_eq!(paced(&mut terminal, 125_000), told([full, full, quarter]));
    assert_eq!(paced(&mut terminal, 0), told([full, full, full]));
}

#[test]
fn a_session_that_carries_all_is_slowed_while_a_queue_is_drained() {
    let mut terminal = Node::new(Instant::now(), config(10, &[1]));
    terminal.session(0, 7, Some(CONTROL), 1 << 20);
    let bulk = terminal.open(1, BULK);
    terminal.engine.set_rate(terminal.now, HOP, Some(8_000_000));
    terminal.write(bulk, 60_000);
    terminal.bytes_in(Duration::from_millis(500));
    let quarter = BTreeMap::from([(7, Some(250_000))]);
    assert_eq!(paced(&mut terminal, 125_000), quarter);
}
