//! MPTCP, as the local API shows it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::view::PathView;
use crate::path_manager::{EndpointKind, Wanted};

/// What the kernel's path manager was asked for.
#[derive(Debug, Serialize, Deserialize)]
pub struct MptcpView {
    /// Addresses that subflows begin at.
    pub subflow_endpoints: Vec<String>,
    /// Addresses that peers are told.
    pub signal_endpoints: Vec<String>,
    /// What could not be set; sessions then use the system's settings.
    pub problems: Vec<String>,
}

impl MptcpView {
    pub(super) fn of((wanted, problems): (Wanted, Vec<String>)) -> MptcpView {
        let (begun, told): (Vec<_>, Vec<_>) = wanted
            .endpoints
            .iter()
            .partition(|endpoint| endpoint.kind == EndpointKind::Subflow);
        let addresses = |endpoints: Vec<&crate::path_manager::Endpoint>| {
            let addresses = endpoints.into_iter();
            addresses.map(|each| each.address.to_string()).collect()
        };
        MptcpView {
            subflow_endpoints: addresses(begun),
            signal_endpoints: addresses(told),
            problems,
        }
    }
}

impl fmt::Display for MptcpView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |addresses: &[String]| match addresses {
            [] => "those of the system".to_owned(),
            some => some.join(", "),
        };
        writeln!(
            f,
            "MPTCP: subflows from {}; told to peers: {}",
            list(&self.subflow_endpoints),
            list(&self.signal_endpoints)
        )?;
        let mut problems = self.problems.iter();
        problems.try_for_each(|problem| writeln!(f, "MPTCP: {problem}"))
    }
}

/// The sessions of a path that were to be over MPTCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathMptcp {
    pub sessions: u64,
    pub subflows: u64,
    /// Sessions over plain TCP, since the neighbour or the kernel has no MPTCP.
    pub fallback_sessions: u64,
}

impl PathMptcp {
    /// None where no session was to be over MPTCP.
    pub(super) fn of(path: &PathView) -> Option<PathMptcp> {
        let sessions = path.sessions.iter();
        let subflows: Vec<u32> = sessions.filter_map(|session| session.subflows).collect();
        let fallen_back = subflows.iter().filter(|count| **count == 0).count();
        (!subflows.is_empty()).then(|| PathMptcp {
            sessions: (subflows.len() - fallen_back) as u64,
            subflows: subflows.iter().map(|count| u64::from(*count)).sum(),
            fallback_sessions: fallen_back as u64,
        })
    }
}
