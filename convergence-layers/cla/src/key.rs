//! Keys that both ends of a session share.

use std::fmt;

/// A secret that both ends of a secured session derive from it, and nobody else: under TLS by the
/// exporter of RFC 8446, 7.5. It authenticates messages between the two beside the session. It is
/// not shown in logs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ExportedKey(pub [u8; 32]);

impl fmt::Debug for ExportedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExportedKey(..)")
    }
}
