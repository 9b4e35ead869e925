//! The private certificate authority behind `underpass pki`, and what a node
//! loads from it.
//!
//! Nodes trust nobody by default: a TCPCL session needs a certificate that
//! names the peer's node id (RFC 9174, section 4.4). [`Authority`] keeps a
//! folder that makes them:
//!
//! ```text
//! ca.crt            certificate of the authority (PEM)
//! ca.key            its key, mode 0600; it need not be on any node
//! ca.crl            revoked certificates, signed by the authority (PEM)
//! issued.toml       every certificate issued: node, serial number, end
//! nodes/<n>/        all that node n needs: give it as `pki_dir`, or copy it
//!     node.crt      its certificate
//!     node.key      its key, mode 0600
//!     ca.crt        copy of the above
//!     ca.crl        copy of the above; brought up to date by a revocation
//! servers/<name>/   tls.crt with its chain, tls.key: for HTTPS
//! ```
//!
//! Every file is replaced as a whole (written beside, synced, renamed), so a
//! running node never reads half of one. It watches its folder by
//! [`Fingerprint`] and loads it anew, without a restart; after a revocation
//! `ca.crl` has to reach the folders that were copied to other machines.
//!
//! A node that is enrolled makes its key itself: the authority signs its
//! [`CertificateRequest`], and `nodes/<n>/` has no key then. The node puts what
//! it is given into its own folder by [`install`].
//!
//! Keys are ECDSA P-256. Certificates name the node id `ipn:<n>.0` in a SAN
//! otherName and are restricted to bundle security, and to both sides of TLS
//! for peers that ask for no more than these.

mod authority;
mod certificate;
mod credentials;
mod error;
mod files;
mod fingerprint;
mod installed;
mod issued;
mod request;
mod revocation;
mod serial;
mod server;
mod signing;

pub use authority::{Authority, Issued, RenewKey};
pub use credentials::Credentials;
pub use error::PkiError;
pub use fingerprint::Fingerprint;
pub use installed::{Delivered, continue_with, install, replace_revocation_list, revocation_list};
pub use request::{CertificateRequest, NodeKey};
pub use serial::Serial;
pub use signing::{Signed, renewal_due};
