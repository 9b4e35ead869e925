//! The authority on disk, and its certificates in use.

mod claims;
mod faults;
mod form;
mod handshake;
mod requests;

use std::path::Path;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use underpass_pki::{Authority, Issued};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// An authority that exists only as long as its folder.
fn authority() -> (TempDir, Authority) {
    let dir = TempDir::new().unwrap();
    let authority = Authority::init(
        &dir.path().join("pki"),
        "Test authority",
        Authority::VALIDITY_DAYS,
        SystemTime::now(),
    );
    (dir, authority.unwrap())
}

fn issue(authority: &mut Authority, node: u64) -> Issued {
    authority
        .issue(node, Authority::NODE_VALIDITY_DAYS, SystemTime::now())
        .unwrap()
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().unwrap().permissions().mode() & 0o777
}
