//! A hop is *in doubt* while its peer is silent for longer than it should be, and another hop could
//! carry what it has in flight.
//!
//! A blockage ends sessions, and to set them up again costs round trips, so silence has to last
//! before it counts as one. A doubt is cheap, so it begins sooner: as soon as an answer is late, or
//! when the peer says by another hop that the rest of a bundle does not arrive. Copies of what has
//! not been answered go by the other hop, and so does all that is new; the sessions stay. The first
//! sign of the peer ends the doubt: the hop goes on as before, and copies that have not left are
//! dropped. Without a sign the hop is blocked in due time, and all that is not acknowledged goes by
//! the other one.
//!
//! If the peer has said that it hears nothing, a sign of it does not show that it hears again: one
//! direction alone may be silent. So such a doubt lasts until something that was sent in the
//! silence is acknowledged, until the peer takes its word back, until a beacon comes that by then
//! would say that the peer hears nothing and does not, or until the hop has a session again after
//! it had none.
//!
//! Each false alarm makes the next doubt begin later, until the hop is really blocked by silence.
//! After a doubt that began by the peer's word and was in vain, its word does not count for a
//! while: repeated, it would keep the hop in doubt for ever.

use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::{self as bundle, BundleId};
use underpass_cla::{Class, SessionId};

use crate::bringing_up::ON_DEMAND_SERVICE;
use crate::budget::Meter;
use crate::choosing::{CopiedBundle, length};
use crate::engine::Engine;
use crate::hop::{Hop, HopId};
use crate::link::{SAME_SIGN, Sign, Source};
use crate::policy::{MeteredUse, PathUse};
use crate::services::Message;
use crate::transfers::Kept;

/// An answer is late when it has been due for this, and for twice as long after each false alarm.
/// Alarms that are longer ago or before a blockage by silence do not count.
const PATIENCE: Duration = Duration::from_millis(100);
const MOST_DOUBLINGS: u32 = 2;
const FORGOTTEN: Duration = Duration::from_secs(60);
/// How often the sessions of a hop in doubt are asked for signs.
const LOOKED_EACH: Duration = Duration::from_millis(20);
/// The times in a word from the peer are accurate to this.
const INACCURACY: Duration = Duration::from_millis(20);

/// The most copies of what one hop has in flight, and their bytes: by priority of the classes, and
/// in a class the oldest first.
const MOST_COPIES: usize = 256;
const MOST_COPIED_BYTES: u64 = 4 << 20;

/// A message to the service by which nodes ask for a path. It holds a time in ms, 16 bits: nothing
/// has come by the other hop for so long, though a bundle has begun there. A time of 0, which may
/// come by any hop, takes the word before back. With more than two hops the name of a session of
/// the hop that is meant follows.
const MISSES: u8 = 2;
/// A peer that has heard no beacon for this says so in its own.
const SAYS_SO_BEHIND: Duration = Duration::from_secs(1);
/// A peer that sends data sends few beacons. So its other signs count, but so much later: by then a
/// beacon that says it hears nothing would have blocked the hop.
const SIGNS_COUNT_BEHIND: Duration = Duration::from_secs(2);
/// After a doubt by such a word that was in vain no word counts for this, and for twice as long
/// each time; what is longer ago does not count.
const UNHEEDED: Duration = Duration::from_secs(1);
const MOST_UNHEEDED_DOUBLINGS: u32 = 6;
const WORDS_FORGOTTEN: Duration = Duration::from_secs(600);
/// How long that message is worth sending.
const WORD_COUNTS: Duration = Duration::from_secs(2);

/// What shows that a peer which said that it hears nothing hears again.
#[derive(Clone, Copy, Debug)]
struct Unheard {
    /// An acknowledgement of something offered after this: it should have arrived in the silence.
    offered: Instant,
    /// A beacon after this that does not say that the peer hears nothing.
    beacon: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Doubt {
    /// A sign of the peer after this ends the doubt; `None` if the hop is not in doubt.
    ends_behind: Option<Instant>,
    /// If set, no sign ends the doubt until one of these was shown.
    unheard: Option<Unheard>,
    /// When answers become late, if nothing is heard until then.
    due: Option<Instant>,
    /// When the rest of a bundle becomes late, if nothing is heard until then.
    rest_due: Option<Instant>,
    /// False alarms in a row, and the last one.
    alarms: u32,
    last_alarm: Option<Instant>,
    /// Whether it is in doubt by the peer's word alone.
    by_word: bool,
    /// It is in doubt by the peer's word and for a reason of this end, too.
    confirmed: bool,
    /// Doubts by its word in a row that were in vain, and the end of the last one.
    vain_words: u32,
    last_vain_word: Option<Instant>,
    /// The last sign of the peer before a silence was reported to it, and how long the silence was
    /// then.
    told: Option<(Instant, Duration)>,
    /// The last message that reported it.
    word: Option<BundleId>,
}

impl Doubt {
    /// Whether the hop is in doubt.
    pub fn is_on(&self) -> bool {
        self.ends_behind.is_some()
    }

    /// Whether the sessions should be asked for signs before it is judged.
    pub fn is_due(&self, now: Instant) -> bool {
        self.is_on() || self.dues().any(|due| due <= now)
    }

    fn dues(&self) -> impl Iterator<Item = Instant> {
        self.due.into_iter().chain(self.rest_due)
    }

    /// When it is to be judged anew.
    pub fn next_timeout(&self, now: Instant) -> Option<Instant> {
        let looked = self.is_on().then(|| now + LOOKED_EACH);
        looked.or_else(|| self.dues().filter(|due| *due > now).min())
    }

    /// Sets when answers become late, if nothing is late sooner.
    pub fn expect(&mut self, missed: Option<Instant>) {
        self.due = missed;
    }

    fn patience(&self, now: Instant) -> Duration {
        let lately = self.last_alarm.is_some_and(|at| now < at + FORGOTTEN);
        let doublings = if lately { self.alarms } else { 0 };
        PATIENCE * (1 << doublings.min(MOST_DOUBLINGS))
    }

    /// Begins a doubt that a sign of the peer after `behind` ends.
    fn begin(&mut self, behind: Instant, by_word: bool) {
        (self.ends_behind, self.by_word) = (Some(behind), by_word);
        (self.unheard, self.confirmed) = (None, false);
    }

    /// Whether the peer's word that it hears nothing is one of the reasons.
    fn has_word(&self) -> bool {
        self.by_word || self.confirmed
    }

    /// Notes that the peer hears nothing either.
    fn confirm(&mut self, unheard: Unheard) {
        (self.unheard, self.confirmed) = (Some(unheard), true);
    }

    /// Notes that answers are late: if the peer has said that it hears nothing, it was right.
    fn answers_are_late(&mut self) {
        self.confirmed |= std::mem::take(&mut self.by_word);
    }

    /// Notes that the peer has acknowledged something that was offered at `offered`.
    pub fn answered(&mut self, offered: Instant) {
        self.unheard = self.unheard.filter(|of| offered <= of.offered);
    }

    /// Notes that the peer was heard, which may show that it hears as well.
    pub fn heard(&mut self, at: Instant, sign: Sign) {
        let tells = |of: &Unheard| match sign {
            Sign::Beacon | Sign::Resting => at > of.beacon,
            Sign::Session => at > of.beacon + SIGNS_COUNT_BEHIND,
            Sign::Deaf => false,
        };
        self.unheard = self.unheard.filter(|of| !tells(of));
    }

    /// Notes that the peer certainly hears.
    pub fn hears(&mut self) {
        self.unheard = None;
    }

    /// Ends the doubt by a sign of the peer. It was a false alarm, unless both ends had a reason
    /// for it.
    fn was_false(&mut self, now: Instant) {
        (self.ends_behind, self.unheard) = (None, None);
        if std::mem::take(&mut self.confirmed) {
            return;
        }
        let lately = self.last_alarm.is_some_and(|at| now < at + FORGOTTEN);
        self.alarms = if lately { self.alarms + 1 } else { 1 };
        self.last_alarm = Some(now);
        if std::mem::take(&mut self.by_word) {
            let last = self.last_vain_word;
            let lately = last.is_some_and(|at| now < at + WORDS_FORGOTTEN);
            self.vain_words = if lately { self.vain_words + 1 } else { 1 };
            self.last_vain_word = Some(now);
        }
    }

    /// Ends the doubt since the hop is blocked: it was right.
    fn was_right(&mut self) {
        (self.ends_behind, self.by_word) = (None, false);
        (self.unheard, self.word) = (None, None);
        (self.vain_words, self.last_vain_word) = (0, None);
    }

    /// Whether the peer's word that it hears nothing counts at present.
    fn heeds_word(&self, now: Instant) -> bool {
        let doublings = self.vain_words.saturating_sub(1);
        let unheeded = UNHEEDED * (1 << doublings.min(MOST_UNHEEDED_DOUBLINGS));
        self.last_vain_word.is_none_or(|at| now >= at + unheeded)
    }

    /// Whether to tell the peer of the silence after a sign: once, and again each time that it has
    /// become twice as long.
    fn tells(&mut self, sign: Instant, silent: Duration) -> bool {
        let told = self.told.filter(|(before, _)| sign <= *before + SAME_SIGN);
        let tells = told.is_none_or(|(_, told)| silent >= 2 * told);
        if tells {
            self.told = Some((sign, silent));
        }
        tells
    }
}

impl Engine {
    pub(crate) fn judge_doubt(&mut self, now: Instant, id: HopId) {
        let missed = self.missed_at(now, id);
        let Some(hop) = self.hops.get_mut(&id) else {
            return;
        };
        let sign = hop.link.counted();
        hop.doubt.due = missed;
        hop.doubt.rest_due = hop.doubt.rest_due.filter(|due| *due > now);
        if let Some((Source::Probing, _)) = hop.link.blocked() {
            // The hop also falls silent for long: the next time, waiting would cost more than
            // copies.
            hop.doubt.alarms = 0;
        }
        let is_heard = hop.doubt.ends_behind.is_some_and(|behind| sign > behind);
        // The peer is told at once that it is heard: it may not hear by this hop, and its own doubt
        // may wait for that.
        let word = hop.doubt.word.take_if(|_| is_heard);
        match hop.doubt.ends_behind {
            // What it had in flight has been given back already.
            Some(_) if hop.blocked => {
                hop.doubt.was_right();
                self.end_doubt(now, id);
            }
            Some(_) if is_heard && hop.doubt.unheard.is_none() => {
                hop.doubt.was_false(now);
                self.end_doubt(now, id);
            }
            Some(_) if missed.is_some_and(|at| at <= now) => hop.doubt.answers_are_late(),
            None if missed.is_some_and(|at| at <= now) => {
                // What has left a terminal before it last heard the hub has arrived.
                let from = hop.config.dials.then_some(sign);
                hop.doubt.begin(sign + SAME_SIGN, false);
                self.copy_all_in_flight(now, id, from);
            }
            _ => {}
        }
        if let Some(word) = word {
            self.take_back(now, id, word);
        }
    }

    /// Takes back the word to the neighbour that nothing comes by a hop.
    fn take_back(&mut self, now: Instant, id: HopId, word: BundleId) {
        if self.agent.is_queued(word) {
            // A word that goes by this hop now would be about the other one.
            self.discard(now, word, None);
        } else if let Some(message) = self.missing(id, 0) {
            // If there is no room for this message, what the neighbour hears itself ends its doubt.
            let _ = self.queue_message(now, message, WORD_COUNTS);
        }
    }

    /// The message that reports a silence of `ms` on a hop to the neighbour. With two hops the
    /// other one, by which it goes, shows which is meant; with more a session that both ends know.
    /// `None` if there is none.
    fn missing(&self, id: HopId, ms: u16) -> Option<Message> {
        let neighbour = self.neighbour_of(id)?;
        let mut payload = vec![MISSES];
        payload.extend(ms.to_be_bytes());
        match self.ways.hops_to(neighbour).len() {
            0 | 1 => return None,
            2 => {}
            _ => {
                let mut sessions = self.hops.get(&id)?.all_sessions();
                let name = sessions.find_map(|session| self.sessions.get(session)?.name);
                payload.extend(name?);
            }
        }
        let payload = Bytes::from(payload);
        Some(Message::new(
            neighbour,
            ON_DEMAND_SERVICE,
            Class::SIGNALLING,
            payload,
        ))
    }

    /// When answers to what a hop has in flight become late, if nothing is heard until then.
    fn missed_at(&self, now: Instant, id: HopId) -> Option<Instant> {
        let sessions = self.hops.get(&id)?.all_sessions();
        let oldest = sessions.filter_map(|session| self.sessions.oldest_left_by(session));
        self.missed_behind(now, id, oldest.min()?)
    }

    /// As [`Engine::missed_at`], for something that left the hop at `left_by`.
    pub(crate) fn missed_behind(
        &self,
        now: Instant,
        id: HopId,
        left_by: Instant,
    ) -> Option<Instant> {
        let hop = self.hops.get(&id)?;
        if hop.blocked || !hop.link.is_probed() || !self.has_sure_other(id) {
            return None;
        }
        let rtt = hop.round_trip() + hop.measured.queue;
        let smoothed = hop.measured.smoothed_rtt.map(|(_, rtt)| rtt);
        let rtt = smoothed.map_or(rtt, |smoothed| smoothed.max(rtt));
        let answered = left_by.max(hop.in_flight_since) + rtt + hop.segment_time();
        Some(answered.max(hop.link.counted()) + hop.doubt.patience(now))
    }

    /// Whether another hop to the same neighbour, which is not in doubt itself, may carry copies of
    /// what this one has in flight before that is known to be lost. A metered hop may do so only
    /// for classes that use metered hops freely.
    fn has_sure_other(&self, id: HopId) -> bool {
        let Some(hop) = self.hops.get(&id) else {
            return false;
        };
        let mut classes = self.classes.iter();
        let freely = classes.any(|class| self.policy(*class).metered == MeteredUse::Freely);
        let spent = |meter: &Meter| !freely || meter.is_closed();
        let sure = |hop: &Hop| {
            let able = hop.config.sends && hop.is_up() && !hop.blocked && !hop.doubt.is_on();
            able && !hop.meter.as_ref().is_some_and(spent)
        };
        let hops = self.ways.hops_to(hop.config.neighbour).iter();
        hops.filter(|other| **other != id)
            .any(|other| self.hops.get(other).is_some_and(sure))
    }

    /// Sends copies by other hops of all that a hop has in flight and that left it at `from` or
    /// later.
    fn copy_all_in_flight(&mut self, now: Instant, id: HopId, from: Option<Instant>) {
        let Some(hop) = self.hops.get(&id) else {
            return;
        };
        let sessions: Vec<_> = hop.all_sessions().collect();
        self.copy_in_flight(now, id, &sessions, from);
    }

    /// Sends copies by other hops of what sessions of a hop have in flight and that left it at
    /// `from` or later.
    pub(crate) fn copy_in_flight(
        &mut self,
        now: Instant,
        id: HopId,
        sessions: &[SessionId],
        from: Option<Instant>,
    ) {
        let neighbour = self.neighbour_of(id).unwrap_or_default();
        let kept = sessions.iter();
        let mut kept: Vec<_> = kept
            .flat_map(|session| self.sessions.kept(*session, from))
            .collect();
        let classes = &self.config.scheduler.classes;
        let priority = |class: Class| {
            let known = classes.iter().find(|of| of.class == class);
            known.map(|of| of.priority)
        };
        kept.sort_by_key(|(key, kept)| (priority(kept.class), *key));
        // A bundle that is too long leaves the room to those behind it.
        let mut room = MOST_COPIED_BYTES;
        kept.retain(|(_, kept)| {
            let left = room.checked_sub(length(&kept.chunks));
            room = left.unwrap_or(room);
            left.is_some()
        });
        for (_, kept) in kept.into_iter().take(MOST_COPIES) {
            self.copy_doubted(now, id, kept);
        }
        for hop in self.ways.shared_hops_to(neighbour).iter() {
            self.leaves_changed(*hop);
        }
    }

    /// Sends a copy of a bundle that a hop in doubt has in flight by another hop, if its class may
    /// use that and no copy is there already.
    fn copy_doubted(&mut self, now: Instant, id: HopId, kept: Kept) {
        let Kept {
            class,
            bundle,
            chunks,
        } = kept;
        let neighbour = self.neighbour_of(id).unwrap_or_default();
        if self.policy(class).uses == PathUse::Duplicated {
            return;
        }
        let others = self.candidates(now, neighbour, class).into_iter();
        let others = others.filter(|one| one.id != id);
        let first = others.min_by_key(|one| one.way.busy + one.way.delay);
        if let Some(hop) = first.and_then(|one| self.hops.get_mut(&one.id)) {
            let copies = hop.copies.entry(class).or_default();
            // Copies from a hop that stood still stay when it moves again.
            if copies.iter().all(|copy| copy.bundle != bundle) {
                copies.push_back(CopiedBundle {
                    bundle,
                    chunks,
                    doubted: Some(id),
                });
            }
        }
    }

    /// Drops the copies of what a hop has in flight, since it is not in doubt any more. Those of
    /// classes for which it seems to stand still stay.
    fn end_doubt(&mut self, now: Instant, id: HopId) {
        let neighbour = self.neighbour_of(id).unwrap_or_default();
        let classes = self.classes.iter().copied();
        let suspected = classes.filter(|class| {
            let hop = self.hops.get(&id);
            hop.is_some_and(|hop| hop.standing.is_suspected(now, *class))
        });
        let suspected: Vec<Class> = suspected.collect();
        for other in self.ways.shared_hops_to(neighbour).iter() {
            if let Some(hop) = self.hops.get_mut(other) {
                for (class, copies) in &mut hop.copies {
                    if !suspected.contains(class) {
                        copies.retain(|copy| copy.doubted != Some(id));
                    }
                }
            }
            self.leaves_changed(*other);
        }
    }

    /// Notes that nothing has come by a hop for `silent`, though the neighbour has begun a bundle
    /// there. If that is too long the neighbour is told by another hop, since its own signs are a
    /// round trip older. Otherwise the sessions are asked again when it would be too long.
    pub fn misses(&mut self, now: Instant, id: HopId, silent: Duration) {
        let Some(hop) = self.hops.get(&id) else {
            return;
        };
        let known = hop.blocked || !hop.link.is_probed();
        let neighbour = hop.config.neighbour;
        if known || !self.has_sure_other(id) {
            return;
        }
        let ms = u16::try_from(silent.as_millis()).unwrap_or(u16::MAX);
        let Some(word) = self.missing(id, ms) else {
            return;
        };
        let left = hop.doubt.patience(now).saturating_sub(silent);
        if !left.is_zero() {
            // A deadline that has passed already is still to be judged.
            let due = hop.link_at;
            if let Some(hop) = self.hops.get_mut(&id) {
                hop.doubt.rest_due = Some(now + left);
            }
            self.watch(now, id, due);
            return;
        }
        let sign = now.checked_sub(silent).unwrap_or(now);
        let Some(hop) = self.hops.get_mut(&id) else {
            return;
        };
        if !hop.doubt.tells(sign, silent) {
            return;
        }
        let behind = sign.max(hop.link.counted()) + SAME_SIGN;
        if hop.doubt.is_on() {
            // If the peer's word keeps the doubt on, earlier signs say nothing about this silence.
            hop.doubt.ends_behind = Some(behind);
        } else {
            // The message must not go by this hop.
            hop.doubt.begin(behind, false);
            self.copy_all_in_flight(now, id, None);
            self.judge(now, id);
        }
        // By this hop the message would be about the other one; signalling may be excluded from
        // that other one.
        let ways = self.candidates(now, neighbour, self.known(Class::SIGNALLING));
        if ways.is_empty() || ways.iter().any(|way| way.id == id) {
            return;
        }
        // If there is no room for this message, the next one says the same, or this end's silence
        // does.
        let word = self.send_message(now, word, WORD_COUNTS).ok();
        if let Some(hop) = self.hops.get_mut(&id) {
            hop.doubt.word = word;
        }
    }

    /// Takes a neighbour's word by one hop that nothing comes by another one. Returns whether the
    /// message is such a word. It concerns only the neighbour's own hops, and can only make this
    /// end send it a few MiB twice, less and less often unless the hop is silent itself by then.
    pub(crate) fn take_missing(&mut self, now: Instant, delivery: &bundle::Delivery) -> bool {
        let source = bundle::wire::ipn_parts(&delivery.source);
        let Some((peer, ON_DEMAND_SERVICE)) = source else {
            return false;
        };
        let [MISSES, high, low, name @ ..] = &delivery.payload[..] else {
            return false;
        };
        let silent = Duration::from_millis(u16::from_be_bytes([*high, *low]).into());
        let hops = self.ways.shared_hops_to(peer);
        let Some(by) = self.came_by.filter(|by| hops.contains(by)) else {
            return true;
        };
        let is_meant = |id: &HopId| match name {
            [] => silent.is_zero() || *id != by,
            name => self.has_session_named(*id, name),
        };
        let meant: Vec<HopId> = hops.iter().copied().filter(is_meant).collect();
        if silent.is_zero() {
            for id in meant {
                if let Some(hop) = self.hops.get_mut(&id) {
                    hop.doubt.hears();
                }
            }
        } else if let [id] = meant[..]
            && id != by
        {
            self.doubt_by_word(now, id, by, silent + delivery.age);
        }
        true
    }

    fn has_session_named(&self, id: HopId, name: &[u8]) -> bool {
        let hop = self.hops.get(&id).into_iter();
        let sessions = hop.flat_map(|hop| hop.all_sessions());
        let mut names = sessions.filter_map(|session| self.sessions.get(session)?.name);
        names.any(|known| known[..] == *name)
    }

    /// Begins or confirms a doubt: when the neighbour said so by another hop, nothing had come by
    /// this one for `silent`.
    fn doubt_by_word(&mut self, now: Instant, id: HopId, by: HopId, silent: Duration) {
        let (Some(hop), Some(by)) = (self.hops.get(&id), self.hops.get(&by)) else {
            return;
        };
        let is_on = hop.doubt.is_on();
        let patient = silent < hop.doubt.patience(now) || is_on && hop.doubt.has_word();
        let patient = patient || !hop.doubt.heeds_word(now);
        if hop.blocked || !hop.link.is_probed() || patient || !self.has_sure_other(id) {
            return;
        }
        let one_way = hop.round_trip() / 2 + hop.measured.queue;
        let since = by.round_trip() / 2 + silent;
        let ago = since + one_way + INACCURACY;
        let from = now.checked_sub(ago);
        // What was sent since then should have arrived in that silence.
        let has_sent = |session| self.sessions.has_leaving(session, from);
        if !hop.all_sessions().any(has_sent) {
            return;
        }
        let says_so = hop.config.rtt.max(SAYS_SO_BEHIND) + one_way + SAME_SIGN;
        let beacon = now.checked_sub(since).unwrap_or(now) + says_so;
        let offered = from.map_or(now, |from| from + 2 * INACCURACY);
        let unheard = Unheard { offered, beacon };
        let behind = hop.link.counted() + SAME_SIGN;
        let Some(hop) = self.hops.get_mut(&id) else {
            return;
        };
        match is_on {
            true => hop.doubt.confirm(unheard),
            false => {
                hop.doubt.begin(behind, true);
                hop.doubt.unheard = Some(unheard);
            }
        }
        if is_on && !hop.config.dials {
            // All that it has in flight was copied when the doubt began.
            return;
        }
        self.copy_all_in_flight(now, id, from);
        // A deadline that has passed already is still to be judged.
        let due = self.hops.get(&id).and_then(|hop| hop.link_at);
        self.watch(now, id, due);
    }
}

#[cfg(test)]
mod tests;
