//! Long bundles for which a neighbour has no room: how they wait at the sender, and when
//! they are refused.

use std::time::Duration;

use bytes::Bytes;
use underpass_bundle::wire::ipn;
use underpass_bundle::{NeighbourId, Reject, Send};
use underpass_cla::{Outcome, Refusal};

use crate::long::{APPLICATION, BYTES, Files, content, files, judged, offer, pair, raw, to};
use crate::net::{BULK, Net, SERVICE, node};

/// The first node sends `count` long bundles.
fn send_long(net: &mut Net, files: &Files, count: usize) {
    for _ in 0..count {
        let file = files.write(&content());
        let sent = net.agents[0].send_file(net.now, to(2, APPLICATION), file);
        sent.unwrap();
    }
}

#[test]
fn a_neighbour_without_room_for_it_is_offered_other_bundles_meanwhile() {
    let (mut net, files) = (pair(), files());
    let file = files.write(&content());
    let send = to(2, APPLICATION);
    net.agents[0].send_file(net.now, send, file).unwrap();
    let first = offer(&mut net, true).unwrap();
    net.finish(0, &first, Outcome::Refused(Refusal::NoResources));
    assert!(!net.agents[0].is_paused(NeighbourId(2)));
    assert!(offer(&mut net, true).is_none(), "not at once");
    net.send(0, 2, b"short").unwrap();
    assert!(offer(&mut net, true).unwrap().file.is_none());
    net.pass(Duration::from_secs(300));
    assert!(offer(&mut net, true).unwrap().file.is_some());
}

#[test]
fn long_bundles_wait_together_until_the_neighbour_takes_one() {
    let (mut net, files) = (pair(), files());
    send_long(&mut net, &files, 4);
    let (first, second) = (offer(&mut net, true), offer(&mut net, true));
    let no_room = Outcome::Refused(Refusal::NoResources);
    net.finish(0, &first.unwrap(), no_room);
    assert!(offer(&mut net, true).is_none(), "there is no room for them");
    net.send(0, 2, b"short").unwrap();
    let short = offer(&mut net, true).unwrap();
    assert!(short.file.is_none());
    net.finish(0, &short, Outcome::Acknowledged);
    assert!(offer(&mut net, true).is_none(), "a short one tells nothing");
    net.finish(0, &second.unwrap(), Outcome::Acknowledged);
    for _ in 0..2 {
        assert!(offer(&mut net, true).is_some());
    }
}

#[test]
fn a_neighbour_without_room_refuses_few_long_bundles() {
    let (mut net, files) = (pair(), files());
    send_long(&mut net, &files, 5);
    let mut refused = 0;
    for _ in 0..600 {
        if let Some(long) = offer(&mut net, true) {
            net.finish(0, &long, Outcome::Refused(Refusal::NoResources));
            refused += 1;
        }
        net.pass(Duration::from_millis(100));
    }
    assert!((5..10).contains(&refused), "{refused}");
}

#[test]
fn a_long_bundle_is_offered_before_others_are_refused_again() {
    let (mut net, files) = (pair(), files());
    send_long(&mut net, &files, 3);
    let elsewhere = files.write(&content()[1..]);
    let sent = net.agents[0].send_file(net.now, to(2, APPLICATION), elsewhere);
    sent.unwrap();
    let mut refused = 0;
    for _ in 0..600 {
        if let Some(long) = offer(&mut net, true) {
            let file = long.file.as_ref();
            if file.is_some_and(|file| file.len() < BYTES as u64) {
                break;
            }
            net.finish(0, &long, Outcome::Refused(Refusal::NoResources));
            refused += 1;
        }
        net.pass(Duration::from_secs(1));
    }
    assert_eq!(refused, 3);
}

#[test]
fn fragments_that_wait_for_room_go_on_as_fragments() {
    const MRU: u64 = 1_400;
    let (mut net, files) = (pair(), files());
    send_long(&mut net, &files, 1);
    net.agents[0].set_takes_files(NeighbourId(2), BULK, true);
    let next = |net: &mut Net| net.agents[0].next_for(net.now, NeighbourId(2), BULK, MRU);
    let first = next(&mut net).expect("a fragment");
    net.finish(0, &first, Outcome::Refused(Refusal::NoResources));
    assert!(next(&mut net).is_none(), "there is no room for the others");
    net.pass(Duration::from_secs(5));
    let mut bytes = 0;
    while let Some(offer) = next(&mut net) {
        bytes += offer.file.as_ref().map_or(0, |file| file.len());
        net.finish(0, &offer, Outcome::Acknowledged);
    }
    assert_eq!(bytes, BYTES as u64);
}

#[test]
fn a_long_bundle_in_memory_that_is_refused_waits_by_itself() {
    let mut net = pair();
    net.send(0, 2, &vec![7; 3 << 20]).unwrap();
    for _ in 0..2 {
        let long = offer(&mut net, true).unwrap();
        net.finish(0, &long, Outcome::Refused(Refusal::NoResources));
        assert!(!net.agents[0].is_paused(NeighbourId(2)));
        assert!(offer(&mut net, true).is_none(), "not at once");
        let short = Send {
            payload: vec![Bytes::from_static(b"short")],
            ..to(2, SERVICE)
        };
        net.agents[0].send(net.now, short).unwrap();
        let short = offer(&mut net, true).unwrap();
        assert!(short.chunks.iter().map(Bytes::len).sum::<usize>() < 1_000);
        net.finish(0, &short, Outcome::Acknowledged);
        net.pass(Duration::from_secs(60));
    }
    assert!(offer(&mut net, true).is_some());
}

#[test]
fn one_for_which_a_relay_has_no_room_is_refused_before_its_payload_comes() {
    let files = files();
    let mut relay = node(2);
    relay.store_bundles = 10;
    let mut net = Net::of([node(1), relay]);
    net.agents[1].neighbour_up(net.now, NeighbourId(3));
    send_long(&mut net, &files, 1);
    let mut decoder = net.agents[1].decoder().long();
    let long = offer(&mut net, true).unwrap();
    decoder.take(raw(&long).slice(..500)).unwrap();
    let mut bundle = decoder.opened().unwrap().0.clone();
    bundle.primary.destination = ipn(3, APPLICATION);
    let judge = |net: &mut Net| {
        let (now, from) = (net.now, NeighbourId(1));
        net.agents[1].judge_long(now, from, BULK, &bundle)
    };
    assert_eq!(judge(&mut net), Ok(()));
    while net.send(1, 3, b"short").is_ok() {}
    assert_eq!(judge(&mut net), Err(Reject::NoResources));
}

#[test]
fn one_for_a_service_that_has_enough_is_refused_before_its_payload_comes() {
    let (mut net, files) = (pair(), files());
    send_long(&mut net, &files, 1);
    let long = offer(&mut net, true).unwrap();
    net.finish(0, &long, Outcome::Acknowledged);
    let raw = raw(&long);
    for _ in 0..5 {
        assert_eq!(judged(&mut net, &raw), Ok(()));
        let short = vec![Bytes::from_static(b"short")];
        net.send_pieces(0, 2, APPLICATION, short).unwrap();
        net.carry(0, 1);
    }
    // The node has no more room than what it leaves free.
    assert_eq!(judged(&mut net, &raw), Err(Reject::NoResources));
}
