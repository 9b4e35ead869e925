//! A hub's side: it answers from its own revocation list, and asks the control service for
//! certificates.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use hyper::StatusCode;
use serde::Deserialize;
use serde_json::json;
use thiserror::Error;
use tokio::sync::{Notify, mpsc};
use tokio_util::task::AbortOnDropHandle;
use underpass_bundle::BundleId;
use underpass_control_client::{Service as ControlService, ServiceError};
use underpass_engine::Message as Envelope;
use underpass_pki::{CertificateRequest, PkiError, revocation_list};
use underpass_provision::{
    Answer, Certificate, Desk, MAX_ANSWER_BYTES, MessageError, Pending, Question, TooOften,
};

use crate::config::Current;
use crate::run::background;
use crate::shell::Shell;

/// Answers the terminals of this hub.
pub(super) struct Answering {
    node: u64,
    pki_dir: PathBuf,
    current: Arc<Current>,
    shell: Arc<Shell>,
    control: Arc<ControlService>,
    desk: Mutex<Desk>,
    /// The last answer to each terminal, while it may not have left.
    last: Mutex<BTreeMap<u64, BundleId>>,
    /// Wakes the task: there may be something to request from the service.
    due: Notify,
}

/// Why a terminal gets no answer.
#[derive(Debug, Error)]
enum Unanswered {
    #[error("it is no terminal of this hub")]
    Stranger,
    #[error(transparent)]
    TooOften(#[from] TooOften),
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error("the request: {0}")]
    Request(PkiError),
    #[error("the request is for node {0}")]
    OtherNode(u64),
    #[error("this hub's revocation list: {0}")]
    List(PkiError),
}

/// What the service answers.
#[derive(Deserialize)]
struct Certified {
    node: u64,
    #[serde(flatten)]
    certificate: Certificate,
}

impl Answering {
    /// Answers from now on.
    pub fn start(
        current: &Arc<Current>,
        shell: &Arc<Shell>,
        control: Arc<ControlService>,
        inbox: mpsc::Receiver<Envelope>,
    ) -> Vec<AbortOnDropHandle<()>> {
        let config = current.get();
        let Some(pki_dir) = config.tls.pki_dir.clone() else {
            return Vec::new();
        };
        let answering = Arc::new(Answering {
            node: config.node.number,
            pki_dir,
            current: current.clone(),
            shell: shell.clone(),
            control,
            desk: Mutex::default(),
            last: Mutex::default(),
            due: Notify::new(),
        });
        let asked = answering.clone().hear(inbox);
        vec![background(asked), background(answering.pass_on())]
    }

    async fn hear(self: Arc<Self>, mut inbox: mpsc::Receiver<Envelope>) {
        let mut config = self.current.get();
        let mut terminals = super::answered(&config);
        while let Some(envelope) = inbox.recv().await {
            let present = self.current.get();
            if !Arc::ptr_eq(&present, &config) {
                terminals = super::answered(&present);
                self.desk().retain(|node| terminals.contains(&node));
                self.last
                    .lock()
                    .unwrap()
                    .retain(|node, _| terminals.contains(node));
                config = present;
            }
            let terminal = envelope.peer;
            match self.take(&envelope, &terminals) {
                Ok(()) => {}
                Err(Unanswered::TooOften(error)) => tracing::debug!(terminal, %error),
                Err(error) => tracing::warn!(terminal, %error, "a terminal's question is refused"),
            }
        }
    }

    fn take(&self, envelope: &Envelope, terminals: &BTreeSet<u64>) -> Result<(), Unanswered> {
        let terminal = envelope.peer;
        let now = Instant::now();
        if !terminals.contains(&terminal) {
            return Err(Unanswered::Stranger);
        }
        self.desk().admit(now, terminal)?;
        let question = Question::decode(&envelope.payload)?;
        let own = revocation_list(&self.pki_dir).map_err(Unanswered::List)?;
        if let Some((list, digest)) = own
            && question.revocations.as_ref() != Some(&digest)
        {
            let revocations = Some(list);
            self.answer(
                terminal,
                &Answer {
                    revocations,
                    ..Answer::default()
                },
            );
        }
        if let Some(request) = question.request {
            check(&request, terminal)?;
            self.desk().request(now, terminal, request);
            self.due.notify_one();
        }
        Ok(())
    }

    /// Passes terminals' requests on to the service. Runs until dropped.
    async fn pass_on(self: Arc<Self>) {
        let mut is_well = true;
        loop {
            let (next, again) = {
                let mut desk = self.desk();
                (desk.next(Instant::now()), desk.next_timeout())
            };
            let Some(pending) = next else {
                match again {
                    Some(at) => {
                        let _ = tokio::time::timeout_at(at.into(), self.due.notified()).await;
                    }
                    None => self.due.notified().await,
                }
                continue;
            };
            let terminal = pending.node;
            match self.ask(&pending).await {
                Ok(answer) => {
                    self.desk().answered();
                    self.answer(terminal, &answer);
                    is_well = true;
                }
                Err(error) => {
                    self.desk().failed(Instant::now(), fastrand::f64());
                    if is_well {
                        tracing::warn!(terminal, %error, "certificates are not renewed: trying on");
                    }
                    is_well = false;
                }
            }
        }
    }

    async fn ask(&self, pending: &Pending) -> Result<Answer, ServiceError> {
        let Pending { node, request } = pending;
        let path = format!("/v1/gateways/{}/certificates", self.node);
        let body = json!({ "node": node, "request": request }).to_string();
        let answer = match self.control.post(&path, body, MAX_ANSWER_BYTES).await {
            // The service will never accept this request.
            Err(ServiceError::Status { status, detail })
                if status == StatusCode::UNPROCESSABLE_ENTITY =>
            {
                return Ok(Answer::refusal(&detail));
            }
            answer => answer?,
        };
        let certified: Certified = serde_json::from_slice(&answer)
            .map_err(|error| ServiceError::Answer(error.to_string()))?;
        if certified.node != *node {
            let other = format!("it is for node {}", certified.node);
            return Err(ServiceError::Answer(other));
        }
        Ok(Answer {
            certificate: Some(certified.certificate),
            ..Answer::default()
        })
    }

    /// Sends an answer, in place of an earlier one that has not left. If that had a list, the
    /// terminal's next question brings it, if it still differs.
    fn answer(&self, terminal: u64, answer: &Answer) {
        let payload = match answer.encode() {
            Ok(payload) => payload,
            Err(error) => {
                tracing::warn!(terminal, %error, "answer not sent");
                return;
            }
        };
        let mut last = self.last.lock().unwrap();
        let before = last.remove(&terminal);
        match super::send(&self.current.get(), &self.shell, terminal, payload, before) {
            Ok(bundle) => {
                last.insert(terminal, bundle);
            }
            Err(error) => tracing::warn!(terminal, %error, "answer not sent"),
        }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap()
    }
}

/// Checks that a request is the terminal's: it must name the terminal, and be signed with its own
/// key. The service checks whether that key is the terminal's present one.
fn check(request: &str, terminal: u64) -> Result<(), Unanswered> {
    let parsed = CertificateRequest::parse(request).map_err(Unanswered::Request)?;
    match parsed.node == terminal {
        true => Ok(()),
        false => Err(Unanswered::OtherNode(parsed.node)),
    }
}

#[cfg(test)]
mod tests {
    use underpass_pki::NodeKey;

    use super::*;

    #[test]
    fn a_terminal_asks_for_its_own_number_and_by_a_request_that_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let key = NodeKey::load_or_make(folder.path(), "key").unwrap();
        let request = key.request(10).unwrap();
        assert!(check(&request, 10).is_ok());
        let other = check(&request, 11).unwrap_err();
        assert!(matches!(other, Unanswered::OtherNode(10)), "{other}");
        let broken = request.replace("MI", "NI");
        for wrong in ["", "nonsense", broken.as_str()] {
            let told = check(wrong, 10).unwrap_err();
            assert!(matches!(told, Unanswered::Request(_)), "{told}");
        }
    }
}
