//! Stored requests as resources of this proxy.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::{Method, Request, Response, StatusCode, Uri};
use underpass_deferred::{self as deferred, Document, Handle, Id, Owner, Refusal};

use super::super::authority;
use super::super::reply::{self, Body};
use super::super::server::Client;
use super::intake::{owner, refusal_page};
use super::retrieval::response;

/// Where the resources are, below the address that the client reached.
const FOLDER: &str = "/underpass/requests/";
const DEFAULT_PORT: u16 = 80;

/// The address at which the client reached this proxy.
pub(in super::super) struct Place(Option<SocketAddr>);

impl Place {
    /// The place as `client` knows it.
    pub fn of(client: &Client) -> Place {
        Place(client.local)
    }

    fn url(&self, id: Id) -> String {
        match self.0 {
            Some(address) => format!("http://{address}{FOLDER}{id}"),
            None => format!("{FOLDER}{id}"),
        }
    }

    /// The part of a request's path below the folder. The request names it by the path alone or, if
    /// it is sent as to a forward proxy, by a URI of this proxy.
    pub fn below<'a>(&self, uri: &'a Uri) -> Option<&'a str> {
        if let Some(authority) = uri.authority() {
            let target = authority::target(authority, Some(DEFAULT_PORT)).ok()?;
            let here = self.0.map(crate::stream::Target::Address);
            here.filter(|here| *here == target)?;
        }
        uri.path().strip_prefix(FOLDER)
    }
}

/// Answers a request for what is `below` the folder.
pub(in super::super) async fn serve(
    client: &Client,
    handle: &Handle,
    request: &Request<Incoming>,
    below: &str,
) -> Response<Body> {
    let owner = owner(client, request.headers());
    let place = Place::of(client);
    let (name, action) = match below.split_once('/') {
        Some((name, action)) => (name, Some(action)),
        None => (below, None),
    };
    let Ok(id) = name.parse::<Id>() else {
        return refusal_page(Refusal::Unknown);
    };
    let outcome = match (request.method(), action) {
        (&Method::GET | &Method::HEAD, None) => show(handle, id, owner, &place).await,
        (&Method::DELETE, None) => cancel(handle, id, owner, &place).await,
        (&Method::GET | &Method::HEAD, Some("response")) => {
            return response(handle, id, Some(owner), request.method(), request.headers()).await;
        }
        (&Method::POST, Some("repeat")) => repeat(handle, id, owner, &place).await,
        (_, None) => return not_allowed("GET, HEAD, DELETE"),
        (_, Some("response")) => return not_allowed("GET, HEAD"),
        (_, Some("repeat")) => return not_allowed("POST"),
        (_, Some(_)) => return refusal_page(Refusal::Unknown),
    };
    match outcome {
        Ok(Ok(answer)) => answer,
        Ok(Err(refusal)) => refusal_page(refusal),
        Err(error) => reply::page(StatusCode::INSUFFICIENT_STORAGE, &error.to_string()),
    }
}

type Outcome = Result<Result<Response<Body>, Refusal>, deferred::ServiceError>;

async fn show(handle: &Handle, id: Id, owner: Owner, place: &Place) -> Outcome {
    let found = handle.call(move |node, _| Ok(node.request(id, Some(&owner)).cloned()));
    let found = found.await?;
    Ok(found.map(|request| document(StatusCode::OK, &request, place)))
}

async fn cancel(handle: &Handle, id: Id, owner: Owner, place: &Place) -> Outcome {
    let done = handle.call(move |node, now_ms| node.cancel(now_ms, id, Some(&owner)));
    Ok(done.await?.map(|left| match left {
        Some(request) if request.cancelling => document(StatusCode::ACCEPTED, &request, place),
        Some(request) => document(StatusCode::OK, &request, place),
        None => {
            let mut gone = Response::new(reply::empty());
            *gone.status_mut() = StatusCode::NO_CONTENT;
            gone
        }
    }))
}

async fn repeat(handle: &Handle, id: Id, owner: Owner, place: &Place) -> Outcome {
    let done = handle.call(move |node, now_ms| node.repeat(now_ms, id, Some(&owner)));
    Ok(done.await?.map(|request| accepted(&request, place)))
}

/// 202 with the status document's place and content (RFC 9110 §15.3.3).
pub(super) fn accepted(request: &deferred::Request, place: &Place) -> Response<Body> {
    let mut response = document(StatusCode::ACCEPTED, request, place);
    if let Ok(location) = HeaderValue::from_str(&place.url(request.id)) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

fn document(status: StatusCode, request: &deferred::Request, place: &Place) -> Response<Body> {
    let document = Document::of(request, place.url(request.id));
    let mut text = serde_json::to_vec_pretty(&document).unwrap_or_default();
    text.push(b'\n');
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {});
    let mut response = Response::new(body.boxed());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn not_allowed(methods: &'static str) -> Response<Body> {
    let text = format!("this takes {methods}");
    let mut response = reply::page(StatusCode::METHOD_NOT_ALLOWED, &text);
    let allow = HeaderValue::from_static(methods);
    response.headers_mut().insert(ALLOW, allow);
    response
}
