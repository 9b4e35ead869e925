//! Transfers that break and resume in the middle.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use underpass_cla::{Class, Outcome, Refusal, Resume, Transfer};
use underpass_tcpcl::session::{
    Event, Found, PartialLimits, PartialTransfers, Resumption, Role, SessionConfig, SessionCore,
    UnfinishedTransfers,
};

use crate::peer::{AgainstPeer, CONTACT, bytes_of, config, item, peer_init, segment};

const SENDER: &str = "ipn:1.0";

/// A bundle whose bytes depend on their place.
fn bundle(length: usize) -> Bytes {
    (0..length).map(|i| (7 * i + 3 + i / 251) as u8).collect()
}

/// A receiver's store; a sender has registered there as incarnation 1.
fn store(now: Instant) -> PartialTransfers {
    let mut partial = PartialTransfers::new(PartialLimits::default());
    partial.enter(now, SENDER, 1);
    partial
}

/// A sender and a receiver on one connection. The receiver's parts are in a store that
/// outlives the connection.
struct Connection {
    sender: SessionCore,
    receiver: SessionCore,
    now: Instant,
    /// Bytes in flight to the receiver.
    wire: Vec<u8>,
    back: Vec<u8>,
    outcomes: Vec<(u64, Outcome)>,
    received: Vec<Bytes>,
    /// The number of bytes that were carried.
    carried: usize,
}

impl Connection {
    fn new(now: Instant, segment_bytes: u64, receiver_resumes: bool) -> Self {
        let sender = SessionConfig {
            class: Some((Class(1), false)),
            incarnation: 1,
            segment_bytes,
            ..SessionConfig::new(Role::Active, SENDER)
        };
        let receiver = SessionConfig {
            resumption: receiver_resumes,
            ..SessionConfig::new(Role::Passive, "ipn:2.0")
        };
        let mut connection = Self {
            sender: SessionCore::new(sender, now),
            receiver: SessionCore::new(receiver, now),
            now,
            wire: Vec::new(),
            back: Vec::new(),
            outcomes: Vec::new(),
            received: Vec::new(),
            carried: 0,
        };
        let mut none = store(now);
        connection.settle(&mut none);
        connection.carried = 0;
        connection
    }

    fn collect(&mut self) {
        while let Some(piece) = self.sender.poll_output(self.now) {
            self.wire.extend_from_slice(&piece);
        }
        while let Some(event) = self.sender.poll_event() {
            if let Event::Finished { key, outcome } = event {
                self.outcomes.push((key, outcome));
            }
        }
    }

    /// The receiver hears `bytes`.
    fn deliver(&mut self, mut bytes: &[u8], partial: &mut PartialTransfers) {
        self.carried += bytes.len();
        loop {
            let taken = self.receiver.handle_input(self.now, bytes);
            bytes = &bytes[taken..];
            let answered = self.answer(partial);
            if !answered && taken == 0 {
                break;
            }
        }
        assert!(bytes.is_empty() || !self.receiver.is_closed());
        self.wire.splice(0..0, bytes.iter().copied());
        while let Some(piece) = self.receiver.poll_output(self.now) {
            self.back.extend_from_slice(&piece);
        }
    }

    fn answer(&mut self, partial: &mut PartialTransfers) -> bool {
        let mut answered = false;
        while let Some(event) = self.receiver.poll_event() {
            match event {
                Event::Admit { resumption, .. } => {
                    answered = true;
                    match resumption.filter(|named| named.offset > 0) {
                        None => self.receiver.answer(Ok(())),
                        Some(Resumption { key, .. }) => {
                            match partial.take(self.now, SENDER, 1, key) {
                                Found::Part(part) => self.receiver.resume(Some(part)),
                                Found::Completed => {
                                    self.receiver.answer(Err(Refusal::Completed));
                                }
                                Found::Nothing => self.receiver.resume(None),
                            }
                        }
                    }
                }
                Event::Received(bundle) => {
                    answered = true;
                    self.received.push(bundle);
                    self.receiver.answer(Ok(()));
                }
                Event::Partial { key, received } => {
                    partial.store(self.now, SENDER, 1, key, received)
                }
                _ => {}
            }
        }
        answered
    }

    fn hear_back(&mut self) {
        let back = std::mem::take(&mut self.back);
        // A message that the break has cut is dropped.
        self.sender.handle_input(self.now, &back);
        self.collect();
    }

    fn settle(&mut self, partial: &mut PartialTransfers) {
        for _ in 0..20 {
            self.collect();
            let wire = std::mem::take(&mut self.wire);
            self.deliver(&wire, partial);
            self.hear_back();
        }
    }

    /// Breaks the connection; `arriving` of the bytes in flight and `answers` of the
    /// answers still arrive.
    fn break_after(&mut self, arriving: usize, answers: usize, partial: &mut PartialTransfers) {
        self.collect();
        let arriving: Vec<u8> = self.wire.drain(..arriving.min(self.wire.len())).collect();
        self.deliver(&arriving, partial);
        self.back.truncate(answers);
        self.hear_back();
        self.sender.connection_lost("cut");
        self.receiver.connection_lost("cut");
        self.collect();
        self.answer(partial);
    }
}

fn resumed(key: u64, of: u64, offset: u64, bundle: &Bytes) -> Transfer {
    let middle = bundle.len() / 3;
    let chunks = vec![bundle.slice(..middle), bundle.slice(middle..)];
    Transfer {
        resume: Some(Resume { key: of, offset }),
        ..Transfer::new(key, chunks)
    }
}

proptest! {
    #[test]
    fn a_transfer_that_breaks_anywhere_goes_on_exactly(
        length in 1usize..5000,
        segment_bytes in 1u64..1500,
        cuts in prop::collection::vec((0usize..6000, 0usize..200), 1..4),
    ) {
        let now = Instant::now();
        let (whole, mut partial) = (bundle(length), store(now));
        let mut transfer = Transfer::new(7, vec![whole.clone()]);
        for (attempt, (arriving, answers)) in cuts.into_iter().enumerate() {
            let mut connection = Connection::new(now, segment_bytes, true);
            connection.sender.offer(transfer.clone());
            connection.break_after(arriving, answers, &mut partial);
            let arrived = connection.received.pop();
            prop_assert!(arrived.is_none_or(|arrived| arrived == whole));
            match connection.outcomes.pop() {
                Some((_, Outcome::Broken { acknowledged })) => {
                    let before = transfer.resume.map_or(0, |resume| resume.offset);
                    prop_assert!(acknowledged >= before || acknowledged == 0);
                    let key = 100 + attempt as u64;
                    transfer = resumed(key, 7, acknowledged, &whole);
                }
                Some((_, Outcome::Acknowledged | Outcome::Refused(Refusal::Completed))) => return Ok(()),
                other => prop_assert!(false, "{other:?}"),
            }
        }
        let mut last = Connection::new(now, segment_bytes, true);
        last.sender.offer(transfer);
        last.settle(&mut partial);
        prop_assert_eq!(&last.received[..], &[whole][..]);
    }

    #[test]
    fn whatever_a_peer_names_memory_stays_bounded_and_bundles_stay_whole(
        steps in prop::collection::vec((0u64..6, 0u64..5000, 0usize..1000, any::<bool>()), 1..60),
    ) {
        let now = Instant::now();
        let limits = PartialLimits {
            parts_per_peer: 3,
            bytes_per_peer: 2000,
            bytes: 2500,
            peers: 2,
            time: Duration::from_secs(60),
        };
        let mut partial = PartialTransfers::new(limits);
        partial.enter(now, SENDER, 1);
        for (key, offset, sent, breaks) in steps {
            let mut connection = Connection::new(now, 500, true);
            let named = Resumption { key, offset }.to_item();
            let mut bytes = segment(2, 0, &[named], sent);
            if !breaks {
                bytes.extend(segment(1, 0, &[], 10));
            }
            connection.deliver(&bytes, &mut partial);
            connection.break_after(0, 0, &mut partial);
            prop_assert!(partial.bytes() <= 2000);
            for bundle in connection.received {
                prop_assert_eq!(bundle.len() as u64, offset + sent as u64 + 10);
            }
        }
    }
}

#[test]
fn only_what_was_not_acknowledged_is_sent_again() {
    let now = Instant::now();
    let (whole, mut partial) = (bundle(100_000), store(now));
    let mut first = Connection::new(now, 10_000, true);
    first.sender.offer(Transfer::new(7, vec![whole.clone()]));
    first.break_after(55_000, usize::MAX, &mut partial);
    let acknowledged = 50_000;
    assert_eq!(first.outcomes, [(7, Outcome::Broken { acknowledged })]);
    let mut second = Connection::new(now, 10_000, true);
    second.sender.offer(resumed(8, 7, acknowledged, &whole));
    second.settle(&mut partial);
    assert_eq!(second.outcomes, [(8, Outcome::Acknowledged)]);
    assert_eq!(second.received, [whole]);
    assert!(second.carried < 50_500, "{}", second.carried);
}

#[test]
fn where_the_part_is_gone_the_whole_follows_on_the_same_session() {
    let now = Instant::now();
    let whole = bundle(30_000);
    let mut connection = Connection::new(now, 10_000, true);
    connection.sender.offer(resumed(8, 7, 20_000, &whole));
    connection.settle(&mut store(now));
    assert_eq!(connection.outcomes, [(8, Outcome::Acknowledged)]);
    assert_eq!(connection.received, [whole]);
}

#[test]
fn a_bundle_whose_last_acknowledgement_was_lost_is_not_sent_again() {
    let now = Instant::now();
    let (whole, mut partial) = (bundle(30_000), store(now));
    partial.complete(SENDER, 1, 7);
    let mut connection = Connection::new(now, 10_000, true);
    connection.sender.offer(resumed(8, 7, 20_000, &whole));
    connection.settle(&mut partial);
    let completed = Outcome::Refused(Refusal::Completed);
    assert_eq!(connection.outcomes, [(8, completed)]);
    assert!(connection.received.is_empty());
}

#[test]
fn a_peer_that_keeps_nothing_gets_the_whole_bundle_without_a_word_of_it() {
    let now = Instant::now();
    let whole = bundle(30_000);
    let mut connection = Connection::new(now, 10_000, false);
    connection.sender.offer(resumed(8, 7, 20_000, &whole));
    connection.settle(&mut store(now));
    assert_eq!(connection.outcomes, [(8, Outcome::Acknowledged)]);
    assert_eq!(connection.received, [whole]);
    let mut plain = AgainstPeer::up();
    plain.core.offer(resumed(8, 7, 20, &bundle(300)));
    plain.says(&["SEG flags 3 id 0 len 300"]);
}

#[test]
fn a_session_that_ends_begins_no_transfer_anew() {
    let now = Instant::now();
    let mut connection = Connection::new(now, 10_000, true);
    connection
        .sender
        .offer(resumed(8, 7, 20_000, &bundle(30_000)));
    connection.collect();
    connection
        .sender
        .close(now, underpass_tcpcl::wire::TermReason::Unknown);
    connection.settle(&mut store(now));
    let broken = Outcome::Broken { acknowledged: 0 };
    assert_eq!(connection.outcomes, [(8, broken)]);
    assert!(connection.receiver.is_closed());
}

/// A session whose peer was told that parts are kept.
fn told() -> AgainstPeer {
    told_with(config(Role::Passive))
}

/// The same with this configuration.
fn told_with(config: SessionConfig) -> AgainstPeer {
    let mut session = AgainstPeer::connected(config);
    session.hear(CONTACT);
    let label = item(0, 0x8755, &[1, 1, 2, 0, 0, 0, 0, 0, 0, 0, 9]);
    session.hear(&bytes_of(&peer_init(vec![label])));
    session.sent_from_contact();
    session.events.clear();
    session
}

#[test]
fn lengths_and_acknowledgements_count_the_bytes_behind_the_offset() {
    let mut session = told();
    session.core.offer(resumed(8, 7, 20, &bundle(520)));
    assert_eq!(
        session.sent(),
        [
            "SEG flags 2 id 0 extlen 35 \
             000001000800000000000001f4\
             0187560011010000000000000007\
             0000000000000014 len 400",
            "SEG flags 1 id 0 len 100"
        ]
    );
    session.hear(&crate::peer::ack(2, 0, 400));
    let progress = Event::Progress {
        key: 8,
        acknowledged: 420,
    };
    assert_eq!(session.events, [progress]);
}

/// Sessions of one peer, whose unfinished transfers count together.
fn together() -> impl Fn() -> AgainstPeer {
    let unfinished = Arc::<UnfinishedTransfers>::default();
    move || {
        told_with(SessionConfig {
            segment_mru_bytes: 1 << 30,
            transfer_mru_bytes: 1 << 30,
            whole_mru_bytes: 1 << 30,
            unfinished: unfinished.clone(),
            ..config(Role::Passive)
        })
    }
}

/// The head of a segment of `length` bytes, without any of them.
fn head(flags: u8, id: u8, length: u64) -> Vec<u8> {
    let mut head = segment(flags, id, &[], 0);
    let at = head.len() - size_of::<u64>();
    head[at..].copy_from_slice(&length.to_be_bytes());
    head
}

#[test]
fn what_is_half_sent_on_one_session_leaves_room_for_short_bundles_alone() {
    let up = together();
    let (mut first, mut second, mut third) = (up(), up(), up());
    first.hear(&head(2, 7, 200 << 20));
    second.hear(&head(2, 4, 2 << 20));
    second.says(&["REFUSE reason 2 id 4"]);
    third.hear(&segment(3, 4, &[], 60));
    third.says(&["ACK flags 3 id 4 len 60"]);
    assert!(first.sent().is_empty(), "it goes on");
    drop(first);
    third.hear(&head(2, 5, 2 << 20));
    assert!(third.sent().is_empty(), "there is room");
}

#[test]
fn what_an_earlier_session_received_is_half_sent_too() {
    let up = together();
    let (mut first, mut second) = (up(), up());
    first.hear(&head(2, 7, 127 << 20));
    let offset = 4 << 20;
    let named = Resumption { key: 1, offset }.to_item();
    let bytes = segment(2, 4, &[named], 60);
    let taken = second.core.handle_input(second.now, &bytes);
    assert!(matches!(
        second.core.poll_event(),
        Some(Event::Admit { .. })
    ));
    second.core.resume(Some(BytesMut::zeroed(offset as usize)));
    second.core.handle_input(second.now, &bytes[taken..]);
    second.says(&["REFUSE reason 2 id 4"]);
}

#[test]
fn an_offset_that_the_bounds_forbid_is_not_acceptable() {
    for offset in [4000, u64::MAX] {
        let mut session = told();
        let named = Resumption { key: 1, offset }.to_item();
        session.hear(&segment(3, 0, &[named], 50));
        session.says(&["REFUSE reason 4 id 0"]);
    }
}

#[test]
fn an_unknown_format_is_ignored_or_refused_as_its_sender_wishes() {
    for (critical, expected) in [(0, "ACK flags 3 id 0 len 50"), (1, "REFUSE reason 5 id 0")] {
        let mut session = told();
        let unknown = item(critical, 0x8756, &[9; 17]);
        session.hear(&segment(3, 0, &[unknown], 50));
        assert_eq!(session.sent(), [expected]);
    }
}

#[test]
fn parts_are_forgotten_with_time_and_with_the_peers_incarnation() {
    let now = Instant::now();
    let part = || BytesMut::from(&[1; 100][..]);
    let mut partial = store(now);
    partial.store(now, SENDER, 1, 7, part());
    partial.store(now, SENDER, 2, 8, part());
    assert_eq!(partial.take(now, SENDER, 2, 8), Found::Nothing);
    partial.enter(now, SENDER, 1);
    assert_eq!(partial.take(now, SENDER, 1, 7), Found::Part(part()));
    partial.store(now, SENDER, 1, 7, part());
    partial.enter(now, SENDER, 2);
    assert_eq!(partial.take(now, SENDER, 1, 7), Found::Nothing);
    partial.store(now, SENDER, 2, 7, part());
    let later = now + Duration::from_secs(3601);
    assert_eq!(partial.take(later, SENDER, 2, 7), Found::Nothing);
    assert_eq!(partial.bytes(), 0);
}

#[test]
fn the_oldest_part_of_the_same_peer_gives_way() {
    let now = Instant::now();
    let limits = PartialLimits {
        parts_per_peer: 2,
        bytes_per_peer: 1000,
        ..PartialLimits::default()
    };
    let mut partial = PartialTransfers::new(limits);
    partial.enter(now, SENDER, 1);
    for key in 0..3 {
        partial.store(now, SENDER, 1, key, part(400));
    }
    assert_eq!(partial.take(now, SENDER, 1, 0), Found::Nothing);
    assert_eq!(partial.take(now, SENDER, 1, 1), Found::Part(part(400)));
    assert_eq!(partial.take(now, SENDER, 1, 2), Found::Part(part(400)));
    assert_eq!(partial.bytes(), 0);
}

#[test]
fn parts_that_are_never_asked_for_do_not_pile_up() {
    const TRANSFERS: u64 = 64;
    let now = Instant::now();
    let mut partial = store(now);
    let part = || BytesMut::from(&bundle(100_000)[..]);
    let mut most = 0;
    // Each break leaves a part; later transfers have other keys.
    for blockage in 0..40 {
        let key = blockage * 1000;
        partial.store(now, SENDER, 1, key, part());
        for other in 1..TRANSFERS {
            partial.complete(SENDER, 1, key + other);
        }
        most = most.max(partial.bytes());
        // Up to here its sender may resume it.
        assert_eq!(partial.take(now, SENDER, 1, key), Found::Part(part()));
        partial.store(now, SENDER, 1, key, part());
        for other in 0..TRANSFERS {
            partial.complete(SENDER, 1, key + 500 + other);
        }
        assert_eq!(partial.bytes(), 0);
        assert_eq!(partial.take(now, SENDER, 1, key), Found::Nothing);
    }
    assert_eq!(most, 100_000);
}

#[test]
fn each_peer_has_room_for_an_equal_part_whatever_others_break_off() {
    let now = Instant::now();
    let limits = PartialLimits {
        bytes_per_peer: 1000,
        bytes: 2000,
        ..PartialLimits::default()
    };
    let mut partial = PartialTransfers::new(limits);
    let peers: Vec<String> = (0..10).map(|peer| format!("ipn:{peer}.0")).collect();
    for peer in &peers {
        partial.enter(now, peer, 1);
    }
    // All but the last take as much as they can, again and again.
    for key in 0..100 {
        for peer in &peers[..9] {
            partial.store(now, peer, 1, key, part(100));
        }
        assert!(partial.bytes() <= 2000);
    }
    for key in 0..2 {
        partial.store(now, &peers[9], 1, key, part(100));
    }
    for peer in &peers[..9] {
        partial.store(now, peer, 1, 100, part(100));
    }
    for key in 0..2 {
        assert_eq!(partial.take(now, &peers[9], 1, key), Found::Part(part(100)));
    }
    assert!(partial.bytes() > 1700);
    let later = now + limits.time + Duration::from_secs(1);
    partial.enter(later, "ipn:77.0", 1);
    assert_eq!(partial.bytes(), 0, "time has passed for all");
}

fn part(bytes: usize) -> BytesMut {
    BytesMut::from(&vec![1; bytes][..])
}
