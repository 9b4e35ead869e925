//! `underpass bp receive`.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::json;
use tempfile::NamedTempFile;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;
use underpass_applications::wire::Event;

use super::command::ReceiveCommand;
use super::connection::{Connection, waiting};
use super::error::BpError;
use super::upload;
use crate::client;

pub async fn execute(command: ReceiveCommand) -> Result<(), BpError> {
    tokio::select! {
        received = receive(&command) => received,
        () = interrupted(&command) => Err(BpError::Stopped),
    }
}

/// Waits for Ctrl-C or SIGTERM if payloads go into files, so that no partial file is left behind.
/// Once this has been called, neither ends the process by itself any more, so the command has to
/// wait for it as long as it runs.
async fn interrupted(command: &ReceiveCommand) {
    if command.folder.is_some()
        && let Ok(mut interrupt) = signal(SignalKind::interrupt())
        && let Ok(mut terminate) = signal(SignalKind::terminate())
    {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        return;
    }
    std::future::pending::<()>().await;
}

async fn receive(command: &ReceiveCommand) -> Result<(), BpError> {
    let timeout = command.timeout.map(|s| waiting("timeout", s)).transpose()?;
    let mut connection = Connection::open(&command.common, Some(&command.service)).await?;
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
            Some(bytes) => read_long(command, &mut connection, delivery, bytes).await?,
            None => write(command, delivery, &payload)?,
        };
        let received = json!({
            "source": source, "time_ms": time_ms, "sequence": sequence, "age_ms": age_ms,
            "bytes": bytes, "file": file,
        });
        let at = file.map_or_else(String::new, |file| format!(": {}", file.display()));
        if command.folder.is_some() {
            connection.tell(&received, &format!("{bytes} bytes from {source}{at}"))?;
        } else if connection.tells_json() {
            // Without a file, this line is the only output of the bundle.
            client::print_or_fail(&format!("{received}\n"))?;
        }
        // A bundle is acknowledged only once it is safe.
        connection.acknowledge(delivery).await?;
        left -= 1;
    }
    Ok(())
}

/// Writes a payload to its destination. Returns its file, if it has one.
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
    let written = unfinished(folder, delivery).and_then(|mut part| {
        part.write_all(payload)?;
        named(folder, delivery, part)
    });
    written.map(Some).map_err(|source| BpError::File {
        path: folder.clone(),
        source,
    })
}

/// Reads a long payload part by part and writes it to its destination. Returns its file, if it has
/// one.
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
    let wrong = |source| BpError::File {
        path: folder.clone(),
        source,
    };
    let mut part = unfinished(folder, delivery).map_err(wrong)?;
    upload::receive(connection, delivery, bytes, part.as_file_mut(), folder).await?;
    named(folder, delivery, part).map(Some).map_err(wrong)
}

/// A file for a payload that is not whole yet. It is deleted unless it gets its name.
fn unfinished(folder: &Path, delivery: u64) -> io::Result<NamedTempFile> {
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::Builder::new();
    // The user's umask decides who may read it, as for any file.
    file.permissions(Permissions::from_mode(0o666));
    let prefix = format!("bundle-{delivery}-");
    file.prefix(&prefix).suffix(".part").tempfile_in(folder)
}

/// Gives a complete file its name on disk: the bundle's number at the node or, since a bundle of
/// another node or mailbox may have had that number, the first free name like it.
fn named(folder: &Path, delivery: u64, mut part: NamedTempFile) -> io::Result<PathBuf> {
    part.as_file().sync_all()?;
    let mut path = folder.join(format!("bundle-{delivery}"));
    for again in 2u64.. {
        match part.persist_noclobber(&path) {
            Ok(_) => break,
            Err(taken) if taken.error.kind() == io::ErrorKind::AlreadyExists => part = taken.file,
            Err(other) => return Err(other.error),
        }
        path = folder.join(format!("bundle-{delivery}-{again}"));
    }
    std::fs::File::open(folder)?.sync_all()?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(folder: &Path, payload: &[u8]) -> io::Result<PathBuf> {
        let mut part = unfinished(folder, 7)?;
        part.write_all(payload)?;
        named(folder, 7, part)
    }

    #[test]
    fn no_file_that_is_there_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("new");
        let taken = folder.join("bundle-7-2");
        for (payload, name) in [("first", "bundle-7"), ("second", "bundle-7-3")] {
            let path = receive(&folder, payload.as_bytes()).unwrap();
            assert_eq!(path, folder.join(name));
            // A folder blocks the name just as a file does.
            let _ = std::fs::create_dir(&taken);
        }
        assert_eq!(std::fs::read(folder.join("bundle-7")).unwrap(), b"first");
        assert_eq!(std::fs::read(folder.join("bundle-7-3")).unwrap(), b"second");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 3);
    }

    #[test]
    fn a_payload_that_is_not_whole_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let mut part = unfinished(folder.path(), 7).unwrap();
        part.write_all(b"pay").unwrap();
        drop(part);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
