//! Custody between agents, step by step.

use std::time::Duration;

use crate::net::{BULK, Net, SERVICE, bundle, node, payload, primary, route};
use bytes::Bytes;
use underpass_bundle::wire::{BYTES, CodePoints, CustodyDialect, ipn, write_head};
use underpass_bundle::{
    Agent, CustodyTimer, Event, Forgery, NeighbourId, Reject, Relaying, ReportRequest, Route, Send,
    SendError,
};
use underpass_cla::{Class, Outcome, Refusal};

fn pair() -> Net {
    Net::of([node(1), node(2)])
}

#[test]
fn the_cls_acknowledgement_alone_releases_nothing() {
    let mut net = pair();
    let id = net.send(0, 2, b"data").unwrap();
    net.carry(0, 1);
    assert_eq!(net.released(0), []);
    net.signal(1, 0);
    assert_eq!(net.released(0), [id]);
    assert_eq!(net.delivered(1), [&b"data"[..]]);
    assert_eq!(net.agents[0].custody(net.now).used_bytes, 0);
}

#[test]
fn a_broken_session_offers_the_bundle_again_at_once() {
    let mut net = pair();
    net.send(0, 2, b"data").unwrap();
    let offer = net.offer(0, 2).unwrap();
    assert!(!net.agents[0].has_pending(NeighbourId(2), BULK));
    net.finish(0, &offer, Outcome::Broken { acknowledged: 3 });
    let again = net.offer(0, 2).unwrap();
    assert!(again.again);
    assert_eq!(again.id, offer.id);
}

#[test]
fn retransmissions_go_before_new_bundles() {
    let mut net = pair();
    net.send(0, 2, b"first").unwrap();
    let offer = net.offer(0, 2).unwrap();
    let second = net.send(0, 2, b"second").unwrap();
    net.finish(0, &offer, Outcome::Broken { acknowledged: 0 });
    assert_eq!(net.offer(0, 2).unwrap().id, offer.id);
    assert_eq!(net.offer(0, 2).unwrap().id, second);
}

#[test]
fn the_custody_timer_runs_only_after_the_cl_has_finished() {
    let mut net = pair();
    net.send(0, 2, b"data").unwrap();
    let offer = net.offer(0, 2).unwrap();
    net.pass(Duration::from_secs(3600));
    assert!(net.offer(0, 2).is_none());
    net.finish(0, &offer, Outcome::Acknowledged);
    net.pass(CustodyTimer::default().initial);
    assert!(net.offer(0, 2).unwrap().again);
}

#[test]
fn blocked_path_keeps_custody_until_signal() {
    let mut net = pair();
    let id = net.send(0, 2, b"data").unwrap();
    net.carry(0, 1);
    let now = net.now;
    net.agents[0].neighbour_down(now, NeighbourId(2));
    net.pass(Duration::from_secs(600));
    assert!(net.offer(0, 2).is_none(), "no timer fires while it is down");
    assert_eq!(net.agents[0].custody(net.now).bundles, 1);
    let now = net.now;
    net.agents[0].neighbour_up(now, NeighbourId(2));
    net.carry_signals(1, 0);
    assert_eq!(net.released(0), [id]);
}

#[test]
fn a_lost_signal_is_healed_by_the_duplicate() {
    let mut net = pair();
    let id = net.send(0, 2, b"data").unwrap();
    net.carry(0, 1);
    net.pass(Duration::from_millis(100));
    let lost = net.agents[1].next_for(net.now, NeighbourId(1), Class::SIGNALLING, u64::MAX);
    net.finish(1, &lost.unwrap(), Outcome::Acknowledged);
    net.pass(Duration::from_secs(3));
    net.carry(0, 1);
    net.signal(1, 0);
    assert_eq!(net.released(0), [id]);
    assert_eq!(net.delivered(1).len(), 1, "delivered once");
}

/// A pair whose second node's service confirms.
fn confirming_pair() -> Net {
    let mut second = node(2);
    second.confirming.insert(SERVICE);
    Net::of([node(1), second])
}

#[test]
fn custody_of_an_unconfirmed_bundle_stays_with_the_sender() {
    let mut net = confirming_pair();
    let id = net.send(0, 2, b"data").unwrap();
    net.carry(0, 1);
    let deliveries = net.deliveries(1);
    let [delivery] = &deliveries[..] else {
        panic!("delivered once: {deliveries:?}");
    };
    net.pass(Duration::from_secs(3));
    net.carry_signals(1, 0);
    assert_eq!(net.released(0), []);
    // The duplicate that the custody timer sends is neither delivered nor answered.
    net.carry(0, 1);
    net.signal(1, 0);
    assert_eq!((net.released(0), net.delivered(1).len()), (vec![], 0));
    let now = net.now;
    net.agents[1].confirm(now, delivery.ticket.unwrap());
    net.signal(1, 0);
    assert_eq!(net.released(0), [id]);
}

#[test]
fn what_was_not_confirmed_before_the_end_of_the_process_is_delivered_again() {
    let mut net = confirming_pair();
    net.send(0, 2, b"data").unwrap();
    net.carry(0, 1);
    assert_eq!(net.delivered(1).len(), 1);
    let mut restarted = node(2);
    restarted.confirming.insert(SERVICE);
    restarted.run_nonce += 1;
    net.agents[1] = Agent::new(restarted);
    let now = net.now;
    net.agents[1].neighbour_up(now, NeighbourId(1));
    net.agents[0].neighbour_down(now, NeighbourId(2));
    net.agents[0].neighbour_up(now, NeighbourId(2));
    net.pass(Duration::from_secs(3));
    let again = net.offer(0, 2).unwrap();
    net.arrive(1, 1, &again);
    assert_eq!(net.delivered(1), [&b"data"[..]]);
}

#[test]
fn a_neighbour_that_was_removed_and_is_there_again_gets_signals() {
    let mut net = pair();
    let first = net.send(0, 2, b"first").unwrap();
    net.carry(0, 1);
    // The signal is due, and nobody takes it.
    net.pass(Duration::from_millis(100));
    for routes in [vec![], vec![route(1, 1)]] {
        let now = net.now;
        net.agents[1].set_routes(now, routes, Relaying::All);
    }
    let second = net.send(0, 2, b"second").unwrap();
    net.carry(0, 1);
    net.signal(1, 0);
    assert_eq!(net.released(0), [second]);
    // The node asks again for the other bundle.
    net.pass(CustodyTimer::default().initial);
    net.carry(0, 1);
    net.signal(1, 0);
    assert_eq!(net.released(0), [first]);
}

/// Makes a neighbour refuse all signals that wait for it.
fn refuse_signals(net: &mut Net, at: usize, by: u64) {
    let by = NeighbourId(by);
    while let Some(offer) = net.agents[at].next_for(net.now, by, Class::SIGNALLING, u64::MAX) {
        net.finish(at, &offer, Outcome::Refused(Refusal::NoResources));
    }
}

#[test]
fn a_neighbour_that_refuses_all_signals_costs_a_bounded_memory() {
    let mut net = pair();
    for _ in 0..1_000 {
        net.send(0, 2, b"data").unwrap();
        net.carry(0, 1);
        net.delivered(1);
        net.pass(Duration::from_millis(100));
        refuse_signals(&mut net, 1, 1);
    }
    let mut bundles = 0;
    net.agents[1].footprint(&mut |name, count| {
        bundles += if name == "bundles" { count } else { 0 };
    });
    assert!((100..=256).contains(&bundles), "{bundles}");
    // Once the neighbour takes signals, it hears of all bundles.
    let mut released = 0;
    for _ in 0..20 {
        net.pass(Duration::from_secs(600));
        while let Some(offer) = net.offer(0, 2) {
            net.arrive(1, 1, &offer);
            net.finish(0, &offer, Outcome::Acknowledged);
        }
        net.signal(1, 0);
        released += net.released(0).len();
    }
    assert_eq!(released, 1_000);
}

#[test]
fn one_signal_covers_a_thousand_bundles() {
    let mut net = pair();
    for _ in 0..1000 {
        net.send(0, 2, b"data").unwrap();
        net.carry(0, 1);
    }
    net.pass(Duration::from_millis(100));
    let now = net.now;
    let agent = &mut net.agents[1];
    let signal = agent
        .next_for(now, NeighbourId(1), Class::SIGNALLING, u64::MAX)
        .unwrap();
    assert!(signal.chunks.iter().map(Bytes::len).sum::<usize>() < 160);
    assert!(!agent.has_pending(NeighbourId(1), Class::SIGNALLING));
    net.arrive(0, 2, &signal);
    assert_eq!(net.released(0).len(), 1000);
}

#[test]
fn a_full_store_slows_the_source_and_refuses_the_peer() {
    let mut small = node(2);
    small.store_bytes = 10_000;
    let mut net = Net::of([node(1), small]);
    assert!(!net.agents[1].room(9_500));
    assert_eq!(net.send(1, 1, &[0; 9_500]), Err(SendError::NoRoom));
    net.send(0, 2, &[0; 9_500]).unwrap();
    let offer = net.offer(0, 2).unwrap();
    assert_eq!(net.try_arrive(1, 1, &offer), Err(Reject::NoResources));
    net.finish(0, &offer, Outcome::Refused(Refusal::NoResources));
    assert!(net.offer(0, 2).is_none(), "the neighbour is left in peace");
    net.pass(Duration::from_secs(1));
    assert!(net.offer(0, 2).unwrap().again);
}

#[test]
fn a_signal_from_another_neighbour_releases_nothing() {
    let mut net = Net::of([node(1), node(2), node(3)]);
    net.send(0, 2, b"data").unwrap();
    let offer = net.offer(0, 2).unwrap();
    net.finish(0, &offer, Outcome::Acknowledged);
    net.arrive(1, 1, &offer);
    net.pass(Duration::from_millis(100));
    let now = net.now;
    let signal = net.agents[1].next_for(now, NeighbourId(1), Class::SIGNALLING, u64::MAX);
    let outcome = net.try_arrive(0, 3, &signal.unwrap());
    assert_eq!(outcome, Err(Forgery::Source.into()));
    assert_eq!(net.released(0), []);
}

#[test]
fn an_unknown_service_refuses_custody_and_the_source_asks_again_later() {
    let mut deaf = node(2);
    deaf.services.clear();
    let mut net = Net::of([node(1), deaf]);
    net.send(0, 2, b"data").unwrap();
    net.carry(0, 1);
    net.signal(1, 0);
    assert!(net.offer(0, 2).is_none());
    net.pass(Duration::from_secs(1));
    assert!(net.offer(0, 2).unwrap().again);
    assert_eq!(net.released(0), []);
}

#[test]
fn each_refusal_doubles_the_wait() {
    let mut deaf = node(2);
    deaf.services.clear();
    let mut net = Net::of([node(1), deaf]);
    net.send(0, 2, b"data").unwrap();
    for doublings in 0..5 {
        net.carry(0, 1);
        net.signal(1, 0);
        let wait = CustodyTimer::default().min * (1_u32 << doublings);
        // The wait is three to five quarters of this.
        net.pass(wait * 3 / 4 - Duration::from_millis(1));
        assert!(!net.agents[0].has_pending(NeighbourId(2), BULK), "{wait:?}");
        net.pass(wait / 2 + Duration::from_millis(1));
        assert!(net.agents[0].has_pending(NeighbourId(2), BULK), "{wait:?}");
    }
}

#[test]
fn lifetime_ends_by_age_and_gives_the_payload_back() {
    let mut config = node(1);
    config.lifetime = Duration::from_secs(5);
    let mut net = Net::of([config, node(2)]);
    let id = net.send(0, 2, b"data").unwrap();
    let offer = net.offer(0, 2).unwrap();
    net.agents[0].set_clock(net.now, 1 << 40);
    net.pass(Duration::from_secs(5));
    let expired = net.events(0).into_iter().find_map(|event| match event {
        Event::GivenUp { id, payload, .. } => Some((id, payload)),
        _ => None,
    });
    assert_eq!(expired, Some((id, vec![Bytes::from_static(b"data")])));
    net.finish(0, &offer, Outcome::Broken { acknowledged: 0 });
    assert!(net.offer(0, 2).is_none());
}

#[test]
fn a_relay_without_custody_passes_the_custodian_on() {
    let relay = |take_custody| {
        let mut relay = node(2);
        relay.routes = vec![Route {
            nodes: 3..=3,
            neighbour: NeighbourId(3),
            take_custody,
        }];
        let mut ends = [node(1), node(3)];
        for (end, other) in ends.iter_mut().zip([3, 1]) {
            end.routes = vec![route(other, 2)];
        }
        let [one, three] = ends;
        Net::of([one, relay, three])
    };
    for takes in [false, true] {
        let mut net = relay(takes);
        let id = net.send(0, 3, b"data").unwrap();
        net.carry(0, 1);
        net.signal(1, 0);
        let expected = if takes { vec![id] } else { vec![] };
        assert_eq!(net.released(0), expected);
        net.carry(1, 2);
        net.signal(2, 1);
        net.carry_signals(1, 0);
        let expected = if takes { vec![] } else { vec![id] };
        assert_eq!(net.released(0), expected);
        assert_eq!(net.delivered(2), [&b"data"[..]]);
        for agent in &net.agents {
            assert_eq!(agent.custody(net.now).bundles, 0);
        }
    }
}

#[test]
fn payload_pieces_are_sent_untouched_and_received_in_place() {
    let mut net = pair();
    let pieces = vec![payload(b"one"), payload(b"two")];
    let sent: Vec<_> = pieces.iter().map(|piece| piece.as_ptr()).collect();
    net.send_pieces(0, 2, SERVICE, pieces).unwrap();
    let offer = net.offer(0, 2).unwrap();
    let offered: Vec<_> = offer.chunks[1..3]
        .iter()
        .map(|piece| piece.as_ptr())
        .collect();
    assert_eq!(offered, sent);
    let raw: Bytes = offer.chunks.concat().into();
    let now = net.now;
    net.agents[1]
        .receive(now, NeighbourId(1), BULK, raw.clone())
        .unwrap();
    let delivered = net.deliveries(1).remove(0);
    let inside = raw.as_ptr_range();
    assert!(inside.contains(&delivered.payload.as_ptr()));
    assert_eq!(&delivered.payload[..], b"onetwo");
}

#[test]
fn a_store_full_of_own_bundles_still_takes_deliveries() {
    let mut small = node(2);
    small.store_bytes = 3_000;
    let mut net = Net::of([node(1), small]);
    net.send(1, 1, &[0; 1_000]).unwrap();
    assert!(net.send(1, 1, &[0; 1_000]).is_err());
    net.send(0, 2, &[0; 1_000]).unwrap();
    let offer = net.offer(0, 2).unwrap();
    net.arrive(1, 1, &offer);
    assert_eq!(net.delivered(1).len(), 1);
}

#[test]
fn a_routing_loop_never_makes_the_last_custodian_forget() {
    // Node 2 sends bundles for node 3 back to node 1, by node 4.
    let mut ring = [node(1), node(2), node(3), node(4)];
    ring[0].routes = vec![route(3, 2)];
    ring[1].routes = vec![route(3, 4)];
    ring[3].routes = vec![route(3, 1), route(1, 2)];
    let mut net = Net::of(ring);
    net.send(0, 3, b"data").unwrap();
    for (from, to) in [(0, 1), (1, 3), (3, 0)] {
        let offer = net.offer(from, to as u64 + 1).unwrap();
        let outcome = net.try_arrive(to, from as u64 + 1, &offer);
        // Node 1 knows that its own bundle cannot come from a neighbour.
        let believed = if to == 0 {
            Err(Forgery::Source.into())
        } else {
            Ok(())
        };
        assert_eq!(outcome, believed);
        let refused = Outcome::Refused(Refusal::NotAcceptable);
        let finished = outcome.map_or(refused, |()| Outcome::Acknowledged);
        net.finish(from, &offer, finished);
        net.pass(Duration::from_millis(100));
        net.carry_signals(to, from);
        let now = net.now;
        let custodians = net.agents.iter().map(|agent| agent.custody(now).bundles);
        assert_eq!(custodians.sum::<usize>(), 1, "{from} to {to}");
    }
}

#[test]
fn a_transfer_is_reliable_if_somebody_has_custody_of_its_bundle_or_it_signals_that() {
    let mut net = pair();
    for custody in [true, false] {
        let send = Send {
            custody,
            ..Send::new(ipn(2, SERVICE), SERVICE, BULK, vec![payload(b"data")])
        };
        let now = net.now;
        net.agents[0].send(now, send).unwrap();
        let offer = net.offer(0, 2).unwrap();
        assert_eq!(offer.reliable, custody);
        net.arrive(1, 1, &offer);
        net.finish(0, &offer, Outcome::Acknowledged);
    }
    net.pass(Duration::from_millis(100));
    let (now, via) = (net.now, NeighbourId(1));
    let signal = net.agents[1].next_for(now, via, Class::SIGNALLING, u64::MAX);
    assert!(signal.unwrap().reliable);
}

#[test]
fn status_reports_come_when_asked_and_not_in_floods() {
    let mut config = node(2);
    config.status_reports_per_s = 5;
    let mut net = Net::of([node(1), config]);
    for _ in 0..50 {
        let send = Send {
            custody: false,
            reports: Some(ReportRequest {
                to: ipn(1, 0),
                reception: false,
                forwarding: false,
                delivery: true,
                deletion: false,
            }),
            ..Send::new(ipn(2, SERVICE), SERVICE, BULK, vec![payload(b"data")])
        };
        let now = net.now;
        net.agents[0].send(now, send).unwrap();
        let offer = net.offer(0, 2).unwrap();
        net.arrive(1, 1, &offer);
    }
    let mut reports = 0;
    while let Some(report) = net.offer(1, 1) {
        net.arrive(0, 2, &report);
        reports += 1;
    }
    assert_eq!(reports, 5);
    let delivered = |event: &Event| match event {
        Event::StatusReport { report, .. } => report.status_information[2].asserted,
        _ => false,
    };
    assert_eq!(net.events(0).iter().filter(|e| delivered(e)).count(), 5);
}

#[test]
fn what_this_node_does_with_its_own_bundle_is_told_here() {
    let mut net = pair();
    let send = |lifetime_s| Send {
        custody: false,
        lifetime: Some(Duration::from_secs(lifetime_s)),
        reports: Some(ReportRequest {
            to: ipn(1, SERVICE),
            reception: false,
            forwarding: true,
            delivery: false,
            deletion: true,
        }),
        ..Send::new(ipn(2, SERVICE), SERVICE, BULK, vec![payload(b"data")])
    };
    let told = |event: &Event| match event {
        Event::StatusReport { reporter, report } => {
            assert_eq!(
                (reporter, &report.source_node),
                (&ipn(1, 0), &ipn(1, SERVICE))
            );
            let items = report.status_information.iter();
            let asserted = items.map(|item| item.asserted).collect::<Vec<bool>>();
            Some((asserted, report.report_reason))
        }
        _ => None,
    };
    let now = net.now;
    net.agents[0].send(now, send(60)).unwrap();
    let offer = net.offer(0, 2).unwrap();
    net.finish(0, &offer, Outcome::Acknowledged);
    let reports: Vec<_> = net.events(0).iter().filter_map(told).collect();
    assert_eq!(reports, [(vec![false, true, false, false], 0)]);
    let now = net.now;
    net.agents[0].send(now, send(1)).unwrap();
    net.pass(Duration::from_secs(2));
    let reports: Vec<_> = net.events(0).iter().filter_map(told).collect();
    assert_eq!(reports, [(vec![false, false, false, true], 1)]);
    assert!(net.offer(0, 2).is_none(), "nothing is sent");
}

#[test]
fn a_bplib_custodian_is_answered_in_its_dialect() {
    let mut bplib = node(1);
    bplib.codes = CodePoints::of(CustodyDialect::Bplib);
    let mut net = Net::of([bplib, node(2)]);
    let id = net.send(0, 2, b"data").unwrap();
    net.carry(0, 1);
    net.pass(Duration::from_millis(100));
    let now = net.now;
    let signal = net.agents[1]
        .next_for(now, NeighbourId(1), Class::SIGNALLING, u64::MAX)
        .unwrap();
    // Array of two, record type 4, a map with one pair.
    assert_eq!(&signal.chunks[1][..3], [0x82, 0x04, 0xA1]);
    net.arrive(0, 2, &signal);
    assert_eq!(net.released(0), [id]);
}

#[test]
fn a_store_with_a_full_neighbour_is_woken_when_the_pause_ends() {
    let mut net = pair();
    net.send(0, 2, b"data").unwrap();
    let offer = net.offer(0, 2).unwrap();
    net.events(0);
    net.finish(0, &offer, Outcome::Refused(Refusal::NoResources));
    assert!(!net.agents[0].has_pending(NeighbourId(2), BULK));
    net.pass(Duration::from_secs(1));
    let woken = |event: &Event| matches!(event, Event::Woken { class: None, .. });
    assert!(net.events(0).iter().any(woken));
    assert!(net.agents[0].has_pending(NeighbourId(2), BULK));
}

#[test]
fn for_a_neighbour_without_custody_this_node_has_it() {
    // Nodes 1 and 4 do not support custody; 2 and 3 take it for them.
    let [mut one, mut two, mut three, mut four] = [node(1), node(2), node(3), node(4)];
    one.routes = vec![route(4, 2)];
    two.routes = vec![route(4, 3)];
    three.routes = vec![route(1, 2)];
    four.routes = vec![route(1, 3)];
    two.served = [NeighbourId(1)].into();
    three.served = [NeighbourId(4)].into();
    let mut net = Net::of([one, two, three, four]);
    let plain = Send {
        custody: false,
        ..Send::new(ipn(4, SERVICE), SERVICE, BULK, vec![payload(b"data")])
    };
    net.agents[0].send(net.now, plain).unwrap();
    for (from, to) in [(0, 2), (1, 3), (2, 4)] {
        let offer = net.offer(from, to).unwrap();
        let at = usize::try_from(to).unwrap() - 1;
        net.arrive(at, from as u64 + 1, &offer);
        net.finish(from, &offer, Outcome::Acknowledged);
        if from == 1 {
            let kept = net.agents[1].custody(net.now).bundles;
            assert_eq!(kept, 1, "until it is signalled");
            net.signal(2, 1);
        }
        assert_eq!(net.agents[from].custody(net.now).bundles, 0, "{from}");
    }
    assert_eq!(net.delivered(3), [&b"data"[..]]);
    net.pass(Duration::from_secs(60));
    assert!(net.offer(2, 4).is_none(), "it waits for no signal");
}

#[test]
fn a_record_under_custody_is_signalled_and_not_sent_again() {
    const ADMINISTRATIVE: u64 = 0x2;
    let unknown = vec![0x82, 9, 0];
    let inside = bundle(&primary(0, 1, ipn(3, SERVICE)), &[], b"data");
    let mut bpdu = vec![0x82, 7, 0x83, 0, 0];
    write_head(&mut bpdu, BYTES, inside.len() as u64);
    bpdu.extend(&inside);
    for (content, delivered) in [(unknown, 0), (bpdu, 1)] {
        // Node 1 does not support custody; 2 takes it for it.
        let [one, mut two, mut three] = [node(1), node(2), node(3)];
        two.served = [NeighbourId(1)].into();
        three.routes = vec![route(1, 2)];
        let mut net = Net::of([one, two, three]);
        let record = bundle(&primary(ADMINISTRATIVE, 1, ipn(3, 0)), &[], &content);
        let taken = net.agents[1].receive(net.now, NeighbourId(1), BULK, record);
        taken.unwrap();
        net.carry(1, 2);
        assert_eq!(net.delivered(2).len(), delivered);
        let kept = net.agents[1].custody(net.now).bundles;
        assert_eq!(kept, 1, "until it is signalled");
        net.signal(2, 1);
        assert_eq!(net.agents[1].custody(net.now).bundles, 0);
        net.pass(Duration::from_secs(10));
        assert!(net.offer(1, 3).is_none());
    }
}
