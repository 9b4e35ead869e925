//! Stores a client's request and says where its status is.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::header::{EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, TRAILER};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use underpass_deferred::{Handle, Id, Owner, Refusal, ServiceError, Submission};

use super::super::authority;
use super::super::reply::{self, Body};
use super::super::server::Client;
use super::message::request_head;
use super::prefer::take_respond_async;
use super::resource::{Place, accepted};
use crate::classify::Verdict;
use crate::stream::Target;

/// draft-ietf-httpapi-idempotency-key-header: by it the origin recognises repetitions.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A client's wish to have its answer later.
pub(in super::super) struct Asked {
    owner: Owner,
}

impl Asked {
    /// Takes the preference from a request's head, before the head is rewritten for the origin.
    pub fn of(client: &Client, headers: &mut HeaderMap) -> Option<Asked> {
        let wished = client.deferred().is_some() && take_respond_async(headers);
        wished.then(|| Asked {
            owner: owner(client, headers),
        })
    }
}

/// Who asks.
pub(super) fn owner(client: &Client, headers: &HeaderMap) -> Owner {
    let asked = client.intake.users.is_some();
    let named = authority::credentials(headers).filter(|_| asked);
    Owner {
        client: client.peer.address.ip(),
        user: named.map(|(user, _)| String::from_utf8_lossy(&user).into_owned()),
    }
}

/// Stores the request if its client asks for that and another node would dispatch it. Otherwise
/// returns it, since the client's wish is only a preference.
pub(in super::super) async fn store(
    client: &Client,
    asked: Option<Asked>,
    target: &Target,
    verdict: Verdict,
    head: Parts,
    body: Incoming,
) -> Result<Response<Body>, (Parts, Incoming)> {
    let outlet = &client.intake.ways.peer;
    let peer = outlet.dispatcher(target).filter(|_| !verdict.direct);
    let (Some(asked), Some(peer), Some(handle)) = (asked, peer, client.deferred()) else {
        return Err((head, body));
    };
    let stored = take_in(handle, client, asked.owner, peer, verdict, head, body).await;
    Ok(stored.unwrap_or_else(|refused| refused.into_page()))
}

/// Why a request is not stored.
enum Refused {
    Limit(Refusal),
    Service(ServiceError),
    /// The client's body is broken, in this way.
    BrokenBody(&'static str),
    Randomness,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Refused {
        Refused::Limit(refusal)
    }
}

impl From<ServiceError> for Refused {
    fn from(error: ServiceError) -> Refused {
        Refused::Service(error)
    }
}

impl Refused {
    fn into_page(self) -> Response<Body> {
        match self {
            Refused::Limit(refusal) => refusal_page(refusal),
            Refused::Service(error) => {
                reply::page(StatusCode::INSUFFICIENT_STORAGE, &error.to_string())
            }
            Refused::BrokenBody(fault) => reply::broken_body(fault),
            Refused::Randomness => reply::page(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the system has no random numbers",
            ),
        }
    }
}

/// The page of a refusal.
pub(super) fn refusal_page(refusal: Refusal) -> Response<Body> {
    let status = match refusal {
        Refusal::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        Refusal::Full => StatusCode::INSUFFICIENT_STORAGE,
        Refusal::Unknown => StatusCode::NOT_FOUND,
        Refusal::State => StatusCode::CONFLICT,
    };
    reply::page(status, &refusal.to_string())
}

/// A request that is coming in. Dropping it deletes what has arrived, unless it has been submitted.
struct Upload {
    handle: Handle,
    id: Option<Id>,
}

impl Upload {
    async fn begin(handle: &Handle, owner: &Owner) -> Result<(Upload, Id), Refused> {
        let id = Id::random().map_err(|_| Refused::Randomness)?;
        let client = owner.client;
        let begun = handle
            .call(move |node, _| Ok(node.begin_upload(id, client)))
            .await?;
        begun?;
        let upload = Upload {
            handle: handle.clone(),
            id: Some(id),
        };
        Ok((upload, id))
    }

    async fn part(&self, id: Id, data: Bytes) -> Result<(), Refused> {
        let put = self.handle.call(move |node, _| node.upload(id, &data));
        Ok(put.await??)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let handle = self.handle.clone();
            tokio::spawn(async move { handle.call(move |node, _| node.abandon(id)).await });
        }
    }
}

async fn take_in(
    handle: &Handle,
    client: &Client,
    owner: Owner,
    peer: u64,
    verdict: Verdict,
    mut head: Parts,
    mut body: Incoming,
) -> Result<Response<Body>, Refused> {
    let repeatable = head.method.is_idempotent() || head.headers.contains_key(IDEMPOTENCY_KEY);
    // The request is sent to the origin as a whole, and without trailers.
    head.headers.remove(EXPECT);
    head.headers.remove(TRAILER);
    let host = head.headers.get(HOST).and_then(|host| host.to_str().ok());
    let target = format!("http://{}{}", host.unwrap_or_default(), head.uri);
    let request = request_head(&head.method, &target, &head.headers);
    let limits = handle.limits();
    let length = body
        .size_hint()
        .lower()
        .saturating_add(request.len() as u64);
    if length > limits.request_bytes {
        return Err(Refusal::TooLarge(limits.request_bytes).into());
    }
    let part_bytes = limits.part_bytes as usize;
    let (mut upload, id) = Upload::begin(handle, &owner).await?;
    let head_bytes = u32::try_from(request.len()).unwrap_or(u32::MAX);
    let mut waiting = BytesMut::from(request);
    loop {
        while waiting.len() > part_bytes {
            upload
                .part(id, waiting.split_to(part_bytes).freeze())
                .await?;
        }
        match body.frame().await {
            None => break,
            Some(Err(error)) => {
                return Err(Refused::BrokenBody(reply::fault_of_body(&error)));
            }
            // The origin gets the body with its length.
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    waiting.extend_from_slice(&data);
                }
            }
        }
    }
    upload.part(id, waiting.freeze()).await?;
    let submission = Submission {
        id,
        peer,
        class: verdict.class.0,
        repeatable,
        owner,
        method: head.method.to_string(),
        target,
        head_bytes,
    };
    let submitted = handle.call(move |node, now_ms| node.submit(now_ms, submission));
    let stored = submitted.await??;
    upload.id = None;
    let mut response = accepted(&stored, &Place::of(client));
    let applied = HeaderName::from_static("preference-applied");
    let value = HeaderValue::from_static("respond-async");
    response.headers_mut().insert(applied, value);
    Ok(response)
}
