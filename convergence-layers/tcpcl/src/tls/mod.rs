//! Authentication of nodes by TLS 1.3 (RFC 9174, 4.4).
//!
//! Nodes are authenticated by node id, not by host name: the certificate path
//! is checked against private roots here, the node id later, against the
//! SESS_INIT of the peer.

mod config;
mod identity;
mod verifier;

pub use config::{
    ClientTls, NodeCredentials, ServerTls, TlsConfigError, client_config, server_config,
};
pub use identity::{IdentityError, NODE_ID_OID, PeerIdentity, UriNodeIds, peer_identity};
pub use verifier::{BUNDLE_SECURITY_EKU, IsRevoked, PathVerifier, VerifierError};
