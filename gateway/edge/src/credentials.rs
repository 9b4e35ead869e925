//! Users and their passwords at a listener.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ring::hmac;
use ring::rand::SystemRandom;
use subtle::ConstantTimeEq;
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::config::User;
use crate::password::{self, CREDENTIAL_BYTES, HashError};
use crate::throttle::Throttle;

/// Hashes that are computed at the same time, in separate threads: each takes a core and much
/// memory.
static HASHING: Semaphore = Semaphore::const_new(2);

/// Why the users of a listener cannot be told apart.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum UserError {
    #[error("user {name:?}: password_file {path}: {source}")]
    File {
        name: String,
        path: PathBuf,
        source: io::Error,
    },
    #[error("user {name:?}: password_hash {source}")]
    Hash { name: String, source: HashError },
    #[error("the system gives no random numbers")]
    Randomness,
}

/// What the log says of a client that is throttled.
pub(crate) const THROTTLED: &str = "too many wrong passwords have come from its address";

/// Whether a client that presents a password may enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It may enter.
    Admitted,
    /// User or password are wrong.
    Refused,
    /// Too many passwords were wrong before: for this long none is checked.
    Throttled(Duration),
}

/// The users who may enter by one listener.
#[derive(Debug)]
pub(crate) struct Users {
    accounts: Vec<Account>,
    /// Passwords are remembered by their codes under this key, which nobody
    /// else has.
    key: hmac::Key,
    /// Hashed when there is no such user, so that the time taken does not reveal that.
    decoy: Option<Arc<str>>,
    failures: Arc<Mutex<Throttle>>,
}

#[derive(Debug)]
struct Account {
    name: String,
    hash: Option<Arc<str>>,
    /// The password's code: known from the start if the configuration has the password itself,
    /// otherwise since a client first gave the right one.
    code: Mutex<Option<hmac::Tag>>,
}

impl Users {
    /// The users of the configuration; none if no password is asked for. Failures count together
    /// with those of other listeners in `failures`.
    ///
    /// # Errors
    /// When a file or a hash cannot be used.
    pub fn load(
        users: &[User],
        failures: &Arc<Mutex<Throttle>>,
    ) -> Result<Option<Users>, UserError> {
        if users.is_empty() {
            return Ok(None);
        }
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| UserError::Randomness)?;
        let mut accounts = Vec::new();
        for user in users {
            let (hash, code) = match secret(user)? {
                Secret::Hash(hash) => (Some(hash.into()), None),
                Secret::Password(password) => (None, Some(hmac::sign(&key, password.as_bytes()))),
            };
            accounts.push(Account {
                name: user.name.clone(),
                hash,
                code: Mutex::new(code),
            });
        }
        let decoy = accounts.iter().find_map(|account| account.hash.clone());
        Ok(Some(Users {
            accounts,
            key,
            decoy,
            failures: failures.clone(),
        }))
    }

    /// Whether the client at `client` may enter as `user` with `password`. The time taken reveals
    /// neither which of the two is wrong nor how much of it is right. A password that was right
    /// before costs no hash.
    pub async fn admit(&self, client: IpAddr, user: &[u8], password: &[u8]) -> Admission {
        if let Some(wait) = self.refused_for(client) {
            return Admission::Throttled(wait);
        }
        let code = hmac::sign(&self.key, password);
        let account = self.account(user);
        if account.is_some_and(|account| account.knows(&code)) {
            return Admission::Admitted;
        }
        let hash = account.and_then(|account| account.hash.clone());
        if let Some(hash) = hash.clone().or_else(|| self.decoy.clone()) {
            let Ok(_permit) = HASHING.acquire().await else {
                return Admission::Refused;
            };
            // Other attempts of the same client may have failed meanwhile.
            if let Some(wait) = self.refused_for(client) {
                return Admission::Throttled(wait);
            }
            if account.is_some_and(|account| account.knows(&code)) {
                return Admission::Admitted;
            }
            let password = password.to_owned();
            let verify = move || password::verify(&hash, &password);
            let right = tokio::task::spawn_blocking(verify).await.unwrap_or(false);
            if let Some(account) = account.filter(|account| right && account.hash.is_some()) {
                *account.code() = Some(code);
                return Admission::Admitted;
            }
        }
        self.failures().failed(client, Instant::now().into_std());
        Admission::Refused
    }

    fn account(&self, user: &[u8]) -> Option<&Account> {
        let mut found = None;
        for account in &self.accounts {
            if bool::from(account.name.as_bytes().ct_eq(user)) {
                found = Some(account);
            }
        }
        found
    }

    fn refused_for(&self, client: IpAddr) -> Option<Duration> {
        let now = Instant::now().into_std();
        self.failures().refused_for(client, now)
    }

    fn failures(&self) -> MutexGuard<'_, Throttle> {
        self.failures.lock().unwrap()
    }
}

impl Account {
    fn knows(&self, code: &hmac::Tag) -> bool {
        let known = *self.code();
        known.is_some_and(|known| known.as_ref().ct_eq(code.as_ref()).into())
    }

    fn code(&self) -> MutexGuard<'_, Option<hmac::Tag>> {
        self.code.lock().unwrap()
    }
}

enum Secret {
    Password(String),
    Hash(String),
}

fn secret(user: &User) -> Result<Secret, UserError> {
    let hashed = |text: String| {
        let name = user.name.clone();
        let checked = password::check(&text).map_err(|source| UserError::Hash { name, source });
        checked.map(|()| Secret::Hash(text))
    };
    if let Some(hash) = &user.password_hash {
        return hashed(hash.clone());
    }
    if let Some(path) = &user.password_file {
        let text = read(path).map_err(|source| UserError::File {
            name: user.name.clone(),
            path: path.clone(),
            source,
        })?;
        if text.starts_with("$argon2") {
            return hashed(text);
        }
        return Ok(Secret::Password(text));
    }
    Ok(Secret::Password(user.password.clone().unwrap_or_default()))
}

/// The first line of the file, which is the password or its hash.
fn read(path: &Path) -> io::Result<String> {
    let text = std::fs::read_to_string(path)?;
    let line = text.lines().next().unwrap_or_default();
    if !CREDENTIAL_BYTES.contains(&line.len()) {
        let text = "its first line must have 1 to 255 bytes";
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn user(name: &str, password: &str) -> User {
        User {
            name: name.into(),
            password: Some(password.into()),
            password_hash: None,
            password_file: None,
        }
    }

    fn hashed(name: &str, password: &str) -> User {
        User {
            password: None,
            password_hash: Some(password::hash(password.as_bytes()).unwrap()),
            ..user(name, "")
        }
    }

    fn users(users: &[User]) -> Users {
        Users::load(users, &Arc::default()).unwrap().unwrap()
    }

    fn filed(folder: &Path, text: &str) -> User {
        let path = folder.join("password");
        std::fs::write(&path, text).unwrap();
        User {
            password: None,
            password_file: Some(path),
            ..user("c", "")
        }
    }

    #[tokio::test]
    async fn only_the_exact_pair_is_admitted_however_it_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = filed(folder.path(), "three\n");
        let list = [user("a", "one"), hashed("b", "two"), file];
        for (name, password, admitted) in [
            ("a", "one", true),
            ("b", "two", true),
            ("b", "two", true),
            ("c", "three", true),
            ("a", "two", false),
            ("b", "one", false),
            ("a", "on", false),
            ("a", "one\0", false),
            ("c", "three\n", false),
            ("", "", false),
            ("d", "", false),
        ] {
            // No attempt of any user has failed before.
            let users = users(&list);
            let admission = users
                .admit(CLIENT, name.as_bytes(), password.as_bytes())
                .await;
            assert_eq!(
                admission == Admission::Admitted,
                admitted,
                "{name} {password}"
            );
        }
    }

    #[tokio::test]
    async fn a_right_password_is_hashed_once_and_a_hash_may_be_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let hash = password::hash(b"three").unwrap();
        let users = users(&[filed(folder.path(), &format!("{hash}\n"))]);
        assert!(users.accounts[0].code().is_none());
        let admit = async |password: &[u8]| users.admit(CLIENT, b"c", password).await;
        assert_eq!(admit(b"thre").await, Admission::Refused);
        assert!(users.accounts[0].code().is_none());
        assert_eq!(admit(b"three").await, Admission::Admitted);
        // With all permits taken a hash would wait for ever.
        let _permits = HASHING.acquire_many(2).await.unwrap();
        assert_eq!(admit(b"three").await, Admission::Admitted);
    }

    #[tokio::test]
    async fn who_guesses_is_refused_even_with_the_right_password_and_others_are_not() {
        let users = users(&[user("a", "one"), user("b", "two")]);
        for guess in 0..10u32 {
            let admission = users.admit(CLIENT, b"a", &guess.to_be_bytes()).await;
            assert_eq!(admission, Admission::Refused);
        }
        for password in [&b"one"[..], b"guess"] {
            let admission = users.admit(CLIENT, b"a", password).await;
            assert!(
                matches!(admission, Admission::Throttled(_)),
                "{admission:?}"
            );
        }
        let other = "192.0.2.2".parse().unwrap();
        assert_eq!(users.admit(other, b"a", b"one").await, Admission::Admitted);
    }

    #[test]
    fn files_without_a_password_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |user: &User| {
            let loaded = Users::load(std::slice::from_ref(user), &Arc::default());
            loaded.unwrap_err().to_string()
        };
        assert!(refused(&filed(folder.path(), "")).contains("1 to 255 bytes"));
        assert!(refused(&filed(folder.path(), &"x".repeat(256))).contains("1 to 255 bytes"));
        assert!(refused(&filed(folder.path(), "$argon2id$v=19$x")).contains("hash-password"));
        let mut absent = filed(folder.path(), "x");
        absent.password_file = Some(folder.path().join("absent"));
        assert!(refused(&absent).contains("absent"));
    }
}
