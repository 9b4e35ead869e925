//! The node's part of the kernel's MPTCP path manager, set by the helper.

use std::sync::{Arc, Mutex};

use socket2::{Domain, Protocol, Socket, Type};

use crate::config::Config;
use crate::path_manager::Wanted;
use crate::privileged::{Helper, HelperError};

/// The kernel's MPTCP, and what was set there.
#[derive(Debug)]
pub struct Mptcp {
    helper: Option<Arc<Helper>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What was last requested; none while no path or listener uses MPTCP.
    wanted: Option<Wanted>,
    problems: Vec<String>,
}

impl Mptcp {
    /// Sets what a configuration asks for.
    pub fn start(config: &Config, helper: Option<Arc<Helper>>) -> Arc<Mptcp> {
        let mptcp = Mptcp {
            helper,
            state: Mutex::default(),
        };
        mptcp.set(config);
        Arc::new(mptcp)
    }

    /// Sets what another configuration asks for. What cannot be set is logged, and the system's own
    /// settings are used.
    pub fn set(&self, config: &Config) {
        let mut state = self.state.lock().unwrap();
        let wanted = config.path_manager();
        if state.wanted == wanted {
            return;
        }
        let asked = wanted.clone().unwrap_or_default();
        let mut problems = match &self.helper {
            Some(helper) => helper.manage_paths(asked),
            None => Err(HelperError::Lost),
        }
        .unwrap_or_else(|error| vec![error.to_string()]);
        if wanted.is_some() {
            problems.extend(missing());
        }
        for problem in &problems {
            tracing::warn!(problem, "MPTCP");
        }
        *state = State { wanted, problems };
    }

    /// What is wanted, if anything, and which parts could not be set.
    pub fn state(&self) -> Option<(Wanted, Vec<String>)> {
        let state = self.state.lock().unwrap();
        let problems = state.problems.clone();
        state.wanted.clone().map(|wanted| (wanted, problems))
    }
}

/// What the kernel lacks for MPTCP, a line each.
pub(super) fn missing() -> Vec<String> {
    const PATH_MANAGER: &str = "/proc/sys/net/mptcp/pm_type";
    let mut lines = Vec::new();
    if let Err(error) = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)) {
        lines.push(format!(
            "sessions are over plain TCP: the kernel has no MPTCP, or net.mptcp.enabled = 0: {error}"
        ));
    }
    // Its own is number 0; with another one, endpoints have no effect.
    if std::fs::read_to_string(PATH_MANAGER).is_ok_and(|number| number.trim() != "0") {
        lines.push(
            "net.mptcp.pm_type is not 0: endpoints are left to a program that manages paths"
                .to_owned(),
        );
    }
    lines
}
