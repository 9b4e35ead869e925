//! Assembles the reporting parts: a terminal reports to its hub, a hub to the control service.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::task::AbortOnDropHandle;
use underpass_control_client::{Poster, Service};

use super::background;
use super::control::{self, ControlError};
use super::reports::{
    self, Intake, Prover, ReportSender, Reporter, Sending, tell_status, watch_blockages,
};
use crate::clock::ControlClock;
use crate::config::Config;
use crate::security::Security;
use crate::shell::Shell;
use crate::traces::Tracer;

pub(super) struct Reporting {
    /// Says how the links are.
    pub reporter: Arc<Reporter>,
    /// Takes reports of any part of the node, if the node reports.
    pub sender: Option<ReportSender>,
    /// Sends a terminal's reports.
    pub sending: Option<Sending>,
    /// Takes terminals' reports in, at a hub.
    pub intake: Option<Arc<Intake>>,
    /// The control service, where there is one.
    pub service: Option<Arc<Service>>,
    pub poster: Option<Poster>,
    tasks: Vec<AbortOnDropHandle<()>>,
}

impl Reporting {
    /// Begins to report as the configuration says. `incarnation` and `started`
    /// are this run's.
    pub fn start(
        config: &Config,
        shell: &Arc<Shell>,
        clock: &Arc<ControlClock>,
        security: &Security,
        incarnation: u64,
        started: Instant,
        tracer: Option<&Arc<Tracer>>,
    ) -> Result<Reporting, ControlError> {
        let reporter = Reporter::new(
            shell.clone(),
            config,
            clock.clone(),
            security.clone(),
            Prover::of(config)?,
        );
        let mut reporting = Reporting {
            reporter: Arc::new(reporter),
            sender: None,
            sending: None,
            intake: None,
            service: None,
            poster: None,
            tasks: Vec::new(),
        };
        if let Some(settings) = &config.control {
            let (sender, made) = ReportSender::new(incarnation, started);
            let (service, poster) = control::post(config, settings, shell, clock, tracer)?;
            let own = control::post_own(config.node.number, made, poster.posting());
            reporting.tasks.push(background(own));
            reporting.service = Some(service);
            reporting.poster = Some(poster);
            reporting.tell(sender, settings.interval(), shell, clock);
        }
        if let Some(settings) = &config.reports {
            let (sender, made) = ReportSender::new(incarnation, started);
            let sending = Sending::start(config, settings.to, shell.clone(), made);
            reporting.sending = Some(sending);
            reporting.tell(sender, settings.interval(), shell, clock);
        }
        if reports::takes_in(config) {
            let posting = reporting.poster.as_ref().map(Poster::posting);
            reporting.intake = Some(Intake::start(shell, posting));
        }
        Ok(reporting)
    }

    /// Reports status and blockages from now on.
    fn tell(
        &mut self,
        sender: ReportSender,
        interval: Duration,
        shell: &Arc<Shell>,
        clock: &Arc<ControlClock>,
    ) {
        let status = tell_status(self.reporter.clone(), sender.clone(), interval);
        let (reporter, clock, events) = (self.reporter.clone(), clock.clone(), shell.link_events());
        let blockages = watch_blockages(events, reporter, clock, sender.clone());
        self.tasks
            .extend([background(status), background(blockages)]);
        self.sender = Some(sender);
    }

    /// Ends; waiting reports are kept as durably as this node can.
    pub async fn finish(self) {
        if let Some(sending) = self.sending {
            sending.finish().await;
        }
        if let Some(poster) = self.poster {
            poster.close().await;
        }
    }
}
