//! Sessions that are dead while their link lives: an address translator on the way has forgotten
//! them, or something drops their packets without a word. TCP retransmits at ever longer intervals,
//! for as long as a blockage may last, and keepalives notice only after a minute.
//!
//! A lost link differs: here the peer is heard, by beacons or on other sessions, long after an
//! acknowledgement was due on the session, and does not say that it hears nothing. When one session
//! is late, all sessions of the hop are asked for a sign of life: a translator that has forgotten
//! one has mostly forgotten all, and they should not be found dead one after the other. The dead
//! session ends only once another is there: one of the class that has answered meanwhile, or a new
//! one, which the end that dials sets up ([`Engine::replace_old`] moves what is in flight). A
//! session that is answered before that stays.
//!
//! Answers on an overloaded path may be late as well. So round trips include their queues, a
//! session is given twice as long as recent answers on others have taken, and each further
//! replacement of a class's sessions waits longer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use underpass_cla::{Class, PathFigures, SessionId};

use crate::engine::{Action, Engine};
use crate::hop::{Hop, HopId};
use crate::link::SAME_SIGN;
use crate::takeover::UNANSWERED;

/// A session is late when an acknowledgement is due and none has come for this, for so many round
/// trips, and for as long as the slowest recent answer has taken.
const LATE: Duration = Duration::from_millis(1_500);
const LATE_ROUND_TRIPS: u32 = 3;
/// After this and so many round trips it is dead: TCP has repeated what was lost several times.
const DEAD: Duration = Duration::from_secs(3);
const DEAD_ROUND_TRIPS: u32 = 6;
/// A session that was idle when it was asked for a sign is dead after this plus so many round
/// trips: nothing was lost on it before.
const ASKED: Duration = Duration::from_secs(1);
const ASKED_ROUND_TRIPS: u32 = 2;
/// A session is not asked again sooner than this: a slow path has little room for such requests.
const ASKED_AGAIN: Duration = Duration::from_secs(15);
/// A request for a sign leaves, and is seen to have left, within this time.
const ASKED_LEAVES: Duration = Duration::from_secs(2);

/// No session counts as dead sooner than so many times as long as the slowest recent answer on a
/// session of the hop has taken; and how long such an answer counts.
const SLOWEST_ANSWERS: u32 = 2;
const SLOW_FOR: Duration = Duration::from_secs(60);

/// After a blockage of this length all sessions are asked: no keepalives were sent in it, and
/// address translators forget idle connections.
const LONG_BLOCKAGE: Duration = Duration::from_secs(60);

/// The sessions of a class are not replaced again for this, which doubles each time; replacements
/// longer ago than `FORGOTTEN` do not count.
const PAUSE: Duration = Duration::from_secs(15);
const MOST_DOUBLINGS: u32 = 5;
const FORGOTTEN: Duration = Duration::from_secs(900);

/// What the transport of a session has shown of the peer's answers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answering {
    /// Since when an acknowledgement has been owed and nothing heard.
    owed_since: Option<Instant>,
    /// When these figures were last taken.
    looked: Option<Instant>,
    /// When the peer was heard on it last.
    heard: Option<Instant>,
    /// Its round trip as the transport knows it.
    round_trip: Duration,
    /// Bytes received in all, if the rest of a bundle is to come.
    receiving: Option<u64>,
    /// When the peer was asked for a sign on it last, and the bytes received if the rest of
    /// a bundle was to come then.
    asked: Option<Instant>,
    asked_receiving: Option<u64>,
}

impl Answering {
    /// Takes the figures of the transport. If a sign has come, returns how long it was awaited.
    fn take(&mut self, now: Instant, figures: &PathFigures) -> Option<Duration> {
        let heard = figures.heard_ago.and_then(|ago| now.checked_sub(ago));
        let known = self.heard;
        if known.is_none_or(|known| heard.is_some_and(|heard| heard > known + SAME_SIGN)) {
            self.heard = heard;
        }
        let awaited_since = self.owed_since;
        self.owed_since = figures.is_unanswered().then(|| {
            let since = awaited_since.unwrap_or(now);
            self.heard.map_or(since, |heard| heard.max(since))
        });
        self.round_trip = figures.rtt;
        self.receiving = figures.receiving.then_some(figures.received_bytes);
        self.looked = Some(now);
        let (since, heard) = awaited_since.zip(self.heard)?;
        (heard > since).then(|| heard.saturating_duration_since(since))
    }

    /// Forgets answers that are owed: their absence shows nothing.
    pub fn forget(&mut self) {
        (self.owed_since, self.asked) = (None, None);
    }

    /// Notes that the peer is asked for a sign, unless one is due already or it was asked after
    /// `since` or lately. Returns whether it is asked.
    fn ask(&mut self, now: Instant, since: Instant) -> bool {
        let again = |asked: Instant| asked < since && now >= asked + ASKED_AGAIN;
        let asks = self.owed_since.is_none() && self.asked.is_none_or(again);
        if asks {
            (self.asked, self.asked_receiving) = (Some(now), self.receiving);
        }
        asks
    }

    /// Since when a sign of the peer has been awaited: an acknowledgement, or the rest of a bundle
    /// for which it was not asked yet.
    fn waits_since(&self) -> Option<Instant> {
        let rest = self.receiving.is_some() && self.receiving != self.asked_receiving;
        self.owed_since.or(self.heard.filter(|_| rest))
    }

    fn is_late(&self, link: &LivingLink) -> bool {
        let round_trips = link.round_trip(self) * LATE_ROUND_TRIPS;
        let patience = match self.owed_since {
            Some(_) => LATE.max(round_trips).max(link.slowest_answer),
            // Nothing is owed here, so the session would soon not be looked at any more.
            None => LATE,
        };
        self.is_silent(self.waits_since(), link, patience)
    }

    /// Whether an acknowledgement is overdue for so long that none will come.
    fn is_dead(&self, link: &LivingLink) -> bool {
        self.is_silent(self.owed_since, link, self.patience(link))
    }

    /// How long an acknowledgement is waited for.
    fn patience(&self, link: &LivingLink) -> Duration {
        let round_trip = link.round_trip(self);
        let asked = self.asked.is_some_and(|asked| {
            let unheard = self.heard.is_none_or(|heard| heard <= asked);
            let since = self.owed_since;
            unheard && since.is_some_and(|since| since <= asked + ASKED_LEAVES)
        });
        let patience = match asked {
            true => ASKED + round_trip * ASKED_ROUND_TRIPS,
            false => DEAD.max(round_trip * DEAD_ROUND_TRIPS),
        };
        patience.max(link.slowest_answer * SLOWEST_ANSWERS)
    }

    /// Whether the link has shown signs for at least `patience` after `since`, and the session
    /// none. Signs after the session's figures were last taken are unknown. A session whose
    /// transport does not say when it heard the peer is never silent.
    fn is_silent(&self, since: Option<Instant>, link: &LivingLink, patience: Duration) -> bool {
        let since = since.filter(|_| self.heard.is_some());
        let known = self.looked.map(|looked| looked.min(link.heard));
        let times = since.zip(known);
        times.is_some_and(|(since, known)| known >= since + patience + link.segment_time)
    }

    fn was_heard_behind(&self, at: Option<Instant>) -> bool {
        self.heard > at
    }

    /// Whether it is still open if the peer answers: it was not heard after `at`, and owes an
    /// acknowledgement.
    fn is_open(&self, at: Option<Instant>) -> bool {
        self.owed_since.is_some() && !self.was_heard_behind(at)
    }
}

/// A link that carries both ways, as far as is known.
#[derive(Clone, Copy, Debug)]
struct LivingLink {
    /// The last sign of the peer.
    heard: Instant,
    /// The round trip, queues included.
    round_trip: Duration,
    /// The longest time that an answer has taken lately.
    slowest_answer: Duration,
    segment_time: Duration,
}

impl LivingLink {
    /// A hop's link, if beacons watch it and say that it carries.
    fn of(now: Instant, hop: &Hop) -> Option<LivingLink> {
        if hop.blocked || !hop.link.is_probed() || hop.link.is_deaf(now) {
            return None;
        }
        let round_trip = hop.round_trip() + hop.measured.queue;
        let smoothed = hop.measured.smoothed_rtt.map(|(_, rtt)| rtt);
        Some(LivingLink {
            heard: hop.link.last_heard()?,
            round_trip: smoothed.map_or(round_trip, |rtt| rtt.max(round_trip)),
            slowest_answer: hop.slowest_answer.lately(now),
            segment_time: hop.segment_time(),
        })
    }

    /// The same on one of its sessions.
    fn round_trip(&self, of: &Answering) -> Duration {
        self.round_trip.max(of.round_trip)
    }
}

/// When the slowest recent answer on the sessions of a hop came, and how long it took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SlowestAnswer(Option<(Instant, Duration)>);

impl SlowestAnswer {
    fn note(&mut self, now: Instant, took: Duration) {
        if took >= self.lately(now) {
            self.0 = Some((now, took));
        }
    }

    fn lately(&self, now: Instant) -> Duration {
        let lately = self.0.filter(|(at, _)| now < *at + SLOW_FOR);
        lately.map_or(Duration::ZERO, |(_, took)| took)
    }
}

/// When sessions of a hop were to be replaced, by class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replacing(BTreeMap<Option<Class>, Replaced>);

#[derive(Clone, Copy, Debug)]
struct Replaced {
    at: Instant,
    /// How often in a row before.
    times: u32,
}

impl Replacing {
    /// Notes that a class's sessions are replaced now, unless they were lately. Returns whether
    /// they are.
    fn begin(&mut self, now: Instant, class: Option<Class>) -> bool {
        let last = self.0.get(&class).copied();
        let last = last.filter(|last| now < last.at + FORGOTTEN);
        let pause = |last: Replaced| PAUSE * (1 << last.times.min(MOST_DOUBLINGS));
        if last.is_some_and(|last| now < last.at + pause(last)) {
            return false;
        }
        let times = last.map_or(0, |last| last.times + 1);
        self.0.insert(class, Replaced { at: now, times });
        true
    }
}

impl Engine {
    /// Takes what the transports of a hop's sessions show. To be called repeatedly while anything
    /// moves or is owed on them.
    pub fn observe_answers<'a>(
        &mut self,
        now: Instant,
        id: HopId,
        sessions: impl IntoIterator<Item = (SessionId, &'a PathFigures)>,
    ) {
        let Some(hop) = self.hops.get_mut(&id) else {
            return;
        };
        let before = LivingLink::of(now, hop);
        for (session, figures) in sessions {
            let Some(answering) = self.sessions.answering_mut(session) else {
                continue;
            };
            let patience = before.map(|link| answering.patience(&link));
            let took = answering.take(now, figures);
            if let Some(took) = took.filter(|took| patience.is_some_and(|of| *took < of)) {
                hop.slowest_answer.note(now, took);
            }
        }
        let Some(link) = LivingLink::of(now, hop) else {
            return;
        };
        let late = hop.all_sessions().filter_map(|id| {
            let answering = self.sessions.get(id)?.answering;
            let late = answering.is_late(&link);
            answering.waits_since().filter(|_| late)
        });
        if let Some(since) = late.min() {
            self.ask_sessions(now, id, since);
        }
        self.replace_dead(now, id, &link);
    }

    /// Notes that a hop's link is back after `lasted`. After a long blockage all its sessions are
    /// asked for a sign, to find the dead ones soon.
    pub(crate) fn ask_behind_blockage(&mut self, now: Instant, id: HopId, lasted: Duration) {
        if lasted >= LONG_BLOCKAGE {
            self.ask_sessions(now, id, now);
        }
    }

    /// Asks a hop's sessions for a sign if its peer has woken the link to send something, and
    /// nothing has come on any session.
    pub(crate) fn miss_what_woke(&mut self, now: Instant, id: HopId) {
        let Some(hop) = self.hops.get_mut(&id) else {
            return;
        };
        let (woken, link) = (hop.woken_by_peer, LivingLink::of(now, hop));
        let Some((woken, link)) = woken.zip(link) else {
            return;
        };
        let has_come = hop.all_sessions().any(|id| {
            let session = self.sessions.get(id);
            session.is_some_and(|session| session.answering.was_heard_behind(Some(woken)))
        });
        let late = link.heard >= woken + LATE;
        if has_come || late {
            hop.woken_by_peer = None;
        }
        if late && !has_come {
            self.ask_sessions(now, id, woken);
        }
    }

    /// Asks for signs on the sessions of a hop that owe none already and were not asked after
    /// `since`.
    fn ask_sessions(&mut self, now: Instant, id: HopId, since: Instant) {
        let Some(hop) = self.hops.get(&id) else {
            return;
        };
        for session in hop.all_sessions() {
            let answering = self.sessions.answering_mut(session);
            if answering.is_some_and(|answering| answering.ask(now, since)) {
                self.actions.push_back(Action::Ask { session });
            }
        }
    }

    /// Whether the peer answers nothing on a session of a hop, though the link carries.
    pub(crate) fn is_dead(&self, now: Instant, id: HopId, session: SessionId) -> bool {
        let hop = self.hops.get(&id);
        let link = hop.and_then(|hop| LivingLink::of(now, hop));
        let session = self.sessions.get(session);
        link.zip(session)
            .is_some_and(|(link, session)| session.answering.is_dead(&link))
    }

    fn replace_dead(&mut self, now: Instant, id: HopId, link: &LivingLink) {
        let Some(hop) = self.hops.get(&id) else {
            return;
        };
        let neighbour = hop.config.neighbour;
        let dead = hop.all_sessions().filter_map(|id| {
            let session = self.sessions.get(id)?;
            let class = session.info.class;
            session.answering.is_dead(link).then_some((class, id))
        });
        let dead: BTreeSet<(Option<Class>, SessionId)> = dead.collect();
        let classes: BTreeSet<Option<Class>> = dead.iter().map(|(class, _)| *class).collect();
        let mut moved = false;
        for class in classes {
            let of_class = dead.iter().filter(|(of, _)| *of == class);
            let of_class: Vec<SessionId> = of_class.map(|(_, id)| *id).collect();
            moved |= self.replace_dead_of(now, id, class, &of_class);
        }
        if moved {
            self.hops_have_changed(now, neighbour);
            self.after_change(now);
        }
    }

    /// Replaces those of one class. Returns whether another of its sessions carries on at once.
    fn replace_dead_of(
        &mut self,
        now: Instant,
        id: HopId,
        class: Option<Class>,
        dead: &[SessionId],
    ) -> bool {
        let Some(hop) = self.hops.get_mut(&id) else {
            return false;
        };
        let all = match class {
            Some(class) => hop.sessions.get(usize::from(class.0)),
            None => Some(&hop.classless),
        };
        let others = all.into_iter().flatten().filter(|id| !dead.contains(id));
        let others = others.filter_map(|id| Some(self.sessions.get(*id)?.answering));
        let others: Vec<Answering> = others.collect();
        let since = dead.iter().filter_map(|id| self.sessions.get(*id));
        let since = since.filter_map(|of| of.answering.owed_since).min();
        if others.iter().any(|other| other.is_open(since)) || !hop.replacing.begin(now, class) {
            return false;
        }
        let answer = |other: &Answering| other.was_heard_behind(since);
        let goes_on = !others.is_empty() && others.iter().all(answer);
        for session in dead.iter().copied() {
            match goes_on {
                true => self.give_up_session(now, session, UNANSWERED),
                false => self.actions.push_back(Action::Renew { session }),
            }
        }
        goes_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_a_class_are_replaced_ever_more_seldom() {
        let (mut replacing, mut now) = (Replacing::default(), Instant::now());
        let (bulk, urgent) = (Some(Class(2)), Some(Class(1)));
        assert!(replacing.begin(now, bulk));
        assert!(replacing.begin(now, urgent), "each class by itself");
        for doublings in [0, 1, 2, 3, 4, 5, 5] {
            let until = now + PAUSE * (1 << doublings);
            assert!(!replacing.begin(until - Duration::from_millis(1), bulk));
            assert!(replacing.begin(until, bulk));
            now = until;
        }
        now += FORGOTTEN;
        assert!(replacing.begin(now, bulk));
        assert!(replacing.begin(now + PAUSE, bulk));
    }

    #[test]
    fn what_is_heard_a_little_later_when_asked_again_is_the_same_sign() {
        let (mut answering, begin) = (Answering::default(), Instant::now());
        let mut look = |ms: u64, heard_ms: u64| {
            let figures = PathFigures {
                in_flight_bytes: 1,
                heard_ago: Some(Duration::from_millis(ms - heard_ms)),
                ..PathFigures::default()
            };
            let at = begin + Duration::from_millis(ms);
            answering.take(at, &figures);
            answering
                .owed_since
                .map(|since| (since - begin).as_millis())
        };
        assert_eq!(look(100, 40), Some(100));
        assert_eq!(look(200, 50), Some(100));
        assert_eq!(look(300, 250), Some(250));
        assert_eq!(look(400, 255), Some(250));
    }
}
