use std::sync::Mutex;

use tokio::io::{DuplexStream, duplex};
use underpass_payloads::Limits;

use underpass_bundle::{Delivery, is_named_service};

use super::*;
use crate::service::tests::{applications, delivery};

#[derive(Default)]
struct Recorder {
    sent: Mutex<Vec<Outgoing>>,
    is_full: bool,
}

impl Node for Recorder {
    fn number(&self) -> u64 {
        1
    }

    fn endpoint(&self, service: u64) -> Option<Eid> {
        match service == named_service("incoming") {
            true => Eid::with_dtn("//edge-7/incoming").ok(),
            false => (!is_named_service(service)).then(|| ipn(1, service)),
        }
    }

    fn send(&self, bundle: Outgoing) -> Result<Option<(u64, u64)>, SendError> {
        if self.is_full {
            return Err(SendError::NoRoom);
        }
        self.sent.lock().unwrap().push(bundle);
        Ok(Some((1_000, 2)))
    }
}

struct Served {
    socket: DuplexStream,
    payloads: Arc<Payloads>,
    frames: FrameReader,
    service: Service,
    task: tokio::task::JoinHandle<Result<(), ClientError>>,
    folder: Arc<tempfile::TempDir>,
}

impl Served {
    fn with(node: Arc<Recorder>) -> Served {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("applications.sqlite");
        let limits = Limits {
            quota_bytes: 1 << 20,
            payload_bytes: 1 << 19,
            leave_free_bytes: 0,
        };
        let payloads = Payloads::open(&folder.path().join("payloads"), limits).unwrap();
        let (all, for_service) = (applications(100), Some(&payloads));
        let service = Service::start(&path, all, for_service, Box::new(|_| {})).unwrap();
        Served::by(service, payloads, Arc::new(folder), node)
    }

    /// Another client of the same node.
    fn another(&self) -> Served {
        let (service, payloads) = (self.service.clone(), self.payloads.clone());
        Served::by(service, payloads, self.folder.clone(), Arc::default())
    }

    fn by(
        service: Service,
        payloads: Arc<Payloads>,
        folder: Arc<tempfile::TempDir>,
        node: Arc<Recorder>,
    ) -> Served {
        let (socket, theirs) = duplex(1 << 10);
        let for_client = service.clone();
        let for_files = Some(payloads.clone());
        let task = tokio::spawn(async move {
            serve_client(theirs, &for_client, node, 1 << 16, for_files).await
        });
        Served {
            socket,
            payloads,
            frames: FrameReader::new(1 << 16),
            service,
            task,
            folder,
        }
    }

    async fn ask(&mut self, request: &Request, payload: &[u8]) {
        let head = encode_head(request, payload.len());
        self.socket.write_all(&head).await.unwrap();
        self.socket.write_all(payload).await.unwrap();
    }

    async fn event(&mut self) -> (Event, Bytes) {
        loop {
            if let Some((head, payload)) = self.frames.next_frame().unwrap() {
                return (Event::parse(&head).unwrap(), payload);
            }
            let read = self.socket.read_buf(self.frames.buffer()).await.unwrap();
            assert_ne!(read, 0, "the node has ended the connection");
        }
    }

    async fn refusal(&mut self) -> ErrorCode {
        match self.event().await.0 {
            Event::Error { code, .. } => code,
            other => panic!("no refusal but {other:?}"),
        }
    }
}

fn register(service: u64) -> Request {
    Request::Register {
        id: 1,
        service: Some(service),
        name: None,
    }
}

fn send_to(destination: &str) -> Request {
    Request::Send {
        id: 2,
        service: 9,
        destination: destination.to_owned(),
        lifetime_ms: Some(5_000),
        custody: None,
        reports: vec![Reported::Delivered],
    }
}

#[tokio::test]
async fn bundles_are_sent_and_delivered() {
    let node = Arc::new(Recorder::default());
    let mut served = Served::with(node.clone());
    assert!(matches!(
        served.event().await.0,
        Event::Hello { node: 1, .. }
    ));
    served.ask(&send_to("ipn:10.40"), b"early").await;
    assert_eq!(served.refusal().await, ErrorCode::NotAllowed);
    served.ask(&register(9), b"").await;
    let endpoint = "ipn:1.9".to_owned();
    let registered = Event::Registered {
        id: 1,
        service: 9,
        endpoint,
    };
    assert_eq!(served.event().await.0, registered);
    let large = vec![7; 1 << 16];
    served.ask(&send_to("ipn:10.40"), &large).await;
    let Event::Sent {
        id: 2, sequence, ..
    } = served.event().await.0
    else {
        panic!("the bundle is not taken");
    };
    assert_eq!(sequence, Some(2));
    let sent = node.sent.lock().unwrap().pop().unwrap();
    assert_eq!(sent.payload, large);
    assert!(sent.custody);
    assert_eq!(sent.lifetime, Some(Duration::from_secs(5)));
    served.service.arrived(delivery(ipn(10, 40), 0, b"answer"));
    let (bundle, payload) = served.event().await;
    assert!(
        matches!(bundle, Event::Bundle { service: 9, .. }),
        "{bundle:?}"
    );
    assert_eq!(&payload[..], b"answer");
}

#[tokio::test]
async fn a_service_with_a_name_is_registered_and_sends_by_it() {
    let node = Arc::new(Recorder::default());
    let mut served = Served::with(node.clone());
    served.event().await;
    let register = |service, name: &str| Request::Register {
        id: 1,
        service,
        name: Some(name.to_owned()),
    };
    for (service, name) in [(Some(9), "incoming"), (None, "elsewhere")] {
        served.ask(&register(service, name), b"").await;
        assert_eq!(served.refusal().await, ErrorCode::NotAllowed, "{name}");
    }
    served.ask(&register(None, "incoming"), b"").await;
    let Event::Registered {
        service, endpoint, ..
    } = served.event().await.0
    else {
        panic!("it is not registered");
    };
    assert_eq!(endpoint, "dtn://edge-7/incoming");
    let send = Request::Send {
        id: 2,
        service,
        destination: "dtn://rover/in".to_owned(),
        lifetime_ms: None,
        custody: None,
        reports: Vec::new(),
    };
    served.ask(&send, b"x").await;
    let Event::Sent { source, .. } = served.event().await.0 else {
        panic!("the bundle is not taken");
    };
    assert_eq!(source, endpoint);
    assert_eq!(node.sent.lock().unwrap().pop().unwrap().service, service);
    let bundle = Delivery {
        service,
        ..delivery(ipn(10, 40), 0, b"answer")
    };
    served.service.arrived(bundle);
    let (bundle, _) = served.event().await;
    assert!(matches!(bundle, Event::Bundle { service: of, .. } if of == service));
}

#[tokio::test]
async fn what_cannot_be_sent_is_refused_and_the_client_goes_on() {
    let mut served = Served::with(Arc::new(Recorder {
        is_full: true,
        ..Recorder::default()
    }));
    served.event().await;
    served.ask(&register(9), b"").await;
    served.event().await;
    for destination in ["", "ipn:1", "dtn:none", "ipn:0.5", "ipn:1.2.3.4", "ipn:a.b"] {
        served.ask(&send_to(destination), b"x").await;
        assert_eq!(
            served.refusal().await,
            ErrorCode::Destination,
            "{destination}"
        );
    }
    served.ask(&send_to("ipn:10.40"), b"x").await;
    assert_eq!(served.refusal().await, ErrorCode::NoRoom);
    served.ask(&register(80), b"").await;
    assert_eq!(served.refusal().await, ErrorCode::NotAllowed);
}

fn begin(id: u64, bytes: u64) -> Request {
    Request::Begin {
        id,
        service: 9,
        destination: "ipn:10.40".to_owned(),
        lifetime_ms: None,
        custody: None,
        reports: Vec::new(),
        bytes,
    }
}

async fn registered(node: Arc<Recorder>) -> Served {
    let mut served = Served::with(node);
    served.event().await;
    served.ask(&register(9), b"").await;
    served.event().await;
    served
}

#[tokio::test(start_paused = true)]
async fn a_client_gets_the_service_of_one_whose_end_is_not_seen_yet() {
    let first = registered(Arc::default()).await;
    let mut second = first.another();
    second.event().await;
    second.ask(&register(9), b"").await;
    let early = timeout(RELEASE_PATIENCE / 2, second.event()).await;
    assert!(early.is_err(), "{early:?}");
    drop(first.socket);
    let event = second.event().await.0;
    let is_given = matches!(event, Event::Registered { service: 9, .. });
    assert!(is_given, "{event:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_keeps_its_service_whoever_asks_for_it() {
    let mut first = registered(Arc::default()).await;
    let mut second = first.another();
    second.event().await;
    let begun = Instant::now();
    for _ in 0..3 {
        second.ask(&register(9), b"").await;
    }
    for _ in 0..3 {
        assert_eq!(second.refusal().await, ErrorCode::Taken);
    }
    let took = begun.elapsed();
    let once = RELEASE_PATIENCE..2 * RELEASE_PATIENCE;
    assert!(once.contains(&took), "{took:?}");
    first.service.arrived(delivery(ipn(10, 40), 0, b"kept"));
    assert_eq!(&first.event().await.1[..], b"kept");
}

#[tokio::test]
async fn a_client_that_shuts_down_its_sending_side_is_answered_and_has_ended() {
    let mut first = registered(Arc::default()).await;
    first.ask(&send_to("ipn:10.40"), b"last").await;
    first.socket.shutdown().await.unwrap();
    let event = first.event().await.0;
    assert!(matches!(event, Event::Sent { .. }), "{event:?}");
    let read = first.socket.read_buf(first.frames.buffer()).await.unwrap();
    assert_eq!(read, 0);
    let mut second = first.another();
    second.event().await;
    second.ask(&register(9), b"").await;
    let event = second.event().await.0;
    assert!(matches!(event, Event::Registered { .. }), "{event:?}");
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i % 253) as u8).collect()
}

#[tokio::test]
async fn a_payload_that_comes_in_parts_is_sent_when_it_is_whole() {
    let node = Arc::new(Recorder::default());
    let mut served = registered(node.clone()).await;
    let whole = content(200_000);
    served.ask(&begin(7, whole.len() as u64), b"").await;
    assert_eq!(served.event().await.0, Event::Begun { id: 7 });
    assert_eq!(served.payloads.used(), (1, 200_000));
    for part in whole.chunks(60_000) {
        assert!(node.sent.lock().unwrap().is_empty());
        served.ask(&Request::Part { id: 7 }, part).await;
    }
    assert!(matches!(served.event().await.0, Event::Sent { id: 7, .. }));
    let sent = node.sent.lock().unwrap().pop().unwrap();
    let file = sent.file.unwrap();
    let mut written = vec![0; whole.len()];
    file.read_at(&mut written, 0).unwrap();
    assert!(written == whole && sent.custody && sent.payload.is_empty());
    drop(file);
    assert_eq!(served.payloads.used(), (0, 0));
}

#[tokio::test]
async fn what_does_not_fit_or_lies_about_its_length_is_refused_and_leaves_nothing() {
    let node = Arc::new(Recorder::default());
    let mut served = registered(node.clone()).await;
    served.ask(&begin(7, u64::MAX), b"").await;
    assert_eq!(served.refusal().await, ErrorCode::TooLarge);
    // Parts that were on their way when the node refused are not an error.
    served.ask(&Request::Part { id: 7 }, b"part").await;
    served.ask(&begin(8, 10), b"").await;
    assert_eq!(served.event().await.0, Event::Begun { id: 8 });
    served.ask(&Request::Part { id: 9 }, b"part").await;
    assert_eq!(served.refusal().await, ErrorCode::Unknown);
    served.ask(&Request::Part { id: 8 }, b"eleven byte").await;
    assert_eq!(served.refusal().await, ErrorCode::TooLarge);
    assert_eq!(served.payloads.used(), (0, 0));
    // A client that disconnects in the middle of a payload leaves nothing either.
    served.ask(&begin(10, 10), b"").await;
    served.event().await;
    served.ask(&Request::Part { id: 10 }, b"half").await;
    let Served {
        socket,
        task,
        payloads,
        ..
    } = served;
    drop(socket);
    task.await.unwrap().unwrap();
    assert_eq!(payloads.used(), (0, 0));
    assert!(node.sent.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_payload_on_disk_is_read_in_parts_and_gone_once_it_is_acknowledged() {
    let mut served = registered(Arc::default()).await;
    let whole = content(100_000);
    let room = served.payloads.reserve(10, 100_000).unwrap();
    let mut writer = room.begin(100_000).unwrap();
    writer.write(&whole).unwrap();
    let arrived = delivery(ipn(10, 40), 0, b"");
    served.service.arrived(Delivery {
        file: Some(writer.finish().unwrap()),
        ..arrived
    });
    served.frames = FrameReader::new(1 << 20);
    let Event::Bundle {
        delivery,
        file_bytes,
        ..
    } = served.event().await.0
    else {
        panic!("no bundle comes");
    };
    assert_eq!(file_bytes, Some(100_000));
    let read = |offset| Request::Read {
        id: 3,
        delivery,
        offset,
    };
    for (offset, left) in [
        (0, &whole[..]),
        (99_999, &whole[99_999..]),
        (u64::MAX, &whole[100_000..]),
    ] {
        served.ask(&read(offset), b"").await;
        let (event, part) = served.event().await;
        assert_eq!(event, Event::Data { id: 3 });
        assert!(part == left, "offset {offset}");
    }
    served.ask(&Request::Acknowledge { delivery }, b"").await;
    served.ask(&read(0), b"").await;
    assert_eq!(served.refusal().await, ErrorCode::Unknown);
    served.service.close();
    assert_eq!(served.payloads.used(), (0, 0));
}

#[tokio::test]
async fn a_length_that_lies_ends_the_connection_at_once() {
    let mut served = Served::with(Arc::default());
    served.event().await;
    served
        .socket
        .write_all(&[0, 0, 0, 2, 0, 2, 0, 0])
        .await
        .unwrap();
    assert_eq!(served.refusal().await, ErrorCode::Protocol);
    let ended = (&mut served.task).await.unwrap();
    assert!(matches!(ended, Err(ClientError::Frame(_))), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn half_a_frame_is_waited_for_no_longer_than_its_time() {
    let mut served = Served::with(Arc::default());
    served.event().await;
    served.socket.write_all(&[0, 0]).await.unwrap();
    let begun = Instant::now();
    let ended = (&mut served.task).await.unwrap();
    assert!(matches!(ended, Err(ClientError::Slow)), "{ended:?}");
    assert!(begun.elapsed() >= FRAME_PATIENCE);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_cut_off() {
    let mut served = Served::with(Arc::default());
    served.event().await;
    let flood = async {
        loop {
            served.ask(&register(200), b"").await;
        }
    };
    // The connection stops reading before the flood has written much.
    let stuck = timeout(Duration::from_secs(5), flood).await;
    assert!(stuck.is_err());
    let ended = (&mut served.task).await.unwrap();
    assert!(matches!(ended, Err(ClientError::Slow)), "{ended:?}");
}

#[test]
fn endpoints_of_two_and_three_numbers() {
    assert_eq!(endpoint("ipn:977000.64"), Some(ipn(977_000, 64)));
    assert_eq!(endpoint("ipn:3.5.7"), Some(ipn(3 << 32 | 5, 7)));
    assert_eq!(endpoint("ipn:4294967296.5.7"), None);
    assert_eq!(endpoint("ipn:4294967295.7"), None);
    for text in ["dtn://node1/in", "dtn://node1/"] {
        let named = endpoint(text).expect("it names a node");
        assert_eq!(named.to_string(), text);
    }
    for text in ["dtn:none", "dtn:node1/in", "dtn:///in", "dtn://node 1/in"] {
        assert_eq!(endpoint(text), None, "{text}");
    }
    // As long as a neighbour takes them.
    for (length, fits) in [(252, true), (253, false)] {
        for end in ["/", ""] {
            let text = format!("dtn://{}{end}", "n".repeat(length));
            assert_eq!(endpoint(&text).is_some(), fits, "{text}");
        }
    }
}
