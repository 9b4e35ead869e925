//! Passwords as hashes: argon2id (RFC 9106) in PHC strings.

use std::ops::RangeInclusive;

use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2, Params};
use ring::rand::{SecureRandom, SystemRandom};
use thiserror::Error;

/// SOCKS5 gives the length of user names and passwords one octet (RFC 1929
/// § 2).
pub const CREDENTIAL_BYTES: RangeInclusive<usize> = 1..=255;

/// What a single check may cost: memory in KiB, passes, lanes. Every wrong
/// password costs as much.
const MOST: (u32, u32, u32) = (256 << 10, 32, 16);

/// Why a text is no password hash that can be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum HashError {
    /// It is none, or none of argon2id.
    #[error("must be a hash of argon2id as `underpass hash-password` gives it ($argon2id$v=19$…)")]
    Form,
    /// A check would take too much.
    #[error("must take at most 256 MiB (m), 32 passes (t) and 16 lanes (p)")]
    Cost,
    /// The system gives no random numbers.
    #[error("the system gives no random numbers for the salt")]
    Randomness,
}

/// Hashes `password` with a salt of its own. It takes some 20 MiB and some
/// hundredths of a second.
///
/// # Errors
/// When the system gives no random numbers.
pub fn hash(password: &[u8]) -> Result<String, HashError> {
    let mut salt = [0; 16];
    let filled = SystemRandom::new().fill(&mut salt);
    filled.map_err(|_| HashError::Randomness)?;
    let salt = SaltString::encode_b64(&salt).map_err(|_| HashError::Randomness)?;
    let hash = Argon2::default().hash_password(password, &salt);
    Ok(hash.map_err(|_| HashError::Form)?.to_string())
}

/// Whether `text` is a hash that can be used.
///
/// # Errors
/// When it is none of argon2id with salt and result, or costs too much.
pub fn check(text: &str) -> Result<(), HashError> {
    let hash = PasswordHash::new(text).map_err(|_| HashError::Form)?;
    let is_whole = hash.salt.is_some() && hash.hash.is_some();
    if hash.algorithm != Algorithm::Argon2id.ident() || !is_whole {
        return Err(HashError::Form);
    }
    let params = Params::try_from(&hash).map_err(|_| HashError::Form)?;
    let (memory, passes, lanes) = MOST;
    if params.m_cost() > memory || params.t_cost() > passes || params.p_cost() > lanes {
        return Err(HashError::Cost);
    }
    Ok(())
}

/// Whether `password` is the one of the hash `text`. It takes what the hash
/// says it takes, and blocks the thread.
pub(crate) fn verify(text: &str, password: &[u8]) -> bool {
    PasswordHash::new(text)
        .is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_admits_its_password_alone_and_has_a_salt_of_its_own() {
        let (one, other) = (hash(b"secret").unwrap(), hash(b"secret").unwrap());
        assert_ne!(one, other);
        check(&one).unwrap();
        assert!(verify(&one, b"secret"));
        for wrong in [&b"Secret"[..], b"secret ", b""] {
            assert!(!verify(&one, wrong));
        }
    }

    #[test]
    fn what_the_reference_implementation_makes_is_understood() {
        // argon2(1): echo -n password | argon2 somesalt -id -t 2 -m 16 -p 1
        let text = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ\
                    $CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
        check(text).unwrap();
        assert!(verify(text, b"password"));
    }

    #[test]
    fn hashes_of_other_kinds_or_prices_are_refused() {
        let salted =
            |head: &str| format!("{head}$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc");
        for (text, error) in [
            ("secret".to_owned(), HashError::Form),
            (String::new(), HashError::Form),
            ("$argon2id$v=19$m=65536,t=2,p=1".to_owned(), HashError::Form),
            (salted("$argon2i$v=19$m=65536,t=2,p=1"), HashError::Form),
            (salted("$argon2id$v=19$m=262145,t=2,p=1"), HashError::Cost),
            (
                salted("$argon2id$v=19$m=4294967295,t=2,p=1"),
                HashError::Cost,
            ),
            (salted("$argon2id$v=19$m=65536,t=33,p=1"), HashError::Cost),
            (salted("$argon2id$v=19$m=65536,t=2,p=17"), HashError::Cost),
            (salted("$argon2id$v=19$m=1,t=2,p=1"), HashError::Form),
        ] {
            assert_eq!(check(&text), Err(error), "{text}");
        }
    }
}
