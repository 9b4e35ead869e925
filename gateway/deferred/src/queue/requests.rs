//! Clients' operations on queued requests: to see them, to fetch their responses, to cancel, delete
//! or repeat them.

use bytes::Bytes;

use super::put;
use crate::id::Id;
use crate::node::{Node, Refusal};
use crate::record::{Owner, Request, State};
use crate::store::{Kind, RecordKey, Store, StoreError};
use crate::transfer::{Incoming, Outgoing};

impl<S: Store> Node<S> {
    /// A request, if `owner` may see it; `None` may see all.
    ///
    /// # Errors When there is no such request, or it is another client's: the
    /// two look the same.
    pub fn request(&self, id: Id, owner: Option<&Owner>) -> Result<&Request, Refusal> {
        let entry = self.entries.get(&id).ok_or(Refusal::Unknown)?;
        match Self::admits(entry, owner) {
            true => Ok(&entry.request),
            false => Err(Refusal::Unknown),
        }
    }

    /// At most `limit` requests, oldest first, after the one named `after`, in `state` if one is
    /// named.
    pub fn requests(&self, after: Option<Id>, limit: usize, state: Option<State>) -> Vec<&Request> {
        let begin = match after {
            // After a deleted request there is no place to continue from.
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
            // The dispatching node cannot have begun: it does not have all of it.
            entry.end(now_ms, State::Cancelled, String::new());
            let object = RecordKey::own(id).object(Kind::Request);
            self.store.delete_object(&object)?;
        }
        entry.word = Some(Outgoing::fresh(1));
        put(&mut self.store, &entry.request)?;
        Ok(Ok(Some(entry.request.clone())))
    }

    /// Begins a new attempt for a request whose outcome is unknown, or that failed or expired.
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
}
