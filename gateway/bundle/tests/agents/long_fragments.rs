//! Fragments of bundles that are too long for memory: they are reassembled on disk, also
//! where some are hostile.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::net::{BULK, Net, SERVICE, bundle, node, primary};
use bp7::dtntime::CreationTimestamp;
use bytes::Bytes;
use underpass_bundle::wire::{Malformed, ipn};
use underpass_bundle::{
    Amount, Applications, Decoded, DeleteReason, Delivery, Event, NeighbourId, Reject, Relaying,
    Route,
};
use underpass_payloads::{Limits, Payloads};

const APPLICATION: u64 = 40;
/// Longer payloads are reassembled on disk.
const ABOVE: u64 = 10_000;
const BYTES: usize = 100_000;
const QUOTA: u64 = 1 << 20;
/// The bundle is a fragment (RFC 9171 §4.2.3).
const IS_FRAGMENT: u64 = 1;
/// The bundle must be gone after this time, whatever else comes.
const LIFETIME: Duration = Duration::from_secs(3 * 3600);

/// Two nodes; the second one has an application, and payloads on disk.
struct Site {
    net: Net,
    payloads: Arc<Payloads>,
    _folder: tempfile::TempDir,
}

fn site() -> Site {
    site_with(0)
}

fn site_with(leave_free_bytes: u64) -> Site {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits {
        quota_bytes: QUOTA,
        payload_bytes: QUOTA,
        leave_free_bytes,
    };
    let payloads = Payloads::open(folder.path(), limits).unwrap();
    let most = Amount {
        bytes: 1 << 20,
        bundles: 1_000,
    };
    let services = vec![APPLICATION..=APPLICATION];
    let applications = Applications::new(services, [SERVICE].into(), None, most);
    let mut second = node(2);
    second.applications = Some(Arc::new(applications));
    second.payloads = Some(payloads.clone());
    second.long_above_bytes = ABOVE;
    second.decode.max_payload_bytes = QUOTA;
    Site {
        net: Net::of([node(1), second]),
        payloads,
        _folder: folder,
    }
}

fn content() -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(5);
    (0..BYTES).map(|_| random.u8(..)).collect()
}

/// A fragment for a service of the second node.
fn to_service(service: u64, of: (u64, u64), offset: u64, total: u64, payload: &[u8]) -> Bytes {
    let (source, sequence) = of;
    let mut primary = primary(IS_FRAGMENT, source, ipn(2, service));
    primary.creation_timestamp = CreationTimestamp::with_time_and_seq(1_000, sequence);
    primary.lifetime = LIFETIME;
    primary.fragmentation_offset = offset;
    primary.total_data_length = total;
    bundle(&primary, &[], payload)
}

/// A fragment of a bundle of a node, given its sequence number, for the application.
fn fragment(of: (u64, u64), offset: usize, total: u64, payload: &[u8]) -> Bytes {
    to_service(APPLICATION, of, offset as u64, total, payload)
}

impl Site {
    fn arrive(&mut self, from: u64, raw: Bytes) -> Result<(), Reject> {
        let now = self.net.now;
        self.net.agents[1].receive(now, NeighbourId(from), BULK, raw)
    }

    /// The node's verdict on a fragment from the first node that is to go to disk itself.
    fn judge(&mut self, raw: &Bytes) -> Result<(), Reject> {
        let agent = &mut self.net.agents[1];
        let mut decoder = agent.decoder().long();
        decoder.take(raw.clone()).unwrap();
        let (opened, _) = decoder.opened().unwrap();
        agent.judge_long(self.net.now, NeighbourId(1), BULK, opened)
    }

    /// Receives a fragment of a bundle of `BYTES` from the first node.
    fn take(&mut self, sequence: u64, offset: usize, payload: &[u8]) {
        let raw = fragment((1, sequence), offset, BYTES as u64, payload);
        assert_eq!(self.arrive(1, raw), Ok(()));
    }

    fn count(&self, wanted: &str) -> usize {
        let mut entries = 0;
        self.net.agents[1].footprint(&mut |name, count| {
            entries += if name == wanted { count } else { 0 };
        });
        entries
    }

    fn incomplete(&self) -> usize {
        self.count("bundles in fragments on disk")
    }

    /// Lets the thread write its parts, and tells the node the outcomes.
    fn settle(&mut self) {
        for _ in 0..60_000 {
            if self.count("fragments that are written") == 0 {
                return;
            }
            thread::sleep(Duration::from_millis(1));
            self.net.pass(Duration::from_millis(5));
        }
        panic!("fragments are not written");
    }

    /// The delivery, if there is one once everything is written.
    fn delivered(&mut self) -> Option<Delivery> {
        self.settle();
        self.net.deliveries(1).pop()
    }

    /// Why bundles are deleted, once everything is written.
    fn deleted(&mut self) -> Vec<DeleteReason> {
        self.settle();
        let reason = |event| match event {
            Event::Deleted { reason, .. } => Some(reason),
            _ => None,
        };
        let events = self.net.events(1).into_iter();
        events.filter_map(reason).collect()
    }

    /// Waits until the disk is empty.
    fn becomes_empty(&self) {
        for _ in 0..60_000 {
            if self.payloads.used() == (0, 0) {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("{:?} are left", self.payloads.used());
    }
}

fn read(delivery: &Delivery) -> Vec<u8> {
    let file = delivery.file.as_ref().expect("a file");
    let mut all = vec![0; usize::try_from(file.len()).unwrap()];
    file.read_at(&mut all, 0).unwrap();
    all
}

#[test]
fn fragments_in_any_order_are_delivered_as_one_file() {
    let (mut site, content) = (site(), content());
    for seed in 0..10 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut parts: Vec<usize> = (0..BYTES).step_by(7_000).collect();
        random.shuffle(&mut parts);
        for from in &parts {
            assert!(site.net.deliveries(1).is_empty());
            // Many parts overlap.
            let to = (from + 7_000 + random.usize(0..6_000)).min(BYTES);
            site.take(seed, *from, &content[*from..to]);
        }
        let delivery = site.delivered().expect("it is whole");
        assert_eq!(delivery.service, APPLICATION);
        assert!(delivery.payload.is_empty());
        assert!(read(&delivery) == content);
        // A late fragment is recognised as a duplicate.
        site.take(seed, 0, &content[..5_000]);
        assert!(site.delivered().is_none());
        assert_eq!(site.incomplete(), 0);
        drop(delivery);
        site.becomes_empty();
    }
}

#[test]
fn duplicates_cost_nothing_and_bundles_side_by_side_do_not_mix() {
    let (mut site, content) = (site(), content());
    let other: Vec<u8> = content.iter().map(|byte| !byte).collect();
    for _ in 0..3 {
        site.take(1, 0, &content[..50_000]);
        site.take(2, 0, &other[..50_000]);
    }
    site.settle();
    assert_eq!(site.payloads.used(), (2, 100_000));
    site.take(1, 50_000, &content[50_000..]);
    assert!(read(&site.delivered().unwrap()) == content);
    site.take(2, 50_000, &other[50_000..]);
    assert!(read(&site.delivered().unwrap()) == other);
    site.becomes_empty();
}

#[test]
fn of_what_contradicts_the_first_is_believed_and_the_other_told() {
    let (mut site, content) = (site(), content());
    site.take(1, 0, &content[..50_000]);
    let mut lie = content[40_000..60_000].to_vec();
    lie[9_999] ^= 1;
    site.take(1, 40_000, &lie);
    assert_eq!(site.deleted(), [DeleteReason::BlockUnintelligible]);
    let total = fragment((1, 1), 50_000, BYTES as u64 + 1, b"x");
    let refused = Err(Reject::Malformed(Malformed::Fragment));
    assert_eq!(site.arrive(1, total), refused, "another total length");
    site.take(1, 50_000, &content[50_000..]);
    assert!(read(&site.delivered().unwrap()) == content);
}

#[test]
fn a_later_fragment_does_not_shorten_the_lifetime() {
    let (mut site, content) = (site(), content());
    site.take(1, 0, &content[..50_000]);
    let mut primary = primary(IS_FRAGMENT, 1, ipn(2, APPLICATION));
    primary.creation_timestamp = CreationTimestamp::with_time_and_seq(1_000, 1);
    primary.lifetime = Duration::from_secs(60);
    primary.fragmentation_offset = 50_000;
    primary.total_data_length = BYTES as u64;
    let raw = bundle(&primary, &[], &content[50_000..]);
    assert_eq!(site.arrive(1, raw), Ok(()));
    let delivery = site.delivered().expect("it is whole");
    assert!(delivery.left > LIFETIME / 2, "{:?}", delivery.left);
}

#[test]
fn a_bundle_is_not_put_together_in_memory_and_on_the_disk_at_once() {
    let (mut site, content) = (site(), content());
    let refused = || Err(Reject::Malformed(Malformed::Fragment));
    for (sequence, first, second) in [(1, 9_000, BYTES as u64), (2, BYTES as u64, 9_000)] {
        let raw = fragment((1, sequence), 0, first, &content[..4_500]);
        assert_eq!(site.arrive(1, raw), Ok(()));
        let raw = fragment((1, sequence), 4_500, second, &content[4_500..9_000]);
        assert_eq!(site.arrive(1, raw), refused());
    }
    assert!(site.delivered().is_none());
}

#[test]
fn lengths_that_lie_take_what_has_come_and_leave_other_neighbours_room() {
    let (mut site, content) = (site(), content());
    let mut taken = 0;
    for number in 0..100 {
        match site.arrive(1, fragment((1, number), 0, QUOTA, b"x")) {
            Ok(()) => taken += 1,
            Err(Reject::NoResources) => {}
            other => panic!("{other:?}"),
        }
    }
    site.settle();
    assert_eq!(site.payloads.used(), (taken, taken as u64));
    assert_eq!(site.incomplete(), taken);
    assert!(taken < 20, "{taken}");
    let longest = fragment((1, 100), 0, QUOTA + 1, b"x");
    let refused = Err(Reject::Malformed(Malformed::Fragment));
    assert_eq!(site.arrive(1, longest), refused);
    for from in [50_000, 0] {
        let raw = fragment((9, 1), from, BYTES as u64, &content[from..][..50_000]);
        assert_eq!(site.arrive(9, raw), Ok(()));
    }
    assert!(read(&site.delivered().unwrap()) == content);
    site.net.pass(LIFETIME);
    assert_eq!(site.incomplete(), 0);
    site.becomes_empty();
    let undelivered = site.net.agents[1].custody(site.net.now).undelivered_bytes;
    assert_eq!(undelivered, 0);
}

#[test]
fn a_bundle_for_which_the_disk_has_no_room_keeps_no_other_out() {
    let (mut site, content) = (site_with(u64::MAX), content());
    for sequence in 0..100 {
        site.take(sequence, 0, &content[..50_000]);
        site.take(sequence, 50_000, &content[50_000..]);
        assert_eq!(site.deleted(), [DeleteReason::DepletedStorage; 2]);
        assert_eq!(site.incomplete(), 0);
        site.becomes_empty();
    }
}

#[test]
fn a_neighbour_has_no_more_of_the_disk_than_it_leaves_free() {
    let mut site = site();
    let piece = vec![7; 100_000];
    let mut taken = 0;
    for number in 0..10 {
        let raw = fragment((1, 1), number * piece.len(), QUOTA, &piece);
        match site.arrive(1, raw) {
            Ok(()) => taken += 1,
            Err(Reject::NoResources) => break,
            other => panic!("{other:?}"),
        }
        site.settle();
    }
    assert_eq!(taken, 5);
    let raw = fragment((9, 1), 0, QUOTA, &piece);
    assert_eq!(site.arrive(9, raw), Ok(()));
    site.settle();
}

#[test]
fn what_makes_no_progress_is_forgotten_before_its_lifetime_ends() {
    let (mut site, content) = (site(), content());
    let pause = Duration::from_secs(3_500);
    for from in [0, 1_000] {
        site.take(1, from, &content[from..from + 1_000]);
        site.settle();
        site.net.pass(pause);
        assert_eq!(site.incomplete(), 1);
    }
    site.net.pass(Duration::from_secs(101));
    assert_eq!(site.incomplete(), 0);
    site.becomes_empty();
}

/// A neighbour begins bundles of its own, one a second, until it has no place left;
/// returns how many.
fn fill(site: &mut Site, from: u64) -> usize {
    let mut begun = 0;
    while begin(site, from, begun) == Ok(()) {
        begun += 1;
        site.net.pass(Duration::from_secs(1));
    }
    site.settle();
    usize::try_from(begun).unwrap()
}

/// The first thousand bytes of a neighbour's bundle arrive.
fn begin(site: &mut Site, from: u64, sequence: u64) -> Result<(), Reject> {
    let raw = fragment((from, sequence), 0, BYTES as u64, &content()[..1_000]);
    site.arrive(from, raw)
}

#[test]
fn what_has_stalled_for_longest_makes_room_for_another_bundle_of_its_neighbour() {
    let (mut site, content) = (site(), content());
    let begun = fill(&mut site, 1);
    site.net.pass(Duration::from_secs(100));
    let refused = Err(Reject::NoResources);
    assert_eq!(begin(&mut site, 1, 100), refused, "all may go on yet");
    // The first bundle grows.
    site.take(0, 1_000, &content[1_000..2_000]);
    site.settle();
    site.net.pass(Duration::from_secs(30));
    assert_eq!(begin(&mut site, 1, 100), Ok(()));
    assert_eq!(site.deleted(), [DeleteReason::DepletedStorage]);
    assert_eq!(site.incomplete(), begun);
    for (sequence, from) in [(0, 2_000), (2, 1_000), (100, 1_000)] {
        site.take(sequence, from, &content[from..]);
        let delivery = site.delivered().expect("it has stayed");
        assert!(read(&delivery) == content);
    }
    site.take(1, 1_000, &content[1_000..]);
    assert!(site.delivered().is_none(), "its beginning is gone");
}

#[test]
fn a_fragment_on_disk_for_which_there_is_no_place_is_refused_before_it_is_written() {
    let (mut site, content) = (site(), content());
    let rest = |sequence| fragment((1, sequence), 1_000, BYTES as u64, &content[1_000..]);
    assert_eq!(site.judge(&rest(0)), Ok(()));
    fill(&mut site, 1);
    assert_eq!(site.judge(&rest(0)), Ok(()), "its bundle has a place");
    assert_eq!(site.judge(&rest(100)), Err(Reject::NoResources));
    site.net.pass(Duration::from_secs(120));
    assert_eq!(site.judge(&rest(100)), Ok(()), "another bundle makes room");
    assert_eq!(site.deleted(), []);
}

#[test]
fn nothing_that_has_stalled_makes_room_for_another_neighbour() {
    let mut site = site();
    let first = fill(&mut site, 1);
    site.net.pass(Duration::from_secs(600));
    let second = fill(&mut site, 9);
    assert!(second < first, "{second}");
    assert_eq!(site.incomplete(), first + second);
}

#[test]
fn one_that_has_stalled_is_enough_however_many_others_have_begun() {
    let mut site = site();
    let own = fill(&mut site, 1);
    let others = fill(&mut site, 9) + fill(&mut site, 10);
    site.net.pass(Duration::from_secs(120));
    assert_eq!(begin(&mut site, 1, 100), Ok(()));
    assert_eq!(site.deleted(), [DeleteReason::DepletedStorage]);
    assert_eq!(site.incomplete(), own + others);
}

/// Two nodes behind the first one.
const BEHIND: [u64; 2] = [20, 21];

/// A site whose first node is a relay for those behind it.
fn site_with_relay() -> Site {
    let mut site = site();
    let [first, last] = BEHIND;
    let route = Route {
        nodes: first..=last,
        neighbour: NeighbourId(1),
        take_custody: true,
    };
    let now = site.net.now;
    site.net.agents[1].set_routes(now, vec![route], Relaying::All);
    site
}

/// The first thousand bytes of a bundle from a node behind the first one arrive.
fn begin_behind(site: &mut Site, source: u64, sequence: u64) -> Result<(), Reject> {
    let raw = fragment((source, sequence), 0, BYTES as u64, &content()[..1_000]);
    site.arrive(1, raw)
}

/// A node behind the first one begins bundles until it has no place left; returns how
/// many.
fn fill_behind(site: &mut Site, source: u64) -> u64 {
    let begun = (0..).find(|number| begin_behind(site, source, *number) != Ok(()));
    site.settle();
    begun.unwrap()
}

#[test]
fn a_node_behind_a_neighbour_leaves_places_to_the_others_there() {
    let mut site = site_with_relay();
    let [first, other] = BEHIND;
    let begun = fill_behind(&mut site, first);
    assert!(begun > 1, "{begun}");
    // All of them make progress.
    assert_eq!(begin_behind(&mut site, other, 0), Ok(()));
    assert_eq!(begin_behind(&mut site, other, 1), Ok(()));
    assert_eq!(site.deleted(), []);
    // The neighbour's own bundles use the places that it has left.
    assert_eq!(begin(&mut site, 1, 0), Ok(()));
    let refused = Err(Reject::NoResources);
    assert_eq!(begin_behind(&mut site, first, 100), refused);
}

#[test]
fn a_node_that_has_begun_few_loses_none_to_one_that_has_begun_many() {
    let (mut site, content) = (site_with_relay(), content());
    let [many, few] = BEHIND;
    assert_eq!(begin_behind(&mut site, few, 0), Ok(()));
    site.net.pass(Duration::from_secs(1));
    let begun = fill_behind(&mut site, many);
    site.net.pass(Duration::from_secs(120));
    for number in 0..begun {
        assert_eq!(begin_behind(&mut site, many, 100 + number), Ok(()));
        assert_eq!(site.deleted(), [DeleteReason::DepletedStorage]);
    }
    let refused = Err(Reject::NoResources);
    assert_eq!(begin_behind(&mut site, many, 200), refused);
    let rest = fragment((few, 0), 1_000, BYTES as u64, &content[1_000..]);
    assert_eq!(site.arrive(1, rest), Ok(()));
    let delivery = site.delivered().expect("it has stayed");
    assert!(read(&delivery) == content);
}

#[test]
fn a_fragment_that_is_on_disk_itself_is_judged_and_taken() {
    let (mut site, content) = (site(), content());
    site.take(1, 0, &content[..50_000]);
    let raw = fragment((1, 1), 50_000, BYTES as u64, &content[50_000..]);
    let mut decoder = site.net.agents[1].decoder().long();
    let payload = decoder.take(raw.clone()).unwrap();
    let (now, from) = (site.net.now, NeighbourId(1));
    let (opened, bytes) = decoder.opened().unwrap();
    let mut elsewhere = opened.clone();
    let agent = &mut site.net.agents[1];
    assert_eq!(agent.judge_long(now, from, BULK, opened), Ok(()));
    // The node's own services take only payloads in memory.
    elsewhere.primary.destination = ipn(2, SERVICE);
    let unwanted = Err(Reject::Unwanted(DeleteReason::DepletedStorage));
    assert_eq!(agent.judge_long(now, from, BULK, &elsewhere), unwanted);
    let mut writer = site.payloads.reserve(1, bytes).unwrap().begin(bytes);
    writer.as_mut().unwrap().write(&payload).unwrap();
    let file = writer.unwrap().finish().unwrap();
    let decoded = Decoded::long(raw.len() as u64, decoder.finish(file).unwrap());
    let taken = site.net.agents[1].receive_decoded(now, from, BULK, decoded);
    assert_eq!(taken, Ok(()));
    let delivery = site.delivered().expect("it is whole");
    assert!(read(&delivery) == content);
    drop(delivery);
    site.becomes_empty();
}

#[test]
fn for_a_service_of_the_node_and_below_the_limit_memory_is_used() {
    let (mut site, content) = (site(), content());
    for (service, bytes) in [(SERVICE, BYTES), (APPLICATION, 9_000)] {
        let half = bytes / 2;
        for (offset, payload) in [(0, &content[..half]), (half, &content[half..bytes])] {
            let total = bytes as u64;
            let raw = to_service(service, (1, service), offset as u64, total, payload);
            assert_eq!(site.arrive(1, raw), Ok(()));
        }
        let delivery = site.delivered().expect("it is whole");
        assert!(delivery.payload == content[..bytes]);
        assert_eq!(site.payloads.used(), (0, 0));
    }
}
