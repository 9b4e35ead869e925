//! A terminal's side: it asks its hub at each interval, and writes the answers to its folder.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;
use tokio::time::Instant;
use underpass_bundle::BundleId;
use underpass_engine::Message as Envelope;
use underpass_pki::{
    Credentials, Delivered, NodeKey, PkiError, continue_with, renewal_due, replace_revocation_list,
    revocation_list,
};
use underpass_provision::{Answer, MessageError, Question};

use crate::config::{Config, Current};
use crate::known_time::KnownTime;
use crate::shell::Shell;

/// A node asks soon after its start or the hub's, but not in the same second as its whole fleet.
const SOON: Duration = Duration::from_secs(5);

pub(super) struct Asking {
    node: u64,
    hub: u64,
    pki_dir: PathBuf,
    interval: Duration,
    shell: Arc<Shell>,
    current: Arc<Current>,
    time: Arc<KnownTime>,
    /// The last question, while it may not have left.
    last: Option<BundleId>,
}

impl Asking {
    /// As configured; none if the configuration names no hub for this.
    pub fn of(
        config: &Config,
        current: &Arc<Current>,
        shell: &Arc<Shell>,
        time: &Arc<KnownTime>,
    ) -> Option<Asking> {
        let enrolment = config.enrolment.as_ref()?;
        Some(Asking {
            node: config.node.number,
            hub: enrolment.to?,
            pki_dir: config.tls.pki_dir.clone()?,
            interval: enrolment.interval(),
            shell: shell.clone(),
            current: current.clone(),
            time: time.clone(),
            last: None,
        })
    }

    /// Asks again and again, until dropped: the next question replaces what was lost on the way.
    pub async fn run(mut self, mut inbox: mpsc::Receiver<Envelope>, mut hubs: mpsc::Receiver<u64>) {
        let soon = |most: Duration| SOON.min(most).mul_f64(fastrand::f64());
        let mut at = Instant::now() + soon(self.interval);
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(at) => {
                    self.ask();
                    at = Instant::now() + self.interval.mul_f64(0.9 + 0.2 * fastrand::f64());
                }
                Some(peer) = hubs.recv() => if peer == self.hub {
                    at = at.min(Instant::now() + soon(self.interval));
                },
                Some(answer) = inbox.recv() => self.take(&answer),
            }
        }
    }

    fn ask(&mut self) {
        let payload = match self.question() {
            Ok(payload) => payload,
            Err(error) => {
                tracing::warn!(%error, "the hub is not asked for certificate and revocation list");
                return;
            }
        };
        let config = self.current.get();
        match super::send(&config, &self.shell, self.hub, payload, self.last.take()) {
            Ok(bundle) => self.last = Some(bundle),
            Err(error) => {
                let hub = self.hub;
                tracing::warn!(hub, %error, "the hub is not asked for the revocation list");
            }
        }
    }

    fn question(&self) -> Result<Vec<u8>, Failed> {
        let present = Credentials::load(&self.pki_dir)?;
        let list = revocation_list(&self.pki_dir)?;
        let request = match is_due(&present, self.time.now()) {
            true => {
                let key = NodeKey::load(&self.pki_dir.join("node.key"))?;
                Some(key.request(self.node)?)
            }
            false => None,
        };
        let question = Question {
            revocations: list.map(|(_, digest)| digest),
            request,
        };
        Ok(question.encode()?)
    }

    fn take(&self, envelope: &Envelope) {
        let peer = envelope.peer;
        if peer != self.hub {
            tracing::warn!(peer, "a certificate from a node that was not asked");
            return;
        }
        if let Err(error) = self.put(&envelope.payload) {
            tracing::warn!(peer, %error, "certificate or revocation list not taken");
        }
    }

    /// Takes what is signed by this node's authority, and newer than its own.
    fn put(&self, payload: &[u8]) -> Result<(), Failed> {
        let answer = Answer::decode(payload)?;
        if let Some(list) = &answer.revocations
            && replace_revocation_list(&self.pki_dir, list)?
        {
            tracing::info!("another revocation list has come");
        }
        if let Some(given) = answer.certificate {
            let delivered = Delivered {
                certificate: given.certificate,
                authority: given.authority,
                revocations: given.revocations,
            };
            if continue_with(&self.pki_dir, self.node, &delivered)? {
                tracing::info!("this node's certificate is renewed");
            }
        }
        if let Some(reason) = answer.refused {
            tracing::warn!(reason, "this node's certificate is not renewed");
        }
        Ok(())
    }
}

fn is_due(present: &Credentials, now: SystemTime) -> bool {
    renewal_due(present.not_before, present.not_after) <= now
}

/// Why nothing came of a question or an answer.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error(transparent)]
    Message(#[from] MessageError),
}
