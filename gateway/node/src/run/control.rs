//! A hub's contact with the control service: reports go there, plans come
//! from there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::sync::mpsc;
use underpass_control_client::{
    ConfigError, Follower, Following, Lane, Planned, PostTrace, Poster, PosterConfig, Posting,
    Service, ServiceConfig, SpoolError, Taken, Teller, Trust,
};
use underpass_reports::Kind;

use super::plans::Plans;
use super::provider::Provider;
use super::questions::Questions;
use super::reports::{Made, TokenError};
use crate::clock::ControlClock;
use crate::config::{Config, ControlConfig};
use crate::shell::Shell;
use crate::traces::Tracer;

/// Why a node cannot work with its control service.
#[derive(Debug, Error)]
pub enum ControlError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("control.spool_file {path}: {source}")]
    Spool {
        path: std::path::PathBuf,
        source: SpoolError,
    },
    /// A terminal cannot prove where it is.
    #[error(transparent)]
    Token(#[from] TokenError),
}

/// The contact, for API and metrics.
#[derive(Debug)]
pub struct Contacts {
    /// Reports on their way.
    pub posting: Posting,
    /// The stream of plans.
    pub following: Following,
}

/// Whether terminals keep their reports in custody until they are safe here.
pub(crate) fn confirms(config: &Config) -> bool {
    config.control.is_some() && config.custody.is_durable()
}

/// The service that the configuration names.
///
/// # Errors
/// When the token or the certificates cannot be used.
pub(crate) fn service(config: &ControlConfig) -> Result<Service, ConfigError> {
    Service::new(ServiceConfig {
        url: config.url.clone(),
        token_file: Some(config.token_file.clone()),
        trust: config.ca_file.clone().map_or(Trust::System, Trust::File),
        timeout: Duration::from_secs(config.timeout_s),
    })
}

/// Begins to post reports to the service that the configuration names.
pub(super) fn post(
    config: &Config,
    control: &ControlConfig,
    shell: &Arc<Shell>,
    clock: &Arc<ControlClock>,
    tracer: Option<&Arc<Tracer>>,
) -> Result<(Arc<Service>, Poster), ControlError> {
    let service = Arc::new(service(control)?);
    let spool_file = confirms(config).then(|| control.spool_file(&config.node.state_dir));
    let poster = PosterConfig {
        node: config.node.number,
        interval: control.interval(),
        spool_file: spool_file.clone(),
        spool_bytes: control.spool_bytes,
    };
    let hub = Arc::new(Hub {
        shell: shell.clone(),
        clock: clock.clone(),
        tracer: tracer.cloned(),
    });
    let started = Poster::start(&poster, service.clone(), hub);
    let started = started.map_err(|source| ControlError::Spool {
        path: spool_file.unwrap_or_default(),
        source,
    });
    Ok((service, started?))
}

/// Begins to follow the stream of plans, settings and questions.
pub(super) fn follow(
    config: &Config,
    service: Arc<Service>,
    plans: Arc<Plans>,
    provider: Arc<Provider>,
    questions: Questions,
) -> Follower {
    let taking = Taking {
        plans,
        provider,
        questions,
    };
    Follower::start(config.node.number, service, Arc::new(taking))
}

/// Posts this hub's own reports, until `made` ends.
pub(super) async fn post_own(node: u64, mut made: mpsc::Receiver<Made>, posting: Posting) {
    while let Some(Made { report, at }) = made.recv().await {
        match serde_json::to_string(&report) {
            Ok(text) => {
                let taken = Taken {
                    lane: lane(report.kind()),
                    made: at,
                    report: text.into(),
                };
                posting.take(node, vec![taken], None);
            }
            Err(error) => tracing::error!(%error, "report not posted"),
        }
    }
}

/// How soon a kind of reports is posted.
pub(super) fn lane(kind: Kind) -> Lane {
    match kind {
        Kind::Status => Lane::Routine,
        Kind::Plan | Kind::Settings | Kind::Announcement | Kind::Blockage | Kind::Position => {
            Lane::Urgent
        }
    }
}

/// What the poster tells.
struct Hub {
    shell: Arc<Shell>,
    clock: Arc<ControlClock>,
    tracer: Option<Arc<Tracer>>,
}

impl Teller for Hub {
    fn trace_post(&self) -> Option<Box<dyn PostTrace>> {
        self.tracer.as_ref()?.post()
    }

    fn release(&self, ticket: u64) {
        self.shell.confirm(ticket);
    }

    fn control_time(&self, at: Instant, control_ms: u64) {
        self.clock.set(at, control_ms);
    }
}

/// Where plans, settings and questions go.
struct Taking {
    plans: Arc<Plans>,
    provider: Arc<Provider>,
    questions: Questions,
}

impl Planned for Taking {
    fn plan(&self, document: &[u8]) {
        if let Err(error) = self.plans.take(document) {
            tracing::warn!(%error, "plan of the control service not taken");
        }
    }

    fn settings(&self, document: &[u8]) {
        if let Err(error) = self.provider.take(document) {
            tracing::warn!(%error, "settings of the control service not taken");
        }
    }

    fn streams(&self, question: &[u8]) {
        if let Err(error) = self.questions.take(question) {
            tracing::warn!(%error, "question of the control service not taken");
        }
    }
}
