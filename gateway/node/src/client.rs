//! Asks a running node by its local API.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use thiserror::Error;

/// Why a node could not be asked.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No node answers at the socket.
    #[error("no node answers at {socket}: {source}")]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The node's answer broke off.
    #[error("the node's answer broke off: {0}")]
    Http(#[from] hyper::Error),
    /// The node's answer is not what this version knows.
    #[error("the node's answer is not understood: {0}")]
    Answer(#[from] serde_json::Error),
    /// The node answers with an error.
    #[error("the node answers: {status}: {text}")]
    Status {
        /// Which.
        status: hyper::StatusCode,
        /// Its own words.
        text: String,
    },
    /// The answer cannot be printed.
    #[error("cannot print: {0}")]
    Print(io::Error),
    /// The runtime does not start.
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

async fn exchange(
    socket: &Path,
    request: hyper::Request<Full<Bytes>>,
) -> Result<Bytes, ClientError> {
    let stream = tokio::net::UnixStream::connect(socket)
        .await
        .map_err(|source| ClientError::Connect {
            socket: socket.to_owned(),
            source,
        })?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    if !status.is_success() {
        let text = String::from_utf8_lossy(&body).into_owned();
        return Err(ClientError::Status { status, text });
    }
    Ok(body)
}

/// Prints `text` to standard output.
///
/// # Errors
/// When it does not take it.
pub fn print(text: &str) -> Result<(), ClientError> {
    match io::stdout().write_all(text.as_bytes()) {
        // The reader has seen enough, as in `underpass status | head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(ClientError::Print),
    }
}
