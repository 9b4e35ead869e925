//! Sends peers' stored requests to their origins.
//!
//! Each request has its own connection, and its first byte is sent only after the store has
//! recorded that it is being sent.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use http_body_util::channel::{Channel, Sender};
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, HeaderMap, HeaderValue, TRAILER};
use hyper::http::uri::{PathAndQuery, Scheme};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;
use underpass_deferred::{Answer, Dispatched, Handle, JobKey, Object, Order, Refusal};

use super::super::reply::{self, Body};
use super::super::upstream::client_builder;
use super::super::{authority, fields};
use super::message::{MOST_TAKEN, read_request, response_head};
use crate::dial::{Dialler, Party};
use crate::stream::{Failure, FailureCode, Target};
use crate::words;

const DEFAULT_PORT: u16 = 80;
/// Largest head of a response, bytes.
const MAX_HEAD: usize = 128 << 10;
/// Parts of a request's body that wait for the origin.
const WAITING: usize = 16;

/// How long an origin is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// While it is silent.
    pub silence: Duration,
    /// Limit for the whole exchange, from the first byte of the request to the last of its
    /// response.
    pub whole: Duration,
}

/// Sends requests to origins as the store orders. Runs until the store ends.
pub async fn serve(
    handle: Handle,
    mut orders: UnboundedReceiver<Order>,
    dialler: Arc<Dialler>,
    patience: Patience,
) {
    let mut running: HashMap<JobKey, Running> = HashMap::new();
    while let Some(order) = orders.recv().await {
        running.retain(|_, exchange| !exchange.task.is_finished());
        match order {
            Order::Connect {
                job,
                head,
                body_bytes,
            } => {
                let (go, begun) = oneshot::channel();
                let exchange = Exchange {
                    handle: handle.clone(),
                    job,
                    patience,
                };
                let dialler = dialler.clone();
                let task = async move { exchange.run(&dialler, &head, body_bytes, begun).await };
                let task = AbortOnDropHandle::new(tokio::spawn(task));
                running.insert(job, Running { go: Some(go), task });
            }
            Order::Transmit(job) => {
                let go = running
                    .get_mut(&job)
                    .and_then(|exchange| exchange.go.take());
                if go.is_none_or(|go| go.send(()).is_err()) {
                    tell(
                        &handle,
                        job,
                        Dispatched::Broken("it was given up".to_owned()),
                    )
                    .await;
                }
            }
            Order::Abort(job) => {
                if running.remove(&job).is_some() {
                    tell(
                        &handle,
                        job,
                        Dispatched::Broken("it was given up".to_owned()),
                    )
                    .await;
                }
            }
        }
    }
}

struct Running {
    go: Option<oneshot::Sender<()>>,
    task: AbortOnDropHandle<()>,
}

async fn tell(handle: &Handle, job: JobKey, what: Dispatched) {
    let told = handle.call(move |node, now_ms| node.dispatched(now_ms, job, what));
    if let Err(error) = told.await {
        // The store returns to its last commit, and continues this request from there.
        tracing::warn!(id = %job.key.id, %error, "the end of an exchange is lost");
    }
}

/// One attempt to have a request answered by its origin.
struct Exchange {
    handle: Handle,
    job: JobKey,
    patience: Patience,
}

/// A request as the origin gets it.
struct Outgoing {
    method: Method,
    path: Uri,
    headers: HeaderMap,
}

impl Exchange {
    async fn run(
        self,
        dialler: &Dialler,
        head: &[u8],
        body_bytes: u64,
        begun: oneshot::Receiver<()>,
    ) {
        let id = self.job.key.id;
        let unreachable = |answer, lasting| Dispatched::Unreachable { answer, lasting };
        let (target, outgoing) = match read(head) {
            Ok(read) => read,
            Err(text) => {
                let answer = Answer::new(400, "http_request_error", text);
                return tell(&self.handle, self.job, unreachable(answer, true)).await;
            }
        };
        // The client's address stays at its node.
        let client = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let party = Party::Peer(self.job.peer);
        let socket = match dialler.dial(&target, client, party).await {
            Ok(dialled) => dialled.socket,
            Err(failure) => {
                tracing::info!(%id, %target, %failure, "cannot connect");
                let lasting = failure.code == FailureCode::Forbidden;
                let what = unreachable(answer_of(&failure), lasting);
                return tell(&self.handle, self.job, what).await;
            }
        };
        tell(&self.handle, self.job, Dispatched::Connected).await;
        if begun.await.is_err() {
            return;
        }
        let outcome = self.exchange(socket, outgoing, body_bytes).await;
        tracing::info!(%id, %target, outcome = outcome_name(&outcome), "exchange ended");
        tell(&self.handle, self.job, outcome).await;
    }

    async fn exchange(&self, socket: TcpStream, outgoing: Outgoing, body_bytes: u64) -> Dispatched {
        // The limit on silence does not stop an origin that sends a byte now and then.
        let asked = self.ask(socket, outgoing, body_bytes);
        match tokio::time::timeout(self.patience.whole, asked).await {
            Ok(outcome) => outcome,
            Err(_) => Dispatched::Broken("the exchange took too long".to_owned()),
        }
    }

    async fn ask(&self, socket: TcpStream, outgoing: Outgoing, body_bytes: u64) -> Dispatched {
        let broken = |text: String| Dispatched::Broken(text);
        let handshake = client_builder()
            .max_headers(MOST_TAKEN)
            .max_buf_size(MAX_HEAD)
            .handshake(TokioIo::new(socket));
        let (mut sender, connection) = match handshake.await {
            Ok(open) => open,
            Err(error) => return broken(words::of_answer(&error, MOST_TAKEN)),
        };
        let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
        let method = outgoing.method.clone();
        let sent = sender.send_request(self.request(outgoing, body_bytes));
        let response = match tokio::time::timeout(self.patience.silence, sent).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return broken(words::of_answer(&error, MOST_TAKEN)),
            Err(_) => {
                let seconds = self.patience.silence.as_secs_f64();
                return broken(format!("the server did not answer within {seconds} s"));
            }
        };
        let unasked = if fields::has_foreign_coding(response.headers()) {
            Some("the origin answers in a transfer coding that was not asked for")
        } else if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            Some("the origin switches to a protocol that was not asked for")
        } else {
            None
        };
        if let Some(text) = unasked {
            return Dispatched::Unusable(Answer::new(502, "http_protocol_error", text));
        }
        self.keep(&method, response).await
    }

    fn request(&self, outgoing: Outgoing, body_bytes: u64) -> Request<Body> {
        let mut headers = outgoing.headers;
        let has_body = [Method::POST, Method::PUT, Method::PATCH].contains(&outgoing.method);
        if body_bytes > 0 || has_body {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(body_bytes));
        }
        let body = match body_bytes {
            0 => reply::empty(),
            _ => {
                let (sender, channel) = Channel::new(WAITING);
                let (handle, job) = (self.handle.clone(), self.job);
                tokio::spawn(send_body(handle, job, sender));
                channel.boxed()
            }
        };
        let mut request = Request::new(body);
        *request.method_mut() = outgoing.method;
        *request.uri_mut() = outgoing.path;
        *request.headers_mut() = headers;
        request
    }

    /// Stores the response. The exchange with the origin is done when all of it is here.
    async fn keep(&self, method: &Method, mut response: Response<Incoming>) -> Dispatched {
        let version = response.version();
        fields::strip(response.headers_mut());
        // Trailers are not passed on: a stored body is framed by its length.
        response.headers_mut().remove(TRAILER);
        fields::add_via(response.headers_mut(), version);
        let head = response_head(method, response.status(), response.headers());
        let part_bytes = self.handle.limits().part_bytes;
        let mut object = Object {
            total_bytes: 0,
            head_bytes: u32::try_from(head.len()).unwrap_or(u32::MAX),
            part_bytes,
        };
        let mut waiting = BytesMut::from(head);
        let mut body = response.into_body();
        loop {
            while waiting.len() > part_bytes as usize {
                let part = waiting.split_to(part_bytes as usize).freeze();
                if let Err(ended) = self.part(&mut object, part).await {
                    return ended;
                }
            }
            match tokio::time::timeout(self.patience.silence, body.frame()).await {
                Err(_) => return Dispatched::Broken("the response came to a halt".to_owned()),
                Ok(Some(Err(error))) => {
                    let why = words::of_answer(&error, MOST_TAKEN);
                    return Dispatched::Broken(format!("the response broke off: {why}"));
                }
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        waiting.extend_from_slice(&data);
                    }
                }
                Ok(None) => break,
            }
        }
        match self.part(&mut object, waiting.freeze()).await {
            Ok(()) => Dispatched::Answered(object),
            Err(ended) => ended,
        }
    }

    async fn part(&self, object: &mut Object, part: Bytes) -> Result<(), Dispatched> {
        object.total_bytes += part.len() as u64;
        let job = self.job;
        let stored = self
            .handle
            .call(move |node, _| node.answer_part(job, &part));
        let unusable =
            |text: String| Dispatched::Unusable(Answer::new(502, "proxy_internal_response", text));
        match stored.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Refusal::TooLarge(most))) => Err(unusable(format!(
                "the origin has answered; its response is not kept, having more than {most} bytes"
            ))),
            Ok(Err(Refusal::Full)) => Err(unusable(
                "the origin has answered; the dispatching node had no room for its response"
                    .to_owned(),
            )),
            Ok(Err(other)) => Err(Dispatched::Broken(other.to_string())),
            Err(error) => Err(Dispatched::Broken(error.to_string())),
        }
    }
}

/// Sends a stored request's body. If reading it fails, the request breaks off: the origin notices,
/// since Content-Length declares its length.
async fn send_body(handle: Handle, job: JobKey, mut sender: Sender<Bytes, hyper::Error>) {
    let object = handle.call(move |node, _| Ok(node.job_object(job))).await;
    let Ok(Some(object)) = object else {
        return;
    };
    let mut skipped = object.head_bytes as usize;
    for index in 0..object.parts() {
        let read = handle.call(move |node, _| node.job_part(job, index)).await;
        let Ok(Some(mut part)) = read else {
            return;
        };
        let of_head = skipped.min(part.len());
        skipped -= of_head;
        let data = part.split_off(of_head);
        if !data.is_empty() && sender.send_data(data).await.is_err() {
            return;
        }
    }
}

fn read(head: &[u8]) -> Result<(Target, Outgoing), String> {
    let (method, uri, headers) = read_request(head).ok_or("the stored request is malformed")?;
    let authority = uri
        .authority()
        .filter(|_| uri.scheme() == Some(&Scheme::HTTP));
    let authority = authority.ok_or("only http:// is dispatched")?;
    let target = authority::target(authority, Some(DEFAULT_PORT))?;
    let path = uri.path_and_query().cloned();
    let path = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    let outgoing = Outgoing {
        method,
        path,
        headers,
    };
    Ok((target, outgoing))
}

fn answer_of(failure: &Failure) -> Answer {
    let (status, error) = reply::meaning(failure.code);
    Answer::new(status.as_u16(), error, failure.to_string())
}

fn outcome_name(outcome: &Dispatched) -> &str {
    match outcome {
        Dispatched::Answered(_) => "answered",
        Dispatched::Broken(text) => text,
        Dispatched::Unusable(answer) => &answer.text,
        Dispatched::Connected | Dispatched::Unreachable { .. } => "not sent",
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use underpass_deferred::wire::Key;
    use underpass_deferred::{Carrier, Id, Limits, Name, Settings};

    use super::*;

    struct Nowhere;

    impl Carrier for Nowhere {
        fn send(&self, _: u64, _: u8, _: Duration, _: Name, _: Bytes) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn an_origin_that_sends_a_byte_now_and_then_is_not_waited_for_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings {
            path: directory.path().join("deferred.sqlite"),
            limits: Limits {
                request_bytes: 1 << 20,
                response_bytes: 1 << 20,
                quota_bytes: 4 << 20,
                requests: 10,
                part_bytes: 1 << 14,
                lifetime_ms: 60_000,
                keep_ms: 60_000,
                keep_fetched_ms: 60_000,
                exchanges: 1,
            },
        };
        let (handle, _orders) = underpass_deferred::start(&settings, Arc::new(Nowhere)).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut origin, _) = listener.accept().await.unwrap();
            origin.read_u8().await.unwrap();
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n";
            origin.write_all(head).await.unwrap();
            while origin.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let id = Id([7; 16]);
        let exchange = Exchange {
            handle,
            job: JobKey {
                peer: 2,
                key: Key { id, attempt: 1 },
            },
            patience: Patience {
                silence: Duration::from_secs(20),
                whole: Duration::from_millis(500),
            },
        };
        let outgoing = Outgoing {
            method: Method::GET,
            path: Uri::from_static("/"),
            headers: HeaderMap::new(),
        };
        let socket = TcpStream::connect(address).await.unwrap();
        let ended = exchange.exchange(socket, outgoing, 0);
        let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
        let text = "the exchange took too long".to_owned();
        assert_eq!(ended, Ok(Dispatched::Broken(text)));
    }
}
