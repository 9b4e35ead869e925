//! The identity of a session's peer, for the convergence layers that use TLS 1.3.
//!
//! Nodes are authenticated by node id, not by host name (RFC 9174, 4.4): the certificate path is
//! checked against private roots in the handshake, the node id later, against the one that the peer
//! announces. A session lives no longer than its certificate ([`Registry`]). Until a peer has
//! proved its identity, limits per address bound what it may use ([`Sources`]).

mod certificate;
mod config;
mod registry;
mod sources;
mod verifier;
mod withdrawals;

pub use certificate::{IdentityError, NODE_ID_OID, PeerIdentity, UriNodeIds, peer_identity};
pub use config::{
    ClientTls, NodeCredentials, ServerTls, Tls, TlsConfigError, client_config, server_config,
};
pub use registry::{Certificate, End, Ending, Registry};
pub use sources::{SourcePlace, Sources};
pub use verifier::{BUNDLE_SECURITY_EKU, IsRevoked, PathVerifier, VerifierError};
pub use withdrawals::Withdrawals;

/// Label of the key that each session exports; RFC 5705, 4, leaves names with this beginning to
/// private use.
pub const EXPORTER_LABEL: &[u8] = b"EXPERIMENTAL underpass beacon";
