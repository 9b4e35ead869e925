//! The results of a request from the dispatching node: notices and responses.

use super::put;
use crate::agenda::Party;
use crate::node::Node;
use crate::record::State;
use crate::store::{Kind, RecordKey, Side, Store, StoreError};
use crate::wire::{Fate, Key, Of, Part};

impl<S: Store> Node<S> {
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
        let entry = self.entries.get(&key.id);
        let party = entry.map(|entry| Party::client(entry.request.owner.client));
        let room = party.is_some_and(|party| self.room(party, part.object.total_bytes));
        let object = RecordKey::own(key.id).object(Kind::Response);
        let ack = |node: &mut Self, next| {
            let ack = (Side::Queue, class, next);
            node.acks.insert((peer, key, Of::Response), ack);
        };
        // A message about an unknown request is answered too, so that the peer can forget it. A
        // response that comes too late is still accepted.
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
        // A transfer that has begun has its room, so transfers never wait for each other.
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
}
