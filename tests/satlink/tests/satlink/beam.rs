//! What the beam promises, in virtual time.

use std::collections::BTreeMap;

use proptest::prelude::*;
use satlink::beam::{
    Arrival, Beam, BeamError, CapacityProfile, DemandProfile, Direction, Discipline, Interval,
    LinkProfile, LossProfile, Nanos, Sharing, TerminalProfile, Trace, TraceStep,
};

use crate::packets::{arrivals, number, packet};

const MS: Nanos = 1_000_000;
const S: Nanos = 1_000_000_000;
/// The second second.
const SECOND: Interval = Interval {
    start: S,
    duration: S,
};

fn link(rate_bps: Option<u64>, delay_ms: f64) -> LinkProfile {
    LinkProfile {
        rate_bps,
        delay_ms,
        ..LinkProfile::default()
    }
}

fn terminal(name: &str, forward: LinkProfile, ret: LinkProfile) -> TerminalProfile {
    TerminalProfile {
        name: name.into(),
        forward,
        ret,
        blockages: Vec::new(),
    }
}

fn beam(capacity_bps: Option<u64>, terminals: Vec<TerminalProfile>) -> Beam {
    let capacity = CapacityProfile {
        capacity_bps,
        sharing: Sharing::FirstCome,
    };
    Beam::new(0, 1, [capacity; 2], terminals).unwrap()
}

fn one(profile: LinkProfile) -> Beam {
    beam(None, vec![terminal("t1", profile.clone(), profile)])
}

/// Feeds packets of 1500 bytes at even distances and returns all arrivals.
fn feed(
    beam: &mut Beam,
    direction: Direction,
    terminal: usize,
    count: u32,
    gap: Nanos,
) -> Vec<Arrival> {
    for index in 0..count {
        beam.enqueue(
            u64::from(index) * gap,
            direction,
            terminal,
            packet(index, 1500),
        );
    }
    arrivals(beam, 1000 * S)
}

#[test]
fn delay_is_exact_and_follows_serialisation() {
    let mut beam = one(link(Some(12_000_000), 300.0));
    beam.enqueue(5 * MS, Direction::Forward, 0, packet(0, 1500));
    // 12,000 bit at 12 Mbit/s take 1 ms.
    assert!(beam.poll(306 * MS - 1).is_none());
    let arrival = beam.poll(306 * MS).unwrap();
    assert_eq!(arrival.due, 306 * MS);
}

#[test]
fn saturated_link_has_exactly_its_rate() {
    let mut profile = link(Some(140_000_000), 300.0);
    profile.queue.limit_bytes = Some(1 << 30);
    let mut beam = one(profile);
    let out = feed(&mut beam, Direction::Return, 0, 140_001, 10_000);
    assert_eq!(out[140_000].due - out[0].due, 12 * S);
}

#[test]
fn rate_does_not_depend_on_when_the_beam_is_polled() {
    let times = |step: Nanos| {
        let mut profile = link(Some(10_000_000), 20.0);
        profile.queue.discipline = Discipline::Codel;
        let mut beam = one(profile);
        let mut times = Vec::new();
        let mut next_poll = step;
        for index in 0..2000u32 {
            let now = u64::from(index) * MS;
            while next_poll < now {
                times.extend(
                    arrivals(&mut beam, next_poll)
                        .iter()
                        .map(|a| (a.due, number(a))),
                );
                next_poll += step;
            }
            beam.enqueue(now, Direction::Forward, 0, packet(index, 1500));
        }
        times.extend(
            arrivals(&mut beam, 100 * S)
                .iter()
                .map(|a| (a.due, number(a))),
        );
        times
    };
    assert_eq!(times(100_000), times(777 * MS));
}

#[test]
fn next_deadline_is_never_after_an_arrival() {
    let mut beam = one(link(Some(12_000_000), 300.0));
    assert_eq!(beam.next_deadline(), None);
    beam.enqueue(0, Direction::Forward, 0, packet(0, 1500));
    let mut polls = 0;
    let arrival = loop {
        let deadline = beam.next_deadline().unwrap();
        polls += 1;
        if let Some(arrival) = beam.poll(deadline) {
            break arrival;
        }
    };
    assert_eq!(arrival.due, 301 * MS);
    assert!(polls <= 2, "deadlines come close to the arrival: {polls}");
    assert_eq!(beam.next_deadline(), None);
}

#[test]
fn full_queue_drops_at_its_tail() {
    let mut profile = link(Some(1_000_000), 0.0);
    profile.queue.limit_bytes = Some(15_000);
    let mut beam = one(profile);
    for index in 0..100 {
        beam.enqueue(0, Direction::Forward, 0, packet(index, 1500));
    }
    let statistics = beam.statistics(0, 0, Direction::Forward);
    // One is being sent, ten wait.
    assert_eq!(statistics.packets_sent, 1);
    assert_eq!(statistics.queue_max_bytes, 15_000);
    assert_eq!(statistics.tail_dropped_packets, 89);
    let out = arrivals(&mut beam, 10 * S);
    assert_eq!(
        out.iter().map(number).collect::<Vec<_>>(),
        (0..11).collect::<Vec<_>>()
    );
}

#[test]
fn codel_keeps_the_standing_delay_near_its_target() {
    let delay_at_end = |discipline| {
        let mut profile = link(Some(12_000_000), 0.0);
        profile.queue.limit_ms = Some(2000.0);
        profile.queue.discipline = discipline;
        let mut beam = one(profile);
        // 10 % more than the link carries, for 60 s.
        let out = feed(&mut beam, Direction::Forward, 0, 66_000, MS * 10 / 11);
        let entered = u64::from(number(out.last().unwrap())) * (MS * 10 / 11);
        out.last().unwrap().due - entered
    };
    assert!(delay_at_end(Discipline::DropTail) > 1900 * MS);
    assert!(delay_at_end(Discipline::Codel) < 50 * MS);
}

#[test]
fn jitter_keeps_order_unless_reordering_is_asked_for() {
    let numbers = |reorder| {
        let mut profile = link(None, 10.0);
        profile.jitter_ms = 20.0;
        profile.reorder = reorder;
        let out = feed(&mut one(profile), Direction::Forward, 0, 1000, MS);
        assert!(out.windows(2).all(|pair| pair[0].due <= pair[1].due));
        for arrival in &out {
            let delay = arrival.due - u64::from(number(arrival)) * MS;
            assert!((10 * MS..=30 * MS).contains(&delay));
        }
        out.iter().map(number).collect::<Vec<_>>()
    };
    assert!(numbers(false).is_sorted());
    assert!(!numbers(true).is_sorted());
}

#[test]
fn lost_packets_use_the_link_all_the_same() {
    let mut profile = link(Some(12_000_000), 0.0);
    profile.loss = LossProfile::Independent { probability: 0.5 };
    let mut beam = one(profile);
    let out = feed(&mut beam, Direction::Forward, 0, 100, 0);
    // Every packet arrives at the end of its own millisecond or not at all.
    assert!(out.iter().all(|a| a.due == u64::from(number(a) + 1) * MS));
    let statistics = beam.statistics(10 * S, 0, Direction::Forward);
    assert_eq!(statistics.packets_sent, 100);
    assert_eq!(statistics.lost_packets + statistics.packets_out, 100);
    assert!((30..70).contains(&statistics.lost_packets));
}

#[test]
fn loss_pattern_restarts_with_its_seed_and_differs_by_link() {
    let mut profile = link(None, 0.0);
    profile.loss = LossProfile::Independent { probability: 0.3 };
    let terminals = ["t1", "t2"].map(|name| terminal(name, profile.clone(), profile.clone()));
    let mut beam = beam(None, terminals.to_vec());
    let mut pattern = |direction, index, seed| {
        beam.reseed(0, seed);
        for number in 0..200 {
            beam.enqueue(0, direction, index, packet(number, 100));
        }
        arrivals(&mut beam, 0)
            .iter()
            .map(number)
            .collect::<Vec<_>>()
    };
    let first = pattern(Direction::Forward, 0, 7);
    assert_eq!(first, pattern(Direction::Forward, 0, 7));
    assert_ne!(first, pattern(Direction::Forward, 0, 8));
    assert_ne!(first, pattern(Direction::Return, 0, 7));
    assert_ne!(first, pattern(Direction::Forward, 1, 7));
}

#[test]
fn blockage_drops_forward_packets_by_their_arrival() {
    let mut beam = one(link(None, 300.0));
    beam.schedule(0, 0, vec![SECOND]);
    let out = feed(&mut beam, Direction::Forward, 0, 30, 100 * MS);
    let numbers: Vec<u32> = out.iter().map(number).collect();
    // Sent from 0.7 s on they would arrive in the blockage, until 1.7 s.
    let expected: Vec<u32> = (0..7).chain(17..30).collect();
    assert_eq!(numbers, expected);
    let statistics = beam.statistics(10 * S, 0, Direction::Forward);
    assert_eq!(statistics.blocked_packets, 10);
}

#[test]
fn blockage_drops_return_packets_by_their_departure() {
    let mut beam = one(link(None, 300.0));
    beam.schedule(0, 0, vec![SECOND]);
    let out = feed(&mut beam, Direction::Return, 0, 30, 100 * MS);
    let numbers: Vec<u32> = out.iter().map(number).collect();
    let expected: Vec<u32> = (0..10).chain(20..30).collect();
    assert_eq!(numbers, expected);
}

#[test]
fn commanded_blockage_spares_what_has_left_the_terminal() {
    let mut beam = one(link(Some(12_000), 300.0));
    // At 12 kbit/s this packet leaves at 1.0 s and the next one at 2.0 s.
    beam.enqueue(0, Direction::Return, 0, packet(0, 1500));
    beam.enqueue(0, Direction::Return, 0, packet(1, 1500));
    beam.enqueue(0, Direction::Forward, 0, packet(2, 1500));
    beam.block(1_100 * MS, 0, Some(S));
    let numbers: Vec<u32> = arrivals(&mut beam, 10 * S).iter().map(number).collect();
    assert_eq!(
        numbers,
        [0],
        "the second left, and the third arrived, while blocked"
    );
}

#[test]
fn blockage_of_one_terminal_leaves_the_others_alone() {
    let open = link(None, 10.0);
    let terminals = ["t1", "t2"].map(|name| terminal(name, open.clone(), open.clone()));
    let mut beam = beam(None, terminals.to_vec());
    beam.block(0, 0, None);
    beam.enqueue(0, Direction::Forward, 0, packet(0, 100));
    beam.enqueue(0, Direction::Forward, 1, packet(1, 100));
    assert!(beam.is_blocked(0, 0) && !beam.is_blocked(0, 1));
    let numbers: Vec<u32> = arrivals(&mut beam, S).iter().map(number).collect();
    assert_eq!(numbers, [1]);
    beam.unblock(S, 0);
    beam.enqueue(S, Direction::Forward, 0, packet(2, 100));
    assert_eq!(arrivals(&mut beam, 2 * S).len(), 1);
}

#[test]
fn schedules_restart_at_a_new_epoch() {
    let mut beam = one(link(None, 0.0));
    beam.schedule(0, 0, vec![SECOND]);
    beam.restart_epoch(5 * S);
    assert_eq!(beam.epoch(), 5 * S);
    assert!(!beam.is_blocked(5 * S, 0));
    assert!(beam.is_blocked(6 * S, 0));
}

/// A beam of 12 Mbit/s, with packets of 1500 bytes for each of two terminals.
fn two_greedy(sharing: Sharing, counts: [u32; 2]) -> Beam {
    let capacity = CapacityProfile {
        capacity_bps: Some(12_000_000),
        sharing,
    };
    let mut profile = link(Some(12_000_000), 0.0);
    profile.queue.limit_bytes = Some(1 << 30);
    let terminals = ["t1", "t2"].map(|name| terminal(name, profile.clone(), profile.clone()));
    let mut beam = Beam::new(0, 1, [capacity; 2], terminals.to_vec()).unwrap();
    for index in 0..counts[0].max(counts[1]) {
        for (terminal, count) in counts.into_iter().enumerate() {
            if index < count {
                beam.enqueue(0, Direction::Forward, terminal, packet(index, 1500));
            }
        }
    }
    beam
}

fn bytes_out(beam: &mut Beam, terminal: usize, at: Nanos) -> u64 {
    while beam.poll(at).is_some() {}
    beam.statistics(at, terminal, Direction::Forward).bytes_out
}

#[test]
fn first_come_first_served_shares_the_capacity_by_order_of_arrival() {
    let mut beam = two_greedy(Sharing::FirstCome, [1000, 1000]);
    assert_eq!(bytes_out(&mut beam, 0, S), 750_000);
    assert_eq!(bytes_out(&mut beam, 1, S), 750_000);
    let mut beam = two_greedy(Sharing::FirstCome, [1000, 0]);
    assert_eq!(bytes_out(&mut beam, 0, S), 1_500_000, "work-conserving");
}

#[test]
fn slow_terminal_does_not_hold_up_the_shared_capacity() {
    let capacity = Some(12_000_000);
    let slow = terminal("slow", link(Some(120_000), 0.0), LinkProfile::default());
    let fast = terminal("fast", link(Some(12_000_000), 0.0), LinkProfile::default());
    let mut beam = beam(capacity, vec![slow, fast]);
    for index in 0..900 {
        beam.enqueue(0, Direction::Forward, 0, packet(index, 1500));
        beam.enqueue(0, Direction::Forward, 1, packet(index, 1500));
    }
    assert_eq!(bytes_out(&mut beam, 1, S), 900 * 1500);
    assert_eq!(bytes_out(&mut beam, 0, S), 10 * 1500);
}

#[test]
fn allocations_are_enforced_from_their_time_on() {
    let mut beam = two_greedy(Sharing::FirstCome, [2000, 2000]);
    let rates = |t1, t2| BTreeMap::from([(0, t1), (1, t2)]);
    beam.allocate(0, Direction::Forward, rates(9_000_000, 3_000_000), 0)
        .unwrap();
    beam.allocate(0, Direction::Forward, rates(0, 12_000_000), S)
        .unwrap();
    // The packet that left at 0, before the first allocation, took its 1 ms.
    let at_1_s = [bytes_out(&mut beam, 0, S), bytes_out(&mut beam, 1, S)];
    assert!(at_1_s[0].abs_diff(1_125_000) <= 3000, "{at_1_s:?}");
    assert!(at_1_s[1].abs_diff(375_000) <= 3000, "{at_1_s:?}");
    let at_2_s = [
        bytes_out(&mut beam, 0, 2 * S),
        bytes_out(&mut beam, 1, 2 * S),
    ];
    assert!(
        at_2_s[0] - at_1_s[0] <= 1500,
        "an allocation of nothing holds the queue"
    );
    assert!(
        (at_2_s[1] - at_1_s[1]).abs_diff(1_500_000) <= 6000,
        "{at_2_s:?}"
    );
}

#[test]
fn allocation_holds_from_its_time_however_late_the_beam_is_polled() {
    let mut beam = two_greedy(Sharing::FirstCome, [2000, 0]);
    let nothing = BTreeMap::new();
    beam.allocate(0, Direction::Forward, nothing, S).unwrap();
    // A packet that begins at 1 s still goes at the old rate.
    assert_eq!(bytes_out(&mut beam, 0, 5 * S), 1001 * 1500);
}

#[test]
fn unused_allocation_goes_to_nobody() {
    let mut beam = two_greedy(Sharing::Allocated, [0, 1000]);
    let rates = BTreeMap::from([(0, 6_000_000), (1, 6_000_000)]);
    beam.allocate(0, Direction::Forward, rates, 0).unwrap();
    assert_eq!(bytes_out(&mut beam, 1, S), 750_000);
}

#[test]
fn allocation_above_the_capacity_is_refused_and_changes_nothing() {
    let mut beam = two_greedy(Sharing::FirstCome, [0, 1000]);
    let rates = BTreeMap::from([(0, 12_000_000), (1, 1)]);
    let refused = beam.allocate(0, Direction::Forward, rates, 0);
    assert!(matches!(refused, Err(BeamError::Overallocated { .. })));
    assert_eq!(bytes_out(&mut beam, 1, S), 1_500_000);
}

#[test]
fn queue_waits_through_a_change_of_rate() {
    let mut profile = link(Some(12_000), 0.0);
    profile.queue.limit_bytes = Some(1 << 20);
    let mut beam = one(profile.clone());
    for index in 0..10 {
        beam.enqueue(0, Direction::Forward, 0, packet(index, 1500));
    }
    profile.rate_bps = Some(12_000_000);
    beam.set_link(500 * MS, 0, Direction::Forward, profile)
        .unwrap();
    let times: Vec<Nanos> = arrivals(&mut beam, 10 * S).iter().map(|a| a.due).collect();
    // The first ends at the old rate; the others follow at the new one.
    let expected: Vec<Nanos> = (0..10).map(|index| S + index * MS).collect();
    assert_eq!(times, expected);
}

fn any_loss() -> impl Strategy<Value = LossProfile> {
    let share = 0.0..=1.0;
    prop_oneof![
        Just(LossProfile::None {}),
        share
            .clone()
            .prop_map(|probability| LossProfile::Independent { probability }),
        (share.clone(), share.clone(), share.clone(), share).prop_map(
            |(to_bad, to_good, loss_good, loss_bad)| LossProfile::GilbertElliott {
                to_bad,
                to_good,
                loss_good,
                loss_bad,
            }
        ),
    ]
}

fn any_link() -> impl Strategy<Value = LinkProfile> {
    (
        proptest::option::of(1_000u64..1_000_000_000),
        0.0..400.0,
        0.0..50.0,
        any::<bool>(),
        any_loss(),
        1u64..100_000,
        any_discipline(),
        proptest::option::of(any_demand()),
        prop_oneof![Just(0.0), 0.0..100.0],
    )
        .prop_map(
            |(
                rate_bps,
                delay_ms,
                jitter_ms,
                reorder,
                loss,
                limit,
                discipline,
                demand,
                bunch_ms,
            )| {
                let mut profile = link(rate_bps, delay_ms);
                (profile.jitter_ms, profile.reorder, profile.loss) = (jitter_ms, reorder, loss);
                (profile.queue.limit_bytes, profile.queue.discipline) = (Some(limit), discipline);
                profile.demand = demand.filter(|_| rate_bps.is_some());
                profile.bunch_ms = bunch_ms;
                profile
            },
        )
}

fn any_discipline() -> impl Strategy<Value = Discipline> {
    prop_oneof![
        Just(Discipline::DropTail),
        Just(Discipline::Codel),
        Just(Discipline::FairQueue),
    ]
}

fn any_demand() -> impl Strategy<Value = DemandProfile> {
    (1.0..200.0, 0.0..800.0, 0.0..=1.0).prop_map(|(frame_ms, grant_ms, constant)| DemandProfile {
        frame_ms,
        grant_ms,
        constant,
    })
}

#[derive(Clone, Debug)]
enum Step {
    Packet(bool, usize, usize),
    Poll,
    Block(usize, u64),
    Unblock(usize),
    Allocate(bool, u64, u64, u64),
    Capacity(bool, u64),
    Trace(usize, Vec<(Nanos, u64)>),
    Epoch,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (any::<bool>(), 0..2usize, 20..1500usize).prop_map(|(f, t, b)| Step::Packet(f, t, b)),
        4 => Just(Step::Poll),
        1 => (0..2usize, 0..S).prop_map(|(t, span)| Step::Block(t, span)),
        1 => (0..2usize).prop_map(Step::Unblock),
        1 => (any::<bool>(), 0..60_000_000u64, 0..60_000_000u64, 0..S)
            .prop_map(|(f, a, b, later)| Step::Allocate(f, a, b, later)),
        1 => (any::<bool>(), 10_000..100_000_000u64).prop_map(|(f, bps)| Step::Capacity(f, bps)),
        1 => (0..2usize, proptest::collection::btree_map(0..S, 0..50_000_000u64, 0..5))
            .prop_map(|(t, rates)| Step::Trace(t, rates.into_iter().collect())),
        1 => Just(Step::Epoch),
    ]
}

proptest! {
    #[test]
    fn every_packet_is_accounted_for_once_and_none_is_early(
        links in proptest::collection::vec(any_link(), 4),
        steps in proptest::collection::vec((any_step(), 0..5 * MS), 1..300),
    ) {
        let [a, b, c, d] = <[LinkProfile; 4]>::try_from(links).unwrap();
        let mut beam = beam(None, vec![terminal("t1", a, b), terminal("t2", c, d)]);
        let way = |forward| if forward { Direction::Forward } else { Direction::Return };
        let (mut now, mut sent, mut out) = (0, Vec::new(), Vec::new());
        for (step, gap) in steps {
            now += gap;
            match step {
                Step::Packet(forward, terminal, bytes) => {
                    beam.enqueue(now, way(forward), terminal, packet(sent.len() as u32, bytes));
                    sent.push((now, way(forward), terminal, bytes));
                }
                Step::Poll => out.extend(arrivals(&mut beam, now)),
                Step::Block(terminal, span) => beam.block(now, terminal, Some(span)),
                Step::Unblock(terminal) => beam.unblock(now, terminal),
                Step::Allocate(forward, a, b, later) => {
                    let rates = BTreeMap::from([(0, a), (1, b)]);
                    // One above the capacity is refused, which is fine here.
                    let _ = beam.allocate(now, way(forward), rates, now + later);
                }
                Step::Capacity(forward, bps) => {
                    let profile = CapacityProfile {
                        capacity_bps: Some(bps),
                        sharing: Sharing::FirstCome,
                    };
                    beam.set_capacity(now, way(forward), profile).unwrap();
                }
                Step::Trace(terminal, rates) => {
                    let steps = rates.into_iter().map(|(at, rate_bps)| TraceStep {
                        at,
                        rate_bps: Some(rate_bps),
                        delay_ms: None,
                        loss: None,
                    });
                    let forward: Vec<TraceStep> = steps.collect();
                    let trace = Trace { ret: forward.clone(), forward, blockages: Vec::new() };
                    beam.set_trace(now, terminal, trace);
                }
                Step::Epoch => beam.restart_epoch(now),
            }
        }
        out.extend(arrivals(&mut beam, now + 10 * S));
        now += 10 * S;
        let mut seen = vec![false; sent.len()];
        for arrival in &out {
            let (at, direction, terminal, bytes) = sent[number(arrival) as usize];
            prop_assert!(!std::mem::replace(&mut seen[number(arrival) as usize], true));
            prop_assert_eq!((direction, terminal), (arrival.direction, arrival.terminal));
            prop_assert_eq!(bytes, arrival.packet.len());
            let delay = beam.link_profile(terminal, direction).delay_ms;
            prop_assert!(arrival.due - at >= (delay * 1e6) as u64);
        }
        for terminal in 0..2 {
            for direction in Direction::BOTH {
                let s = beam.statistics(now, terminal, direction);
                prop_assert_eq!(
                    s.packets_in,
                    s.queue_packets + s.tail_dropped_packets + s.codel_dropped_packets + s.packets_sent
                );
                prop_assert_eq!(
                    s.packets_sent,
                    s.lost_packets + s.blocked_packets + s.in_flight_packets + s.packets_out
                );
            }
        }
    }
}
