//! What a node needs before it has engines: its configuration and state folder, its certificates
//! and keys, and the number of this run.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ring::rand::{SecureRandom, SystemRandom};
use underpass_bpsec::Guard;
use underpass_edge::Edge;
use underpass_edge::dial::Dialler;
use underpass_engine::EngineConfig;
use underpass_payloads::Payloads;
use underpass_quic::ListenerKey;

use super::RunError;
use super::control::{self, ControlError};
use super::reports::Prover;
use super::{ahead, custody, engine, payloads};
use crate::api;
use crate::bpsec;
use crate::config::{Config, Current};
use crate::incarnation::Presence;
use crate::known_links::KnownLinks;
use crate::known_time::KnownTime;
use crate::privileged;
use crate::security::Security;
use crate::upgrade::{Channel, Predecessor, Sockets};

/// What all parts of a node are made with.
pub(super) struct Foundation {
    pub current: Arc<Current>,
    /// The configuration that it starts with.
    pub config: Arc<Config>,
    pub known_links: Arc<KnownLinks>,
    pub time: Arc<KnownTime>,
    pub security: Security,
    pub bpsec: Arc<Guard>,
    pub dialler: Arc<Dialler>,
    pub engine: EngineConfig,
    pub payloads: Option<Arc<Payloads>>,
    pub run: Run,
    /// The paths on demand that the previous process has brought up.
    pub up: BTreeSet<String>,
}

/// A run of a node, which more than one process may have in turn.
pub(super) struct Run {
    pub sockets: Arc<Sockets>,
    pub incarnation: u64,
    /// What the run's processes have in common for their listeners over QUIC.
    pub quic_key: ListenerKey,
    pub begun: Instant,
    /// Since when no process of the previous run is left, if known.
    pub alone_since: Option<Instant>,
}

impl Foundation {
    /// Prepares it; with a channel, for the node of the process at its other end.
    ///
    /// # Errors
    /// When a part of the configuration or of the state cannot be used.
    pub fn lay(
        mut config: Config,
        channel: Option<Channel>,
    ) -> Result<(Foundation, Option<Predecessor>), RunError> {
        let choice = custody::settle(&config);
        match choice.because {
            Some(_) => tracing::warn!("{choice}"),
            None => tracing::info!("{choice}"),
        }
        config.custody.durability = Some(choice.durability);
        config.custody.quota_bytes = choice.quota_bytes;
        let known_links = Arc::new(KnownLinks::new(&config.node.state_dir));
        known_links.tell(&mut config);
        let current = Current::new(config);
        let config = current.get();
        let time = KnownTime::load(Some(&config.node.state_dir));
        let security = Security::load(&config.tls, config.node.number, &time)?;
        let bpsec = bpsec::guard(&config)?;
        Edge::check_users(&config.edge)?;
        let (run, predecessor) = match channel {
            Some(channel) => {
                let (run, predecessor) = Run::of_predecessor(&config, channel)?;
                (run, Some(predecessor))
            }
            None => (Run::begin(&config)?, None),
        };
        let dialler = Arc::new(Dialler::new(config.edge.dial.clone()));
        let mut engine = engine::configure(&config, run.incarnation, dialler.families());
        engine.agent.security = Some(bpsec.clone());
        let payloads = payloads::open(&config)?;
        engine.agent.payloads.clone_from(&payloads);
        let up = predecessor.as_ref().map(|before| before.hello.up.clone());
        let foundation = Foundation {
            current,
            config,
            known_links,
            time,
            security,
            bpsec,
            dialler,
            engine,
            payloads,
            run,
            up: up.unwrap_or_default(),
        };
        Ok((foundation, predecessor))
    }
}

fn random_key() -> Result<ListenerKey, RunError> {
    let mut key = [0; 32];
    let filled = SystemRandom::new().fill(&mut key);
    let failed = |_| RunError::Runtime(io::Error::other("the system has no random numbers"));
    filled.map_err(failed)?;
    Ok(ListenerKey(key))
}

impl Run {
    fn begin(config: &Config) -> Result<Run, RunError> {
        let state_dir = &config.node.state_dir;
        let run = Presence::of_run(state_dir, SystemTime::now())?;
        run.presence.stay();
        Ok(Run {
            sockets: Arc::default(),
            incarnation: run.incarnation,
            quic_key: random_key()?,
            begun: Instant::now(),
            alone_since: run.alone_since,
        })
    }

    /// The run of the process at the other end of a channel, if this configuration can continue it.
    fn of_predecessor(config: &Config, channel: Channel) -> Result<(Run, Predecessor), RunError> {
        let (predecessor, sockets) = Predecessor::hear(channel)?;
        let sockets = Arc::new(sockets);
        predecessor.check(config, privileged::purpose(config).is_some())?;
        api::check(&config.api)?;
        if let Some(control) = &config.control {
            control::service(control).map_err(ControlError::from)?;
        }
        Prover::of(config).map_err(ControlError::from)?;
        ahead::bind(config, &predecessor.hello.up, &sockets)?;
        Presence::beside(&config.node.state_dir)?.stay();
        let age = Duration::from_millis(predecessor.hello.age_ms);
        let run = Run {
            sockets,
            incarnation: predecessor.hello.incarnation,
            quic_key: match predecessor.hello.quic_key {
                Some(key) => ListenerKey(key),
                None => random_key()?,
            },
            begun: Instant::now().checked_sub(age).unwrap_or_else(Instant::now),
            // What the previous process knew of it matters only in the run's first minute.
            alone_since: None,
        };
        Ok((run, predecessor))
    }
}
