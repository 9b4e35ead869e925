//! `underpass bp send`.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::command::SendCommand;
use super::connection::Connection;
use super::error::BpError;

pub async fn execute(command: SendCommand) -> Result<(), BpError> {
    let SendCommand {
        common,
        sending,
        reports,
        destination,
        file,
    } = command;
    let mut connection = Connection::open(&common, sending.service).await?;
    let long = file.as_deref().map(|file| long_file(file, &connection));
    if let Some(long) = long.transpose()?.flatten() {
        let reports: Vec<_> = reports.into_iter().map(Into::into).collect();
        let upload = super::upload::send(&mut connection, &destination, &sending, reports, long);
        return tokio::select! {
            sent = upload => sent,
            _ = tokio::signal::ctrl_c() => Err(BpError::Interrupted),
        };
    }
    // One byte more tells that it is too large, without reading all of it.
    let payload = read_some(file.as_deref(), connection.max_payload_bytes + 1)?;
    let reports: Vec<_> = reports.into_iter().map(Into::into).collect();
    let created = connection.send(&destination, &sending, &reports, &payload);
    let created = created.await?;
    let (time_ms, sequence) = created.unzip();
    let source = connection.endpoint.clone();
    let bytes = payload.len();
    let sent = json!({
        "source": source, "destination": destination, "bytes": bytes,
        "time_ms": time_ms, "sequence": sequence,
    });
    let text = format!("{bytes} bytes from {source} to {destination}");
    connection.tell(&sent, &text)
}

/// A file that is longer than the node takes in one frame, with its bytes.
fn long_file(
    path: &Path,
    connection: &Connection,
) -> Result<Option<(std::fs::File, PathBuf, u64)>, BpError> {
    if path == Path::new("-") {
        return Ok(None);
    }
    let wrong = |source| BpError::File {
        path: path.to_owned(),
        source,
    };
    let file = std::fs::File::open(path).map_err(wrong)?;
    let metadata = file.metadata().map_err(wrong)?;
    let long = metadata.is_file() && metadata.len() > connection.max_payload_bytes;
    Ok(long.then(|| (file, path.to_owned(), metadata.len())))
}

/// The first bytes of a file, or of standard input.
pub fn read_some(file: Option<&Path>, most: u64) -> Result<Vec<u8>, BpError> {
    let mut payload = Vec::new();
    let file = file.filter(|file| *file != Path::new("-"));
    let read = match file {
        None => std::io::stdin().take(most).read_to_end(&mut payload),
        Some(path) => {
            std::fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut payload))
        }
    };
    read.map_err(|source| BpError::File {
        path: file.unwrap_or(Path::new("standard input")).to_owned(),
        source,
    })?;
    Ok(payload)
}
