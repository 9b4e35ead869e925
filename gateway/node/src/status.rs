//! `underpass status`: asks a running node by its local API.

use std::io;
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
    if json {
        let value: serde_json::Value = serde_json::from_slice(&body)?;
        println!("{value:#}");
    } else {
        let status: Status = serde_json::from_slice(&body)?;
        print!("{status}");
    }
    Ok(())
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
    Ok(response.into_body().collect().await?.to_bytes())
}
