//! Several hops to one neighbour: which bundles each takes, and what happens to those of
//! a blocked hop.

use std::time::Duration;

use underpass_cla::Class;
use underpass_engine::{
    EngineConfig, HopId, LinkChange, MeasuredLink, PathUse, PlannedBlockage, Policy, SILENCE, Sign,
    Source,
};
use underpass_streams::Event;

use crate::bench::{
    BULK, CONTROL, MRU, Node, Offered, URGENT, config, exchange, live, pair_by_two, pair_of,
};
use crate::lines::{Line, Lines};

/// The terrestrial hop, and the satellite hop.
pub const NEAR: HopId = HopId(0);
pub const FAR: HopId = HopId(1);
pub const MS: Duration = Duration::from_millis(1);

pub fn two_hops(node: u64, neighbour: u64) -> EngineConfig {
    let mut both = config(node, &[neighbour, neighbour]);
    for (hop, (rate, rtt)) in both.hops.iter_mut().zip([(10, 30), (40, 530)]) {
        hop.send_rate_bps = Some(rate * 1_000_000);
        hop.receive_rate_bps = Some(rate * 1_000_000);
        hop.rtt = Duration::from_millis(rtt);
    }
    both
}

/// A terminal, 10, and a hub, 1, with both hops up.
pub fn two_paths(policies: &[(Class, PathUse, &[&str])]) -> (Node, Node) {
    let with = |mut config: EngineConfig| {
        for (class, uses, paths) in policies {
            let paths = paths.iter().map(|path| (*path).to_owned()).collect();
            config.policies.insert(
                *class,
                Policy {
                    uses: *uses,
                    paths,
                    ..Policy::default()
                },
            );
        }
        config
    };
    pair_by_two(with(two_hops(10, 1)), with(two_hops(1, 10)))
}

/// The number of these offers on each hop.
pub fn by_hop(offers: &[Offered]) -> [usize; 2] {
    let far = offers.iter().filter(|(session, _)| session.0 >= 200);
    let far = far.count();
    [offers.len() - far, far]
}

fn hear(node: &mut Node) {
    for hop in [NEAR, FAR] {
        node.engine.heard(node.now, hop, node.now, Sign::Beacon);
    }
}

/// Takes offers for some time, as a link that only sends.
pub fn drain(node: &mut Node, time: Duration) -> Vec<Offered> {
    let (end, mut all) = (node.now + time, Vec::new());
    while node.now < end {
        for offered in node.offers() {
            node.ready(offered.0);
            all.push(offered);
        }
        node.pass(node.now + 5 * MS);
    }
    all
}

#[test]
fn what_is_short_goes_by_the_hop_of_least_delay_and_much_by_both() {
    let (mut terminal, _) = two_paths(&[]);
    terminal.send(1, URGENT, 5_000);
    assert_eq!(by_hop(&drain(&mut terminal, 50 * MS)), [1, 0]);

    let bulk = terminal.open(1, BULK);
    let mut sent = [0, 0];
    for _ in 0..40 {
        let room = terminal.engine.send_capacity(bulk).min(200_000);
        terminal.write(bulk, room);
        let offers = drain(&mut terminal, 25 * MS);
        for (session, transfer) in offers {
            sent[usize::from(session.0 >= 200)] += transfer.len();
        }
    }
    // A second at 10 and at 40 Mbit/s.
    assert!(sent[0] > 1_000_000 && sent[0] < 1_400_000, "{sent:?}");
    assert!(sent[1] > 4_000_000 && sent[1] < 5_600_000, "{sent:?}");
}

#[test]
fn a_far_hop_takes_what_lies_behind_all_that_the_near_one_delivers_until_then() {
    let (mut terminal, _) = two_paths(&[]);
    let key = terminal.open(1, BULK);
    let room = terminal.engine.send_capacity(key);
    terminal.write(key, room.min(1_500_000));
    assert_eq!(by_hop(&terminal.offers()), [1, 1]);
    let stored = terminal.engine.stored_bundles(terminal.now, 100);
    let (sent, waiting): (Vec<_>, Vec<_>) = stored.iter().partition(|one| one.in_transmission);
    let far = sent.iter().map(|one| one.id).max().expect("two were sent");
    assert!(waiting.iter().all(|one| one.id < far), "{waiting:?}");
    // One bundle of 75 kB, and 250 ms at 10 Mbit/s in such bundles.
    let ahead: u64 = waiting.iter().map(|one| one.bytes).sum();
    assert!((300_000..550_000).contains(&ahead), "{ahead}");
}

/// Neither hop's round trip is known, so the same one was assumed for both.
#[test]
fn enough_waits_for_a_far_hop_that_was_only_measured_to_be_far() {
    let untold = |mut config: EngineConfig| {
        for hop in &mut config.hops {
            (hop.send_rate_bps, hop.receive_rate_bps) = (None, None);
            (hop.rtt, hop.rtt_is_guess) = (600 * MS, true);
        }
        config
    };
    let (mut terminal, _hub) =
        pair_by_two(untold(config(10, &[1, 1])), untold(config(1, &[10, 10])));
    for (hop, mbps, rtt) in [(NEAR, 40, 70 * MS), (FAR, 20, 640 * MS)] {
        let link = MeasuredLink {
            rate_bps: Some(mbps * 1_000_000),
            capacity_bps: Some(mbps * 1_000_000),
            base_rtt: Some(rtt),
            ..MeasuredLink::default()
        };
        terminal.engine.measured(terminal.now, hop, link, 0);
    }
    let key = terminal.open(1, BULK);
    let mut sent = [0, 0];
    for _ in 0..40 {
        let room = terminal.engine.send_capacity(key);
        terminal.write(key, room);
        for (session, transfer) in drain(&mut terminal, 25 * MS) {
            sent[usize::from(session.0 >= 200)] += transfer.len();
        }
    }
    assert!(sent[0] > 4_000_000 && sent[0] < 5_600_000, "{sent:?}");
    assert!(sent[1] > 2_000_000 && sent[1] < 2_800_000, "{sent:?}");
}

#[test]
fn signalling_goes_by_the_hop_of_least_delay_and_by_another_when_that_is_blocked() {
    let (mut terminal, mut hub) = two_paths(&[]);
    terminal.send(1, URGENT, 100);
    let offered = drain(&mut terminal, 50 * MS);
    hub.pass(terminal.now);
    for offered in offered {
        let _ = hub.receive(offered.0, offered.1.chunks.concat().into());
    }
    let signal = |hub: &mut Node| {
        let offers = drain(hub, 150 * MS).into_iter();
        let of_control = offers.filter(|(session, _)| session.0 % 100 == u64::from(CONTROL.0));
        of_control.collect::<Vec<_>>()
    };
    assert_eq!(by_hop(&signal(&mut hub)), [1, 0]);
    // Bundles that were offered and never acknowledged go by the other hop.
    hub.engine.block(hub.now, NEAR, true);
    assert_eq!(by_hop(&signal(&mut hub)), [0, 1]);
}

#[test]
fn what_a_blocked_hop_has_in_flight_goes_by_the_other_at_once() {
    let (mut terminal, mut hub) = two_paths(&[]);
    terminal.send(1, BULK, 5_000);
    let lost = terminal.offers();
    assert_eq!(by_hop(&lost), [1, 0]);
    terminal.engine.block(terminal.now, NEAR, true);
    let again = terminal.offers();
    assert_eq!(by_hop(&again), [0, 1]);
    assert_eq!(terminal.aborted, [lost[0].0]);
    terminal.put_back(again);
    hub.pass(terminal.now);
    exchange(&mut terminal, &mut hub);
    assert!(hub.has(|event| matches!(event, Event::Readable(_))));
}

#[test]
fn silence_tells_sooner_where_another_hop_can_carry_what_is_in_flight() {
    let (mut terminal, _) = two_paths(&[]);
    hear(&mut terminal);
    let heard = terminal.now;
    // Nothing is in flight: silence of an idle link says less.
    terminal.pass(heard + 300 * MS);
    assert_eq!(terminal.changes, []);
    hear(&mut terminal);
    terminal.send(1, BULK, 5_000);
    assert_eq!(by_hop(&terminal.offers()), [1, 0]);
    let sent = terminal.now;
    terminal.pass(sent + 229 * MS);
    assert_eq!(terminal.changes, []);
    terminal.pass(sent + 231 * MS);
    assert_eq!(by_hop(&terminal.offers()), [0, 1]);
    assert_eq!(terminal.changes, [LinkChange::Blocked(Source::Probing)]);
    // There is no third hop, so the last one gets all its time.
    terminal.pass(sent + Duration::from_millis(530) + SILENCE - MS);
    assert_eq!(terminal.changes.len(), 1);
}

#[test]
fn silence_tells_no_sooner_where_the_other_hop_only_receives() {
    let (mut terminal, _) = two_paths(&[]);
    let mut config = two_hops(10, 1);
    config.hops[1].sends = false;
    let now = terminal.now;
    let taken = terminal.engine.reconfigure(now, config);
    taken.expect("it is valid");
    hear(&mut terminal);
    terminal.send(1, BULK, 5_000);
    assert_eq!(by_hop(&terminal.offers()), [1, 0]);
    let patient = 30 * MS + SILENCE;
    terminal.pass(now + patient - MS);
    terminal.offers();
    assert_eq!(terminal.changes, []);
    terminal.pass(now + patient + MS);
    terminal.offers();
    assert_eq!(terminal.changes, [LinkChange::Blocked(Source::Probing)]);
}

#[test]
fn bundles_move_before_a_blockage_that_is_known() {
    let (mut terminal, _) = two_paths(&[]);
    hear(&mut terminal);
    terminal.expect_blockage(NEAR, 100, 30_000);
    terminal.send(1, BULK, 5_000);
    assert_eq!(by_hop(&drain(&mut terminal, 60 * MS)), [0, 1]);
}

#[test]
fn a_class_that_is_pinned_waits_for_its_hop() {
    let (mut terminal, mut hub) = two_paths(&[(BULK, PathUse::Pinned, &["hop1"])]);
    terminal.engine.block(terminal.now, FAR, true);
    terminal.send(1, BULK, 5_000);
    assert!(drain(&mut terminal, Duration::from_secs(5)).is_empty());
    terminal.engine.block(terminal.now, FAR, false);
    let offers = drain(&mut terminal, 60 * MS);
    assert_eq!(by_hop(&offers), [0, 1]);
    terminal.put_back(offers);
    hub.pass(terminal.now);
    exchange(&mut terminal, &mut hub);
    assert!(hub.has(|event| matches!(event, Event::Readable(_))));
}

#[test]
fn what_waits_for_a_hop_without_a_rate_goes_once_it_has_one() {
    let (mut terminal, _hub) = two_paths(&[(BULK, PathUse::Pinned, &["hop1"])]);
    terminal.engine.set_rate(terminal.now, FAR, Some(0));
    terminal.send(1, BULK, 5_000);
    assert!(drain(&mut terminal, Duration::from_secs(1)).is_empty());
    terminal
        .engine
        .set_rate(terminal.now, FAR, Some(10_000_000));
    assert_eq!(
        by_hop(&drain(&mut terminal, Duration::from_secs(1))),
        [0, 1]
    );
}

#[test]
fn failover_takes_the_first_that_is_there_and_another_order_at_once() {
    let (mut terminal, _) = two_paths(&[(BULK, PathUse::Failover, &["hop1", "hop0"])]);
    let key = terminal.open(1, BULK);
    let sent = |terminal: &mut Node| {
        terminal.write(key, 5_000);
        by_hop(&drain(terminal, 60 * MS))
    };
    assert_eq!(sent(&mut terminal), [0, 1]);
    terminal.engine.block(terminal.now, FAR, true);
    assert_eq!(by_hop(&drain(&mut terminal, 60 * MS)), [1, 0]);
    assert_eq!(sent(&mut terminal), [1, 0]);
    terminal.engine.block(terminal.now, FAR, false);
    // The session before it had something in flight.
    terminal.session(1, 302, Some(BULK), MRU);
    assert_eq!(sent(&mut terminal), [0, 1]);
    let mut config = two_hops(10, 1);
    let policy = Policy {
        uses: PathUse::Failover,
        paths: vec!["hop0".to_owned(), "hop1".to_owned()],
        ..Policy::default()
    };
    config.policies.insert(BULK, policy);
    let now = terminal.now;
    terminal
        .engine
        .reconfigure(now, config)
        .expect("the same classes");
    assert_eq!(sent(&mut terminal), [1, 0]);
}

#[test]
fn a_duplicated_bundle_goes_by_two_hops_and_arrives_once() {
    let (mut terminal, mut hub) = two_paths(&[(URGENT, PathUse::Duplicated, &[])]);
    terminal.send(1, URGENT, 500);
    let offers = drain(&mut terminal, 60 * MS);
    assert_eq!(by_hop(&offers), [1, 1]);
    hub.pass(terminal.now);
    for offered in offers {
        terminal.carry(offered, &mut hub);
    }
    exchange(&mut terminal, &mut hub);
    let readable = hub.events.iter();
    let readable = readable.filter(|(_, event)| matches!(event, Event::Readable(_)));
    assert_eq!(readable.count(), 1);
    live(&mut terminal, &mut hub, Duration::from_secs(1));
    assert!(terminal.destinations().is_empty());
}

#[test]
fn copies_that_their_hop_does_not_take_hold_little_memory() {
    let (mut terminal, _hub) = two_paths(&[(URGENT, PathUse::Duplicated, &[])]);
    let key = terminal.open(1, URGENT);
    let (mut by_near, mut largest) = (0, 0);
    for _ in 0..400 {
        if terminal.engine.send_capacity(key) >= 160_000 {
            terminal.write(key, 160_000);
        }
        for (session, transfer) in terminal.offers() {
            // The far hop's sessions take only one bundle each.
            if session.0 < 200 {
                by_near += transfer.len();
                largest = largest.max(transfer.len());
                terminal.ready(session);
            }
        }
        hear(&mut terminal);
        terminal.pass(terminal.now + 20 * MS);
    }
    let entries = terminal.engine.footprint();
    let copies = entries["copies"];
    assert!(by_near > 8 << 20, "{by_near} bytes left");
    assert!(copies > 0 && copies <= 64, "{copies} of {largest} bytes");
    assert!(copies as u64 * largest <= (4 << 20) + largest);
}

#[test]
fn a_session_belongs_to_the_hop_of_its_listener() {
    let mut hub = two_hops(1, 10);
    hub.hops[1].known_as = vec!["lte".to_owned()];
    let (_, hub) = pair_of(two_hops(10, 1), hub);
    assert_eq!(hub.engine.hop_of(10, "lte"), Some(FAR));
    assert_eq!(hub.engine.hop_of(10, "beam"), Some(NEAR));
    assert_eq!(hub.engine.hop_of(11, "lte"), None);
}

/// Both hops as lines with their configured rates.
pub fn both_lines(terminal: Node, hub: Node) -> Lines {
    let line = |rate_bps, delay_ms| Line {
        rate_bps,
        delay: Duration::from_millis(delay_ms),
    };
    let lines = [line(10_000_000, 15), line(40_000_000, 265)];
    Lines::new([terminal, hub], &lines)
}

/// A long transfer to the hub, from now on; returns when new bytes could be read, since
/// its start.
pub fn transfer(lines: &mut Lines, time: Duration) -> Vec<Duration> {
    let key = lines.nodes[0].open(1, BULK);
    let begin = lines.now();
    let mut readable = Vec::new();
    lines.live(time, |[sender, receiver]| {
        sender.fill(key);
        if receiver.read_all(10, key) > 0 {
            readable.push(receiver.now - begin);
        }
    });
    readable
}

/// The longest time without new bytes that ends within this span.
pub fn longest_gap(readable: &[Duration], begin_s: u64, end_s: u64) -> Duration {
    let span = Duration::from_secs(begin_s)..Duration::from_secs(end_s);
    let gaps = readable.windows(2).filter(|pair| span.contains(&pair[1]));
    let gaps = gaps.map(|pair| pair[1] - pair[0]);
    gaps.max().expect("bytes come")
}

#[test]
fn what_may_not_go_by_a_hop_is_no_backlog_of_its() {
    let (mut terminal, _) = two_paths(&[(BULK, PathUse::Pinned, &["hop0"])]);
    for hop in [NEAR, FAR] {
        terminal.engine.block(terminal.now, hop, true);
    }
    for (class, bytes) in [(BULK, 5_000), (URGENT, 300)] {
        terminal.send(1, class, bytes);
    }
    let [near, far] = [NEAR, FAR].map(|hop| terminal.engine.demand(hop));
    assert_eq!((near.backlogged_bytes, far.backlogged_bytes), (5_300, 300));
    assert_eq!(near.offered_bytes, far.offered_bytes);
}

#[test]
fn a_blockage_that_is_known_makes_no_gap_neither_at_its_entry_nor_behind_its_exit() {
    let (terminal, hub) = two_paths(&[]);
    let mut lines = both_lines(terminal, hub);
    let (now, noon) = (lines.now(), 1_800_000_000_000);
    let blockage = PlannedBlockage {
        entry_ms: noon + 12_000,
        exit_ms: noon + 17_000,
    };
    for node in &mut lines.nodes {
        node.engine.set_utc(now, Some(noon));
        node.engine.plan_blockages(now, FAR, vec![blockage]);
    }
    let readable = transfer(&mut lines, Duration::from_secs(25));
    let before = longest_gap(&readable, 6, 11);
    let within = longest_gap(&readable, 11, 25);
    // Both send bundles of 60 ms.
    assert!(before < 70 * MS, "{before:?}");
    assert!(within < before + 20 * MS, "{within:?} and {before:?}");
}

#[test]
fn by_a_path_that_only_receives_nothing_is_sent_and_the_other_direction_goes_there() {
    let one_way = |node, neighbour, receives: usize| {
        let mut config = two_hops(node, neighbour);
        config.hops[receives].sends = false;
        config
    };
    let (mut terminal, mut hub) = two_paths(&[]);
    let now = terminal.now;
    for (node, config) in [
        (&mut terminal, one_way(10, 1, 1)),
        (&mut hub, one_way(1, 10, 0)),
    ] {
        node.engine.reconfigure(now, config).expect("it is valid");
    }
    let mut lines = both_lines(terminal, hub);
    let sent = |lines: &Lines, node: usize| {
        let hops = lines.nodes[node].engine.hops();
        let of_hop = |hop: usize| {
            hops[hop]
                .traffic
                .iter()
                .map(|of| of.sent_bytes)
                .sum::<u64>()
        };
        [of_hop(0), of_hop(1)]
    };
    let before = [sent(&lines, 0), sent(&lines, 1)];
    let readable = transfer(&mut lines, Duration::from_secs(5));
    assert!(readable.len() > 50, "{}", readable.len());
    let after = [sent(&lines, 0), sent(&lines, 1)];
    assert!(after[0][0] > before[0][0] + 4_000_000, "{after:?}");
    assert_eq!(after[0][1], before[0][1]);
    // Custody signals and credit go back by the other hop.
    assert_eq!(after[1][0], before[1][0]);
    assert!(after[1][1] > before[1][1], "{after:?}");
    // Its pinned path is down: bundles wait, and use no other path.
    lines.nodes[0].engine.block(lines.now(), NEAR, true);
    transfer(&mut lines, Duration::from_secs(2));
    assert_eq!(sent(&lines, 0)[1], before[0][1]);
}

#[test]
fn no_more_waits_here_for_a_path_that_only_receives() {
    let capacity = |far_sends: bool| {
        let mut config = two_hops(10, 1);
        config.hops[1].sends = far_sends;
        let (mut terminal, _hub) = pair_by_two(config, two_hops(1, 10));
        let key = terminal.open(1, BULK);
        terminal.engine.send_capacity(key)
    };
    // What the near hop sends in 100 ms; the far one needs its own, and what the near one sends
    // during the difference of their delays.
    let (one, both) = (capacity(false), capacity(true));
    assert!(one > 0 && one < both / 4, "{one} and {both}");
}
