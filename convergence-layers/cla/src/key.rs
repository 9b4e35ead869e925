//! Keys that both ends of a session share.

use std::fmt;

use ring::hmac;

/// A session's name is the HMAC of this, shortened.
const NAME_LABEL: &[u8] = b"underpass session name";

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

impl ExportedKey {
    /// The name by which both ends know the session, and which shows nothing of the key: the first
    /// 8 bytes of HMAC-SHA-256 (RFC 2104) under the key.
    pub fn session_name(&self) -> [u8; 8] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let mut name = [0; 8];
        name.copy_from_slice(&hmac::sign(&key, NAME_LABEL).as_ref()[..8]);
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_have_names_of_their_own() {
        let name = |byte: u8| ExportedKey([byte; 32]).session_name();
        assert_eq!(name(1), name(1));
        assert_ne!(name(1), name(2));
        assert_ne!(name(1), [1; 8]);
    }
}
