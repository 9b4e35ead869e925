use super::*;
use crate::flows::hello::tests::hello;
use proptest::prelude::*;

const MS: Duration = Duration::from_millis(1);

struct Stream {
    watch: Watch,
    sizes: Arc<Mutex<Sizes>>,
    now: Instant,
}

impl Stream {
    fn new() -> Stream {
        Stream::with(Arc::default(), Instant::now())
    }

    /// Another stream to the same host.
    fn with(sizes: Arc<Mutex<Sizes>>, now: Instant) -> Stream {
        let target = Target::parse("origin.example", 443).unwrap();
        Stream {
            watch: Watch::new(Owner::Peer(10), &target, sizes.clone()),
            sizes,
            now,
        }
    }

    fn sends(&mut self, data: &[u8]) -> Option<u64> {
        self.watch
            .sends(self.now, data)
            .map(|start| start.size_bytes)
    }

    /// Sends pieces that are not HTTP. Returns the sizes of the flows that begin.
    fn bursts(&mut self, pieces: usize, piece: usize) -> Vec<u64> {
        let data = vec![0x17; piece];
        (0..pieces).filter_map(|_| self.sends(&data)).collect()
    }
}

fn answer(body: usize) -> Vec<u8> {
    let mut message =
        format!("HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: {body}\r\n\r\n");
    message.push_str(&"x".repeat(body));
    message.into_bytes()
}

#[test]
fn each_answer_of_a_connection_is_a_flow_of_its_length() {
    let mut stream = Stream::new();
    for body in [10, 5_000, 0, 3] {
        let message = answer(body);
        let (head, rest) = message.split_at(message.len() - body / 2);
        assert_eq!(stream.sends(head), Some(message.len() as u64));
        assert_eq!(stream.sends(rest), None);
    }
}

#[test]
fn a_head_in_pieces_begins_its_flow_when_it_is_whole() {
    let mut stream = Stream::new();
    let message = answer(1_000);
    assert_eq!(stream.sends(&message[..20]), None);
    assert_eq!(stream.sends(&message[20..40]), None);
    assert_eq!(
        stream.sends(&message[40..]),
        Some(message.len() as u64 - 40)
    );
}

#[test]
fn a_length_that_lies_overflows_nothing() {
    let mut stream = Stream::new();
    for length in [u64::MAX, 1 << 63] {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        let told = stream.sends(head.as_bytes()).unwrap();
        assert!(told >= length);
        // A request shows that the answer has ended.
        stream.watch.receives(stream.now, b"GET / HTTP/1.1\r\n");
    }
    assert_eq!(stream.sends(&answer(10)), Some(answer(10).len() as u64));
    let kind = ("origin.example".into(), Arc::default());
    let learnt = stream
        .sizes
        .lock()
        .unwrap()
        .expected(Owner::Peer(10), &kind);
    assert!(
        learnt.unwrap() < 100,
        "what came counts, not what was said: {learnt:?}"
    );
}

#[test]
fn an_answer_to_head_is_no_larger_than_its_head_and_does_not_swallow_the_next_one() {
    let film = b"HTTP/1.1 200 OK\r\nContent-Length: 5000000000\r\n\r\n";
    let mut stream = Stream::new();
    for request in [&b"HEAD /film HTTP/1.1\r\n"[..], b"HEAD /other HTTP/1.1\r\n"] {
        stream.watch.receives(stream.now, request);
        assert_eq!(stream.sends(film), Some(film.len() as u64));
        // The flow has ended: the next bytes begin another.
        assert!(stream.watch.present().is_none());
    }
    assert_eq!(stream.sends(&answer(7)), Some(answer(7).len() as u64));
    stream.watch.receives(stream.now, b"GET /film HTTP/1.1\r\n");
    assert_eq!(stream.sends(film), Some(5_000_000_000 + film.len() as u64));
}

#[test]
fn a_burst_ends_behind_a_round_trip_of_silence() {
    let mut stream = Stream::new();
    stream.watch.set_round_trip(100 * MS);
    assert_eq!(stream.bursts(3, 1_000), [UNKNOWN_BYTES]);
    stream.now += 99 * MS;
    assert!(stream.bursts(1, 1_000).is_empty());
    stream.now += 100 * MS;
    assert_eq!(stream.bursts(1, 1_000), [4_000], "as the last one was");
}

#[test]
fn a_burst_goes_on_while_nothing_can_be_sent() {
    let mut stream = Stream::new();
    stream.watch.set_round_trip(100 * MS);
    stream.bursts(1, 1_000);
    stream.now += 5_000 * MS;
    stream.watch.was_held_up(stream.now);
    assert!(stream.bursts(1, 1_000).is_empty());
    stream.now += 100 * MS;
    assert_eq!(
        stream.bursts(1, 1_000),
        [2_000],
        "both pieces were one burst"
    );
}

/// A TLS connection to an address, whose client asks for this name; the answers
/// that the hub sends, a round trip apart.
fn answers_over_tls(sizes: &Arc<Mutex<Sizes>>, name: &str, answers: &[usize]) -> Vec<u64> {
    let target = Target::parse("192.0.2.1", 443).unwrap();
    let mut stream = Stream::new();
    stream.watch = Watch::new(Owner::Peer(10), &target, sizes.clone());
    stream.watch.set_round_trip(100 * MS);
    let hello = hello(name, 16_384);
    stream.watch.receives(stream.now, &hello);
    let bursts = answers.iter().flat_map(|bytes| {
        stream.now += 100 * MS;
        stream.bursts(1, *bytes)
    });
    bursts.collect()
}

#[test]
fn sizes_of_tls_bursts_are_learnt_by_the_name_of_the_clienthello() {
    let sizes = Arc::default();
    let (page, video) = ("page.example", "video.example");
    answers_over_tls(&sizes, page, &[4_000, 20_000]);
    answers_over_tls(&sizes, video, &[3_000, 900_000]);
    // The handshake is remembered apart from what the host sends after it.
    let begun = answers_over_tls(&sizes, page, &[10, 10]);
    assert_eq!(begun, [4_000, 20_000]);
    let begun = answers_over_tls(&sizes, video, &[10, 10]);
    assert_eq!(begun, [3_000, 900_000]);
}

#[test]
fn a_stream_taken_up_midway_has_flows_behind_the_next_silence() {
    let mut stream = Stream::new();
    let target = Target::parse("origin.example", 443).unwrap();
    let owner = Owner::Peer(10);
    stream.watch = Watch::midway(stream.now, owner, &target, stream.sizes.clone());
    // The rest of a body may look as if a message began.
    assert_eq!(stream.sends(&answer(10)), None);
    stream.now += SILENCE;
    assert_eq!(stream.sends(&answer(10)), Some(answer(10).len() as u64));
    // A flow that was seen only in part is not remembered.
    assert_eq!(stream.sizes.lock().unwrap().len(), 1);
}

#[test]
fn a_burst_that_is_larger_than_expected_begins_anew_as_half_over() {
    let mut stream = Stream::new();
    // 32 KiB are expected, and then twice what has come.
    let begun = stream.bursts(40, 10_000);
    assert_eq!(
        begun,
        [
            UNKNOWN_BYTES,
            80_000 - 30_000,
            180_000 - 80_000,
            380_000 - 180_000,
            780_000 - 380_000,
        ]
    );
}

#[test]
fn sizes_are_learnt_by_name_across_streams() {
    let mut first = Stream::new();
    first.bursts(40, 10_000);
    let (sizes, now) = (first.sizes.clone(), first.now);
    drop(first);
    let mut next = Stream::with(sizes, now);
    assert_eq!(next.bursts(40, 10_000), [400_000]);
}

/// Knows the size of one object.
#[derive(Debug)]
struct OneObject;

impl ObjectSizes for OneObject {
    fn size_bytes(&self, host: &str, target: &str) -> Option<u64> {
        (host == "a.example" && target == "/movie?x=1").then_some(3_000_000)
    }
}

const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn an_answer_without_a_length_has_the_size_that_its_object_is_told_to_have() {
    let mut stream = Stream::new();
    stream.watch = stream.watch.asking(Some(Arc::new(OneObject)));
    let request = b"GET /movie?x=1 HTTP/1.1\r\nHost: A.example\r\n\r\n";
    for cut in [4, 30, request.len() - 1, request.len()] {
        let (first, rest) = request.split_at(cut);
        stream.watch.receives(stream.now, first);
        if !rest.is_empty() {
            stream.watch.receives(stream.now, rest);
        }
        let size = 3_000_000 + CHUNKED.len() as u64;
        assert_eq!(stream.sends(CHUNKED), Some(size), "cut at {cut}");
    }
    // The message's own length takes precedence, and the size of another object does not apply.
    stream.watch.receives(stream.now, request);
    assert_eq!(stream.sends(&answer(7)), Some(answer(7).len() as u64));
    stream.watch.receives(
        stream.now,
        b"GET /other HTTP/1.1\r\nHost: a.example\r\n\r\n",
    );
    let begun = stream.sends(CHUNKED).unwrap();
    assert!(begun < 3_000_000, "{begun}");
    // A partial answer, a redirection or an error is not the whole object.
    for status in ["206 Partial Content", "302 Found", "404 Not Found"] {
        stream.watch.receives(stream.now, request);
        let head = format!("HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n");
        let begun = stream.sends(head.as_bytes()).unwrap();
        assert!(begun < 3_000_000, "{status}: {begun}");
    }
}

#[test]
fn a_request_head_without_end_is_not_kept() {
    let mut stream = Stream::new();
    stream.watch = stream.watch.asking(Some(Arc::new(OneObject)));
    stream
        .watch
        .receives(stream.now, b"GET /movie?x=1 HTTP/1.1\r\n");
    for _ in 0..100 {
        stream.watch.receives(stream.now, &[b'x'; 1_000]);
        assert!(stream.watch.asked.len() < MOST_HEAD_BYTES);
    }
    assert!(stream.watch.asked.is_empty());
}

#[test]
fn a_chunked_answer_has_the_size_that_its_type_had() {
    let mut stream = Stream::new();
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/css\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(stream.sends(head), Some(UNKNOWN_BYTES));
    stream.bursts(1, 9_000);
    stream.watch.receives(stream.now, b"GET /y HTTP/1.1\r\n");
    assert_eq!(stream.sends(head), Some(9_000 + head.len() as u64));
}

proptest! {
    /// The counts stay right whatever the bytes are and however they are cut into pieces.
    #[test]
    fn no_bytes_confuse_it(
        pieces in proptest::collection::vec(
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 1..100),
                (0..2_000usize).prop_map(answer),
                Just(b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n".to_vec()),
                Just(b"GET / HTTP/1.1\r\n".to_vec()),
            ],
            1..40,
        ),
        cut in 1..500usize,
    ) {
        let mut stream = Stream::new();
        let mut total = 0;
        for piece in pieces {
            for part in piece.chunks(cut) {
                stream.sends(part);
                total += part.len() as u64;
                stream.now += 7 * MS;
            }
            stream.watch.receives(stream.now, &piece);
        }
        prop_assert_eq!(stream.watch.total_bytes(), total);
        if let State::Head(known) = &stream.watch.state {
            prop_assert!(known.len() <= MOST_HEAD_BYTES);
        }
    }

    #[test]
    fn what_is_fuzzed_holds_here(
        cut in any::<u8>(),
        answers in proptest::collection::vec(0..300usize, 0..4),
        rest in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let answers: Vec<u8> = answers.into_iter().flat_map(answer).collect();
        crate::flows::fuzz(&[&[cut], &answers[..], &rest[..]].concat());
    }
}
