//! Custody by bundle-in-bundle encapsulation (BIBE), as in ION-DTN 4.1.3.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::net::{BULK, LIFETIME, Net, SERVICE, bundle, node, payload, primary, read, route};
use bp7::dtntime::CreationTimestamp;
use bytes::Bytes;
use skipped::recorded::{bytes_of, folder};
use underpass_bundle::wire::{
    ARRAY, BYTES, BibeSignal, Bundle, CborError, CodePoints, Malformed, Reader, Record, UNSIGNED,
    decode_record, ipn, write_head,
};
use underpass_bundle::{
    Agent, Config, CustodyTimer, Event, Forgery, NeighbourId, Offer, Reject, Route, Send,
};
use underpass_cla::{Class, Outcome};

const ADMINISTRATIVE: u64 = 0x2;
const FRAGMENT: u64 = 0x1;

/// A node that sends bundles under custody to its neighbour by BIBE.
fn by_bibe(number: u64, neighbour: u64) -> Config {
    let mut config = node(number);
    config.bibe = [NeighbourId(neighbour)].into();
    config
}

fn pair() -> Net {
    Net::of([by_bibe(1, 2), node(2)])
}

/// The transmission, deadline and bundle in a BPDU.
fn opened(bpdu: &Bundle) -> (u64, u64, Bytes) {
    let mut reader = Reader::new(&bpdu.payload);
    assert_eq!(
        (reader.array().unwrap(), reader.unsigned().unwrap()),
        (Some(2), 7)
    );
    assert_eq!(reader.array().unwrap(), Some(3));
    let (transmission, deadline) = (reader.unsigned().unwrap(), reader.unsigned().unwrap());
    let inside = bpdu.payload.slice_ref(reader.byte_string().unwrap());
    reader.end().unwrap();
    (transmission, deadline, inside)
}

pub fn bpdu(transmission: u64, inside: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for (major, argument) in [
        (ARRAY, 2),
        (UNSIGNED, 7),
        (ARRAY, 3),
        (UNSIGNED, transmission),
        (UNSIGNED, 1_795_208_263),
        (BYTES, inside.len() as u64),
    ] {
        write_head(&mut out, major, argument);
    }
    out.extend(inside);
    out
}

fn signal(disposition: u64, runs: &[(u64, u64)]) -> Vec<u8> {
    let mut out = Vec::new();
    write_head(&mut out, ARRAY, 2);
    write_head(&mut out, UNSIGNED, 8);
    write_head(&mut out, ARRAY, 2);
    write_head(&mut out, UNSIGNED, disposition);
    write_head(&mut out, ARRAY, runs.len() as u64);
    for (first, count) in runs {
        write_head(&mut out, ARRAY, 2);
        write_head(&mut out, UNSIGNED, *first);
        write_head(&mut out, UNSIGNED, *count);
    }
    out
}

/// An administrative bundle from one node to another.
fn record(from: u64, to: u64, content: &[u8]) -> Bytes {
    let mut block = primary(ADMINISTRATIVE, from, ipn(to, 0));
    block.source = ipn(from, 0);
    block.report_to = ipn(from, 0);
    bundle(&block, &[], content)
}

/// A fragment of the first node's administrative bundle of this number to the second, with this
/// range of its content.
pub fn part(number: u64, content: &[u8], range: Range<usize>) -> Bytes {
    let mut block = primary(ADMINISTRATIVE | FRAGMENT, 1, ipn(2, 0));
    block.source = ipn(1, 0);
    block.report_to = ipn(1, 0);
    block.creation_timestamp = CreationTimestamp::with_time_and_seq(1_000, number);
    block.fragmentation_offset = range.start as u64;
    block.total_data_length = content.len() as u64;
    bundle(&block, &[], &content[range])
}

/// Entries that an agent has for fragments.
fn fragments_kept(agent: &Agent) -> usize {
    let mut entries = 0;
    agent.footprint(&mut |name, count| entries += count * usize::from(name.contains("fragment")));
    entries
}

fn hear(net: &mut Net, at: usize, from: u64, raw: Bytes) -> Result<(), Reject> {
    net.agents[at].receive(net.now, NeighbourId(from), BULK, raw)
}

/// The first node's next bundle, which the CL has finished, and its transmission.
fn sent(net: &mut Net) -> (Offer, u64) {
    let offer = net.offer(0, 2).unwrap();
    let (transmission, ..) = opened(&read(&offer.chunks.concat().into()));
    net.finish(0, &offer, Outcome::Acknowledged);
    (offer, transmission)
}

/// The next signal of an agent to a neighbour.
fn signalled(agent: &mut Agent, now: Instant, to: u64) -> Option<Bundle> {
    let offer = agent.next_for(now, NeighbourId(to), Class::SIGNALLING, u64::MAX)?;
    Some(read(&offer.chunks.concat().into()))
}

#[test]
fn a_bundle_under_custody_goes_in_another_and_is_released_by_its_signal() {
    let mut net = pair();
    net.agents[0].set_clock(net.now, 848_523_459_117);
    let id = net.send(0, 2, b"data").unwrap();
    let offer = net.offer(0, 2).unwrap();
    let outer = read(&offer.chunks.concat().into());
    assert!(outer.is_administrative());
    assert_eq!(outer.primary.source, ipn(1, 0));
    assert_eq!(outer.primary.destination, ipn(2, 0));
    assert!(outer.cteb.is_none());
    let (transmission, deadline, inside) = opened(&outer);
    assert!((1..=u64::from(u32::MAX)).contains(&transmission));
    assert_eq!(
        deadline,
        946_684_800 + 848_523_459 + 2,
        "seconds since 1970"
    );
    let inside = read(&inside);
    assert_eq!(inside.primary.destination, ipn(2, SERVICE));
    assert!(inside.cteb.is_none());
    assert_eq!(inside.payload, &b"data"[..]);

    net.arrive(1, 1, &offer);
    net.finish(0, &offer, Outcome::Acknowledged);
    assert_eq!(
        net.released(0),
        [],
        "the CL's acknowledgement alone releases nothing"
    );
    net.signal(1, 0);
    assert_eq!(net.released(0), [id]);
    assert_eq!(net.delivered(1), [&b"data"[..]]);
    assert_eq!(net.agents[0].custody(net.now).used_bytes, 0);
}

#[test]
fn without_custody_and_to_others_a_bundle_goes_as_it_is() {
    let mut config = by_bibe(1, 2);
    config.bibe.insert(NeighbourId(9));
    let mut net = Net::of([config, node(2), node(3)]);
    let plain = Send {
        custody: false,
        ..Send::new(ipn(2, SERVICE), SERVICE, BULK, vec![payload(b"plain")])
    };
    net.agents[0].send(net.now, plain).unwrap();
    net.send(0, 3, b"block").unwrap();
    for (to, cteb) in [(2, false), (3, true)] {
        let offer = net.offer(0, to).unwrap();
        let sent = read(&offer.chunks.concat().into());
        assert!(!sent.is_administrative());
        assert_eq!(sent.cteb.is_some(), cteb);
    }
}

#[test]
fn a_recorded_bpdu_is_opened_forwarded_and_answered_as_ion_answers() {
    let Some(folder) = folder() else {
        return;
    };
    let recorded = |name: &str| Bytes::from(bytes_of(&folder.join("ion").join(name)));
    for (number, size) in [("1", "20"), ("2", "2000")] {
        let mut config = node(3);
        config.routes = vec![route(4, 4)];
        let mut agent = Agent::new(config);
        let now = Instant::now();
        let outer = recorded(&format!("bundle-bibe-bpdu-{size}.hex"));
        agent.receive(now, NeighbourId(2), BULK, outer).unwrap();
        let forwarded = agent.next_for(now, NeighbourId(4), BULK, u64::MAX).unwrap();
        let forwarded = read(&forwarded.chunks.concat().into());
        let inside = read(&recorded(&format!("bundle-bibe-inner-{size}.hex")));
        assert_eq!(forwarded.primary_raw, inside.primary_raw);
        assert_eq!(forwarded.payload, inside.payload);
        assert!(
            forwarded
                .cteb
                .is_some_and(|(_, cteb)| cteb.custodian == ipn(3, 0))
        );
        let later = now + Duration::from_millis(100);
        agent.handle_timeout(later);
        let answer = signalled(&mut agent, later, 2).unwrap();
        let theirs = read(&recorded(&format!("bundle-bibe-signal-{number}.hex")));
        assert_eq!(answer.payload, theirs.payload, "the same bytes");
        assert_eq!(answer.primary.destination, theirs.primary.destination);
        assert_eq!(answer.primary.source, theirs.primary.source);
    }
}

#[test]
fn a_recorded_signal_is_read() {
    let Some(folder) = folder() else {
        return;
    };
    for (name, first) in [
        ("bundle-bibe-signal-1.hex", 1),
        ("bundle-bibe-signal-2.hex", 2),
    ] {
        let raw = Bytes::from(bytes_of(&folder.join("ion").join(name)));
        let record = decode_record(&read(&raw).payload, &CodePoints::default());
        let runs = vec![(first, 1)];
        let disposition = 0;
        assert_eq!(record, Ok(Record::Bibe(BibeSignal { disposition, runs })));
    }
}

/// Two fifths of all bundles are lost, and the link is down at times: each bundle is
/// delivered once, or its lifetime ends and the sender is told.
#[test]
fn what_is_lost_is_sent_again_until_it_is_signalled_or_over() {
    let mut all_released = 0;
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut config = by_bibe(1, 2);
        config.lifetime = Duration::from_secs(120);
        let mut net = Net::of([config, node(2)]);
        let mut ends: BTreeMap<_, Vec<&str>> = BTreeMap::new();
        let mut delivered = Vec::new();
        for number in 0..20_u64 {
            let id = net.send(0, 2, &number.to_be_bytes()).unwrap();
            ends.insert(id, Vec::new());
        }
        for step in 0..400 {
            let loss = if step % 100 < 30 { 1.0 } else { 0.4 };
            while let Some(offer) = net.offer(0, 2) {
                if random.f64() >= loss {
                    net.arrive(1, 1, &offer);
                }
                net.finish(0, &offer, Outcome::Acknowledged);
            }
            let now = net.now;
            let to = NeighbourId(1);
            while let Some(offer) = net.agents[1].next_for(now, to, Class::SIGNALLING, u64::MAX) {
                if random.f64() >= loss {
                    net.arrive(0, 2, &offer);
                }
                net.finish(1, &offer, Outcome::Acknowledged);
            }
            net.pass(Duration::from_millis(500));
            delivered.extend(net.delivered(1));
            for event in net.events(0) {
                match event {
                    Event::Released { id, .. } => ends.get_mut(&id).unwrap().push("released"),
                    Event::GivenUp { id, .. } => ends.get_mut(&id).unwrap().push("given up"),
                    _ => {}
                }
            }
        }
        assert!(
            ends.values().all(|ends| ends.len() == 1),
            "seed {seed}: {ends:?}"
        );
        let released = ends
            .values()
            .filter(|ends| ends[..] == ["released"])
            .count();
        all_released += released;
        let mut once = delivered.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), delivered.len(), "seed {seed}: delivered twice");
        assert!(
            delivered.len() >= released,
            "seed {seed}: released and not delivered"
        );
        assert_eq!(net.agents[0].custody(net.now).bundles, 0);
    }
    assert!(all_released > 200 * 20 / 2, "{all_released}");
}

#[test]
fn it_is_sent_again_under_the_same_number_when_no_signal_comes() {
    let mut net = pair();
    net.send(0, 2, b"data").unwrap();
    let (_, first) = sent(&mut net);
    assert!(net.offer(0, 2).is_none());
    net.pass(CustodyTimer::default().initial);
    let (again, second) = sent(&mut net);
    assert!(again.again);
    assert_eq!(first, second);
}

#[test]
fn a_bundle_that_was_there_before_is_released_and_one_that_was_refused_sent_later() {
    for (disposition, releases) in [(0, true), (3, true), (4, false), (6, false), (99, false)] {
        let mut net = pair();
        let id = net.send(0, 2, b"data").unwrap();
        let (_, transmission) = sent(&mut net);
        let heard = record(2, 1, &signal(disposition, &[(transmission, 1)]));
        hear(&mut net, 0, 2, heard).unwrap();
        let released = if releases { vec![id] } else { vec![] };
        assert_eq!(net.released(0), released, "{disposition}");
        assert!(net.offer(0, 2).is_none(), "not at once");
        net.pass(Duration::from_secs(2));
        assert_eq!(net.offer(0, 2).is_some(), !releases, "{disposition}");
    }
}

#[test]
fn a_signal_that_names_what_was_not_sent_counts_for_nothing() {
    let mut net = pair();
    for _ in 0..3 {
        net.send(0, 2, b"data").unwrap();
    }
    let first = sent(&mut net).1;
    let last = (0..2).map(|_| sent(&mut net).1).max().unwrap();
    assert_eq!(last, first + 2);
    for lie in [
        &[(1, u64::from(u32::MAX))][..],
        &[(1, u64::MAX)],
        &[(first, 4)],
        &[(first - 1, 2)],
        &[(first, 0)],
        &[(0, 1)],
        &[(u64::MAX, u64::MAX)],
        // One false run among true ones.
        &[(first, 1), (last + 1, 1)],
    ] {
        hear(&mut net, 0, 2, record(2, 1, &signal(0, lie))).unwrap();
        assert_eq!(net.released(0), [], "{lie:?}");
        let forged = net.events(0).into_iter().any(|event| {
            matches!(
                event,
                Event::Forged {
                    forgery: Forgery::Signal,
                    ..
                }
            )
        });
        assert!(forged, "{lie:?} is told");
    }
    hear(&mut net, 0, 2, record(2, 1, &signal(0, &[(first, 3)]))).unwrap();
    assert_eq!(net.released(0).len(), 3);
}

#[test]
fn nobody_else_signals_for_the_neighbour() {
    let mut config = by_bibe(1, 2);
    config.bibe.insert(NeighbourId(3));
    let mut net = Net::of([config, node(2), node(3)]);
    net.send(0, 2, b"data").unwrap();
    let (_, transmission) = sent(&mut net);
    let runs = [(transmission, 1)];
    // The third node signals in its own name, and in the second one's.
    hear(&mut net, 0, 3, record(3, 1, &signal(0, &runs))).unwrap();
    let outcome = hear(&mut net, 0, 3, record(2, 1, &signal(0, &runs)));
    assert_eq!(outcome, Err(Forgery::Source.into()));
    assert_eq!(net.released(0), []);
    // Nor does a bundle of the third node cause a signal to another node.
    let inside = bundle(&primary(0, 3, ipn(1, SERVICE)), &[], b"data");
    let outcome = hear(&mut net, 0, 3, record(2, 1, &bpdu(1, &inside)));
    assert_eq!(outcome, Err(Forgery::Source.into()));
}

#[test]
fn a_neighbour_cannot_say_in_a_bpdu_what_it_cannot_say_itself() {
    let mut net = pair();
    let inside = bundle(&primary(0, 7, ipn(2, SERVICE)), &[], b"data");
    let outcome = hear(&mut net, 1, 1, record(1, 2, &bpdu(1, &inside)));
    assert_eq!(outcome, Err(Forgery::Source.into()));
    net.pass(Duration::from_millis(100));
    let now = net.now;
    assert!(signalled(&mut net.agents[1], now, 1).is_none());
}

#[test]
fn a_bpdu_that_is_none_is_refused_with_its_reason() {
    let mut net = pair();
    let good = bundle(&primary(0, 1, ipn(2, SERVICE)), &[], b"data");
    let whole = bpdu(1, &good);
    for end in 2..whole.len() {
        let outcome = hear(&mut net, 1, 1, record(1, 2, &whole[..end]));
        assert!(
            matches!(outcome, Err(Reject::Malformed(_))),
            "{end}: {outcome:?}"
        );
    }
    let trailing = [&whole[..], &[0]].concat();
    let outcome = hear(&mut net, 1, 1, record(1, 2, &trailing));
    assert_eq!(outcome, Err(Malformed::Cbor(CborError::WrongCount).into()));
    // A length of nearly 2⁶⁴ takes no memory.
    let mut lies = whole[..whole.len() - good.len() - 2].to_vec();
    write_head(&mut lies, BYTES, u64::MAX - 1);
    lies.extend(&good);
    let outcome = hear(&mut net, 1, 1, record(1, 2, &lies));
    assert!(matches!(outcome, Err(Reject::Malformed(_))), "{outcome:?}");
    // A bundle in a bundle in a bundle, and hundreds of nested ones.
    let mut nested = record(1, 2, &bpdu(1, &record(1, 2, &whole)));
    assert_eq!(
        hear(&mut net, 1, 1, nested.clone()),
        Err(Malformed::Nested.into())
    );
    for _ in 0..500 {
        nested = record(1, 2, &bpdu(1, &nested));
    }
    assert_eq!(hear(&mut net, 1, 1, nested), Err(Malformed::Nested.into()));
    assert_eq!(net.delivered(1), [&b""[..]; 0]);
    net.pass(Duration::from_millis(100));
    let now = net.now;
    assert!(
        signalled(&mut net.agents[1], now, 1).is_none(),
        "and custody of none is taken"
    );
}

#[test]
fn a_bpdu_that_a_relay_has_cut_is_opened_once_it_is_whole() {
    let mut net = pair();
    let data = vec![7; 100_000];
    let content = bpdu(5, &bundle(&primary(0, 1, ipn(2, SERVICE)), &[], &data));
    for range in [60_000..content.len(), 0..20_000, 10_000..60_000] {
        assert!(net.delivered(1).is_empty());
        hear(&mut net, 1, 1, part(1, &content, range)).unwrap();
    }
    assert_eq!(net.delivered(1), [Bytes::from(data)]);
    // A duplicate that comes late is not kept.
    hear(&mut net, 1, 1, part(1, &content, 0..20_000)).unwrap();
    assert_eq!(fragments_kept(&net.agents[1]), 0);
    net.pass(Duration::from_millis(100));
    let now = net.now;
    let answer = signalled(&mut net.agents[1], now, 1).unwrap();
    assert_eq!(answer.payload, signal(0, &[(5, 1)])[..]);
    // So is any other record, and one that is none is malformed.
    let record = signal(0, &[(1, 1)]);
    for range in [0..3, 3..record.len()] {
        hear(&mut net, 1, 1, part(2, &record, range)).unwrap();
    }
    let unsent = |event: &Event| match event {
        Event::Forged { forgery, .. } => *forgery == Forgery::Signal,
        _ => false,
    };
    assert!(net.events(1).iter().any(unsent), "the signal was read");
    let outcome = hear(&mut net, 1, 1, part(3, &[0xFF; 9], 0..9));
    assert!(matches!(outcome, Err(Reject::Malformed(_))), "{outcome:?}");
}

#[test]
fn fragments_of_records_that_never_become_whole_take_no_more_than_others() {
    let mut net = pair();
    let first = |from: u64, sequence| {
        let mut block = primary(ADMINISTRATIVE | FRAGMENT, from, ipn(2, 0));
        block.creation_timestamp = CreationTimestamp::with_time_and_seq(1_000, sequence);
        block.total_data_length = 1_000;
        bundle(&block, &[], b"x")
    };
    let mut refused = 0;
    for sequence in 0..30_000 {
        match hear(&mut net, 1, 1, first(1, sequence)) {
            Ok(()) => {}
            Err(Reject::NoResources) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(refused > 10_000, "{refused}");
    assert!(fragments_kept(&net.agents[1]) < 100_000);
    for sequence in 0..100 {
        hear(&mut net, 1, 9, first(9, sequence)).unwrap();
    }
    net.pass(LIFETIME);
    assert_eq!(fragments_kept(&net.agents[1]), 0);
}

#[test]
fn bpdus_in_fragments_are_not_opened_in_each_other() {
    let mut net = pair();
    let mut content = bpdu(1, &bundle(&primary(0, 1, ipn(2, SERVICE)), &[], b"data"));
    for _ in 0..100 {
        let whole = 0..content.len();
        content = bpdu(0, &part(1, &content, whole));
    }
    let whole = 0..content.len();
    let outcome = hear(&mut net, 1, 1, part(1, &content, whole));
    assert_eq!(outcome, Err(Malformed::Nested.into()));
    assert!(net.delivered(1).is_empty());
}

#[test]
fn what_is_not_taken_is_not_signalled_and_asks_for_nothing_without_a_number() {
    let mut net = pair();
    // There is no such service. If ION were told so, it would send the bundle again at
    // once.
    let deaf = bundle(&primary(0, 1, ipn(2, 9)), &[], b"data");
    hear(&mut net, 1, 1, record(1, 2, &bpdu(1, &deaf))).unwrap();
    let good = bundle(&primary(0, 1, ipn(2, SERVICE)), &[], b"data");
    hear(&mut net, 1, 1, record(1, 2, &bpdu(0, &good))).unwrap();
    net.pass(Duration::from_secs(1));
    let now = net.now;
    assert!(signalled(&mut net.agents[1], now, 1).is_none());
    assert_eq!(net.delivered(1), [&b"data"[..]]);
}

/// Node 1 sends by BIBE to node 2, which forwards to node 3, with or without custody.
fn row(take_custody: bool) -> Net {
    let route = |to, via, take_custody| Route {
        nodes: to..=to,
        neighbour: NeighbourId(via),
        take_custody,
    };
    let [mut one, mut two, mut three] = [by_bibe(1, 2), node(2), node(3)];
    one.routes = vec![route(3, 2, true)];
    two.routes = vec![route(3, 3, take_custody)];
    three.routes = vec![route(1, 2, true)];
    Net::of([one, two, three])
}

#[test]
fn custody_of_what_is_forwarded_ends_with_this_node() {
    for take_custody in [true, false] {
        let mut net = row(take_custody);
        let id = net.send(0, 3, b"data").unwrap();
        let (offer, _) = sent(&mut net);
        net.arrive(1, 1, &offer);
        net.signal(1, 0);
        assert_eq!(net.released(0), [id]);
        let onward = net.offer(1, 3).unwrap();
        let forwarded = read(&onward.chunks.concat().into());
        assert_eq!(forwarded.cteb.is_some(), take_custody);
        net.arrive(2, 2, &onward);
        assert_eq!(net.delivered(2), [&b"data"[..]]);
    }
}

#[test]
fn a_bundle_with_a_custodian_of_its_own_is_signalled_to_both() {
    let mut net = row(true);
    net.agents[0].set_bibe([].into());
    net.send(0, 3, b"data").unwrap();
    let with_block = net.offer(0, 2).unwrap().chunks.concat();
    hear(&mut net, 1, 1, record(1, 2, &bpdu(5, &with_block))).unwrap();
    net.pass(Duration::from_millis(100));
    let mut records = Vec::new();
    let now = net.now;
    while let Some(bundle) = signalled(&mut net.agents[1], now, 1) {
        records.push(decode_record(&bundle.payload, &CodePoints::default()).unwrap());
    }
    let bibe = |record: &Record| matches!(record, Record::Bibe(s) if s.runs == [(5, 1)]);
    let block = |record: &Record| matches!(record, Record::Custody(_));
    assert!(
        records.iter().any(bibe) && records.iter().any(block),
        "{records:?}"
    );
}

#[test]
fn a_bpdu_for_another_node_passes_as_any_record() {
    let mut net = row(true);
    let good = bundle(&primary(0, 1, ipn(3, SERVICE)), &[], b"data");
    hear(&mut net, 1, 1, record(1, 3, &bpdu(5, &good))).unwrap();
    let offer = net.offer(1, 3).unwrap();
    assert!(read(&offer.chunks.concat().into()).is_administrative());
    net.arrive(2, 2, &offer);
    assert_eq!(net.delivered(2), [&b"data"[..]]);
    net.pass(Duration::from_millis(100));
    let now = net.now;
    let answer = signalled(&mut net.agents[2], now, 2).unwrap();
    assert_eq!(answer.primary.destination, ipn(1, 0));
}

#[test]
fn a_bpdu_lives_no_longer_than_the_bundle_in_it() {
    let mut net = pair();
    net.agents[1].set_bibe([NeighbourId(1)].into());
    let mut config = by_bibe(1, 2);
    config.lifetime = LIFETIME;
    net.agents[0] = Agent::new(config);
    let now = net.now;
    net.agents[0].neighbour_up(now, NeighbourId(2));
    net.send(0, 2, b"data").unwrap();
    net.pass(Duration::from_secs(20));
    let offer = net.offer(0, 2).unwrap();
    let outer = read(&offer.chunks.concat().into());
    assert_eq!(outer.primary.lifetime, LIFETIME - Duration::from_secs(20));
    assert!(!outer.primary.has_fragmentation());
}
