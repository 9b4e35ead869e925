//! A running node asks its authority, at the control service, for its next certificate in time, and
//! for the revocation list. Both are written to the node's folder, from which it loads them without
//! interrupting traffic.
//!
//! The request for the next certificate is signed by the key of the present
//! one, which says who asks. The list is signed by the authority. So neither
//! needs a token.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper::header::HeaderValue;
use serde::Deserialize;
use serde_json::json;
use thiserror::Error;
use underpass_control_client::{
    ConfigError as ServiceConfigError, Service, ServiceConfig, ServiceError, Trust,
};
use underpass_pki::{
    Credentials, Delivered, NodeKey, PkiError, continue_with, renewal_due, replace_revocation_list,
};

use super::MAX_ANSWER_BYTES;
use crate::config::Config;
use crate::known_time::KnownTime;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A node asks right after its start, but not in the same second as its whole fleet.
const FIRST_WITHIN: Duration = Duration::from_secs(5);

/// Why nothing came of asking.
#[derive(Debug, Error)]
enum RenewalError {
    #[error("the control service: {0}")]
    Service(#[from] ServiceError),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error("the answer is not understood: {0}")]
    Answer(#[from] serde_json::Error),
    #[error("the revocation list is no text")]
    NoText(#[from] std::str::Utf8Error),
    #[error("the answer is for node {0}")]
    OtherNode(u64),
}

#[derive(Deserialize)]
struct Certified {
    node: u64,
    #[serde(flatten)]
    delivered: Delivered,
}

/// Asks for what a node's folder needs.
pub struct Renewal {
    node: u64,
    pki_dir: PathBuf,
    interval: Duration,
    service: Service,
    time: Arc<KnownTime>,
    /// Which list the service had last.
    tag: Option<HeaderValue>,
}

impl Renewal {
    /// As configured; none if the node asks no service itself.
    ///
    /// # Errors
    /// When the authorities' certificates cannot be read.
    pub fn of(
        config: &Config,
        time: &Arc<KnownTime>,
    ) -> Result<Option<Renewal>, ServiceConfigError> {
        let Some((enrolment, pki_dir)) = config.enrolment.as_ref().zip(config.tls.pki_dir.as_ref())
        else {
            return Ok(None);
        };
        let Some(url) = enrolment.url.clone() else {
            return Ok(None);
        };
        let service = Service::new(ServiceConfig {
            url,
            token_file: None,
            trust: Trust::File(enrolment.ca_file(pki_dir)),
            timeout: TIMEOUT,
        })?;
        Ok(Some(Renewal {
            node: config.node.number,
            pki_dir: pki_dir.clone(),
            interval: enrolment.interval(),
            service,
            time: time.clone(),
            tag: None,
        }))
    }

    /// Asks again and again, until dropped.
    pub async fn follow(mut self) {
        let mut is_well = true;
        let mut pause = FIRST_WITHIN.min(self.interval).mul_f64(fastrand::f64());
        loop {
            tokio::time::sleep(pause).await;
            pause = self.interval.mul_f64(0.9 + 0.2 * fastrand::f64());
            // Each of the two may fail without the other.
            let results = [self.renew().await, self.take_revocations().await];
            let failed = results.into_iter().find_map(Result::err);
            match &failed {
                Some(error) if is_well => {
                    tracing::warn!(%error, "certificate and revocation list are not kept up to date");
                }
                None if !is_well => {
                    tracing::info!("certificate and revocation list are up to date")
                }
                _ => {}
            }
            is_well = failed.is_none();
        }
    }

    async fn take_revocations(&mut self) -> Result<(), RenewalError> {
        let path = "/v1/authority/revocations";
        let answer = self.service.get(path, self.tag.as_ref(), MAX_ANSWER_BYTES);
        let Some((list, tag)) = answer.await? else {
            return Ok(());
        };
        if replace_revocation_list(&self.pki_dir, std::str::from_utf8(&list)?)? {
            tracing::info!("another revocation list has come");
        }
        self.tag = tag;
        Ok(())
    }

    async fn renew(&self) -> Result<(), RenewalError> {
        let present = Credentials::load(&self.pki_dir)?;
        if !is_due(&present, self.time.now()) {
            return Ok(());
        }
        let key = NodeKey::load(&key_file(&self.pki_dir))?;
        let body = json!({ "request": key.request(self.node)? }).to_string();
        let answer = self
            .service
            .post("/v1/node/certificate", body, MAX_ANSWER_BYTES);
        let answer: Certified = serde_json::from_slice(&answer.await?)?;
        if answer.node != self.node {
            return Err(RenewalError::OtherNode(answer.node));
        }
        if continue_with(&self.pki_dir, self.node, &answer.delivered)? {
            tracing::info!("this node's certificate is renewed");
        }
        Ok(())
    }
}

fn is_due(present: &Credentials, now: SystemTime) -> bool {
    renewal_due(present.not_before, present.not_after) <= now
}

fn key_file(pki_dir: &Path) -> PathBuf {
    pki_dir.join("node.key")
}
