//! Files of the user that the node runs as, made by root.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;

use nix::unistd::{Gid, Uid, getegid, geteuid, getgroups, setegid, seteuid, setgroups};

/// While it lives, root has only the rights of a file's owner. A folder of the node's user may
/// contain links that a process of this user has made; if root followed them, they could lead into
/// any folder.
#[derive(Debug)]
pub struct ActingAs {
    user: Uid,
    group: Gid,
    groups: Vec<Gid>,
}

impl ActingAs {
    /// Acts as the owner of a file; as itself if this process is not root's, or if the owner is
    /// root.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn owner_of(file: &Metadata) -> io::Result<Option<ActingAs>> {
        let owner = Uid::from_raw(file.uid());
        if !geteuid().is_root() || owner.is_root() {
            return Ok(None);
        }
        let acting = ActingAs {
            user: geteuid(),
            group: getegid(),
            groups: getgroups()?,
        };
        let group = Gid::from_raw(file.gid());
        setgroups(&[group])?;
        setegid(group)?;
        seteuid(owner)?;
        Ok(Some(acting))
    }
}

impl Drop for ActingAs {
    fn drop(&mut self) {
        // If a call fails, the process has fewer rights; the next use that needs them reports an
        // error.
        let _ = seteuid(self.user);
        let _ = setegid(self.group);
        let _ = setgroups(&self.groups);
    }
}
