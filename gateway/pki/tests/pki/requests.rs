//! Nodes that generate their own keys.

use std::fs;
use std::time::SystemTime;

use tempfile::TempDir;
use underpass_pki::{
    Authority, CertificateRequest, Credentials, Delivered, NodeKey, PkiError, Signed,
    continue_with, install, renewal_due, replace_revocation_list, revocation_list,
};

use crate::{DAY, authority, mode};

fn key(dir: &TempDir, name: &str) -> NodeKey {
    NodeKey::load_or_make(dir.path(), name).unwrap()
}

fn request(key: &NodeKey, node: u64) -> CertificateRequest {
    CertificateRequest::parse(&key.request(node).unwrap()).unwrap()
}

fn delivered(signed: &Signed) -> Delivered {
    Delivered {
        certificate: signed.certificate.clone(),
        authority: signed.authority.clone(),
        revocations: signed.revocations.clone(),
    }
}

#[test]
fn a_node_is_certified_and_its_key_is_with_itself_alone() {
    let (dir, mut authority) = authority();
    let key = key(&dir, "key");
    let signed = authority.sign(7, &request(&key, 7), 10, SystemTime::now());
    let signed = signed.unwrap();
    assert!(!signed.issued.dir.join("node.key").exists());
    let own = dir.path().join("own");
    let credentials = install(&own, 7, &key, &delivered(&signed), false).unwrap();
    assert_eq!(credentials.roots.len(), 1);
    assert_eq!(mode(&own.join("node.key")), 0o600);
    assert_eq!(mode(&own), 0o700);
}

#[test]
fn the_same_key_gets_the_same_certificate_until_half_of_it_is_over() {
    let (dir, mut authority) = authority();
    let key = key(&dir, "key");
    let now = SystemTime::now();
    let first = authority.sign(7, &request(&key, 7), 100, now).unwrap();
    assert!(first.is_new);
    // Signed again, the request is a different text.
    let again = authority.sign(7, &request(&key, 7), 100, now + DAY);
    let again = again.unwrap();
    assert_eq!(
        (again.is_new, &again.issued.serial),
        (false, &first.issued.serial)
    );
    let early = authority.renew_by_request(&request(&key, 7), 100, now + 40 * DAY);
    assert!(!early.unwrap().is_new);
    let credentials = install(&dir.path().join("own"), 7, &key, &delivered(&first), false);
    let credentials = credentials.unwrap();
    let due = renewal_due(credentials.not_before, credentials.not_after);
    assert!(due > now + 60 * DAY && due < now + 70 * DAY);
    let renewed = authority.renew_by_request(&request(&key, 7), 100, due);
    let renewed = renewed.unwrap();
    assert!(renewed.is_new);
    assert_ne!(renewed.issued.serial, first.issued.serial);
    install(
        &dir.path().join("own"),
        7,
        &key,
        &delivered(&renewed),
        false,
    )
    .unwrap();
}

#[test]
fn another_key_number_or_signature_gets_nothing() {
    let (dir, mut authority) = authority();
    let (own, other) = (key(&dir, "own-key"), key(&dir, "other-key"));
    let now = SystemTime::now();
    let refused = authority.sign(8, &request(&own, 7), 10, now).unwrap_err();
    assert!(matches!(refused, PkiError::OtherNode { named: 7, node: 8 }));
    authority.sign(7, &request(&own, 7), 10, now).unwrap();
    for (request, at) in [
        // Without a certificate for the number there is nothing to renew.
        (request(&other, 7), now),
        (request(&own, 8), now),
        (request(&own, 7), now + 11 * DAY),
    ] {
        let refused = authority.renew_by_request(&request, 10, at).unwrap_err();
        assert!(matches!(refused, PkiError::KeyUnknown(_)), "{refused}");
        assert!(refused.is_refusal());
    }
    // The last byte belongs to the signature.
    let text = own.request(7).unwrap();
    let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
    let place = lines.len() - 2;
    let changed = if lines[place].starts_with('A') {
        "B"
    } else {
        "A"
    };
    lines[place].replace_range(..1, changed);
    let refused = CertificateRequest::parse(&lines.join("\n")).unwrap_err();
    assert!(matches!(refused, PkiError::Request(_)), "{refused}");
    for wrong in [
        "",
        "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
    ] {
        assert!(CertificateRequest::parse(wrong).is_err());
    }
    let huge = "A".repeat(1 << 20);
    let told = CertificateRequest::parse(&huge).unwrap_err().to_string();
    assert!(told.contains("larger than"), "{told}");
}

#[test]
fn a_folder_with_a_key_of_its_own_is_left_as_it_is() {
    let (dir, mut authority) = authority();
    let key = key(&dir, "key");
    let now = SystemTime::now();
    let by_hand = authority.issue(7, 10, now).unwrap();
    let refused = authority.sign(7, &request(&key, 7), 10, now).unwrap_err();
    assert!(matches!(refused, PkiError::KeyHere(_)) && refused.is_refusal());
    assert!(Credentials::load(&by_hand.dir).is_ok());
}

#[test]
fn names_that_are_no_node_id_are_refused() {
    let named = |name: &str| {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        let key = rcgen::KeyPair::generate().unwrap();
        params.serialize_request(&key).unwrap().pem().unwrap()
    };
    assert_eq!(
        CertificateRequest::parse(&named("ipn:7.0")).unwrap().node,
        7
    );
    for wrong in [
        "", "7", "ipn:7.1", "ipn:07.0", "ipn:+7.0", "ipn:.0", "ipn:7.0 ",
    ] {
        assert!(CertificateRequest::parse(&named(wrong)).is_err(), "{wrong}");
    }
}

#[test]
fn a_revoked_key_is_neither_enrolled_again_nor_renewed() {
    let (dir, mut authority) = authority();
    let (own, next) = (key(&dir, "own-key"), key(&dir, "next-key"));
    let now = SystemTime::now();
    authority.sign(7, &request(&own, 7), 10, now).unwrap();
    authority.revoke(7, now).unwrap();
    for refused in [
        authority.sign(7, &request(&own, 7), 10, now),
        authority.renew_by_request(&request(&own, 7), 10, now),
    ] {
        assert!(matches!(refused, Err(PkiError::NodeRevoked(7))));
    }
    let signed = authority.sign(7, &request(&next, 7), 10, now).unwrap();
    assert!(signed.is_new);
}

#[test]
fn what_does_not_fit_together_is_not_written() {
    let (dir, mut authority) = authority();
    let (own, other) = (key(&dir, "own-key"), key(&dir, "other-key"));
    let now = SystemTime::now();
    let signed = authority.sign(7, &request(&own, 7), 10, now).unwrap();
    let (_elsewhere, foreign) = crate::authority();
    let foreign_files =
        |name: &str| fs::read_to_string(_elsewhere.path().join("pki").join(name)).unwrap();
    drop(foreign);
    let right = delivered(&signed);
    let at = dir.path().join("node");
    for (node, key, delivered) in [
        (8, &own, right.clone()),
        (7, &other, right.clone()),
        (
            7,
            &own,
            Delivered {
                authority: foreign_files("ca.crt"),
                ..right.clone()
            },
        ),
        (
            7,
            &own,
            Delivered {
                revocations: foreign_files("ca.crl"),
                ..right.clone()
            },
        ),
        (
            7,
            &own,
            Delivered {
                certificate: String::new(),
                ..right.clone()
            },
        ),
        (
            7,
            &own,
            Delivered {
                authority: right.authority.clone() + &foreign_files("ca.crt"),
                ..right.clone()
            },
        ),
    ] {
        let refused = install(&at, node, key, &delivered, true).unwrap_err();
        assert!(matches!(refused, PkiError::Delivered { .. }), "{refused}");
        assert!(!at.exists());
    }
    install(&at, 7, &own, &right, false).unwrap();
    // Like a run that was interrupted.
    install(&at, 7, &own, &right, false).unwrap();
    let successor = authority.sign(7, &request(&other, 7), 10, now).unwrap();
    let refused = install(&at, 7, &other, &delivered(&successor), false);
    assert!(matches!(refused, Err(PkiError::InTheWay(_))));
    assert!(Credentials::load(&at).is_ok());
    install(&at, 7, &other, &delivered(&successor), true).unwrap();
}

#[test]
fn a_revocation_list_is_replaced_by_a_newer_one_of_the_same_authority_only() {
    let (dir, mut authority) = authority();
    let key = key(&dir, "key");
    let now = SystemTime::now();
    let signed = authority.sign(7, &request(&key, 7), 10, now).unwrap();
    let own = dir.path().join("own");
    install(&own, 7, &key, &delivered(&signed), false).unwrap();
    let list = |of: &TempDir| fs::read_to_string(of.path().join("pki/ca.crl")).unwrap();
    let before = list(&dir);
    authority.issue(9, 10, now).unwrap();
    authority.revoke(9, now).unwrap();
    assert!(replace_revocation_list(&own, &list(&dir)).unwrap());
    assert_eq!(Credentials::load(&own).unwrap().revoked.len(), 1);
    // An old list does not undo a revocation.
    assert!(!replace_revocation_list(&own, &before).unwrap());
    let (elsewhere, _foreign) = crate::authority();
    assert!(replace_revocation_list(&own, &list(&elsewhere)).is_err());
    assert!(replace_revocation_list(&own, "").is_err());
    assert_eq!(Credentials::load(&own).unwrap().revoked.len(), 1);
}

#[test]
fn whoever_answers_a_renewal_neither_chooses_whom_the_node_trusts_nor_undoes_a_revocation() {
    let (dir, mut authority) = authority();
    let key = key(&dir, "key");
    let now = SystemTime::now();
    let first = authority.sign(7, &request(&key, 7), 10, now).unwrap();
    let own = dir.path().join("own");
    install(&own, 7, &key, &delivered(&first), false).unwrap();
    // Another authority has signed everything.
    let (_elsewhere, mut foreign) = crate::authority();
    let theirs = foreign.sign(7, &request(&key, 7), 10, now).unwrap();
    let refused = install(&own, 7, &key, &delivered(&theirs), false).unwrap_err();
    assert!(refused.to_string().contains("another one"), "{refused}");
    assert_eq!(
        fs::read_to_string(own.join("ca.crt")).unwrap(),
        first.authority
    );
    // A list that has arrived since the answer was made stays.
    authority.issue(9, 10, now).unwrap();
    authority.revoke(9, now).unwrap();
    let list = fs::read_to_string(dir.path().join("pki/ca.crl")).unwrap();
    assert!(replace_revocation_list(&own, &list).unwrap());
    let again = install(&own, 7, &key, &delivered(&first), false).unwrap();
    assert_eq!(again.revoked.len(), 1);
    // An operator who enrols the node again confirms it.
    let replaced = install(&own, 7, &key, &delivered(&theirs), true).unwrap();
    assert!(replaced.revoked.is_empty());
}

/// Certificate and key of an intermediate authority, followed by its root's certificate.
fn intermediate(dir: &TempDir, usages: Vec<rcgen::KeyUsagePurpose>) -> [std::path::PathBuf; 2] {
    let params = |usages: Vec<rcgen::KeyUsagePurpose>, name: &str| {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.key_usages = usages;
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        params
    };
    let root_key = rcgen::KeyPair::generate().unwrap();
    let root = params(vec![rcgen::KeyUsagePurpose::KeyCertSign], "The operator's");
    let root_pem = root.self_signed(&root_key).unwrap().pem();
    let key = rcgen::KeyPair::generate().unwrap();
    let issuer = rcgen::Issuer::new(root, root_key);
    let own = params(usages, "Of the fleet").signed_by(&key, &issuer);
    let paths = ["own.crt", "own.key"].map(|name| dir.path().join(name));
    fs::write(&paths[0], own.unwrap().pem() + &root_pem).unwrap();
    fs::write(&paths[1], key.serialize_pem()).unwrap();
    paths
}

#[test]
fn an_authority_below_another_one_signs_and_nodes_trust_it_alone() {
    use rcgen::KeyUsagePurpose::{CrlSign, DigitalSignature, KeyCertSign};
    let dir = TempDir::new().unwrap();
    let at = dir.path().join("pki");
    let now = SystemTime::now();
    let [certificate, key_file] = intermediate(&dir, vec![DigitalSignature, KeyCertSign]);
    private(&key_file);
    let refused = Authority::adopt(&at, &certificate, &key_file, now).unwrap_err();
    assert!(refused.to_string().contains("no authority"), "{refused}");
    let [certificate, key_file] = intermediate(&dir, vec![KeyCertSign, CrlSign]);
    private(&key_file);
    let other = dir.path().join("other.key");
    fs::write(&other, rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
    private(&other);
    let refused = Authority::adopt(&at, &certificate, &other, now).unwrap_err();
    assert!(refused.to_string().contains("another key"), "{refused}");
    assert!(!at.exists());
    let mut authority = Authority::adopt(&at, &certificate, &key_file, now).unwrap();
    let key = key(&dir, "key");
    let signed = authority.sign(7, &request(&key, 7), 10, now).unwrap();
    let own = dir.path().join("node");
    let credentials = install(&own, 7, &key, &delivered(&signed), false).unwrap();
    assert_eq!(credentials.roots.len(), 1);
    let again = Authority::adopt(&at, &certificate, &key_file, now);
    assert!(again.is_err());
}

fn private(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn a_server_certificate_names_its_server_and_ends_before_the_authority() {
    let (_dir, mut authority) = authority();
    let names = ["control.example".to_owned(), "192.0.2.1".to_owned()];
    let dir = authority.issue_server(&names, 36_500, SystemTime::now());
    let dir = dir.unwrap();
    assert_eq!(mode(&dir.join("tls.key")), 0o600);
    let chain = fs::read_to_string(dir.join("tls.crt")).unwrap();
    assert_eq!(chain.matches("BEGIN CERTIFICATE").count(), 2);
    for wrong in ["", "two words", "../x", "a..b", "a/b", ".."] {
        let refused = authority.issue_server(&[wrong.to_owned()], 10, SystemTime::now());
        assert!(matches!(refused, Err(PkiError::ServerName(_))), "{wrong}");
    }
    let late = SystemTime::now() + (Authority::VALIDITY_DAYS as u32 + 1) * DAY;
    let refused = authority.issue_server(&names, 10, late);
    assert!(matches!(refused, Err(PkiError::AuthorityEnded)));
}

#[test]
fn what_comes_late_or_again_gives_up_neither_certificate_nor_list() {
    let (dir, mut authority) = authority();
    let key = key(&dir, "key");
    let now = SystemTime::now();
    let own = dir.path().join("own");
    let first = authority.sign(7, &request(&key, 7), 10, now).unwrap();
    install(&own, 7, &key, &delivered(&first), false).unwrap();
    let later = now + 7 * DAY;
    let renewed = authority.renew_by_request(&request(&key, 7), 10, later);
    let renewed = delivered(&renewed.unwrap());
    authority.issue(8, 10, now).unwrap();
    authority.revoke(8, now).unwrap();
    let (newer, _) = revocation_list(&dir.path().join("pki")).unwrap().unwrap();
    assert!(replace_revocation_list(&own, &newer).unwrap());
    assert!(continue_with(&own, 7, &renewed).unwrap());
    assert_eq!(revocation_list(&own).unwrap().unwrap().0, newer);
    let taken = fs::read_to_string(own.join("node.crt")).unwrap();
    assert_eq!(taken, renewed.certificate);
    for again in [&renewed, &delivered(&first)] {
        assert!(!continue_with(&own, 7, again).unwrap());
        let left = fs::read_to_string(own.join("node.crt")).unwrap();
        assert_eq!(left, taken);
    }
    let other = Delivered {
        certificate: first.certificate.replace('M', "N"),
        ..renewed
    };
    assert!(continue_with(&own, 7, &other).is_err());
    assert!(continue_with(&own, 8, &delivered(&first)).is_err());
}
