//! The protocol's promises when something goes wrong or a resource is scarce.

use crate::pair::{
    CLASS, Pair, codes, deliver, events, joined, open, payloads, read_all, windows, write,
};
use bytes::Bytes;
use underpass_streams::{
    Announcement, Config, Event, Frame, Open, OpenError, Peer, ResetCode, Sealed, Side,
    StreamError, StreamId, StreamState, Target, TraceContext, WriteError, decode_frames,
};

/// A payload as the peer of `mux` might send it.
fn forged(mux: &Peer, sender: u64, frames: &[u8]) -> Bytes {
    let mut payload = vec![1];
    payload.extend(sender.to_be_bytes());
    payload.extend(mux.incarnation().to_be_bytes());
    payload.extend(frames);
    payload.into()
}

#[test]
fn data_before_its_open_is_kept() {
    let (mut pair, id) = Pair::opened(Config::default());
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
    let (mut pair, id) = Pair::opened(Config::default());
    pair.terminal.current().finish(id).unwrap();
    let sealed = payloads(&mut pair.terminal, 1 << 20);
    deliver(&mut pair.hub, pair.now, &sealed);
    pair.hub.current().finish(id).unwrap();
    pair.exchange();
    events(&mut pair.hub);
    deliver(&mut pair.hub, pair.now, &sealed);
    assert_eq!(events(&mut pair.hub), []);
    assert_eq!(pair.hub.streams().count(), 0);
}

#[test]
fn only_the_floor_may_be_sent_before_the_peer_is_known() {
    let mut pair = Pair::new(Config::default());
    let id = pair.terminal.open(pair.now, open()).unwrap().1;
    assert_eq!(pair.terminal.current().send_capacity(id), 64 * 1024);
    write(&mut pair.terminal, id, vec![0; 64 * 1024]);
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
        write(&mut pair.terminal, id, vec![0; 4 << 20]);
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
        write(&mut pair.terminal, id, vec![0; 2 << 20]);
        pair.exchange();
    }
    let id = pair.terminal.open(pair.now, open()).unwrap().1;
    assert!(pair.terminal.current().send_capacity(id) >= 64 * 1024);
    // It keeps that room while its reader reads.
    write(&mut pair.terminal, id, vec![7; 1 << 20]);
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
fn an_open_of_what_no_host_is_called_resets_its_stream_alone() {
    let with_host = |host: &str| {
        let target = Target::Name {
            host: host.to_owned(),
            port: 443,
        };
        Open { target, ..open() }
    };
    for host in [
        "a host.example",
        "host\u{1b}[2J.example",
        "host\n.example",
        "host\0",
        "host.example/path",
        "user@host.example",
        "[2001:db8::1]",
        "b\u{fc}cher.example",
        "\u{202e}elpmaxe.host",
    ] {
        let mut pair = Pair::acquainted(Config::default());
        let bad = pair.terminal.open(pair.now, with_host(host)).unwrap().1;
        pair.terminal.current().write(bad, "data".into()).unwrap();
        let good = pair.terminal.open(pair.now, open()).unwrap().1;
        pair.exchange();
        let told = events(&mut pair.hub);
        let opened: Vec<StreamId> = told.iter().filter_map(opened).collect();
        assert_eq!(opened, [good], "{host:?}");
        let reset = [(bad, ResetCode::Protocol)];
        assert_eq!(codes(&events(&mut pair.terminal)), reset, "{host:?}");
    }
    for host in [
        "xn--bcher-kva.example",
        "_sip._tcp.example.",
        "HOST",
        "192.0.2.1",
    ] {
        let mut pair = Pair::acquainted(Config::default());
        let id = pair.terminal.open(pair.now, with_host(host)).unwrap().1;
        pair.exchange();
        let told = events(&mut pair.hub);
        let opened: Vec<StreamId> = told.iter().filter_map(opened).collect();
        assert_eq!(opened, [id], "{host:?}");
    }
}

/// The stream whose start an event reports.
fn opened(event: &Event) -> Option<StreamId> {
    match event {
        Event::Opened { id, .. } => Some(*id),
        _ => None,
    }
}

#[test]
fn an_open_without_a_readable_name_resets_its_stream_alone() {
    for name in [&b""[..], b"\xff", &[b'a'; 256]] {
        let (mut pair, good) = Pair::opened(Config::default());
        pair.exchange();
        events(&mut pair.hub);
        let mut open = vec![2, 2, 0, 0, 0, 80];
        open.extend((name.len() as u16 | 0x4000).to_be_bytes());
        open.extend(name);
        open.push(0);
        let mut frames = vec![0x02];
        frames.extend((open.len() as u16 | 0x4000).to_be_bytes());
        frames.extend(open);
        frames.extend([0x08, 3, good.0 as u8, 0, b'x']);
        let payload = forged(&pair.hub, 100, &frames);
        pair.hub.handle_payload(pair.now, CLASS, payload).unwrap();
        assert_eq!(events(&mut pair.hub), [Event::Readable(good)]);
        let (_, answer) = decode_frames(&payloads(&mut pair.hub, 4096)[0].1).unwrap();
        assert!(matches!(
            answer[..],
            [Frame::Reset {
                id: StreamId(2),
                code: ResetCode::Protocol,
                ..
            }]
        ));
    }
}

#[test]
fn a_malformed_payload_has_no_effect_at_all() {
    let mut pair = Pair::acquainted(Config::default());
    // A valid DATA with FIN, then a truncated CREDIT.
    let frames = [0x09, 3, 0, 0, b'x', 0x04, 9, 0];
    let payload = forged(&pair.hub, 100, &frames);
    assert!(pair.hub.handle_payload(pair.now, CLASS, payload).is_err());
    assert_eq!(pair.hub.streams().count(), 0);
}

#[test]
fn a_reset_behind_is_seen_after_all_that_was_written() {
    let (mut pair, id) = Pair::opened(Config::default());
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
    let (mut pair, id) = Pair::opened(Config::default());
    pair.exchange();
    events(&mut pair.hub);
    write(&mut pair.hub, id, "the whole answer");
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
    let (mut pair, id) = Pair::opened(Config::default());
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
    let sealed = pair.terminal.poll_payload(pair.now, CLASS, 4096);
    let Some(Sealed::Payload { parts, streams }) = sealed else {
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
    // No later event of it is reported.
    pair.exchange();
    assert_eq!(events(&mut pair.terminal), []);
}

#[test]
fn stop_ends_one_direction_only() {
    let (mut pair, id) = Pair::opened(Config::default());
    pair.terminal.current().write(id, "upload".into()).unwrap();
    pair.exchange();
    events(&mut pair.hub);
    pair.hub.current().stop(id, ResetCode::Cancelled).unwrap();
    write(&mut pair.hub, id, "no more, thanks");
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
    deliver(&mut pair.hub, pair.now, &late);
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
