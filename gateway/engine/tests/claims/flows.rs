//! Flows of a class with the policy *minfct*: each flow goes by the hop that completes it
//! first.

use std::time::{Duration, Instant};

use underpass_cla::Class;
use underpass_engine::{
    ComparedPath, Engine, EngineConfig, Estimate, FlowChoice, HopId, MeasuredLink, PathUse, Policy,
    StreamKey,
};
use underpass_streams::Event;

use crate::bench::{BULK, Node, URGENT, config, pair_by_two};
use crate::lines::Lines;
use crate::paths::{FAR, MS, NEAR, both_lines, by_hop, drain, two_hops};

fn minfct(estimate: Estimate) -> Policy {
    Policy {
        uses: PathUse::MinFct,
        estimate,
        ..Policy::default()
    }
}

fn configured(node: u64, neighbour: u64, estimate: Estimate) -> EngineConfig {
    let mut config = two_hops(node, neighbour);
    config.policies.insert(BULK, minfct(estimate));
    config
}

/// 10 Mbit/s with 15 ms, and 40 Mbit/s with 265 ms: alone, flows of up to 417 kB complete
/// first by the near hop.
fn nodes(estimate: Estimate) -> (Node, Node) {
    pair_by_two(configured(10, 1, estimate), configured(1, 10, estimate))
}

fn begin(node: &mut Node, key: StreamKey, size_bytes: u64, written: usize) {
    node.engine.begin_flow(node.now, key, size_bytes, false);
    node.write(key, written);
}

/// The hops of a new flow of this size; the node sends nothing else.
fn way_of(node: &mut Node, size_bytes: u64) -> [usize; 2] {
    let key = node.open(1, BULK);
    begin(node, key, size_bytes, size_bytes.min(100_000) as usize);
    by_hop(&drain(node, 300 * MS))
}

#[test]
fn a_flow_goes_by_the_hop_that_completes_it_first() {
    let (mut terminal, _hub) = nodes(Estimate::OpenSession);
    for (size, near) in [
        (1_000, true),
        (300_000, true),
        (500_000, false),
        (1 << 63, false),
    ] {
        let [by_near, by_far] = way_of(&mut terminal, size);
        assert!(
            if near { by_far == 0 } else { by_near == 0 },
            "{size}: {by_near} {by_far}"
        );
        assert!(by_near + by_far > 0);
    }
    let flows = |hop: usize| terminal.engine.hops()[hop].traffic[2].flows;
    assert_eq!([flows(0), flows(1)], [2, 2]);
}

#[test]
fn the_papers_estimate_shuns_the_far_hop_for_its_handshake_and_start_up() {
    let (mut terminal, _hub) = nodes(Estimate::NewConnection);
    let [near, far] = way_of(&mut terminal, 500_000);
    assert!(near > 0 && far == 0, "{near} {far}");
    let [near, far] = way_of(&mut terminal, 20_000_000);
    assert!(near == 0 && far > 0, "{near} {far}");
}

#[test]
fn by_the_papers_estimate_flows_of_all_classes_compete() {
    for (estimate, competing) in [
        (Estimate::NewConnection, (2, 20_000)),
        (Estimate::OpenSession, (0, 0)),
    ] {
        let both = |node, neighbour| {
            let mut config = configured(node, neighbour, estimate);
            config.policies.insert(URGENT, minfct(estimate));
            config
        };
        let (mut terminal, _hub) = pair_by_two(both(10, 1), both(1, 10));
        // The near hop's session takes nothing after the first bundle, which has the whole first
        // flow: that does not wait for the path any more.
        for _ in 0..3 {
            let key = terminal.open(1, URGENT);
            begin(&mut terminal, key, 10_000, 10_000);
        }
        let key = terminal.open(1, BULK);
        let told = terminal.engine.begin_flow(terminal.now, key, 20_000, true);
        let why = told.why.expect("it was asked");
        let near = why.compared.iter().find(|path| path.hop == NEAR);
        let waiting = near.map(|path| (path.others.flows, path.others.bytes));
        assert_eq!(waiting, Some(competing), "{why:?}");
    }
}

#[test]
fn flows_choose_among_the_hops_of_their_policy_wherever_these_stand() {
    let mut config = config(10, &[1; 6]);
    for (hop, (rate, rtt)) in config.hops[4..].iter_mut().zip([(10, 30), (40, 530)]) {
        hop.send_rate_bps = Some(rate * 1_000_000);
        hop.rtt = Duration::from_millis(rtt);
    }
    let policy = Policy {
        paths: ["hop5", "hop4"].map(str::to_owned).to_vec(),
        ..minfct(Estimate::OpenSession)
    };
    config.policies.insert(BULK, policy);
    let mut terminal = Node::new(Instant::now(), config);
    for hop in [0, 4, 5] {
        terminal.up(hop, 100 * hop);
    }
    let key = terminal.open(1, BULK);
    let mut chosen = |size_bytes| {
        let now = terminal.now;
        let told = terminal.engine.begin_flow(now, key, size_bytes, true);
        told.why.expect("it was asked").chosen
    };
    assert_eq!(chosen(1_000), Some(HopId(4)));
    assert_eq!(chosen(5_000_000), Some(HopId(5)));
}

#[test]
fn what_waits_for_another_hop_delays_no_flow() {
    let pinned = Policy {
        uses: PathUse::Pinned,
        paths: vec!["hop1".to_owned()],
        ..Policy::default()
    };
    for (policy, streams) in [(pinned, 8), (minfct(Estimate::OpenSession), 1)] {
        let both = |node, neighbour| {
            let mut config = configured(node, neighbour, Estimate::OpenSession);
            config.policies.insert(URGENT, policy.clone());
            config
        };
        let (mut terminal, _hub) = pair_by_two(both(10, 1), both(1, 10));
        // All of this goes by the far hop, whose session takes nothing after the first bundle.
        for _ in 0..streams {
            let key = terminal.open(1, URGENT);
            let room = terminal.engine.send_capacity(key);
            begin(&mut terminal, key, 20_000_000, room);
        }
        let key = terminal.open(1, BULK);
        let told = terminal.engine.begin_flow(terminal.now, key, 20_000, true);
        let why = told.why.expect("it was asked");
        let before = |id: HopId| {
            let path = why.compared.iter().find(|path| path.hop == id);
            path.map(|path| path.others.before_bytes)
        };
        assert!(before(NEAR) < Some(10_000), "{why:?}");
        assert!(before(FAR) > Some(100_000), "{why:?}");
        assert_eq!(why.chosen, Some(NEAR));
    }
}

#[test]
fn a_busy_beam_counts_as_what_is_left_of_it_for_the_terminal() {
    let mut config = config(1, &[10, 10, 11, 12, 13, 14, 15, 16, 17]);
    config.beam_rate_bps = Some(40_000_000);
    config.send_buffer_bytes = Some(400_000);
    config.hops[0].on_beam = false;
    for (hop, (rate, rtt)) in config.hops.iter_mut().zip([(10, 30), (40, 530)]) {
        hop.send_rate_bps = Some(rate * 1_000_000);
        hop.rtt = Duration::from_millis(rtt);
    }
    config.policies.insert(BULK, minfct(Estimate::OpenSession));
    let mut hub = Node::new(Instant::now(), config);
    for hop in 0..9 {
        hub.up(hop, 100 * (hop + 1));
    }
    let key = hub.open(10, BULK);
    let why = |hub: &mut Node| {
        let told = hub.engine.begin_flow(hub.now, key, 1_000_000, true);
        told.why.expect("it was asked")
    };
    let of_far = |why: &FlowChoice| {
        let far = why.compared.iter().find(|path| path.hop == FAR);
        far.and_then(|path| path.path.capacity_bps)
    };
    // 0.8 s by the near hop, and 0.2 s and the delay of 0.265 s by the far one.
    let idle = why(&mut hub);
    assert_eq!((idle.chosen, of_far(&idle)), (Some(FAR), Some(40_000_000)));
    for terminal in 11..18 {
        let busy = hub.open(terminal, BULK);
        let room = hub.engine.send_capacity(busy);
        hub.write(busy, room);
    }
    // No time passes, so this ends when the beam has nothing left.
    loop {
        let offers = hub.offers();
        if offers.is_empty() {
            break;
        }
        offers
            .into_iter()
            .for_each(|(session, _)| hub.ready(session));
    }
    // All others wait for the beam, so by the far hop it would take 1.6 s and the delay.
    let full = why(&mut hub);
    assert_eq!((full.chosen, of_far(&full)), (Some(NEAR), Some(5_000_000)));
}

#[test]
fn a_request_goes_by_the_hop_of_least_delay() {
    let (mut terminal, _hub) = nodes(Estimate::OpenSession);
    terminal.send(1, BULK, 500);
    assert_eq!(by_hop(&drain(&mut terminal, 50 * MS)), [1, 0]);
}

#[test]
fn flows_that_wait_send_those_that_follow_elsewhere() {
    let (mut terminal, _hub) = nodes(Estimate::OpenSession);
    let keys: Vec<_> = (0..8).map(|_| terminal.open(1, BULK)).collect();
    // Nothing leaves meanwhile: the sessions take nothing after the first bundle.
    for key in keys {
        begin(&mut terminal, key, 100_000, 100_000);
    }
    let flows = |hop: usize| terminal.engine.hops()[hop].traffic[2].flows;
    // Each takes 0.08 s by the near hop, and 0.265 and 0.02 s by the far one.
    assert!((3..6).contains(&flows(0)), "{} {}", flows(0), flows(1));
    assert_eq!(flows(0) + flows(1), 8);
}

#[test]
fn a_flow_leaves_a_hop_to_those_that_would_wait_for_it_longer_than_it_would_gain() {
    let (mut terminal, _hub) = nodes(Estimate::OpenSession);
    // Only the first flow leaves meanwhile.
    for _ in 0..4 {
        let key = terminal.open(1, BULK);
        begin(&mut terminal, key, 50_000, 50_000);
    }
    let key = terminal.open(1, BULK);
    let told = terminal.engine.begin_flow(terminal.now, key, 50_000, true);
    let why = told.why.expect("it was asked");
    let [near, far] = &why.compared[..] else {
        panic!("{why:?}");
    };
    // The near hop takes about 0.2 s, but delays three other flows by 40 ms each.
    assert!(near.completes < far.completes, "{why:?}");
    let others = near.others_wait;
    assert!(others > 110 * MS && others < 140 * MS, "{others:?}");
    assert_eq!(why.chosen, Some(FAR));
}

#[test]
fn a_flow_leaves_a_hop_to_those_that_are_likely_to_come() {
    let (mut terminal, _hub) = nodes(Estimate::OpenSession);
    let keys: Vec<_> = (0..20).map(|_| terminal.open(1, BULK)).collect();
    drain(&mut terminal, 50 * MS);
    // Nothing is written, so each flow is alone.
    let mut chosen = keys.into_iter().map(|key| {
        let told = terminal.engine.begin_flow(terminal.now, key, 300_000, true);
        let why = told.why.expect("it was asked");
        assert!(why.compared.iter().all(|path| path.others.bytes == 0));
        why.chosen
    });
    // 0.255 s by the near hop, 0.325 s by the far one.
    assert_eq!(chosen.next(), Some(Some(HopId(0))));
    // Flows that load the near hop by 0.23 delay those after each of them by 0.07 s.
    let near = chosen.take_while(|hop| *hop == Some(HopId(0))).count();
    assert!((7..12).contains(&near), "{near}");
}

/// Begins a flow, which goes by the near hop; returns the earlier flows' load there,
/// bit/s.
fn brought_before(node: &mut Node, key: StreamKey, size_bytes: u64) -> u64 {
    let told = node.engine.begin_flow(node.now, key, size_bytes, true);
    let why = told.why.expect("it was asked");
    assert_eq!(why.chosen, Some(NEAR), "{why:?}");
    why.compared[0].others.arriving_bps
}

#[test]
fn what_a_flow_brings_is_counted_once_however_often_its_rest_is_decided_anew() {
    let (mut terminal, _hub) = nodes(Estimate::OpenSession);
    let [one, other, last] = [(); 3].map(|()| terminal.open(1, BULK));
    assert_eq!(brought_before(&mut terminal, one, 20_000), 0);
    terminal.write(one, 5_000);
    // The load is over 10 s; each flow counts with at most the size of the new one.
    assert_eq!(brought_before(&mut terminal, one, 15_000), 12_000);
    assert_eq!(brought_before(&mut terminal, other, 20_000), 16_000);
    // A flow that is larger than announced brings more.
    assert_eq!(brought_before(&mut terminal, one, 50_000), 32_000);
    assert_eq!(brought_before(&mut terminal, last, 50_000), 60_000);
}

#[test]
fn a_hop_that_comes_again_is_not_loaded_by_flows_of_the_one_that_went() {
    let (mut terminal, _hub) = nodes(Estimate::OpenSession);
    // The load is over 10 s.
    for expected in [0, 16_000] {
        let key = terminal.open(1, BULK);
        assert_eq!(brought_before(&mut terminal, key, 20_000), expected);
    }
    let both = configured(10, 1, Estimate::OpenSession);
    let mut far = both.clone();
    far.hops.remove(0);
    for config in [far, both] {
        let taken = terminal.engine.reconfigure(terminal.now, config);
        taken.expect("a valid configuration");
    }
    terminal.up(0, 300);
    let key = terminal.open(1, BULK);
    assert_eq!(brought_before(&mut terminal, key, 20_000), 0);
}

#[test]
fn a_flow_that_is_larger_than_was_said_goes_on_by_the_other_hop() {
    let (terminal, hub) = nodes(Estimate::OpenSession);
    let mut lines = both_lines(terminal, hub);
    let [terminal, _] = &mut lines.nodes;
    let key = terminal.open(1, BULK);
    begin(terminal, key, 20_000, 20_000);
    let small = received(&mut lines, key, 500 * MS);
    assert_eq!(small, 20_000);
    let [terminal, _] = &mut lines.nodes;
    let far = sent_by(&terminal.engine, FAR);
    begin(terminal, key, 3_000_000, 250_000);
    assert_eq!(received(&mut lines, key, 800 * MS), 250_000, "in order");
    let more = sent_by(&lines.nodes[0].engine, FAR) - far;
    assert!(more >= 250_000, "{more}");
}

#[test]
fn flows_of_a_hop_that_is_blocked_go_by_the_other_and_come_back() {
    let (mut terminal, _hub) = nodes(Estimate::OpenSession);
    let key = terminal.open(1, BULK);
    begin(&mut terminal, key, 5_000_000, 100_000);
    let [near, far] = by_hop(&drain(&mut terminal, 100 * MS));
    assert!(near == 0 && far > 0);
    let now = terminal.now;
    terminal.engine.block(now, FAR, true);
    terminal.write(key, 100_000);
    let [near, far] = by_hop(&drain(&mut terminal, 300 * MS));
    assert!(near > 0 && far == 0, "{near} {far}");
    let now = terminal.now;
    terminal.engine.block(now, FAR, false);
    terminal.up(1, 210);
    terminal.write(key, 100_000);
    let [near, far] = by_hop(&drain(&mut terminal, 300 * MS));
    assert!(near == 0 && far > 0, "{near} {far}");
}

#[test]
fn flows_leave_a_hop_before_a_blockage_that_is_known() {
    let (mut terminal, _hub) = nodes(Estimate::OpenSession);
    terminal.expect_blockage(FAR, 2_000, 30_000);
    let key = terminal.open(1, BULK);
    begin(&mut terminal, key, 5_000_000, 100_000);
    // The far hop's session takes no more, and more waits in its lane.
    assert_eq!(by_hop(&terminal.offers()), [0, 1]);
    terminal.write(key, 100_000);
    assert_eq!(by_hop(&terminal.offers()), [0, 0]);
    let [near, far] = by_hop(&drain(&mut terminal, 1_900 * MS));
    assert!(near > 0 && far == 0, "{near} {far}");
}

#[test]
fn a_stream_is_shown_with_the_path_of_its_flow_and_the_other_while_that_cannot_carry() {
    let (mut terminal, _hub) = nodes(Estimate::OpenSession);
    let key = terminal.open(1, BULK);
    let shown = |terminal: &Node| {
        let (_, largest) = terminal.engine.largest_streams(1, 1);
        let (_, info) = &largest[0];
        assert_eq!(info.class, BULK);
        terminal.engine.paths_to(terminal.now, 1, info.queue)
    };
    assert_eq!(shown(&terminal), ["hop0"], "a request");
    begin(&mut terminal, key, 5_000_000, 100_000);
    assert_eq!(shown(&terminal), ["hop1"]);
    let now = terminal.now;
    terminal.engine.block(now, FAR, true);
    assert_eq!(shown(&terminal), ["hop0"]);
    terminal.engine.block(now, FAR, false);
    terminal.up(1, 210);
    assert_eq!(shown(&terminal), ["hop1"]);
    // Whatever was chosen before: each bundle now takes its own path.
    let bonded = terminal.engine.reconfigure(now, two_hops(10, 1));
    bonded.expect("it is valid");
    assert_eq!(shown(&terminal), ["hop0", "hop1"]);
}

#[test]
fn another_policy_holds_for_flows_that_wait() {
    let (mut terminal, _hub) = nodes(Estimate::OpenSession);
    let key = terminal.open(1, BULK);
    begin(&mut terminal, key, 5_000_000, 250_000);
    let mut config = two_hops(10, 1);
    let pinned = Policy {
        uses: PathUse::Pinned,
        paths: vec!["hop0".to_owned()],
        ..Policy::default()
    };
    config.policies.insert(BULK, pinned);
    // The far hop's session takes no more.
    terminal.offers();
    terminal.write(key, 100_000);
    let now = terminal.now;
    terminal
        .engine
        .reconfigure(now, config)
        .expect("it is valid");
    let [near, far] = by_hop(&drain(&mut terminal, 500 * MS));
    assert!(near > 0 && far == 0, "{near} {far}");
}

/// The bytes of bundles that an engine has sent by a hop.
fn sent_by(engine: &Engine, hop: HopId) -> u64 {
    let hops = engine.hops();
    let hop = hops.iter().find(|of| of.id == hop).expect("it is there");
    hop.traffic[usize::from(BULK.0)].sent_bytes
}

/// The bytes of a stream of the terminal that arrive in order within this time.
fn received(lines: &mut Lines, key: StreamKey, time: Duration) -> usize {
    let mut received = 0;
    lines.live(time, |[_, hub]| {
        let there = hub.engine.key(10, key.id);
        if hub.has(|event| matches!(event, Event::Opened { .. })) {
            while let Some(data) = hub.engine.read(hub.now, there, usize::MAX) {
                received += data.len();
            }
        }
    });
    received
}

#[test]
fn what_is_said_of_a_choice_is_what_it_was_made_by() {
    let (mut terminal, _hub) = nodes(Estimate::OpenSession);
    for (size, near) in [(300_000, true), (500_000, false)] {
        let key = terminal.open(1, BULK);
        let (now, engine) = (terminal.now, &mut terminal.engine);
        assert_eq!(engine.begin_flow(now, key, size, false).why, None);
        let told = engine.begin_flow(now, key, size, true);
        let why = told.why.expect("it was asked");
        assert_eq!(
            (why.uses, why.estimate),
            (PathUse::MinFct, Some(Estimate::OpenSession))
        );
        let [one, other] = &why.compared[..] else {
            panic!("{why:?}");
        };
        for path in [one, other] {
            let estimated = Estimate::OpenSession.of(&path.path, &path.others, size);
            assert_eq!(path.completes, Some(estimated));
            assert!(path.path.capacity_bps.is_some() && path.path.delay > Duration::ZERO);
        }
        let costs = |path: &ComparedPath| path.completes.map(|time| time + path.others_wait);
        let first = if costs(one) <= costs(other) {
            one
        } else {
            other
        };
        assert_eq!(why.chosen, Some(first.hop));
        assert_eq!(told.completes, first.completes);
        terminal.write(key, 100_000);
        let sent = by_hop(&drain(&mut terminal, 300 * MS));
        assert_eq!((sent[0] > 0, sent[1] > 0), (near, !near), "{why:?}");
        assert_eq!(first.hop, if near { HopId(0) } else { FAR });
    }
}

#[test]
fn of_other_policies_it_is_said_which_paths_they_leave() {
    let mut config = two_hops(10, 1);
    let failover = Policy {
        uses: PathUse::Failover,
        paths: vec!["hop1".to_owned(), "hop0".to_owned()],
        ..Policy::default()
    };
    config.policies.insert(BULK, failover);
    let (mut terminal, _hub) = pair_by_two(config, two_hops(1, 10));
    let mut why = |class| {
        let key = terminal.open(1, class);
        let told = terminal.engine.begin_flow(terminal.now, key, 5_000, true);
        assert_eq!(told.round_trip, None);
        let why = told.why.expect("it was asked");
        assert!(why.compared.iter().all(|path| path.completes.is_none()));
        (why.uses, why.chosen, why.compared.len())
    };
    assert_eq!(why(BULK), (PathUse::Failover, Some(FAR), 1));
    assert_eq!(why(Class(1)), (PathUse::Bonded, None, 2));
}

/// Both hops as lines whose rates are not configured.
fn untold() -> Lines {
    let configured = |node, neighbour| {
        let mut config = configured(node, neighbour, Estimate::OpenSession);
        for hop in &mut config.hops {
            (hop.send_rate_bps, hop.receive_rate_bps) = (None, None);
        }
        config
    };
    let (terminal, hub) = pair_by_two(configured(10, 1), configured(1, 10));
    both_lines(terminal, hub)
}

/// The terminal's hop is measured to carry this rate.
fn found(lines: &mut Lines, hop: HopId, bps: u64) {
    let link = MeasuredLink {
        rate_bps: Some(bps),
        capacity_bps: Some(bps),
        ..MeasuredLink::default()
    };
    let [terminal, _] = &mut lines.nodes;
    terminal.engine.measured(terminal.now, hop, link, 0);
}

/// A fade has passed, but the low rate measured in it keeps flows away.
#[test]
fn a_hop_whose_estimate_has_fallen_is_tried_again_by_a_few_small_flows() {
    let mut lines = untold();
    // The hop chosen after this time, s; the flow has left a second later.
    let chosen = |lines: &mut Lines, after_s: u64, size_bytes: u64| {
        lines.live(Duration::from_secs(after_s), |_| ());
        let [terminal, _] = &mut lines.nodes;
        let key = terminal.open(1, BULK);
        let now = terminal.now;
        let told = terminal.engine.begin_flow(now, key, size_bytes, true);
        terminal.write(key, size_bytes.min(100_000) as usize);
        lines.live(Duration::from_secs(1), |_| ());
        told.why.expect("it was asked").chosen
    };
    let (small, large) = (12_000, 1_000_000);
    found(&mut lines, FAR, 40_000_000);
    found(&mut lines, NEAR, 10_000_000);
    assert_eq!(chosen(&mut lines, 0, small), Some(NEAR));
    found(&mut lines, NEAR, 300_000);
    assert_eq!(chosen(&mut lines, 0, small), Some(FAR));
    assert_eq!(chosen(&mut lines, 3, small), Some(FAR));
    // It takes 0.3 s by that hop if that hop carries no more.
    assert_eq!(chosen(&mut lines, 1, small), Some(NEAR));
    assert_eq!(chosen(&mut lines, 0, large), Some(FAR));
    // The trial shows no more, so the next trial is later.
    assert_eq!(chosen(&mut lines, 2, small), Some(FAR));
    assert_eq!(chosen(&mut lines, 7, small), Some(FAR));
    assert_eq!(chosen(&mut lines, 2, small), Some(NEAR));
    found(&mut lines, NEAR, 10_000_000);
    assert_eq!(chosen(&mut lines, 0, small), Some(NEAR));
}

#[test]
fn where_all_flows_are_large_a_hop_whose_estimate_has_fallen_takes_a_part_for_a_while() {
    let mut lines = untold();
    found(&mut lines, FAR, 8_000_000);
    found(&mut lines, NEAR, 10_000_000);
    found(&mut lines, NEAR, 300_000);
    let [terminal, _] = &mut lines.nodes;
    let key = terminal.open(1, BULK);
    let told = terminal.engine.begin_flow(terminal.now, key, 1 << 31, true);
    assert_eq!(told.why.and_then(|why| why.chosen), Some(FAR));
    // The bytes of it that the near hop sends in so many seconds.
    let by_near = |lines: &mut Lines, time_s: u64| {
        let before = sent_by(&lines.nodes[0].engine, NEAR);
        lines.live(Duration::from_secs(time_s), |[sender, receiver]| {
            sender.fill(key);
            receiver.read_all(10, key);
        });
        sent_by(&lines.nodes[0].engine, NEAR) - before
    };
    assert_eq!(by_near(&mut lines, 4), 0);
    // Two seconds at 300 kbit/s.
    let tried = by_near(&mut lines, 5);
    assert!((20_000..150_000).contains(&tried), "{tried}");
    // The trial shows no more, so the next trial is later.
    assert_eq!(by_near(&mut lines, 4), 0);
}

#[test]
fn classes_of_other_policies_have_no_flows() {
    let (mut terminal, _hub) = nodes(Estimate::OpenSession);
    let key = terminal.open(1, Class(1));
    terminal
        .engine
        .begin_flow(terminal.now, key, 1 << 40, false);
    terminal.write(key, 1_000);
    // In bonded mode short bundles go by the near hop, whatever its measured rate.
    assert_eq!(by_hop(&drain(&mut terminal, 50 * MS)), [1, 0]);
    let flows: u64 = terminal
        .engine
        .hops()
        .iter()
        .flat_map(|hop| &hop.traffic)
        .map(|of| of.flows)
        .sum();
    assert_eq!(flows, 0);
}
