//! How a client's request comes in: part by part, then queued as a whole or
//! abandoned.

use std::net::IpAddr;

use super::put;
use crate::agenda::{Item, Party, Wants};
use crate::id::Id;
use crate::node::{Limits, Node, Refusal};
use crate::object::Object;
use crate::record::{Owner, Request, State};
use crate::store::{Kind, RecordKey, Store, StoreError};
use crate::transfer::{Incoming, Outgoing};

/// A request that is just coming in.
#[derive(Debug)]
pub(crate) struct Upload {
    party: Party,
    bytes: u64,
    parts: u32,
}

impl Item for Upload {
    fn wants(&self, _: &Limits) -> Wants {
        Wants::nothing(self.party, self.bytes)
    }
}

/// The description of a request that has come in as a whole.
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

impl<S: Store> Node<S> {
    /// Begins to take in a request of the client at an address. A client has no more of them than
    /// it leaves to others.
    ///
    /// # Errors
    /// When there are as many as may be.
    pub fn begin_upload(&mut self, id: Id, client: IpAddr) -> Result<(), Refusal> {
        self.refresh();
        let party = Party::client(client);
        let own = self.entries.held(party).items + self.uploads.held(party).items;
        let all = self.entries.len() + self.uploads.len();
        if own + all >= self.limits.requests {
            return Err(Refusal::Full);
        }
        let upload = Upload {
            party,
            bytes: 0,
            parts: 0,
        };
        self.uploads.insert(id, upload);
        Ok(())
    }

    /// Takes the next part of a request in; all but the last have the length
    /// of [`crate::Limits::part_bytes`].
    ///
    /// # Errors
    /// When the store fails; inside, when the part is refused.
    pub fn upload(&mut self, id: Id, data: &[u8]) -> Result<Result<(), Refusal>, StoreError> {
        let Some(upload) = self.uploads.get(&id) else {
            return Ok(Err(Refusal::Unknown));
        };
        let party = upload.party;
        let room = self.request_room(party, data.len() as u64);
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
}
