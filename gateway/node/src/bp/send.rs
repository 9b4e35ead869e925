//! `underpass bp send`.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, Write};
use std::os::fd::AsFd;
use std::path::Path;

use serde_json::json;

use super::command::SendCommand;
use super::connection::Connection;
use super::error::BpError;
use super::upload;

/// Most bytes of a pipe that are read into memory. A longer payload goes to a temporary file, since
/// the node needs its length before its first byte.
const MOST_IN_MEMORY: u64 = 16 << 20;

/// The payload that is sent, from its first byte on.
type Payload = Box<dyn Read + Send>;

pub async fn execute(command: SendCommand) -> Result<(), BpError> {
    let SendCommand {
        common,
        sending,
        reports,
        destination,
        file,
    } = command;
    // The payload is opened before the node is asked for anything, so that the node does not wait
    // for a pipe's end.
    let path = name_of(file.as_deref());
    let wrong = |source| BpError::File {
        path: path.to_owned(),
        source,
    };
    let (mut payload, mut bytes) = open(file.as_deref()).map_err(wrong)?;
    let mut connection = Connection::open(&common, sending.service.as_ref()).await?;
    let reports: Vec<_> = reports.into_iter().map(Into::into).collect();
    let most = connection.max_payload_bytes;
    let created = if bytes > most {
        let long: (&mut (dyn Read + Send), _, _) = (&mut *payload, path, bytes);
        let upload = upload::send(&mut connection, &destination, &sending, reports, long);
        tokio::select! {
            sent = upload => sent?,
            _ = tokio::signal::ctrl_c() => return Err(match connection.gave_all {
                true => BpError::Unanswered,
                false => BpError::Interrupted,
            }),
        }
    } else {
        // A file may have grown since.
        let mut short = Vec::new();
        let read = payload.take(most + 1).read_to_end(&mut short);
        read.map_err(wrong)?;
        bytes = short.len() as u64;
        let sent = connection.send(&destination, &sending, &reports, &short);
        sent.await?
    };
    let (time_ms, sequence) = created.unzip();
    let source = connection.endpoint.clone();
    let sent = json!({
        "source": source, "destination": destination, "bytes": bytes,
        "time_ms": time_ms, "sequence": sequence,
    });
    let text = format!("{bytes} bytes from {source} to {destination}");
    connection.tell(&sent, &text)
}

/// The file that is named, if it is not standard input.
fn named(file: Option<&Path>) -> Option<&Path> {
    file.filter(|file| *file != Path::new("-"))
}

fn name_of(file: Option<&Path>) -> &Path {
    named(file).unwrap_or(Path::new("standard input"))
}

/// Opens a file, or standard input, and returns its length. A pipe, which has none, is read to its
/// end.
fn open(file: Option<&Path>) -> io::Result<(Payload, u64)> {
    let mut file = match named(file) {
        Some(path) => File::open(path)?,
        None => File::from(io::stdin().as_fd().try_clone_to_owned()?),
    };
    let about = file.metadata()?;
    if about.is_file() {
        let left = about.len().saturating_sub(file.stream_position()?);
        // Files of the kernel, as in /proc, report a length of zero.
        if left > 0 {
            return Ok((Box::new(file), left));
        }
    }
    let mut first = Vec::new();
    let read = (&mut file)
        .take(MOST_IN_MEMORY + 1)
        .read_to_end(&mut first)? as u64;
    if read <= MOST_IN_MEMORY {
        return Ok((Box::new(Cursor::new(first)), read));
    }
    let mut whole = tempfile::tempfile()?;
    whole.write_all(&first)?;
    let rest = io::copy(&mut file, &mut whole)?;
    whole.rewind()?;
    Ok((Box::new(whole), read + rest))
}

/// The first bytes of a file, or of standard input.
pub fn read_some(file: Option<&Path>, most: u64) -> Result<Vec<u8>, BpError> {
    let mut payload = Vec::new();
    let read = match named(file) {
        None => io::stdin().take(most).read_to_end(&mut payload),
        Some(path) => File::open(path).and_then(|file| file.take(most).read_to_end(&mut payload)),
    };
    read.map_err(|source| BpError::File {
        path: name_of(file).to_owned(),
        source,
    })?;
    Ok(payload)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use super::*;

    fn content(length: u64) -> Vec<u8> {
        (0..length).map(|at| (at ^ at >> 8) as u8).collect()
    }

    fn read(path: &Path) -> (Vec<u8>, u64) {
        let (mut payload, bytes) = open(Some(path)).unwrap();
        let mut read = Vec::new();
        payload.read_to_end(&mut read).unwrap();
        (read, bytes)
    }

    #[test]
    fn a_pipe_is_opened_once_and_read_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        for length in [0, 5, MOST_IN_MEMORY, MOST_IN_MEMORY + 5] {
            let path = folder.path().join(format!("pipe-{length}"));
            let made = Command::new("mkfifo").arg(&path).status().unwrap();
            assert!(made.success());
            let written = content(length);
            let writer = {
                let (path, written) = (path.clone(), written.clone());
                thread::spawn(move || std::fs::write(path, written))
            };
            let (read, bytes) = read(&path);
            writer.join().unwrap().expect("the pipe is read");
            assert_eq!(bytes, length);
            assert!(read == written, "{length}");
        }
    }

    #[test]
    fn a_file_tells_its_length_and_one_of_the_kernel_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for length in [0, 1_000] {
            std::fs::write(&path, content(length)).unwrap();
            assert_eq!(read(&path), (content(length), length));
        }
        let (version, bytes) = read(Path::new("/proc/version"));
        assert!(bytes > 0 && version.len() as u64 == bytes);
    }
}
