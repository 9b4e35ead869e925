//! The client's side.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Reply, Request};

/// How long a reply may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a request got no reply.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ControlError {
    #[error("control socket {path}: {source}")]
    Socket { path: PathBuf, source: io::Error },
    #[error("control socket {path}: reply not understood: {source}")]
    Reply {
        path: PathBuf,
        source: serde_json::Error,
    },
}

/// Sends one request and waits for its reply.
pub fn send(path: &Path, request: &Request) -> Result<Reply, ControlError> {
    let line = exchange(path, request).map_err(|source| ControlError::Socket {
        path: path.to_owned(),
        source,
    })?;
    serde_json::from_str(&line).map_err(|source| ControlError::Reply {
        path: path.to_owned(),
        source,
    })
}

fn exchange(path: &Path, request: &Request) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply)?;
    Ok(reply)
}
