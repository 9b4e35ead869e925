//! The contents of the certificates, read by other libraries.

use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use underpass_pki::{Authority, Credentials};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::{authority, issue};

#[test]
fn node_id_is_an_other_name_of_ia5_string() {
    let (_dir, mut authority) = authority();
    let folder = issue(&mut authority, 977_000).dir;
    let credentials = Credentials::load(&folder).unwrap();
    let (_, certificate) = X509Certificate::from_der(&credentials.chain[0]).unwrap();
    let san = certificate.subject_alternative_name().unwrap().unwrap();
    let [GeneralName::OtherName(oid, value)] = &san.value.general_names[..] else {
        panic!("{:?}", san.value);
    };
    assert_eq!(oid.to_id_string(), "1.3.6.1.5.5.7.8.11");
    // [0] EXPLICIT { IA5String (tag 22) }
    let node_id = b"ipn:977000.0";
    let length = node_id.len() as u8;
    let expected = [&[0xa0, length + 2, 22, length], &node_id[..]].concat();
    assert_eq!(*value, expected);
}

#[test]
fn use_is_bundle_security_and_both_sides_of_tls() {
    let (_dir, mut authority) = authority();
    let folder = issue(&mut authority, 7).dir;
    let credentials = Credentials::load(&folder).unwrap();
    let (_, certificate) = X509Certificate::from_der(&credentials.chain[0]).unwrap();
    let usage = certificate.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.client_auth && usage.server_auth && !usage.any);
    let others: Vec<_> = usage.other.iter().map(|oid| oid.to_id_string()).collect();
    assert_eq!(others, ["1.3.6.1.5.5.7.3.35"]);
    assert!(
        certificate
            .key_usage()
            .unwrap()
            .unwrap()
            .value
            .digital_signature()
    );
    assert!(!certificate.is_ca());
    let (_, root) = X509Certificate::from_der(&credentials.roots[0]).unwrap();
    assert_eq!(
        root.basic_constraints()
            .unwrap()
            .unwrap()
            .value
            .path_len_constraint,
        Some(0)
    );
    certificate
        .verify_signature(Some(root.public_key()))
        .unwrap();
}

#[test]
fn serial_numbers_are_random_and_of_127_bits() {
    let (_dir, mut authority) = authority();
    let serials: std::collections::BTreeSet<_> = (1..20)
        .map(|node| issue(&mut authority, node).serial)
        .collect();
    assert_eq!(serials.len(), 19);
    assert!(serials.iter().all(|serial| serial.as_bytes().len() == 16));
}

#[track_caller]
fn openssl(dir: &Path, arguments: &[&str]) -> Option<(bool, String)> {
    let output = Command::new("openssl")
        .current_dir(dir)
        .args(arguments)
        .output();
    let Ok(output) = output else {
        skipped::because("there is no openssl to read the files with");
        return None;
    };
    let text = [output.stdout, output.stderr].concat();
    Some((
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    ))
}

#[test]
fn openssl_reads_verifies_and_sees_revocation() {
    let (_dir, mut authority) = authority();
    let folder = issue(&mut authority, 7).dir;
    let text = [
        "x509",
        "-in",
        "node.crt",
        "-noout",
        "-text",
        "-ext",
        "subjectAltName",
    ];
    let Some((_, text)) = openssl(&folder, &text) else {
        return;
    };
    assert!(text.contains("othername"), "{text}");
    let verify = [
        "verify",
        "-CAfile",
        "ca.crt",
        "-CRLfile",
        "ca.crl",
        "-crl_check",
        "node.crt",
    ];
    let (verified, text) = openssl(&folder, &verify).unwrap();
    assert!(verified, "{text}");
    authority.revoke(7, SystemTime::now()).unwrap();
    let (verified, text) = openssl(&folder, &verify).unwrap();
    assert!(!verified && text.contains("revoked"), "{text}");
    let (_, text) = openssl(&folder, &["crl", "-in", "ca.crl", "-noout", "-crlnumber"]).unwrap();
    assert!(text.contains("02"), "{text}");
}

#[test]
fn authority_made_by_openssl_can_be_trusted() {
    let dir = tempfile::TempDir::new().unwrap();
    let pki = dir.path().join("pki");
    drop(Authority::init(&pki, "x", 10, SystemTime::now()).unwrap());
    let request = [
        "req",
        "-x509",
        "-newkey",
        "ed25519",
        "-nodes",
        "-subj",
        "/CN=other",
    ];
    let files = ["-keyout", "other.key", "-out", "other.crt"];
    if openssl(dir.path(), &[&request[..], &files[..]].concat()).is_none() {
        return;
    }
    let mut authority = Authority::open(&pki).unwrap();
    let folder = issue(&mut authority, 7).dir;
    let both = ["pki/ca.crt", "other.crt"]
        .map(|name| std::fs::read_to_string(dir.path().join(name)).unwrap());
    std::fs::write(folder.join("ca.crt"), both.concat()).unwrap();
    assert_eq!(Credentials::load(&folder).unwrap().roots.len(), 2);
}
