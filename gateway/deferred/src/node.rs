//! Both sides in one machine, and what it wants done.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use thiserror::Error;

use crate::agenda::{Agenda, Party};
use crate::dispatch::{Dispatched, Job, JobKey, Shares};
use crate::id::Id;
use crate::object::{MAX_PART_BYTES, MIN_PART_BYTES};
use crate::queue::{Entry, Upload};
use crate::record::{Owner, State};
use crate::store::{Kind, Side, Store, StoreError};
use crate::transfer::Outgoing;
use crate::wire::{Body, Key, Message, Of};

/// Transfers to one peer at once, per side.
pub(crate) const ACTIVE: usize = 4;
/// How long a peer's messages wait after the bundle node had no room, ms.
const ROOM_PAUSE_MS: u64 = 200;
/// Acknowledgements are of use for so long, ms.
const ACK_LIFETIME_MS: u64 = 3_600_000;

/// Bounds and times.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest request, head included, bytes.
    pub request_bytes: u64,
    /// Largest response, head included, bytes.
    pub response_bytes: u64,
    /// Bytes stored in all; requests may use half of it. Each peer, and each client, has no more of
    /// either than it leaves to others.
    pub quota_bytes: u64,
    /// Requests known at once, on each side. For the dispatching side it is a
    /// pool beyond what each peer is guaranteed.
    pub requests: usize,
    /// Bytes of the parts in which objects are sent.
    pub part_bytes: u32,
    /// For how long a request may wait for its answer, ms.
    pub lifetime_ms: u64,
    /// For how long an ended request is kept, ms.
    pub keep_ms: u64,
    /// For how long it is kept once its response has been fetched, ms.
    pub keep_fetched_ms: u64,
    /// Requests that are sent to origins at once.
    pub exchanges: usize,
}

/// Why a client's request or wish is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The request is larger than allowed.
    #[error("a request to be kept may have {0} bytes at most")]
    TooLarge(u64),
    /// The node keeps as much as it may.
    #[error("this node keeps as many requests as it may; fetch or delete some")]
    Full,
    /// There is no such request, or it belongs to another client.
    #[error("there is no such request, or it has been deleted")]
    Unknown,
    /// It is in a state in which this is not possible.
    #[error("the request's state does not allow this")]
    State,
}

/// What is to be done outside after a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a message to a peer.
    Send {
        /// The peer.
        peer: u64,
        /// In this class.
        class: u8,
        /// It is of use for so long, ms.
        lifetime_ms: u64,
        /// Identifies what it replaces: an earlier message of this name that has not left need not
        /// be sent.
        name: Name,
        /// The message.
        message: Message,
    },
    /// Deal with an origin.
    Order(Order),
}

/// What an exchange with an origin has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Connect to the origin; say [`Dispatched::Connected`] or how it ended.
    Connect {
        /// The exchange.
        job: JobKey,
        /// The request.
        head: Bytes,
        /// Its body's bytes.
        body_bytes: u64,
    },
    /// The request may be sent: this is recorded in the store.
    Transmit(JobKey),
    /// Give the exchange up.
    Abort(JobKey),
}

/// Names a message among those to one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    /// The request.
    pub key: Key,
    /// Which side speaks.
    pub side: Side,
    /// Of which kind: a part, an acknowledgement, or a word.
    pub kind: NameKind,
}

/// The kind of a named message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameKind {
    /// A part of the object that this side sends.
    Part(u32),
    /// An acknowledgement; a later one says more.
    Ack(Of),
    /// A cancellation or a notice of an end.
    Word,
    /// That it is being sent.
    Sent,
}

/// Figures for metrics.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Requests of this node's clients, by state.
    pub requests: BTreeMap<State, u64>,
    /// Requests of peers that are known here.
    pub dispatching: u64,
    /// Bytes kept in all.
    pub bytes: u64,
    /// Bytes that may be kept.
    pub quota_bytes: u64,
}

/// Whether a party that has `own` bytes of `all` may have `bytes` more. Beyond
/// what is guaranteed it takes no more than it leaves free (the dynamic
/// threshold of Choudhury and Hahne, 1998).
fn has_share(own: u64, all: u64, bytes: u64, guaranteed: u64, quota: u64) -> bool {
    let beyond = own.saturating_add(bytes).saturating_sub(guaranteed);
    all.saturating_add(bytes).saturating_add(beyond) <= quota
}

/// Due acknowledgements, by peer, request and kind.
type Acks = BTreeMap<(u64, Key, Of), (Side, u8, u32)>;

/// Store-and-forward of one node, without I/O and clock.
pub struct Node<S> {
    pub(crate) limits: Limits,
    pub(crate) store: S,
    /// This node's clients' requests.
    pub(crate) entries: Agenda<Id, Entry>,
    /// Their order: the oldest is sent first, and lists begin with it.
    pub(crate) order: BTreeMap<u64, Id>,
    pub(crate) next_number: u64,
    /// Requests that are just coming in.
    pub(crate) uploads: Agenda<Id, Upload>,
    /// Peers' requests.
    pub(crate) jobs: Agenda<JobKey, Job>,
    pub(crate) shares: Shares,
    pub(crate) acks: Acks,
    pub(crate) outputs: Vec<Output>,
    /// Until when nothing is sent to peers without room, ms.
    pauses: HashMap<u64, u64>,
}

impl<S: Store> Node<S> {
    /// The node as it was at the last commit of `store`.
    ///
    /// # Errors
    /// When the store fails.
    pub fn open(now_ms: u64, mut limits: Limits, store: S) -> Result<Node<S>, StoreError> {
        limits.part_bytes = limits.part_bytes.clamp(MIN_PART_BYTES, MAX_PART_BYTES);
        let mut node = Node {
            limits,
            store,
            entries: Agenda::new(),
            order: BTreeMap::new(),
            next_number: 0,
            uploads: Agenda::new(),
            jobs: Agenda::new(),
            shares: Shares::default(),
            acks: BTreeMap::new(),
            outputs: Vec::new(),
            pauses: HashMap::new(),
        };
        node.load_queue()?;
        node.load_jobs(now_ms)?;
        node.delete_orphans()?;
        Ok(node)
    }

    /// Undoes what has happened since the last commit.
    ///
    /// # Errors
    /// When the store fails.
    pub fn reopen(self, now_ms: u64) -> Result<Node<S>, StoreError> {
        let mut store = self.store;
        store.rollback()?;
        Node::open(now_ms, self.limits, store)
    }

    /// Deletes what a client that died during its request, or a broken exchange, has left.
    fn delete_orphans(&mut self) -> Result<(), StoreError> {
        for object in self.store.objects()? {
            let wanted = match object.record.side {
                Side::Queue => self.entries.contains_key(&object.record.key.id),
                Side::Dispatch => {
                    let job = self.jobs.get(&JobKey::of(&object.record));
                    job.is_some_and(|job| match object.kind {
                        Kind::Request => job.keeps_request(),
                        Kind::Response => job.keeps_response(),
                    })
                }
            };
            if !wanted {
                self.store.delete_object(&object)?;
            }
        }
        Ok(())
    }

    /// A message of a peer.
    ///
    /// # Errors
    /// When the store fails.
    pub fn message(
        &mut self,
        now_ms: u64,
        peer: u64,
        class: u8,
        message: Message,
    ) -> Result<(), StoreError> {
        let key = message.key;
        let job = JobKey { peer, key };
        match message.body {
            Body::Request {
                repeatable,
                lifetime_ms,
                part,
            } => self.take_request(now_ms, job, class, repeatable, lifetime_ms, part),
            Body::Cancel { lifetime_ms } => self.take_cancel(now_ms, job, class, lifetime_ms),
            Body::Response { own, part } => self.take_response(now_ms, peer, class, key, own, part),
            Body::Notice { fate, text } => self.take_notice(now_ms, peer, class, key, fate, text),
            Body::Ack {
                of: Of::Request,
                next,
            } => self.take_request_ack(now_ms, peer, key, next),
            Body::Ack { next, .. } => self.take_outcome_ack(now_ms, job, next),
        }
    }

    /// Takes the outcome of an exchange with an origin.
    ///
    /// # Errors
    /// When the store fails.
    pub fn dispatched(
        &mut self,
        now_ms: u64,
        job: JobKey,
        what: Dispatched,
    ) -> Result<(), StoreError> {
        self.take_dispatched(now_ms, job, what)
    }

    /// A peer has restarted: messages that it had not stored are sent again.
    pub fn peer_restarted(&mut self, peer: u64) {
        self.entries.refresh(&self.limits);
        self.jobs.refresh(&self.limits);
        for id in self.entries.unacknowledged(peer) {
            let entry = self.entries.get_mut(&id);
            entry
                .into_iter()
                .flat_map(Entry::transfers)
                .for_each(Outgoing::again);
        }
        for key in self.jobs.unacknowledged(peer) {
            let job = self.jobs.get_mut(&key);
            job.into_iter()
                .flat_map(Job::transfers)
                .for_each(Outgoing::again);
        }
        self.unpause(peer);
    }

    /// Does what is due.
    ///
    /// # Errors
    /// When the store fails.
    pub fn handle_timeout(&mut self, now_ms: u64) -> Result<(), StoreError> {
        let over = self.pauses.iter().filter(|(_, until)| **until <= now_ms);
        for peer in over.map(|(peer, _)| *peer).collect::<Vec<_>>() {
            self.unpause(peer);
        }
        self.expire_queue(now_ms)?;
        self.expire_jobs(now_ms)
    }

    /// When [`Node::handle_timeout`] must be called at the latest, ms.
    pub fn next_timeout(&self) -> Option<u64> {
        let pauses = self.pauses.values().copied().min();
        let entries = self.entries.next_due_ms(&self.limits);
        let jobs = self.jobs.next_due_ms(&self.limits);
        [pauses, entries, jobs].into_iter().flatten().min()
    }

    /// Decides what leaves, and makes all decisions durable. The returned outputs may be carried
    /// out now.
    ///
    /// # Errors
    /// When the store fails; [`Node::reopen`] then.
    pub fn commit(&mut self, now_ms: u64) -> Result<Vec<Output>, StoreError> {
        self.send_requests(now_ms)?;
        self.go_on_with_jobs(now_ms)?;
        for ((peer, key, of), (side, class, next)) in std::mem::take(&mut self.acks) {
            self.outputs.push(Output::Send {
                peer,
                class,
                lifetime_ms: ACK_LIFETIME_MS,
                name: Name {
                    key,
                    side,
                    kind: NameKind::Ack(of),
                },
                message: Message {
                    key,
                    body: Body::Ack { of, next },
                },
            });
        }
        self.store.commit()?;
        Ok(std::mem::take(&mut self.outputs))
    }

    /// A message could not be sent for want of room; it is tried again soon.
    pub fn unsent(&mut self, now_ms: u64, peer: u64, name: Name) {
        self.pauses.insert(peer, now_ms + ROOM_PAUSE_MS);
        let transfers = match name.side {
            Side::Queue => self.entries.get_mut(&name.key.id).map(|entry| {
                let current = entry.request.attempt == name.key.attempt;
                (current, &mut entry.parts, &mut entry.word)
            }),
            Side::Dispatch => {
                let job = JobKey {
                    peer,
                    key: name.key,
                };
                let found = self.jobs.get_mut(&job);
                found.map(|job| (true, &mut job.parts, &mut job.word))
            }
        };
        let (transfer, index) = match (transfers, name.kind) {
            (Some((true, parts, _)), NameKind::Part(index)) => (parts, index),
            (Some((true, _, word)), NameKind::Word) => (word, 0),
            // Messages without acknowledgements are sent again when the other side repeats its own.
            _ => return,
        };
        if let Some(transfer) = transfer {
            transfer.unsent(index);
        }
    }

    /// The peer's messages wait no longer.
    fn unpause(&mut self, peer: u64) {
        if self.pauses.remove(&peer).is_some() {
            self.entries.touch(peer);
            self.jobs.touch(peer);
        }
    }

    /// Whether a peer's messages wait for room.
    pub(crate) fn is_paused(&self, peer: u64) -> bool {
        self.pauses.contains_key(&peer)
    }

    /// Updates the figures of all items that have changed.
    pub(crate) fn refresh(&mut self) {
        self.entries.refresh(&self.limits);
        self.uploads.refresh(&self.limits);
        self.jobs.refresh(&self.limits);
    }

    /// Whether so many bytes more of a party's requests may be kept.
    pub(crate) fn request_room(&mut self, party: Party, bytes: u64) -> bool {
        if !self.room(party, bytes) {
            return false;
        }
        let all =
            self.entries.request_bytes() + self.uploads.request_bytes() + self.jobs.request_bytes();
        let (own, _) = self.held_bytes(party);
        let half = self.limits.quota_bytes / 2;
        has_share(own, all, bytes, self.limits.request_bytes, half)
    }

    /// Whether so many bytes more of a party's may be kept.
    pub(crate) fn room(&mut self, party: Party, bytes: u64) -> bool {
        self.refresh();
        let awaited = self.entries.awaited_bytes() + self.jobs.awaited_bytes();
        let all = self.store.bytes().saturating_add(awaited);
        let (requests, responses) = self.held_bytes(party);
        let Limits {
            request_bytes,
            response_bytes,
            quota_bytes,
            ..
        } = self.limits;
        let guaranteed = request_bytes.saturating_add(response_bytes);
        has_share(requests + responses, all, bytes, guaranteed, quota_bytes)
    }

    /// Bytes of a party's requests and responses, including those still to come.
    fn held_bytes(&self, party: Party) -> (u64, u64) {
        let held = [
            self.entries.held(party),
            self.uploads.held(party),
            self.jobs.held(party),
        ];
        let requests = held.iter().map(|held| held.request_bytes).sum();
        let responses = held.iter().map(|held| held.response_bytes).sum();
        (requests, responses)
    }

    /// Figures for metrics.
    pub fn figures(&self) -> Figures {
        let mut figures = Figures {
            dispatching: self.jobs.len() as u64,
            bytes: self.store.bytes(),
            quota_bytes: self.limits.quota_bytes,
            ..Figures::default()
        };
        for entry in self.entries.values() {
            *figures.requests.entry(entry.request.state).or_default() += 1;
        }
        figures
    }

    /// The latest time on record, ms.
    pub(crate) fn latest_ms(&self) -> u64 {
        let requests = self.entries.values().map(|entry| &entry.request);
        let times = requests.flat_map(|request| {
            let later = [request.forwarded_ms, request.sent_ms, request.finished_ms];
            later.into_iter().flatten().chain([request.created_ms])
        });
        times.max().unwrap_or(0)
    }

    /// Bytes kept in all.
    pub fn bytes(&self) -> u64 {
        self.store.bytes()
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether `owner` may see the request; `None` may see all.
    pub(crate) fn admits(entry: &Entry, owner: Option<&Owner>) -> bool {
        owner.is_none_or(|asking| entry.request.owner.admits(asking))
    }
}
