//! Invalid requests and damaged folders: each is refused with advice.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::SystemTime;

use underpass_pki::{Authority, Credentials, PkiError, RenewKey};

use crate::{authority, issue};

#[test]
fn second_authority_in_a_folder_is_refused_and_harms_nothing() {
    let (dir, authority) = authority();
    drop(authority);
    let pki = dir.path().join("pki");
    let before = fs::read(pki.join("ca.key")).unwrap();
    let again = Authority::init(&pki, "another", 10, SystemTime::now());
    assert!(matches!(again, Err(PkiError::AuthorityExists(_))));
    assert_eq!(fs::read(pki.join("ca.key")).unwrap(), before);
}

#[test]
fn verbs_out_of_order_are_refused() {
    let (dir, mut authority) = authority();
    let now = SystemTime::now();
    assert!(matches!(
        Authority::open(dir.path()),
        Err(PkiError::NoAuthority(_))
    ));
    assert!(matches!(
        authority.renew(7, RenewKey::Keep, 1, now),
        Err(PkiError::NotIssued(7))
    ));
    assert!(matches!(
        authority.revoke(7, now),
        Err(PkiError::NotIssued(7))
    ));
    issue(&mut authority, 7);
    assert!(matches!(
        authority.issue(7, 1, now),
        Err(PkiError::AlreadyIssued(7))
    ));
    authority.revoke(7, now).unwrap();
    assert!(matches!(
        authority.revoke(7, now),
        Err(PkiError::AlreadyRevoked { node: 7, .. })
    ));
}

#[test]
fn impossible_numbers_are_refused() {
    let (_dir, mut authority) = authority();
    let now = SystemTime::now();
    for number in [0, u64::from(u32::MAX)] {
        assert!(matches!(
            authority.issue(number, 1, now),
            Err(PkiError::NodeNumber(_))
        ));
    }
    for days in [0, 36_501, u64::MAX] {
        assert!(matches!(
            authority.issue(1, days, now),
            Err(PkiError::Validity(_))
        ));
    }
}

#[test]
fn key_that_everybody_can_read_is_refused() {
    let (_dir, mut authority) = authority();
    let folder = issue(&mut authority, 7).dir;
    let key = folder.join("node.key");
    fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    let error = Credentials::load(&folder).unwrap_err();
    assert!(matches!(error, PkiError::Exposed(_)));
    assert!(
        error
            .to_string()
            .contains(&format!("chmod 600 {}", key.display()))
    );
    // A group may read it: container secrets are like that.
    fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
    Credentials::load(&folder).unwrap();
}

#[test]
fn missing_and_damaged_files_are_named() {
    let (_dir, mut authority) = authority();
    let folder = issue(&mut authority, 7).dir;
    for name in ["node.crt", "node.key", "ca.crt", "ca.crl"] {
        let path = folder.join(name);
        let good = fs::read(&path).unwrap();
        let names_it = |error: PkiError| assert!(error.to_string().contains(name), "{error}");
        fs::remove_file(&path).unwrap();
        let error = Credentials::load(&folder).unwrap_err();
        assert!(matches!(error, PkiError::Missing(_)), "{error}");
        names_it(error);
        let damaged: [&[u8]; 4] = [b"", b"\xff\xfe", &good[..good.len() / 2], &[b'A'; 17 << 20]];
        for content in damaged {
            write_private(&path, content);
            names_it(Credentials::load(&folder).unwrap_err());
        }
        write_private(&path, &good);
    }
    Credentials::load(&folder).unwrap();
}

#[test]
fn key_of_another_node_is_noticed() {
    let (_dir, mut authority) = authority();
    let seven = issue(&mut authority, 7).dir;
    let eight = issue(&mut authority, 8).dir;
    fs::copy(eight.join("node.key"), seven.join("node.key")).unwrap();
    assert!(matches!(
        Credentials::load(&seven),
        Err(PkiError::Mismatch(_))
    ));
}

#[test]
fn revocation_list_of_another_authority_is_refused() {
    let (_dir, mut ours) = authority();
    let (_other_dir, mut other) = authority();
    let folder = issue(&mut ours, 7).dir;
    let foreign = issue(&mut other, 7).dir;
    fs::copy(foreign.join("ca.crl"), folder.join("ca.crl")).unwrap();
    let error = Credentials::load(&folder).unwrap_err();
    assert!(
        matches!(error, PkiError::RevocationListSignature(_)),
        "{error}"
    );
}

#[test]
fn damaged_record_stops_the_authority_from_forgetting_certificates() {
    let (dir, mut authority) = authority();
    issue(&mut authority, 7);
    fs::write(dir.path().join("pki/issued.toml"), "certificate = 3").unwrap();
    let now = SystemTime::now();
    assert!(matches!(
        authority.issue(8, 1, now),
        Err(PkiError::Malformed { .. })
    ));
    assert!(matches!(
        authority.revoke(7, now),
        Err(PkiError::Malformed { .. })
    ));
}

fn write_private(path: &Path, content: &[u8]) {
    fs::write(path, content).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}
