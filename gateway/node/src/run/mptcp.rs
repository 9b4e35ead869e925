//! The node's part of the kernel's MPTCP path manager, set by the helper.

use std::sync::{Arc, Mutex};

use socket2::{Domain, Protocol, Socket, Type};

use crate::config::Config;
use crate::path_manager::Wanted;
use crate::privileged::{Helper, HelperError};

/// What the kernel has for MPTCP, and what was set there.
#[derive(Debug)]
pub struct Mptcp {
    helper: Option<Arc<Helper>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What was last asked for; none while no path or listener has MPTCP.
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

    /// Sets what another configuration asks for. What cannot be set is told, and
    /// what the system has is used.
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
        if let Some(error) = wanted.as_ref().and_then(|_| missing()) {
            problems.insert(
                0,
                format!("sessions are over plain TCP: the kernel has no MPTCP: {error}"),
            );
        }
        for problem in &problems {
            tracing::warn!(problem, "MPTCP");
        }
        *state = State { wanted, problems };
    }

    /// What is wanted, if anything, and what of it there is not.
    pub fn state(&self) -> Option<(Wanted, Vec<String>)> {
        let state = self.state.lock().unwrap();
        let problems = state.problems.clone();
        state.wanted.clone().map(|wanted| (wanted, problems))
    }
}

/// Why the kernel makes no sockets of MPTCP.
fn missing() -> Option<std::io::Error> {
    Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).err()
}
