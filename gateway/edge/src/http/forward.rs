//! Forward proxy requests for `http://` (RFC 9110 §7, RFC 9112 §3.2.2).
//!
//! `Expect: 100-continue` is passed on, and the client is told to continue as
//! soon as its stream is open rather than a satellite round trip later; an
//! origin that refuses still does so in its response.

use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::header::{HOST, HeaderValue};
use hyper::http::request::Parts;
use hyper::http::uri::{PathAndQuery, Scheme, Uri};
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode, Version};

use super::client_io::mark_cut;
use super::reply::{self, Body};
use super::server::Client;
use super::tunnel::{Far, Tunnel};
use super::upstream::{Upstream, Way};
use super::{authority, fields};
use crate::stream::{Failure, Protocol, Target};

const DEFAULT_PORT: u16 = 80;

/// Passes a request on and its response back.
pub(super) async fn forward(client: &Client, mut request: Request<Incoming>) -> Response<Body> {
    let near = hyper::upgrade::on(&mut request);
    let (mut head, body) = request.into_parts();
    let target = match rewrite(&mut head) {
        Ok(target) => target,
        Err(refusal) => return *refusal,
    };
    if !fields::may_forward(&head.method, &mut head.headers) {
        return reply::page(StatusCode::OK, "the request ends at this proxy");
    }
    let upgrade = fields::strip(&mut head.headers);
    if let Some(protocol) = upgrade.clone() {
        fields::set_upgrade(&mut head.headers, protocol);
    }
    fields::add_via(&mut head.headers, head.version);
    head.version = Version::HTTP_11;

    let length = body.size_hint().exact();
    let verdict = client
        .intake
        .classify(Protocol::HttpForward, &target, &client.peer, length);
    let way = Way { target, verdict };
    let shown = way.target.to_string();
    match exchange(client, way, head, body).await {
        Ok(response) => pass_back(client, response, near, shown),
        Err(failure) => {
            client.log_failure(&shown, &failure);
            reply::failed(&failure)
        }
    }
}

/// Makes the request one to an origin: target in origin form, Host by the
/// target and not by what the client wrote there (RFC 9112 §3.2.2).
fn rewrite(head: &mut Parts) -> Result<Target, Box<Response<Body>>> {
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
    head.headers.insert(HOST, host);
    let path = head.uri.path_and_query().cloned();
    head.uri = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    Ok(target)
}

/// Sends the request over a kept connection or a new one. An origin may close
/// a kept one just as the request leaves; a request that does nothing twice
/// and has no body is then sent once more (RFC 9110 §9.2.2).
async fn exchange(
    client: &Client,
    way: Way,
    head: Parts,
    body: Incoming,
) -> Result<Response<Incoming>, Failure> {
    if let Some(mut kept) = client.upstreams.take(&way).await {
        if !(head.method.is_idempotent() && body.is_end_stream()) {
            return send(client, kept, Request::from_parts(head, body.boxed())).await;
        }
        let copy = Request::from_parts(head.clone(), reply::empty());
        if let Ok(response) = kept.send(copy).await {
            client.upstreams.keep(kept);
            return Ok(response);
        }
    }
    let target = way.target.clone();
    let conduit = client
        .intake
        .open(Protocol::HttpForward, target, &client.peer, way.verdict)?;
    let upstream = Upstream::start(way, conduit).await?;
    send(client, upstream, Request::from_parts(head, body.boxed())).await
}

async fn send(
    client: &Client,
    mut upstream: Upstream,
    request: Request<Body>,
) -> Result<Response<Incoming>, Failure> {
    let response = upstream.send(request).await?;
    client.upstreams.keep(upstream);
    Ok(response)
}

/// The response as the client gets it.
fn pass_back(
    client: &Client,
    mut response: Response<Incoming>,
    near: OnUpgrade,
    target: String,
) -> Response<Body> {
    if fields::has_foreign_coding(response.headers()) {
        return reply::page(
            StatusCode::BAD_GATEWAY,
            "the origin answers in a transfer coding that was not asked for",
        );
    }
    let far = hyper::upgrade::on(&mut response);
    let version = response.version();
    let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let upgrade = fields::strip(response.headers_mut());
    if let (true, Some(protocol)) = (switched, upgrade) {
        fields::set_upgrade(response.headers_mut(), protocol);
        let far = Far::Upgraded(far);
        client.tunnel(Tunnel { near, far, target });
    }
    fields::add_via(response.headers_mut(), version);
    *response.version_mut() = Version::HTTP_11;
    response.map(|body| body.map_err(mark_cut(&client.cut)).boxed())
}
