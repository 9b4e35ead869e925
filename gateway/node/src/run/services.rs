//! What a node does besides moving bundles: applications, deferred requests, reports, plans and
//! settings, positions, traces.

use std::sync::Arc;
use std::time::Instant;

use tokio_util::task::AbortOnDropHandle;
use underpass_applications as applications;
use underpass_control_client::Follower;
use underpass_deferred::Handle;
use underpass_reports::{Body, PlanAcknowledgement};

use super::control::{self, Contacts};
use super::foundation::Foundation;
use super::node_core::Core;
use super::plans::{Acknowledge, Plans};
use super::provider::{self, Provider};
use super::questions::Questions;
use super::reporting::Reporting;
use super::reports::ReportSender;
use super::{RunError, background, deferred, provision};
use crate::clock::ControlClock;
use crate::config::Role;
use crate::positions::{self, Positions};
use crate::provider::KeptSettings;
use crate::traces::Tracer;

/// The services of a node, as its configuration has them.
pub(super) struct Services {
    pub started: Instant,
    pub applications: Option<applications::Service>,
    pub deferred: Option<Handle>,
    pub control_clock: Arc<ControlClock>,
    pub tracer: Option<Arc<Tracer>>,
    pub reporting: Reporting,
    pub plans: Arc<Plans>,
    pub settings: Arc<KeptSettings>,
    pub provider: Arc<Provider>,
    pub follower: Option<Follower>,
    pub positions: Option<Arc<Positions>>,
}

impl Services {
    /// Starts them.
    ///
    /// # Errors
    /// When one of them cannot start.
    pub fn start(
        foundation: &Foundation,
        core: &Core,
        settings: KeptSettings,
        tasks: &mut Vec<AbortOnDropHandle<()>>,
    ) -> Result<Services, RunError> {
        let (config, current) = (&foundation.config, &foundation.current);
        let shell = &core.shell;
        let payloads = foundation.payloads.as_ref();
        if let Some(payloads) = payloads {
            shell.attach_payloads(payloads.clone(), config.long_above_bytes());
        }
        let desks = foundation.engine.agent.applications.as_ref();
        let applications = super::applications::open(config, desks, shell, payloads)?;
        let (deferred, exchanges) = deferred::start(config, shell, &foundation.dialler)?.unzip();
        tasks.extend(exchanges);
        let started = Instant::now();
        let control_clock = Arc::new(ControlClock::default());
        let tracer = Tracer::start(config)?;
        if let Some(tracer) = &tracer {
            tasks.push(background(tracer.clone().follow(shell.link_events())));
        }
        let reporting = Reporting::start(
            config,
            shell,
            &control_clock,
            &foundation.security,
            core.counted,
            started,
            tracer.as_ref(),
        )?;
        let acknowledge = acknowledge_plans(reporting.sender.clone());
        let (plans, telling) = Plans::start(current, shell, &control_clock, acknowledge);
        tasks.extend(telling);
        let settings = Arc::new(settings);
        let provider = Provider::start(current, shell, &settings);
        if config.node.role == Role::Hub {
            tasks.push(background(provider::pass_on(provider.clone())));
        }
        let service = reporting.service.clone();
        let certificates = provision::start(current, shell, &foundation.time, service.clone());
        tasks.extend(certificates);
        let follower = service.map(|service| {
            let (questions, answering) = Questions::start(current, shell, service.clone());
            tasks.extend(answering);
            let (plans, provider) = (plans.clone(), provider.clone());
            control::follow(config, service, plans, provider, questions)
        });
        let receiver = config.positions.clone().zip(reporting.sender.clone());
        let positions = receiver.map(|(config, reports)| {
            Arc::new(Positions::new(config, reports, foundation.time.clone()))
        });
        if let Some(positions) = &positions {
            tasks.push(background(positions::follow(positions.clone())));
        }
        Ok(Services {
            started,
            applications,
            deferred,
            control_clock,
            tracer,
            reporting,
            plans,
            settings,
            provider,
            follower,
            positions,
        })
    }

    /// The contact with the control service, where there is one.
    pub fn contacts(&self) -> Option<Contacts> {
        let control = self.reporting.poster.as_ref().zip(self.follower.as_ref());
        control.map(|(poster, follower)| Contacts {
            posting: poster.posting(),
            following: follower.following(),
        })
    }
}

/// Reports the plans that this node follows, if it reports at all.
pub(crate) fn acknowledge_plans(reports: Option<ReportSender>) -> Acknowledge {
    Box::new(move |taken| {
        if let Some(reports) = &reports {
            reports.send(Body::Plan(PlanAcknowledgement {
                beam: taken.beam,
                link: taken.link,
                plan: taken.version,
                applied_ms: taken.applied_ms,
                terminal: taken.terminal,
            }));
        }
    })
}
