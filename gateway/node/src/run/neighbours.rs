//! A node's connections to its neighbours: sessions, beacons, paths on demand, and reports of
//! modems about their links.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;

use super::foundation::Foundation;
use super::links::{self, Links};
use super::mptcp::Mptcp;
use super::node_core::Core;
use super::on_demand::{self, OnDemandPaths};
use super::{RunError, background, beacons, congestion_controls};
use crate::modem;
use crate::privileged::PathCommands;
use crate::shell::LinkBeacons;
use crate::upgrade::EarlySessions;

/// The ways to a node's neighbours.
pub(super) struct Neighbours {
    pub links: Arc<Links>,
    pub beacons: Arc<beacons::Opener>,
    pub on_demand: Arc<OnDemandPaths>,
    /// The programs that the helper has for paths.
    pub commands: BTreeMap<String, PathCommands>,
    pub mptcp: Arc<Mptcp>,
    /// What was found about congestion controls, for people.
    pub congestion_controls: Vec<String>,
}

impl Neighbours {
    /// Opens them; `links` are those of the early sessions, if there are any.
    ///
    /// # Errors
    /// When an address or a key cannot be used.
    pub fn open(
        foundation: &Foundation,
        core: &Core,
        early: &EarlySessions,
        links: Option<Links>,
        tasks: &mut Vec<AbortOnDropHandle<()>>,
    ) -> Result<Neighbours, RunError> {
        let (config, run, up) = (&foundation.config, &foundation.run, &foundation.up);
        let shell = &core.shell;
        let mptcp = Mptcp::start(config, core.helper.clone());
        let (congestion, congestion_controls) =
            congestion_controls::keep(config, core.helper.clone());
        tasks.push(background(congestion));
        let beacons = beacons::Opener::new(run.incarnation, run.begun, shell, &run.sockets);
        let beacons = Arc::new(beacons);
        let endpoints = LinkBeacons::default();
        beacons.open(config, shell, &endpoints)?;
        shell.set_beacons(endpoints);
        let links = match links {
            Some(links) => {
                let node: Arc<dyn underpass_cla::Node> = shell.clone();
                early.open(&node);
                links.begin();
                links
            }
            None => links::open(config, run, &foundation.security, shell.clone(), up, false)?,
        };
        let links = Arc::new(links);
        let commands = config.path_commands();
        let on_demand = OnDemandPaths::start(
            on_demand::Parts {
                shell: shell.clone(),
                links: links.clone(),
                beacons: beacons.clone(),
                current: foundation.current.clone(),
                helper: core.helper.clone(),
                commands: commands.clone(),
            },
            up,
        );
        if let Some(orders) = shell.path_orders() {
            tasks.push(background(on_demand.clone().follow(orders)));
        }
        tasks.push(background(foundation.security.clone().watch(links.clone())));
        for config in &config.modems {
            let listener = modem::listen(config, &run.sockets)?;
            let (shell, path) = (shell.clone(), config.path.clone());
            let said = move |blocked| shell.modem_says(&path, blocked);
            tasks.push(background(modem::serve(listener, config.clone(), said)));
        }
        Ok(Neighbours {
            links,
            beacons,
            on_demand,
            commands,
            mptcp,
            congestion_controls,
        })
    }
}
