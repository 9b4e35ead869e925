//! The files of a node that is enrolled: all of them, or none.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};
use underpass_pki::{Delivered, NodeKey, PkiError, install};

use super::error::EnrolError;
use super::owner::ActingAs;
use crate::config::{Config, Document};
use crate::hexadecimal::hexadecimal;

/// A token has a hundred bytes.
const MOST_TOKEN_BYTES: u64 = 1024;

/// Where a node is set up.
pub struct Place {
    config: PathBuf,
    /// The key of an enrolment that is not complete, by its token.
    pending: PathBuf,
    force: bool,
}

impl Place {
    /// For a configuration's file and a token.
    pub fn new(config: &Path, token: &str, force: bool) -> Place {
        let hash = digest(&SHA256, token.as_bytes());
        let hash = hexadecimal(&hash.as_ref()[..8]);
        Place {
            config: config.to_owned(),
            pending: config.with_file_name(format!(".enrolment-{hash}.key")),
            force,
        }
    }

    /// Refuses to replace files of another set-up.
    pub fn check_free(&self) -> Result<(), EnrolError> {
        if self.config.exists() && !self.force && !self.pending.exists() {
            return Err(EnrolError::InTheWay(self.config.clone()));
        }
        Ok(())
    }

    /// The key of this enrolment, made at its first try.
    pub fn key(&self) -> Result<NodeKey, EnrolError> {
        let folder = folder_of(&self.pending);
        DirBuilder::new()
            .recursive(true)
            .mode(0o750)
            .create(folder)
            .map_err(failed("make", folder))?;
        let name = self.pending.file_name().unwrap_or_default();
        Ok(NodeKey::load_or_make(folder, &name.to_string_lossy())?)
    }

    /// Deletes the key of an enrolment that can never succeed.
    pub fn forget_key(&self) {
        let _ = fs::remove_file(&self.pending);
    }

    /// Writes certificates, key and configuration, after checking all of them.
    pub fn fill(
        &self,
        node: u64,
        key: &NodeKey,
        delivered: &Delivered,
        configuration: &str,
    ) -> Result<(), EnrolError> {
        let config = self.examine(node, configuration)?;
        let state_dir = &config.node.state_dir;
        let unusable = |text: String| EnrolError::Configuration(text);
        let pki_dir = config.tls.pki_dir.as_ref().ok_or_else(|| {
            unusable("tls.pki_dir is not set; it belongs into the enrolment's configuration".into())
        })?;
        if !pki_dir.starts_with(state_dir) || pki_dir == state_dir || has_parents(pki_dir) {
            return Err(unusable(format!(
                "tls.pki_dir = {pki_dir:?} must be a folder in node.state_dir ({}), where the node can renew its certificate",
                state_dir.display()
            )));
        }
        let written = fs::read_to_string(&self.config).ok();
        if !self.force && written.is_some_and(|written| written != configuration) {
            return Err(EnrolError::InTheWay(self.config.clone()));
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(state_dir)
            .map_err(failed("make", state_dir))?;
        // The node runs as the user that owns its state.
        let owner = fs::metadata(state_dir).map_err(failed("read", state_dir))?;
        let acting =
            ActingAs::owner_of(&owner).map_err(failed("act as the owner of", state_dir))?;
        match install(pki_dir, node, key, delivered, self.force) {
            Err(PkiError::InTheWay(path)) => return Err(EnrolError::InTheWay(path)),
            installed => installed?,
        };
        drop(acting);
        // The configuration is written last: the node can start once it exists.
        self.write_configuration(configuration, owner.gid())?;
        fs::remove_file(&self.pending).map_err(failed("remove", &self.pending))
    }

    /// The delivered configuration, with the fragments that are beside it.
    fn examine(&self, node: u64, text: &str) -> Result<Config, EnrolError> {
        let unusable = |text: String| EnrolError::Configuration(text);
        let document = Document::beside(&self.config, text.to_owned())
            .map_err(|error| unusable(error.to_string()))?;
        let (config, problems) =
            Config::examine(&document).map_err(|error| unusable(error.to_string()))?;
        if !problems.is_empty() {
            return Err(unusable(problems.join("; ")));
        }
        if config.node.number != node {
            let number = config.node.number;
            return Err(unusable(format!("it is for node {number}, not {node}")));
        }
        Ok(config)
    }

    fn write_configuration(&self, text: &str, group: u32) -> Result<(), EnrolError> {
        let failed = failed("write", &self.config);
        let folder = folder_of(&self.config);
        let name = self.config.file_name().unwrap_or_default();
        let beside = folder.join(format!(".new-{}", name.to_string_lossy()));
        // Left over by a run that was killed.
        let _ = fs::remove_file(&beside);
        let mut file = File::create_new(&beside).map_err(&failed)?;
        let private = fs::Permissions::from_mode(0o640);
        file.set_permissions(private).map_err(&failed)?;
        file.write_all(text.as_bytes()).map_err(&failed)?;
        let uid = file.metadata().map_err(&failed)?.uid();
        own(&beside, uid, group)?;
        file.sync_all().map_err(&failed)?;
        fs::rename(&beside, &self.config).map_err(&failed)?;
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(&failed)
    }
}

/// Reads a token's file; "-" is standard input.
pub fn read_token(path: &Path) -> Result<String, EnrolError> {
    let mut text = String::new();
    let read = match path == Path::new("-") {
        true => io::stdin().take(MOST_TOKEN_BYTES).read_to_string(&mut text),
        false => {
            File::open(path).and_then(|file| file.take(MOST_TOKEN_BYTES).read_to_string(&mut text))
        }
    };
    read.map_err(failed("read", path))?;
    Ok(text)
}

/// Gives a file to somebody, as only root can.
fn own(path: &Path, uid: u32, gid: u32) -> Result<(), EnrolError> {
    let failed = failed("change the owner of", path);
    let present = fs::metadata(path).map_err(&failed)?;
    if (present.uid(), present.gid()) == (uid, gid) {
        return Ok(());
    }
    chown(path, Some(uid), Some(gid)).map_err(&failed)
}

fn has_parents(path: &Path) -> bool {
    path.components()
        .any(|part| part == std::path::Component::ParentDir)
}

fn folder_of(file: &Path) -> &Path {
    let folder = file.parent();
    folder
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

fn failed<'a>(action: &'static str, path: &'a Path) -> impl Fn(io::Error) -> EnrolError + 'a {
    move |source| EnrolError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::SystemTime;

    use underpass_pki::{Authority, CertificateRequest};

    use super::*;

    /// Set in the process that is to change its user.
    const FILLS: &str = "UNDERPASS_TEST_ENROLMENT_FILLS";
    /// The user that the node runs as.
    const NOBODY: u32 = 65_534;

    fn delivered(dir: &Path, key: &NodeKey) -> Delivered {
        let now = SystemTime::now();
        let mut authority = Authority::init(&dir.join("authority"), "Test", 10, now).unwrap();
        let request = CertificateRequest::parse(&key.request(7).unwrap()).unwrap();
        let signed = authority.sign(7, &request, 5, now).unwrap();
        Delivered {
            certificate: signed.certificate,
            authority: signed.authority,
            revocations: signed.revocations,
        }
    }

    fn fill_by_root() {
        let dir = tempfile::tempdir().unwrap();
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(dir.path(), open).unwrap();
        let state = dir.path().join("state");
        fs::create_dir(&state).unwrap();
        chown(&state, Some(NOBODY), Some(NOBODY)).unwrap();
        let state_text = state.display();
        let text = format!(
            "[node]\nnumber = 7\nrole = \"terminal\"\nstate_dir = \"{state_text}\"\n\
             [tls]\npki_dir = \"{state_text}/pki\"\n\
             [[path]]\nname = \"sat\"\nneighbour = 1\nremote = \"192.0.2.1:4556\"\n"
        );
        let place = Place::new(&dir.path().join("node.toml"), "token", false);
        let key = place.key().unwrap();
        let delivered = delivered(dir.path(), &key);
        // The node's user has put a link there that leads to where only root may write.
        let private = dir.path().join("private");
        DirBuilder::new().mode(0o700).create(&private).unwrap();
        std::os::unix::fs::symlink(&private, state.join("pki")).unwrap();
        let refused = place.fill(7, &key, &delivered, &text).unwrap_err();
        assert!(matches!(refused, EnrolError::Pki(_)), "{refused}");
        assert_eq!(fs::read_dir(&private).unwrap().count(), 0);
        assert_eq!(fs::metadata(&private).unwrap().uid(), 0);
        fs::remove_file(state.join("pki")).unwrap();
        // Root has its own rights again, which writing the configuration needs.
        place.fill(7, &key, &delivered, &text).unwrap();
        for name in ["ca.crt", "ca.crl", "node.key", "node.crt"] {
            let file = fs::metadata(state.join("pki").join(name)).unwrap();
            assert_eq!((file.uid(), file.gid()), (NOBODY, NOBODY), "{name}");
        }
        let config = fs::metadata(dir.path().join("node.toml")).unwrap();
        assert_eq!((config.uid(), config.mode() & 0o777), (0, 0o640));
    }

    #[test]
    fn links_of_the_nodes_user_lead_root_nowhere() {
        if std::env::var_os(FILLS).is_some() {
            return fill_by_root();
        }
        if !nix::unistd::geteuid().is_root() {
            return skipped::because("only root has others' files to make".to_owned());
        }
        // Rights belong to the whole process.
        let name = "enrolment::files::tests::links_of_the_nodes_user_lead_root_nowhere";
        let run = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(FILLS, "1")
            .status();
        assert!(run.unwrap().success());
    }
}
