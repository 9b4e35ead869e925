//! Fragmentation for neighbours with a limit, and reassembly at the destination, also of
//! hostile fragments.

use std::time::Duration;

use crate::bibe::{bpdu, part};
use crate::net::{BULK, Net, SERVICE, bundle, node, primary};
use bytes::Bytes;
use underpass_bundle::wire::{Malformed, decode, ipn};
use underpass_bundle::{DeleteReason, Event, NeighbourId, Offer, Reject, Send};
use underpass_cla::Outcome;

/// The longest bundle that the second node's convergence layer takes, bytes.
const MRU: u64 = 2_000;

fn pair() -> Net {
    Net::of([node(1), node(2)])
}

fn content(bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(bytes as u64);
    (0..bytes).map(|_| random.u8(..)).collect()
}

fn send(net: &mut Net, bytes: &[u8], custody: bool) {
    let pieces = bytes.chunks(1_500).map(Bytes::copy_from_slice);
    let send = Send {
        lifetime: Some(Duration::from_secs(300)),
        custody,
        ..Send::new(ipn(2, SERVICE), SERVICE, BULK, pieces.collect())
    };
    net.agents[0].send(net.now, send).unwrap();
}

/// All bundles that the first node offers to a neighbour with this limit; each is
/// acknowledged.
fn offers(net: &mut Net, mru: u64) -> Vec<Offer> {
    let mut offers = Vec::new();
    while let Some(offer) = net.agents[0].next_for(net.now, NeighbourId(2), BULK, mru) {
        let bytes: usize = offer.chunks.iter().map(Bytes::len).sum();
        assert!(bytes as u64 <= mru);
        net.finish(0, &offer, Outcome::Acknowledged);
        offers.push(offer);
    }
    offers
}

/// The fragments of a bundle of `bytes`, and its content.
fn fragments(net: &mut Net, bytes: usize) -> (Vec<Bytes>, Vec<u8>) {
    let whole = content(bytes);
    send(net, &whole, false);
    let offers = offers(net, MRU);
    assert!(offers.len() > 3, "{}", offers.len());
    let raw = offers.into_iter().map(|offer| offer.chunks.concat().into());
    (raw.collect(), whole)
}

fn arrive(net: &mut Net, raw: &Bytes) -> Result<(), Reject> {
    let from = NeighbourId(1);
    net.agents[1].receive(net.now, from, BULK, raw.clone())
}

fn left(net: &Net, at: usize) -> usize {
    let mut entries = 0;
    net.agents[at].footprint(&mut |name, count| {
        entries += if name.contains("fragment") { count } else { 0 };
    });
    entries
}

#[test]
fn a_bundle_that_is_too_long_goes_in_fragments_and_is_delivered_whole_in_any_order() {
    for seed in 0..20 {
        let mut net = pair();
        let (mut fragments, whole) = fragments(&mut net, 20_000 + seed as usize * 317);
        assert_eq!(net.released(0).len(), 1, "the service is told once");
        fastrand::Rng::with_seed(seed).shuffle(&mut fragments);
        for raw in &fragments {
            assert!(net.delivered(1).is_empty());
            assert_eq!(arrive(&mut net, raw), Ok(()));
        }
        assert_eq!(net.delivered(1), [Bytes::from(whole)]);
        assert_eq!(left(&net, 1), 0);
        // A late fragment is recognised as a duplicate.
        assert_eq!(arrive(&mut net, &fragments[0]), Ok(()));
        assert!(net.delivered(1).is_empty());
        assert_eq!(left(&net, 1), 0);
    }
}

/// The number of bundles that the first node has stored.
fn stored(net: &Net) -> usize {
    net.agents[0].custody(net.now).bundles
}

#[test]
fn few_fragments_are_stored_at_a_time_and_they_go_before_what_came_later() {
    let mut net = pair();
    let wholes: Vec<Vec<u8>> = (0..3).map(|number| content(200_000 + number)).collect();
    for whole in &wholes {
        send(&mut net, whole, false);
    }
    let mut most = 0;
    let mut raw: Vec<Bytes> = Vec::new();
    while let Some(offer) = net.agents[0].next_for(net.now, NeighbourId(2), BULK, MRU) {
        most = most.max(stored(&net));
        net.finish(0, &offer, Outcome::Acknowledged);
        raw.push(offer.chunks.concat().into());
    }
    assert_eq!(stored(&net), 0);
    // Each has more than a hundred fragments; two whole bundles wait meanwhile.
    assert!(raw.len() > 300, "{}", raw.len());
    assert!(most <= 2 + 64 + 1, "{most}");
    let mut delivered = Vec::new();
    for raw in &raw {
        assert_eq!(arrive(&mut net, raw), Ok(()));
        delivered.extend(net.delivered(1));
    }
    assert!(delivered.iter().eq(&wholes), "each is whole, in order");
}

#[test]
fn fragments_of_fragments_and_duplicates_come_together_too() {
    let mut net = Net::of([node(1), node(2), node(3)]);
    let whole = content(9_000);
    send(&mut net, &whole, false);
    // These go by the third node, which gets larger pieces than it may pass on.
    let mut larger = Vec::new();
    while let Some(offer) = net.agents[0].next_for(net.now, NeighbourId(2), BULK, 4_000) {
        net.finish(0, &offer, Outcome::Acknowledged);
        larger.push(offer.chunks.concat());
    }
    for raw in &larger {
        let (now, from) = (net.now, NeighbourId(1));
        net.agents[2]
            .receive(now, from, BULK, raw.clone().into())
            .unwrap();
    }
    let mut smaller = Vec::new();
    while let Some(offer) = net.agents[2].next_for(net.now, NeighbourId(2), BULK, 1_200) {
        net.finish(2, &offer, Outcome::Acknowledged);
        smaller.push(Bytes::from(offer.chunks.concat()));
    }
    assert!(smaller.len() > larger.len());
    // A mixture of both, overlapping, and one of them twice; the first node speaks only
    // for itself.
    for raw in smaller.iter().take(3) {
        assert_eq!(arrive(&mut net, raw), Ok(()));
        assert_eq!(arrive(&mut net, raw), Ok(()));
    }
    for raw in larger {
        assert_eq!(arrive(&mut net, &raw.into()), Ok(()));
    }
    assert_eq!(net.delivered(1), [Bytes::from(whole)]);
    assert_eq!(left(&net, 1), 0);
}

#[test]
fn a_bundle_under_custody_is_never_fragmented() {
    let mut net = pair();
    send(&mut net, &content(20_000), true);
    assert!(offers(&mut net, MRU).is_empty());
    assert_eq!(net.agents[0].custody(net.now).bundles, 1);
    let whole = net.agents[0].next_for(net.now, NeighbourId(2), BULK, 1 << 20);
    let raw: Bytes = whole.expect("it fits").chunks.concat().into();
    let decoder = (&Default::default(), &Default::default());
    let bundle = decode(&raw, decoder.0, decoder.1).unwrap();
    let flags = bundle.primary.bundle_control_flags;
    assert_eq!(flags & 0x04, 0x04, "must not be fragmented");
}

#[test]
fn bundles_that_no_session_takes_hold_up_none_behind_them() {
    const LONG: usize = 300;
    let mut net = pair();
    for _ in 0..LONG {
        send(&mut net, &content(20_000), true);
    }
    send(&mut net, b"short", true);
    let mut offered = None;
    let mut asked = 0;
    while offered.is_none() && asked < 10 {
        offered = net.agents[0].next_for(net.now, NeighbourId(2), BULK, MRU);
        let woken = |event: &Event| {
            matches!(
                event,
                Event::Woken {
                    class: Some(BULK),
                    ..
                }
            )
        };
        let woken = net.events(0).iter().any(woken);
        assert!(offered.is_some() || woken, "it is asked again");
        asked += 1;
    }
    let short: Bytes = offered.expect("the short one").chunks.concat().into();
    assert!(short.len() < 1_000);
    assert!(offers(&mut net, MRU).is_empty());
    // A session with a larger limit gets them all, in order.
    assert_eq!(offers(&mut net, 1 << 20).len(), LONG);
}

#[test]
fn a_neighbour_that_takes_hardly_anything_gets_nothing() {
    let mut net = pair();
    send(&mut net, &content(20_000), false);
    assert!(offers(&mut net, 700).is_empty());
    assert_eq!(net.agents[0].custody(net.now).bundles, 1);
}

#[test]
fn fragments_that_contradict_each_other_are_refused_and_the_first_is_believed() {
    let mut net = pair();
    let (fragments, whole) = fragments(&mut net, 12_000);
    // Another run with the same clock: the same name, but other bytes.
    let mut other = pair();
    other.now = net.now;
    let mut lie = content(12_000);
    lie[4_000] ^= 1;
    send(&mut other, &lie, false);
    let lies: Vec<Bytes> = offers(&mut other, 1_300)
        .into_iter()
        .map(|offer| offer.chunks.concat().into())
        .collect();
    let mut longer = pair();
    longer.now = net.now;
    send(&mut longer, &content(12_001), false);
    let longer = offers(&mut longer, MRU);
    let contradicts = Err(Reject::Malformed(Malformed::Fragment));
    for raw in &fragments[..fragments.len() - 1] {
        assert_eq!(arrive(&mut net, raw), Ok(()));
    }
    // The fragments before the missing one.
    let refused = lies[..lies.len() / 2]
        .iter()
        .filter(|raw| arrive(&mut net, raw) == contradicts);
    assert_eq!(refused.count(), 1, "the one that says something else");
    let total = Bytes::from(longer[0].chunks.concat());
    assert_eq!(
        arrive(&mut net, &total),
        contradicts,
        "another total length"
    );
    arrive(&mut net, &fragments[fragments.len() - 1]).unwrap();
    assert_eq!(net.delivered(1), [Bytes::from(whole)]);
}

#[test]
fn a_fragment_that_lies_outside_its_bundle_is_malformed() {
    let mut net = pair();
    let (fragments, _) = fragments(&mut net, 12_000);
    let last = fragments.last().unwrap();
    // The total length 12,000 is 0x19 0x2E 0xE0; a smaller one ends before it.
    let at = last
        .windows(3)
        .position(|window| window == [0x19, 0x2E, 0xE0])
        .expect("a total length");
    let mut raw = last.to_vec();
    raw[at + 1] = 0x10;
    // Without its CRC nobody would look that far.
    let head = raw[1];
    assert_eq!(head, 0x8B, "11 elements");
    let outcome = arrive(&mut net, &without_crc(&raw));
    assert_eq!(outcome, Err(Reject::Malformed(Malformed::Fragment)));
    assert_eq!(left(&net, 1), 0);
}

/// The same bundle with a primary block of CRC type 0.
fn without_crc(raw: &[u8]) -> Bytes {
    let crc = raw.windows(1).position(|_| true).unwrap();
    let mut out = raw.to_vec();
    // The primary block begins behind the outer array's head.
    out[crc + 1] = 0x8A;
    // Version, flags (one or more bytes), then the CRC type 2.
    let kind = out.iter().skip(3).position(|byte| *byte == 2).unwrap() + 3;
    out[kind] = 0;
    // The CRC's byte string of 4 is the last of the block.
    let end = out.windows(1).enumerate().skip(kind);
    let at = end
        .map(|(at, _)| at)
        .find(|at| out[*at] == 0x44 && out.get(at + 5) == Some(&0x85))
        .expect("a CRC before the next block");
    out.drain(at..at + 5);
    out.into()
}

#[test]
fn a_bundle_that_never_becomes_whole_is_forgotten() {
    let mut net = pair();
    let (fragments, _) = fragments(&mut net, 12_000);
    for raw in &fragments[1..] {
        arrive(&mut net, raw).unwrap();
    }
    assert!(left(&net, 1) > 0);
    net.pass(Duration::from_secs(301));
    assert_eq!(left(&net, 1), 0);
    let undelivered = net.agents[1].custody(net.now).undelivered_bytes;
    assert_eq!(undelivered, 0, "nor is room taken");
}

#[test]
fn a_flood_of_first_fragments_is_bounded_and_leaves_room_for_another_neighbour() {
    let mut net = pair();
    let mut refused = 0;
    for number in 0..30_000_u64 {
        let raw = first_fragment(1, number);
        match arrive(&mut net, &raw) {
            Ok(()) => {}
            Err(Reject::NoResources) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(refused > 10_000, "{refused}");
    assert!(left(&net, 1) < 100_000);
    let (now, other) = (net.now, NeighbourId(9));
    for number in 0..100 {
        let raw = first_fragment(9, number);
        assert_eq!(net.agents[1].receive(now, other, BULK, raw), Ok(()));
    }
    net.pass(Duration::from_secs(601));
    assert_eq!(left(&net, 1), 0);
}

#[test]
fn a_flood_of_one_services_fragments_leaves_room_for_another_service() {
    let mut second = node(2);
    second.services.insert(SERVICE + 1);
    let mut net = Net::of([node(1), second]);
    let taken = (0..30_000).take_while(|number| {
        let raw = first_fragment(1, *number);
        arrive(&mut net, &raw).is_ok()
    });
    let taken = taken.count();
    assert!(taken > 7_000, "{taken}");
    for number in 0..100 {
        let raw = first_fragment_for(SERVICE as u8 + 1, 1, number);
        assert_eq!(arrive(&mut net, &raw), Ok(()));
    }
    net.pass(Duration::from_secs(601));
    assert_eq!(left(&net, 1), 0);
}

#[test]
fn fragments_leave_room_for_bundles_that_are_whole() {
    let mut second = node(2);
    second.store_bytes = 1 << 20;
    let mut net = Net::of([node(1), second]);
    let mut numbers = 0..30_000;
    let full = numbers.find(|number| arrive(&mut net, &first_fragment(1, *number)).is_err());
    assert!(full.is_some());
    send(&mut net, b"whole", true);
    net.carry(0, 1);
    assert_eq!(net.delivered(1), [Bytes::from_static(b"whole")]);
}

/// One byte of a node's bundle, whose total length is given as a thousand.
fn first_fragment(source: u8, sequence: u64) -> Bytes {
    first_fragment_for(SERVICE as u8, source, sequence)
}

fn first_fragment_for(service: u8, source: u8, sequence: u64) -> Bytes {
    let mut raw = vec![0x9F, 0x8A, 0x07, 0x01, 0x00];
    raw.extend([0x82, 0x02, 0x82, 0x02, 0x18, service]);
    raw.extend([0x82, 0x02, 0x82, source, 0x18, 0x40]);
    raw.extend([0x82, 0x01, 0x00]);
    raw.extend([0x82, 0x00, 0x1B]);
    raw.extend(sequence.to_be_bytes());
    // Lifetime of a day, offset 0, total length 1,000.
    raw.extend([0x1A, 0x05, 0x26, 0x5C, 0x00, 0x00, 0x19, 0x03, 0xE8]);
    raw.extend([0x85, 0x01, 0x01, 0x00, 0x00, 0x41, b'x', 0xFF]);
    raw.into()
}

#[test]
fn a_fragment_of_nobody_and_one_for_no_service_are_refused() {
    let mut net = pair();
    let mut nameless = first_fragment(1, 7).to_vec();
    nameless.splice(11..17, [0x82, 0x01, 0x00]);
    let outcome = arrive(&mut net, &nameless.into());
    assert_eq!(outcome, Err(Reject::Malformed(Malformed::Fragment)));
    let mut elsewhere = first_fragment(1, 8).to_vec();
    elsewhere[10] = 0x41;
    assert_eq!(arrive(&mut net, &elsewhere.into()), Ok(()));
    let unavailable = |event: &Event| {
        matches!(
            event,
            Event::Deleted {
                reason: DeleteReason::DestinationUnavailable,
                ..
            }
        )
    };
    assert!(net.events(1).iter().any(unavailable));
    assert_eq!(left(&net, 1), 0);
}

/// A fragment of a bundle of the first node, without CRCs.
fn fragment(sequence: u64, offset: u64, total: u64, payload: &[u8]) -> Bytes {
    let mut raw = vec![0x9F, 0x8A, 0x07, 0x01, 0x00];
    raw.extend([0x82, 0x02, 0x82, 0x02, 0x18, 0x40]);
    raw.extend([0x82, 0x02, 0x82, 0x01, 0x18, 0x40]);
    raw.extend([0x82, 0x01, 0x00]);
    raw.extend([0x82, 0x00, 0x1B]);
    raw.extend(sequence.to_be_bytes());
    raw.extend([0x1A, 0x05, 0x26, 0x5C, 0x00]);
    for number in [offset, total] {
        raw.push(0x1B);
        raw.extend(number.to_be_bytes());
    }
    raw.extend([0x85, 0x01, 0x01, 0x00, 0x00, 0x58, payload.len() as u8]);
    raw.extend(payload);
    raw.push(0xFF);
    raw.into()
}

#[test]
fn a_fragment_costs_the_same_behind_few_and_behind_many() {
    // Every other byte of a long bundle: no two fragments touch.
    let single = |number: u64| fragment(7, 2 * number, 100_000, b"x");
    let cost = |before: u64| {
        let mut net = pair();
        for number in 0..before {
            arrive(&mut net, &single(number)).unwrap();
        }
        underpass_work::of(|| arrive(&mut net, &single(before)).unwrap())
    };
    let (few, many) = (cost(10), cost(1_000));
    assert!(few > 1, "nothing is counted");
    underpass_work::assert_bounded("a fragment", few, many);
}

#[test]
fn whatever_fragments_come_what_is_delivered_is_what_the_first_of_each_byte_said() {
    let mut delivered = 0;
    for seed in 0..400 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut net = pair();
        let truth = content(60);
        // The expected bytes, and the total length in the first fragment.
        let (mut model, mut total) = (vec![None; 60], None);
        for step in 0..60 {
            let offset = random.usize(0..70);
            let mut payload: Vec<u8> = (0..random.usize(0..20))
                .map(|at| truth.get(offset + at).copied().unwrap_or(0))
                .collect();
            if random.u8(0..40) == 0 && !payload.is_empty() {
                let at = random.usize(..payload.len());
                payload[at] ^= 1;
            }
            let says = if random.u8(0..20) == 0 { 59 } else { 60 };
            let end = offset + payload.len();
            let fits = !payload.is_empty() && end <= says;
            let agrees = total.is_none_or(|total| total == says)
                && (offset..end.min(60))
                    .all(|at| model[at].is_none_or(|known| known == payload[at - offset]));
            let raw = fragment(seed, offset as u64, says as u64, &payload);
            let outcome = arrive(&mut net, &raw);
            let expected = match fits && agrees {
                true => Ok(()),
                false => Err(Reject::Malformed(Malformed::Fragment)),
            };
            assert_eq!(outcome, expected, "seed {seed}, step {step}");
            if fits && agrees {
                total.get_or_insert(says);
                for at in offset..end {
                    model[at] = Some(payload[at - offset]);
                }
            }
            let whole: Option<Vec<u8>> = model[..total.unwrap_or(60)].iter().copied().collect();
            assert_eq!(
                net.delivered(1),
                whole
                    .clone()
                    .map(Bytes::from)
                    .into_iter()
                    .collect::<Vec<_>>()
            );
            if whole.is_some() {
                delivered += 1;
                assert_eq!(left(&net, 1), 0);
                break;
            }
        }
    }
    assert!(delivered > 40, "{delivered}");
}

#[test]
fn the_bundle_in_a_bpdu_that_is_whole_is_decoded_without_the_agent() {
    let mut net = pair();
    let inside = bundle(&primary(0, 1, ipn(2, SERVICE)), &[], b"data");
    let content = bpdu(5, &inside);
    let (now, from) = (net.now, NeighbourId(1));
    let agent = &mut net.agents[1];
    let decoder = agent.decoder();
    for range in [0..40, 40..content.len()] {
        assert!(agent.take_unopened().is_none());
        let decoded = decoder.decode(&part(1, &content, range));
        let taken = agent.receive_decoded(now, from, BULK, decoded);
        assert_eq!(taken, Ok(()));
    }
    let unopened = agent.take_unopened().expect("it is whole");
    assert!(net.delivered(1).is_empty());
    let opened = decoder.open_whole(unopened);
    assert_eq!(net.agents[1].receive_opened(now, opened), Ok(()));
    assert_eq!(net.delivered(1), [&b"data"[..]]);
}
