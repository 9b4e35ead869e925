//! What goes to the dispatching node: requests, part by part, until it
//! acknowledges the whole, and cancellations.

use super::put;
use crate::id::Id;
use crate::node::{ACTIVE, Name, NameKind, Node, Output};
use crate::record::State;
use crate::store::{Kind, RecordKey, Side, Store, StoreError};
use crate::wire::{Body, Key, Message, Part};

impl<S: Store> Node<S> {
    pub(crate) fn send_requests(&mut self, now_ms: u64) -> Result<(), StoreError> {
        self.entries.refresh(&self.limits);
        for peer in self.entries.take_touched() {
            if self.is_paused(peer) {
                continue;
            }
            for id in self.entries.saying(peer) {
                self.send_cancellation(now_ms, id);
            }
            for id in self.entries.sending(peer, ACTIVE) {
                self.send_request(now_ms, id)?;
            }
        }
        self.entries.refresh(&self.limits);
        // What was sent now needs no second look.
        self.entries.take_touched();
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
}
