//! Forward proxy requests for `http://` (RFC 9110 §7, RFC 9112 §3.2.2).
//!
//! The origin's interim responses are passed on, too: whether it wants a body that waits for that
//! ([`Expectation`]), and its hints ([`interim`]).

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::header::{AUTHORIZATION, CONNECTION, HOST, HeaderValue, TRANSFER_ENCODING};
use hyper::http::request::Parts;
use hyper::http::uri::{PathAndQuery, Scheme, Uri};
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode, Version};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::client_io::mark_cut;
use super::deferred::{self, Asked};
use super::expectation::Expectation;
use super::interim;
use super::late_body::LateBody;
use super::reply::{self, Body};
use super::server::Client;
use super::tunnel::{Far, Tunnel};
use super::upstream::{Ending, Unanswered, Upstream, Way};
use super::{TRACEPARENT, authority, fields};
use crate::listen::{self, Exchange};
use crate::stream::{Failure, FailureCode, Protocol, Target};

const DEFAULT_PORT: u16 = 80;

/// A request on its way.
struct Outgoing {
    head: Parts,
    body: Incoming,
    hop: fields::Hop,
    account: Arc<Exchange>,
    expectation: Option<Expectation>,
    /// Whether the client understands interim responses: HTTP/1.0 knows none.
    takes_interim: bool,
}

/// What came back.
struct Answered {
    response: Response<Incoming>,
    /// If the origin answered without wanting the body: ends its connection when dropped.
    unwanted: Option<Ending>,
    /// Tells the request's body that the response is over.
    over: Option<DropGuard>,
}

/// Passes a request on and its response back.
pub(super) async fn forward(client: &Client, mut request: Request<Incoming>) -> Response<Body> {
    let near = hyper::upgrade::on(&mut request);
    let (mut head, body) = request.into_parts();
    let (target, host) = match rewrite(&mut head) {
        Ok(rewritten) => rewritten,
        Err(refusal) => return *refusal,
    };
    if !fields::may_forward(&head.method, &mut head.headers) {
        return reply::page(StatusCode::OK, "the request ends at this proxy");
    }
    let asked = Asked::of(client, &mut head.headers);
    let hop = fields::strip(&mut head.headers);
    // After the fields that Connection names are removed: every request needs a Host.
    head.headers.insert(HOST, host);
    // HTTP/1.0 knows no upgrade (RFC 9110 §7.8).
    let upgrade = hop.upgrade.clone();
    let upgrade = upgrade.filter(|_| head.version != Version::HTTP_10);
    fields::add_via(&mut head.headers, head.version);
    let length = body.size_hint().exact();
    let verdict = client
        .intake
        .classify(Protocol::HttpForward, &target, &client.peer, length);
    // An upgrade needs its connection.
    let asked = asked.filter(|_| upgrade.is_none());
    let (mut head, body) = match deferred::store(client, asked, &target, verdict, head, body).await
    {
        Ok(accepted) => return accepted,
        Err(passed_on) => passed_on,
    };
    if let Some(protocol) = upgrade.clone() {
        fields::set_upgrade(&mut head.headers, protocol);
    }
    if hop.takes_trailers {
        fields::ask_for_trailers(&mut head.headers);
    }
    if length.is_none() {
        // Unless told, hyper sends no body of unknown length with a GET.
        let chunked = HeaderValue::from_static("chunked");
        head.headers.insert(TRANSFER_ENCODING, chunked);
    }
    let expectation = Expectation::of(&mut head, &body);
    let takes_interim = head.version != Version::HTTP_10;
    let way = Way { target, verdict };
    let shown = way.target.to_string();
    let account = Arc::new(client.begin(listen::Asked {
        method: head.method.clone(),
        target: shown.clone(),
        path: head.uri.path().to_owned(),
        version: head.version,
    }));
    head.version = Version::HTTP_11;
    let outgoing = Outgoing {
        head,
        body,
        hop,
        account: account.clone(),
        expectation,
        takes_interim,
    };
    match exchange(client, way, outgoing).await {
        Ok(answered) => {
            let asked = upgrade.map(|protocol| (near, protocol));
            pass_back(client, answered, asked, account, shown)
        }
        Err(Unanswered::Failed(failure)) => {
            account.failed(&failure);
            reply::failed(&failure)
        }
        Err(Unanswered::BrokenBody(fault)) => {
            account.refused(StatusCode::BAD_REQUEST, fault);
            reply::broken_body(fault)
        }
    }
}

/// Makes the request one to an origin: target in origin form. Returns the target, and the Host that
/// names it; the client's own Host is ignored (RFC 9112 §3.2.2).
fn rewrite(head: &mut Parts) -> Result<(Target, HeaderValue), Box<Response<Body>>> {
    let refuse = |status, text: &str| Err(Box::new(reply::page(status, text)));
    let Some(authority) = head.uri.authority().cloned() else {
        return refuse(
            StatusCode::BAD_REQUEST,
            "this is a proxy: the request target must be an absolute http:// URI",
        );
    };
    if head.uri.scheme() != Some(&Scheme::HTTP) {
        return refuse(
            StatusCode::NOT_IMPLEMENTED,
            "only http:// is forwarded; use CONNECT for anything else",
        );
    }
    if fields::has_foreign_coding(&head.headers) {
        return refuse(
            StatusCode::NOT_IMPLEMENTED,
            "the only transfer coding that is forwarded is chunked",
        );
    }
    let target = match authority::target(&authority, Some(DEFAULT_PORT)) {
        Ok(target) => target,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, &error),
    };
    let Ok(host) = HeaderValue::from_str(authority.as_str()) else {
        return refuse(StatusCode::BAD_REQUEST, "the target's host is malformed");
    };
    let path = head.uri.path_and_query().cloned();
    head.uri = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    Ok((target, host))
}

/// Whether a request logs in by a scheme whose steps belong to one connection (NTLM; RFC 4559).
fn is_bound_to_connection(head: &Parts) -> bool {
    let mut values = head.headers.get_all(AUTHORIZATION).iter();
    values.any(|value| {
        let scheme = value.as_bytes().split(|octet| *octet == b' ').next();
        let is_named =
            |name: &str| scheme.is_some_and(|of| of.eq_ignore_ascii_case(name.as_bytes()));
        is_named("ntlm") || is_named("negotiate")
    })
}

/// Sends the request over a kept connection or a new one. An origin may close a kept connection
/// just as the request leaves, or in a blockage, and this node learns of it too late. The far node
/// may restart after it got the request, or when this node cannot know whether it did. An
/// idempotent request without a body is then sent once more (RFC 9110 §9.2.2). Any other request
/// would fail, so it gets a new connection, which costs no round trip of the hop, unless its
/// login holds for the kept one only.
async fn exchange(client: &Client, way: Way, outgoing: Outgoing) -> Result<Answered, Unanswered> {
    let repeatable = outgoing.head.method.is_idempotent() && outgoing.body.is_end_stream();
    let may_be_kept = repeatable || is_bound_to_connection(&outgoing.head);
    if may_be_kept && let Some(kept) = client.upstreams.take(&way).await {
        if !repeatable {
            return outgoing.send(client, kept).await;
        }
        let copy = Request::from_parts(outgoing.head.clone(), reply::empty());
        if let Ok(answered) = send(client, kept, copy, None, outgoing.takes_interim).await {
            return Ok(answered);
        }
    }
    let upstream = open(client, &way, &outgoing.head).await?;
    let takes_interim = outgoing.takes_interim;
    let copy = repeatable.then(|| outgoing.head.clone());
    let answered = outgoing.send(client, upstream).await;
    match (answered, copy) {
        (Err(Unanswered::Failed(failure)), Some(head))
            if failure.code == FailureCode::Unavailable =>
        {
            let upstream = open(client, &way, &head).await?;
            let copy = Request::from_parts(head, reply::empty());
            send(client, upstream, copy, None, takes_interim).await
        }
        (answered, _) => answered,
    }
}

/// A new connection to an origin.
async fn open(client: &Client, way: &Way, head: &Parts) -> Result<Upstream, Failure> {
    let conduit = client.intake.open(
        Protocol::HttpForward,
        way.target.clone(),
        &client.peer,
        way.verdict,
        head.headers.get(TRACEPARENT),
    )?;
    Upstream::start(way.clone(), conduit).await
}

impl Outgoing {
    async fn send(self, client: &Client, upstream: Upstream) -> Result<Answered, Unanswered> {
        let body = match &self.expectation {
            Some(expectation) => expectation.gate(self.body).boxed(),
            None => self.body.boxed(),
        };
        let (hop, account) = (self.hop, self.account);
        let body = body.map_frame(move |frame| {
            account.sent(frame.data_ref().map_or(0, Bytes::len));
            hop.strip_trailers(frame)
        });
        let over = CancellationToken::new();
        let body = LateBody::new(body.boxed(), over.clone(), upstream.abort_handle());
        let over = over.drop_guard();
        let request = Request::from_parts(self.head, body.boxed());
        let expectation = self.expectation.as_ref();
        let answered = send(client, upstream, request, expectation, self.takes_interim).await?;
        Ok(Answered {
            over: Some(over),
            ..answered
        })
    }
}

/// Sends the request, and passes interim responses of the origin on to the client.
async fn send(
    client: &Client,
    mut upstream: Upstream,
    mut request: Request<Body>,
    expectation: Option<&Expectation>,
    takes_interim: bool,
) -> Result<Answered, Unanswered> {
    let mut interims = interim::watch(&mut request);
    let gated = || expectation.filter(|expectation| !expectation.is_wanted());
    let patience = async {
        match expectation {
            Some(expectation) => expectation.patience().await,
            None => pending().await,
        }
    };
    let response = {
        let mut patience = pin!(patience);
        let mut response = pin!(upstream.send(request));
        loop {
            tokio::select! {
                biased;
                Some(interim) = interims.recv() => match expectation {
                    // hyper tells the client when the body is asked for.
                    Some(expectation) if interim.status == StatusCode::CONTINUE => {
                        expectation.want();
                    }
                    _ if takes_interim => client.outbox.push(interim),
                    _ => {}
                },
                response = &mut response => break response?,
                () = &mut patience, if gated().is_some() => {
                    gated().inspect(|expectation| expectation.want());
                }
            }
        }
    };
    if gated().is_some() {
        return Ok(Answered {
            response,
            unwanted: Some(upstream.last()),
            over: None,
        });
    }
    client.upstreams.keep(upstream);
    Ok(Answered {
        response,
        unwanted: None,
        over: None,
    })
}

/// The response as the client gets it. `asked` is the client's side of the
/// switch that it asked for, and to which protocols.
fn pass_back(
    client: &Client,
    answered: Answered,
    asked: Option<(OnUpgrade, HeaderValue)>,
    account: Arc<Exchange>,
    target: String,
) -> Response<Body> {
    let Answered {
        mut response,
        unwanted,
        over,
    } = answered;
    if fields::has_foreign_coding(response.headers()) {
        let text = "the origin answers in a transfer coding that was not asked for";
        return unusable(&account, text);
    }
    let far = hyper::upgrade::on(&mut response);
    let version = response.version();
    let hop = fields::strip(response.headers_mut());
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let taken = hop.upgrade.clone();
        let asked_for = asked.as_ref().map(|(_, protocols)| protocols);
        if !fields::is_asked_for(asked_for, taken.as_ref()) {
            let text = "the origin switches to a protocol that was not asked for";
            return unusable(&account, text);
        }
        if let (Some((near, _)), Some(protocol)) = (asked, taken) {
            fields::set_upgrade(response.headers_mut(), protocol);
            let far = Far::Upgraded(far);
            client.tunnel(Tunnel { near, far, target });
        }
    }
    account.answered(response.status().as_u16());
    fields::add_via(response.headers_mut(), version);
    *response.version_mut() = Version::HTTP_11;
    if unwanted.is_some() {
        // The client may still send the body, or not: the next bytes on its connection would be
        // ambiguous.
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    let mark_cut = mark_cut(&client.cut);
    let last = move |error| {
        let _until_here = (&unwanted, &over);
        mark_cut(error)
    };
    response.map(|body| {
        let counted = body.map_frame(move |frame| {
            account.received(frame.data_ref().map_or(0, Bytes::len));
            hop.strip_trailers(frame)
        });
        counted.map_err(last).boxed()
    })
}

/// The page in place of an answer that cannot be passed on.
fn unusable(account: &Exchange, text: &str) -> Response<Body> {
    account.failed(&Failure::new(FailureCode::Reset, text));
    reply::page(StatusCode::BAD_GATEWAY, text)
}
