//! The applications of this node: their socket, their bundles, the echo.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;
use underpass_applications::wire::Reported;
use underpass_applications::{
    Echo, MailboxError, Node, Outgoing, Report, Service, serve_client, turn_away,
};
use underpass_bundle::wire::Eid;
use underpass_bundle::{Applications, Delivery, ReportRequest, Send, SendError};
use underpass_cla::Class;
use underpass_payloads::Payloads;

use crate::api::{ApiError, unix_socket};
use crate::config::{ApplicationsConfig, Config, class_named};
use crate::shell::{ApplicationDesk, Shell};
use crate::upgrade::Sockets;

/// The pause after accepting a connection has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Opens the mailbox and takes bundles from now on, if this node has applications. `services` are
/// those of the engines.
///
/// # Errors
/// When the mailbox cannot be opened.
pub(super) fn open(
    config: &Config,
    services: Option<&Arc<Applications>>,
    shell: &Arc<Shell>,
    payloads: Option<&Arc<Payloads>>,
) -> Result<Option<Service>, MailboxError> {
    let (Some(of), Some(services)) = (&config.applications, services) else {
        delete_orphans(config, payloads)?;
        return Ok(None);
    };
    let confirming = shell.clone();
    let confirm = Box::new(move |ticket| confirming.confirm(ticket));
    let mailbox = ApplicationsConfig::mailbox(&config.node.state_dir);
    let service = Service::start(&mailbox, services.clone(), payloads, confirm)?;
    let number = config.node.number;
    let echo = of.echo().map(|echo| Echo::new(number, echo, of.echo_per_s));
    let desk: Arc<dyn ApplicationDesk> = Arc::new(Desk {
        shell: shell.clone(),
        service: service.clone(),
        class: class(config, of),
        services: services.clone(),
        answers: Mutex::new(echo),
    });
    shell.attach_applications(&desk);
    Ok(Some(service))
}

/// Deletes the payloads on disk that belong to no bundle in custody. Does nothing if an earlier run
/// has left a mailbox, whose bundles have payloads, too.
fn delete_orphans(config: &Config, payloads: Option<&Arc<Payloads>>) -> Result<(), MailboxError> {
    let mailbox = ApplicationsConfig::mailbox(&config.node.state_dir);
    match payloads {
        Some(payloads) if !mailbox.exists() => Ok(payloads.keep_only(&BTreeSet::new())?),
        _ => Ok(()),
    }
}

/// Serves the socket until dropped.
///
/// # Errors
/// When the socket cannot be made.
pub(super) fn serve(
    config: &Config,
    service: &Service,
    shell: &Arc<Shell>,
    sockets: &Sockets,
    payloads: Option<Arc<Payloads>>,
) -> Result<Option<AbortOnDropHandle<()>>, ApiError> {
    let Some(of) = &config.applications else {
        return Ok(None);
    };
    let listener = unix_socket("applications.socket", &of.socket, sockets)?;
    let sender = Arc::new(Sender {
        shell: shell.clone(),
        node: config.node.number,
        class: class(config, of),
    });
    let clients = Clients {
        service: service.clone(),
        sender,
        limit: Arc::new(Semaphore::new(of.max_clients)),
        max_payload_bytes: of.max_payload_bytes,
        payloads,
    };
    Ok(Some(super::background(clients.accept(listener))))
}

fn class(config: &Config, of: &ApplicationsConfig) -> Class {
    let named = of.class.as_ref();
    let named = named.and_then(|name| class_named(&config.classes, name));
    named.unwrap_or_else(|| super::engine::lowest_class(config))
}

struct Clients {
    service: Service,
    sender: Arc<Sender>,
    limit: Arc<Semaphore>,
    max_payload_bytes: u32,
    payloads: Option<Arc<Payloads>>,
}

impl Clients {
    /// Clients end with this task.
    async fn accept(self, listener: UnixListener) {
        let mut clients = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = clients.join_next() => continue,
            };
            let socket = match accepted {
                Ok((socket, _)) => socket,
                Err(error) => {
                    tracing::warn!(%error, "no application can connect");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Ok(permit) = self.limit.clone().try_acquire_owned() else {
                // This does not wait: an empty socket takes so short a frame.
                let _ = tokio::time::timeout(ACCEPT_PAUSE, turn_away(socket)).await;
                continue;
            };
            let (service, sender) = (self.service.clone(), self.sender.clone());
            let (most, payloads) = (self.max_payload_bytes, self.payloads.clone());
            clients.spawn(async move {
                let served = serve_client(socket, &service, sender, most, payloads);
                if let Err(error) = served.await {
                    tracing::debug!(%error, "an application is cut off");
                }
                drop(permit);
            });
        }
    }
}

/// Sends what applications give.
struct Sender {
    shell: Arc<Shell>,
    node: u64,
    class: Class,
}

impl Node for Sender {
    fn number(&self) -> u64 {
        self.node
    }

    fn endpoint(&self, service: u64) -> Option<Eid> {
        self.shell.read_any(|engine| engine.endpoint(service))
    }

    fn send(&self, bundle: Outgoing) -> Result<Option<(u64, u64)>, SendError> {
        let endpoint = self.endpoint(bundle.service).ok_or(SendError::Source)?;
        let asked = |kind| bundle.reports.contains(&kind);
        let reports = (!bundle.reports.is_empty()).then(|| ReportRequest {
            to: endpoint.clone(),
            reception: asked(Reported::Received),
            forwarding: asked(Reported::Forwarded),
            delivery: asked(Reported::Delivered),
            deletion: asked(Reported::Deleted),
        });
        let send = Send {
            destination: bundle.destination,
            service: bundle.service,
            class: self.class,
            payload: vec![bundle.payload],
            lifetime: bundle.lifetime,
            custody: bundle.custody,
            last: false,
            label: 0,
            reports,
        };
        let sent = self.shell.send_for_application(send, bundle.file);
        Ok(sent?.created)
    }
}

/// Takes what comes for applications.
struct Desk {
    shell: Arc<Shell>,
    service: Service,
    class: Class,
    services: Arc<Applications>,
    answers: Mutex<Option<Echo>>,
}

impl ApplicationDesk for Desk {
    fn bundle(&self, delivery: Delivery) {
        if !self.services.echoes(delivery.service) {
            self.service.arrived(delivery);
            return;
        }
        let now = Instant::now();
        let source = &delivery.source;
        // A node with a number is found by that number, without asking a shard for its route.
        let named = matches!(source, Eid::Dtn(..));
        let back = named.then(|| self.shell.read_any(|engine| engine.named_next_hop(source)));
        let back = back.flatten();
        let mut answers = self.answers.lock().unwrap();
        let answer = answers
            .as_mut()
            .and_then(|echo| echo.answer(now, delivery, back));
        drop(answers);
        let Some(mut answer) = answer else {
            return;
        };
        answer.class = self.class;
        let to = answer.destination.clone();
        if let Err(error) = self.shell.send_for_application(answer, None) {
            tracing::debug!(%to, %error, "a ping is not answered");
        }
    }

    fn report(&self, report: Report) {
        self.service.report(report);
    }
}
