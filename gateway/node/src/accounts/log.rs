//! The access log's file, and the thread that writes it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use time::OffsetDateTime;
use underpass_edge::Ended;

use super::line;
use crate::config::{AccessFormat, AccessLogConfig};

/// Most lines that wait to be written: a stalled disk must neither hold up connections nor fill the
/// memory.
const WAITING: usize = 4_096;

/// Takes lines and never waits.
pub struct AccessLog {
    format: AccessFormat,
    lines: SyncSender<String>,
    lost: Arc<AtomicU64>,
}

impl AccessLog {
    /// Opens the file and starts its thread. The thread ends when this is dropped.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(config: &AccessLogConfig, state_dir: &Path) -> io::Result<AccessLog> {
        let file = Rotated::open(config.file(state_dir), config.max_bytes)?;
        let (lines, waiting) = sync_channel(WAITING);
        let lost = Arc::<AtomicU64>::default();
        let counted = lost.clone();
        thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || write_all(&waiting, file, &counted))?;
        Ok(AccessLog {
            format: config.format,
            lines,
            lost,
        })
    }

    pub fn note(&self, ended: &Ended<'_>) {
        let line = line::of(self.format, ended, OffsetDateTime::now_utc());
        if self.lines.try_send(line).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lines that could not be written.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Writes lines as they come, those that wait together in one piece.
fn write_all(lines: &Receiver<String>, mut file: Rotated, lost: &AtomicU64) {
    while let Ok(first) = lines.recv() {
        let mut piece = first;
        let mut count = 1;
        for line in lines.try_iter().take(WAITING) {
            piece.push_str(&line);
            count += 1;
        }
        if let Err(error) = file.write(piece.as_bytes()) {
            lost.fetch_add(count, Ordering::Relaxed);
            tracing::warn!(file = %file.path.display(), %error, "access log not written");
        }
    }
}

/// A file that is begun again at a size limit; one file with the previous content is kept beside
/// it.
struct Rotated {
    path: PathBuf,
    file: File,
    bytes: u64,
    most_bytes: u64,
}

impl Rotated {
    fn open(path: PathBuf, most_bytes: u64) -> io::Result<Rotated> {
        let mut options = OpenOptions::new();
        // Only the node's user may read which client reached what.
        let file = options.append(true).create(true).mode(0o600).open(&path);
        let file = file.map_err(|error| {
            let text = format!("log.access: cannot open {}: {error}", path.display());
            io::Error::new(error.kind(), text)
        })?;
        Ok(Rotated {
            bytes: file.metadata()?.len(),
            path,
            file,
            most_bytes,
        })
    }

    fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        let bytes = piece.len() as u64;
        if self.bytes > 0 && self.bytes + bytes > self.most_bytes {
            let mut former = self.path.clone().into_os_string();
            former.push(".1");
            match fs::rename(&self.path, former) {
                // Somebody has removed it, or the new file could not be opened the last time.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                renamed => renamed?,
            }
            *self = Rotated::open(self.path.clone(), self.most_bytes)?;
        }
        self.file.write_all(piece)?;
        self.bytes += bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_begins_anew_at_its_size_and_keeps_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        fs::write(&path, "old\n").unwrap();
        let mut file = Rotated::open(path.clone(), 10).unwrap();
        for line in ["first\n", "second\n", "third\n"] {
            file.write(line.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "third\n");
        let former = folder.path().join("access.log.1");
        assert_eq!(fs::read_to_string(former).unwrap(), "second\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_that_was_removed_begins_anew_at_its_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let mut file = Rotated::open(path.clone(), 10).unwrap();
        file.write(b"first\n").unwrap();
        fs::remove_file(&path).unwrap();
        file.write(b"second\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second\n");
    }

    #[test]
    fn nobody_else_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        Rotated::open(path.clone(), 10).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_folder_that_is_not_there_is_told() {
        let error = Rotated::open("/nowhere/access.log".into(), 10).err();
        let text = error.unwrap().to_string();
        assert!(
            text.contains("log.access: cannot open /nowhere/access.log"),
            "{text}"
        );
    }

    #[test]
    fn what_finds_no_room_is_counted_and_nobody_waits() {
        let (lines, waiting) = sync_channel(1);
        let log = AccessLog {
            format: AccessFormat::Common,
            lines,
            lost: Arc::default(),
        };
        let ended = Ended {
            listener: "proxy",
            client: ([127, 0, 0, 1], 1).into(),
            method: "CONNECT",
            target: "example.org:443",
            protocol: "SOCKS/5",
            status: 200,
            to_peer_bytes: 0,
            from_peer_bytes: 0,
            took: std::time::Duration::ZERO,
            answered: None,
            failure: None,
            cut: false,
        };
        for _ in 0..3 {
            log.note(&ended);
        }
        assert_eq!(log.lost(), 2);
        drop(waiting);
        log.note(&ended);
        assert_eq!(log.lost(), 3);
    }
}
