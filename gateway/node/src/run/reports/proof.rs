//! A terminal's proof to the control service that it is at a hub (`docs/control-protocol.md`).

use std::path::{Path, PathBuf};

use ring::{digest, hmac};
use thiserror::Error;
use underpass_control_client::read_token;
use underpass_reports::Proof;

use crate::config::Config;
use crate::hexadecimal::hexadecimal;

/// Why a terminal's token cannot be used.
#[derive(Debug, Error)]
#[error("reports.token_file {path}: {reason}")]
pub struct TokenError {
    path: PathBuf,
    reason: String,
}

/// Makes the proofs of a terminal, with its token at the control service.
#[derive(Debug)]
pub struct Prover {
    terminal: u64,
    gateway: u64,
    token_file: PathBuf,
}

impl Prover {
    /// The prover of a terminal that has a token.
    ///
    /// # Errors
    /// When the token cannot be read.
    pub fn of(config: &Config) -> Result<Option<Prover>, TokenError> {
        let Some(reports) = &config.reports else {
            return Ok(None);
        };
        let Some(token_file) = reports.token_file.clone() else {
            return Ok(None);
        };
        key(&token_file)?;
        Ok(Some(Prover {
            terminal: config.node.number,
            gateway: reports.to,
            token_file,
        }))
    }

    /// A proof with this time, ms since the Unix epoch by the control service's clock.
    ///
    /// # Errors
    /// When the token cannot be read any more.
    pub fn prove(&self, time_ms: u64) -> Result<Proof, TokenError> {
        let Prover {
            terminal, gateway, ..
        } = self;
        let text = format!("underpass gateway {terminal} {gateway} {time_ms}");
        let mac = hmac::sign(&key(&self.token_file)?, text.as_bytes());
        Ok(Proof {
            gateway: self.gateway,
            time_ms,
            mac: hexadecimal(mac.as_ref()),
        })
    }
}

/// The service stores no token, only its hash: so that is the key.
fn key(token_file: &Path) -> Result<hmac::Key, TokenError> {
    let token = read_token(token_file).map_err(|reason| TokenError {
        path: token_file.to_owned(),
        reason,
    })?;
    let hash = digest::digest(&digest::SHA256, token.as_bytes());
    Ok(hmac::Key::new(hmac::HMAC_SHA256, hash.as_ref()))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use underpass_reports::{Body, Report};

    use super::*;

    fn config(token_file: &Path) -> Config {
        let text = format!(
            "[node]\nnumber = 10\nrole = \"terminal\"\n[tls]\nplain = true\n\
             [[path]]\nname = \"sat\"\nneighbour = 2\nremote = \"192.0.2.1:4556\"\n\
             send_rate_bps = 2_000_000\n[reports]\nto = 2\ntoken_file = {token_file:?}\n"
        );
        Config::parse(&text, Path::new("terminal.toml")).unwrap()
    }

    #[test]
    fn proof_is_what_the_vector_shows() {
        let text = include_str!("../../../../../docs/vectors/control/gateway-proof.json");
        let vector: Value = serde_json::from_str(text).unwrap();
        let report: Report = serde_json::from_value(vector["entry"]["report"].clone()).unwrap();
        let Body::Status(status) = report.body else {
            panic!("a status");
        };
        let expected = status.proof.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, format!("{}\n", vector["token"].as_str().unwrap())).unwrap();
        let prover = Prover::of(&config(&file)).unwrap().unwrap();
        assert_eq!(prover.prove(expected.time_ms).unwrap(), expected);
    }

    #[test]
    fn what_is_no_token_is_named_and_a_replaced_one_counts() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        for wrong in [None, Some(""), Some("two words"), Some("two\nlines")] {
            if let Some(text) = wrong {
                std::fs::write(&file, text).unwrap();
            }
            let told = Prover::of(&config(&file)).unwrap_err().to_string();
            assert!(told.starts_with("reports.token_file /"), "{told}");
        }
        std::fs::write(&file, "first").unwrap();
        let prover = Prover::of(&config(&file)).unwrap().unwrap();
        let first = prover.prove(1).unwrap();
        assert_eq!(prover.prove(1).unwrap(), first);
        std::fs::write(&file, "second").unwrap();
        assert_ne!(prover.prove(1).unwrap(), first);
    }
}
