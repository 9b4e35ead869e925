use std::sync::Mutex;

use super::*;
use crate::classify::Verdict;
use crate::config::ClassRule;
use crate::flows::hello::tests::hello;
use crate::flows::{Asked, Destination, FlowFilter, Flows, News, Owner, PathNews, TooManyReaders};
use crate::stream::{ComparedPath, Protocol, Target};

#[derive(Debug, PartialEq, Eq)]
enum Told {
    Flow(u64),
    Class(Class),
    Sent(usize),
}

fn choice(path: &str) -> PathChoice {
    PathChoice {
        policy: "minfct",
        estimate: Some("open-session"),
        chosen: Some(path.to_owned()),
        compared: vec![ComparedPath {
            path: path.to_owned(),
            delay: Duration::from_millis(15),
            capacity_bps: Some(10_000_000),
            loss: 0.0,
            busy: Duration::ZERO,
            flows: 1,
            competing_bytes: 7,
            before_bytes: 0,
            completes: Some(Duration::from_millis(20)),
            others_wait: Duration::ZERO,
        }],
    }
}

/// Records what it is told.
#[derive(Default)]
struct Noting {
    told: Arc<Mutex<Vec<Told>>>,
    receives: Vec<Bytes>,
    /// The predicted completion of flows.
    completes: Option<Duration>,
}

impl Noting {
    fn note(&self, told: Told) {
        self.told.lock().unwrap().push(told);
    }
}

impl Conduit for Noting {
    fn poll_send_capacity(&mut self, _: &mut Context<'_>) -> Poll<Result<usize, Failure>> {
        Poll::Ready(Ok(1 << 20))
    }

    fn send(&mut self, data: Bytes) {
        self.note(Told::Sent(data.len()));
    }

    fn begin_flow(&mut self, size_bytes: u64, explain: bool) -> FlowPath {
        self.note(Told::Flow(size_bytes));
        FlowPath {
            round_trip: None,
            completes: self.completes,
            why: explain.then(|| choice("lte")),
        }
    }

    fn set_class(&mut self, class: Class) {
        self.note(Told::Class(class));
    }

    fn finish(&mut self) {}

    fn stop(&mut self) {}

    fn reset(&mut self, _: Failure) {}

    fn poll_receive(&mut self, _: &mut Context<'_>, _: usize) -> Poll<Received> {
        match self.receives.pop() {
            Some(data) => Poll::Ready(Ok(Some(data))),
            None => Poll::Pending,
        }
    }

    fn poll_outcome(&mut self, _: &mut Context<'_>) -> Poll<Result<Connected, Failure>> {
        Poll::Pending
    }

    fn connected(&mut self, _: Connected) {}
}

/// The events of a stream of class 1 when these pieces of an answer arrive.
fn told(rules: &str, pieces: &[&[u8]]) -> Vec<Told> {
    told_of(Owner::Peer(10), rules, &[], pieces)
}

/// As below, for a stream that existed before.
fn told_again(rules: &str, received: &[&[u8]], pieces: &[&[u8]]) -> Vec<Told> {
    told_by(true, Owner::Peer(10), rules, received, pieces)
}

/// The events of a stream of class 1 whose other side has sent `received` earlier.
fn told_of(owner: Owner, rules: &str, received: &[&[u8]], pieces: &[&[u8]]) -> Vec<Told> {
    told_by(false, owner, rules, received, pieces)
}

fn classifier(rules: &str) -> Classifier {
    #[derive(serde::Deserialize)]
    struct Rules {
        rule: Vec<ClassRule>,
    }
    let rules: Rules = toml::from_str(rules).unwrap();
    let named = |name: &str| name.parse().ok().map(Class);
    Classifier::new(&rules.rule, Class(9), named).unwrap()
}

fn request() -> OpenRequest {
    OpenRequest {
        target: Target::parse("a.example", 80).unwrap(),
        client: "10.0.0.5:1".parse().unwrap(),
        listener: "peer".into(),
        protocol: Protocol::Transparent,
        class: Class(1),
        awaits_outcome: false,
        trace: None,
    }
}

fn told_by(
    again: bool,
    owner: Owner,
    rules: &str,
    received: &[&[u8]],
    pieces: &[&[u8]],
) -> Vec<Told> {
    let flows = Flows::new(Arc::new(classifier(rules)));
    let request = request();
    let notes: Arc<Mutex<Vec<Told>>> = Arc::default();
    let received = received.iter().rev();
    let inner = Box::new(Noting {
        told: notes.clone(),
        receives: received
            .map(|piece| Bytes::copy_from_slice(piece))
            .collect(),
        completes: None,
    });
    let mut conduit = match again {
        false => flows.watch(inner, owner, &request, None, None),
        true => flows.watch_again(inner, owner, &request),
    };
    let mut cx = Context::from_waker(std::task::Waker::noop());
    while conduit.poll_receive(&mut cx, 1 << 20).is_ready() {}
    for piece in pieces {
        conduit.send(Bytes::copy_from_slice(piece));
    }
    drop(conduit);
    std::mem::take(&mut notes.lock().unwrap())
}

/// A conduit with these rules, and the decisions about its flows.
fn decided(rules: &str, target: &str) -> (Box<dyn Conduit>, Arc<Decisions>) {
    let rules = classifier(rules);
    let flows = Flows::new(Arc::new(rules));
    let request = OpenRequest {
        target: Target::parse(target, 80).unwrap(),
        ..request()
    };
    let inner = Box::new(Noting {
        ..Noting::default()
    });
    let verdict = Verdict {
        class: request.class,
        direct: false,
        rule: Some(0),
    };
    let owner = Owner::Client(request.client.ip());
    let conduit = flows.watch(inner, owner, &request, None, Some(verdict));
    (conduit, flows.decisions().clone())
}

async fn flow(told: &mut Asked) -> Arc<FlowDecision> {
    match told.next().await {
        Some((News::Flow(flow), 0)) => flow,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_rest_of_a_flow_that_is_late_is_decided_on_anew() {
    let flows = Flows::new(Arc::new(classifier("rule = []")));
    let notes: Arc<Mutex<Vec<Told>>> = Arc::default();
    let inner = Box::new(Noting {
        told: notes.clone(),
        completes: Some(Duration::from_millis(500)),
        ..Noting::default()
    });
    let request = request();
    let watch = Watch::new(Owner::Peer(10), &request.target, Arc::default());
    let (rules, decisions) = (flows.rules.clone(), flows.decisions().clone());
    let mut conduit = FlowConduit::new(inner, watch, rules, &request, None, decisions);
    let begin = Instant::now();
    let mut told = |after_ms: u64, data: &[u8]| {
        conduit.look_at(begin + Duration::from_millis(after_ms), data);
        std::mem::take(&mut *notes.lock().unwrap())
    };
    let (piece, last) = (vec![1_u8; 100_000], vec![1_u8; 800_000]);
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
    let whole = head.len() as u64 + 1_000_000;
    assert_eq!(told(0, head), [Told::Flow(whole)]);
    // It was predicted to complete by 0.5 s.
    assert!(told(1_900, &piece).is_empty());
    assert_eq!(told(2_100, &piece), [Told::Flow(900_000)]);
    assert!(told(4_000, b"more").is_empty());
    assert_eq!(told(4_200, b"more"), [Told::Flow(799_996)]);
    // A complete flow is not late, and the next one is not late yet.
    assert!(told(6_000, &last[..799_992]).is_empty());
    assert_eq!(told(60_000, head), [Told::Flow(whole)]);
}

#[test]
fn rules_that_come_later_hold_for_what_open_streams_send_from_then_on() {
    let flows = Flows::new(Arc::new(classifier("rule = []")));
    let notes: Arc<Mutex<Vec<Told>>> = Arc::default();
    let inner = Box::new(Noting {
        told: notes.clone(),
        ..Noting::default()
    });
    let mut conduit = flows.watch(inner, Owner::Peer(10), &request(), None, None);
    let mut classes = |bytes: usize| {
        conduit.send(Bytes::from(vec![1; bytes]));
        let told = std::mem::take(&mut *notes.lock().unwrap()).into_iter();
        let classes = told.filter(|told| matches!(told, Told::Class(_)));
        classes.collect::<Vec<_>>()
    };
    let long = "{ after_bytes = 100000, class = '2' }";
    let longer = "{ after_bytes = 300000, class = '3' }";
    let go_by = |rules: &[&str]| {
        let rules = format!("rule = [{}]", rules.join(", "));
        flows.set_rules(Arc::new(classifier(&rules)));
    };
    assert!(classes(200_000).is_empty());
    go_by(&[long, longer]);
    assert_eq!(classes(4), [Told::Class(Class(2))]);
    go_by(&[longer, long]);
    assert!(classes(4).is_empty());
    assert_eq!(classes(100_000), [Told::Class(Class(3))]);
    // Without such a rule it has the class of its connection.
    go_by(&[]);
    assert_eq!(classes(4), [Told::Class(Class(1))]);
}

const RULES: &str = r#"rule = [
    { name = "web", ports = [80], class = "1" },
    { name = "long", after_bytes = 100000, class = "2" },
]"#;

#[tokio::test]
async fn whoever_asks_is_told_of_each_decision_and_of_what_it_was_made_by() {
    let (mut conduit, decisions) = decided(RULES, "a.example");
    conduit.send(Bytes::from_static(b"not heard by anybody"));
    let filter = FlowFilter {
        client: Some("10.0.0.0/24".parse().unwrap()),
        destination: Some(Destination::Host(
            "*.example".to_owned().try_into().unwrap(),
        )),
        rule: None,
    };
    let mut told = decisions.ask(filter).unwrap();
    // It is larger than expected: the path of the rest is chosen again.
    conduit.send(Bytes::from(vec![0; 40_000]));
    let first = flow(&mut told).await;
    assert_eq!(
        (first.cause, first.size_from),
        (Cause::Larger, Some(SizeSource::Doubled))
    );
    assert_eq!(
        (first.rule.as_deref(), first.class),
        (Some("web"), Some(Class(1)))
    );
    assert_eq!(first.choice, Some(choice("lte")));
    conduit.send(Bytes::from(vec![0; 70_000]));
    let second = flow(&mut told).await;
    assert_eq!(
        (second.rule.as_deref(), second.class),
        (Some("long"), Some(Class(2)))
    );
    // A change of a path of its flow is reported; a change of another path is not.
    for path in ["moon", "lte"] {
        decisions.path_changed(PathNews {
            path: path.to_owned(),
            change: "blocked",
            reason: "operator",
            moved: None,
        });
    }
    match told.next().await {
        Some((News::Path(news), 0)) => assert_eq!(news.path, "lte"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn nobody_is_told_of_flows_that_were_not_asked_for() {
    let network = |text: &str| Some(text.parse().unwrap());
    let host = |text: &str| Destination::Host(text.to_owned().try_into().unwrap());
    let (mut conduit, decisions) = decided(RULES, "192.0.2.7");
    let others = [
        FlowFilter {
            client: network("10.0.1.0/24"),
            ..FlowFilter::default()
        },
        FlowFilter {
            destination: Some(host("a.example")),
            ..FlowFilter::default()
        },
        FlowFilter {
            rule: Some("long".to_owned()),
            ..FlowFilter::default()
        },
    ];
    let mut others = others.map(|filter| decisions.ask(filter).unwrap());
    let mut meant = decisions
        .ask(FlowFilter {
            client: network("10.0.0.5/32"),
            destination: Some(Destination::Network("192.0.2.0/24".parse().unwrap())),
            rule: Some("web".to_owned()),
        })
        .unwrap();
    conduit.send(Bytes::from_static(b"x"));
    assert_eq!(flow(&mut meant).await.cause, Cause::Begins);
    for other in &mut others {
        let next = std::pin::pin!(other.next());
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(next.poll(&mut cx).is_pending());
    }
}

#[tokio::test]
async fn a_slow_reader_misses_some_and_a_ninth_one_is_refused() {
    let (mut conduit, decisions) = decided(RULES, "a.example");
    let ask = || decisions.ask(FlowFilter::default());
    let mut readers: Vec<Asked> = (0..8).map(|_| ask().unwrap()).collect();
    assert_eq!(ask().unwrap_err(), TooManyReaders);
    let message = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
    for _ in 0..300 {
        conduit.send(Bytes::from_static(message));
    }
    let (_, missed) = readers[0].next().await.unwrap();
    assert_eq!(missed, 300 - 256);
    readers.pop();
    assert!(ask().is_ok());
}

#[test]
fn a_flow_is_told_before_its_first_bytes_and_its_class_before_that() {
    let video = b"HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\nContent-Length: 5\r\n\r\nabcde";
    let page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nab";
    let rules = "rule = [{ content_types = ['video/*'], class = '2' }]";
    let lengths = (video.len(), page.len());
    assert_eq!(
        told(rules, &[page, video, page]),
        [
            Told::Flow(lengths.1 as u64),
            Told::Sent(lengths.1),
            Told::Class(Class(2)),
            Told::Flow(lengths.0 as u64),
            Told::Sent(lengths.0),
            // No rule matches it.
            Told::Class(Class(1)),
            Told::Flow(lengths.1 as u64),
            Told::Sent(lengths.1),
        ]
    );
}

const VIDEO_HOST: &str = "rule = [{ hosts = ['*.video.example'], class = '2' }]";

fn client() -> Owner {
    Owner::Client([10, 0, 0, 5].into())
}

#[test]
fn a_clienthello_gives_its_stream_the_class_of_its_name_before_it_is_sent() {
    let hello = hello("cdn.video.example", 16_384);
    let told = told_of(client(), VIDEO_HOST, &[], &[&hello]);
    assert_eq!(told[0], Told::Class(Class(2)));
    assert!(matches!(told[1], Told::Flow(_)));
    assert_eq!(told[2..], [Told::Sent(hello.len())]);
}

#[test]
fn a_clienthello_in_pieces_is_passed_on_at_once_and_named_when_it_is_whole() {
    let hello = hello("cdn.video.example", 40);
    let pieces: Vec<&[u8]> = hello.chunks(50).collect();
    let told = told_of(client(), VIDEO_HOST, &[], &pieces);
    let class = |told: &Told| *told == Told::Class(Class(2));
    let place = told.iter().position(class).expect("a class");
    let sent = |told: &&Told| matches!(told, Told::Sent(_));
    assert_eq!(told.iter().filter(sent).count(), pieces.len());
    assert!(told[..place].iter().filter(sent).count() >= 1, "{told:?}");
}

#[test]
fn what_answers_a_clienthello_of_the_other_side_is_of_its_name() {
    let hello = hello("cdn.video.example", 16_384);
    let peer = Owner::Peer(10);
    let told = told_of(
        peer,
        VIDEO_HOST,
        &[&hello[..60], &hello[60..]],
        &[b"\x16\x03\x03"],
    );
    assert_eq!(told[0], Told::Class(Class(2)));
}

#[test]
fn what_answers_a_request_of_the_other_side_is_of_its_host() {
    let request = b"GET /x HTTP/1.1\r\nHost: cdn.video.example:80\r\n\r\n";
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
    for cut in [4, 30, request.len() - 1] {
        let pieces = [&request[..cut], &request[cut..]];
        let told = told_of(Owner::Peer(10), VIDEO_HOST, &pieces, &[answer]);
        assert_eq!(told[0], Told::Class(Class(2)), "cut at {cut}");
    }
}

#[test]
fn an_origin_cannot_name_a_stream() {
    let hello = hello("cdn.video.example", 16_384);
    let request = b"GET /x HTTP/1.1\r\nHost: cdn.video.example\r\n\r\n";
    for told in [
        told_of(client(), VIDEO_HOST, &[request], &[b"\x17"]),
        told_of(client(), VIDEO_HOST, &[&hello], &[b"\x17"]),
        told_of(Owner::Peer(10), VIDEO_HOST, &[], &[&hello]),
    ] {
        assert!(!told.contains(&Told::Class(Class(2))), "{told:?}");
    }
}

#[test]
fn a_stream_that_was_there_before_has_flows_from_the_next_request_on() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Type: video/mp4\r\nContent-Length: 2\r\n\r\nab";
    let rules = "rule = [{ content_types = ['video/*'], class = '2' }]";
    // It may be in the middle of another answer, and keeps its class.
    assert_eq!(
        told_again(rules, &[], &[answer]),
        [Told::Sent(answer.len())]
    );
    let request = b"GET / HTTP/1.1\r\n";
    let length = answer.len() as u64;
    assert_eq!(
        told_again(rules, &[request], &[answer]),
        [
            Told::Class(Class(2)),
            Told::Flow(length),
            Told::Sent(answer.len())
        ]
    );
    let told = told_again("rule = []", &[request], &[answer]);
    assert_eq!(told, [Told::Flow(length), Told::Sent(answer.len())]);
}

#[test]
fn a_stream_that_turns_out_to_be_long_is_promoted() {
    let rules = "rule = [{ after_bytes = 2500, class = '3' }]";
    let piece = [0x17; 1000];
    let told = told(rules, &[&piece[..]; 4]);
    let classes = told.iter().filter(|told| matches!(told, Told::Class(_)));
    assert_eq!(classes.count(), 1);
    // The third piece gives it that class.
    let place = told.iter().position(|told| *told == Told::Class(Class(3)));
    let sent = told.iter().take(place.unwrap());
    assert_eq!(sent.filter(|told| matches!(told, Told::Sent(_))).count(), 2);
}

#[test]
fn the_end_of_a_large_answer_is_not_taken_for_a_small_one() {
    let rules = "rule = [
        { max_size_bytes = 20000, class = '4' },
        { after_bytes = 90000, class = '3' },
    ]";
    let mut answer = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n".to_vec();
    answer.resize(answer.len() + 100_000, b'x');
    let pieces: Vec<&[u8]> = answer.chunks(10_000).collect();
    let told = told(rules, &pieces);
    let classes = told.iter().filter(|told| matches!(told, Told::Class(_)));
    assert_eq!(classes.collect::<Vec<_>>(), [&Told::Class(Class(3))]);
}
