//! What two nodes see of a stream without faults.

use crate::pair::{CLASS, Pair, events, open, payloads, read_all};
use underpass_streams::{Config, Event, Frame, decode_frames};

#[test]
fn request_and_answer_cross_and_both_ends_close() {
    let (mut pair, id) = Pair::opened(Config::default());
    pair.terminal.current().write(id, "GET /".into()).unwrap();
    pair.terminal.current().finish(id).unwrap();
    pair.exchange();
    assert_eq!(
        events(&mut pair.hub),
        [Event::Opened { id, open: open() }, Event::Readable(id)]
    );
    assert_eq!(read_all(&mut pair.hub, id), b"GET /");
    assert_eq!(events(&mut pair.hub), [Event::PeerFinished(id)]);
    pair.hub.current().write(id, "200".into()).unwrap();
    pair.hub.current().finish(id).unwrap();
    pair.exchange();
    assert_eq!(events(&mut pair.hub), [Event::Closed(id)]);
    assert_eq!(events(&mut pair.terminal), [Event::Readable(id)]);
    assert_eq!(read_all(&mut pair.terminal, id), b"200");
    assert_eq!(
        events(&mut pair.terminal),
        [Event::PeerFinished(id), Event::Closed(id)]
    );
    assert_eq!(pair.terminal.streams().count(), 0);
    assert_eq!(pair.hub.streams().count(), 0);
}

#[test]
fn open_and_first_data_share_a_payload() {
    let (mut pair, id) = Pair::opened(Config::default());
    pair.terminal.current().write(id, "hello".into()).unwrap();
    assert!(pair.terminal.backlog(CLASS).has_control);
    let sealed = payloads(&mut pair.terminal, 4096);
    assert_eq!(sealed.len(), 1);
    let (_, frames) = decode_frames(&sealed[0].1).unwrap();
    assert!(matches!(
        &frames[..],
        [Frame::Open { .. }, Frame::Data { .. }]
    ));
}
