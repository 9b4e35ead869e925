//! `underpass bp receive`.

use std::io::Write;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::json;
use tokio::time::Instant;
use underpass_applications::wire::Event;

use super::command::ReceiveCommand;
use super::connection::{Connection, seconds};
use super::error::BpError;
use super::upload;

pub async fn execute(command: ReceiveCommand) -> Result<(), BpError> {
    let timeout = command.timeout.map(|s| seconds("timeout", s)).transpose()?;
    let mut connection = Connection::open(&command.common, Some(command.service)).await?;
    let mut left = command.count.unwrap_or(u64::MAX);
    while left > 0 {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        let Some((event, payload)) = connection.next(until).await? else {
            break;
        };
        let Event::Bundle {
            delivery,
            source,
            time_ms,
            sequence,
            age_ms,
            file_bytes,
            ..
        } = event
        else {
            continue;
        };
        let bytes = file_bytes.unwrap_or(payload.len() as u64);
        let file = match file_bytes {
            Some(bytes) => read_long(&command, &mut connection, delivery, bytes).await?,
            None => write(&command, delivery, &payload)?,
        };
        let received = json!({
            "source": source, "time_ms": time_ms, "sequence": sequence, "age_ms": age_ms,
            "bytes": bytes, "file": file,
        });
        let at = file.map_or_else(String::new, |file| format!(": {}", file.display()));
        if connection.tells_json() || command.folder.is_some() {
            connection.tell(&received, &format!("{bytes} bytes from {source}{at}"))?;
        }
        // Only what is safe is done with.
        connection.acknowledge(delivery).await?;
        left -= 1;
    }
    Ok(())
}

/// Writes a payload to where it is wanted; its file, if it has one.
fn write(
    command: &ReceiveCommand,
    delivery: u64,
    payload: &Bytes,
) -> Result<Option<PathBuf>, BpError> {
    let Some(folder) = &command.folder else {
        if !command.common.json {
            let mut out = std::io::stdout().lock();
            let written = out.write_all(payload).and_then(|()| out.flush());
            written.map_err(|source| BpError::File {
                path: "standard output".into(),
                source,
            })?;
        }
        return Ok(None);
    };
    let path = folder.join(format!("bundle-{delivery}"));
    let written = safely(folder, &path, payload);
    written.map_err(|source| BpError::File {
        path: path.clone(),
        source,
    })?;
    Ok(Some(path))
}

/// Reads a long payload part by part to where it is wanted; its file, if it has
/// one. A part of a file is not left behind when the user ends it.
async fn read_long(
    command: &ReceiveCommand,
    connection: &mut Connection,
    delivery: u64,
    bytes: u64,
) -> Result<Option<PathBuf>, BpError> {
    let Some(folder) = &command.folder else {
        let path = Path::new("standard output");
        let mut out: Box<dyn Write> = match command.common.json {
            true => Box::new(std::io::sink()),
            false => Box::new(std::io::stdout()),
        };
        upload::receive(connection, delivery, bytes, &mut *out, path).await?;
        let flushed = out.flush();
        flushed.map_err(|source| BpError::File {
            path: path.to_owned(),
            source,
        })?;
        return Ok(None);
    };
    let path = folder.join(format!("bundle-{delivery}"));
    let part = path.with_extension("part");
    let wrong = |source| BpError::File {
        path: path.clone(),
        source,
    };
    std::fs::create_dir_all(folder).map_err(wrong)?;
    let mut file = std::fs::File::create(&part).map_err(wrong)?;
    let read = tokio::select! {
        read = upload::receive(connection, delivery, bytes, &mut file, &path) => read,
        _ = tokio::signal::ctrl_c() => Err(BpError::Stopped),
    };
    let named = read.and_then(|()| named(folder, &path, &part, &file).map_err(wrong));
    if let Err(error) = named {
        // What cannot be deleted is overwritten the next time.
        let _ = std::fs::remove_file(&part);
        return Err(error);
    }
    Ok(Some(path))
}

/// Gives a file that is whole its name, on the disk.
fn named(folder: &Path, path: &Path, part: &Path, file: &std::fs::File) -> std::io::Result<()> {
    file.sync_all()?;
    std::fs::rename(part, path)?;
    std::fs::File::open(folder)?.sync_all()
}

/// Writes a file that is whole, and on the disk, once it has its name.
fn safely(folder: &Path, path: &Path, payload: &[u8]) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let part = path.with_extension("part");
    let write = |mut file: std::fs::File| {
        file.write_all(payload)?;
        named(folder, path, &part, &file)
    };
    let written = std::fs::File::create(&part).and_then(write);
    if written.is_err() {
        // What cannot be deleted is overwritten the next time.
        let _ = std::fs::remove_file(&part);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_that_cannot_have_its_name_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bundle-7");
        safely(folder.path(), &path, b"payload").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"payload");
        let taken = folder.path().join("bundle-8");
        std::fs::create_dir(&taken).unwrap();
        assert!(safely(folder.path(), &taken, b"payload").is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
