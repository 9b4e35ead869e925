//! Transfers from the peer.

use underpass_cla::{Down, Refusal};
use underpass_tcpcl::session::{Event, Role};

use crate::peer::{AgainstPeer, CONTACT, bytes_of, config, item, peer_init, segment};

const END: u8 = 1;
const START: u8 = 2;
const WHOLE: u8 = START | END;

#[test]
fn each_segment_is_acknowledged_with_its_flags_and_the_sum() {
    let mut session = AgainstPeer::up();
    session.hear(&segment(START, 7, &[], 400));
    session.hear(&segment(0, 7, &[], 300));
    session.hear(&segment(END, 7, &[], 5));
    session.says(&[
        "ACK flags 2 id 7 len 400",
        "ACK flags 0 id 7 len 700",
        "ACK flags 1 id 7 len 705",
    ]);
    assert_eq!(session.bundles(), [(7, 705)]);
}

#[test]
fn a_segment_without_data_counts_like_any_other() {
    let mut session = AgainstPeer::up();
    session.hear(&segment(START, 7, &[], 0));
    session.hear(&segment(0, 7, &[], 9));
    session.hear(&segment(END, 7, &[], 0));
    session.says(&[
        "ACK flags 2 id 7 len 0",
        "ACK flags 0 id 7 len 9",
        "ACK flags 1 id 7 len 9",
    ]);
    assert_eq!(session.bundles(), [(7, 9)]);
}

#[test]
fn the_last_byte_is_acknowledged_only_when_the_node_has_the_bundle() {
    let mut session = AgainstPeer::up();
    let bytes = segment(WHOLE, 3, &[], 50);
    let taken = session.core.handle_input(session.now, &bytes);
    let admit = Event::Admit {
        length: Some(50),
        resumption: None,
    };
    assert_eq!(session.core.poll_event(), Some(admit));
    session.core.answer(Ok(()));
    session.core.handle_input(session.now, &bytes[taken..]);
    assert!(matches!(
        session.core.poll_event(),
        Some(Event::Received(_))
    ));
    assert!(session.sent().is_empty());
    session.core.answer(Ok(()));
    session.says(&["ACK flags 3 id 3 len 50"]);
}

#[test]
fn a_bundle_that_the_node_has_already_is_refused_as_completed() {
    let mut session = AgainstPeer::up();
    let bytes = segment(WHOLE, 3, &[], 50);
    let taken = session.core.handle_input(session.now, &bytes);
    session.core.poll_event();
    session.core.answer(Ok(()));
    session.core.handle_input(session.now, &bytes[taken..]);
    session.core.poll_event();
    session.core.answer(Err(Refusal::Completed));
    session.says(&["REFUSE reason 1 id 3"]);
}

#[test]
fn what_is_not_admitted_is_refused_and_passes_by() {
    let mut session = AgainstPeer::up();
    session.verdict = Err(Refusal::NoResources);
    session.hear(&segment(START, 3, &[], 50));
    session.verdict = Ok(());
    session.hear(&segment(0, 3, &[], 50));
    session.hear(&segment(END, 3, &[], 50));
    session.hear(&segment(WHOLE, 4, &[], 60));
    session.says(&["REFUSE reason 2 id 3", "ACK flags 3 id 4 len 60"]);
    assert_eq!(session.bundles(), [(4, 60)]);
}

#[test]
fn a_refused_transfer_may_stop_without_an_end() {
    let mut session = AgainstPeer::up();
    session.verdict = Err(Refusal::NotAcceptable);
    session.hear(&segment(START, 3, &[], 50));
    session.verdict = Ok(());
    session.hear(&segment(WHOLE, 4, &[], 60));
    session.says(&["REFUSE reason 4 id 3", "ACK flags 3 id 4 len 60"]);
}

#[test]
fn too_large_a_transfer_is_refused_however_it_shows() {
    let announced = [item(0, 1, &4001u64.to_be_bytes())];
    let segments = [
        segment(START, 3, &announced, 10),
        segment(WHOLE, 3, &[], 1001),
        [
            segment(START, 3, &[], 1000),
            segment(0, 3, &[], 1000).repeat(3),
            segment(0, 3, &[], 1),
        ]
        .concat(),
    ];
    for bytes in segments {
        let mut session = AgainstPeer::up();
        session.hear(&bytes);
        session.hear(&segment(WHOLE, 4, &[], 5));
        let said = session.sent();
        let refused = "REFUSE reason 4 id 3".to_owned();
        assert_eq!(said.iter().filter(|word| **word == refused).count(), 1);
        assert_eq!(
            said.last().map(String::as_str),
            Some("ACK flags 3 id 4 len 5")
        );
        assert_eq!(session.bundles(), [(4, 5)]);
    }
}

#[test]
fn an_announced_length_is_kept_to() {
    let announced = [item(1, 1, &30u64.to_be_bytes())];
    for (flags, length) in [(END, 9), (END, 11), (0, 11)] {
        let second = segment(flags, 3, &[], length);
        let mut session = AgainstPeer::up();
        session.hear(&segment(START, 3, &announced, 20));
        session.hear(&second);
        session.says(&["ACK flags 2 id 3 len 20", "REFUSE reason 4 id 3"]);
        assert!(session.bundles().is_empty());
    }
    let mut session = AgainstPeer::up();
    session.hear(&segment(START, 3, &announced, 20));
    session.hear(&segment(END, 3, &[], 10));
    assert_eq!(session.bundles(), [(3, 30)]);
    assert_eq!(
        session.events[0],
        Event::Admit {
            length: Some(30),
            resumption: None
        }
    );
}

#[test]
fn unknown_critical_or_malformed_extensions_of_a_transfer_refuse_it() {
    let mut malformed = segment(START, 3, &[item(0, 9, b"ab")], 20);
    malformed[18] = 7;
    for bytes in [
        segment(START, 3, &[item(1, 0x8001, b"")], 20),
        segment(START, 3, &[item(0, 1, b"short")], 20),
        malformed,
    ] {
        let mut session = AgainstPeer::up();
        session.hear(&bytes);
        session.hear(&segment(END, 3, &[], 20));
        session.hear(&segment(WHOLE, 4, &[item(0, 0x8001, b"")], 20));
        session.says(&["REFUSE reason 5 id 3", "ACK flags 3 id 4 len 20"]);
    }
}

#[test]
fn a_start_in_mid_transfer_gives_the_earlier_one_up() {
    let mut session = AgainstPeer::up();
    session.hear(&segment(START, 3, &[], 20));
    session.hear(&segment(WHOLE, 4, &[], 30));
    session.says(&["ACK flags 2 id 3 len 20", "ACK flags 3 id 4 len 30"]);
    assert_eq!(session.bundles(), [(4, 30)]);
}

#[test]
fn a_segment_of_no_transfer_is_rejected_once_and_passes_by() {
    let mut session = AgainstPeer::up();
    session.hear(&segment(0, 3, &[], 20));
    session.hear(&segment(END, 3, &[], 20));
    session.hear(&segment(WHOLE, 4, &[], 30));
    session.says(&["MSG_REJECT reason 3 header 0x01", "ACK flags 3 id 4 len 30"]);
}

#[test]
fn an_unknown_message_is_rejected_and_ends_the_session() {
    let mut session = AgainstPeer::up();
    session.hear(&[0x42, 1, 2, 3]);
    session.says(&[
        "MSG_REJECT reason 1 header 0x42",
        "SESS_TERM flags 0 reason 0",
    ]);
    assert!(matches!(session.closed(), Some(Down::Protocol(_))));
}

#[test]
fn a_peer_that_takes_no_acknowledgements_is_given_up_in_bounded_memory() {
    let mut session = AgainstPeer::up();
    let flood = segment(WHOLE, 3, &[], 1).repeat(1000);
    for _ in 0..70 {
        session.hear(&flood);
        session
            .events
            .retain(|event| matches!(event, Event::Closed(_)));
    }
    assert!(matches!(session.closed(), Some(Down::Protocol(_))));
}

/// A session that takes segments of up to 1 MiB.
fn with_long_segments() -> AgainstPeer {
    let mut large = config(Role::Passive);
    (large.segment_mru_bytes, large.transfer_mru_bytes) = (1 << 20, 1 << 20);
    let mut session = AgainstPeer::connected(large);
    session.hear(CONTACT);
    session.hear(&bytes_of(&peer_init(Vec::new())));
    session.sent_from_contact();
    session
}

/// Otherwise their data would be read to another place first, and copied.
#[test]
fn little_is_read_before_the_data_of_long_segments() {
    const HEADS: usize = 4 << 10;
    let mut session = with_long_segments();
    assert_eq!(session.core.most_to_read(), usize::MAX);
    let long = segment(START, 3, &[], 200_000);
    let (most, rest) = long.split_at(long.len() - 10_000);
    session.hear(most);
    assert!(session.core.direct_buffer().is_none(), "so little is left");
    assert_eq!(session.core.most_to_read(), 10_000 + HEADS);
    session.hear(rest);
    assert_eq!(session.core.most_to_read(), HEADS);
    session.hear(&segment(0, 3, &[], 300_000)[..1000]);
    let (_, room) = session.core.direct_buffer().expect("its data is to come");
    assert!(room > 0);
    let mut session = with_long_segments();
    session.hear(&segment(WHOLE, 3, &[], 64 << 10));
    assert_eq!(session.core.most_to_read(), HEADS);
    session.hear(&segment(WHOLE, 4, &[], 50_000));
    assert_eq!(session.core.most_to_read(), usize::MAX);
}

#[test]
fn data_may_be_written_straight_into_the_bundle() {
    let mut session = with_long_segments();
    let bytes = segment(WHOLE, 3, &[], 100_000);
    assert!(!session.core.is_receiving());
    session.hear(&bytes[..100]);
    assert!(session.core.is_receiving());
    let mut given = 100;
    while let Some((buffer, room)) = session.core.direct_buffer() {
        let step = room.min(30_000).min(bytes.len() - given);
        buffer.extend_from_slice(&bytes[given..given + step]);
        session.core.handle_direct(session.now, step);
        given += step;
    }
    assert!(given > 80_000);
    session.hear(&bytes[given..]);
    assert!(!session.core.is_receiving());
    session.says(&["ACK flags 3 id 3 len 100000"]);
    assert_eq!(session.bundles(), [(3, 100_000)]);
}
