//! Files that are sent, and received, part by part.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use serde_json::json;
use tokio::time::{Instant, sleep};
use underpass_applications::wire::{ErrorCode, Event, Reported, Request};

use super::command::Sending;
use super::connection::{Connection, LIFETIME_S, ROOM_PAUSE, seconds, unexpected};
use super::error::BpError;
use super::progress::Progress;

/// What is read of a file at once, bytes.
const PART_BYTES: u64 = 1 << 20;

/// Sends a file as one bundle. It is read part by part.
pub async fn send(
    connection: &mut Connection,
    destination: &str,
    sending: &Sending,
    reports: Vec<Reported>,
    (mut file, path, bytes): (File, PathBuf, u64),
) -> Result<(), BpError> {
    let most = connection.max_file_bytes;
    if bytes > most {
        return Err(BpError::TooLong { bytes, most });
    }
    if !sending.no_custody {
        let most = connection.max_payload_bytes;
        return Err(BpError::Custody { bytes, most });
    }
    let id = begin(connection, destination, sending, reports, bytes).await?;
    let mut progress = Progress::new("sent to the node", bytes);
    let part_bytes = PART_BYTES.min(connection.max_payload_bytes.max(1));
    let mut part = vec![0; usize::try_from(part_bytes).unwrap_or(usize::MAX)];
    let mut left = bytes;
    while left > 0 {
        let length = usize::try_from(left.min(part_bytes)).unwrap_or(usize::MAX);
        let part = &mut part[..length];
        file.read_exact(part).map_err(|source| BpError::File {
            path: path.clone(),
            source,
        })?;
        connection.say(&Request::Part { id }, part).await?;
        left -= length as u64;
        progress.reached(bytes - left);
        // The node speaks before the end only to refuse.
        if left > 0 && connection.has_word()? {
            break;
        }
    }
    let (time_ms, sequence) = match connection.answer(id).await?.0 {
        Event::Sent {
            time_ms, sequence, ..
        } => (time_ms, sequence),
        other => return Err(unexpected(other)),
    };
    drop(progress);
    let source = connection.endpoint.clone();
    let sent = json!({
        "source": source, "destination": destination, "bytes": bytes,
        "time_ms": time_ms, "sequence": sequence,
    });
    let text = format!("{bytes} bytes from {source} to {destination}");
    connection.tell(&sent, &text)
}

/// Has the node make room; waits while it has none.
async fn begin(
    connection: &mut Connection,
    destination: &str,
    sending: &Sending,
    reports: Vec<Reported>,
    bytes: u64,
) -> Result<u64, BpError> {
    let lifetime = seconds("lifetime", sending.lifetime.unwrap_or(LIFETIME_S))?;
    let until = Instant::now() + seconds("wait", sending.wait)?;
    loop {
        let id = connection.id();
        let request = Request::Begin {
            id,
            service: connection.service,
            destination: destination.to_owned(),
            lifetime_ms: Some(u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX)),
            reports: reports.clone(),
            bytes,
        };
        connection.say(&request, b"").await?;
        match connection.answer(id).await {
            Ok((Event::Begun { .. }, _)) => return Ok(id),
            Err(BpError::Refused {
                code: ErrorCode::NoRoom,
                ..
            }) if Instant::now() < until => sleep(ROOM_PAUSE).await,
            Ok((other, _)) => return Err(unexpected(other)),
            Err(error) => return Err(error),
        }
    }
}

/// Reads a payload of so many bytes from the node into `out`, part by part.
pub async fn receive(
    connection: &mut Connection,
    delivery: u64,
    bytes: u64,
    out: &mut dyn Write,
    path: &Path,
) -> Result<(), BpError> {
    let mut progress = Progress::new("received", bytes);
    let mut offset = 0;
    while offset < bytes {
        let id = connection.id();
        let request = Request::Read {
            id,
            delivery,
            offset,
        };
        connection.say(&request, b"").await?;
        let (event, part) = connection.answer(id).await?;
        if part.is_empty() {
            return Err(unexpected(event));
        }
        out.write_all(&part).map_err(|source| BpError::File {
            path: path.to_owned(),
            source,
        })?;
        offset += part.len() as u64;
        progress.reached(offset);
    }
    Ok(())
}
