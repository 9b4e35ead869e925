//! Files that a node keeps: only its owner may read them, whatever the umask, and they are replaced
//! as a whole.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, umask};
use serde::de::DeserializeOwned;

use crate::config::{Config, Durability};

/// What group and others may do.
const FOREIGN: u32 = 0o077;

/// Replaces a file's content, so that a loss of power leaves either the old content or the new one,
/// complete.
///
/// # Errors
/// When it cannot be written; the old content may still be there.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    // The new name itself is durable only once the folder is.
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// What a file says in JSON; `None` without the file.
///
/// # Errors
/// When it cannot be read, is not such a document, or has more than `most_bytes`.
pub fn read<T: DeserializeOwned>(path: &Path, most_bytes: u64) -> io::Result<Option<T>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Ok(found) if found.len() > most_bytes => {
            return Err(io::Error::other("the file is too large"));
        }
        _ => {}
    }
    Ok(Some(serde_json::from_slice(&fs::read(path)?)?))
}

/// Makes the process create files for its owner only, creates its folders, and removes the rights
/// of group and others on files of former runs. Must be called before the first thread: the umask
/// belongs to the process.
///
/// # Errors
/// When the folder cannot be made.
pub fn protect(config: &Config) -> io::Result<()> {
    umask(Mode::from_bits_truncate(FOREIGN));
    let state_dir = &config.node.state_dir;
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(state_dir)?;
    make_others(config);
    for path in state_paths(config) {
        match tighten(&path) {
            Ok(None) => {}
            Ok(Some(former)) => tracing::warn!(
                path = %path.display(), mode = format!("{former:04o}"),
                "others could use what this node keeps: now its owner alone can"
            ),
            Err(error) => tracing::error!(
                path = %path.display(), %error,
                "others can use what this node keeps, and that cannot be changed"
            ),
        }
    }
    Ok(())
}

/// Creates folders of the node elsewhere. If one cannot be created, its user reports that.
fn make_others(config: &Config) {
    let state_dir = &config.node.state_dir;
    let spool = config.control.as_ref().map(|c| c.spool_file(state_dir));
    let files = [Some(config.deferred.settings(state_dir).path), spool];
    let folders = files.iter().flatten().filter_map(|file| file.parent());
    let is_wanted = config.custody.durability != Some(Durability::Memory);
    let custody = config.custody.dir.as_deref().filter(|_| is_wanted);
    for folder in folders.chain(custody) {
        let _ = fs::create_dir_all(folder);
    }
    let socket = config.api.socket.parent();
    if let Some(folder) = socket.filter(|folder| !folder.exists())
        && fs::create_dir_all(folder).is_ok()
    {
        // Members of the group need access to the socket.
        let _ = fs::set_permissions(folder, Permissions::from_mode(0o750));
    }
}

/// The existing folders and files that hold state. The files in a folder are included, its
/// subfolders are not: the configured folder may be a wrong one, such as `/var/lib`.
fn state_paths(config: &Config) -> Vec<PathBuf> {
    let state_dir = &config.node.state_dir;
    let mut paths = Vec::new();
    let payloads = config.payloads.folder(state_dir);
    for folder in [state_dir.clone(), config.custody.dir(state_dir), payloads] {
        let files = fs::read_dir(&folder).into_iter().flatten().flatten();
        let files = files.map(|entry| entry.path());
        paths.extend(files.filter(|path| is_file(path)));
        paths.push(folder);
    }
    let spool = config.control.as_ref().map(|c| c.spool_file(state_dir));
    let databases = [Some(config.deferred.settings(state_dir).path), spool];
    for database in databases.into_iter().flatten() {
        // SQLite keeps a log and an index beside it.
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let mut path = database.clone().into_os_string();
            path.push(suffix);
            paths.push(path.into());
        }
    }
    paths.sort();
    paths.dedup();
    paths
}

fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

/// Removes the rights of group and others. Returns the former mode if there were any.
fn tighten(path: &Path) -> io::Result<Option<u32>> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found?,
    };
    let mode = found.permissions().mode() & 0o7777;
    if mode & FOREIGN == 0 || !is_owned(&found) {
        return Ok(None);
    }
    fs::set_permissions(path, Permissions::from_mode(mode & !FOREIGN))?;
    Ok(Some(mode))
}

/// A link's own mode means nothing, and a sticky folder is everybody's.
fn is_owned(found: &Metadata) -> bool {
    const STICKY: u32 = 0o1000;
    found.is_file() || (found.is_dir() && found.permissions().mode() & STICKY == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn rights_of_others_are_taken_away_and_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("incarnation");
        fs::write(&file, "1").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o664)).unwrap();
        assert_eq!(tighten(&file).unwrap(), Some(0o664));
        assert_eq!(mode(&file), 0o600);
        assert_eq!(tighten(&file).unwrap(), None);
        assert_eq!(tighten(&folder.path().join("absent")).unwrap(), None);
    }

    #[test]
    fn links_and_folders_of_everybody_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (shared, link) = (folder.path().join("shared"), folder.path().join("link"));
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
        std::os::unix::fs::symlink(&shared, &link).unwrap();
        assert_eq!(tighten(&shared).unwrap(), None);
        assert_eq!(tighten(&link).unwrap(), None);
        assert_eq!(mode(&shared), 0o1777);
    }
}
