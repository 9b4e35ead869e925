//! Named transfers that a session receives: if they break, another session continues them.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use underpass_cla::Refusal;

use super::driver::Driver;
use super::partial::{Claim, Name};
use super::transport::Transport;
use crate::session::{Found, Resumption};

impl<T: Transport> Driver<T> {
    /// A transfer begins, if the node admits it. If it continues after an offset, it begins with
    /// what was received before.
    pub(super) fn begin_receiving(
        &mut self,
        verdict: Result<(), Refusal>,
        named: Option<Resumption>,
    ) {
        self.forget_receiving();
        let named = named.filter(|_| verdict.is_ok());
        let (Some(Resumption { key, offset }), Some((peer, incarnation))) = (named, &self.peer)
        else {
            return self.core.answer(verdict);
        };
        let name = Name {
            peer: peer.clone(),
            incarnation: *incarnation,
            key,
        };
        if offset == 0 {
            self.receive(name);
            return self.core.answer(Ok(()));
        }
        let claim = self.around.partial.claim(&name);
        self.receiving = Some(name);
        match claim {
            Claim::Found(found) => self.go_on(found),
            Claim::Awaited(receiver) => self.awaited = Some(receiver),
        }
    }

    /// Goes on with the transfer in `receiving`.
    fn go_on(&mut self, found: Found) {
        match (found, self.receiving.take()) {
            (Found::Completed, _) => self.core.answer(Err(Refusal::Completed)),
            (Found::Part(received), Some(name)) => {
                self.receive(name);
                self.core.resume(Some(received));
            }
            _ => self.core.resume(None),
        }
    }

    fn receive(&mut self, name: Name) {
        let (id, commands) = (self.around.id, self.sender.clone());
        self.around.partial.begin(name.clone(), id, commands);
        self.receiving = Some(name);
    }

    pub(super) fn end_receiving(&mut self, verdict: Result<(), Refusal>) {
        if verdict.is_ok()
            && let Some(name) = self.receiving.take()
        {
            self.around.partial.complete(&name, self.around.id);
        }
        self.forget_receiving();
        self.core.answer(verdict);
    }

    pub(super) fn forget_receiving(&mut self) {
        self.awaited = None;
        if let Some(name) = self.receiving.take() {
            self.around.partial.end(&name, self.around.id);
        }
    }

    /// Whether the awaited part has come, or is known not to come.
    pub(super) fn poll_awaited(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(receiver) = &mut self.awaited else {
            return false;
        };
        let Poll::Ready(found) = Pin::new(receiver).poll(cx) else {
            return false;
        };
        self.awaited = None;
        self.go_on(found.unwrap_or(Found::Nothing));
        self.digest();
        true
    }
}
