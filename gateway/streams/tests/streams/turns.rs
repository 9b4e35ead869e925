//! The order in which payloads leave: the turns of streams and classes, and gathered
//! bytes.

use std::time::Instant;

use crate::pair::{
    CLASS, CONTROL, Pair, codes, events, joined, open, read_all, sealed, windows, write,
};
use bytes::Bytes;
use underpass_cla::Class;
use underpass_streams::{Config, Event, Peer, ResetCode, Sealed, StreamId};

#[test]
fn streams_of_a_class_take_turns() {
    let mut pair = Pair::acquainted(Config::default());
    let ids: Vec<_> = (0..4)
        .map(|_| {
            let id = pair.terminal.open(pair.now, open()).unwrap().1;
            write(&mut pair.terminal, id, vec![0; 1 << 20]);
            id
        })
        .collect();
    for _ in 0..8 {
        sealed(&mut pair.terminal, CLASS, 128 * 1024).unwrap();
    }
    let sent: Vec<u64> = ids
        .iter()
        .map(|id| pair.terminal.current().stream(*id).unwrap().sent_bytes)
        .collect();
    let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
    assert!(most - least <= 64 * 1024, "{sent:?}");
}

#[test]
fn a_stream_that_begins_in_pieces_goes_first_until_it_has_sent_a_quantum() {
    let mut pair = Pair::acquainted(Config::default());
    for _ in 0..4 {
        let busy = pair.terminal.open(pair.now, open()).unwrap().1;
        let data = vec![0; 1 << 20].into();
        pair.terminal.current().write(busy, data).unwrap();
    }
    for _ in 0..4 {
        sealed(&mut pair.terminal, CLASS, 16 * 1024).unwrap();
    }
    let id = pair.terminal.open(pair.now, open()).unwrap().1;
    let payload_of = |pair: &mut Pair, bytes: usize| {
        let data = vec![1; bytes].into();
        pair.terminal.current().write(id, data).unwrap();
        let payload = joined(sealed(&mut pair.terminal, CLASS, 16 * 1024).unwrap());
        payload.iter().filter(|byte| **byte == 1).count() >= bytes
    };
    sealed(&mut pair.terminal, CLASS, 16 * 1024).unwrap();
    // In this test one turn fills one payload.
    assert!(payload_of(&mut pair, 6000));
    assert!(payload_of(&mut pair, 6000));
    assert!(!payload_of(&mut pair, 6000), "a quantum is over");
    // The rest waits its turn; by then the stream counts as one that begins again.
    for _ in 0..12 {
        sealed(&mut pair.terminal, CLASS, 16 * 1024).unwrap();
    }
    let stream = pair.terminal.current().stream(id).unwrap();
    assert_eq!(stream.sent_bytes, 18_000);
    assert!(payload_of(&mut pair, 6000));
}

#[test]
fn what_is_short_leaves_in_a_short_bundle_beside_what_begins_with_much() {
    let mut pair = Pair::acquainted(Config::default());
    let mut begin = |bytes: usize| {
        let id = pair.terminal.open(pair.now, open()).unwrap().1;
        let data = vec![0; bytes].into();
        pair.terminal.current().write(id, data).unwrap();
    };
    begin(300);
    begin(400);
    begin(1 << 20);
    begin(500);
    begin(600);
    let mut next = || joined(sealed(&mut pair.terminal, CLASS, 256 * 1024).unwrap()).len();
    let lengths = [next(), next(), next()];
    assert!(lengths[0] < 1_000, "{lengths:?}");
    assert!((64 * 1024..66 * 1024).contains(&lengths[1]), "{lengths:?}");
    assert!(lengths[2] < 1_500, "{lengths:?}");
}

#[test]
fn bytes_after_set_class_leave_in_the_other_class() {
    let (mut pair, id) = Pair::opened(Config::default());
    pair.exchange();
    pair.terminal.current().write(id, "bulk".into()).unwrap();
    pair.terminal.current().set_class(id, Class(3)).unwrap();
    assert!(!pair.terminal.has_pending(CLASS));
    assert!(pair.terminal.has_pending(Class(3)));
    pair.exchange();
    assert_eq!(read_all(&mut pair.hub, id), b"bulk");
}

#[test]
fn large_writes_pass_through_without_a_copy() {
    let (mut pair, id) = Pair::opened(Config::default());
    let data = Bytes::from(vec![1; 64 * 1024]);
    pair.terminal.current().write(id, data.clone()).unwrap();
    let chunks = sealed(&mut pair.terminal, CLASS, 1 << 20).unwrap();
    assert!(chunks.iter().any(|chunk| chunk.as_ptr() == data.as_ptr()));
    let payload = joined(chunks);
    pair.hub
        .handle_payload(pair.now, CLASS, payload.clone())
        .unwrap();
    let read = pair.hub.current().read(id, usize::MAX).unwrap();
    assert!(payload.as_ptr_range().contains(&read.as_ptr()));
}

/// The streams that events report as writable.
fn writable(mux: &mut Peer) -> Vec<StreamId> {
    let happened = events(mux).into_iter();
    let writable = happened.filter_map(|event| match event {
        Event::Writable(id) => Some(id),
        _ => None,
    });
    writable.collect()
}

#[test]
fn no_more_waits_than_suits_the_present_rate() {
    let (mut pair, id) = Pair::opened(windows(8 << 20));
    let mux = pair.terminal.current();
    let told = mux.send_capacity(id);
    assert!(told >= 4 << 20, "{told}");
    mux.set_present_buffers(100_000, 1 << 20);
    // Bytes within the capacity that was reported before are still accepted.
    mux.write(id, vec![0; 400_000].into()).unwrap();
    assert_eq!(mux.send_capacity(id), 0);
    let mut told = Vec::new();
    while told.is_empty() {
        sealed(&mut pair.terminal, CLASS, 50_000).unwrap();
        told = writable(&mut pair.terminal);
    }
    let mux = pair.terminal.current();
    let (waiting, room) = (
        mux.stream(id).unwrap().send_buffered_bytes,
        mux.send_capacity(id),
    );
    assert_eq!(told, [id]);
    assert_eq!(waiting + room as u64, 100_000);
    mux.set_present_buffers(300_000, 1 << 20);
    assert_eq!(mux.send_capacity(id), 200_000 + room);
}

#[test]
fn a_stream_with_more_than_suits_the_rate_holds_up_no_other() {
    let total = 1 << 20;
    let mut pair = Pair::acquainted(Config {
        send_buffer_bytes: total,
        send_buffer_total_bytes: total,
        ..windows(8 << 20)
    });
    let [long, short, third] = [(); 3].map(|()| pair.terminal.open(pair.now, open()).unwrap().1);
    // The stream with the most bytes in flight is told last.
    for _ in 0..2 {
        write(&mut pair.terminal, short, vec![0; total]);
        while sealed(&mut pair.terminal, CLASS, total).is_some() {}
    }
    let mux = pair.terminal.current();
    for (id, bytes) in [(short, 100_000), (third, 300_000), (long, total - 400_000)] {
        mux.write(id, vec![0; bytes].into()).unwrap();
    }
    for id in [long, short] {
        assert_eq!(mux.send_capacity(id), 0);
    }
    mux.set_present_buffers(200_000, total);
    assert_eq!(writable(&mut pair.terminal), []);
    // Room is free again, which the long stream may not use.
    let mux = pair.terminal.current();
    mux.reset(third, ResetCode::Cancelled, "").unwrap();
    assert_eq!(writable(&mut pair.terminal), [short]);
}

#[test]
fn a_stream_whose_copy_takes_its_room_holds_up_no_other() {
    let total = 1 << 20;
    let mut pair = Pair::acquainted(Config {
        send_buffer_bytes: total,
        send_buffer_total_bytes: total,
        ..windows(8 << 20)
    });
    let [short, third] = [(); 2].map(|()| pair.terminal.open(pair.now, open()).unwrap().1);
    // The stream with the most bytes in flight is told last.
    for _ in 0..2 {
        write(&mut pair.terminal, short, vec![0; total]);
        while sealed(&mut pair.terminal, CLASS, total).is_some() {}
    }
    // All bytes of this stream are withheld, and copied.
    let copied = pair.terminal.open(pair.now, open()).unwrap().1;
    write(&mut pair.terminal, copied, vec![0; 50_000]);
    let mux = pair.terminal.current();
    while mux.seal_ahead(copied, 100_000).is_some() {}
    for (id, bytes) in [(copied, total - 51_000), (short, 40_000), (third, 10_000)] {
        mux.write(id, vec![0; bytes].into()).unwrap();
    }
    for id in [copied, short] {
        assert_eq!(mux.send_capacity(id), 0);
    }
    assert_eq!(writable(&mut pair.terminal), []);
    // Room is free again, which the stream with a copy may not use.
    let mux = pair.terminal.current();
    mux.reset(third, ResetCode::Cancelled, "").unwrap();
    assert_eq!(writable(&mut pair.terminal), [short]);
}

#[test]
fn nothing_is_pending_when_all_is_idle() {
    let mut pair = Pair::acquainted(Config::default());
    for _ in 0..1000 {
        pair.terminal.open(pair.now, open()).unwrap();
    }
    pair.exchange();
    for mux in [&mut pair.terminal, &mut pair.hub] {
        assert!(!mux.has_pending(CLASS) && !mux.has_pending(CONTROL));
        assert_eq!(sealed(mux, CLASS, 4096), None);
    }
}

/// Writes single bytes to the streams in turn. Each byte is sealed by itself where that
/// is possible, and none is acknowledged. Returns the payloads, each with the streams to
/// name at its acknowledgement.
fn single_bytes(
    pair: &mut Pair,
    ids: &[StreamId],
    each: usize,
) -> Vec<(Class, Bytes, Vec<StreamId>)> {
    let mut under_way = Vec::new();
    for _ in 0..each {
        for id in ids {
            pair.terminal.current().write(*id, "x".into()).unwrap();
            under_way.extend(unacknowledged(&mut pair.terminal));
        }
    }
    under_way
}

fn unacknowledged(peer: &mut Peer) -> Vec<(Class, Bytes, Vec<StreamId>)> {
    let next = || match peer.poll_payload(Instant::now(), CLASS, 1 << 20)? {
        Sealed::Payload { parts, streams } => Some((CLASS, joined(parts), streams)),
        Sealed::Withheld(flow) => panic!("{flow:?} has nothing withheld"),
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn single_bytes_are_gathered_behind_many_payloads() {
    let (mut pair, id) = Pair::opened(Config::default());
    let written = 20_000;
    let mut under_way = single_bytes(&mut pair, &[id], written);
    let gathered = written - 8192;
    assert_eq!(under_way.len(), 8192 + gathered / 4096);
    // The OPEN is in the first payload.
    for (class, payload, _) in under_way.iter().rev() {
        let taken = pair.hub.handle_payload(pair.now, *class, payload.clone());
        taken.unwrap();
    }
    assert_eq!(codes(&events(&mut pair.hub)), []);
    assert_eq!(read_all(&mut pair.hub, id).len(), written - gathered % 4096);
    // Few bytes leave as soon as fewer payloads are in flight.
    for (_, _, streams) in under_way.drain(..gathered / 4096) {
        pair.terminal.current().acknowledged(&streams);
        assert_eq!(unacknowledged(&mut pair.terminal).len(), 0);
    }
    pair.terminal.current().acknowledged(&[id]);
    assert_eq!(unacknowledged(&mut pair.terminal).len(), 1);
}

#[test]
fn an_end_does_not_wait_behind_many_payloads() {
    let (mut pair, id) = Pair::opened(Config::default());
    single_bytes(&mut pair, &[id], 9000);
    assert_eq!(unacknowledged(&mut pair.terminal).len(), 0);
    pair.terminal.current().finish(id).unwrap();
    assert_eq!(unacknowledged(&mut pair.terminal).len(), 1);
}

#[test]
fn single_bytes_of_many_streams_are_gathered_too() {
    let mut pair = Pair::acquainted(Config::default());
    let ids: Vec<StreamId> = (0..40)
        .map(|_| pair.terminal.open(pair.now, open()).unwrap().1)
        .collect();
    let mut under_way = single_bytes(&mut pair, &ids, 2000);
    let bytes_of = |one: &(Class, Bytes, Vec<StreamId>)| one.2.len();
    assert_eq!(under_way.iter().map(bytes_of).sum::<usize>(), 4 * 8192);
    // A stream that sends seldom does not wait for the others.
    let seldom = pair.terminal.open(pair.now, open()).unwrap().1;
    under_way.extend(unacknowledged(&mut pair.terminal));
    pair.terminal.current().write(seldom, "x".into()).unwrap();
    assert_eq!(unacknowledged(&mut pair.terminal).len(), 1);
    for (class, payload, _) in under_way.iter().rev() {
        let taken = pair.hub.handle_payload(pair.now, *class, payload.clone());
        taken.unwrap();
    }
    assert_eq!(codes(&events(&mut pair.hub)), []);
}
