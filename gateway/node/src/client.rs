//! Asks a running node by its local API.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use http_body_util::{BodyExt, Full};
use hyper::StatusCode;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use thiserror::Error;

/// Why a node could not be asked.
#[derive(Debug, Error)]
pub enum ClientError {
    #[error("no node answers at {socket}: {source}")]
    Connect { socket: PathBuf, source: io::Error },
    #[error("the node's answer broke off: {0}")]
    Http(#[from] hyper::Error),
    #[error("the node's answer is not understood: {0}")]
    Answer(#[from] serde_json::Error),
    #[error("{0}")]
    Refused(String),
    #[error("cannot print: {0}")]
    Print(io::Error),
    #[error("this cannot be asked for: {0}")]
    Request(hyper::http::Error),
    /// What is asked for makes no sense.
    #[error("{0}")]
    Usage(String),
    #[error("cannot start: {0}")]
    Runtime(io::Error),
}

/// Asks the node at `socket`, with a JSON body where there is one.
///
/// # Errors
/// When no node answers there, or it answers with an error.
pub fn ask(
    socket: &Path,
    method: &str,
    path: &str,
    body: Option<&serde_json::Value>,
) -> Result<Bytes, ClientError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ClientError::Runtime)?;
    let body = body.map(ToString::to_string).unwrap_or_default();
    let request = hyper::Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, "localhost")
        .header(CONTENT_TYPE, "application/json")
        .body(Full::from(body))
        .expect("a constant request is well-formed");
    runtime.block_on(exchange(socket, request))
}

/// Asks the node at `socket` for an endless answer, and passes each line on as it comes.
///
/// # Errors
/// When no node answers there, or it answers with an error; and those of `line`.
pub fn follow(
    socket: &Path,
    path: &str,
    line: impl FnMut(&[u8]) -> Result<(), ClientError>,
) -> Result<(), ClientError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ClientError::Runtime)?;
    let request = hyper::Request::builder()
        .uri(path)
        .header(HOST, "localhost")
        .body(Full::default())
        .map_err(ClientError::Request)?;
    runtime.block_on(follow_lines(socket, request, line))
}

async fn follow_lines(
    socket: &Path,
    request: hyper::Request<Full<Bytes>>,
    mut line: impl FnMut(&[u8]) -> Result<(), ClientError>,
) -> Result<(), ClientError> {
    let mut body = body_of(begin(socket, request).await?).await?;
    let mut begun = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            begun.extend_from_slice(piece);
            if begun.pop_if(|byte| *byte == b'\n').is_some() {
                line(&begun)?;
                begun.clear();
            }
        }
    }
    Ok(())
}

async fn exchange(
    socket: &Path,
    request: hyper::Request<Full<Bytes>>,
) -> Result<Bytes, ClientError> {
    let body = body_of(begin(socket, request).await?).await?;
    Ok(body.collect().await?.to_bytes())
}

async fn begin(
    socket: &Path,
    request: hyper::Request<Full<Bytes>>,
) -> Result<hyper::Response<Incoming>, ClientError> {
    let stream = tokio::net::UnixStream::connect(socket)
        .await
        .map_err(|source| ClientError::Connect {
            socket: socket.to_owned(),
            source,
        })?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}

async fn body_of(response: hyper::Response<Incoming>) -> Result<Incoming, ClientError> {
    let status = response.status();
    let body = response.into_body();
    if status.is_success() {
        return Ok(body);
    }
    let text = body.collect().await?.to_bytes();
    Err(ClientError::Refused(words(status, &text)))
}

/// What an answer with an error says to a person.
fn words(status: StatusCode, body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Problem {
        detail: String,
    }
    match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => problem.detail,
        // What answers there is another program.
        Err(_) => format!(
            "the node answers: {status}: {}",
            String::from_utf8_lossy(body)
        ),
    }
}

/// Prints `text` to standard output.
///
/// # Errors
/// When it does not take it.
pub fn print(text: &str) -> Result<(), ClientError> {
    match print_or_fail(text) {
        // The reader has seen enough, as in `underpass status | head`.
        Err(ClientError::Print(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

/// As [`print`], for output that must not be lost.
///
/// # Errors
/// When standard output does not take it, or nobody reads that any more.
pub fn print_or_fail(text: &str) -> Result<(), ClientError> {
    let mut out = io::stdout().lock();
    let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    printed.map_err(ClientError::Print)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_in_the_nodes_own_words_alone() {
        let problem = br#"{"title": "Conflict", "status": 409, "detail": "a test runs already"}"#;
        assert_eq!(words(StatusCode::CONFLICT, problem), "a test runs already");
        let other = words(StatusCode::BAD_GATEWAY, b"no such thing");
        assert_eq!(other, "the node answers: 502 Bad Gateway: no such thing");
    }
}
