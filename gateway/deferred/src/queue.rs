//! The queue's side: requests of this node's clients.

use std::collections::HashMap;

use bytes::Bytes;

use crate::id::Id;
use crate::node::{ACTIVE, Name, NameKind, Node, Output, Refusal};
use crate::object::Object;
use crate::record::{Owner, Request, State};
use crate::store::{Kind, RecordKey, Side, Store, StoreError};
use crate::transfer::{Incoming, Outgoing};
use crate::wire::{Body, Fate, Key, Message, Of, Part};

/// A request and what is under way for it.
pub(crate) struct Entry {
    pub number: u64,
    pub request: Request,
    /// Its parts, until the dispatching node has them.
    pub parts: Option<Outgoing>,
    /// Its cancellation, until the dispatching node has said what became of it.
    pub word: Option<Outgoing>,
    /// Parts of the response.
    pub incoming: Incoming,
}

/// A request that is just coming in.
#[derive(Debug, Default)]
pub(crate) struct Upload {
    bytes: u64,
    parts: u32,
}

/// What is said of a request that has come in whole.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Its name, as the parts were uploaded under.
    pub id: Id,
    /// The node that dispatches it.
    pub peer: u64,
    /// Its class.
    pub class: u8,
    /// Whether it may be sent to the origin more than once.
    pub repeatable: bool,
    /// Whose it is.
    pub owner: Owner,
    /// Its method.
    pub method: String,
    /// Its target URI.
    pub target: String,
    /// Bytes of its head.
    pub head_bytes: u32,
}

impl Entry {
    pub fn transfers(&mut self) -> impl Iterator<Item = &mut Outgoing> {
        self.parts.iter_mut().chain(&mut self.word)
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

    /// Begins to take a request in.
    ///
    /// # Errors
    /// When there are as many as may be.
    pub fn begin_upload(&mut self, id: Id) -> Result<(), Refusal> {
        if self.entries.len() + self.uploads.len() >= self.limits.requests {
            return Err(Refusal::Full);
        }
        self.uploads.insert(id, Upload::default());
        Ok(())
    }

    /// Takes the next part of a request in; all but the last have the length
    /// of [`crate::Limits::part_bytes`].
    ///
    /// # Errors
    /// When the store fails; inside, when the part is refused.
    pub fn upload(&mut self, id: Id, data: &[u8]) -> Result<Result<(), Refusal>, StoreError> {
        let room = self.request_room(data.len() as u64);
        let Some(upload) = self.uploads.get_mut(&id) else {
            return Ok(Err(Refusal::Unknown));
        };
        let bytes = upload.bytes + data.len() as u64;
        if bytes > self.limits.request_bytes {
            return Ok(Err(Refusal::TooLarge(self.limits.request_bytes)));
        }
        if !room {
            return Ok(Err(Refusal::Full));
        }
        let object = RecordKey::own(id).object(Kind::Request);
        self.store.put_part(&object, upload.parts, data)?;
        upload.bytes = bytes;
        upload.parts += 1;
        Ok(Ok(()))
    }

    /// Forgets a request that did not come in whole.
    ///
    /// # Errors
    /// When the store fails.
    pub fn abandon(&mut self, id: Id) -> Result<(), StoreError> {
        if self.uploads.remove(&id).is_none() {
            return Ok(());
        }
        let object = RecordKey::own(id).object(Kind::Request);
        self.store.delete_object(&object)
    }

    /// Queues a request that has come in whole.
    ///
    /// # Errors
    /// When the store fails; inside, when no such request was coming in.
    pub fn submit(
        &mut self,
        now_ms: u64,
        submission: Submission,
    ) -> Result<Result<Request, Refusal>, StoreError> {
        let Some(upload) = self.uploads.remove(&submission.id) else {
            return Ok(Err(Refusal::Unknown));
        };
        let request = Request {
            id: submission.id,
            attempt: 1,
            peer: submission.peer,
            class: submission.class,
            repeatable: submission.repeatable,
            owner: submission.owner,
            method: submission.method,
            target: submission.target,
            state: State::Stored,
            reason: String::new(),
            cancelling: false,
            offered: false,
            created_ms: now_ms,
            expires_ms: now_ms.saturating_add(self.limits.lifetime_ms),
            forwarded_ms: None,
            sent_ms: None,
            finished_ms: None,
            fetched_ms: None,
            request: Object {
                total_bytes: upload.bytes,
                head_bytes: submission.head_bytes,
                part_bytes: self.limits.part_bytes,
            },
            response: None,
        };
        let parts = Outgoing::fresh(request.request.parts());
        put(&mut self.store, &request)?;
        self.insert(request.clone(), Some(parts), None, Incoming::default());
        Ok(Ok(request))
    }

    /// A request, if `owner` may see it; `None` may see all.
    ///
    /// # Errors
    /// When there is none, or it is another's: that looks the same.
    pub fn request(&self, id: Id, owner: Option<&Owner>) -> Result<&Request, Refusal> {
        let entry = self.entries.get(&id).ok_or(Refusal::Unknown)?;
        match Self::admits(entry, owner) {
            true => Ok(&entry.request),
            false => Err(Refusal::Unknown),
        }
    }

    /// At most `limit` requests, oldest first, behind the one named `after`,
    /// in `state` if one is named.
    pub fn requests(&self, after: Option<Id>, limit: usize, state: Option<State>) -> Vec<&Request> {
        let begin = match after {
            // Behind one that is gone there is nothing to go on from.
            Some(id) => self.entries.get(&id).map_or(u64::MAX, |e| e.number + 1),
            None => 0,
        };
        self.order
            .range(begin..)
            .filter_map(|(_, id)| self.entries.get(id))
            .map(|entry| &entry.request)
            .filter(|request| state.is_none_or(|state| request.state == state))
            .take(limit)
            .collect()
    }

    /// Part `index` of a request's response, once it is there whole.
    ///
    /// # Errors
    /// When the store fails.
    pub fn response_part(&self, id: Id, index: u32) -> Result<Option<Bytes>, StoreError> {
        let object = RecordKey::own(id).object(Kind::Response);
        self.store.part(&object, index)
    }

    /// The client has fetched the whole response.
    ///
    /// # Errors
    /// When the store fails.
    pub fn fetched(&mut self, now_ms: u64, id: Id) -> Result<(), StoreError> {
        match self.entries.get_mut(&id) {
            Some(entry) if entry.request.fetched_ms.is_none() => {
                entry.request.fetched_ms = Some(now_ms);
                put(&mut self.store, &entry.request)
            }
            _ => Ok(()),
        }
    }

    /// Cancels a request that has not ended, deletes one that has.
    ///
    /// # Errors
    /// When the store fails; inside, when there is none.
    pub fn cancel(
        &mut self,
        now_ms: u64,
        id: Id,
        owner: Option<&Owner>,
    ) -> Result<Result<Option<Request>, Refusal>, StoreError> {
        let found = self.entries.get_mut(&id);
        let Some(entry) = found.filter(|entry| Self::admits(entry, owner)) else {
            return Ok(Err(Refusal::Unknown));
        };
        if entry.request.state.is_final() {
            self.forget(id)?;
            return Ok(Ok(None));
        }
        if entry.request.offered {
            entry.request.cancelling = true;
        } else {
            // The dispatching node cannot have begun: it has not all of it.
            entry.end(now_ms, State::Cancelled, String::new());
            let object = RecordKey::own(id).object(Kind::Request);
            self.store.delete_object(&object)?;
        }
        entry.word = Some(Outgoing::fresh(1));
        put(&mut self.store, &entry.request)?;
        Ok(Ok(Some(entry.request.clone())))
    }

    /// Begins anew with a request whose outcome is unknown, or that failed or
    /// expired.
    ///
    /// # Errors
    /// When the store fails; inside, when there is none, or not in such a
    /// state.
    pub fn repeat(
        &mut self,
        now_ms: u64,
        id: Id,
        owner: Option<&Owner>,
    ) -> Result<Result<Request, Refusal>, StoreError> {
        let found = self.entries.get_mut(&id);
        let Some(entry) = found.filter(|entry| Self::admits(entry, owner)) else {
            return Ok(Err(Refusal::Unknown));
        };
        if !entry.request.state.may_repeat() {
            return Ok(Err(Refusal::State));
        }
        let object = RecordKey::own(id).object(Kind::Response);
        self.store.delete_object(&object)?;
        entry.incoming = Incoming::default();
        entry.parts = Some(Outgoing::fresh(entry.request.request.parts()));
        entry.word = None;
        entry.request = Request {
            attempt: entry.request.attempt + 1,
            state: State::Stored,
            reason: String::new(),
            offered: false,
            expires_ms: now_ms.saturating_add(self.limits.lifetime_ms),
            forwarded_ms: None,
            sent_ms: None,
            finished_ms: None,
            fetched_ms: None,
            response: None,
            ..entry.request.clone()
        };
        put(&mut self.store, &entry.request)?;
        Ok(Ok(entry.request.clone()))
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

    pub(crate) fn take_request_ack(
        &mut self,
        now_ms: u64,
        peer: u64,
        key: Key,
        next: u32,
    ) -> Result<(), StoreError> {
        let Some(entry) = self.entry_of(peer, key) else {
            return Ok(());
        };
        let Some(parts) = &mut entry.parts else {
            return Ok(());
        };
        parts.acknowledge(now_ms, next);
        if !parts.is_complete() {
            return Ok(());
        }
        entry.forwarded(now_ms, State::Forwarded);
        let request = entry.request.clone();
        put(&mut self.store, &request)
    }

    pub(crate) fn take_notice(
        &mut self,
        now_ms: u64,
        peer: u64,
        class: u8,
        key: Key,
        fate: Fate,
        text: String,
    ) -> Result<(), StoreError> {
        if fate != Fate::Sent {
            let ack = (Side::Queue, class, 1);
            self.acks.insert((peer, key, Of::Notice), ack);
        }
        let Some(entry) = self.entry_of(peer, key) else {
            return Ok(());
        };
        if fate != Fate::Sent {
            entry.word = None;
        }
        if entry.request.state.is_final() {
            return Ok(());
        }
        match fate {
            Fate::Sent => {
                entry.forwarded(now_ms, State::Sent);
                entry.request.sent_ms = Some(now_ms);
            }
            Fate::Unknown => entry.end(now_ms, State::Unknown, text),
            Fate::Expired => entry.end(now_ms, State::Expired, text),
            Fate::Cancelled => entry.end(now_ms, State::Cancelled, text),
        }
        let request = entry.request.clone();
        if fate == Fate::Cancelled {
            let object = RecordKey::own(key.id).object(Kind::Request);
            self.store.delete_object(&object)?;
        }
        put(&mut self.store, &request)
    }

    pub(crate) fn take_response(
        &mut self,
        now_ms: u64,
        peer: u64,
        class: u8,
        key: Key,
        own: bool,
        part: Part,
    ) -> Result<(), StoreError> {
        let all = part.object.parts();
        let most = self.limits.response_bytes;
        let room = self.response_room(self.awaited_bytes() + part.object.total_bytes);
        let object = RecordKey::own(key.id).object(Kind::Response);
        let ack = |node: &mut Self, next| {
            let ack = (Side::Queue, class, next);
            node.acks.insert((peer, key, Of::Response), ack);
        };
        // One that nobody waits for is answered all the same, so that the
        // peer can forget it. One that comes after its time is welcome.
        let wanted = self.entry_of(peer, key).filter(|entry| {
            use State::{Answered, Cancelled, Failed};
            !matches!(entry.request.state, Answered | Failed | Cancelled)
        });
        let Some(entry) = wanted else {
            ack(self, all);
            return Ok(());
        };
        if part.object.total_bytes > most {
            let text = format!("the response has more than {most} bytes");
            entry.end(now_ms, State::Unknown, text);
            let request = entry.request.clone();
            ack(self, all);
            return put(&mut self.store, &request);
        }
        let begun = entry.request.response;
        // What has begun has its room: transfers never wait for each other.
        let refused = begun.map_or(!room, |known| known != part.object);
        if refused {
            return Ok(());
        }
        entry.request.response = Some(part.object);
        let new = !entry.incoming.contains(part.index);
        entry.incoming.insert(part.index);
        let next = entry.incoming.next();
        if next == all {
            let state = if own { State::Failed } else { State::Answered };
            entry.end(now_ms, state, String::new());
            entry.word = None;
        }
        let request = entry.request.clone();
        if new {
            self.store.put_part(&object, part.index, &part.data)?;
        }
        if request.state == State::Answered {
            let sent = RecordKey::own(key.id).object(Kind::Request);
            self.store.delete_object(&sent)?;
        }
        if begun.is_none() || next == all {
            put(&mut self.store, &request)?;
        }
        ack(self, next);
        Ok(())
    }

    /// Bytes of responses that have begun to come and are not here.
    fn awaited_bytes(&self) -> u64 {
        let begun = self.entries.values().filter_map(|entry| {
            let object = entry.request.response?;
            let here = u64::from(entry.incoming.next()) * u64::from(object.part_bytes);
            Some(object.total_bytes.saturating_sub(here))
        });
        begun.sum()
    }

    pub(crate) fn expire_queue(&mut self, now_ms: u64) -> Result<(), StoreError> {
        let mut gone = Vec::new();
        for entry in self.entries.values_mut() {
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

    pub(crate) fn queue_timeout(&self) -> Option<u64> {
        let due = |entry: &Entry| {
            let transfers = entry.parts.iter().chain(&entry.word);
            let repeat = transfers.filter_map(Outgoing::due_ms).min();
            let ends = ends_ms(&entry.request, &self.limits);
            repeat.map_or(ends, |repeat| repeat.min(ends))
        };
        self.entries.values().map(due).min()
    }

    pub(crate) fn send_requests(&mut self, now_ms: u64) -> Result<(), StoreError> {
        let mut active: HashMap<u64, usize> = HashMap::new();
        let speaking = self.entries.values().filter(|entry| {
            let says = entry.parts.is_some() || entry.word.is_some();
            says && !self.is_paused(entry.request.peer)
        });
        let mut order: Vec<(u64, Id, u64, bool)> = speaking
            .map(|entry| {
                let Request { id, peer, .. } = entry.request;
                (entry.number, id, peer, entry.parts.is_some())
            })
            .collect();
        order.sort_unstable();
        for (_, id, peer, sending) in order {
            self.send_cancellation(now_ms, id);
            let count = active.entry(peer).or_default();
            if sending && *count < ACTIVE {
                *count += 1;
                self.send_request(now_ms, id)?;
            }
        }
        Ok(())
    }

    fn send_request(&mut self, now_ms: u64, id: Id) -> Result<(), StoreError> {
        let Some(entry) = self.entries.get_mut(&id) else {
            return Ok(());
        };
        let key = entry.key();
        let Some(parts) = &mut entry.parts else {
            return Ok(());
        };
        let request = &mut entry.request;
        let lifetime_ms = request.expires_ms.saturating_sub(now_ms).max(1);
        let object = RecordKey::own(id).object(Kind::Request);
        while let Some(index) = parts.next() {
            let Some(data) = self.store.part(&object, index)? else {
                break;
            };
            parts.sent(now_ms);
            if index + 1 == request.request.parts() && !request.offered {
                request.offered = true;
                put(&mut self.store, request)?;
            }
            let part = Part {
                object: request.request,
                index,
                data,
            };
            self.outputs.push(Output::Send {
                peer: request.peer,
                class: request.class,
                lifetime_ms,
                name: Name {
                    key,
                    side: Side::Queue,
                    kind: NameKind::Part(index),
                },
                message: Message {
                    key,
                    body: Body::Request {
                        repeatable: request.repeatable,
                        lifetime_ms,
                        part,
                    },
                },
            });
        }
        Ok(())
    }

    fn send_cancellation(&mut self, now_ms: u64, id: Id) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        let key = entry.key();
        let Some(word) = entry.word.as_mut().filter(|word| word.next().is_some()) else {
            return;
        };
        word.sent(now_ms);
        let lifetime_ms = entry.request.expires_ms.saturating_sub(now_ms).max(1);
        self.outputs.push(Output::Send {
            peer: entry.request.peer,
            class: entry.request.class,
            lifetime_ms,
            name: Name {
                key,
                side: Side::Queue,
                kind: NameKind::Word,
            },
            message: Message {
                key,
                body: Body::Cancel { lifetime_ms },
            },
        });
    }
}

/// When time ends the request's present state, ms.
fn ends_ms(request: &Request, limits: &crate::Limits) -> u64 {
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
