//! The local API.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

/// What a caller may do; each may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApiRole {
    /// Read the metrics.
    Metrics,
    /// Ask how things are.
    Read,
    /// Change them, and read what clients were sent.
    Operate,
}

impl ApiRole {
    /// Its name in configuration and documentation.
    pub fn name(self) -> &'static str {
        match self {
            ApiRole::Metrics => "metrics",
            ApiRole::Read => "read",
            ApiRole::Operate => "operate",
        }
    }
}

/// Who may ask over TCP.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenConfig {
    /// Name in the log, unique. Required.
    pub name: String,
    /// metrics, read or operate. Required.
    pub role: ApiRole,
    /// SHA-256 of the token, 64 hexadecimal digits. This or `file`.
    #[serde(default)]
    pub sha256: Option<String>,
    /// File with the token, 16 bytes or more.
    #[serde(default)]
    pub file: Option<PathBuf>,
}

impl TokenConfig {
    /// The token's hash, if the configuration has it; none if that is no valid hash.
    pub fn digest(&self) -> Option<[u8; 32]> {
        let text = self.sha256.as_ref()?.as_bytes();
        let mut digest = [0; 32];
        if text.len() != 2 * digest.len() {
            return None;
        }
        for (octet, digits) in digest.iter_mut().zip(text.chunks(2)) {
            let digit = |at: usize| char::from(digits[at]).to_digit(16);
            *octet = u8::try_from(16 * digit(0)? + digit(1)?).ok()?;
        }
        Some(digest)
    }
}

/// `[api]`: the local API.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApiConfig {
    /// Unix socket, mode 0660. Default /run/underpass/api.sock.
    pub socket: PathBuf,
    /// TCP address, e.g. "127.0.0.1:8470"; needs a `token`. Default none.
    pub listen: Option<SocketAddr>,
    /// Certificate for TLS on `listen`, with its chain, PEM. Default none: no
    /// TLS, and only loopback addresses to listen on.
    pub certificate_file: Option<PathBuf>,
    /// Its private key, PEM. Required with `certificate_file`.
    pub key_file: Option<PathBuf>,
    /// Whether `listen` may be another address than a loopback one without
    /// TLS. Default false.
    pub plain: bool,
    /// Who may ask over TCP.
    #[serde(rename = "token")]
    pub tokens: Vec<TokenConfig>,
}

impl Default for ApiConfig {
    fn default() -> Self {
        ApiConfig {
            socket: PathBuf::from("/run/underpass/api.sock"),
            listen: None,
            certificate_file: None,
            key_file: None,
            plain: false,
            tokens: Vec::new(),
        }
    }
}

impl ApiConfig {
    /// Certificate and key, where TLS is wanted.
    pub fn tls_files(&self) -> Option<(PathBuf, PathBuf)> {
        self.certificate_file.clone().zip(self.key_file.clone())
    }

    pub(super) fn check(&self, problems: &mut Vec<String>) {
        if self.certificate_file.is_some() != self.key_file.is_some() {
            problems.push("api.certificate_file and api.key_file need each other".to_owned());
        }
        if self.plain && self.certificate_file.is_some() {
            problems.push("api.plain = true excludes api.certificate_file".to_owned());
        }
        match self.listen {
            None if !self.tokens.is_empty() => {
                problems.push("an [[api.token]] needs api.listen".to_owned());
            }
            Some(_) if self.tokens.is_empty() => {
                problems.push("api.listen needs an [[api.token]]".to_owned());
            }
            Some(address)
                if !address.ip().to_canonical().is_loopback()
                    && self.certificate_file.is_none()
                    && !self.plain =>
            {
                problems.push(format!(
                    "api.listen = {address}: without TLS the tokens go over the network for all \
                     to read; set api.certificate_file and api.key_file, or api.plain = true"
                ));
            }
            _ => {}
        }
        let mut names = BTreeSet::new();
        for token in &self.tokens {
            let at = format!("api.token {:?}", token.name);
            if token.name.is_empty() || !names.insert(&token.name) {
                problems.push(format!("{at}: a name must be unique and not empty"));
            }
            if token.sha256.is_some() == token.file.is_some() {
                problems.push(format!("{at}: needs either sha256 or file"));
            }
            if token.sha256.is_some() && token.digest().is_none() {
                problems.push(format!("{at}: sha256 must be 64 hexadecimal digits"));
            }
        }
    }
}
