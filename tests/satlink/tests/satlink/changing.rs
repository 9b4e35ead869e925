//! Links that change: traces, capacity on demand, bunches, fair queues; in virtual time.

use satlink::beam::{
    Beam, CapacityProfile, DemandProfile, Direction, Discipline, LinkProfile, LossProfile, Nanos,
    TerminalProfile, Trace, TraceStep,
};

use crate::packets::{arrivals, number, packet};

const MS: Nanos = 1_000_000;
const S: Nanos = 1_000_000_000;

fn beam(forward: LinkProfile, ret: LinkProfile) -> Beam {
    let terminal = TerminalProfile {
        name: "t1".into(),
        forward,
        ret,
        blockages: Vec::new(),
    };
    Beam::new(0, 1, [CapacityProfile::default(); 2], vec![terminal]).unwrap()
}

fn link(rate_bps: u64, delay_ms: f64) -> LinkProfile {
    let mut profile = LinkProfile {
        rate_bps: Some(rate_bps),
        delay_ms,
        ..LinkProfile::default()
    };
    profile.queue.limit_bytes = Some(1 << 30);
    profile
}

fn rate(at: Nanos, rate_bps: u64) -> TraceStep {
    TraceStep {
        at,
        rate_bps: Some(rate_bps),
        delay_ms: None,
        loss: None,
    }
}

fn follow(beam: &mut Beam, forward: Vec<TraceStep>) {
    let trace = Trace {
        forward,
        ..Trace::default()
    };
    beam.set_trace(0, 0, trace);
}

fn fill(beam: &mut Beam, direction: Direction, count: u32) {
    for index in 0..count {
        beam.enqueue(0, direction, 0, packet(index, 1500));
    }
}

fn dues(beam: &mut Beam, until: Nanos) -> Vec<Nanos> {
    arrivals(beam, until).iter().map(|one| one.due).collect()
}

#[test]
fn trace_carries_exactly_its_packets() {
    let mut beam = beam(link(1_000, 0.0), link(1_000, 0.0));
    // 1000 packets/s, then 500, then none for a second, then 2000.
    let steps = [(0, 12_000_000), (1, 6_000_000), (2, 0), (3, 24_000_000)];
    follow(&mut beam, steps.map(|(at, bps)| rate(at * S, bps)).to_vec());
    fill(&mut beam, Direction::Forward, 10_000);
    for (second, count) in [(1, 1000), (2, 1501), (3, 1501), (4, 3501)] {
        arrivals(&mut beam, second * S);
        let out = beam
            .statistics(second * S, 0, Direction::Forward)
            .packets_out;
        // The packet that begins at 1 s still goes at the old rate; so does that at 2 s, at 500
        // packets/s, and ends in the outage.
        let expected = if second == 2 { count - 1 } else { count };
        assert!(out.abs_diff(expected) <= 1, "{second} s: {out}");
    }
}

#[test]
fn trace_goes_on_however_late_the_beam_is_polled() {
    let times = |step: Nanos| {
        let mut beam = beam(link(1_000, 0.0), link(1_000, 0.0));
        let steps = (0..40).map(|place| rate(place * 50 * MS, (place % 5) * 3_000_000));
        follow(&mut beam, steps.collect());
        fill(&mut beam, Direction::Forward, 1000);
        let polls = (0..3 * S / step).map(|poll| poll * step).chain([3 * S]);
        polls.flat_map(|at| dues(&mut beam, at)).collect::<Vec<_>>()
    };
    assert_eq!(times(MS), times(777 * MS));
}

#[test]
fn behind_an_outage_the_queue_begins_at_its_end() {
    let mut beam = beam(link(12_000_000, 0.0), link(1_000, 0.0));
    follow(&mut beam, vec![rate(0, 0), rate(5 * S, 12_000_000)]);
    fill(&mut beam, Direction::Forward, 3);
    assert_eq!(
        dues(&mut beam, 10 * S),
        [5 * S + MS, 5 * S + 2 * MS, 5 * S + 3 * MS]
    );
}

#[test]
fn allocation_of_nothing_is_not_made_up_for() {
    let mut beam = beam(link(12_000_000, 0.0), link(1_000, 0.0));
    beam.allocate(0, Direction::Forward, [(0, 0)].into(), 0)
        .unwrap();
    fill(&mut beam, Direction::Forward, 2);
    beam.allocate(0, Direction::Forward, [(0, 12_000_000)].into(), S)
        .unwrap();
    assert_eq!(dues(&mut beam, 10 * S), [S + MS, S + 2 * MS]);
}

#[test]
fn delay_steps_with_the_trace_and_nothing_overtakes() {
    let mut beam = beam(link(1_200_000_000, 60.0), link(1_000, 0.0));
    let delay = |at, delay_ms| TraceStep {
        delay_ms: Some(delay_ms),
        rate_bps: None,
        ..rate(at, 0)
    };
    follow(&mut beam, vec![delay(S, 12.5), delay(2 * S, 30.0)]);
    let sent = [0, S - MS, S, S + 100 * MS, 2 * S];
    for (index, at) in sent.into_iter().enumerate() {
        beam.enqueue(at, Direction::Forward, 0, packet(index as u32, 1500));
    }
    // 1500 bytes take 10 µs.
    let took = [60_000, 60_000, 59_000, 12_500, 30_000].map(|us| us * 1000 + 10_000);
    let delays: Vec<Nanos> = dues(&mut beam, 10 * S)
        .iter()
        .zip(sent)
        .map(|(due, at)| due - at)
        .collect();
    // What is sent with the shorter delay waits for what is in flight before it.
    assert_eq!(delays[..2], took[..2]);
    assert_eq!(delays[2], took[2]);
    assert_eq!(delays[3..], took[3..]);
}

#[test]
fn loss_is_that_of_the_step() {
    let mut beam = beam(link(12_000_000, 0.0), link(1_000, 0.0));
    let loss = |at, probability| TraceStep {
        rate_bps: None,
        loss: Some(LossProfile::Independent { probability }),
        ..rate(at, 0)
    };
    follow(&mut beam, vec![loss(S, 1.0), loss(2 * S, 0.0)]);
    fill(&mut beam, Direction::Forward, 3000);
    let numbers: Vec<u32> = arrivals(&mut beam, 10 * S).iter().map(number).collect();
    assert_eq!(numbers.len(), 2000);
    // The packet that begins at a step is still of the time before it.
    assert!(numbers.contains(&1000) && !numbers.contains(&1001));
    assert!(!numbers.contains(&2000) && numbers.contains(&2001));
}

#[test]
fn trace_begins_again_at_a_new_epoch_and_ends_with_an_empty_one() {
    let mut beam = beam(link(5_000, 0.0), link(7_000, 0.0));
    follow(&mut beam, vec![rate(0, 1_000), rate(10 * S, 2_000)]);
    assert_eq!(beam.own_rate(0, Direction::Forward), Some(1_000));
    beam.poll(11 * S);
    assert_eq!(beam.own_rate(0, Direction::Forward), Some(2_000));
    beam.restart_epoch(12 * S);
    assert_eq!(beam.own_rate(0, Direction::Forward), Some(1_000));
    beam.poll(23 * S);
    assert_eq!(beam.own_rate(0, Direction::Forward), Some(2_000));
    assert_eq!(beam.own_rate(0, Direction::Return), Some(7_000));
    beam.set_trace(24 * S, 0, Trace::default());
    assert_eq!(beam.own_rate(0, Direction::Forward), Some(5_000));
}

#[test]
fn next_deadline_is_never_behind_an_arrival_of_a_trace() {
    let mut beam = beam(link(12_000, 300.0), link(1_000, 0.0));
    let mut faster = rate(500 * MS, 12_000_000);
    faster.delay_ms = Some(1.0);
    follow(&mut beam, vec![faster]);
    fill(&mut beam, Direction::Forward, 20);
    let mut out = 0;
    while out < 20 {
        let deadline = beam.next_deadline().unwrap();
        while let Some(arrival) = beam.poll(deadline) {
            assert_eq!(arrival.due, deadline, "it could have come out before");
            out += 1;
        }
    }
}

#[test]
fn queue_series_shows_the_wait_and_its_end() {
    let mut beam = beam(link(12_000_000, 0.0), link(1_000, 0.0));
    fill(&mut beam, Direction::Forward, 101);
    arrivals(&mut beam, S);
    let series = beam.queue_series(S, 0, Direction::Forward);
    let samples: Vec<u32> = series
        .runs
        .iter()
        .flat_map(|(value, count)| std::iter::repeat_n(*value, *count as usize))
        .collect();
    assert_eq!(samples.len(), 100);
    // All came at 0, and 100 ms later the last one goes.
    let expected: Vec<u32> = (0..10).map(|sample| sample * 10_000).collect();
    assert_eq!(samples[..10], expected);
    assert!(samples[11..].iter().all(|waited| *waited == 0));
}

fn on_demand(constant: f64) -> Beam {
    let mut ret = link(12_000_000, 300.0);
    ret.demand = Some(DemandProfile {
        frame_ms: 100.0,
        grant_ms: 600.0,
        constant,
    });
    beam(link(12_000_000, 300.0), ret)
}

#[test]
fn constant_slots_are_there_at_once_and_the_rest_a_round_trip_later() {
    let mut beam = on_demand(0.05);
    // A frame has 100 packets, five of them constant. They come within a frame, so the first to
    // ask is the next.
    for index in 0..200 {
        beam.enqueue(50 * MS, Direction::Return, 0, packet(index, 1500));
    }
    let departed: Vec<Nanos> = dues(&mut beam, 10 * S)
        .iter()
        .map(|due| due - 300 * MS)
        .collect();
    let in_frame = |frame: Nanos| {
        let of_frame = frame * 100 * MS + 1..=(frame + 1) * 100 * MS;
        departed.iter().filter(|at| of_frame.contains(at)).count()
    };
    assert_eq!(in_frame(0), 0, "the slots of the frame that is on are over");
    assert!((1..=6).all(|frame| in_frame(frame) == 5));
    // Asked for at 100 ms: 195 packets; granted in the frame that begins at 700 ms and the next.
    assert_eq!(in_frame(7), 100);
    assert_eq!(in_frame(8), 70);
    assert_eq!(departed.len(), 200);
}

#[test]
fn what_is_asked_for_already_is_not_asked_for_again() {
    let mut beam = on_demand(0.05);
    for index in 0..200 {
        beam.enqueue(50 * MS, Direction::Return, 0, packet(index, 1500));
    }
    // The first 200 are through in the frame that ends at 900 ms; nothing is granted beyond them.
    arrivals(&mut beam, 910 * MS);
    for index in 200..300 {
        beam.enqueue(910 * MS, Direction::Return, 0, packet(index, 1500));
    }
    let early = arrivals(&mut beam, (1_600 + 300) * MS)
        .iter()
        .filter(|one| number(one) >= 200)
        .count();
    // Six frames of constant slots before the grant of what is asked for at 1000 ms.
    assert_eq!(early, 30);
}

#[test]
fn an_idle_terminal_sends_in_the_constant_slots_of_the_next_frame() {
    let mut beam = on_demand(0.05);
    for (index, at) in [250 * MS, 302 * MS, 730 * MS].into_iter().enumerate() {
        beam.enqueue(at, Direction::Return, 0, packet(index as u32, 1500));
    }
    // The second comes within the first 5 ms of its frame.
    let expected = [301 * MS, 303 * MS, 801 * MS].map(|at| at + 300 * MS);
    assert_eq!(dues(&mut beam, 10 * S), expected);
}

#[test]
fn a_packet_larger_than_its_slots_goes_in_pieces() {
    let mut beam = on_demand(0.004);
    // 0.4 ms of each frame: the first request is granted only a round trip later.
    beam.enqueue(100 * MS, Direction::Return, 0, packet(0, 1500));
    // It needs 1 ms: 0.4 ms at 100 ms, as much at 200 ms, and the rest at 300 ms.
    assert_eq!(dues(&mut beam, 10 * S), [300 * MS + MS / 5 + 300 * MS]);
}

#[test]
fn saturated_demand_has_the_whole_rate_a_round_trip_late() {
    let mut beam = on_demand(0.05);
    fill(&mut beam, Direction::Return, 2000);
    arrivals(&mut beam, 100 * S);
    let statistics = beam.statistics(100 * S, 0, Direction::Return);
    assert_eq!(statistics.packets_out, 2000);
    // 2000 packets need 2 s; they are asked for at 100 ms and granted 600 ms later, and 5 % of
    // six frames have gone before.
    let last = statistics.last_out_ns.unwrap() - 300 * MS;
    assert!(last.abs_diff(2_670 * MS) <= 5 * MS, "{last}");
}

#[test]
fn demand_cannot_change_under_a_waiting_packet() {
    let mut beam = on_demand(0.0);
    fill(&mut beam, Direction::Return, 2);
    let other = link(12_000_000, 300.0);
    assert!(
        beam.set_link(0, 0, Direction::Return, other.clone())
            .is_err()
    );
    arrivals(&mut beam, 10 * S);
    beam.set_link(10 * S, 0, Direction::Return, other).unwrap();
}

#[test]
fn bunches_arrive_together_and_in_order() {
    let mut profile = link(12_000_000, 30.0);
    profile.bunch_ms = 100.0;
    let mut beam = beam(profile, link(1_000, 0.0));
    for index in 0..100u32 {
        beam.enqueue(
            u64::from(index) * 4 * MS,
            Direction::Forward,
            0,
            packet(index, 1500),
        );
    }
    let out = arrivals(&mut beam, 10 * S);
    assert!(out.iter().all(|one| one.due % (100 * MS) == 0));
    assert!(out.iter().map(number).eq(0..100));
    // Packet n leaves at 4 n + 1 ms and would arrive 30 ms later.
    for one in &out {
        let due = (u64::from(number(one)) * 4 + 31) * MS;
        assert_eq!(one.due, due.next_multiple_of(100 * MS));
    }
}

/// A UDP packet of a flow, as far as a queue looks at it.
fn of_flow(flow: u8, bytes: usize) -> Vec<u8> {
    let mut packet = vec![0; bytes];
    (packet[0], packet[9], packet[21]) = (0x45, libc::IPPROTO_UDP as u8, flow);
    packet
}

fn out_of_flow(discipline: Discipline) -> [usize; 2] {
    let mut profile = link(12_000_000, 0.0);
    profile.queue.limit_bytes = None;
    profile.queue.limit_ms = Some(200.0);
    profile.queue.discipline = discipline;
    let mut beam = beam(profile, link(1_000, 0.0));
    // One flow offers twice the link, the other a quarter of it.
    for tick in 0..4000 {
        let now = tick * MS / 2;
        beam.enqueue(now, Direction::Forward, 0, of_flow(1, 1500));
        if tick % 8 == 0 {
            beam.enqueue(now, Direction::Forward, 0, of_flow(2, 1500));
        }
    }
    let mut out = [0; 2];
    for arrival in arrivals(&mut beam, 10 * S) {
        out[usize::from(arrival.packet[21]) - 1] += 1;
    }
    let statistics = beam.statistics(10 * S, 0, Direction::Forward);
    assert_eq!(
        statistics.packets_in,
        statistics.packets_sent + statistics.tail_dropped_packets
    );
    assert!(statistics.queue_max_bytes <= 300_000);
    out
}

#[test]
fn fair_queue_spares_the_flow_that_keeps_within_its_share() {
    let [_, modest] = out_of_flow(Discipline::FairQueue);
    assert_eq!(modest, 500, "nothing of it is lost");
    let [_, modest] = out_of_flow(Discipline::DropTail);
    assert!(modest < 400, "{modest}");
}

#[test]
fn fair_queue_keeps_the_modest_flow_from_waiting() {
    let mut profile = link(12_000_000, 0.0);
    profile.queue.discipline = Discipline::FairQueue;
    let mut beam = beam(profile, link(1_000, 0.0));
    for _ in 0..500 {
        beam.enqueue(0, Direction::Forward, 0, of_flow(1, 1500));
    }
    beam.enqueue(0, Direction::Forward, 0, of_flow(2, 1500));
    let out = arrivals(&mut beam, 10 * S);
    let place = out.iter().position(|one| one.packet[21] == 2).unwrap();
    assert!(place <= 3, "behind {place} packets of the other");
}
