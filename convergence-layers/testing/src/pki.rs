//! A private CA and node certificates for the tests.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, SanType, SerialNumber,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::time_provider::DefaultTimeProvider;
use underpass_identity::{
    ClientTls, IsRevoked, NodeCredentials, PathVerifier, ServerTls, UriNodeIds, client_config,
    server_config,
};

const BUNDLE_SECURITY: [u64; 9] = [1, 3, 6, 1, 5, 5, 7, 3, 35];

pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    root: CertificateDer<'static>,
}

/// Where a node's certificate names it.
pub enum Naming {
    OtherName,
    Uri,
}

pub struct Node {
    chain: Vec<CertificateDer<'static>>,
    key: Vec<u8>,
}

impl Ca {
    pub fn new() -> Self {
        Self::named("first authority")
    }

    pub fn named(name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).expect("a root").der().clone();
        Self {
            issuer: Issuer::new(params, key),
            root,
        }
    }

    pub fn node(&self, node_id: &str, serial: u8, naming: Naming) -> Node {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.serial_number = Some(SerialNumber::from(vec![serial]));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Other(BUNDLE_SECURITY.to_vec())];
        match naming {
            Naming::OtherName => params.custom_extensions.push(san_other_name(node_id)),
            Naming::Uri => params
                .subject_alt_names
                .push(SanType::URI(node_id.try_into().expect("an ASCII node id"))),
        }
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Node {
            chain: vec![certificate.der().clone()],
            key: key.serialize_der(),
        }
    }

    pub fn client(&self, node: &Node, is_revoked: IsRevoked) -> ClientTls {
        let time = Arc::new(DefaultTimeProvider);
        let config = client_config(self.verifier(&is_revoked), node.credentials(), time);
        let config = config.expect("a usable certificate");
        ClientTls::fixed(config, UriNodeIds::Ignored, is_revoked)
    }

    pub fn server(&self, node: &Node, is_revoked: IsRevoked) -> ServerTls {
        let time = Arc::new(DefaultTimeProvider);
        let config = server_config(self.verifier(&is_revoked), node.credentials(), time);
        let config = config.expect("a usable certificate");
        ServerTls::fixed(config, UriNodeIds::Ignored, is_revoked)
    }

    fn verifier(&self, is_revoked: &IsRevoked) -> Arc<PathVerifier> {
        let roots = std::slice::from_ref(&self.root);
        Arc::new(PathVerifier::new(roots, is_revoked.clone()).expect("a usable root"))
    }
}

impl Node {
    fn credentials(&self) -> NodeCredentials {
        NodeCredentials {
            chain: self.chain.clone(),
            key: PrivateKeyDer::Pkcs8(self.key.clone().into()),
        }
    }
}

pub fn nothing_revoked() -> IsRevoked {
    Arc::new(|_| false)
}

/// A subjectAltName with one otherName, 1.3.6.1.5.5.7.8.11 IA5String.
fn san_other_name(node_id: &str) -> CustomExtension {
    let oid = [0x06, 8, 0x2b, 6, 1, 5, 5, 7, 8, 11];
    let value = der(0xa0, &der(0x16, node_id.as_bytes()));
    let other_name = der(0xa0, &[&oid[..], &value].concat());
    CustomExtension::from_oid_content(&[2, 5, 29, 17], der(0x30, &other_name))
}

fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).expect("short form");
    assert!(length < 128);
    [&[tag, length], content].concat()
}
