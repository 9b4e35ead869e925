//! Files that are sent, and received, part by part.

use std::io::{Read, Write};
use std::path::Path;

use tokio::time::{Instant, sleep};
use underpass_applications::wire::{ErrorCode, Event, Reported, Request};

use super::command::Sending;
use super::connection::{Connection, LIFETIME_S, ROOM_PAUSE, seconds, unexpected, waiting};
use super::error::BpError;
use super::progress::Progress;

/// What is read of a file at once, bytes.
const PART_BYTES: u64 = 1 << 20;

/// Sends a file as one bundle. It is read part by part. Returns the bundle's creation timestamp as
/// [`Connection::send`] does.
pub async fn send(
    connection: &mut Connection,
    destination: &str,
    sending: &Sending,
    reports: Vec<Reported>,
    (file, path, bytes): (&mut (dyn Read + Send), &Path, u64),
) -> Result<Option<(u64, u64)>, BpError> {
    let most = connection.max_file_bytes;
    if most == 0 {
        connection.check_size(bytes)?;
    }
    if bytes > most {
        return Err(BpError::TooLong { bytes, most });
    }
    connection.gave_all = false;
    let id = begin(connection, destination, sending, reports, bytes).await?;
    let mut progress = Progress::new("sent to the node", bytes);
    let part_bytes = PART_BYTES.min(connection.max_payload_bytes.max(1));
    let mut part = vec![0; usize::try_from(part_bytes).unwrap_or(usize::MAX)];
    let mut left = bytes;
    while left > 0 {
        let length = usize::try_from(left.min(part_bytes)).unwrap_or(usize::MAX);
        let part = &mut part[..length];
        file.read_exact(part).map_err(|source| BpError::File {
            path: path.to_owned(),
            source,
        })?;
        left -= length as u64;
        connection.gave_all = left == 0;
        connection.say(&Request::Part { id }, part).await?;
        progress.reached(bytes - left);
        if left > 0 {
            connection.check(id)?;
        }
    }
    match connection.answer(id).await?.0 {
        Event::Sent {
            time_ms, sequence, ..
        } => Ok(time_ms.zip(sequence)),
        other => Err(unexpected(other)),
    }
}

/// Asks the node to reserve room; waits while it has none.
async fn begin(
    connection: &mut Connection,
    destination: &str,
    sending: &Sending,
    reports: Vec<Reported>,
    bytes: u64,
) -> Result<u64, BpError> {
    let lifetime = seconds("lifetime", sending.lifetime.unwrap_or(LIFETIME_S))?;
    let until = Instant::now() + waiting("wait", sending.wait)?;
    loop {
        let id = connection.id();
        let request = Request::Begin {
            id,
            service: connection.service,
            destination: destination.to_owned(),
            lifetime_ms: Some(u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX)),
            custody: Some(!sending.no_custody),
            reports: reports.clone(),
            bytes,
        };
        connection.say(&request, b"").await?;
        match connection.answer(id).await {
            Ok((Event::Begun { .. }, _)) => return Ok(id),
            Err(BpError::Refused {
                code: ErrorCode::NoRoom,
                ..
            }) if Instant::now() < until => sleep(ROOM_PAUSE).await,
            Ok((other, _)) => return Err(unexpected(other)),
            Err(error) => return Err(error),
        }
    }
}

/// Reads a payload of so many bytes from the node into `out`, part by part.
pub async fn receive(
    connection: &mut Connection,
    delivery: u64,
    bytes: u64,
    out: &mut dyn Write,
    path: &Path,
) -> Result<(), BpError> {
    let mut progress = Progress::new("received", bytes);
    let mut offset = 0;
    while offset < bytes {
        let id = connection.id();
        let request = Request::Read {
            id,
            delivery,
            offset,
        };
        connection.say(&request, b"").await?;
        let (event, part) = connection.answer(id).await?;
        if part.is_empty() {
            return Err(unexpected(event));
        }
        out.write_all(&part).map_err(|source| BpError::File {
            path: path.to_owned(),
            source,
        })?;
        offset += part.len() as u64;
        progress.reached(offset);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use bytes::Bytes;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{UnixListener, UnixStream};
    use underpass_applications::wire::{FrameReader, encode_head};

    use super::super::command::{Common, ServiceName};
    use super::*;

    /// A node as a client sees it.
    struct Node {
        socket: UnixStream,
        frames: FrameReader,
    }

    impl Node {
        async fn tell(&mut self, event: &Event, payload: &[u8]) {
            let head = encode_head(event, payload.len());
            self.socket.write_all(&head).await.unwrap();
            self.socket.write_all(payload).await.unwrap();
        }

        async fn hear(&mut self) -> (Request, Bytes) {
            loop {
                if let Some((head, payload)) = self.frames.next_frame().unwrap() {
                    return (Request::parse(&head, &payload).unwrap(), payload);
                }
                let read = self.socket.read_buf(self.frames.buffer()).await;
                assert!(read.unwrap() > 0, "the client has gone");
            }
        }

        /// Answers requests until a payload of `bytes` has begun.
        async fn serve(listener: UnixListener, bytes: u64) -> (Node, u64) {
            let (socket, _) = listener.accept().await.unwrap();
            let frames = FrameReader::new(4 << 20);
            let mut node = Node { socket, frames };
            let hello = Event::Hello {
                version: 1,
                node: 1,
                max_payload_bytes: 1 << 20,
                max_file_bytes: 1 << 30,
            };
            node.tell(&hello, b"").await;
            let (Request::Register { id, .. }, _) = node.hear().await else {
                panic!("no service is asked for");
            };
            let endpoint = "ipn:1.40".to_owned();
            let registered = Event::Registered {
                id,
                service: 40,
                endpoint,
            };
            node.tell(&registered, b"").await;
            let (
                Request::Begin {
                    id, bytes: begun, ..
                },
                _,
            ) = node.hear().await
            else {
                panic!("nothing is begun");
            };
            assert_eq!(begun, bytes);
            node.tell(&Event::Begun { id }, b"").await;
            (node, id)
        }
    }

    fn sending() -> Sending {
        Sending {
            service: None,
            lifetime: None,
            no_custody: true,
            wait: 1.0,
        }
    }

    async fn connect(socket: PathBuf) -> Result<Connection, BpError> {
        let common = Common { socket, json: true };
        Connection::open(&common, Some(&ServiceName::Number(40))).await
    }

    async fn upload(socket: PathBuf, bytes: u64) -> Result<(), BpError> {
        let mut connection = connect(socket).await?;
        let sending = sending();
        let mut file = std::io::repeat(7);
        let long: (&mut (dyn Read + Send), _, _) = (&mut file, Path::new("long"), bytes);
        let sent = send(&mut connection, "ipn:2.40", &sending, Vec::new(), long);
        // It would wait for ever otherwise.
        let sent = tokio::time::timeout(Duration::from_secs(60), sent).await;
        sent.expect("the upload goes on").map(drop)
    }

    #[tokio::test]
    async fn bundles_that_come_meanwhile_neither_end_an_upload_nor_hold_it_up() {
        const BYTES: u64 = 5 << 20;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let client = tokio::spawn(upload(path, BYTES));
        let (mut node, id) = Node::serve(listener, BYTES).await;
        let mut come = 0;
        while come < BYTES {
            let (Request::Part { id: of }, part) = node.hear().await else {
                panic!("no part");
            };
            assert_eq!(of, id);
            come += part.len() as u64;
            // A node that is writing reads nothing.
            let bundle = Event::Bundle {
                delivery: come,
                service: 40,
                source: "ipn:3.40".to_owned(),
                time_ms: 1,
                sequence: 1,
                age_ms: 0,
                file_bytes: None,
            };
            node.tell(&bundle, &vec![7; 1 << 20]).await;
        }
        let sent = Event::Sent {
            id,
            source: "ipn:1.40".to_owned(),
            time_ms: Some(1),
            sequence: Some(1),
        };
        node.tell(&sent, b"").await;
        client.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn what_the_node_may_have_as_a_whole_is_known_before_its_answer() {
        const BYTES: u64 = 2 << 20;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let node = tokio::spawn(async move {
            let (mut node, _) = Node::serve(listener, BYTES).await;
            let mut come = 0;
            while come < BYTES {
                come += node.hear().await.1.len() as u64;
            }
            node
        });
        let mut connection = connect(path).await.unwrap();
        assert!(!connection.gave_all);
        let sending = sending();
        let mut file = std::io::repeat(7);
        let long: (&mut (dyn Read + Send), _, _) = (&mut file, Path::new("long"), BYTES);
        let sent = send(&mut connection, "ipn:2.40", &sending, Vec::new(), long);
        let _node = tokio::select! {
            sent = sent => panic!("it does not wait for the answer: {sent:?}"),
            node = node => node.unwrap(),
        };
        assert!(connection.gave_all);
    }

    #[tokio::test]
    async fn a_refusal_ends_it_before_all_was_sent() {
        const BYTES: u64 = 1 << 30;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let client = tokio::spawn(upload(path, BYTES));
        let (mut node, id) = Node::serve(listener, BYTES).await;
        node.hear().await;
        let refused = Event::Error {
            id: Some(id),
            code: ErrorCode::NoRoom,
            message: "the disk is full".to_owned(),
        };
        node.tell(&refused, b"").await;
        let (mut parts, mut socket) = (0, node.socket);
        let mut buffer = vec![0; 1 << 20];
        while let Ok(read @ 1..) = socket.read(&mut buffer).await {
            parts += read;
        }
        assert!(parts < 16 << 20, "{parts}");
        let error = client.await.unwrap().unwrap_err();
        assert!(matches!(error, BpError::Refused { .. }), "{error}");
    }
}
