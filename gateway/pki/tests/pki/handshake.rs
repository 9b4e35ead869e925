//! TLS 1.3 between two nodes, in memory.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateRevocationListDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::time_provider::DefaultTimeProvider;
use rustls::{
    ClientConfig, ClientConnection, Error, ProtocolVersion, RootCertStore, ServerConfig,
    ServerConnection,
};
use underpass_identity::{
    NodeCredentials, PathVerifier, UriNodeIds, client_config, peer_identity, server_config,
};
use underpass_pki::Credentials;

use crate::{authority, issue};

/// The verifier and the credentials of the node whose folder is `dir`.
fn node(dir: &Path) -> (Arc<PathVerifier>, NodeCredentials) {
    let Credentials {
        chain,
        key,
        roots,
        revoked,
        ..
    } = Credentials::load(dir).unwrap();
    let is_revoked =
        Arc::new(move |serial: &[u8]| revoked.contains(&underpass_pki::Serial::from_bytes(serial)));
    let verifier = PathVerifier::new(&roots, is_revoked).unwrap();
    (Arc::new(verifier), NodeCredentials { chain, key })
}

fn client(dir: &Path) -> ClientConfig {
    let (verifier, credentials) = node(dir);
    client_config(verifier, credentials, Arc::new(DefaultTimeProvider)).unwrap()
}

fn server(dir: &Path) -> ServerConfig {
    let (verifier, credentials) = node(dir);
    server_config(verifier, credentials, Arc::new(DefaultTimeProvider)).unwrap()
}

/// A server that verifies by the rules of the Web, with the signed list.
fn web_server(dir: &Path) -> ServerConfig {
    let Credentials {
        chain, key, roots, ..
    } = Credentials::load(dir).unwrap();
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(roots);
    let list = CertificateRevocationListDer::from_pem_file(dir.join("ca.crl")).unwrap();
    let provider = Arc::new(default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(store.into(), provider.clone())
        .with_crls([list])
        .enforce_revocation_expiration()
        .build()
        .unwrap();
    ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .unwrap()
}

/// Exchanges records until neither side has more to send.
fn shake_hands(
    client: ClientConfig,
    server: ServerConfig,
) -> Result<(ClientConnection, ServerConnection), Error> {
    let name = ServerName::try_from("node").unwrap();
    let mut client = ClientConnection::new(client.into(), name)?;
    let mut server = ServerConnection::new(server.into())?;
    let mut record = Vec::new();
    while client.wants_write() || server.wants_write() {
        client.write_tls(&mut record).unwrap();
        server.read_tls(&mut &record[..]).unwrap();
        server.process_new_packets()?;
        record.clear();
        server.write_tls(&mut record).unwrap();
        client.read_tls(&mut &record[..]).unwrap();
        client.process_new_packets()?;
        record.clear();
    }
    Ok((client, server))
}

#[test]
fn two_issued_nodes_authenticate_each_other_by_tls_1_3() {
    let (_dir, mut authority) = authority();
    let terminal = issue(&mut authority, 7).dir;
    let hub = issue(&mut authority, 8).dir;
    let (client, server) = shake_hands(client(&terminal), server(&hub)).unwrap();
    assert_eq!(client.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    let seen = |certificates: Option<&[_]>| {
        peer_identity(&certificates.unwrap()[0], UriNodeIds::Ignored)
            .unwrap()
            .node_ids
    };
    assert_eq!(seen(server.peer_certificates()), ["ipn:7.0"]);
    assert_eq!(seen(client.peer_certificates()), ["ipn:8.0"]);
}

#[test]
fn verifiers_of_the_web_accept_nodes_until_they_are_revoked() {
    let (_dir, mut authority) = authority();
    let terminal = issue(&mut authority, 7).dir;
    let hub = issue(&mut authority, 8).dir;
    shake_hands(client(&terminal), web_server(&hub)).unwrap();
    authority.revoke(7, SystemTime::now()).unwrap();
    let error = shake_hands(client(&terminal), web_server(&hub)).unwrap_err();
    assert_eq!(
        error,
        Error::InvalidCertificate(rustls::CertificateError::Revoked)
    );
}

#[test]
fn revoked_node_is_refused_once_its_peer_has_loaded_the_list() {
    let (_dir, mut authority) = authority();
    let terminal = issue(&mut authority, 7).dir;
    let hub = issue(&mut authority, 8).dir;
    let before = server(&hub);
    authority.revoke(7, SystemTime::now()).unwrap();
    shake_hands(client(&terminal), before).unwrap();
    let error = shake_hands(client(&terminal), server(&hub)).unwrap_err();
    assert!(matches!(error, Error::InvalidCertificate(_)), "{error}");
}

#[test]
fn node_of_another_authority_is_refused() {
    let (_dir, mut ours) = authority();
    let (_other_dir, mut other) = authority();
    let terminal = issue(&mut other, 7).dir;
    let hub = issue(&mut ours, 8).dir;
    assert!(shake_hands(client(&terminal), server(&hub)).is_err());
}

#[test]
fn certificate_that_has_ended_is_refused() {
    let (_dir, mut authority) = authority();
    let long_ago = SystemTime::now() - 10 * crate::DAY;
    let terminal = authority.issue(7, 5, long_ago).unwrap().dir;
    let hub = issue(&mut authority, 8).dir;
    let error = shake_hands(client(&terminal), server(&hub)).unwrap_err();
    assert!(matches!(error, Error::InvalidCertificate(_)), "{error}");
}
