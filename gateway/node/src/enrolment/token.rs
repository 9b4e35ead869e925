//! The token of an enrolment: `upe_` and, in base64url (RFC 4648, section 5)
//! without padding, the version 1 (1 byte), the node's number (4 bytes), the
//! SHA-256 of a certificate that the service shows (32 bytes), and 32 random
//! bytes.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

const PREFIX: &str = "upe_";
const VERSION: u8 = 1;
const FINGERPRINT_AT: usize = 5;
const RANDOM_AT: usize = FINGERPRINT_AT + 32;
const BYTES: usize = RANDOM_AT + 32;
/// Longer texts are not even decoded.
const LONGEST: usize = 128;

#[derive(Clone, PartialEq, Eq)]
pub struct EnrolmentToken {
    /// The token itself: a secret.
    pub text: String,
    pub node: u64,
    /// SHA-256 of the service's certificate, or of an authority's in its chain.
    pub fingerprint: [u8; 32],
}

impl EnrolmentToken {
    /// Reads a token; none if it is not one.
    pub fn parse(text: &str) -> Option<EnrolmentToken> {
        let text = text.trim();
        let encoded = text
            .strip_prefix(PREFIX)
            .filter(|_| text.len() <= LONGEST)?;
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(encoded).ok()?;
        if bytes.len() != BYTES || bytes[0] != VERSION {
            return None;
        }
        let number = bytes[1..FINGERPRINT_AT].try_into().ok()?;
        Some(EnrolmentToken {
            text: text.to_owned(),
            node: u64::from(u32::from_be_bytes(number)),
            fingerprint: bytes[FINGERPRINT_AT..RANDOM_AT].try_into().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by the control service, which has the same text in its tests.
    const TOKEN: &str = "upe_AQAAAAoAAQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyAhIiMkJSYnKCkqKywtLi8wMTIzNDU2Nzg5Ojs8PT4_";

    #[test]
    fn token_of_the_service_has_number_and_fingerprint() {
        let token = EnrolmentToken::parse(&format!(" {TOKEN}\n")).unwrap();
        assert_eq!(token.node, 10);
        assert_eq!(token.fingerprint.to_vec(), (0..32).collect::<Vec<u8>>());
        assert_eq!(token.text, TOKEN);
    }

    #[test]
    fn what_is_cut_longer_or_of_another_version_is_no_token() {
        for wrong in [
            String::new(),
            TOKEN[..TOKEN.len() - 1].to_owned(),
            format!("{TOKEN}AAAA"),
            TOKEN.replace("upe_AQ", "upe_Ag"),
            TOKEN.replace("upe_", "upc_"),
            format!("upe_{}", "A".repeat(10_000)),
        ] {
            assert!(EnrolmentToken::parse(&wrong).is_none(), "{wrong:.100}");
        }
    }
}
