//! The proxy's own answers.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::header::{
    CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, PROXY_AUTHENTICATE, RETRY_AFTER,
};
use hyper::{Response, StatusCode};

use crate::stream::{Failure, FailureCode};

/// Bodies of either leg.
pub(super) type Body = BoxBody<Bytes, hyper::Error>;

/// Names the failure in a form for programs (RFC 9209).
const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// An empty body.
pub(super) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed()
}

/// An answer of the proxy itself, with a sentence that a person can read.
pub(super) fn page(status: StatusCode, text: &str) -> Response<Body> {
    let body = Full::new(Bytes::from(format!("underpass: {status}: {text}\n")));
    let mut response = Response::new(body.map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

/// The answer to a client that has to log in.
pub(super) fn login() -> Response<Body> {
    let mut response = page(
        StatusCode::PROXY_AUTHENTICATION_REQUIRED,
        "this proxy asks for a user and password",
    );
    let challenge = HeaderValue::from_static("Basic realm=\"underpass\", charset=\"UTF-8\"");
    response.headers_mut().insert(PROXY_AUTHENTICATE, challenge);
    response
}

/// The answer to a client that must wait because too many wrong passwords came from its address.
pub(super) fn throttled(wait: Duration) -> Response<Body> {
    let seconds = wait.as_secs() + 1;
    let text = format!("too many wrong passwords: try again in {seconds} s");
    let mut response = page(StatusCode::TOO_MANY_REQUESTS, &text);
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// What is wrong with a client's body that hyper cannot read to its end.
pub(super) fn fault_of_body(error: &hyper::Error) -> &'static str {
    let cause = error.source();
    let cause = cause.and_then(|cause| cause.downcast_ref::<io::Error>());
    match cause.map(io::Error::kind) {
        Some(ErrorKind::InvalidInput | ErrorKind::InvalidData) => {
            "the request's chunked body is malformed, or its chunk extensions or trailers are too \
             long"
        }
        _ => "the request's body broke off before its end",
    }
}

/// The answer to a request with such a body, after which the client's next byte would have no
/// meaning.
pub(super) fn broken_body(fault: &str) -> Response<Body> {
    let mut response = page(StatusCode::BAD_REQUEST, fault);
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
    response
}

/// A failure's status, and its error in the words of RFC 9209.
pub(super) fn meaning(code: FailureCode) -> (StatusCode, &'static str) {
    match code {
        FailureCode::Refused => (StatusCode::BAD_GATEWAY, "connection_refused"),
        FailureCode::Unreachable => (StatusCode::BAD_GATEWAY, "destination_ip_unroutable"),
        FailureCode::UnknownHost => (StatusCode::BAD_GATEWAY, "dns_error"),
        FailureCode::Reset => (StatusCode::BAD_GATEWAY, "connection_terminated"),
        FailureCode::TimedOut => (StatusCode::GATEWAY_TIMEOUT, "connection_timeout"),
        FailureCode::Forbidden => (StatusCode::FORBIDDEN, "destination_ip_prohibited"),
        FailureCode::Exhausted => (StatusCode::SERVICE_UNAVAILABLE, "connection_limit_reached"),
        FailureCode::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "destination_unavailable"),
    }
}

impl Failure {
    /// Its HTTP status.
    pub(crate) fn status(&self) -> StatusCode {
        meaning(self.code).0
    }
}

/// The answer to a request whose origin could not be reached.
pub(super) fn failed(failure: &Failure) -> Response<Body> {
    let (status, error) = meaning(failure.code);
    let mut response = page(status, &failure.to_string());
    if let Ok(value) = HeaderValue::from_str(&format!("underpass; error={error}")) {
        response.headers_mut().insert(PROXY_STATUS, value);
    }
    response
}
