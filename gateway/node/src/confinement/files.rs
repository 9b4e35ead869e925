//! Files by Landlock: the configuration, certificates and what the system's
//! libraries need to be read; state, sockets and serial lines to be written.
//!
//! A rule applies to the file or folder that existed at the start, not to its name. Files are
//! replaced by renaming others over them, so the rules name their folders; for `resolv.conf` that
//! is `/etc`.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope, path_beneath_rules,
};

use crate::config::{Config, FRAGMENTS, Source};

/// How far the rules hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All of them.
    Full,
    /// Those that this kernel knows.
    Partly,
    /// None: the kernel has no Landlock, or it is switched off.
    None,
}

/// What the system's libraries read: names by NSS, certificates, the kernel's
/// figures, the bounds of a container.
const SYSTEM: [&str; 6] = ["/etc", "/usr", "/lib", "/lib64", "/proc", "/sys/fs/cgroup"];

/// Where `/etc/resolv.conf` may lead to.
const RESOLVERS: [&str; 4] = [
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/run/connman",
];

/// What any process may write to.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"];

/// Restricts this thread, and those that it starts, to the files of the node.
///
/// # Errors
/// When the kernel refuses a rule.
pub fn restrict(config: &Config, file: &Path) -> Result<Reach, RulesetError> {
    restrict_to(&readable(config, file), &writable(config), &devices(config))
}

fn restrict_to(
    readable: &[PathBuf],
    writable: &[PathBuf],
    devices: &[PathBuf],
) -> Result<Reach, RulesetError> {
    let known = ABI::V6;
    let read: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let never = AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock;
    let write = AccessFs::from_all(known) & !never & !AccessFs::IoctlDev;
    let device = read | AccessFs::WriteFile | AccessFs::IoctlDev;
    let restricted = Ruleset::default()
        .handle_access(AccessFs::from_all(known))?
        .scope(Scope::from_all(known))?
        .create()?
        .add_rules(path_beneath_rules(readable, read))?
        .add_rules(path_beneath_rules(writable, write))?
        .add_rules(path_beneath_rules(devices, device))?
        .restrict_self()?;
    Ok(match restricted.ruleset {
        RulesetStatus::FullyEnforced => Reach::Full,
        RulesetStatus::PartiallyEnforced => Reach::Partly,
        RulesetStatus::NotEnforced => Reach::None,
    })
}

fn readable(config: &Config, file: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = SYSTEM.iter().chain(&RESOLVERS).map(PathBuf::from).collect();
    let resolver = std::fs::canonicalize("/etc/resolv.conf").ok();
    let environment = ["SSL_CERT_FILE", "SSL_CERT_DIR"];
    let named = environment.iter().filter_map(std::env::var_os);
    let api = &config.api;
    let users = config.edge.listener.iter().flat_map(|l| &l.users);
    let control = config.control.as_ref();
    let reports = config.reports.as_ref();
    let cdni = config.cdni.as_ref();
    let enrolment = config.enrolment.as_ref();
    let traces = config.traces.as_ref();
    let files = [file.to_owned(), file.with_file_name(FRAGMENTS)]
        .into_iter()
        .chain(resolver)
        .chain(named.map(PathBuf::from))
        .chain(config.tls.pki_dir.clone())
        .chain(enrolment.and_then(|enrolment| enrolment.ca_file.clone()))
        .chain(config.beacons.key_file.clone())
        .chain(config.routing.contact_plan.clone())
        .chain(config.bpsec.keys_dir.clone())
        .chain(api.certificate_file.clone())
        .chain(api.key_file.clone())
        .chain(api.tokens.iter().filter_map(|token| token.file.clone()))
        .chain(users.filter_map(|user| user.password_file.clone()))
        .chain(control.map(|control| control.token_file.clone()))
        .chain(control.and_then(|control| control.ca_file.clone()))
        .chain(reports.and_then(|reports| reports.token_file.clone()))
        .chain(cdni.and_then(|cdni| cdni.ca_file.clone()))
        .chain(traces.and_then(|traces| traces.ca_file.clone()));
    for file in files {
        paths.push(folder_of(&file));
        paths.push(file);
    }
    paths
}

fn writable(config: &Config) -> Vec<PathBuf> {
    let state_dir = &config.node.state_dir;
    let spool = config.control.as_ref().map(|c| c.spool_file(state_dir));
    let files = [
        Some(config.api.socket.clone()),
        Some(config.deferred.settings(state_dir).path),
        spool,
        config.applications.as_ref().map(|a| a.socket.clone()),
        config.log.access.as_ref().map(|log| log.file(state_dir)),
    ];
    let folders = files.into_iter().flatten().map(|file| folder_of(&file));
    // Renewed certificates are written there.
    let certificates = config.tls.pki_dir.clone();
    let certificates = certificates.filter(|_| config.enrolment.is_some());
    folders
        .chain([state_dir.clone(), config.custody.dir(state_dir)])
        .chain(certificates)
        .collect()
}

fn devices(config: &Config) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = DEVICES.iter().map(PathBuf::from).collect();
    // A receiver may be plugged in later, and its name is usually a link.
    let positions = config.positions.as_ref();
    if positions.is_some_and(|p| matches!(p.source, Source::Serial { .. })) {
        paths.push("/dev".into());
    }
    paths
}

/// The folder that holds `file`; the file itself if it has none.
fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if folder == Path::new("") => ".".into(),
        Some(folder) if folder.parent().is_some() => folder.to_owned(),
        _ => file.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;

    use super::*;

    fn denied<T>(result: std::io::Result<T>) -> bool {
        result.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    }

    #[test]
    fn what_is_not_named_can_neither_be_read_nor_written() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["config", "state", "other"] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("file"), "x").unwrap();
        }
        let (config, state, other) = (vec![at("config")], vec![at("state")], at("other"));
        // The restriction ends with the thread.
        let claims = std::thread::spawn(move || {
            if restrict_to(&config, &state, &[]).unwrap() == Reach::None {
                skipped::because("this kernel has no Landlock");
                return;
            }
            let (config, state) = (&config[0], &state[0]);
            assert_eq!(fs::read_to_string(config.join("file")).unwrap(), "x");
            assert!(denied(fs::write(config.join("file"), "y")));
            assert!(denied(fs::write(config.join("new"), "y")));
            assert!(denied(fs::read(other.join("file"))));
            assert!(denied(fs::read_dir(&other)));
            assert!(denied(fs::read("/proc/self/status")));
            // A store does this, and so does replacing a file.
            fs::write(state.join("fresh"), "y").unwrap();
            fs::rename(state.join("fresh"), state.join("file")).unwrap();
            crate::state_files::replace(&state.join("file"), b"y").unwrap();
            assert_eq!(fs::read_to_string(state.join("file")).unwrap(), "y");
            fs::create_dir(state.join("custody")).unwrap();
            fs::remove_dir(state.join("custody")).unwrap();
            let socket = state.join("api.sock");
            std::os::unix::net::UnixListener::bind(&socket).unwrap();
            fs::remove_file(&socket).unwrap();
            let inherited = std::thread::spawn(move || denied(fs::read(other.join("file"))));
            assert!(inherited.join().unwrap());
        });
        claims.join().unwrap();
    }

    #[test]
    fn a_file_is_reached_by_its_folder_unless_that_is_the_root() {
        for (file, folder) in [
            ("/etc/underpass/node.toml", "/etc/underpass"),
            ("node.toml", "."),
            ("/node.toml", "/node.toml"),
            ("/", "/"),
        ] {
            assert_eq!(folder_of(Path::new(file)), Path::new(folder), "{file}");
        }
    }
}
