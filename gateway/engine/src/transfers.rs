//! Sessions, and the transfers that were offered to them and have not ended.
//!
//! A transfer is on one session, which lists it, until it ends or is given
//! back; a session that takes one is not ready until it says so again.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use underpass_bundle::BundleId;
use underpass_cla::{Class, EXPRESS_ROOM_BYTES, Outcome, SessionId, SessionInfo};
use underpass_work::FastMap;

use crate::hop::HopId;
use crate::unanswered::Answering;

/// What the engine knows of a session.
#[derive(Debug)]
pub(crate) struct Session {
    pub hop: HopId,
    pub info: SessionInfo,
    /// Its name at both ends, if it is secured.
    pub name: Option<[u8; 8]>,
    /// What its transport has shown of the peer's answers.
    pub answering: Answering,
    ready: bool,
    room_bytes: u64,
    in_flight: BTreeSet<u64>,
    /// Of these the long ones.
    long_in_flight: BTreeSet<u64>,
    stale: bool,
    /// Acknowledgements and ends of transfers so far.
    moves: u64,
    watched: Option<Watched>,
}

/// A session that is watched for a standstill while others carry on.
#[derive(Clone, Copy, Debug)]
struct Watched {
    /// What it had moved, and since when it has moved nothing more.
    moves: u64,
    since: Instant,
    /// When it was last looked at.
    looked: Instant,
}

impl Session {
    fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Session {
            hop: _,
            info: _,
            name: _,
            answering: _,
            ready: _,
            room_bytes: _,
            in_flight,
            long_in_flight,
            stale: _,
            moves: _,
            watched: _,
        } = self;
        tell("transfers of sessions", in_flight.len());
        tell("long transfers of sessions", long_in_flight.len());
    }

    /// Whether it can take a bundle.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Bytes of short bundles that it takes until it is ready again.
    pub fn room_bytes(&self) -> u64 {
        self.room_bytes
    }

    /// How many transfers are on it.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether it has any transfer.
    pub fn has_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Whether it has a long transfer: its lost segments hold up what follows.
    pub fn has_long_in_flight(&self) -> bool {
        !self.long_in_flight.is_empty()
    }

    /// Whether the link was lost and came back since the session's transfers began, and none has
    /// moved since. They go to the next session that comes up.
    pub fn is_stale(&self) -> bool {
        self.stale
    }
}

/// A transfer that has not ended.
#[derive(Debug)]
pub(crate) struct InFlight {
    session: SessionId,
    /// When the session was offered it.
    offered: Instant,
    /// When all of it has left at the hop's rate.
    pub left_by: Instant,
    /// Bytes of its bundle that the peer has acknowledged, and keeps if it breaks off.
    pub acknowledged: u64,
    /// Its bundle, if a copy of it may go by another hop.
    kept: Option<Kept>,
}

/// A bundle under way of which a copy can be made.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub class: Class,
    pub bundle: BundleId,
    pub chunks: Vec<Bytes>,
}

#[derive(Debug, Default)]
pub(crate) struct Sessions {
    known: FastMap<SessionId, Session>,
    /// By the transfers' keys.
    transfers: FastMap<u64, InFlight>,
}

impl Sessions {
    /// Adds a session that has not said that it is ready.
    pub fn insert(&mut self, id: SessionId, hop: HopId, info: SessionInfo) {
        let name = info.exported_key.map(|key| key.session_name());
        let session = Session {
            hop,
            info,
            name,
            answering: Answering::default(),
            ready: false,
            room_bytes: 0,
            in_flight: BTreeSet::new(),
            long_in_flight: BTreeSet::new(),
            stale: false,
            moves: 0,
            watched: None,
        };
        self.known.insert(id, session);
    }

    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let Sessions { known, transfers } = self;
        tell("sessions", known.len());
        known.values().for_each(|session| session.footprint(tell));
        tell("transfers", transfers.len());
    }

    /// A session.
    pub fn get(&self, id: SessionId) -> Option<&Session> {
        self.known.get(&id)
    }

    /// What the transport of a session has shown of the peer's answers.
    pub fn answering_mut(&mut self, id: SessionId) -> Option<&mut Answering> {
        let session = self.known.get_mut(&id)?;
        Some(&mut session.answering)
    }

    /// Notes that a session can take a bundle. Returns whether the session is known.
    pub fn set_ready(&mut self, id: SessionId) -> bool {
        let Some(session) = self.known.get_mut(&id) else {
            return false;
        };
        session.ready = true;
        session.room_bytes = EXPRESS_ROOM_BYTES;
        true
    }

    /// Notes that a session is offered a transfer, which will have left its hop by `left_by`.
    /// `short_bytes` is its length if it is a short bundle, behind which more short ones may go.
    pub fn offered(
        &mut self,
        now: Instant,
        id: SessionId,
        key: u64,
        left_by: Instant,
        short_bytes: Option<u64>,
    ) {
        if let Some(session) = self.known.get_mut(&id) {
            session.ready = false;
            let left = short_bytes.map(|bytes| session.room_bytes.saturating_sub(bytes));
            session.room_bytes = left.unwrap_or(0);
            session.in_flight.insert(key);
            if short_bytes.is_none() {
                session.long_in_flight.insert(key);
            }
            let transfer = InFlight {
                session: id,
                offered: now,
                left_by,
                acknowledged: 0,
                kept: None,
            };
            self.transfers.insert(key, transfer);
        }
    }

    /// Keeps the bundle of a transfer until that has ended.
    pub fn keep(&mut self, key: u64, kept: Kept) {
        if let Some(transfer) = self.transfers.get_mut(&key) {
            transfer.kept = Some(kept);
        }
    }

    /// When the oldest transfer on a session has left its hop.
    pub fn oldest_left_by(&self, id: SessionId) -> Option<Instant> {
        let oldest = self.known.get(&id)?.in_flight.first()?;
        Some(self.transfers.get(oldest)?.left_by)
    }

    /// When a transfer has left its hop, at the hop's rate.
    pub fn left_by(&self, key: u64) -> Option<Instant> {
        Some(self.transfers.get(&key)?.left_by)
    }

    /// The transfers on a session, by their keys, that have not left its hop before
    /// `from`.
    fn leaving(
        &self,
        id: SessionId,
        from: Option<Instant>,
    ) -> impl Iterator<Item = (u64, &InFlight)> {
        let keys = self.known.get(&id).into_iter();
        let keys = keys.flat_map(|session| session.in_flight.iter().copied());
        let transfers = keys.filter_map(move |key| Some((key, self.transfers.get(&key)?)));
        transfers.filter(move |(_, transfer)| from.is_none_or(|from| transfer.left_by >= from))
    }

    /// Whether there is any such transfer.
    pub fn has_leaving(&self, id: SessionId, from: Option<Instant>) -> bool {
        self.leaving(id, from).next().is_some()
    }

    /// The bundles kept of such transfers.
    pub fn kept(&self, id: SessionId, from: Option<Instant>) -> Vec<(u64, Kept)> {
        let leaving = self.leaving(id, from);
        let kept = leaving.filter_map(|(key, transfer)| Some((key, transfer.kept.clone()?)));
        kept.collect()
    }

    /// Notes how many bytes of a transfer have been acknowledged.
    pub fn progress(&mut self, key: u64, acknowledged: u64) {
        if let Some(transfer) = self.transfers.get_mut(&key)
            && let Some(session) = self.known.get_mut(&transfer.session)
        {
            if session.info.resumes {
                transfer.acknowledged = acknowledged;
            }
            session.stale = false;
            session.moves += 1;
        }
    }

    /// Notes that a transfer has ended. Returns whether it was on a session.
    pub fn finish(&mut self, key: u64, outcome: &Outcome) -> bool {
        let Some(transfer) = self.transfers.remove(&key) else {
            return false;
        };
        if let Some(session) = self.known.get_mut(&transfer.session) {
            session.in_flight.remove(&key);
            session.long_in_flight.remove(&key);
            session.stale &= matches!(outcome, Outcome::Broken { .. });
            session.moves += 1;
        }
        true
    }

    /// The session that a transfer is on, and when the session was offered it.
    pub fn offer_of(&self, key: u64) -> Option<(SessionId, Instant)> {
        let transfer = self.transfers.get(&key)?;
        Some((transfer.session, transfer.offered))
    }

    /// Whether a session has moved nothing for so long, though something has left it. It must have
    /// been looked at all that time with no pause longer than `pause`.
    pub fn stands_still(
        &mut self,
        now: Instant,
        id: SessionId,
        patience: Duration,
        pause: Duration,
    ) -> bool {
        let Some(session) = self.known.get_mut(&id) else {
            return false;
        };
        let oldest = session.in_flight.first();
        let Some(oldest) = oldest.and_then(|key| self.transfers.get(key)) else {
            session.watched = None;
            return false;
        };
        let moves = session.moves;
        let same = |watched: &Watched| watched.moves == moves && now <= watched.looked + pause;
        let since = session.watched.filter(same).map_or(now, |of| of.since);
        session.watched = Some(Watched {
            moves,
            since,
            looked: now,
        });
        now >= since.max(oldest.left_by) + patience
    }

    /// Takes all transfers, with their keys, from a session, which gets no more.
    pub fn give_back(&mut self, id: SessionId) -> Vec<(u64, InFlight)> {
        let Some(session) = self.known.get_mut(&id) else {
            return Vec::new();
        };
        session.ready = false;
        session.room_bytes = 0;
        session.long_in_flight.clear();
        let keys = std::mem::take(&mut session.in_flight).into_iter();
        let transfers = keys.filter_map(|key| Some((key, self.transfers.remove(&key)?)));
        transfers.collect()
    }

    /// Notes that the link of a session is back, while its transfers have nowhere to go yet.
    pub fn mark_stale(&mut self, id: SessionId) {
        if let Some(session) = self.known.get_mut(&id) {
            session.stale = true;
        }
    }

    /// Forgets a session whose transfers were given back.
    pub fn remove(&mut self, id: SessionId) -> Option<Session> {
        let session = self.known.remove(&id)?;
        debug_assert!(!session.has_in_flight(), "{id:?} has transfers");
        Some(session)
    }
}
