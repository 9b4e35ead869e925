//! Segments as files of a directory.

use std::collections::HashMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, posix_fallocate};
use nix::sys::uio::pwritev;
use thiserror::Error;

use crate::disk::Disk;

/// The kernel takes no more pieces in one call (`IOV_MAX`).
const MOST_PIECES: usize = 1024;
const SUFFIX: &str = "custody";

/// Why a directory cannot be used.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum DirectoryError {
    #[error("{0} is in use by another process")]
    InUse(PathBuf),
    #[error("cannot use {path}: {source}")]
    Io {
        /// The directory, or the file in it.
        path: PathBuf,
        source: io::Error,
    },
}

/// A directory that this process alone uses.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    folder: File,
    files: HashMap<u64, File>,
    _lock: Flock<File>,
}

impl Directory {
    /// Opens a directory; creates it, for its owner alone, if it is not there.
    ///
    /// # Errors
    /// When another process has it, or it cannot be used.
    pub fn open(path: &Path) -> Result<Directory, DirectoryError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| DirectoryError::Io { path, source }
        };
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(path).map_err(failed(path))?;
        let lock_path = path.join("lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&lock_path)
            .map_err(failed(&lock_path))?;
        let lock =
            Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(
                |(_, error)| match error {
                    Errno::EWOULDBLOCK => DirectoryError::InUse(path.to_owned()),
                    other => failed(&lock_path)(other.into()),
                },
            )?;
        Ok(Directory {
            folder: File::open(path).map_err(failed(path))?,
            path: path.to_owned(),
            files: HashMap::new(),
            _lock: lock,
        })
    }

    fn path_of(&self, segment: u64) -> PathBuf {
        self.path.join(format!("{segment:016x}.{SUFFIX}"))
    }

    fn file(&self, segment: u64) -> io::Result<&File> {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        self.files.get(&segment).ok_or_else(missing)
    }
}

/// Whether an error is due to this process, so that the file may be whole. If the file were taken
/// for lost, its bundles' ids would be given to others.
fn is_of_process(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    errno.is_some_and(|errno| {
        matches!(
            errno,
            Errno::EACCES | Errno::EPERM | Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM
        )
    })
}

impl Disk for Directory {
    fn segments(&mut self) -> io::Result<Vec<(u64, u64)>> {
        let mut segments = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let path = entry?.path();
            let name = path.file_stem().and_then(|stem| stem.to_str());
            let number = name.and_then(|name| u64::from_str_radix(name, 16).ok());
            // A file that spells the number differently is none of ours: if it were read in place
            // of the segment with that number, the segment would be deleted.
            if let Some(number) = number.filter(|number| path == self.path_of(*number)) {
                let opened = OpenOptions::new().read(true).write(true).open(&path);
                let file = match opened {
                    Ok(file) => file,
                    Err(error) if is_of_process(&error) => {
                        let told = format!("{}: {error}", path.display());
                        return Err(io::Error::new(error.kind(), told));
                    }
                    // If the disk cannot find a file, its contents are lost.
                    Err(_) => {
                        segments.push((number, 0));
                        continue;
                    }
                };
                segments.push((number, file.metadata().map_or(0, |found| found.len())));
                self.files.insert(number, file);
            }
        }
        Ok(segments)
    }

    fn create(&mut self, segment: u64) -> io::Result<()> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(self.path_of(segment))?;
        self.files.insert(segment, file);
        Ok(())
    }

    fn reserve(&mut self, segment: u64, bytes: u64) -> io::Result<()> {
        let bytes = i64::try_from(bytes).map_err(io::Error::other)?;
        match posix_fallocate(self.file(segment)?, 0, bytes) {
            // Not every file system can, and not every libc does it instead.
            Err(Errno::EOPNOTSUPP | Errno::EINVAL) => {
                let zeros = Bytes::from(vec![0; usize::try_from(bytes).unwrap_or(0)]);
                self.write(segment, 0, &[zeros])
            }
            other => Ok(other?),
        }
    }

    fn write(&mut self, segment: u64, at: u64, pieces: &[Bytes]) -> io::Result<()> {
        let file = self.file(segment)?;
        let mut at = at;
        for pieces in pieces.chunks(MOST_PIECES) {
            let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|p| IoSlice::new(p)).collect();
            let mut left = &mut slices[..];
            IoSlice::advance_slices(&mut left, 0);
            while !left.is_empty() {
                let offset = i64::try_from(at).map_err(io::Error::other)?;
                let written = match pwritev(file, left, offset) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(written) => written,
                    Err(Errno::EINTR) => continue,
                    Err(error) => return Err(error.into()),
                };
                at += written as u64;
                IoSlice::advance_slices(&mut left, written);
            }
        }
        Ok(())
    }

    fn sync(&mut self, segment: u64) -> io::Result<()> {
        self.file(segment)?.sync_data()
    }

    fn sync_names(&mut self) -> io::Result<()> {
        self.folder.sync_all()
    }

    fn truncate(&mut self, segment: u64, length: u64) -> io::Result<()> {
        self.file(segment)?.set_len(length)
    }

    fn read(&mut self, segment: u64, at: u64, length: usize) -> io::Result<Bytes> {
        let file = self.file(segment)?;
        // A damaged length must not take memory.
        let there = file.metadata()?.len().saturating_sub(at);
        let length = length.min(usize::try_from(there).unwrap_or(usize::MAX));
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, at)?;
        Ok(bytes.into())
    }

    fn delete(&mut self, segment: u64) -> io::Result<()> {
        self.files.remove(&segment);
        match std::fs::remove_file(self.path_of(segment)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn one_process_has_a_directory_and_nobody_else_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("custody");
        let mut first = Directory::open(&path).unwrap();
        assert!(matches!(
            Directory::open(&path),
            Err(DirectoryError::InUse(_))
        ));
        first.create(1).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&first.path_of(1)), 0o600);
        drop(first);
        Directory::open(&path).unwrap();
    }

    #[test]
    fn a_file_with_another_name_for_the_number_of_a_segment_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let mut directory = Directory::open(folder.path()).unwrap();
        directory.create(10).unwrap();
        directory.write(10, 0, &["a segment".into()]).unwrap();
        for name in ["a", "+a", "A", "000000000000000A", "0000000000000000a"] {
            let path = folder.path().join(name).with_extension(SUFFIX);
            std::fs::write(path, b"").unwrap();
        }
        drop(directory);
        let mut next = Directory::open(folder.path()).unwrap();
        assert_eq!(next.segments().unwrap(), [(10, 9)]);
        assert_eq!(next.read(10, 0, 100).unwrap(), "a segment");
    }

    #[test]
    fn what_a_process_lacks_is_told_apart_from_what_a_disk_has_lost() {
        let of_process = |errno: Errno| is_of_process(&io::Error::from_raw_os_error(errno as i32));
        let lacked = [Errno::EACCES, Errno::EPERM, Errno::EMFILE, Errno::ENFILE];
        assert!(lacked.into_iter().all(of_process));
        let lost = [Errno::EIO, Errno::ENOENT];
        assert!(!lost.into_iter().any(of_process));
    }

    #[test]
    fn a_segment_that_the_process_may_not_open_is_not_taken_for_lost() {
        let folder = tempfile::tempdir().unwrap();
        let mut directory = Directory::open(folder.path()).unwrap();
        directory.create(7).unwrap();
        let path = directory.path_of(7);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o0)).unwrap();
        if File::open(&path).is_ok() {
            // The superuser may open all files.
            return;
        }
        let refused = directory.segments().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(refused.to_string().contains("0000000000000007.custody"));
    }

    #[test]
    fn what_is_written_is_read_and_ends_where_the_file_ends() {
        let folder = tempfile::tempdir().unwrap();
        let mut directory = Directory::open(folder.path()).unwrap();
        directory.create(7).unwrap();
        let pieces: Vec<_> = (0..3000u32)
            .map(|n| Bytes::from(vec![n as u8; (n % 7) as usize]))
            .collect();
        directory.write(7, 5, &pieces).unwrap();
        directory.sync(7).unwrap();
        let whole = pieces.concat();
        assert_eq!(directory.segments().unwrap(), [(7, 5 + whole.len() as u64)]);
        assert_eq!(directory.read(7, 5, usize::MAX).unwrap(), whole);
        assert!(directory.read(7, 1 << 30, 10).unwrap().is_empty());
        directory.delete(7).unwrap();
        assert_eq!(directory.segments().unwrap(), []);
    }
}
