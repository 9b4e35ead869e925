//! The rules of Bundle Protocol Security with their keys, from files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;
use underpass_bpsec::{Failure, Guard, Key, KeyError, Rule};
use zeroize::Zeroizing;

use crate::config::{BpsecConfig, BpsecRule, Config, VerifyAt, is_id};

/// Most bytes that are read of a key file: more than any valid one has.
const MOST_FILE_BYTES: u64 = 1024;

/// Why keys cannot be used.
#[derive(Debug, Error)]
pub enum BpsecError {
    #[error("bpsec.keys_dir: cannot read {path}: {source}")]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("bpsec.keys_dir: everybody may read {path}: chmod o= it")]
    Readable { path: PathBuf },
    #[error("bpsec.keys_dir: {path}: {source}")]
    Key {
        path: PathBuf,
        /// What is wrong and what to do.
        source: KeyError,
    },
    #[error(
        "bpsec.keys_dir: {path}: a key for confidentiality must have 32 or 64 digits, not {digits}"
    )]
    Length { path: PathBuf, digits: usize },
    #[error("bpsec: no key can be made: {0}")]
    Unfit(Failure),
}

/// Reads the keys that the rules name.
///
/// # Errors
/// When a key is not there, not secret, or not fit for its purpose.
pub fn load(config: &BpsecConfig) -> Result<Vec<Rule>, BpsecError> {
    let mut keys = Keys {
        dir: config.keys_dir.as_deref().unwrap_or(Path::new("")),
        read: BTreeMap::new(),
    };
    config.rules.iter().map(|rule| keys.rule(rule)).collect()
}

/// All that is wrong with the keys that rules name, whether or not the rules
/// themselves are valid.
pub fn problems(config: &BpsecConfig) -> Vec<BpsecError> {
    let Some(dir) = &config.keys_dir else {
        return Vec::new();
    };
    let read = BTreeMap::new();
    let mut keys = Keys { dir, read };
    let rules = config.rules.iter();
    let named = |of: fn(&BpsecRule) -> &Vec<String>| -> BTreeSet<&String> {
        let ids = rules.clone().flat_map(of);
        ids.filter(|id| is_id(id)).collect()
    };
    let integrity = named(|rule| &rule.integrity_keys);
    let confidentiality = named(|rule| &rule.confidentiality_keys);
    let unfit = integrity
        .difference(&confidentiality)
        .filter_map(|id| keys.key(id).err());
    let mut problems: Vec<BpsecError> = unfit.collect();
    let unfit = confidentiality
        .iter()
        .filter_map(|id| keys.wrapping(id).err());
    problems.extend(unfit);
    problems
}

/// What secures a node's bundles.
///
/// # Errors
/// As [`load`].
pub fn guard(config: &Config) -> Result<Arc<Guard>, BpsecError> {
    let guard = Guard::new(config.node.number, load(&config.bpsec)?);
    Ok(Arc::new(guard.map_err(BpsecError::Unfit)?))
}

struct Keys<'a> {
    dir: &'a Path,
    read: BTreeMap<String, Key>,
}

impl Keys<'_> {
    fn rule(&mut self, rule: &BpsecRule) -> Result<Rule, BpsecError> {
        let integrity_keys = rule.integrity_keys.iter().map(|id| self.key(id));
        let integrity_keys = integrity_keys.collect::<Result<_, _>>()?;
        let confidentiality_keys = rule.confidentiality_keys.iter().map(|id| self.wrapping(id));
        // The patterns were checked when the configuration was read.
        let pattern = |text: &str| text.parse().expect("a pattern that was checked");
        Ok(Rule {
            source: pattern(&rule.source),
            destination: pattern(&rule.destination),
            integrity_keys,
            hash: rule.integrity_hash.into(),
            confidentiality_keys: confidentiality_keys.collect::<Result<_, _>>()?,
            verify_in_transit: rule.verify == VerifyAt::Transit,
        })
    }

    /// A key that others are wrapped in.
    fn wrapping(&mut self, id: &str) -> Result<Key, BpsecError> {
        let key = self.key(id)?;
        match key.bytes() {
            16 | 32 => Ok(key),
            bytes => Err(BpsecError::Length {
                path: self.path(id),
                digits: 2 * bytes,
            }),
        }
    }

    fn path(&self, id: &str) -> PathBuf {
        self.dir.join(format!("{id}.key"))
    }

    fn key(&mut self, id: &str) -> Result<Key, BpsecError> {
        if let Some(key) = self.read.get(id) {
            return Ok(key.clone());
        }
        let path = self.path(id);
        let cannot_read = |source| BpsecError::Read {
            path: path.clone(),
            source,
        };
        let file = File::open(&path).map_err(cannot_read)?;
        let mode = file.metadata().map_err(cannot_read)?.permissions().mode();
        if mode & 0o007 != 0 {
            return Err(BpsecError::Readable { path });
        }
        let mut text = Zeroizing::new(String::with_capacity(MOST_FILE_BYTES as usize));
        file.take(MOST_FILE_BYTES)
            .read_to_string(&mut text)
            .map_err(cannot_read)?;
        let key = Key::parse(&text).map_err(|source| BpsecError::Key { path, source })?;
        self.read.insert(id.to_owned(), key.clone());
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    fn folder(files: &[(&str, &str, u32)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text, mode) in files {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).unwrap();
        }
        dir
    }

    fn config(dir: &Path, rule: &str) -> BpsecConfig {
        let text = format!("keys_dir = {dir:?}\n[[rule]]\n{rule}");
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn the_keys_of_a_rule_come_from_their_files() {
        let dir = folder(&[("new.key", HEX, 0o600), ("old.key", &HEX[..32], 0o640)]);
        let config = config(dir.path(), "integrity_keys = ['new', 'old']");
        let rules = load(&config).unwrap();
        let bytes = rules[0].integrity_keys.iter().map(Key::bytes);
        assert_eq!(bytes.collect::<Vec<_>>(), [32, 16]);
    }

    #[test]
    fn a_key_that_cannot_be_used_says_why() {
        let long = &HEX.repeat(2)[..96];
        let dir = folder(&[
            ("open.key", HEX, 0o644),
            ("short.key", "abcd", 0o600),
            ("long.key", long, 0o600),
        ]);
        for (rule, told) in [
            ("integrity_keys = ['none']", "none.key: No such file"),
            ("integrity_keys = ['open']", "everybody may read"),
            ("integrity_keys = ['short']", "openssl rand -hex 32"),
            (
                "confidentiality_keys = ['long']",
                "must have 32 or 64 digits, not 96",
            ),
        ] {
            let error = load(&config(dir.path(), rule)).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}
