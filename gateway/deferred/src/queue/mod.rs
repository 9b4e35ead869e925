//! The queue's side: requests of this node's clients.
//!
//! Here they are loaded, kept, and ended by time. [`submission`] takes them in, [`requests`]
//! answers clients' queries about them, [`sending`] sends them to the dispatching node, and
//! [`outcome`] takes their results.

mod outcome;
mod requests;
mod sending;
mod submission;

use crate::agenda::{Item, Party, Wants};
use crate::id::Id;
use crate::node::{Limits, Node};
use crate::record::{Request, State};
use crate::store::{Kind, RecordKey, Side, Store, StoreError};
use crate::transfer::{Incoming, Outgoing};
use crate::wire::Key;

pub use submission::Submission;
pub(crate) use submission::Upload;

/// A request and what is under way for it.
pub(crate) struct Entry {
    pub number: u64,
    pub request: Request,
    /// Its parts, until the dispatching node has them.
    pub parts: Option<Outgoing>,
    /// Its cancellation, until the dispatching node has reported the outcome.
    pub word: Option<Outgoing>,
    /// Parts of the response.
    pub incoming: Incoming,
}

impl Entry {
    pub fn transfers(&mut self) -> impl Iterator<Item = &mut Outgoing> {
        self.parts.iter_mut().chain(&mut self.word)
    }

    /// Missing bytes of the response, once it has begun to come.
    fn awaited_bytes(&self) -> u64 {
        self.request.response.map_or(0, |object| {
            let here = u64::from(self.incoming.next()) * u64::from(object.part_bytes);
            object.total_bytes.saturating_sub(here)
        })
    }

    fn request_bytes(&self) -> u64 {
        match self.request.state {
            State::Answered | State::Cancelled => 0,
            _ => self.request.request.total_bytes,
        }
    }

    fn key(&self) -> Key {
        Key {
            id: self.request.id,
            attempt: self.request.attempt,
        }
    }

    fn end(&mut self, now_ms: u64, state: State, reason: String) {
        self.request.state = state;
        self.request.reason = reason;
        self.request.finished_ms = Some(now_ms);
        self.request.cancelling = false;
        self.parts = None;
    }

    fn forwarded(&mut self, now_ms: u64, state: State) {
        self.request.state = state;
        self.request.forwarded_ms.get_or_insert(now_ms);
        self.parts = None;
    }
}

impl Item for Entry {
    fn wants(&self, limits: &Limits) -> Wants {
        let transfers = self.parts.iter().chain(&self.word);
        let repeat = transfers.filter_map(Outgoing::due_ms);
        let word_ends = self.word.as_ref().map(|_| self.request.expires_ms);
        let ends = ends_ms(&self.request, limits);
        let response = self.request.response;
        Wants {
            party: Party::client(self.request.owner.client),
            request_bytes: self.request_bytes(),
            response_bytes: response.map_or(0, |object| object.total_bytes),
            peer: self.request.peer,
            number: self.number,
            sends: self.parts.is_some(),
            has_word: self.word.is_some(),
            says: self.word.as_ref().is_some_and(|word| word.next().is_some()),
            waits: false,
            running: false,
            awaited_bytes: self.awaited_bytes(),
            due_ms: repeat.chain(word_ends).chain([ends]).min(),
        }
    }
}

impl<S: Store> Node<S> {
    pub(crate) fn load_queue(&mut self) -> Result<(), StoreError> {
        for (key, text) in self.store.records(Side::Queue)? {
            let request: Request = serde_json::from_str(&text)?;
            let parts = (request.state == State::Stored)
                .then(|| Outgoing::resumed(request.request.parts()));
            let incoming = match request.response {
                Some(_) => Incoming::of(self.store.parts(&key.object(Kind::Response))?),
                None => Incoming::default(),
            };
            let word = request.cancelling.then(|| Outgoing::resumed(1));
            self.insert(request, parts, word, incoming);
        }
        Ok(())
    }

    fn insert(
        &mut self,
        request: Request,
        parts: Option<Outgoing>,
        word: Option<Outgoing>,
        incoming: Incoming,
    ) {
        let number = self.next_number;
        self.next_number += 1;
        self.order.insert(number, request.id);
        let entry = Entry {
            number,
            parts,
            word,
            incoming,
            request,
        };
        self.entries.insert(entry.request.id, entry);
    }

    fn forget(&mut self, id: Id) -> Result<(), StoreError> {
        let key = RecordKey::own(id);
        self.store.delete_record(&key)?;
        self.store.delete_object(&key.object(Kind::Request))?;
        self.store.delete_object(&key.object(Kind::Response))?;
        if let Some(entry) = self.entries.remove(&id) {
            self.order.remove(&entry.number);
        }
        Ok(())
    }

    /// The entry that a peer's message is about, if it is about the attempt
    /// that counts.
    fn entry_of(&mut self, peer: u64, key: Key) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(&key.id)?;
        (entry.request.peer == peer && entry.request.attempt == key.attempt).then_some(entry)
    }

    pub(crate) fn expire_queue(&mut self, now_ms: u64) -> Result<(), StoreError> {
        self.entries.refresh(&self.limits);
        let mut gone = Vec::new();
        for id in self.entries.due(now_ms) {
            let Some(entry) = self.entries.get_mut(&id) else {
                continue;
            };
            entry
                .transfers()
                .for_each(|transfer| transfer.handle_timeout(now_ms));
            if entry.request.expires_ms <= now_ms {
                entry.word = None;
            }
            if ends_ms(&entry.request, &self.limits) > now_ms {
                continue;
            }
            if entry.request.state.is_final() {
                gone.push(entry.request.id);
                continue;
            }
            let Request {
                offered,
                repeatable,
                ..
            } = entry.request;
            let (state, reason) = match (offered, repeatable) {
                (false, _) => (State::Expired, "it did not reach the dispatching node"),
                (true, true) => (State::Expired, "no answer came; it may have been sent"),
                (true, false) => (State::Unknown, "no answer came; it may have been sent"),
            };
            entry.end(now_ms, state, reason.to_owned());
            put(&mut self.store, &entry.request)?;
        }
        gone.into_iter().try_for_each(|id| self.forget(id))
    }
}

/// When time ends the request's present state, ms.
fn ends_ms(request: &Request, limits: &Limits) -> u64 {
    let Some(finished_ms) = request.finished_ms else {
        return request.expires_ms;
    };
    let kept = finished_ms.saturating_add(limits.keep_ms);
    let fetched = request.fetched_ms;
    let fetched = fetched.map(|at| at.saturating_add(limits.keep_fetched_ms));
    fetched.map_or(kept, |fetched| fetched.min(kept))
}

fn put(store: &mut impl Store, request: &Request) -> Result<(), StoreError> {
    let text = serde_json::to_string(request)?;
    store.put_record(&RecordKey::own(request.id), &text)
}
