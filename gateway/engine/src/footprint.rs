//! Counts the entries of everything that can grow.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::engine::Engine;
use crate::hop::Hop;

impl Engine {
    /// How many entries the node's maps, sets and queues have, by name, including those of the
    /// scheduler, bundle node, store and streams: for diagnostics and tests. A count that does not
    /// shrink again when nothing is left to do is a leak. Some entries stay on purpose: the numbers
    /// of streams and custody of each node ever met, and the names of bundles until they are old. A
    /// call visits every hop, neighbour and peer.
    pub fn footprint(&self) -> BTreeMap<&'static str, usize> {
        let mut sums = BTreeMap::new();
        self.tell_footprint(&mut |name, entries| *sums.entry(name).or_insert(0) += entries);
        sums
    }

    fn tell_footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        // Without `..`: a field that is added has to be thought of here.
        let Engine {
            config,
            agent,
            scheduler,
            hops,
            peers,
            changed,
            sessions,
            carried,
            starved,
            last_fed: _,
            utc: _,
            // Two plans at most.
            beam: _,
            beam_by_operator: _,
            beam_rate_bps: _,
            beam_allowed_bps: _,
            beam_measured_bps: _,
            unchanged: _,
            link_times,
            ahead,
            actions,
            wake_at: _,
            classes: _,
            ways,
            came_by: _,
            restored,
            sharding: _,
            feed_at: _,
            asked,
            ask_at: _,
            steering,
            on_demand,
            completing,
            without_room,
        } = self;
        tell("configured hops", config.hops.len());
        tell("configured routes", config.routes.len());
        agent.footprint(tell);
        scheduler.footprint(tell);
        tell("hops", hops.len());
        hops.values().for_each(|hop| hop.footprint(tell));
        peers.footprint(tell);
        changed.footprint(tell);
        sessions.footprint(tell);
        tell("bundles of streams", carried.len());
        tell("starved hops", starved.len());
        tell("hops by time", link_times.len());
        tell("hops to be asked again", asked.len());
        steering.footprint(tell);
        on_demand.footprint(tell);
        completing.footprint(tell);
        ahead.footprint(tell);
        tell("actions", actions.len());
        ways.footprint(tell);
        restored.footprint(tell);
        without_room.footprint(tell);
    }
}

impl Hop {
    fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Hop {
            config: _,
            ceiling: _,
            wire: _,
            sessions,
            classless,
            unusable,
            link,
            link_at: _,
            blocked: _,
            heard_before_blockage: _,
            mru_bytes: _,
            subtracted_bps: _,
            measured: _,
            efficiency: _,
            by_operator: _,
            followed: _,
            weight: _,
            segment: _,
            guaranteed_bps: _,
            paced_bps: _,
            lowered: _,
            draining: _,
            flight: _,
            traffic: _,
            arrivals,
            ready,
            sent_by: _,
            given_bytes: _,
            in_flight_since: _,
            moved: _,
            before_flight_bytes: _,
            meter: _,
            presence: _,
            copies,
            doubt: _,
            // An entry of each class at most.
            standing: _,
            // The same.
            replacing: _,
            lags: _,
            slowest_answer: _,
            woken_by_peer: _,
            trial: _,
        } = self;
        let of_classes = sessions.iter().map(BTreeSet::len);
        tell(
            "sessions of hops",
            of_classes.sum::<usize>() + classless.len() + unusable.len(),
        );
        link.footprint(tell);
        tell("classes with flows begun", arrivals.len());
        tell("ready classes", ready.len());
        tell("copies", copies.values().map(VecDeque::len).sum());
    }
}
