//! `underpass status`: asks a running node by its local API.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use thiserror::Error;

use crate::api::Status;

/// Why the status is not known.
#[derive(Debug, Error)]
pub enum StatusError {
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
    #[error("the node answers: {0}")]
    Status(hyper::StatusCode),
    /// The answer cannot be printed.
    #[error("cannot print: {0}")]
    Print(io::Error),
    /// The runtime does not start.
    #[error("cannot start: {0}")]
    Runtime(io::Error),
}

/// Prints the status of the node at `socket`.
///
/// # Errors
/// When no node answers there, or not in a way that this version knows.
pub fn print(socket: &Path, json: bool) -> Result<(), StatusError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StatusError::Runtime)?;
    let body = runtime.block_on(fetch(socket, "/v1/status"))?;
    let text = if json {
        let value: serde_json::Value = serde_json::from_slice(&body)?;
        format!("{value:#}\n")
    } else {
        serde_json::from_slice::<Status>(&body)?.to_string()
    };
    match io::stdout().write_all(text.as_bytes()) {
        // The reader has seen enough, as in `underpass status | head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(StatusError::Print),
    }
}

async fn fetch(socket: &Path, path: &str) -> Result<Bytes, StatusError> {
    let stream = tokio::net::UnixStream::connect(socket)
        .await
        .map_err(|source| StatusError::Connect {
            socket: socket.to_owned(),
            source,
        })?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = hyper::Request::get(path)
        .header(hyper::header::HOST, "localhost")
        .body(Empty::<Bytes>::new())
        .expect("a constant request is well-formed");
    let response = sender.send_request(request).await?;
    if !response.status().is_success() {
        return Err(StatusError::Status(response.status()));
    }
    Ok(response.into_body().collect().await?.to_bytes())
}
