//! Counts the entries of everything that can grow.

use underpass_work::IdSet;

use super::Agent;

impl Agent {
    /// Tells how many entries each map, set and queue has, those of the store too, by a name, which
    /// may come more than once: for diagnostics and tests. A count that does not shrink again when
    /// nothing is stored is a leak. Neighbours stay with their custody sequence, and names are
    /// remembered until they are old.
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        // Without `..`, so that a new field has to be considered here.
        let Agent {
            config: _,
            sharding: _,
            common: _,
            usage,
            routes,
            planned,
            admin: _,
            store,
            timestamps,
            bundles,
            by_name,
            ordered,
            // By class, whose number is bounded.
            tally: _,
            uncommitted,
            leaving,
            asked,
            unconfirmed,
            neighbours,
            sequences,
            transmissions,
            next_key: _,
            seen,
            taken,
            signals,
            reassembly,
            custody_timers,
            expiries,
            pauses,
            reports,
            events,
            woken,
            without_room,
        } = self;
        routes.footprint(tell);
        if let Some(planned) = planned {
            planned.footprint(tell);
        }
        store.footprint(tell);
        timestamps.footprint(tell);
        tell("bundles", bundles.len());
        tell("bundles by name", by_name.len());
        tell("endpoints with custody", ordered.len());
        let ordered = ordered.values().map(IdSet::len);
        tell("bundles in order", ordered.sum());
        tell("bundles not committed", uncommitted.len());
        leaving.footprint(tell);
        tell("questions to other agents", *asked);
        unconfirmed.footprint(tell);
        tell("neighbours", neighbours.len());
        for neighbour in neighbours.values() {
            neighbour.footprint(tell);
        }
        tell("custody sequences", sequences.len());
        tell("transmissions", transmissions.len());
        seen.footprint(tell);
        taken.footprint(tell);
        signals.footprint(tell);
        reassembly.footprint(tell);
        tell("custody timers", custody_timers.len());
        tell("expiries", expiries.len());
        tell("pauses", pauses.len());
        reports.footprint(tell);
        tell("bundle events", events.len());
        usage.footprint(tell);
        tell("woken neighbours", woken.len());
        tell("neighbours without room", without_room.len());
    }
}
