//! Flows: which bytes of a stream belong together, and how large they are.
//!
//! A flow is an HTTP message, or a burst of a stream that is not HTTP. [`Watch`] follows the bytes
//! of one direction and says when a flow begins. Its size is the first of these that is known: the
//! message's own (Content-Length), the one of the node's source of object sizes ([`ObjectSizes`]),
//! the mean of earlier flows of that name and type ([`Sizes`]). The name of a TLS stream is that of
//! its ClientHello. [`FlowConduit`] reports the size to the node, which may choose a path by it,
//! and finds the flow's class by the rules.

mod conduit;
mod decisions;
mod head;
mod hello;
mod sizes;
mod watch;

use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::{Duration, Instant};

use crate::classify::{Classifier, Verdict};
use crate::stream::{Conduit, OpenRequest, Target};
use conduit::FlowConduit;
pub use decisions::{
    Asked, Cause, Decisions, Destination, FlowDecision, FlowFilter, News, PathNews, SizeSource,
    TooManyReaders,
};
pub use sizes::Sizes;
pub use watch::{FlowStart, Watch};

/// On whose behalf flows are watched. Sizes are remembered for each owner separately, so that none
/// can displace those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// A client of this node.
    Client(IpAddr),
    /// All clients or origins behind a peer, by its ipn node number.
    Peer(u64),
}

/// A source of the sizes of objects whose messages do not give them.
pub trait ObjectSizes: Debug + Send + Sync {
    /// The size of the object at `target`, a path with its query, of `host` (in lower case, without
    /// the port), in bytes, if it is already known. Never waits.
    fn size_bytes(&self, host: &str, target: &str) -> Option<u64>;
}

/// What the flows of an edge share.
#[derive(Debug)]
pub struct Flows {
    objects: OnceLock<Arc<dyn ObjectSizes>>,
    sizes: Arc<Mutex<Sizes>>,
    rules: Arc<RulesInForce>,
    decisions: Arc<Decisions>,
}

#[derive(Debug)]
struct RulesInForce {
    rules: RwLock<Arc<Classifier>>,
    /// How many there were before.
    replaced: AtomicU64,
}

impl RulesInForce {
    fn rules(&self) -> Arc<Classifier> {
        self.rules.read().unwrap().clone()
    }

    fn replace(&self, rules: Arc<Classifier>) {
        *self.rules.write().unwrap() = rules;
        self.replaced.fetch_add(1, Ordering::Release);
    }

    /// How many there were before.
    fn replaced(&self) -> u64 {
        self.replaced.load(Ordering::Acquire)
    }
}

impl Flows {
    /// By these rules.
    pub fn new(rules: Arc<Classifier>) -> Flows {
        Flows {
            objects: OnceLock::new(),
            sizes: Arc::default(),
            rules: Arc::new(RulesInForce {
                rules: RwLock::new(rules),
                replaced: AtomicU64::new(0),
            }),
            decisions: Arc::default(),
        }
    }

    /// Uses this source of sizes for streams that are watched from now on. Only the first call has
    /// an effect.
    pub fn ask(&self, objects: Arc<dyn ObjectSizes>) {
        let _ = self.objects.set(objects);
    }

    /// The rules for flows that begin.
    pub fn rules(&self) -> Arc<Classifier> {
        self.rules.rules()
    }

    /// Replaces the rules. They apply to new connections and, where they classify flows, to what
    /// open connections send from now on.
    pub fn set_rules(&self, rules: Arc<Classifier>) {
        self.rules.replace(rules);
    }

    /// What is decided about flows.
    pub fn decisions(&self) -> &Arc<Decisions> {
        &self.decisions
    }

    /// Watches what this node sends on a stream; `verdict` is that of its
    /// connection, where this node has classified it.
    pub fn watch(
        &self,
        conduit: Box<dyn Conduit>,
        owner: Owner,
        request: &OpenRequest,
        dscp: Option<u8>,
        verdict: Option<Verdict>,
    ) -> Box<dyn Conduit> {
        let watch = Watch::new(owner, &request.target, self.sizes.clone());
        let watch = watch.asking(self.objects.get().cloned());
        let rule = verdict.and_then(|verdict| self.rules().name_of(verdict.rule?));
        let (rules, decisions) = (self.rules.clone(), self.decisions.clone());
        let watched = FlowConduit::new(conduit, watch, rules, request, dscp, decisions);
        Box::new(watched.by_rule(rule))
    }

    /// Watches what this node sends on a stream that has lived through an upgrade in place. The
    /// class in the request is ignored; the stream keeps its own until a rule gives it another.
    pub fn watch_again(
        &self,
        conduit: Box<dyn Conduit>,
        owner: Owner,
        request: &OpenRequest,
    ) -> Box<dyn Conduit> {
        let sizes = self.sizes.clone();
        let watch = Watch::midway(Instant::now(), owner, &request.target, sizes);
        let watch = watch.asking(self.objects.get().cloned());
        let watched = FlowConduit::new(
            conduit,
            watch,
            self.rules.clone(),
            request,
            None,
            self.decisions.clone(),
        );
        Box::new(watched.of_unknown_class())
    }
}

/// Gives each object the size that results from the length of its names.
#[derive(Debug)]
struct LongNames;

impl ObjectSizes for LongNames {
    fn size_bytes(&self, host: &str, target: &str) -> Option<u64> {
        assert!(target.starts_with('/') && target.len() <= head::MOST_TARGET_BYTES);
        Some(u64::MAX - (host.len() + target.len()) as u64)
    }
}

/// Fuzz entry: watches streams that send and receive these bytes, in pieces and with pauses that
/// the first byte determines.
pub fn fuzz(data: &[u8]) {
    let Some((cut, data)) = data.split_first() else {
        return;
    };
    let target = Target::Address(([192, 0, 2, 1], 80).into());
    for owner in [Owner::Peer(1), Owner::Client([10, 0, 0, 5].into())] {
        let watch = Watch::new(owner, &target, Arc::default());
        let mut watch = watch.asking(Some(Arc::new(LongNames)));
        let mut now = Instant::now();
        for piece in data.chunks(usize::from(*cut).max(1)) {
            if let Some(start) = watch.sends(now, piece) {
                assert!(start.size_bytes > 0, "a flow of nothing begins");
                let named = start.host.is_none_or(|host| host.len() <= 253);
                assert!(named, "a name is longer than names are");
            }
            watch.receives(now, piece);
            now += Duration::from_millis(u64::from(*cut) * 4);
        }
        assert_eq!(watch.total_bytes(), data.len() as u64);
    }
}
