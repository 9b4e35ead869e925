//! The sessions of one class at the dialling side: one active, one standby.

use std::sync::Arc;
use std::time::Instant;

use tokio::task::JoinSet;
use tokio::time::sleep_until;
use tracing::{info, warn};
use underpass_cla::{Class, Down};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::contact::ContactFailure;
use crate::dialer::Shared;
use crate::session::{self, Renew, Surroundings};

/// One attempt at a session, and the session that it becomes.
#[derive(Clone, Copy, Debug)]
struct Slot {
    number: u64,
    up_since: Option<Instant>,
}

/// What happens to the session of an attempt.
enum Notice {
    Up(u64),
    /// The node wants another session in its place.
    Renew(u64),
}

/// How an attempt has ended, or the session that it became.
type Ended = (u64, Result<Down, ContactFailure>);

/// Keeps the sessions of one class alive. The one that came up first is in use
/// at both sides, so they are dialled one after the other.
pub(crate) struct Lane {
    shared: Arc<Shared>,
    class: Option<Class>,
    /// All but those that others are to replace.
    slots: Vec<Slot>,
    next_number: u64,
    failures: u32,
    retry_at: Instant,
    sessions: JoinSet<Ended>,
    sender: UnboundedSender<Notice>,
    notices: UnboundedReceiver<Notice>,
}

impl Lane {
    pub(crate) fn new(shared: Arc<Shared>, class: Option<Class>) -> Self {
        let (sender, notices) = unbounded_channel();
        Self {
            shared,
            class,
            slots: Vec::new(),
            next_number: 0,
            failures: 0,
            retry_at: Instant::now(),
            sessions: JoinSet::new(),
            sender,
            notices,
        }
    }

    pub(crate) async fn run(mut self) {
        let stop = self.shared.stop.clone();
        let mut held = self.shared.held.subscribe();
        loop {
            let is_held = *held.borrow_and_update();
            let waits = !is_held && self.dial_missing();
            tokio::select! {
                () = stop.cancelled() => break,
                Some(notice) = self.notices.recv() => match notice {
                    Notice::Up(number) => self.is_up(number),
                    // Another one is dialled. The node ends this one when that is up.
                    Notice::Renew(number) => self.slots.retain(|slot| slot.number != number),
                },
                Some(Ok((number, result))) = self.sessions.join_next() => {
                    self.ended(number, result);
                }
                _ = held.changed() => {}
                () = sleep_until(self.retry_at.into()), if waits => {}
            }
        }
        // Sessions end in order, or together with this task.
        while self.sessions.join_next().await.is_some() {}
    }

    /// Dials the missing sessions that may be dialled now. Returns true while others have to wait.
    fn dial_missing(&mut self) -> bool {
        let wanted = 1 + usize::from(self.shared.config.standby && self.class.is_some());
        let all_up = self.slots.iter().all(|slot| slot.up_since.is_some());
        if !all_up || self.slots.len() >= wanted {
            return false;
        }
        if Instant::now() < self.retry_at {
            return true;
        }
        let standby = !self.slots.is_empty();
        let number = self.next_number;
        self.next_number += 1;
        self.slots.push(Slot {
            number,
            up_since: None,
        });
        let class = self.class.map(|class| (class, standby));
        let (shared, sender) = (self.shared.clone(), self.sender.clone());
        let renewing = sender.clone();
        let renew = Box::new(move || {
            let _ = renewing.send(Notice::Renew(number));
        });
        self.sessions.spawn(async move {
            let up = || {
                let _ = sender.send(Notice::Up(number));
            };
            (number, session(&shared, class, up, renew).await)
        });
        false
    }

    fn is_up(&mut self, number: u64) {
        self.failures = 0;
        for slot in &mut self.slots {
            if slot.number == number {
                slot.up_since = Some(Instant::now());
            }
        }
    }

    fn ended(&mut self, number: u64, result: Result<Down, ContactFailure>) {
        let (path, class) = (&self.shared.config.session.path, self.class);
        let number_of_class = class.map(|class| class.0);
        let reason = match &result {
            Ok(down) => down.to_string(),
            Err(failure) => failure.to_string(),
        };
        match result.is_err_and(|failure| !failure.comes_and_goes()) {
            true => warn!(path, class = number_of_class, reason, "no session"),
            false => info!(
                path,
                class = number_of_class,
                reason,
                "session ended or not reached"
            ),
        }
        self.shared.set_error(class, reason);
        let ended = self.slots.iter().position(|slot| slot.number == number);
        // One that another replaces is not missed.
        let Some(ended) = ended else {
            return;
        };
        let lived = self.slots.remove(ended).up_since;
        // A session that lived for a while is dialled again at once. One that breaks as soon as it
        // is up must wait, or it would be dialled without end.
        let backoff = self.shared.config.backoff;
        if lived.is_none_or(|since| since.elapsed() < backoff.base) {
            self.failures = self.failures.saturating_add(1);
        }
        self.retry_at = Instant::now() + backoff.jittered(self.failures, fastrand::f64());
    }
}

/// One session, from the dial to its end. Returns how it ended.
async fn session(
    shared: &Arc<Shared>,
    class: Option<(Class, bool)>,
    up: impl FnOnce(),
    renew: Renew,
) -> Result<Down, ContactFailure> {
    let Some(reached) = shared.stop.run_until_cancelled(shared.dial(class)).await else {
        return Err(ContactFailure::Stopped);
    };
    let reached = reached?;
    up();
    let around = Surroundings {
        defaults: reached.defaults,
        node: shared.node.clone(),
        flow: reached.flow,
        registry: shared.registry.clone(),
        renew: Some(renew),
    };
    let down = session::run(reached.contact, around).await;
    // The last packet, which informs the peer, leaves before the socket is closed.
    tokio::spawn(async move { reached.endpoint.wait_idle().await });
    Ok(down)
}
