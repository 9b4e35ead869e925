//! The promises of each command.

use std::fs;
use std::time::{Duration, SystemTime};

use underpass_pki::{Authority, Credentials, PkiError, RenewKey};

use crate::{DAY, authority, issue, mode};

#[test]
fn keys_are_for_their_owner_only() {
    let (dir, mut authority) = authority();
    let node = issue(&mut authority, 7).dir;
    let pki = dir.path().join("pki");
    for key in [pki.join("ca.key"), node.join("node.key")] {
        assert_eq!(mode(&key), 0o600, "{}", key.display());
    }
    for folder in [&pki, &node] {
        assert_eq!(mode(folder), 0o700, "{}", folder.display());
    }
    assert_eq!(mode(&node.join("node.crt")), 0o644);
}

#[test]
fn writing_leaves_no_other_file_behind() {
    let (dir, mut authority) = authority();
    issue(&mut authority, 7);
    authority
        .renew(7, RenewKey::New, 10, SystemTime::now())
        .unwrap();
    authority.revoke(7, SystemTime::now()).unwrap();
    let names = |path| {
        let entries = fs::read_dir(path).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let pki = dir.path().join("pki");
    assert_eq!(
        names(pki.clone()),
        ["ca.crl", "ca.crt", "ca.key", "issued.toml", "nodes"]
    );
    assert_eq!(
        names(pki.join("nodes/7")),
        ["ca.crl", "ca.crt", "node.crt", "node.key"]
    );
}

#[test]
fn node_folder_is_all_that_a_node_needs() {
    let (dir, mut authority) = authority();
    let folder = issue(&mut authority, 7).dir;
    let elsewhere = dir.path().join("elsewhere");
    fs::rename(folder, &elsewhere).unwrap();
    drop(authority);
    fs::remove_dir_all(dir.path().join("pki")).unwrap();
    let credentials = Credentials::load(&elsewhere).unwrap();
    assert_eq!((credentials.chain.len(), credentials.roots.len()), (1, 1));
    assert!(credentials.revoked.is_empty());
}

#[test]
fn certificates_end_when_they_should_and_never_after_their_authority() {
    let (_dir, mut authority) = authority();
    let now = SystemTime::now();
    let short = authority.issue(1, 10, now).unwrap();
    assert_eq!(short.not_after, now + 10 * DAY);
    let loaded = Credentials::load(&short.dir).unwrap().not_after;
    let cut = short.not_after.duration_since(loaded).unwrap();
    assert!(
        cut < Duration::from_secs(1),
        "certificates know whole seconds"
    );
    let long = authority.issue(2, 36_500, now).unwrap();
    let whole = now + Authority::VALIDITY_DAYS as u32 * DAY;
    assert!(long.not_after <= whole && long.not_after > whole - DAY);
    let late = now + 3_651 * DAY;
    assert!(matches!(
        authority.issue(3, 10, late),
        Err(PkiError::AuthorityEnded)
    ));
}

#[test]
fn renewal_keeps_the_key_or_makes_a_new_one() {
    let (_dir, mut authority) = authority();
    let first = issue(&mut authority, 7);
    let key = |dir| Credentials::load(dir).unwrap().key.secret_der().to_vec();
    let before = key(&first.dir);
    let second = authority
        .renew(7, RenewKey::Keep, 10, SystemTime::now())
        .unwrap();
    assert_ne!(second.serial, first.serial);
    assert_eq!(key(&first.dir), before);
    authority
        .renew(7, RenewKey::New, 10, SystemTime::now())
        .unwrap();
    assert_ne!(key(&first.dir), before);
}

#[test]
fn revocation_finds_every_certificate_of_the_node_and_no_other() {
    let (_dir, mut authority) = authority();
    let first = issue(&mut authority, 7);
    let second = authority
        .renew(7, RenewKey::New, 10, SystemTime::now())
        .unwrap();
    let other = issue(&mut authority, 8);
    let mut revoked = authority.revoke(7, SystemTime::now()).unwrap();
    revoked.sort();
    let mut expected = [first.serial, second.serial];
    expected.sort();
    assert_eq!(revoked, expected);
    // The other node's folder has it.
    let credentials = Credentials::load(&other.dir).unwrap();
    assert!(credentials.revoked.iter().eq(expected.iter()));
    assert!(
        expected
            .iter()
            .all(|serial| credentials.is_revoked(serial.as_bytes()))
    );
    let padded = [&[0, 0], expected[0].as_bytes()].concat();
    assert!(credentials.is_revoked(&padded));
    assert!(!credentials.is_revoked(other.serial.as_bytes()));
}

#[test]
fn revocations_add_up_and_survive_reopening() {
    let (dir, mut authority) = authority();
    for node in 1..=3 {
        issue(&mut authority, node);
        authority.revoke(node, SystemTime::now()).unwrap();
        drop(authority);
        authority = Authority::open(&dir.path().join("pki")).unwrap();
    }
    let folder = issue(&mut authority, 4).dir;
    assert_eq!(Credentials::load(&folder).unwrap().revoked.len(), 3);
}

#[test]
fn revocation_that_was_cut_short_is_completed_by_the_next() {
    let (dir, mut authority) = authority();
    let first = issue(&mut authority, 7);
    let folder = issue(&mut authority, 8).dir;
    let before = fs::read(folder.join("ca.crl")).unwrap();
    authority.revoke(7, SystemTime::now()).unwrap();
    fs::write(folder.join("ca.crl"), before).unwrap();
    drop(authority);
    let mut authority = Authority::open(&dir.path().join("pki")).unwrap();
    let again = authority.revoke(7, SystemTime::now());
    assert!(matches!(again, Err(PkiError::AlreadyRevoked { .. })));
    assert!(
        Credentials::load(&folder)
            .unwrap()
            .is_revoked(first.serial.as_bytes())
    );
}

#[test]
fn certificates_that_have_ended_need_no_revocation() {
    let (_dir, mut authority) = authority();
    let now = SystemTime::now();
    authority.issue(7, 1, now).unwrap();
    let lasting = authority.renew(7, RenewKey::Keep, 10, now).unwrap();
    assert_eq!(
        authority.revoke(7, now + 2 * DAY).unwrap(),
        [lasting.serial]
    );
}

#[test]
fn revoked_node_is_issued_anew_with_another_key() {
    let (_dir, mut authority) = authority();
    let folder = issue(&mut authority, 7).dir;
    let key = |dir| Credentials::load(dir).unwrap().key.secret_der().to_vec();
    let before = key(&folder);
    authority.revoke(7, SystemTime::now()).unwrap();
    let renewed = authority.renew(7, RenewKey::New, 10, SystemTime::now());
    assert!(matches!(renewed, Err(PkiError::NodeRevoked(7))));
    let again = issue(&mut authority, 7);
    assert_ne!(key(&folder), before);
    assert!(
        !Credentials::load(&folder)
            .unwrap()
            .is_revoked(again.serial.as_bytes())
    );
}

#[test]
fn fingerprint_is_outdated_by_each_change_and_by_nothing_else() {
    let (_dir, mut authority) = authority();
    let folder = issue(&mut authority, 7).dir;
    issue(&mut authority, 8);
    let load = || Credentials::load(&folder).unwrap().fingerprint;
    let fingerprint = load();
    assert!(!fingerprint.is_outdated());
    authority
        .renew(7, RenewKey::Keep, 10, SystemTime::now())
        .unwrap();
    assert!(fingerprint.is_outdated());
    let fingerprint = load();
    assert!(!fingerprint.is_outdated());
    authority.revoke(8, SystemTime::now()).unwrap();
    assert!(fingerprint.is_outdated());
    let fingerprint = load();
    fs::remove_file(folder.join("ca.crl")).unwrap();
    assert!(fingerprint.is_outdated());
}

#[test]
fn open_authority_keeps_other_processes_out_until_it_is_closed() {
    let (dir, authority) = authority();
    let pki = dir.path().join("pki");
    assert!(matches!(Authority::open(&pki), Err(PkiError::Busy(_))));
    drop(authority);
    Authority::open(&pki).unwrap();
}
