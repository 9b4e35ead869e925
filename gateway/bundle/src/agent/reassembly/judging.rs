//! Bundles that were put together on the disk and are still to be judged (RFC 9172). All of their
//! payload is read for that, so no agent waits for it.
//!
//! Their payloads have room on the disk already, so there are few of them. Few are judged at once,
//! and only one of each neighbour: one that has sent much delays its own bundles first.

use std::collections::HashMap;
use std::time::Instant;

use underpass_work::each;

use super::Whole;
use crate::agent::config::NeighbourId;
use crate::agent::receive::Unopened;

/// The most of an agent that are judged at once: each takes a thread.
const MOST_AT_ONCE: usize = 4;

/// Those bundles, by name.
#[derive(Default)]
pub(super) struct Judging {
    bundles: HashMap<Whole, Unjudged>,
    next: u64,
}

struct Unjudged {
    from: NeighbourId,
    expires: Instant,
    /// Their order.
    number: u64,
    /// None while it is judged.
    unopened: Option<Unopened>,
}

impl Judging {
    pub fn len(&self) -> usize {
        self.bundles.len()
    }

    pub fn has(&self, whole: &Whole) -> bool {
        self.bundles.contains_key(whole)
    }

    pub fn add(&mut self, whole: Whole, unopened: Unopened) {
        let unjudged = Unjudged {
            from: unopened.whole.from,
            expires: unopened.whole.expires,
            number: self.next,
            unopened: Some(unopened),
        };
        self.next += 1;
        self.bundles.insert(whole, unjudged);
    }

    /// The next one to be judged, if its turn has come.
    pub fn take_next(&mut self) -> Option<Unopened> {
        if self.bundles.is_empty() {
            return None;
        }
        let judged = each(self.bundles.values()).filter(|of| of.unopened.is_none());
        let judged: Vec<NeighbourId> = judged.map(|of| of.from).collect();
        if judged.len() >= MOST_AT_ONCE {
            return None;
        }
        let waiting = each(self.bundles.values_mut()).filter(|of| of.unopened.is_some());
        let waiting = waiting.filter(|of| !judged.contains(&of.from));
        let first = waiting.min_by_key(|of| of.number);
        first.and_then(|first| first.unopened.take())
    }

    /// Removes one that is judged; false if it is not there.
    pub fn remove(&mut self, whole: &Whole) -> bool {
        self.bundles.remove(whole).is_some()
    }

    pub fn next_timeout(&self) -> Option<Instant> {
        let waiting = each(self.bundles.values()).filter(|of| of.unopened.is_some());
        waiting.map(|of| of.expires).min()
    }

    /// Takes out those whose lifetime ends before their turn has come. One that is judged occupies
    /// its thread until it is given back.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<Unopened> {
        let is_over = |of: &Unjudged| of.unopened.is_some() && of.expires <= now;
        let over = self.bundles.extract_if(|_, of| is_over(of));
        let mut over: Vec<Unjudged> = over.map(|(_, of)| of).collect();
        over.sort_unstable_by_key(|of| of.number);
        over.into_iter().filter_map(|of| of.unopened).collect()
    }
}
