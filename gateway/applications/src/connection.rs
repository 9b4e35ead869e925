//! One client's connection.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout};
use underpass_bundle::wire::{Eid, ipn, is_taken, names_node};
use underpass_bundle::{SendError, named_service};
use underpass_payloads::{PayloadFile, Payloads};

use crate::desk::ClientId;
use crate::mailbox::Stored;
use crate::service::{Inlets, Service};
use crate::upload::{Upload, waiting};
use crate::wire::{
    ErrorCode, Event, FrameError, FrameReader, Reported, Request, VERSION, encode_head,
};

/// How long a frame may take to arrive, and how long the client may take to read one.
const FRAME_PATIENCE: Duration = Duration::from_secs(30);

/// How long a registration waits for a service that another client has. The end of that client's
/// connection may not have been seen yet.
const RELEASE_PATIENCE: Duration = Duration::from_secs(1);

/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;

/// The most acknowledgements of a client that wait for the mailbox.
const WAITING_ACKNOWLEDGEMENTS: usize = 64;

/// A bundle that an application sends.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The service that sends it.
    pub service: u64,
    /// The endpoint that it is sent to.
    pub destination: Eid,
    /// Its lifetime; none for the node's default.
    pub lifetime: Option<Duration>,
    /// Whether it is sent under custody, where the route takes it.
    pub custody: bool,
    /// The events of which the service is sent status reports.
    pub reports: Vec<Reported>,
    /// Its payload, if that is in memory.
    pub payload: Bytes,
    /// Its payload, if that is on disk.
    pub file: Option<Arc<PayloadFile>>,
}

/// The node that sends what applications give it. Its calls do not wait, except for the disk
/// if a payload is there.
pub trait Node: Send + Sync {
    /// Its ipn node number.
    fn number(&self) -> u64;

    /// The endpoint of one of its services; none if the service has a name but the node
    /// has no name in the dtn scheme.
    fn endpoint(&self, service: u64) -> Option<Eid>;

    /// Sends a bundle. Returns its creation timestamp (DTN time, ms) and sequence number
    /// if it leaves this node.
    ///
    /// # Errors
    /// When it cannot be sent.
    fn send(&self, bundle: Outgoing) -> Result<Option<(u64, u64)>, SendError>;
}

/// Why a connection ended early.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The client broke the protocol.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The client is slow.
    #[error("a frame took longer than {} s", FRAME_PATIENCE.as_secs())]
    Slow,
}

/// Serves one client until it disconnects.
///
/// # Errors
/// When the client breaks the protocol or the connection fails. In any case, bundles that
/// it has not acknowledged wait for the next client.
pub async fn serve_client<S: AsyncRead + AsyncWrite + Unpin>(
    socket: S,
    service: &Service,
    node: Arc<dyn Node>,
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
        patient_until: Instant::now(),
        acknowledgements: Arc::new(Semaphore::new(WAITING_ACKNOWLEDGEMENTS)),
    };
    let ended = client.serve(inlets).await;
    if let Err(ClientError::Frame(error)) = &ended {
        // The client may have stopped reading; its connection ends anyway.
        let _ = client
            .refuse(None, ErrorCode::Protocol, &error.to_string())
            .await;
    }
    ended
}

/// Tells a client that the node takes no more clients.
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
    pub(crate) node: Arc<dyn Node>,
    max_payload_bytes: u32,
    pub(crate) registered: BTreeSet<u64>,
    /// Until when registrations wait for what another client has. It is set with each read, so that
    /// many registrations at once wait no longer than one.
    patient_until: Instant,
    /// The folder for long payloads, if this node has one.
    pub(crate) payloads: Option<Arc<Payloads>>,
    pub(crate) upload: Upload,
    /// Payloads on disk of bundles that the client has not acknowledged.
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
                    let now = Instant::now();
                    self.patient_until = now + RELEASE_PATIENCE;
                    if !begun {
                        due = now + FRAME_PATIENCE;
                    }
                    while let Some((head, payload)) = frames.next_frame()? {
                        let request = Request::parse(&head, &payload)?;
                        self.answer(request, payload).await?;
                        // The time that the disk takes does not count against the client.
                        due = Instant::now() + FRAME_PATIENCE;
                    }
                }
                bundle = inlets.bundles.recv() => match bundle {
                    Some((number, stored)) => self.deliver(number, stored).await?,
                    None => return self.refuse(None, ErrorCode::Closing, "the node ends").await,
                },
                report = inlets.reports.recv() => {
                    if let Some(report) = report {
                        self.tell(&Event::Report(report), b"").await?;
                    }
                }
                () = sleep_until(due), if begun => return Err(ClientError::Slow),
            }
        }
    }

    async fn answer(&mut self, request: Request, payload: Bytes) -> Result<(), ClientError> {
        match request {
            Request::Register { id, service, name } => {
                let named = name.map(|name| named_service(&name));
                match service.xor(named) {
                    None if service.is_some() => {
                        let message = "a service has either a number or a name";
                        self.refuse(Some(id), ErrorCode::NotAllowed, message).await
                    }
                    service => self.register(id, service).await,
                }
            }
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
                // The semaphore is never closed.
                if let Ok(permit) = permits.acquire_owned().await {
                    self.service.acknowledge(self.id, delivery, permit);
                }
                Ok(())
            }
        }
    }

    async fn register(&mut self, id: u64, service: Option<u64>) -> Result<(), ClientError> {
        if service.is_some_and(|service| self.node.endpoint(service).is_none()) {
            let message =
                "this node has no service of that name (node.name, applications.services)";
            return self.refuse(Some(id), ErrorCode::NotAllowed, message).await;
        }
        let until = self.patient_until;
        let registered = self.service.register_until(until, self.id, service);
        match registered.await {
            Ok(service) => {
                self.registered.insert(service);
                let registered = Event::Registered {
                    id,
                    service,
                    endpoint: self.endpoint(service),
                };
                self.tell(&registered, b"").await
            }
            Err(code) => {
                let message = match code {
                    ErrorCode::Taken if service.is_none() => "no service is free".to_owned(),
                    ErrorCode::Taken => "another client has this service".to_owned(),
                    ErrorCode::TooMany => "a client may have no more services".to_owned(),
                    ErrorCode::NotAllowed => {
                        "no application may have this service (applications.services)".to_owned()
                    }
                    _ => "the node ends".to_owned(),
                };
                self.refuse(Some(id), code, &message).await
            }
        }
    }

    fn endpoint(&self, service: u64) -> String {
        let endpoint = self.node.endpoint(service);
        endpoint.map_or_else(String::new, |endpoint| endpoint.to_string())
    }

    pub(crate) async fn send(&mut self, id: u64, outgoing: Outgoing) -> Result<(), ClientError> {
        let service = outgoing.service;
        if !self.registered.contains(&service) {
            let message = format!("service {service} is not registered by this client");
            return self.refuse(Some(id), ErrorCode::NotAllowed, &message).await;
        }
        let sent = match outgoing.file.is_some() {
            true => {
                let node = self.node.clone();
                waiting(move || node.send(outgoing)).await?
            }
            false => self.node.send(outgoing),
        };
        match sent {
            Ok(created) => {
                let sent = Event::Sent {
                    id,
                    source: self.endpoint(service),
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
                    SendError::Source => ErrorCode::NotAllowed,
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

    /// Parses the endpoint that a client names; tells the client if it is not one.
    async fn destination(&mut self, id: u64, text: &str) -> Result<Option<Eid>, ClientError> {
        let destination = endpoint(text);
        if destination.is_none() {
            let message = format!("{text:?} is no endpoint ipn:NODE.SERVICE or dtn://NODE/SERVICE");
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

/// Writes a frame; ends the connection of a client that does not read it in time.
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

/// Parses an endpoint: `ipn:NODE.SERVICE`, `ipn:ALLOCATOR.NODE.SERVICE` (RFC 9758) or
/// `dtn://NODE/SERVICE`; none for any other text or one that names no node.
pub fn endpoint(text: &str) -> Option<Eid> {
    if let Some(named) = text.strip_prefix("dtn:") {
        let endpoint = Eid::with_dtn(named).ok();
        return endpoint.filter(|endpoint| named.starts_with("//") && is_taken(endpoint));
    }
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
mod tests;
