//! The agent's configuration.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use underpass_backoff::Backoff;
use underpass_payloads::Payloads;

use super::accounts::Division;
use super::applications::Applications;
use super::authority::Relaying;
use super::named::NamedRoutes;
use super::own_names::OwnNames;
use super::quota::Amount;
use super::security::Security;
use crate::wire::{CodePoints, CrcKind, DecodeLimits};

/// A node that a CL session reaches, by its `ipn` node number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NeighbourId(pub u64);

impl fmt::Display for NeighbourId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ipn:{}.0", self.0)
    }
}

/// A static route. The first that matches is taken; a neighbour that is or was
/// up is a route to itself.
#[derive(Clone, Debug)]
pub struct Route {
    /// Destination node numbers.
    pub nodes: RangeInclusive<u64>,
    /// The next hop.
    pub neighbour: NeighbourId,
    /// Whether this node takes custody of bundles it forwards this way.
    pub take_custody: bool,
}

/// When a bundle that the CL has delivered is sent again because no signal has come. The time is
/// the smoothed time from the CL's acknowledgement to the signal plus four deviations, doubled at
/// each further attempt.
#[derive(Clone, Copy, Debug)]
pub struct CustodyTimer {
    /// Before anything was measured.
    pub initial: Duration,
    /// Lower bound; also the first delay after a refusal.
    pub min: Duration,
    /// Upper bound.
    pub max: Duration,
}

impl Default for CustodyTimer {
    fn default() -> Self {
        CustodyTimer {
            initial: Duration::from_secs(3),
            min: Duration::from_secs(1),
            max: Duration::from_secs(60),
        }
    }
}

impl CustodyTimer {
    /// `base`, doubled once for each attempt that has failed already, up to the
    /// upper bound.
    pub(crate) fn backed_off(&self, base: Duration, failed: u32) -> Duration {
        let max = self.max;
        Backoff { base, max }.delay(failed.saturating_add(1))
    }
}

/// Bounds of the memory of what was received.
#[derive(Clone, Copy, Debug)]
pub struct DuplicateLimits {
    /// For how long a bundle is remembered.
    pub age: Duration,
    /// Ranges of sequence numbers remembered in all, some 32 bytes each.
    pub ranges: usize,
}

impl Default for DuplicateLimits {
    fn default() -> Self {
        DuplicateLimits {
            age: Duration::from_secs(24 * 3600),
            ranges: 1 << 18,
        }
    }
}

/// The agent's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// This node's `ipn` node number.
    pub node: u64,
    /// Its endpoints of the dtn scheme. The same for all agents of a node.
    pub names: Arc<OwnNames>,
    /// A random number, new at each start of the process: it keeps creation
    /// timestamps and custody sequences of one run apart from another's.
    pub run_nonce: u64,
    /// Services that bundles to this node are delivered to.
    pub services: BTreeSet<u64>,
    /// Those among them that confirm when a bundle is safe with them: until
    /// [`crate::Agent::confirm`] it stays in custody upstream.
    pub confirming: BTreeSet<u64>,
    /// Services that belong to applications; they confirm, too. The same for
    /// all agents of a node.
    pub applications: Option<Arc<Applications>>,
    /// Neighbours to which bundles under custody go inside other bundles, with custody by BIBE; to
    /// all others they have a custody block.
    pub bibe: BTreeSet<NeighbourId>,
    /// Neighbours without custody, for which this node acts as custodian: bundles from them are
    /// taken into custody, and bundles to them are released when the CL has acknowledged them.
    pub served: BTreeSet<NeighbourId>,
    /// Code points and signal shape that are sent.
    pub codes: CodePoints,
    /// CRC of the payload block that is sent.
    pub payload_crc: CrcKind,
    /// For how long custody signals are gathered.
    pub aggregate: Duration,
    /// When to send again if no signal comes.
    pub custody_timer: CustodyTimer,
    /// Lifetime of bundles that name none.
    pub lifetime: Duration,
    /// Hops a bundle of this node may take.
    pub hop_limit: u8,
    /// Bytes stored in all, queued or in custody; and, apart from these, bytes
    /// that wait for their service.
    pub store_bytes: u64,
    /// Bundles stored in all, and, apart from these, waiting for their service.
    pub store_bundles: usize,
    /// The part of both that is guaranteed to the neighbours which the routes
    /// name, in equal shares.
    pub guaranteed_percent: u8,
    /// Whether custody is taken of other nodes' bundles at all.
    pub accept_custody: bool,
    /// Bounds of the duplicate memory.
    pub duplicates: DuplicateLimits,
    /// What is accepted on receipt.
    pub decode: DecodeLimits,
    /// Payloads on disk, for bundles that an earlier run has left and for those that come in
    /// fragments.
    pub payloads: Option<Arc<Payloads>>,
    /// Bundles for applications that come in fragments are put together on the disk if their
    /// payloads are longer than this, bytes, and `payloads` is set.
    pub long_above_bytes: u64,
    /// The end-to-end security of bundles, if it is used. The same for all agents of a node.
    pub security: Option<Arc<dyn Security>>,
    /// Status reports generated per second at most, to each neighbour; 0 for none.
    pub status_reports_per_s: u32,
    /// Routes, the first that matches rules. A neighbour speaks for the nodes
    /// that they lead to by way of it.
    pub routes: Vec<Route>,
    /// Routes to nodes of the dtn scheme.
    pub named: NamedRoutes,
    /// Between which neighbours bundles are forwarded.
    pub relaying: Relaying,
    /// The longest time that bundles of other nodes are kept, whatever lifetime they name.
    pub foreign_lifetime: Duration,
}

impl Config {
    pub(super) fn division(&self) -> Division {
        Division {
            most: Amount {
                bytes: self.store_bytes,
                bundles: self.store_bundles as u64,
            },
            guaranteed_percent: self.guaranteed_percent,
        }
    }

    /// The neighbours that routes lead to.
    pub(super) fn neighbours(&self) -> BTreeSet<NeighbourId> {
        self.routes.iter().map(|route| route.neighbour).collect()
    }

    /// Whether bundles for a service of this node are delivered.
    pub(super) fn delivers(&self, service: u64) -> bool {
        let applications = self.applications.as_ref();
        self.services.contains(&service) || applications.is_some_and(|all| all.serves(service))
    }

    /// The applications' services, if this is one whose bundles wait.
    pub(super) fn keeping(&self, service: u64) -> Option<&Applications> {
        self.applications
            .as_deref()
            .filter(|all| all.keeps(service))
    }

    /// A node's configuration with the defaults.
    pub fn new(node: u64, run_nonce: u64) -> Config {
        Config {
            node,
            names: Arc::default(),
            run_nonce,
            services: BTreeSet::new(),
            confirming: BTreeSet::new(),
            applications: None,
            bibe: BTreeSet::new(),
            served: BTreeSet::new(),
            codes: CodePoints::default(),
            payload_crc: CrcKind::default(),
            aggregate: Duration::from_millis(100),
            custody_timer: CustodyTimer::default(),
            lifetime: Duration::from_secs(24 * 3600),
            hop_limit: 32,
            store_bytes: 256 << 20,
            store_bundles: 65_536,
            guaranteed_percent: 50,
            accept_custody: true,
            duplicates: DuplicateLimits::default(),
            decode: DecodeLimits::default(),
            payloads: None,
            long_above_bytes: 16 << 20,
            security: None,
            status_reports_per_s: 10,
            routes: Vec::new(),
            named: NamedRoutes::default(),
            relaying: Relaying::All,
            foreign_lifetime: Duration::from_secs(24 * 3600),
        }
    }
}
