//! Plans: a hub takes them from the control service or an operator, follows those of its forward
//! link, and passes each terminal its part of the return link's plan. A terminal takes its part,
//! keeps it over a restart, and follows it.
//!
//! The links follow plans inside the engine; this module brings the plans there.

mod parts;
mod saved;
mod sending;
mod taking;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use thiserror::Error;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;
use underpass_engine::HopId;
use underpass_plans::{Acknowledgement, Direction, Plan, PlanError, Refused};

use crate::clock::ControlClock;
use crate::config::{Config, Current, Role};
use crate::shell::Shell;
use parts::Parts;
use saved::SavedPlans;

pub use parts::PartView;
pub(super) use taking::way_of;

/// Tells the control service that a plan was taken over.
pub type Acknowledge = Box<dyn Fn(Acknowledgement) + Send + Sync>;

/// Why a document was not taken.
#[derive(Debug, Error)]
pub enum TakeError {
    /// It is no plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// It is not followed here.
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("plans of {0} beams are passed on already")]
    Beams(usize),
    #[error("no path to node {neighbour:?} follows the plans of beam {beam:?}")]
    NoPath {
        beam: String,
        /// Where the plan came from, if from another node.
        neighbour: Option<u64>,
    },
}

pub struct Plans {
    shell: Arc<Shell>,
    clock: Arc<ControlClock>,
    config: Arc<Current>,
    acknowledge: Acknowledge,
    /// What terminals are told.
    parts: Mutex<Parts>,
    /// Something may have to be told.
    due: Notify,
    saved: Option<SavedPlans>,
}

impl Plans {
    /// Follows plans from now on; a terminal begins with its saved ones.
    pub(crate) fn start(
        current: &Arc<Current>,
        shell: &Arc<Shell>,
        clock: &Arc<ControlClock>,
        acknowledge: Acknowledge,
    ) -> (Arc<Plans>, Option<AbortOnDropHandle<()>>) {
        let config = current.get();
        let is_terminal = config.node.role == Role::Terminal;
        let plans = Arc::new(Plans {
            shell: shell.clone(),
            clock: clock.clone(),
            config: current.clone(),
            acknowledge,
            parts: Mutex::default(),
            due: Notify::new(),
            saved: is_terminal.then(|| SavedPlans::new(&config.node.state_dir)),
        });
        plans.restore();
        let task = match config.node.role {
            Role::Hub => Some(super::background(sending::run(plans.clone()))),
            Role::Terminal => Some(super::background(saved::run(plans.clone()))),
            Role::Relay => None,
        };
        if takes_part(&config) {
            let service = Arc::new(taking::Receiver::of(&plans));
            shell.register(underpass_plans::SERVICE, service);
        }
        (plans, task)
    }

    /// Takes a plan, as a document.
    ///
    /// # Errors
    /// When it is none, is not newer than what is followed, or does not concern
    /// this node.
    pub fn take(&self, document: &[u8]) -> Result<Arc<Plan>, TakeError> {
        let plan = Arc::new(Plan::decode(document)?);
        self.take_plan(&plan)?;
        tracing::info!(
            beam = plan.beam(),
            link = plan.link().name(),
            version = plan.version(),
            terminals = plan.terminals().count(),
            "plan taken"
        );
        Ok(plan)
    }

    fn take_plan(&self, plan: &Arc<Plan>) -> Result<(), TakeError> {
        match (self.config.get().node.role, plan.link()) {
            (Role::Hub, Direction::Forward) => self.follow_forward(plan),
            (Role::Hub, Direction::Return) => self.pass_on(plan),
            (Role::Terminal, Direction::Return) => self.follow_return(plan, None),
            (_, link) => Err(Refused::Link(link).into()),
        }
    }

    fn follow_forward(&self, plan: &Arc<Plan>) -> Result<(), TakeError> {
        if let Some(beam) = &self.config.get().beam.id
            && beam != plan.beam()
        {
            return Err(TakeError::Refused(Refused::Beam {
                beam: plan.beam().to_owned(),
                known: beam.clone(),
            }));
        }
        self.shell.tell_time(&self.clock);
        self.shell.follow_forward(plan)?;
        self.acknowledge(plan, None);
        Ok(())
    }

    /// Lets a path follow a plan that came from a neighbour, or from here.
    fn follow_return(&self, plan: &Arc<Plan>, neighbour: Option<u64>) -> Result<(), TakeError> {
        let path = self.path_for(plan.beam(), neighbour);
        let (name, hop) = path.ok_or_else(|| TakeError::NoPath {
            beam: plan.beam().to_owned(),
            neighbour,
        })?;
        self.shell.tell_time(&self.clock);
        self.shell.with_hop(hop, |engine, now| {
            engine.follow_return(now, hop, plan.clone())
        })?;
        if let Some(saved) = &self.saved {
            saved.insert(&name, plan.clone());
        }
        self.acknowledge(plan, Some(self.config.get().node.number));
        Ok(())
    }

    /// The path that follows the plans of a beam: the one that names it, otherwise the first that
    /// names none.
    fn path_for(&self, beam: &str, neighbour: Option<u64>) -> Option<(String, HopId)> {
        let config = self.config.get();
        let paths = config.paths.iter();
        let there = paths.filter(|path| neighbour.is_none_or(|node| path.neighbour == node));
        let named = there
            .clone()
            .find(|path| path.beam.as_deref() == Some(beam));
        let path = named.or_else(|| there.clone().find(|path| path.beam.is_none()))?;
        let hop = self.shell.hop_named(&path.name)?;
        Some((path.name.clone(), hop))
    }

    /// Passes the terminals of this hub their parts.
    fn pass_on(&self, plan: &Arc<Plan>) -> Result<(), TakeError> {
        let terminals = reached(&self.config.get());
        let now_ms = self.clock.now_ms().unwrap_or(0);
        self.parts().take(plan, now_ms, &terminals)?;
        self.due.notify_one();
        Ok(())
    }

    fn acknowledge(&self, plan: &Plan, terminal: Option<u64>) {
        // Without the time, no terminal can be sent its part either.
        if let Some(applied_ms) = self.clock.now_ms() {
            (self.acknowledge)(Acknowledgement {
                beam: plan.beam().to_owned(),
                link: plan.link(),
                version: plan.version(),
                applied_ms,
                terminal,
            });
        }
    }

    /// What terminals are told, by beam.
    pub fn passed_on(&self) -> Vec<PartView> {
        let stored = |id| self.shell.has_bundle(id);
        self.parts().views(stored)
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap()
    }
}

/// Whether this node sends or takes plans as messages.
pub(crate) fn takes_part(config: &Config) -> bool {
    config.node.role != Role::Relay && !config.neighbours().is_empty()
}

/// The terminals that a hub has a way to.
pub(super) fn reached(config: &Config) -> BTreeSet<u64> {
    let own = config.terminals.iter().map(|terminal| terminal.node);
    own.chain(config.routes.iter().filter_map(|route| route.node))
        .collect()
}
