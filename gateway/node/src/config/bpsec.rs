//! Bundle Protocol Security (RFC 9172).

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Deserialize;
use underpass_bpsec::integrity::Hash;
use underpass_bpsec::{MAX_KEYS, MAX_RULES, Pattern};

/// `[bpsec]`: bundles are secured from end to end.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BpsecConfig {
    /// Folder with a file for each key, `ID.key`: 32 to 128 hexadecimal digits.
    /// None may read it but owner and group. Default none.
    pub keys_dir: Option<PathBuf>,
    /// Which bundles are secured and how; the first that matches decides.
    #[serde(rename = "rule")]
    pub rules: Vec<BpsecRule>,
}

/// How bundles of some sources to some destinations are secured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BpsecRule {
    /// Who they are from: `*`, `ipn:NODE.SERVICE` with numbers or `*`, or
    /// `dtn://…`, which may end in `*`. Default `*`.
    #[serde(default = "any")]
    pub source: String,
    /// Where they go, as `source`. Default `*`.
    #[serde(default = "any")]
    pub destination: String,
    /// Ids of the keys that primary block and payload are authenticated with
    /// (BIB-HMAC-SHA2): the first where this node adds a block, any of them
    /// where it verifies one. Default none: integrity is not required.
    #[serde(default)]
    pub integrity_keys: Vec<String>,
    /// Hash of the HMAC, where this node makes it: sha-256, sha-384 or sha-512.
    /// Default sha-384.
    #[serde(default)]
    pub integrity_hash: HashName,
    /// Ids of the keys that protect the payload's encryption keys (BCB-AES-GCM
    /// with AES key wrap), of 32 or 64 digits; as `integrity_keys`. Default
    /// none: payloads are not encrypted.
    #[serde(default)]
    pub confidentiality_keys: Vec<String>,
    /// Where integrity is verified: at the destination, or in transit too. A
    /// node without the keys does not verify. Default destination.
    #[serde(default)]
    pub verify: VerifyAt,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum HashName {
    /// HMAC 256/256.
    #[serde(rename = "sha-256")]
    Sha256,
    /// HMAC 384/384.
    #[default]
    #[serde(rename = "sha-384")]
    Sha384,
    /// HMAC 512/512.
    #[serde(rename = "sha-512")]
    Sha512,
}

impl From<HashName> for Hash {
    fn from(name: HashName) -> Hash {
        match name {
            HashName::Sha256 => Hash::Sha256,
            HashName::Sha384 => Hash::Sha384,
            HashName::Sha512 => Hash::Sha512,
        }
    }
}

/// Where integrity is verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VerifyAt {
    /// Where bundles end.
    #[default]
    Destination,
    /// Where they pass, too.
    Transit,
}

fn any() -> String {
    "*".to_owned()
}

impl BpsecConfig {
    pub(super) fn check(&self, problems: &mut Vec<String>) {
        if self.rules.len() > MAX_RULES {
            problems.push(format!("bpsec.rule: at most {MAX_RULES} rules"));
        }
        let mut purposes: [BTreeSet<&String>; 2] = Default::default();
        for (place, rule) in self.rules.iter().enumerate() {
            let mut found = Vec::new();
            rule.check(self.keys_dir.is_some(), &mut found);
            let at = format!("bpsec.rule {}", place + 1);
            problems.extend(found.iter().map(|problem| format!("{at}: {problem}")));
            purposes[0].extend(&rule.integrity_keys);
            purposes[1].extend(&rule.confidentiality_keys);
        }
        let [integrity, confidentiality] = &purposes;
        for id in integrity.intersection(confidentiality) {
            problems.push(format!(
                "bpsec: key {id:?} is for integrity and confidentiality: each needs its own"
            ));
        }
    }
}

impl BpsecRule {
    fn check(&self, has_folder: bool, problems: &mut Vec<String>) {
        for (key, text) in [("source", &self.source), ("destination", &self.destination)] {
            if let Err(error) = text.parse::<Pattern>() {
                problems.push(format!("{key} = {text:?}: {error}"));
            }
        }
        for (key, ids) in [
            ("integrity_keys", &self.integrity_keys),
            ("confidentiality_keys", &self.confidentiality_keys),
        ] {
            if !ids.is_empty() && !has_folder {
                problems.push(format!("{key} needs bpsec.keys_dir"));
            }
            if ids.len() > MAX_KEYS {
                problems.push(format!("{key}: at most {MAX_KEYS} keys"));
            }
            for id in ids.iter().filter(|id| !is_id(id)) {
                problems.push(format!(
                    "{key}: {id:?}: an id has 1 to 64 letters, digits, - and _"
                ));
            }
        }
        if self.verify == VerifyAt::Transit && self.integrity_keys.is_empty() {
            problems.push("verify = \"transit\" needs integrity_keys".to_owned());
        }
    }
}

/// Whether a text may be part of a file's name.
pub(crate) fn is_id(id: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=64).contains(&id.len()) && id.bytes().all(allowed)
}
