//! The shell of a node's engines: connects them with the convergence layers, the edge, and the
//! clock.
//!
//! A node has one engine or several, its *shards*, each for a part of the neighbours and behind its
//! own mutex, so different shards work at the same time. Every call into an engine is short and
//! never waits, and no caller holds two of the mutexes. Effects of an engine are carried out after
//! its mutex is released, so that no convergence layer or edge task is ever called under it.
//!
//! A call goes to the shard that it concerns: the number of a session identifies its shard, streams
//! remember theirs, and the [`Directory`] gives that of hops and nodes. A call that concerns the
//! whole node goes to one shard after the other.

mod applications;
mod beacons;
mod conduit;
mod directory;
mod figures;
mod handover;
mod intake;
mod links;
mod listings;
mod measuring;
mod operator;
mod outlet;
mod services;
mod sessions;
mod shard;
mod streams;
#[cfg(test)]
mod tests;
mod timer;
mod transport;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, Weak};
use std::time::Instant;

use tokio::sync::{broadcast, mpsc};
use underpass_bundle as bundle;
use underpass_bundle::Sharding;
use underpass_engine::{Contacts, Engine, EngineConfig, HopId, StreamKey};
use underpass_streams::Open;

pub use applications::ApplicationDesk;
pub use beacons::{BeaconReceiver, LinkBeacons};
pub use directory::Directory;
pub use figures::{SessionReading, watch as watch_figures};
pub use handover::{Dial, Stopped, StreamEdge};
pub use links::{ClassMove, LinkEvent, PathOrder};
pub use listings::{Counts, ListedStream, PeerStreams};
pub use outlet::StreamOutlet;
pub use services::Service;
pub use timer::drivers;
pub use transport::TransportTotals;

use crate::clock::SleepWatch;
use intake::LongPayloads;
use shard::{Effect, Inner, Shard};

/// A stream that a peer has opened, to be dialled by the edge.
#[derive(Debug)]
pub struct Inbound {
    pub key: StreamKey,
    /// What it asks for.
    pub open: Open,
    shard: usize,
}

/// The engines and all that their shell shares.
pub struct Shell {
    shards: Vec<Shard>,
    directory: RwLock<Directory>,
    decoder: bundle::Decoder,
    inbound: mpsc::UnboundedSender<Inbound>,
    link_events: broadcast::Sender<LinkEvent>,
    class_moves: broadcast::Sender<ClassMove>,
    /// Until somebody follows them.
    path_orders: Mutex<Option<mpsc::UnboundedReceiver<PathOrder>>>,
    beacons: OnceLock<LinkBeacons>,
    /// Where long payloads are, if this node has any.
    long: OnceLock<LongPayloads>,
    /// Detects sleep of the machine: events before a sleep seem later than they were.
    sleep: SleepWatch,
    /// Itself, for threads that write or read long payloads.
    this: Weak<Shell>,
}

/// Hops or peers that are visited under one lock.
const PORTION: usize = 32;

impl Shell {
    /// A shell around a node's engines, at least one, that were made from
    /// `config`; streams opened by peers come out of `inbound`.
    pub fn new(
        engines: Vec<Engine>,
        config: &EngineConfig,
        inbound: mpsc::UnboundedSender<Inbound>,
    ) -> Arc<Shell> {
        let count = engines.len();
        let (link_events, _) = broadcast::channel(links::EVENTS);
        let (class_moves, _) = broadcast::channel(links::EVENTS);
        let (orders, path_orders) = mpsc::unbounded_channel();
        let decoder = engines[0].decoder();
        let shards = Sharding::all(count).zip(engines);
        let shards = shards.map(|(own, engine)| {
            let (links, moves) = (link_events.clone(), class_moves.clone());
            Shard::new(own, engine, links, moves, orders.clone())
        });
        let shards = shards.collect();
        Arc::new_cyclic(|this| Shell {
            shards,
            directory: RwLock::new(Directory::new(config, count)),
            decoder,
            inbound,
            link_events,
            class_moves,
            path_orders: Mutex::new(Some(path_orders)),
            beacons: OnceLock::new(),
            long: OnceLock::new(),
            sleep: SleepWatch::begin(),
            this: this.clone(),
        })
    }

    /// Calls into the engine that has a hop, and carries out its effects.
    pub fn with_hop<R>(&self, hop: HopId, call: impl FnOnce(&mut Engine, Instant) -> R) -> R {
        let shard = self.directory().of_hop(hop);
        self.with_inner(shard, |inner, now| call(&mut inner.engine, now))
    }

    /// The same of every engine in turn.
    pub fn with_each<R>(&self, mut call: impl FnMut(&mut Engine, Instant) -> R) -> Vec<R> {
        let each = self.numbers();
        each.map(|shard| self.with_inner(shard, |inner, now| call(&mut inner.engine, now)))
            .collect()
    }

    /// Calls into one of the engines, for what they have in common.
    pub fn with_first<R>(&self, call: impl FnOnce(&mut Engine, Instant) -> R) -> R {
        self.with_inner(0, |inner, now| call(&mut inner.engine, now))
    }

    /// Follows a contact plan as it is now.
    pub fn set_contacts(&self, contacts: &Contacts) {
        let planned = contacts.routes.as_ref().map(|routes| routes.next.clone());
        let mut directory = self.directory.write().unwrap();
        directory.set_planned(planned.unwrap_or_default());
        drop(directory);
        self.with_each(|engine, now| engine.set_contacts(now, contacts));
    }

    /// The sizes of bundles, bytes, for which the engines would have ways of the contact plan; see
    /// [`Engine::take_planned_sizes`].
    pub fn take_planned_sizes(&self) -> BTreeSet<u64> {
        let each = self.with_each(|engine, _| engine.take_planned_sizes());
        each.into_iter().flatten().collect()
    }

    /// By destination, neighbour and size of bundle, the bytes that were given to the neighbours
    /// since the last call; see [`Engine::take_given`].
    pub fn take_given(&self) -> BTreeMap<(u64, u64, u64), i64> {
        let mut all = BTreeMap::new();
        let each = self.with_each(|engine, _| engine.take_given());
        for (way, bytes) in each.into_iter().flatten() {
            let given: &mut i64 = all.entry(way).or_default();
            *given = given.saturating_add(bytes);
        }
        all
    }

    /// The store of a shard has something to hear.
    pub fn store_moved(&self, shard: usize) {
        self.with_inner(shard, |inner, now| inner.engine.store_moved(now));
    }

    /// Reads the engine that has a hop without changing it.
    pub fn read_hop<R>(&self, hop: HopId, look: impl FnOnce(&Engine) -> R) -> R {
        let shard = self.directory().of_hop(hop);
        look(&self.lock(shard).engine)
    }

    /// The same for the engine through which a node is reached.
    pub fn read_peer<R>(&self, peer: u64, look: impl FnOnce(&Engine) -> R) -> R {
        let shard = self.directory().of_peer(peer);
        look(&self.lock(shard).engine)
    }

    /// The same of every engine in turn.
    pub fn read_each<R>(&self, look: impl Fn(&Engine) -> R) -> Vec<R> {
        let each = self.numbers();
        each.map(|shard| look(&self.lock(shard).engine)).collect()
    }

    /// Reads what all engines know alike, such as the beam's rate.
    pub fn read_any<R>(&self, look: impl FnOnce(&Engine) -> R) -> R {
        look(&self.lock(0).engine)
    }

    /// The shard of a node's streams and messages.
    pub fn shard_of(&self, node: u64) -> usize {
        self.directory().of_peer(node)
    }

    /// The hop of a path or terminal.
    pub fn hop_named(&self, name: &str) -> Option<HopId> {
        self.directory().hop_named(name)
    }

    fn numbers(&self) -> Range<usize> {
        0..self.shards.len()
    }

    /// The directory is read and released before any shard is locked.
    fn directory(&self) -> RwLockReadGuard<'_, Directory> {
        self.directory.read().unwrap()
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, Inner> {
        self.shards[shard].lock()
    }

    fn with_inner<R>(&self, shard: usize, call: impl FnOnce(&mut Inner, Instant) -> R) -> R {
        let mut inner = self.lock(shard);
        let result = call(&mut inner, timer::now());
        inner.gather();
        let deadline = inner.due();
        let earlier = match (deadline, inner.armed) {
            (Some(deadline), Some(armed)) => deadline < armed,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if earlier {
            inner.armed = deadline;
        }
        let act = !inner.effects.is_empty() && !std::mem::replace(&mut inner.acting, true);
        drop(inner);
        if earlier {
            self.shards[shard].timer.notify_one();
        }
        if act {
            self.act(shard);
        }
        result
    }

    /// Carries out an engine's effects, until there are none left. One caller at a time for each
    /// shard: two at once could act in the wrong order, and leave a session with an outdated rate
    /// or blockage.
    fn act(&self, shard: usize) {
        loop {
            let mut inner = self.lock(shard);
            if inner.effects.is_empty() {
                inner.acting = false;
                return;
            }
            let effects = std::mem::take(&mut inner.effects);
            drop(inner);
            for effect in effects {
                self.run(effect);
            }
        }
    }

    fn run(&self, effect: Effect) {
        match effect {
            Effect::Offer(session, transfer) => session.offer(transfer),
            Effect::SetRate(session, ip_bps) => session.set_rate(ip_bps),
            Effect::Suspend(session, blocked) => session.suspend(blocked),
            Effect::Ask(session) => session.ask(),
            Effect::Renew(session) => session.renew(),
            Effect::Abort(session, reason) => session.abort(reason),
            Effect::Wake(waker) => waker.wake(),
            Effect::Rest(hop, rests) => {
                if let Some(beacons) = self.beacons() {
                    beacons.let_rest(hop, rests);
                }
            }
            Effect::RestOfSession(session, rests) => session.rest(rests),
            Effect::Message(service, message) => service.message(message),
            Effect::Application(desk, delivery) => desk.bundle(*delivery),
            Effect::ApplicationReport(desk, report) => desk.report(report),
            Effect::Restarted(service, peer) => service.peer_restarted(peer),
            // The receiver lives as long as the node runs; while it shuts
            // down, streams are reset by their conduits' absence.
            Effect::Inbound(inbound) => drop(self.inbound.send(inbound)),
            Effect::Judge(shard, unopened) => self.judge(shard, unopened),
            Effect::Passed(shard, passed) => {
                let mut inner = self.lock(shard);
                inner.engine.take_passed(timer::now(), passed);
                let mut unopened = inner.engine.take_unopened();
                drop(inner);
                // None is left for a session, which would take its verdict for that of its own.
                while let Some(whole) = unopened {
                    let opened = self.decoder.open_whole(whole);
                    let mut inner = self.lock(shard);
                    let taken = inner.engine.receive_opened(timer::now(), None, opened);
                    // The neighbour has been told that the fragment was taken.
                    inner.counts.refused_bundles += u64::from(taken.is_err());
                    unopened = inner.engine.take_unopened();
                }
                // Further effects are left to that shard's task: a caller that did others' work
                // might never get to its own.
                self.shards[shard].timer.notify_one();
            }
        }
    }
}
