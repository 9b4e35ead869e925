//! How many entries everything has that can grow.

use super::Peer;

impl Peer {
    /// Tells how many entries each map, set and queue has, by a name, which may come more than
    /// once: for diagnostics and tests. A count that does not shrink again when nothing is left to
    /// do is a leak. Ranges of closed streams stay, and what each stream has of its own is not
    /// counted.
    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Peer {
            config: _,
            current,
            epoch: _,
            next_epoch: _,
            opened,
            former_runs,
            settled_below: _,
            look_at: _,
            settled_due: _,
            limits,
            events,
            unwanted,
            // By class, whose number is bounded.
            past: _,
        } = self;
        current.footprint(tell);
        tell("epochs of opened streams", opened.len());
        tell("former runs", former_runs.len());
        for former in former_runs.values() {
            former.footprint(tell);
        }
        tell("limits of former runs", limits.len());
        tell("stream events", events.len());
        tell("unwanted streams", unwanted.len());
    }
}
