//! Beacons between the sockets, the sessions and the engine.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock, RwLockReadGuard, Weak};
use std::time::{Duration, Instant};

use underpass_beacon::{Beacons, Counters, Delayed, Key, Node, PeerId, Signs};
use underpass_cla::{ExportedKey, PathFigures, Session};
use underpass_engine::{HopId, Sign};

use super::shard::Inner;
use super::{Shell, timer};

/// After this long without the rest of a bundle, it is no longer waited for.
const MISSED_FOR: Duration = Duration::from_secs(2);
/// A session fell silent together with its path if its last bytes came no longer than this before
/// the path's last sign. Packets of a slow session are closer together than this; beacons alone are
/// further apart.
const FELL_SILENT_TOGETHER: Duration = Duration::from_millis(100);

/// The endpoints by the names of their paths and listeners.
#[derive(Default)]
pub struct LinkBeacons {
    endpoints: RwLock<BTreeMap<String, Beacons>>,
}

impl LinkBeacons {
    /// Adds the endpoint of a path or listener.
    pub fn insert(&self, name: &str, beacons: Beacons) {
        let mut endpoints = self.endpoints.write().unwrap();
        endpoints.insert(name.to_owned(), beacons);
    }

    /// Ends the endpoint of a path.
    pub fn remove(&self, name: &str) {
        let mut endpoints = self.endpoints.write().unwrap();
        endpoints.remove(name);
    }

    /// Ends all endpoints.
    pub fn clear(&self) {
        self.endpoints.write().unwrap().clear();
    }

    /// Calls for the endpoint of a path or listener, if it has one.
    pub fn at(&self, name: &str, call: impl FnOnce(&Beacons)) {
        if let Some(beacons) = self.endpoints().get(name) {
            call(beacons);
        }
    }

    /// Sets the round trip by which the beacons of a hop are timed.
    pub(super) fn set_rtt(&self, hop: HopId, rtt: Duration) {
        for beacons in self.endpoints().values() {
            beacons.set_rtt(PeerId(hop.0), rtt);
        }
    }

    /// Asks a hop's peer for beacons, so that the delay of what comes from it is measured.
    pub(super) fn want(&self, hop: HopId) {
        for beacons in self.endpoints().values() {
            beacons.want(PeerId(hop.0));
        }
    }

    /// Lets the link of a hop rest, or wakes it.
    pub(super) fn let_rest(&self, hop: HopId, may: bool) {
        for beacons in self.endpoints().values() {
            beacons.let_rest(PeerId(hop.0), may);
        }
    }

    /// Sets the interval of beacons that probe a hop's peer, or answer its probes.
    pub(super) fn set_probe_interval(&self, hop: HopId, interval: Duration) {
        for beacons in self.endpoints().values() {
            beacons.set_probe_interval(PeerId(hop.0), interval);
        }
    }

    /// Probes a hop's peer, which owes an answer, until it is heard, at most for `lasting`.
    pub(super) fn probe(&self, hop: HopId, lasting: Duration) {
        for beacons in self.endpoints().values() {
            beacons.probe(PeerId(hop.0), lasting);
        }
    }

    /// Notes what the sessions of a hop have heard and sent, which postpones beacons.
    pub(super) fn note(&self, hop: HopId, signs: Signs) {
        for beacons in self.endpoints().values() {
            beacons.note(PeerId(hop.0), signs);
        }
    }

    /// Sets the interval of beacons that go to a hop's peer beside traffic.
    pub(super) fn set_pace(&self, hop: HopId, pace: Duration) {
        for beacons in self.endpoints().values() {
            beacons.set_pace(PeerId(hop.0), pace);
        }
    }

    /// Beacons sent to a hop's peer and received from it.
    pub(super) fn moved(&self, hop: HopId) -> u64 {
        let endpoints = self.endpoints();
        let moved = endpoints
            .values()
            .map(|beacons| beacons.moved(PeerId(hop.0)));
        moved.sum()
    }

    /// How long queues delay packets between this node and a hop's peer, as far as known.
    pub(super) fn delayed(&self, hop: HopId) -> Delayed {
        let endpoints = self.endpoints();
        let mut delayed = endpoints
            .values()
            .map(|beacons| beacons.delayed(PeerId(hop.0)));
        let known = delayed.find(|delayed| delayed.from_peer.is_some());
        known.unwrap_or_default()
    }

    fn endpoints(&self) -> RwLockReadGuard<'_, BTreeMap<String, Beacons>> {
        self.endpoints.read().unwrap()
    }

    /// A session of a hop over `path` brings its key. A terminal that now connects to this listener
    /// has left the others.
    pub(super) fn add_key(&self, path: &str, hop: HopId, key: &ExportedKey) {
        let peer = PeerId(hop.0);
        for (name, beacons) in &*self.endpoints() {
            if name == path {
                beacons.add_key(peer, Key::new(&key.0));
            } else {
                beacons.leave(peer);
            }
        }
    }

    /// Datagrams in numbers, by path or listener.
    pub fn counters(&self) -> Vec<(String, Counters)> {
        let endpoints = self.endpoints();
        let counters = endpoints.iter();
        counters
            .map(|(name, beacons)| (name.clone(), beacons.counters()))
            .collect()
    }
}

/// Takes what the shell's beacons receive. It has only a weak reference to the shell, which owns
/// them.
pub struct BeaconReceiver(Weak<Shell>);

impl BeaconReceiver {
    pub fn of(shell: &Arc<Shell>) -> BeaconReceiver {
        BeaconReceiver(Arc::downgrade(shell))
    }

    fn tell(&self, peer: PeerId, at: Instant, sign: Sign) {
        if let Some(shell) = self.0.upgrade() {
            let hop = HopId(peer.0);
            shell.with_hop(hop, |engine, now| engine.heard(now, hop, at, sign));
        }
    }
}

impl Node for BeaconReceiver {
    fn signs(&self, peer: PeerId) -> Signs {
        let shell = self.0.upgrade();
        shell.map_or_else(Signs::default, |shell| shell.signs(HopId(peer.0)))
    }

    fn heard(&self, peer: PeerId, at: Instant) {
        self.tell(peer, at, Sign::Beacon);
    }

    fn deaf(&self, peer: PeerId, at: Instant) {
        self.tell(peer, at, Sign::Deaf);
    }

    fn resting(&self, peer: PeerId, at: Instant) {
        self.tell(peer, at, Sign::Resting);
    }

    fn key_unknown(&self, peer: PeerId) {
        if let Some(shell) = self.0.upgrade() {
            shell.peer_lost_sessions(HopId(peer.0));
        }
    }
}

impl Inner {
    /// Takes the figures of all sessions of a hop, read when its activity was at `count`. The
    /// engine learns when the peer was heard.
    pub(super) fn learn(
        &mut self,
        now: Instant,
        hop: HopId,
        count: u64,
        figures: &[PathFigures],
    ) -> Signs {
        self.links.look(hop, count, figures, now);
        let ago = figures.iter().filter_map(|figures| figures.heard_ago).min();
        if let Some(at) = ago.and_then(|ago| now.checked_sub(ago)) {
            self.engine.heard(now, hop, at, Sign::Session);
            if !figures.iter().any(PathFigures::is_unanswered) {
                self.engine.nothing_unanswered(now, hop);
            }
        }
        self.tell_of_silence(now, hop, figures);
        self.signs(hop)
    }

    /// If the rest of a bundle is due on a hop, tells the engine how long nothing has come. The
    /// peer learns of this by another path, if there is one.
    fn tell_of_silence(&mut self, now: Instant, hop: HopId, figures: &[PathFigures]) {
        let heard = self.engine.last_heard(hop);
        let silent = heard.map(|at| now.saturating_duration_since(at));
        let tells = |silent: &Duration| *silent < MISSED_FOR && is_cut_off(figures, *silent);
        if let Some(silent) = silent.filter(tells) {
            self.engine.misses(now, hop, silent);
        }
    }

    /// What was heard and sent on a hop at the last check.
    fn signs(&self, hop: HopId) -> Signs {
        Signs {
            heard: self.engine.last_heard(hop),
            sent: self.links.sent(hop),
        }
    }
}

impl Shell {
    /// Sets the beacons; called once, before there are sessions.
    pub fn set_beacons(&self, beacons: LinkBeacons) {
        // A second call would change nothing.
        let _ = self.beacons.set(beacons);
    }

    /// Accepts beacons of a peer, by its node id, that are sealed with the key of a session of
    /// another process of this node.
    pub fn know_key(&self, path: &str, peer: &str, key: &ExportedKey) {
        let neighbour = self.directory().neighbour(peer);
        let Some((number, shard)) = neighbour else {
            return;
        };
        let hop = self.lock(shard).engine.hop_of(number, path);
        if let (Some(hop), Some(beacons)) = (hop, self.beacons()) {
            beacons.add_key(path, hop, key);
        }
    }

    /// The beacons, once they are in use.
    pub fn beacons(&self) -> Option<&LinkBeacons> {
        self.beacons.get()
    }

    /// The sessions of a hop; no other hop is visited.
    pub(super) fn sessions_of(&self, hop: HopId) -> Vec<Arc<dyn Session>> {
        let shard = self.directory().of_hop(hop);
        self.lock(shard).sessions_of(hop)
    }

    /// Asks the sessions of a shard's silent links what they have heard, before the engine decides
    /// whether these are blocked.
    pub(super) fn look_at_due_links(&self, shard: usize) {
        let due = self.lock(shard).engine.links_due(timer::now());
        for hop in due {
            self.signs(hop);
        }
    }

    /// What the hop's sessions have heard and sent; passes it to the engine.
    fn signs(&self, hop: HopId) -> Signs {
        let shard = self.directory().of_hop(hop);
        let (count, sessions) = {
            let mut inner = self.lock(shard);
            if inner.links.still(hop).is_some() {
                return inner.signs(hop);
            }
            let count = inner.links.activity(hop).count();
            (count, inner.sessions_of(hop))
        };
        // The transports are read outside the lock.
        let figures = sessions.iter().map(|session| session.figures());
        let figures: Vec<_> = figures.collect();
        self.with_inner(shard, |inner, now| inner.learn(now, hop, count, &figures))
    }

    /// The peer has restarted, so its end of the sessions is gone. TCP alone would notice only by
    /// its time-outs.
    fn peer_lost_sessions(&self, hop: HopId) {
        tracing::info!(hop = self.name_of(hop), "the peer has lost its sessions");
        for session in self.sessions_of(hop) {
            session.abort("the peer does not know this session any more");
        }
    }
}

/// Whether a bundle was cut off on a session when its path fell silent, `silent` ago. If the rest
/// was already missing while the path was heard, the peer may have moved to another session, and
/// its reset of this one may have been lost in a blockage. Then only beacons are heard on the path,
/// and each pause between two would count as a silence.
fn is_cut_off(figures: &[PathFigures], silent: Duration) -> bool {
    let together = |ago: Duration| ago <= silent + FELL_SILENT_TOGETHER;
    figures
        .iter()
        .any(|figures| figures.receiving && figures.heard_ago.is_none_or(together))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(receiving: bool, heard_ago_ms: u64) -> PathFigures {
        PathFigures {
            receiving,
            heard_ago: Some(Duration::from_millis(heard_ago_ms)),
            ..PathFigures::default()
        }
    }

    #[test]
    fn a_bundle_whose_rest_was_missing_before_tells_of_no_silence() {
        let silent = Duration::from_millis(140);
        let cut_off = |sessions: &[PathFigures]| is_cut_off(sessions, silent);
        // The kernel gives the time of the last arrival to within some milliseconds.
        assert!(cut_off(&[session(true, 136)]) && cut_off(&[session(true, 144)]));
        // Beacons have arrived since, 150 ms apart.
        let left = session(true, 290);
        assert!(!cut_off(&[left]));
        assert!(!cut_off(&[left, session(false, 140)]));
        assert!(cut_off(&[left, session(true, 140)]));
    }
}
