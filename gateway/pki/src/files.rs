//! Files that exist as a whole or not at all.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::error::PkiError;

pub(crate) const CA_CERTIFICATE: &str = "ca.crt";
pub(crate) const CA_KEY: &str = "ca.key";
pub(crate) const REVOCATION_LIST: &str = "ca.crl";
pub(crate) const NODE_CERTIFICATE: &str = "node.crt";
pub(crate) const NODE_KEY: &str = "node.key";

/// Certificates and lists are some kilobytes; a list with 10,000 entries has half a megabyte. A
/// larger file is a mistake, and is not read into memory.
const LARGEST_BYTES: u64 = 16 << 20;

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readers {
    Owner,
    Everybody,
}

fn failed<'a>(action: &'static str, path: &'a Path) -> impl Fn(io::Error) -> PkiError + 'a {
    move |source| PkiError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}

/// Makes a folder that only its owner may enter, if it is not there.
pub(crate) fn make_dir(path: &Path) -> Result<(), PkiError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(failed("make", path))
}

/// Replaces `dir/name`, on the disk when this returns.
pub(crate) fn write(dir: &Path, name: &str, text: &str, readers: Readers) -> Result<(), PkiError> {
    let path = dir.join(name);
    let failed = failed("write", &path);
    // Such a file has mode 0600 from the start.
    let mut file = tempfile::Builder::new()
        .prefix(".new-")
        .tempfile_in(dir)
        .map_err(&failed)?;
    file.write_all(text.as_bytes()).map_err(&failed)?;
    if readers == Readers::Everybody {
        file.as_file()
            .set_permissions(Permissions::from_mode(0o644))
            .map_err(&failed)?;
    }
    file.as_file().sync_all().map_err(&failed)?;
    file.persist(&path).map_err(|error| failed(error.error))?;
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(&failed)
}

/// Reads a text; `None` if there is no such file.
pub(crate) fn read(path: &Path) -> Result<Option<String>, PkiError> {
    let failed = failed("read", path);
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(&failed)?,
    };
    let mut text = String::new();
    file.take(LARGEST_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(&failed)?;
    if text.len() as u64 > LARGEST_BYTES {
        return Err(PkiError::Malformed {
            path: path.to_owned(),
            reason: format!("it is larger than {LARGEST_BYTES} bytes"),
        });
    }
    Ok(Some(text))
}

/// Refuses a private key that everybody can read.
pub(crate) fn require_private(path: &Path) -> Result<(), PkiError> {
    let metadata = fs::metadata(path).map_err(failed("read", path))?;
    if metadata.mode() & 0o007 != 0 {
        Err(PkiError::Exposed(path.to_owned()))
    } else {
        Ok(())
    }
}

/// Names of the folders in `dir`, none if it is not there.
pub(crate) fn folders(dir: &Path) -> Result<Vec<std::path::PathBuf>, PkiError> {
    let failed = failed("read", dir);
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(&failed)?,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let paths: Vec<_> = paths.collect::<Result<_, _>>().map_err(&failed)?;
    Ok(paths.into_iter().filter(|path| path.is_dir()).collect())
}

/// Keeps other processes from working on `path` until it is dropped.
pub(crate) fn lock(path: &Path) -> Result<Flock<File>, PkiError> {
    let file = File::open(path).map_err(failed("open", path))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        Errno::EWOULDBLOCK => PkiError::Busy(path.to_owned()),
        other => failed("lock", path)(other.into()),
    })
}
