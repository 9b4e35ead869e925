//! What the protocol promises when something goes wrong or gets tight.

use crate::pair::{CLASS, CONTROL, Pair, events, joined, open, payloads, read_all, sealed};
use bytes::Bytes;
use underpass_cla::Class;
use underpass_streams::{
    Announcement, Config, Event, Frame, Open, OpenError, Peer, ResetCode, Sealed, Side,
    StreamError, StreamId, StreamState, TraceContext, Windows, WriteError, decode_frames,
};

fn windows(bytes: u64) -> Config {
    Config {
        windows: Windows {
            stream_window_bytes: bytes,
            peer_window_bytes: bytes,
        },
        send_buffer_bytes: 64 << 20,
        send_buffer_total_bytes: 1 << 30,
        ..Config::default()
    }
}

/// A payload as the peer of `mux` might send it.
fn forged(mux: &Peer, sender: u64, frames: &[u8]) -> Bytes {
    let mut payload = vec![1];
    payload.extend(sender.to_be_bytes());
    payload.extend(mux.incarnation().to_be_bytes());
    payload.extend(frames);
    payload.into()
}

fn codes(events: &[Event]) -> Vec<(StreamId, ResetCode)> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Reset { id, code, .. } => Some((*id, *code)),
            _ => None,
        })
        .collect()
}

#[test]
fn data_before_its_open_is_kept() {
    let mut pair = Pair::acquainted(Config::default());
    let id = pair.terminal.open(pair.now, open()).unwrap().1;
    let first = payloads(&mut pair.terminal, 1 << 20);
    pair.terminal.current().write(id, "early".into()).unwrap();
    let second = payloads(&mut pair.terminal, 1 << 20);
    for (class, payload) in second.into_iter().chain(first) {
        pair.hub.handle_payload(pair.now, class, payload).unwrap();
    }
    assert_eq!(
        events(&mut pair.hub),
        [Event::Opened { id, open: open() }, Event::Readable(id)]
    );
    assert_eq!(read_all(&mut pair.hub, id), b"early");
}

#[test]
fn a_repeated_open_of_a_closed_stream_opens_nothing() {
    let mut pair = Pair::acquainted(Config::default());
    let id = pair.terminal.open(pair.now, open()).unwrap().1;
    pair.terminal.current().finish(id).unwrap();
    let sealed = payloads(&mut pair.terminal, 1 << 20);
    for (class, payload) in &sealed {
        pair.hub
            .handle_payload(pair.now, *class, payload.clone())
            .unwrap();
    }
    pair.hub.current().finish(id).unwrap();
    pair.exchange();
    events(&mut pair.hub);
    for (class, payload) in sealed {
        pair.hub.handle_payload(pair.now, class, payload).unwrap();
    }
    assert_eq!(events(&mut pair.hub), []);
    assert_eq!(pair.hub.streams().count(), 0);
}

#[test]
fn only_the_floor_may_be_sent_before_the_peer_is_known() {
    let mut pair = Pair::new(Config::default());
    let id = pair.terminal.open(pair.now, open()).unwrap().1;
    assert_eq!(pair.terminal.current().send_capacity(id), 64 * 1024);
    pair.terminal
        .current()
        .write(id, vec![0; 64 * 1024].into())
        .unwrap();
    assert_eq!(pair.terminal.current().send_capacity(id), 0);
    pair.exchange();
    assert!(events(&mut pair.terminal).contains(&Event::Writable(id)));
}

#[test]
fn one_stalled_reader_takes_at_most_half_of_the_peer_window() {
    let window = 1 << 20;
    let mut pair = Pair::acquainted(windows(window));
    let mut sent = Vec::new();
    for _ in 0..3 {
        let id = pair.terminal.open(pair.now, open()).unwrap().1;
        pair.terminal
            .current()
            .write(id, vec![0; 4 << 20].into())
            .unwrap();
        pair.exchange();
        sent.push(pair.hub.current().stream(id).unwrap().unread_bytes - 64 * 1024);
    }
    let shares: Vec<u64> = sent.iter().map(|bytes| window / bytes).collect();
    assert_eq!(shares, [2, 4, 8]);
}

#[test]
fn a_new_stream_has_its_floor_however_many_readers_stall() {
    let mut pair = Pair::acquainted(windows(1 << 20));
    for _ in 0..40 {
        let id = pair.terminal.open(pair.now, open()).unwrap().1;
        pair.terminal
            .current()
            .write(id, vec![0; 2 << 20].into())
            .unwrap();
        pair.exchange();
    }
    let id = pair.terminal.open(pair.now, open()).unwrap().1;
    assert!(pair.terminal.current().send_capacity(id) >= 64 * 1024);
    // And it goes on having it as its reader reads.
    pair.terminal
        .current()
        .write(id, vec![7; 1 << 20].into())
        .unwrap();
    let mut read = 0;
    while pair.exchange() > 0 {
        read += read_all(&mut pair.hub, id).len();
    }
    assert_eq!(read, 1 << 20);
}

#[test]
fn bytes_beyond_the_credit_reset_their_stream_alone() {
    let mut pair = Pair::acquainted(windows(100_000));
    let good = pair.terminal.open(pair.now, open()).unwrap().1;
    pair.exchange();
    events(&mut pair.hub);
    // DATA on stream 2 (not opened yet) at offset 0x3fff_fffe.
    let frames = [0x08, 6, 2, 0xbf, 0xff, 0xff, 0xfe, b'x'];
    let payload = forged(&pair.hub, 100, &frames);
    pair.hub.handle_payload(pair.now, CLASS, payload).unwrap();
    let (_, answer) = decode_frames(&payloads(&mut pair.hub, 4096)[0].1).unwrap();
    assert!(matches!(
        answer[..],
        [Frame::Reset {
            id: StreamId(2),
            code: ResetCode::FlowControl,
            ..
        }]
    ));
    assert_eq!(events(&mut pair.hub), []);
    assert_eq!(
        pair.hub.current().stream(good).unwrap().state,
        StreamState::Open
    );
}

#[test]
fn a_malformed_payload_has_no_effect_at_all() {
    let mut pair = Pair::acquainted(Config::default());
    // A sound DATA with FIN, then a CREDIT that is cut short.
    let frames = [0x09, 3, 0, 0, b'x', 0x04, 9, 0];
    let payload = forged(&pair.hub, 100, &frames);
    assert!(pair.hub.handle_payload(pair.now, CLASS, payload).is_err());
    assert_eq!(pair.hub.streams().count(), 0);
}

#[test]
fn a_reset_behind_is_seen_after_all_that_was_written() {
    let mut pair = Pair::acquainted(Config::default());
    let id = pair.terminal.open(pair.now, open()).unwrap().1;
    pair.exchange();
    let written = vec![7; 300_000];
    let mux = pair.terminal.current();
    mux.write(id, written.clone().into()).unwrap();
    mux.reset_behind(id, ResetCode::Aborted, "connection reset")
        .unwrap();
    assert_eq!(
        mux.reset(id, ResetCode::Aborted, ""),
        Err(StreamError::Unknown)
    );
    let (mut read, mut over) = (Vec::new(), false);
    for _ in 0..20 {
        pair.exchange();
        read.extend(read_all(&mut pair.hub, id));
        over |= events(&mut pair.hub)
            .iter()
            .any(|event| matches!(event, Event::Reset { .. }));
        assert!(!over || read == written, "{} bytes", read.len());
    }
    assert!(over);
    assert_eq!(
        pair.terminal.streams().count() + pair.hub.streams().count(),
        0
    );
}

#[test]
fn a_reset_is_seen_behind_the_bytes_sealed_before_it() {
    let mut pair = Pair::acquainted(Config::default());
    let id = pair.terminal.open(pair.now, open()).unwrap().1;
    pair.exchange();
    events(&mut pair.hub);
    pair.hub
        .current()
        .write(id, "the whole answer".into())
        .unwrap();
    let data = payloads(&mut pair.hub, 4096);
    pair.hub
        .current()
        .reset(id, ResetCode::Aborted, "by the origin")
        .unwrap();
    let reset = payloads(&mut pair.hub, 4096);
    for (class, payload) in reset.into_iter().chain(data) {
        pair.terminal
            .handle_payload(pair.now, class, payload)
            .unwrap();
    }
    let code = ResetCode::Aborted;
    assert_eq!(
        events(&mut pair.terminal),
        [Event::Stopped { id, code }, Event::Readable(id)]
    );
    assert_eq!(
        pair.terminal.current().write(id, "more".into()),
        Err(WriteError::Finished)
    );
    assert_eq!(read_all(&mut pair.terminal, id), b"the whole answer");
    assert_eq!(
        events(&mut pair.terminal),
        [Event::Reset {
            id,
            code: ResetCode::Aborted,
            reason: "by the origin".to_owned()
        }]
    );
}

#[test]
fn a_failed_dial_comes_back_as_its_code_and_reason() {
    let mut pair = Pair::acquainted(Config::default());
    let id = pair.terminal.open(pair.now, open()).unwrap().1;
    pair.exchange();
    let reason = "name does not resolve";
    pair.hub
        .current()
        .reset(id, ResetCode::UnknownHost, reason)
        .unwrap();
    pair.exchange();
    assert_eq!(
        events(&mut pair.terminal),
        [Event::Reset {
            id,
            code: ResetCode::UnknownHost,
            reason: reason.to_owned()
        }]
    );
    assert_eq!(pair.terminal.streams().count(), 0);
}

#[test]
fn connected_is_told_to_openers_that_ask() {
    let mut pair = Pair::acquainted(Config::default());
    let mut asking = open();
    asking.report_connected = true;
    let id = pair.terminal.open(pair.now, asking).unwrap().1;
    let silent = pair.terminal.open(pair.now, open()).unwrap().1;
    pair.exchange();
    pair.hub.current().connected(id).unwrap();
    pair.hub.current().connected(silent).unwrap();
    pair.exchange();
    assert_eq!(events(&mut pair.terminal), [Event::Connected(id)]);
}

#[test]
fn a_traced_stream_takes_its_trace_along_and_tells_when_its_open_was_sealed_and_acknowledged() {
    let mut pair = Pair::acquainted(Config::default());
    let trace = TraceContext {
        trace_id: [7; 16],
        span_id: [9; 8],
    };
    let traced = Open {
        trace: Some(trace),
        ..open()
    };
    let id = pair.terminal.open(pair.now, traced.clone()).unwrap().1;
    let silent = pair.terminal.open(pair.now, open()).unwrap().1;
    let Some(Sealed::Payload { parts, streams }) = pair.terminal.poll_payload(CLASS, 4096) else {
        panic!("two OPENs wait");
    };
    assert!(streams.contains(&id) && streams.contains(&silent));
    assert_eq!(events(&mut pair.terminal), [Event::OpenSealed(id)]);
    let payload = joined(parts);
    pair.hub.handle_payload(pair.now, CLASS, payload).unwrap();
    let opened = Event::Opened { id, open: traced };
    assert!(events(&mut pair.hub).contains(&opened));
    pair.terminal.current().write(id, "more".into()).unwrap();
    pair.terminal.current().acknowledged(&streams);
    assert_eq!(events(&mut pair.terminal), [Event::OpenAcknowledged(id)]);
    // What follows is told of no more.
    pair.exchange();
    assert_eq!(events(&mut pair.terminal), []);
}

#[test]
fn stop_ends_one_direction_only() {
    let mut pair = Pair::acquainted(Config::default());
    let id = pair.terminal.open(pair.now, open()).unwrap().1;
    pair.terminal.current().write(id, "upload".into()).unwrap();
    pair.exchange();
    events(&mut pair.hub);
    pair.hub.current().stop(id, ResetCode::Cancelled).unwrap();
    pair.hub
        .current()
        .write(id, "no more, thanks".into())
        .unwrap();
    pair.hub.current().finish(id).unwrap();
    pair.exchange();
    let code = ResetCode::Cancelled;
    assert_eq!(
        events(&mut pair.terminal),
        [Event::Stopped { id, code }, Event::Readable(id)]
    );
    assert_eq!(read_all(&mut pair.terminal, id), b"no more, thanks");
    assert_eq!(
        events(&mut pair.terminal),
        [Event::PeerFinished(id), Event::Closed(id)]
    );
    assert_eq!(events(&mut pair.hub), [Event::Closed(id)]);
}

#[test]
fn an_expired_payload_resets_its_streams_at_both_ends_and_no_other() {
    let mut pair = Pair::acquainted(Config::default());
    let lost = pair.terminal.open(pair.now, open()).unwrap().1;
    let kept = pair.terminal.open(pair.now, open()).unwrap().1;
    pair.exchange();
    events(&mut pair.hub);
    pair.terminal.current().write(lost, "gone".into()).unwrap();
    let (_, payload) = payloads(&mut pair.terminal, 4096).remove(0);
    pair.terminal.handle_expired(payload).unwrap();
    pair.exchange();
    let reset = [(lost, ResetCode::Expired)];
    assert_eq!(codes(&events(&mut pair.terminal)), reset);
    assert_eq!(codes(&events(&mut pair.hub)), reset);
    assert_eq!(
        pair.hub.current().stream(kept).unwrap().state,
        StreamState::Open
    );
}

#[test]
fn a_restarted_peer_resets_its_streams_and_old_payloads_touch_no_new_one() {
    let mut pair = Pair::acquainted(Config::default());
    let old = pair.terminal.open(pair.now, open()).unwrap().1;
    pair.exchange();
    pair.terminal.current().write(old, "late".into()).unwrap();
    let late = payloads(&mut pair.terminal, 4096);
    events(&mut pair.hub);
    pair.terminal = Peer::new(Config::default(), Side::Lower, 101);
    let new = pair.terminal.open(pair.now, open()).unwrap().1;
    assert_eq!(new, old, "ids begin again");
    pair.exchange();
    let seen = events(&mut pair.hub);
    assert_eq!(codes(&seen), [(old, ResetCode::Restarted)]);
    assert!(seen.contains(&Event::PeerRestarted { incarnation: 101 }));
    for (class, payload) in late {
        pair.hub.handle_payload(pair.now, class, payload).unwrap();
    }
    assert_eq!(read_all(&mut pair.hub, new), b"");
}

#[test]
fn a_node_that_lost_count_of_its_runs_raises_its_incarnation() {
    let mut pair = Pair::acquainted(Config::default());
    pair.terminal = Peer::new(Config::default(), Side::Lower, 7);
    pair.exchange();
    assert!(events(&mut pair.terminal).contains(&Event::IncarnationRaised { incarnation: 101 }));
    let id = pair.terminal.open(pair.now, open()).unwrap().1;
    pair.exchange();
    assert!(events(&mut pair.hub).contains(&Event::Opened { id, open: open() }));
}

#[test]
fn streams_beyond_the_bound_are_refused_as_busy() {
    let config = Config::default();
    let mut pair = Pair::acquainted(config);
    pair.hub = Peer::new(
        Config {
            max_streams: 2,
            ..config
        },
        Side::Higher,
        201,
    );
    pair.exchange();
    events(&mut pair.terminal);
    let ids: Vec<_> = (0..3)
        .map(|_| pair.terminal.open(pair.now, open()).unwrap().1)
        .collect();
    pair.exchange();
    let reset = [(ids[2], ResetCode::Busy)];
    assert_eq!(codes(&events(&mut pair.terminal)), reset);
    pair.hub.open(pair.now, open()).unwrap_err();
    assert_eq!(
        pair.hub.open(pair.now, open()),
        Err(OpenError::TooManyStreams)
    );
}

#[test]
fn the_peer_hears_of_address_families_and_of_changes() {
    let mut pair = Pair::acquainted(Config::default());
    let reach = Announcement {
        ipv4: true,
        ipv6: false,
    };
    pair.hub.set_announcement(reach);
    pair.exchange();
    assert_eq!(pair.terminal.peer_announcement(), Some(reach));
    assert_eq!(
        events(&mut pair.terminal),
        [Event::AnnouncementChanged(reach)]
    );
}

#[test]
fn streams_of_a_class_take_turns() {
    let mut pair = Pair::acquainted(Config::default());
    let ids: Vec<_> = (0..4)
        .map(|_| {
            let id = pair.terminal.open(pair.now, open()).unwrap().1;
            pair.terminal
                .current()
                .write(id, vec![0; 1 << 20].into())
                .unwrap();
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
    // A turn is what a payload holds here.
    assert!(payload_of(&mut pair, 6000));
    assert!(payload_of(&mut pair, 6000));
    assert!(!payload_of(&mut pair, 6000), "a quantum is over");
    // The rest waits as the others do; by then it is one that begins again.
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
    let mut pair = Pair::acquainted(Config::default());
    let id = pair.terminal.open(pair.now, open()).unwrap().1;
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
    let mut pair = Pair::acquainted(Config::default());
    let id = pair.terminal.open(pair.now, open()).unwrap().1;
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

/// Writable streams among what has happened.
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
    let mut pair = Pair::acquainted(windows(8 << 20));
    let id = pair.terminal.open(pair.now, open()).unwrap().1;
    let mux = pair.terminal.current();
    let told = mux.send_capacity(id);
    assert!(told >= 4 << 20, "{told}");
    mux.set_present_buffers(100_000, 1 << 20);
    // What was told before is taken all the same.
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
    // The one that has the most on its way is told last.
    for _ in 0..2 {
        let mux = pair.terminal.current();
        mux.write(short, vec![0; total].into()).unwrap();
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
    // There is room again, which the long one may not use.
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

/// Writes single bytes to streams in turn, each sealed by itself where it is,
/// and none of them acknowledged: the payloads, with the streams to name at
/// their acknowledgement.
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
    let next = || match peer.poll_payload(CLASS, 1 << 20)? {
        Sealed::Payload { parts, streams } => Some((CLASS, joined(parts), streams)),
        Sealed::Withheld(flow) => panic!("{flow:?} has nothing withheld"),
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn single_bytes_are_gathered_behind_many_payloads() {
    let mut pair = Pair::acquainted(Config::default());
    let id = pair.terminal.open(pair.now, open()).unwrap().1;
    let written = 20_000;
    let mut under_way = single_bytes(&mut pair, &[id], written);
    let gathered = written - 8192;
    assert_eq!(under_way.len(), 8192 + gathered / 4096);
    // The OPEN is in the first of them.
    for (class, payload, _) in under_way.iter().rev() {
        let taken = pair.hub.handle_payload(pair.now, *class, payload.clone());
        taken.unwrap();
    }
    assert_eq!(codes(&events(&mut pair.hub)), []);
    assert_eq!(read_all(&mut pair.hub, id).len(), written - gathered % 4096);
    // Few bytes go on as soon as there are fewer payloads under way.
    for (_, _, streams) in under_way.drain(..gathered / 4096) {
        pair.terminal.current().acknowledged(&streams);
        assert_eq!(unacknowledged(&mut pair.terminal).len(), 0);
    }
    pair.terminal.current().acknowledged(&[id]);
    assert_eq!(unacknowledged(&mut pair.terminal).len(), 1);
}

#[test]
fn an_end_does_not_wait_behind_many_payloads() {
    let mut pair = Pair::acquainted(Config::default());
    let id = pair.terminal.open(pair.now, open()).unwrap().1;
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
    // What sends seldom does not wait for the others.
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
