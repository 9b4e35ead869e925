//! Bundles that are too long for memory: received in pieces, and read while they are
//! sent.

use std::sync::Arc;

use bytes::Bytes;
use underpass_cla::{Down, Outcome, Refusal, Resume, Transfer};
use underpass_payloads::{Limits, PayloadFile, Payloads};
use underpass_tcpcl::session::{Event, Role, SessionConfig};
use underpass_tcpcl::wire::{ExtensionItem, TRANSFER_LENGTH};

use crate::peer::{AgainstPeer, CONTACT, ack, bytes_of, config, item, peer_init, refuse, segment};

const END: u8 = 1;
const START: u8 = 2;
const PIECE: usize = 256 << 10;
const LONG: usize = 1 << 20;

/// A session that receives bundles of up to 1 MiB in pieces, and of up to 4000 bytes in
/// memory.
fn receiving() -> AgainstPeer {
    let mut session = AgainstPeer::connected(SessionConfig {
        segment_mru_bytes: LONG as u64,
        transfer_mru_bytes: LONG as u64,
        whole_mru_bytes: 4000,
        ..config(Role::Passive)
    });
    session.hear(CONTACT);
    session.hear(&bytes_of(&peer_init(Vec::new())));
    session.events.clear();
    session.sent_from_contact();
    session
}

fn length(bytes: usize) -> ExtensionItem {
    item(1, TRANSFER_LENGTH, &(bytes as u64).to_be_bytes())
}

/// Gives the session as many bytes as it takes, and returns their number.
fn give(session: &mut AgainstPeer, bytes: &[u8]) -> usize {
    session.core.handle_input(session.now, bytes)
}

#[test]
fn what_is_taken_apart_waits_in_pieces_and_holds_the_peer_up() {
    let mut session = receiving();
    let bytes = segment(START | END, 7, &[length(LONG)], LONG);
    let mut given = give(&mut session, &bytes);
    assert!(matches!(
        session.core.poll_event(),
        Some(Event::Admit { .. })
    ));
    session.core.take_apart();
    let mut received = 0;
    let last = loop {
        let room = (given + 100_000).min(bytes.len());
        given += give(&mut session, &bytes[given..room]);
        if let Some(Event::Received(last)) = session.core.poll_event() {
            break last;
        }
        if session.core.has_piece() {
            // The session takes no more until the piece is taken from it.
            assert_eq!(give(&mut session, &bytes[given..]), 0);
            let piece = session.core.take_piece().expect("it waits");
            assert!(piece.len() < PIECE + 100_000);
            received += piece.len();
        }
        assert!(session.sent().is_empty());
    };
    assert_eq!(received + last.len(), LONG);
    session.core.answer(Ok(()));
    assert_eq!(session.sent(), [format!("ACK flags 3 id 7 len {LONG}")]);
}

#[test]
fn what_is_refused_in_its_middle_passes_by() {
    let mut session = receiving();
    let first = segment(START, 7, &[length(LONG)], PIECE);
    let given = give(&mut session, &first);
    session.core.poll_event();
    session.core.take_apart();
    assert_eq!(given + give(&mut session, &first[given..]), first.len());
    assert_eq!(session.sent(), [format!("ACK flags 2 id 7 len {PIECE}")]);
    session.core.answer(Err(Refusal::NoResources));
    session.says(&["REFUSE reason 2 id 7"]);
    session.hear(&segment(0, 7, &[], PIECE));
    session.hear(&segment(END, 7, &[], LONG - 2 * PIECE));
    session.hear(&segment(START | END, 8, &[], 60));
    session.says(&["ACK flags 3 id 8 len 60"]);
    assert_eq!(session.bundles(), [(8, 60)]);
}

#[test]
fn a_length_that_is_not_announced_or_lies_is_not_taken() {
    let mut session = receiving();
    // More arrives than memory may hold.
    session.hear(&segment(START, 1, &[], 3000));
    session.hear(&segment(0, 1, &[], 3000));
    session.says(&["ACK flags 2 id 1 len 3000", "REFUSE reason 4 id 1"]);
    session.hear(&segment(END, 1, &[], 1));
    // More arrives than was announced.
    let first = segment(START, 2, &[length(5000)], 4000);
    let given = give(&mut session, &first);
    session.core.poll_event();
    session.core.take_apart();
    give(&mut session, &first[given..]);
    session.hear(&segment(END, 2, &[], 1001));
    session.says(&["ACK flags 2 id 2 len 4000", "REFUSE reason 4 id 2"]);
    // The announced length is more than any transfer may have.
    session.hear(&segment(START, 3, &[length(LONG + 1)], 10));
    session.says(&["REFUSE reason 4 id 3"]);
}

/// A payload of 900 bytes.
fn file() -> (tempfile::TempDir, Arc<PayloadFile>) {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = Limits {
        leave_free_bytes: 0,
        quota_bytes: 1000,
        payload_bytes: 1000,
    };
    let payloads = Payloads::open(folder.path(), limits).expect("a folder of payloads");
    let room = payloads.reserve(1, 900).expect("room");
    let mut writer = room.begin(900).expect("room on the disk");
    writer.write(&[b'p'; 900]).expect("it is written");
    (folder, writer.finish().expect("it is whole"))
}

fn transfer(file: Arc<PayloadFile>, resume: Option<Resume>) -> Transfer {
    let chunks = vec![Bytes::from_static(&[b'h'; 50]), Bytes::from_static(b"tail")];
    Transfer {
        file: Some(file),
        resume,
        ..Transfer::new(1, chunks)
    }
}

/// Reads what the session asks for, as the shell does.
fn read(session: &mut AgainstPeer) {
    while let Some(wanted) = session.core.wanted() {
        let mut part = vec![0; wanted.bytes];
        let read = wanted.file.read_at(&mut part, wanted.offset);
        read.expect("it is there");
        session.core.supply(&wanted, part.into());
    }
}

#[test]
fn a_payload_on_disk_is_sent_between_head_and_tail_as_it_is_read() {
    let (_folder, file) = file();
    let mut session = AgainstPeer::up();
    session.core.offer(transfer(file, None));
    let mut sent = session.output();
    assert!(!session.core.can_take(), "its payload is to be read");
    read(&mut session);
    sent.extend(session.output());
    let data: Vec<u8> = sent
        .into_iter()
        .filter(|byte| b"hptail".contains(byte))
        .collect();
    let expected = [&[b'h'; 50][..], &[b'p'; 900], b"tail"].concat();
    assert!(data == expected);
    session.hear(&ack(1, 0, 954));
    assert_eq!(session.outcomes(), [(1, Outcome::Acknowledged)]);
}

#[test]
fn a_refused_payload_is_not_read_on() {
    let (_folder, file) = file();
    let mut session = AgainstPeer::up();
    session.core.offer(transfer(file, None));
    session.output();
    let late = session.core.wanted().expect("the payload");
    session.hear(&refuse(2, 0));
    read(&mut session);
    session.output();
    assert!(session.core.can_take(), "the segment is complete");
    session.core.supply(&late, Bytes::from_static(&[0; 900]));
    assert!(session.core.wanted().is_none());
}

#[test]
fn a_payload_that_cannot_be_read_is_given_up_with_its_session() {
    let (_folder, file) = file();
    let mut session = AgainstPeer::up();
    session.core.offer(transfer(file, None));
    session.output();
    let wanted = session.core.wanted().expect("the payload");
    session.core.cannot_supply(&wanted, "broken disk");
    session.output();
    let refused = Outcome::Refused(Refusal::NotAcceptable);
    assert_eq!(session.outcomes(), [(1, refused)]);
    assert_eq!(session.closed(), Some(&Down::Broken("broken disk".into())));
}
