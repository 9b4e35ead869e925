//! Whether a node's folder has changed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::files::{CA_CERTIFICATE, NODE_CERTIFICATE, NODE_KEY, REVOCATION_LIST};

/// Device, inode, size and time of the last change (ns) of a file.
type Mark = (u64, u64, u64, i64, i64);

/// What can be seen of a node's folder without reading its files: cheap enough
/// to be taken every few seconds. A replaced file has a new inode, so that
/// clocks with coarse steps hide nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    dir: PathBuf,
    marks: [Option<Mark>; 4],
}

impl Fingerprint {
    /// The state of the node's folder `dir` at present.
    pub fn of(dir: &Path) -> Self {
        let mark = |name| {
            let metadata = fs::metadata(dir.join(name)).ok()?;
            let (seconds, nanos) = (metadata.ctime(), metadata.ctime_nsec());
            Some((
                metadata.dev(),
                metadata.ino(),
                metadata.size(),
                seconds,
                nanos,
            ))
        };
        let names = [NODE_CERTIFICATE, NODE_KEY, CA_CERTIFICATE, REVOCATION_LIST];
        Fingerprint {
            dir: dir.to_owned(),
            marks: names.map(mark),
        }
    }

    /// Whether the folder has changed since.
    pub fn is_outdated(&self) -> bool {
        *self != Fingerprint::of(&self.dir)
    }
}
