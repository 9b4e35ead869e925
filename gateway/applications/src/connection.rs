//! One client's connection.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout};
use underpass_bundle::SendError;
use underpass_bundle::wire::{Eid, ipn, names_node};
use underpass_payloads::{PayloadFile, Payloads};

use crate::desk::ClientId;
use crate::mailbox::Stored;
use crate::service::{Inlets, Service};
use crate::upload::Upload;
use crate::wire::{
    ErrorCode, Event, FrameError, FrameReader, Reported, Request, VERSION, encode_head,
};

/// How long a frame may take to come, and to be read by the client.
const FRAME_PATIENCE: Duration = Duration::from_secs(30);

/// What is read at once, bytes.
const READ_BYTES: usize = 16 << 10;

/// A client's acknowledgements that wait for the mailbox at most.
const WAITING_ACKNOWLEDGEMENTS: usize = 64;

/// A bundle that an application sends.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The service that sends it.
    pub service: u64,
    /// Where it goes.
    pub destination: Eid,
    /// For how long it is of use; the node's default if none.
    pub lifetime: Option<Duration>,
    /// Whether it is sent under custody, where the route takes it.
    pub custody: bool,
    /// Of what the service is sent status reports.
    pub reports: Vec<Reported>,
    /// What it says.
    pub payload: Bytes,
    /// The same, where it is on disk.
    pub file: Option<Arc<PayloadFile>>,
}

/// The node that sends what applications give it. Its calls must not wait.
pub trait Node: Send + Sync {
    /// Its ipn node number.
    fn number(&self) -> u64;

    /// Sends a bundle; tells its creation timestamp, DTN time, ms, and
    /// sequence number, if it leaves this node.
    ///
    /// # Errors
    /// When it cannot be sent.
    fn send(&self, bundle: Outgoing) -> Result<Option<(u64, u64)>, SendError>;
}

/// Why a connection ended early.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The client has broken the protocol.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The client is slow.
    #[error("a frame took longer than {} s", FRAME_PATIENCE.as_secs())]
    Slow,
}

/// Serves one client until it goes.
///
/// # Errors
/// When the client breaks the protocol or the connection. What it has not
/// acknowledged waits for the next client, in any case.
pub async fn serve_client<S: AsyncRead + AsyncWrite + Unpin>(
    socket: S,
    service: &Service,
    node: &dyn Node,
    max_payload_bytes: u32,
    payloads: Option<Arc<Payloads>>,
) -> Result<(), ClientError> {
    let (id, inlets) = service.connect();
    let mut client = Client {
        id,
        socket,
        service,
        node,
        max_payload_bytes,
        payloads,
        upload: Upload::default(),
        files: HashMap::new(),
        registered: BTreeSet::new(),
        acknowledgements: Arc::new(Semaphore::new(WAITING_ACKNOWLEDGEMENTS)),
    };
    let ended = client.serve(inlets).await;
    if let Err(ClientError::Frame(error)) = &ended {
        // The client may have stopped reading; it is cut off anyway.
        let _ = client
            .refuse(None, ErrorCode::Protocol, &error.to_string())
            .await;
    }
    ended
}

/// Tells a client that it is one too many.
///
/// # Errors
/// When the connection fails.
pub async fn turn_away(mut socket: impl AsyncWrite + Unpin) -> Result<(), ClientError> {
    let event = Event::Error {
        id: None,
        code: ErrorCode::TooMany,
        message: "the node has as many clients as it takes".to_owned(),
    };
    write(&mut socket, &event, b"").await
}

pub(crate) struct Client<'a, S> {
    id: ClientId,
    socket: S,
    service: &'a Service,
    pub(crate) node: &'a dyn Node,
    max_payload_bytes: u32,
    pub(crate) registered: BTreeSet<u64>,
    /// Where long payloads are, if this node has any.
    pub(crate) payloads: Option<Arc<Payloads>>,
    pub(crate) upload: Upload,
    /// Payloads on disk of bundles that it has not acknowledged.
    pub(crate) files: HashMap<u64, Arc<PayloadFile>>,
    acknowledgements: Arc<Semaphore>,
}

impl<S> Drop for Client<'_, S> {
    fn drop(&mut self) {
        self.service.disconnect(self.id);
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<'_, S> {
    async fn serve(&mut self, mut inlets: Inlets) -> Result<(), ClientError> {
        let hello = Event::Hello {
            version: VERSION,
            node: self.node.number(),
            max_payload_bytes: self.max_payload_bytes.into(),
            max_file_bytes: self.payloads.as_ref().map_or(0, |p| p.max_payload_bytes()),
        };
        self.tell(&hello, b"").await?;
        let mut frames = FrameReader::new(self.max_payload_bytes);
        let mut due = Instant::now();
        loop {
            let begun = frames.is_inside();
            frames.buffer().reserve(READ_BYTES);
            tokio::select! {
                read = self.socket.read_buf(frames.buffer()) => {
                    if read? == 0 {
                        return Ok(());
                    }
                    if !begun {
                        due = Instant::now() + FRAME_PATIENCE;
                    }
                    while let Some((head, payload)) = frames.next_frame()? {
                        let request = Request::parse(&head, &payload)?;
                        self.answer(request, payload).await?;
                        // The disk's time is not the client's.
                        due = Instant::now() + FRAME_PATIENCE;
                    }
                }
                bundle = inlets.bundles.recv() => match bundle {
                    Some((number, stored)) => self.deliver(number, stored).await?,
                    None => return self.refuse(None, ErrorCode::Closing, "the node ends").await,
                },
                report = inlets.reports.recv() => {
                    if let Some(report) = report {
                        self.tell(&report.into(), b"").await?;
                    }
                }
                () = sleep_until(due), if begun => return Err(ClientError::Slow),
            }
        }
    }

    async fn answer(&mut self, request: Request, payload: Bytes) -> Result<(), ClientError> {
        match request {
            Request::Register { id, service } => self.register(id, service).await,
            Request::Send {
                id,
                service,
                destination,
                lifetime_ms,
                custody,
                reports,
            } => {
                let Some(destination) = self.destination(id, &destination).await? else {
                    return Ok(());
                };
                let outgoing = Outgoing {
                    service,
                    destination,
                    lifetime: lifetime_ms.map(Duration::from_millis),
                    custody: custody.unwrap_or(true),
                    reports,
                    payload,
                    file: None,
                };
                self.send(id, outgoing).await
            }
            Request::Begin {
                id,
                service,
                destination,
                lifetime_ms,
                custody,
                reports,
                bytes,
            } => {
                self.upload = Upload::Refused(id);
                let Some(destination) = self.destination(id, &destination).await? else {
                    return Ok(());
                };
                let outgoing = Outgoing {
                    service,
                    destination,
                    lifetime: lifetime_ms.map(Duration::from_millis),
                    custody: custody.unwrap_or(true),
                    reports,
                    payload: Bytes::new(),
                    file: None,
                };
                self.begin(id, outgoing, bytes).await
            }
            Request::Part { id } => self.part(id, payload).await,
            Request::Read {
                id,
                delivery,
                offset,
            } => self.read(id, delivery, offset).await,
            Request::Acknowledge { delivery } => {
                self.files.remove(&delivery);
                let permits = self.acknowledgements.clone();
                // Never closed.
                if let Ok(permit) = permits.acquire_owned().await {
                    self.service.acknowledge(self.id, delivery, permit);
                }
                Ok(())
            }
        }
    }

    async fn register(&mut self, id: u64, service: Option<u64>) -> Result<(), ClientError> {
        match self.service.register(self.id, service).await {
            Ok(service) => {
                self.registered.insert(service);
                let registered = Event::Registered {
                    id,
                    service,
                    endpoint: ipn(self.node.number(), service).to_string(),
                };
                self.tell(&registered, b"").await
            }
            Err(code) => {
                let message = match code {
                    ErrorCode::Taken if service.is_none() => "no service is free".to_owned(),
                    ErrorCode::Taken => "another client has this service".to_owned(),
                    ErrorCode::TooMany => "a client may have no more services".to_owned(),
                    ErrorCode::NotAllowed => "no application may have this service".to_owned(),
                    _ => "the node ends".to_owned(),
                };
                self.refuse(Some(id), code, &message).await
            }
        }
    }

    pub(crate) async fn send(&mut self, id: u64, outgoing: Outgoing) -> Result<(), ClientError> {
        let service = outgoing.service;
        if !self.registered.contains(&service) {
            let message = format!("service {service} is not registered by this client");
            return self.refuse(Some(id), ErrorCode::NotAllowed, &message).await;
        }
        match self.node.send(outgoing) {
            Ok(created) => {
                let sent = Event::Sent {
                    id,
                    source: ipn(self.node.number(), service).to_string(),
                    time_ms: created.map(|(time_ms, _)| time_ms),
                    sequence: created.map(|(_, sequence)| sequence),
                };
                self.tell(&sent, b"").await
            }
            Err(error) => {
                let code = match error {
                    SendError::NoRoom => ErrorCode::NoRoom,
                    SendError::NoRoute => ErrorCode::NoRoute,
                    SendError::Destination => ErrorCode::Destination,
                    SendError::TooLarge | SendError::OnDisk => ErrorCode::TooLarge,
                };
                self.refuse(Some(id), code, &error.to_string()).await
            }
        }
    }

    async fn deliver(&mut self, number: u64, stored: Stored) -> Result<(), ClientError> {
        let bundle = Event::Bundle {
            delivery: number,
            service: stored.service,
            source: stored.source,
            time_ms: stored.time_ms,
            sequence: stored.sequence,
            age_ms: stored.age_ms,
            file_bytes: stored.file.as_ref().map(|file| file.len()),
        };
        self.files.extend(stored.file.map(|file| (number, file)));
        self.tell(&bundle, &stored.payload).await
    }

    /// The endpoint that a client means; it is told if that is none.
    async fn destination(&mut self, id: u64, text: &str) -> Result<Option<Eid>, ClientError> {
        let destination = endpoint(text);
        if destination.is_none() {
            let message = format!("{text:?} is no endpoint ipn:NODE.SERVICE");
            self.refuse(Some(id), ErrorCode::Destination, &message)
                .await?;
        }
        Ok(destination)
    }

    pub(crate) async fn refuse(
        &mut self,
        id: Option<u64>,
        code: ErrorCode,
        message: &str,
    ) -> Result<(), ClientError> {
        let message = message.to_owned();
        self.tell(&Event::Error { id, code, message }, b"").await
    }

    pub(crate) async fn tell(&mut self, event: &Event, payload: &[u8]) -> Result<(), ClientError> {
        write(&mut self.socket, event, payload).await
    }
}

/// Writes a frame; a client that does not read is given up.
async fn write(
    socket: &mut (impl AsyncWrite + Unpin),
    event: &Event,
    payload: &[u8],
) -> Result<(), ClientError> {
    let head = encode_head(event, payload.len());
    let written = async {
        socket.write_all(&head).await?;
        socket.write_all(payload).await?;
        socket.flush().await
    };
    let written = timeout(FRAME_PATIENCE, written).await;
    Ok(written.map_err(|_| ClientError::Slow)??)
}

/// The endpoint of a text, `ipn:NODE.SERVICE` or `ipn:ALLOCATOR.NODE.SERVICE`
/// (RFC 9758); none if it is another or names no node.
pub fn endpoint(text: &str) -> Option<Eid> {
    let numbers: Vec<&str> = text.strip_prefix("ipn:")?.split('.').collect();
    let short = |text: &str| text.parse::<u32>().ok().map(u64::from);
    let (node, service) = match numbers[..] {
        [node, service] => (node.parse().ok()?, service),
        [allocator, node, service] => (short(allocator)? << 32 | short(node)?, service),
        _ => return None,
    };
    let service: u64 = service.parse().ok()?;
    names_node(node).then(|| ipn(node, service))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::io::{DuplexStream, duplex};
    use underpass_payloads::Limits;

    use underpass_bundle::Delivery;

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
        _folder: tempfile::TempDir,
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
            let (socket, theirs) = duplex(1 << 10);
            let for_client = service.clone();
            let for_files = Some(payloads.clone());
            let task = tokio::spawn(async move {
                serve_client(theirs, &for_client, &*node, 1 << 16, for_files).await
            });
            Served {
                socket,
                payloads,
                frames: FrameReader::new(1 << 16),
                service,
                task,
                _folder: folder,
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
    async fn what_cannot_be_sent_is_refused_and_the_client_goes_on() {
        let mut served = Served::with(Arc::new(Recorder {
            is_full: true,
            ..Recorder::default()
        }));
        served.event().await;
        served.ask(&register(9), b"").await;
        served.event().await;
        for destination in [
            "",
            "ipn:1",
            "dtn://x/y",
            "ipn:0.5",
            "ipn:1.2.3.4",
            "ipn:a.b",
        ] {
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
        // Parts that were on their way when the node refused are no offence.
        served.ask(&Request::Part { id: 7 }, b"part").await;
        served.ask(&begin(8, 10), b"").await;
        assert_eq!(served.event().await.0, Event::Begun { id: 8 });
        served.ask(&Request::Part { id: 9 }, b"part").await;
        assert_eq!(served.refusal().await, ErrorCode::Unknown);
        served.ask(&Request::Part { id: 8 }, b"eleven byte").await;
        assert_eq!(served.refusal().await, ErrorCode::TooLarge);
        assert_eq!(served.payloads.used(), (0, 0));
        // A client that is gone in the middle leaves nothing either.
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
        // The other end stops reading before this one has written much.
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
    }
}
