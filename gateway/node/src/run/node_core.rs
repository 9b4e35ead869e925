//! The engines in their shell, with what outlives a process: custody, budgets, holds of operators.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio_util::task::AbortOnDropHandle;
use underpass_engine::Engine;

use super::contacts::ContactRouting;
use super::custody::{self, OpenCustody};
use super::foundation::Foundation;
use super::links::{self, Links};
use super::{RunError, background, on_demand};
use crate::budgets::KeptBudgets;
use crate::clock;
use crate::holds::KeptHolds;
use crate::incarnation;
use crate::privileged::Helper;
use crate::shell::{self, Directory, Inbound, Shell};
use crate::upgrade::{Connections, EarlySessions, Predecessor};

/// An upper bound for the state of a node beside its custody, bytes.
const MOST_STATE_BYTES: u64 = 16 << 30;

/// The parts that move all bundles and streams.
pub(super) struct Core {
    pub shell: Arc<Shell>,
    pub custody: Arc<OpenCustody>,
    pub budgets: Arc<KeptBudgets>,
    pub holds: Arc<KeptHolds>,
    pub contacts: Arc<ContactRouting>,
    pub helper: Option<Arc<Helper>>,
    /// The number of this process's counters: a process that takes a node over begins to count
    /// again.
    pub counted: u64,
}

/// What the previous process has left, and what comes in.
pub(super) struct Arriving {
    /// Streams that peers open.
    pub inbound: UnboundedReceiver<Inbound>,
    /// Sessions that were set up while the previous process still had the node.
    pub early: Arc<EarlySessions>,
    pub links: Option<Links>,
    /// Clients' connections.
    pub connections: Option<Connections>,
}

/// Tells engines the time.
pub(crate) fn set_clocks(engines: &mut [Engine]) {
    for engine in engines {
        if let Some(dtn_time_ms) = clock::dtn_time_ms() {
            engine.set_clock(Instant::now(), dtn_time_ms);
        }
        engine.set_utc(Instant::now(), clock::utc_ms());
    }
}

impl Core {
    /// Begins with the bundles in custody, or continues where the previous process was. From then
    /// on this process has the node.
    ///
    /// # Errors
    /// When custody cannot be used, or the previous process does not give its node up.
    pub fn begin(
        foundation: &Foundation,
        predecessor: Option<&mut Predecessor>,
        helper: Option<Helper>,
        tasks: &mut Vec<AbortOnDropHandle<()>>,
    ) -> Result<(Core, Arriving), RunError> {
        let early = Arc::<EarlySessions>::default();
        let begun = Core::begin_with(foundation, predecessor, helper, tasks, &early);
        if begun.is_err() {
            // Nothing is dialled or accepted any more.
            early.give_up();
        }
        begun
    }

    fn begin_with(
        foundation: &Foundation,
        mut predecessor: Option<&mut Predecessor>,
        helper: Option<Helper>,
        tasks: &mut Vec<AbortOnDropHandle<()>>,
        early: &Arc<EarlySessions>,
    ) -> Result<(Core, Arriving), RunError> {
        let (config, run) = (&foundation.config, &foundation.run);
        let directory = Directory::new(&foundation.engine, config.node.shards());
        let most = config.custody.quota_bytes.saturating_add(MOST_STATE_BYTES);
        let (links, taken) = match &mut predecessor {
            None => (None, None),
            Some(before) => {
                let links = before.set_up_sessions(early, || {
                    links::open(
                        config,
                        run,
                        &foundation.security,
                        early.clone(),
                        &foundation.up,
                        true,
                    )
                })?;
                let mut taken = before.take(most)?;
                if let Some(links) = &links {
                    links.refuse_blocks(std::mem::take(&mut taken.unfinished_blocks));
                }
                (links, Some(taken))
            }
        };
        let (stores, custody) = custody::open(config, |node| directory.of_peer(node))?;
        let now = Instant::now();
        let (mut engines, streams, connections, inherited) = match taken {
            None => (
                Engine::of_shards(now, &foundation.engine, stores)?,
                Vec::new(),
                None,
                None,
            ),
            Some(taken) => (
                Engine::take_over(now, &foundation.engine, stores, taken.engines)?,
                taken.streams,
                Some(taken.connections),
                taken.helper,
            ),
        };
        set_clocks(&mut engines);
        let (inbound_sender, inbound) = mpsc::unbounded_channel();
        let shell = Shell::new(engines, &foundation.engine, inbound_sender);
        shell.take_edges(streams);
        on_demand::go_on(&shell, &foundation.up);
        // The previous process has counted budgets until here.
        let budgets = Arc::new(KeptBudgets::load(&config.node.state_dir));
        budgets.step(&shell, false);
        // This comes before any session is up: a path that is held blocked must send nothing.
        let holds = Arc::new(KeptHolds::load(&config.node.state_dir));
        holds.apply(&shell, config);
        let contacts = ContactRouting::start(config, &shell);
        let counted = match predecessor {
            Some(before) => {
                // If the state folder cannot be written, the previous process continues. If this
                // number is not used after all, it is skipped.
                let counted = incarnation::next(&config.node.state_dir, SystemTime::now())?;
                before.confirm()?;
                counted
            }
            None => run.incarnation,
        };
        tasks.extend(shell::drivers(&shell).into_iter().map(background));
        let open_custody = Arc::new(OpenCustody::default());
        if let Some(custody) = custody {
            open_custody.set(custody, &shell);
        }
        let core = Core {
            shell,
            custody: open_custody,
            budgets,
            holds,
            contacts,
            // A helper that is dropped ends for both processes, so it is this one's only now.
            helper: helper
                .or_else(|| inherited.map(Helper::of_predecessor))
                .map(Arc::new),
            counted,
        };
        let arriving = Arriving {
            inbound,
            early: early.clone(),
            links,
            connections,
        };
        Ok((core, arriving))
    }
}
