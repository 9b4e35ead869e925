//! Payloads on disk: bundles that are sent and received with a file handle instead of the
//! bytes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::net::{BULK, Net, SERVICE, bundle, node};
use bp7::primary::PrimaryBlock;
use bytes::Bytes;
use underpass_bundle::wire::{
    Bundle, CodePoints, Content, CrcKind, DecodeLimits, Eid, Extension, decode, encode_primary, ipn,
};
use underpass_bundle::{
    Amount, Applications, Decoded, DeleteReason, Event, Following, Forgery, Insecure, LongDecoding,
    NeighbourId, Offer, OwnNames, Reject, Relaying, Secured, Security, Send, SendError,
};
use underpass_cla::Outcome;
use underpass_payloads::{Limits, PayloadFile, Payloads};

pub const APPLICATION: u64 = 40;
pub const BYTES: usize = 100_000;

pub struct Files {
    payloads: Arc<Payloads>,
    _folder: tempfile::TempDir,
}

pub fn files() -> Files {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits {
        quota_bytes: 1 << 20,
        payload_bytes: 1 << 20,
        leave_free_bytes: 0,
    };
    Files {
        payloads: Payloads::open(folder.path(), limits).unwrap(),
        _folder: folder,
    }
}

impl Files {
    pub fn write(&self, content: &[u8]) -> Arc<PayloadFile> {
        let bytes = content.len() as u64;
        let mut writer = self.payloads.reserve(1, bytes).unwrap().begin(bytes);
        writer.as_mut().unwrap().write(content).unwrap();
        writer.unwrap().finish().unwrap()
    }
}

pub fn content() -> Vec<u8> {
    (0..BYTES).map(|i| (i % 255) as u8).collect()
}

fn read(file: &PayloadFile) -> Vec<u8> {
    let mut content = vec![0; BYTES];
    file.read_at(&mut content, 0).unwrap();
    content
}

/// Two nodes; the second one has applications and a name.
pub fn pair() -> Net {
    let mut second = node(2);
    let most = Amount {
        bytes: 1 << 20,
        bundles: 10,
    };
    let services = vec![APPLICATION..=APPLICATION];
    let applications = Applications::new(services, [SERVICE].into(), None, most);
    second.applications = Some(Arc::new(applications));
    second.names = Arc::new(OwnNames::new("edge-2", Vec::new()));
    Net::of([node(1), second])
}

pub fn to(node: u64, service: u64) -> Send {
    Send {
        custody: false,
        ..Send::new(ipn(node, service), SERVICE, BULK, Vec::new())
    }
}

/// The first node's next bundle, for a session that takes files or one that does not.
pub fn offer(net: &mut Net, takes_files: bool) -> Option<Offer> {
    net.agents[0].set_takes_files(NeighbourId(2), BULK, takes_files);
    net.offer(0, 2)
}

/// The bundle in its encoding.
pub fn raw(offer: &Offer) -> Bytes {
    let file = offer.file.as_ref().map(|file| read(file));
    let (head, tail) = offer.chunks.split_first().unwrap();
    [&head[..], &file.unwrap(), &tail.concat()].concat().into()
}

fn decoded(decoder: LongDecoding, files: &Files, raw: &Bytes) -> Decoded {
    let mut decoder = decoder;
    let mut payload = Vec::new();
    for piece in raw.chunks(30_000) {
        payload.extend(decoder.take(raw.slice_ref(piece)).unwrap());
    }
    let bundle = decoder.finish(files.write(&payload)).unwrap();
    Decoded::long(raw.len() as u64, bundle)
}

/// The second node receives a bundle the way it receives long ones.
fn arrive(net: &mut Net, files: &Files, raw: &Bytes) {
    let decoder = net.agents[1].decoder().long();
    let decoded = decoded(decoder, files, raw);
    let taken = net.agents[1].receive_decoded(net.now, NeighbourId(1), BULK, decoded);
    taken.unwrap();
}

/// The second node's verdict on a bundle of its neighbour before the payload has come.
pub fn judged(net: &mut Net, raw: &Bytes) -> Result<(), Reject> {
    let mut decoder = net.agents[1].decoder().long();
    decoder.take(raw.slice(..500)).unwrap();
    let (bundle, bytes) = decoder.opened().unwrap();
    assert_eq!(bytes, BYTES as u64);
    net.agents[1].judge_long(net.now, NeighbourId(1), BULK, bundle)
}

#[test]
fn a_payload_on_disk_is_offered_only_where_it_can_be_sent_and_arrives_as_a_file() {
    let (mut net, files) = (pair(), files());
    let before = net.agents[0].quota_left_bytes(NeighbourId(2));
    let file = files.write(&content());
    let sent = net.agents[0].send_file(net.now, to(2, APPLICATION), file);
    let sent = sent.unwrap();
    assert!(before - net.agents[0].quota_left_bytes(NeighbourId(2)) < 10_000);
    assert!(offer(&mut net, false).is_none());
    // A bundle in memory behind it does not wait for it.
    net.send(0, 2, b"short").unwrap();
    let short = offer(&mut net, false).unwrap();
    assert!(short.file.is_none());
    net.finish(0, &short, Outcome::Acknowledged);
    let long = offer(&mut net, true).unwrap();
    arrive(&mut net, &files, &raw(&long));
    let delivery = net.deliveries(1).pop().unwrap();
    assert!(
        delivery.payload.is_empty() && delivery.ticket.is_none(),
        "no custody"
    );
    assert!(read(&delivery.file.unwrap()) == content());
    net.finish(0, &long, Outcome::Acknowledged);
    drop(long);
    assert_eq!(net.released(0), [sent]);
    assert_eq!(files.payloads.used(), (0, 0));
}

#[test]
fn without_custody_it_goes_in_fragments_where_the_neighbour_takes_less() {
    const MRU: u64 = 30_000;
    let (mut net, files) = (pair(), files());
    let file = files.write(&content());
    net.agents[0]
        .send_file(net.now, to(2, APPLICATION), file)
        .unwrap();
    net.agents[0].set_takes_files(NeighbourId(2), BULK, true);
    let mut fragments = 0;
    while let Some(offer) = net.agents[0].next_for(net.now, NeighbourId(2), BULK, MRU) {
        let file = offer.file.as_ref().expect("a part of the file");
        let mut part = vec![0; file.len() as usize];
        file.read_at(&mut part, 0).unwrap();
        let (head, tail) = offer.chunks.split_first().unwrap();
        let raw: Bytes = [&head[..], &part, &tail.concat()].concat().into();
        assert!(raw.len() as u64 <= MRU);
        let taken = net.agents[1].receive(net.now, NeighbourId(1), BULK, raw);
        assert_eq!(taken, Ok(()));
        net.finish(0, &offer, Outcome::Acknowledged);
        fragments += 1;
    }
    assert_eq!(fragments, 4);
    let delivery = net.deliveries(1).pop().unwrap();
    assert!(delivery.payload == content());
    assert_eq!(files.payloads.used(), (0, 0));
}

#[test]
fn what_is_left_of_it_goes_undivided_once_a_session_takes_that() {
    let (mut net, files) = (pair(), files());
    let file = files.write(&content());
    net.agents[0]
        .send_file(net.now, to(2, APPLICATION), file)
        .unwrap();
    let (now, via) = (net.now, NeighbourId(2));
    net.agents[0].set_takes_files(via, BULK, true);
    let mut mru = 1_400;
    let mut parts = Vec::new();
    while let Some(offer) = net.agents[0].next_for(now, via, BULK, mru) {
        net.finish(0, &offer, Outcome::Acknowledged);
        parts.push(offer.file.expect("a part of the file").len());
        // The other path is back.
        mru = 1 << 20;
    }
    assert_eq!(parts.iter().sum::<u64>(), BYTES as u64);
    let (rest, few) = parts.split_last().unwrap();
    assert_eq!(few.len(), 64);
    assert!(*rest > 10_000, "{rest}");
}

#[test]
fn what_a_session_by_another_path_takes_whole_is_not_fragmented() {
    let (mut net, files) = (pair(), files());
    let file = files.write(&content());
    net.agents[0]
        .send_file(net.now, to(2, APPLICATION), file)
        .unwrap();
    let (now, via) = (net.now, NeighbourId(2));
    net.agents[0].set_takes_files(via, BULK, true);
    net.agents[0].set_taken_elsewhere(via, BULK, 1 << 20);
    assert!(net.agents[0].next_for(now, via, BULK, 30_000).is_none());
    let whole = net.agents[0].next_for(now, via, BULK, 1 << 20);
    let file = whole.expect("it fits").file.expect("the file");
    assert_eq!(file.len(), BYTES as u64);
}

#[test]
fn under_custody_it_is_kept_until_the_application_has_it_and_the_signal_has_come() {
    let (mut net, files) = (pair(), files());
    let file = files.write(&content());
    let send = Send {
        custody: true,
        ..to(2, APPLICATION)
    };
    let sent = net.agents[0].send_file(net.now, send, file).unwrap();
    let long = offer(&mut net, true).unwrap();
    arrive(&mut net, &files, &raw(&long));
    net.finish(0, &long, Outcome::Acknowledged);
    let delivery = net.deliveries(1).pop().unwrap();
    assert!(read(&delivery.file.unwrap()) == content());
    net.pass(Duration::from_millis(200));
    net.carry_signals(1, 0);
    assert!(net.released(0).is_empty(), "the application has not");
    net.agents[1].confirm(net.now, delivery.ticket.unwrap());
    net.pass(Duration::from_millis(200));
    net.carry_signals(1, 0);
    assert_eq!(net.released(0), [sent]);
    drop(long);
    assert_eq!(files.payloads.used(), (0, 0));
}

#[test]
fn it_is_the_same_bundle_on_the_wire_as_one_from_memory() {
    let (mut net, files) = (pair(), files());
    let file = files.write(&content());
    let send = to(2, APPLICATION);
    net.agents[0].send_file(net.now, send, file).unwrap();
    let raw = raw(&offer(&mut net, true).unwrap());
    // The decoder for whole bundles verifies the CRCs.
    let taken = net.agents[1].receive(net.now, NeighbourId(1), BULK, raw);
    taken.unwrap();
    assert!(net.deliveries(1).pop().unwrap().payload[..] == content());
}

#[test]
fn a_broken_transfer_is_offered_again() {
    let (mut net, files) = (pair(), files());
    let file = files.write(&content());
    let send = to(2, APPLICATION);
    net.agents[0].send_file(net.now, send, file).unwrap();
    let first = offer(&mut net, true).unwrap();
    let broken = Outcome::Broken {
        acknowledged: 50_000,
    };
    net.finish(0, &first, broken);
    let again = offer(&mut net, true).unwrap();
    assert_eq!(again.resume.unwrap().offset, 50_000);
    assert!(raw(&again) == raw(&first));
}

#[test]
fn what_cannot_be_done_with_it_is_refused() {
    let (mut net, files) = (pair(), files());
    let own = net.agents[0].send_file(net.now, to(1, SERVICE), files.write(b"own"));
    assert_eq!(own, Err(SendError::OnDisk));
    // The node's own services take only payloads in memory.
    let file = files.write(&content());
    net.agents[0]
        .send_file(net.now, to(2, SERVICE), file)
        .unwrap();
    let obstacle = net.agents[0].lasting_obstacle();
    assert!(obstacle.is_some());
    assert_eq!(net.agents[0].handover_obstacle(), obstacle);
    let long = offer(&mut net, true).unwrap();
    arrive(&mut net, &files, &raw(&long));
    let refused = net.events(1).into_iter().any(|event| {
        let reason = DeleteReason::DepletedStorage;
        matches!(event, Event::Deleted { reason: told, .. } if told == reason)
    });
    assert!(refused);
    net.finish(0, &long, Outcome::Acknowledged);
    drop(long);
    net.events(0);
    assert!(net.agents[0].handover_obstacle().is_none());
    assert_eq!(files.payloads.used(), (0, 0));
}

#[test]
fn it_is_judged_before_its_payload_comes() {
    let (mut net, files) = (pair(), files());
    net.events(1);
    let raw_to = |net: &mut Net, send: Send| {
        let file = files.write(&content());
        net.agents[0].send_file(net.now, send, file).unwrap();
        let offer = offer(net, true).unwrap();
        net.finish(0, &offer, Outcome::Acknowledged);
        raw(&offer)
    };
    let wanted = raw_to(&mut net, to(2, APPLICATION));
    assert_eq!(judged(&mut net, &wanted), Ok(()));
    let unwanted = |reason| -> Result<(), Reject> { Err(Reject::Unwanted(reason)) };
    // The node's own services take only payloads in memory, and there is no other
    // service.
    let service = raw_to(&mut net, to(2, SERVICE));
    let refused = unwanted(DeleteReason::DepletedStorage);
    assert_eq!(judged(&mut net, &service), refused);
    let nobody = raw_to(&mut net, to(2, 99));
    let refused = unwanted(DeleteReason::DestinationUnavailable);
    assert_eq!(judged(&mut net, &nobody), refused);
    // Only the neighbour is told of it.
    assert!(net.events(1).is_empty());
    let short = Send {
        lifetime: Some(Duration::from_secs(5)),
        ..to(2, APPLICATION)
    };
    let short = raw_to(&mut net, short);
    assert_eq!(judged(&mut net, &short), Ok(()));
    // Its age is the age when it was sent: only the age on the wire counts.
    let neighbour = NeighbourId(7);
    let mut decoder = net.agents[1].decoder().long();
    decoder.take(wanted.slice(..500)).unwrap();
    let (bundle, _) = decoder.opened().unwrap();
    let mut old = bundle.clone();
    old.age_ms = old.age_ms.map(|(number, _)| (number, u64::MAX));
    let over = net.agents[1].judge_long(net.now, NeighbourId(1), BULK, &old);
    assert_eq!(over, unwanted(DeleteReason::LifetimeExpired));
    // The first node's bundle, from another neighbour.
    net.agents[1].neighbour_up(net.now, neighbour);
    net.events(1);
    let forged = net.agents[1].judge_long(net.now, neighbour, BULK, bundle);
    assert_eq!(forged, Err(Reject::Forged(Forgery::Source)));
    assert!(matches!(net.events(1)[..], [Event::Forged { .. }]));
}

#[test]
fn one_that_nobody_is_to_forward_is_judged_so() {
    let files = files();
    let mut relay = node(2);
    relay.relaying = Relaying::Pairs([].into());
    let mut net = Net::of([node(1), relay]);
    net.agents[1].neighbour_up(net.now, NeighbourId(3));
    for (beyond, verdict) in [
        (3, Reject::Forged(Forgery::Relay)),
        (4, Reject::Unwanted(DeleteReason::NoRoute)),
    ] {
        let file = files.write(&content());
        let mut decoder = net.agents[1].decoder().long();
        net.agents[0]
            .send_file(net.now, to(2, APPLICATION), file)
            .unwrap();
        let offer = offer(&mut net, true).unwrap();
        net.finish(0, &offer, Outcome::Acknowledged);
        decoder.take(raw(&offer).slice(..500)).unwrap();
        let mut bundle = decoder.opened().unwrap().0.clone();
        bundle.primary.destination = ipn(beyond, APPLICATION);
        let judged = net.agents[1].judge_long(net.now, NeighbourId(1), BULK, &bundle);
        assert_eq!(judged, Err(verdict), "{beyond}");
    }
}

/// Rules that can come into force later.
#[derive(Debug, Default)]
struct Rules(AtomicBool);

impl Security for Rules {
    fn secures(&self, _: &Eid, destination: &Eid, _: bool) -> bool {
        self.0.load(Ordering::Relaxed) && *destination != ipn(3, APPLICATION)
    }

    fn encrypts(&self, _: &Eid, destination: &Eid) -> bool {
        *destination == ipn(31, APPLICATION)
    }

    fn secure(
        &self,
        primary: &mut PrimaryBlock,
        _: u64,
        _: Content<'_>,
    ) -> io::Result<Option<Secured>> {
        let secures = primary.destination == ipn(31, APPLICATION);
        Ok(secures.then(|| Secured {
            primary: encode_primary(primary, CrcKind::None),
            blocks: Vec::new(),
            encrypted: None,
        }))
    }

    fn reveal(&self, _: &[u8], _: &[Extension], _: &[u8]) -> Option<Bytes> {
        None
    }

    fn accept(&self, _: &mut Bundle, _: bool) -> Result<(), Insecure> {
        Ok(())
    }

    fn follow(&self, _: &Bundle, _: u64, _: bool) -> Result<Option<Box<dyn Following>>, Insecure> {
        Ok(None)
    }
}

#[test]
fn rules_that_come_into_force_meanwhile_count_for_it() {
    let files = files();
    let rules = Arc::new(Rules::default());
    let mut second = node(2);
    second.security = Some(rules.clone());
    let mut net = Net::of([node(1), second]);
    let file = files.write(&content());
    net.agents[0]
        .send_file(net.now, to(2, APPLICATION), file)
        .unwrap();
    let raw = raw(&offer(&mut net, true).unwrap());
    let decoder = net.agents[1].decoder().long();
    let decoded = decoded(decoder, &files, &raw);
    rules.0.store(true, Ordering::Relaxed);
    let taken = net.agents[1].receive_decoded(net.now, NeighbourId(1), BULK, decoded);
    assert_eq!(taken, Err(Reject::Insecure(Insecure::Missing)));
}

#[test]
fn a_rule_for_one_node_leaves_others_their_long_payloads() {
    let files = files();
    let rules = Arc::new(Rules::default());
    rules.0.store(true, Ordering::Relaxed);
    let mut first = node(1);
    first.security = Some(rules);
    let mut net = Net::of([first, node(2), node(3)]);
    let now = net.now;
    let mut send = |to_node| {
        let file = files.write(&content());
        net.agents[0].send_file(now, to(to_node, APPLICATION), file)
    };
    assert_eq!(send(2), Err(SendError::OnDisk));
    assert!(send(3).is_ok());
    let agent = &mut net.agents[0];
    let drafted = agent.draft_file(now, &to(3, APPLICATION));
    assert!(drafted.unwrap().is_none(), "it needs nothing");
    // A rule that encrypts comes into force once it is secured.
    let (file, send) = (files.write(&content()), to(31, APPLICATION));
    let drafted = agent.draft_file(now, &send).unwrap();
    let signed = drafted.unwrap().sign(&file).unwrap().unwrap();
    let sent = agent.send_signed(now, send, file, signed);
    assert_eq!(sent, Err(SendError::OnDisk));
    // Its rule is gone before it is secured.
    let drafted = agent.draft_file(now, &to(2, APPLICATION));
    let signed = drafted.unwrap().unwrap().sign(&files.write(&content()));
    assert!(signed.unwrap().is_none());
}

/// A long bundle by BIBE, as it is sent.
fn in_a_bpdu(net: &mut Net, files: &Files) -> Bytes {
    net.agents[0].set_bibe([NeighbourId(2)].into());
    let send = Send {
        custody: true,
        ..to(2, APPLICATION)
    };
    let file = files.write(&content());
    net.agents[0].send_file(net.now, send, file).unwrap();
    let offer = offer(net, true).unwrap();
    net.finish(0, &offer, Outcome::Acknowledged);
    raw(&offer)
}

/// A long BPDU reaches its destination: the node judges it by the bundle inside, which it
/// writes and signals.
fn arrives_and_is_signalled(net: &mut Net, files: &Files, raw: &Bytes) {
    assert_eq!(judged(net, raw), Ok(()), "by the bundle inside");
    arrive(net, files, raw);
    let delivery = net.deliveries(1).pop().unwrap();
    assert_eq!(read(&delivery.file.unwrap()), content());
    let now = net.now;
    net.agents[1].confirm(now, delivery.ticket.unwrap());
    net.signal(1, 0);
    assert_eq!(net.released(0).len(), 1);
}

#[test]
fn a_long_bundle_in_a_bpdu_is_judged_written_and_signalled() {
    let (mut net, files) = (pair(), files());
    let raw = in_a_bpdu(&mut net, &files);
    arrives_and_is_signalled(&mut net, &files, &raw);
}

#[test]
fn a_long_bpdu_to_the_name_of_the_node_is_opened_as_one_to_its_number() {
    let (mut net, files) = (pair(), files());
    let by_number = in_a_bpdu(&mut net, &files);
    let outer = decode(&by_number, &DecodeLimits::default(), &CodePoints::default());
    let outer = outer.unwrap();
    let to = |name: &str| {
        let mut primary = outer.primary.clone();
        primary.destination = Eid::with_dtn(name).unwrap();
        bundle(&primary, &[], &outer.payload)
    };
    let other = to("//edge-20/");
    let mut decoder = net.agents[1].decoder().long();
    decoder.take(other).unwrap();
    let (unopened, _) = decoder.opened().unwrap();
    assert_eq!(unopened.primary.source, ipn(1, 0), "it is another node's");
    let raw = to("//edge-2/");
    arrives_and_is_signalled(&mut net, &files, &raw);
}

#[test]
fn a_long_bpdu_that_contradicts_itself_is_refused() {
    let (mut net, files) = (pair(), files());
    let good = in_a_bpdu(&mut net, &files);
    for change in [
        // It is shorter than its length says, longer, another record, or another bundle.
        |raw: &mut Vec<u8>| drop(raw.drain(raw.len() - 100..raw.len() - 50)),
        |raw: &mut Vec<u8>| raw.push(0),
        |raw: &mut Vec<u8>| {
            let record = raw.windows(3).position(|three| three == [0x82, 7, 0x83]);
            raw[record.unwrap() + 1] = 9;
        },
        |raw: &mut Vec<u8>| {
            let at = raw.len() - 50_000;
            raw[at] ^= 1;
        },
    ] {
        let mut bad = good.to_vec();
        change(&mut bad);
        let mut decoder = net.agents[1].decoder().long();
        let mut payload = Vec::new();
        let taken = bad.chunks(30_000).try_for_each(|piece| {
            let part = decoder.take(Bytes::copy_from_slice(piece))?;
            payload.extend(part);
            Ok(())
        });
        let long = taken.and_then(|()| decoder.finish(files.write(&payload)).unwrap());
        assert!(long.is_err());
    }
}
