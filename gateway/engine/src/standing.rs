//! A hop *stands still* when its peer is heard and takes nothing: a network on the way has
//! forgotten its sessions, or drops packets that have become too large for it. Beacons get through,
//! so the link counts as free, and TCP repeats the same bytes for as long as a blockage may last.
//!
//! The neighbour is not merely busy if it takes what comes by another hop. Then what the first hop
//! has in flight goes by the other one, which is preferred for a while for all else, too. Copies go
//! there long before that; the session stays until the standstill is certain.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use underpass_cla::{Class, SessionId};

use crate::engine::Engine;
use crate::hop::{Hop, HopId};

/// A hop stands still if a session of it has moved nothing for this plus so many round trips, while
/// another hop's session took bundles with no longer pause than the last value: by then TCP has
/// repeated what was lost several times.
const PATIENCE: Duration = Duration::from_secs(10);
const ROUND_TRIPS: u32 = 8;
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A hop is suspected after this plus so many round trips: by then even data that was lost twice
/// has arrived.
const SUSPECTED: Duration = Duration::from_secs(1);
const SUSPECTED_ROUND_TRIPS: u32 = 4;
/// Sessions are looked at no more often than this.
const LOOKED_EACH: Duration = Duration::from_millis(100);

/// Other hops are preferred for this, which doubles each time that the hop stands still again; what
/// is longer ago does not count.
const AVOIDED: Duration = Duration::from_secs(30);
const MOST_DOUBLINGS: u32 = 4;
const FORGOTTEN: Duration = Duration::from_secs(600);

const STANDS_STILL: &str = "the path takes nothing, and another one does";

/// Whether a hop stood still.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    /// Until when others are preferred.
    avoided_until: Option<Instant>,
    /// How often in a row it stood still.
    times: u32,
    /// When the hops beside it were last looked at.
    looked: Option<Instant>,
    /// The classes of sessions for which it is suspected, and when that lapses unless such a
    /// session is found to stand still again. A session without a class counts for all.
    suspected: BTreeMap<Option<Class>, Instant>,
}

impl Standing {
    /// Whether others are preferred.
    pub fn is_avoided(&self, now: Instant) -> bool {
        self.avoided_until.is_some_and(|until| now < until)
    }

    /// Whether it is suspected to stand still for a class.
    pub fn is_suspected(&self, now: Instant, class: Class) -> bool {
        let until = |class: Option<Class>| self.suspected.get(&class);
        let untils = [until(None), until(Some(class))];
        untils.into_iter().flatten().any(|until| now < *until)
    }

    /// Notes that sessions of these classes seem to stand still. Returns the classes for which that
    /// is new.
    fn suspect(&mut self, now: Instant, classes: &[Option<Class>]) -> Vec<Option<Class>> {
        self.suspected.retain(|_, until| now < *until);
        let new = classes.iter();
        let new = new.filter(|class| !self.suspected.contains_key(*class));
        let new = new.copied().collect();
        let until = now + LONGEST_PAUSE;
        let suspected = classes.iter().map(|class| (*class, until));
        self.suspected.extend(suspected);
        new
    }

    fn avoid(&mut self, now: Instant) {
        if self.is_avoided(now) {
            return;
        }
        let is_new = self.avoided_until.is_none_or(|at| now >= at + FORGOTTEN);
        self.times = if is_new { 0 } else { self.times + 1 };
        let time = AVOIDED * (1 << self.times.min(MOST_DOUBLINGS));
        self.avoided_until = Some(now + time);
    }
}

impl Engine {
    /// Notes that a neighbour has taken a bundle on a session. If other hops to it stand still
    /// meanwhile, what they have in flight goes by this session's hop. Signalling alone is short,
    /// and shows nothing.
    pub(crate) fn relieve_standing(&mut self, now: Instant, by: SessionId) {
        let Some(session) = self.sessions.get(by) else {
            return;
        };
        let hop = session.hop;
        if session.info.class == Some(Class::SIGNALLING) {
            return;
        }
        let neighbour = self.neighbour_of(hop).unwrap_or_default();
        if self.ways.hops_to(neighbour).len() < 2 || !self.is_time_to_look(now, hop) {
            return;
        }
        let hops = self.ways.shared_hops_to(neighbour);
        for other in hops.iter().copied().filter(|other| *other != hop) {
            let soon = (SUSPECTED, SUSPECTED_ROUND_TRIPS);
            let suspected = self.standing_sessions(now, other, hop, soon);
            if suspected.is_empty() {
                continue;
            }
            self.suspect(now, other, &suspected);
            let standing = self.standing_sessions(now, other, hop, (PATIENCE, ROUND_TRIPS));
            if standing.is_empty() {
                continue;
            }
            for session in standing {
                self.give_up_session(now, session, STANDS_STILL);
            }
            if let Some(other) = self.hops.get_mut(&other) {
                other.standing.avoid(now);
            }
            self.hops_have_changed(now, neighbour);
        }
    }

    /// Notes that these sessions of a hop seem to stand still: copies of what they have in flight
    /// go by other hops, and so do new bundles of their classes.
    fn suspect(&mut self, now: Instant, id: HopId, sessions: &[SessionId]) {
        let class_of = |session: &SessionId| {
            let session = self.sessions.get(*session);
            session.and_then(|session| session.info.class)
        };
        let classes: Vec<Option<Class>> = sessions.iter().map(class_of).collect();
        let Some(hop) = self.hops.get_mut(&id) else {
            return;
        };
        let new = hop.standing.suspect(now, &classes);
        let fresh = sessions.iter().zip(classes);
        let fresh = fresh.filter(|(_, class)| new.contains(class));
        let fresh: Vec<SessionId> = fresh.map(|(session, _)| *session).collect();
        if !fresh.is_empty() {
            self.copy_in_flight(now, id, &fresh, None);
        }
    }

    fn is_time_to_look(&mut self, now: Instant, id: HopId) -> bool {
        let Some(hop) = self.hops.get_mut(&id) else {
            return false;
        };
        let looked = &mut hop.standing.looked;
        let is_time = looked.is_none_or(|at| now >= at + LOOKED_EACH);
        if is_time {
            *looked = Some(now);
        }
        is_time
    }

    /// The sessions of a hop that stand still, of classes that another hop may carry: for
    /// that long and so many round trips.
    fn standing_sessions(
        &mut self,
        now: Instant,
        id: HopId,
        other: HopId,
        (time, round_trips): (Duration, u32),
    ) -> Vec<SessionId> {
        let Some(hop) = self.hops.get(&id).filter(|hop| !hop.blocked) else {
            return Vec::new();
        };
        let patience = time + (hop.round_trip() + hop.measured.queue) * round_trips;
        let sessions: Vec<SessionId> = hop.all_sessions().collect();
        let mut standing = Vec::new();
        for id in sessions {
            let still = self.sessions.stands_still(now, id, patience, LONGEST_PAUSE);
            if still && self.goes_by(id, other) {
                standing.push(id);
            }
        }
        standing
    }

    /// Whether what a session has in flight may go by a hop.
    fn goes_by(&self, session: SessionId, hop: HopId) -> bool {
        let session = self.sessions.get(session);
        let class = session.and_then(|session| session.info.class);
        let hop: Option<&Hop> = self.hops.get(&hop);
        hop.is_some_and(|hop| class.is_none_or(|class| self.place_on(hop, class).is_some()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hop_is_suspected_for_the_classes_that_stand_still_and_for_a_while() {
        let (mut standing, begin) = (Standing::default(), Instant::now());
        let (bulk, urgent) = (Class(2), Class(1));
        assert_eq!(standing.suspect(begin, &[Some(bulk)]), [Some(bulk)]);
        let soon = begin + LONGEST_PAUSE / 2;
        assert!(standing.suspect(soon, &[Some(bulk)]).is_empty());
        let now = begin + LONGEST_PAUSE;
        assert!(standing.is_suspected(now, bulk) && !standing.is_suspected(now, urgent));
        let both = [Some(bulk), Some(urgent)];
        assert_eq!(standing.suspect(now, &both), [Some(urgent)]);
        assert!(standing.is_suspected(now, bulk) && standing.is_suspected(now, urgent));
        let later = now + LONGEST_PAUSE;
        assert!(!standing.is_suspected(later, bulk));
        assert_eq!(standing.suspect(later, &[None]), [None::<Class>]);
        assert!(standing.is_suspected(later, Class(200)));
    }

    #[test]
    fn a_class_that_moves_again_is_suspected_no_longer_though_another_one_is() {
        let (mut standing, begin) = (Standing::default(), Instant::now());
        let (bulk, urgent) = (Class(2), Class(1));
        standing.suspect(begin, &[Some(bulk), Some(urgent)]);
        standing.suspect(begin + LONGEST_PAUSE / 2, &[Some(bulk)]);
        let now = begin + LONGEST_PAUSE;
        assert!(standing.is_suspected(now, bulk) && !standing.is_suspected(now, urgent));
        assert_eq!(standing.suspect(now, &[Some(urgent)]), [Some(urgent)]);
    }

    #[test]
    fn a_hop_that_stands_still_again_and_again_is_avoided_ever_longer() {
        let (mut standing, begin) = (Standing::default(), Instant::now());
        assert!(!standing.is_avoided(begin));
        let mut now = begin;
        for doublings in [0, 1, 2, 3, 4, 4] {
            standing.avoid(now);
            let until = now + AVOIDED * (1 << doublings);
            assert!(standing.is_avoided(until - Duration::from_millis(1)));
            assert!(!standing.is_avoided(until));
            now = until + PATIENCE;
        }
        standing.avoid(now + FORGOTTEN);
        assert!(!standing.is_avoided(now + FORGOTTEN + AVOIDED));
    }
}
