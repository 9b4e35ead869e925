//! The sessions of one class at the dialling side: one active, one standby.

use std::collections::BTreeSet;
use std::future::pending;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{sleep_until, timeout};
use tokio_util::task::TaskTracker;
use tracing::{info, warn};
use underpass_cla::Class;

use super::address;
use super::attempts;
use super::contact::ContactFailure;
use super::dialer::{LaneStatus, Shared, SlotStatus};
use super::driver::{Ended, OnUp, Renew, Surroundings};
use super::mptcp::is_mptcp;
use super::now;
use super::spares::{Spare, Spares};
use super::task;
use crate::session::Established;

/// How long a class waits for the first session. The peer waits for SESS_INIT
/// a little longer.
const CLASSES_TIME: Duration = Duration::from_secs(20);

/// A peer that ends a session for its extension items does so within this time.
const REFUSED_WITHIN: Duration = Duration::from_secs(10);

/// Tells the lane how an attempt fares.
enum Notice {
    Up(u64),
    /// The node wants another session in its place.
    Renew(u64),
    /// Nobody has answered yet.
    Silent(String),
    Ended(u64, Result<Ended, ContactFailure>),
}

/// One attempt at a session, and the session that it becomes.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    number: u64,
    up_since: Option<Instant>,
}

/// Keeps the sessions of one class alive.
pub(super) struct Lane {
    shared: Arc<Shared>,
    tracker: TaskTracker,
    class: Option<Class>,
    /// The first lane finds out whether the peer supports classes. If it does not, this is the only
    /// lane.
    leads: bool,
    active: Option<Attempt>,
    standby: Option<Attempt>,
    /// Sessions that others are to replace, until they end.
    replaced: BTreeSet<u64>,
    /// Connections of the first lane for the next session.
    spares: Spares,
    next_number: u64,
    failures: u32,
    retry_at: Instant,
    last_error: Option<String>,
    sender: UnboundedSender<Notice>,
    notices: UnboundedReceiver<Notice>,
}

impl Lane {
    pub(super) fn new(
        shared: Arc<Shared>,
        tracker: TaskTracker,
        class: Option<Class>,
        leads: bool,
    ) -> Self {
        let (sender, notices) = unbounded_channel();
        let spares = Spares::new(shared.config.backoff.base);
        Self {
            shared,
            tracker,
            class,
            leads,
            active: None,
            standby: None,
            replaced: BTreeSet::new(),
            spares,
            next_number: 0,
            failures: 0,
            retry_at: now(),
            last_error: None,
            sender,
            notices,
        }
    }

    pub(super) async fn run(mut self) {
        let stop = self.shared.stop.clone();
        let mut peer = self.shared.peer_has_classes.subscribe();
        let mut dark = self.shared.dark.subscribe();
        let mut blocked = self.shared.blocked.subscribe();
        let mut held = self.shared.held.subscribe();
        loop {
            let knows_classes = *peer.borrow_and_update();
            let in_dark = *dark.borrow_and_update();
            let is_blocked = *blocked.borrow_and_update();
            let is_held = *held.borrow_and_update();
            let idle = is_held || !self.dial_missing(knows_classes, in_dark);
            match self.leads && !is_held && self.is_settled() {
                true => self.spares.set_blocked(is_blocked),
                false => self.spares.end(),
            }
            self.report();
            tokio::select! {
                () = stop.cancelled() => break,
                Some(notice) = self.notices.recv() => self.notice(notice),
                _ = peer.changed() => {}
                _ = dark.changed() => {}
                _ = blocked.changed() => {}
                _ = held.changed() => {}
                () = sleep_until(self.retry_at.into()), if !idle => {}
                () = self.spares.tend(&self.shared) => {}
            }
        }
        self.active = None;
        self.standby = None;
        self.report();
    }

    /// It has a session and dials none; a dial would begin connections of its own.
    fn is_settled(&self) -> bool {
        let mut standby = self.standby.iter();
        self.active.is_some_and(|active| active.up_since.is_some())
            && standby.all(|standby| standby.up_since.is_some())
    }

    /// Dials the missing sessions that may be dialled now. Returns true while others have to wait.
    fn dial_missing(&mut self, knows_classes: Option<bool>, in_dark: bool) -> bool {
        if !self.leads && !knows_classes.unwrap_or(in_dark) {
            return false;
        }
        let active_up = self
            .active
            .is_some_and(|attempt| attempt.up_since.is_some());
        let standby = match (&self.active, &self.standby) {
            (None, _) => false,
            (Some(_), None) => {
                let wanted = self.shared.config.standby && knows_classes == Some(true);
                if !(wanted && active_up) {
                    return false;
                }
                true
            }
            (Some(_), Some(_)) => return false,
        };
        if now() < self.retry_at {
            return true;
        }
        let attempt = Some(self.dial(standby));
        if standby {
            self.standby = attempt;
        } else {
            self.active = attempt;
        }
        false
    }

    fn dial(&mut self, standby: bool) -> Attempt {
        let number = self.next_number;
        self.next_number += 1;
        let (shared, sender) = (self.shared.clone(), self.sender.clone());
        let spare = self.spares.take(&shared.session().socket);
        let dial = Dial {
            class: self.class,
            standby,
            decides: self.leads && !standby,
            spare,
            renew: {
                let sender = sender.clone();
                Some(Box::new(move || {
                    let _ = sender.send(Notice::Renew(number));
                }))
            },
            up: {
                let sender = sender.clone();
                Box::new(move || {
                    let _ = sender.send(Notice::Up(number));
                })
            },
            silent: {
                let sender = sender.clone();
                Box::new(move |failure| {
                    let _ = sender.send(Notice::Silent(failure.to_string()));
                })
            },
        };
        self.tracker.spawn(async move {
            let result = dial.run(&shared).await;
            let _ = sender.send(Notice::Ended(number, result));
        });
        Attempt {
            number,
            up_since: None,
        }
    }

    fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Up(number) => {
                self.failures = 0;
                let slots = [&mut self.active, &mut self.standby];
                for attempt in slots.into_iter().flatten() {
                    if attempt.number == number {
                        attempt.up_since = Some(now());
                    }
                }
                // A standby that comes up while the active session is missing
                // takes its place.
                let up = |slot: &Option<Attempt>| slot.is_some_and(|a| a.up_since.is_some());
                if !up(&self.active) && up(&self.standby) {
                    std::mem::swap(&mut self.active, &mut self.standby);
                }
            }
            Notice::Renew(number) => self.replace(number),
            Notice::Silent(reason) => self.last_error = Some(reason),
            Notice::Ended(number, result) => self.ended(number, result),
        }
    }

    /// Replaces a session: another one is dialled, and the node ends this one when that is up.
    fn replace(&mut self, number: u64) {
        let is = |slot: &Option<Attempt>| slot.is_some_and(|attempt| attempt.number == number);
        if is(&self.active) {
            self.active = self.standby.take();
        } else if is(&self.standby) {
            self.standby = None;
        } else {
            return;
        }
        self.replaced.insert(number);
    }

    fn ended(&mut self, number: u64, result: Result<Ended, ContactFailure>) {
        let (path, class) = (
            &self.shared.config.session.path,
            self.class.map(|class| class.0),
        );
        let reason = match &result {
            Ok(ended) => ended.down.to_string(),
            Err(error) => error.to_string(),
        };
        let lasts = match &result {
            Ok(ended) => ended.lasts(),
            Err(error) => !error.comes_and_goes(),
        };
        match lasts {
            true => warn!(path, class, reason, "no session"),
            false => info!(path, class, reason, "session ended or not reached"),
        }
        self.last_error = Some(reason);
        if self.replaced.remove(&number) {
            return;
        }
        let ended = if self.active.is_some_and(|attempt| attempt.number == number) {
            std::mem::replace(&mut self.active, self.standby.take())
        } else if self.standby.is_some_and(|attempt| attempt.number == number) {
            self.standby.take()
        } else {
            None
        };
        let lived = ended.and_then(|attempt| attempt.up_since);
        // A session that lived for a while is dialled again at once. One that breaks as soon as it
        // is up must wait, or it would be dialled without end.
        if lived.is_none_or(|since| now() - since < self.shared.config.backoff.base) {
            self.failures = self.failures.saturating_add(1);
        }
        let delay = self
            .shared
            .config
            .backoff
            .jittered(self.failures, fastrand::f64());
        self.retry_at = now() + delay;
    }

    fn report(&self) {
        let status = |slot: &Option<Attempt>| match slot {
            None => SlotStatus::Down,
            Some(Attempt { up_since: None, .. }) => SlotStatus::Dialling,
            Some(_) => SlotStatus::Up,
        };
        let status = LaneStatus {
            active: status(&self.active),
            standby: status(&self.standby),
            last_error: self.last_error.clone(),
        };
        self.shared.set_status(self.class, status);
    }
}

/// Learns from the end of a session what the next one should offer. A peer may have sent its own
/// SESS_INIT before it reads ours, so that the session was up for a moment. A peer that has
/// answered items supports them.
fn note_end(shared: &Shared, knows_items: bool, lived: Duration) {
    let mut offering = shared.offering.lock().unwrap();
    if knows_items || lived >= REFUSED_WITHIN {
        offering.ended();
    } else if offering.refused() {
        let (path, offered) = (&shared.config.session.path, offering.has_items());
        info!(
            path,
            offered, "the peer has ended sessions at their SESS_INIT: extension items"
        );
    }
}

/// One session, from the dial to its end.
struct Dial {
    class: Option<Class>,
    standby: bool,
    /// Whether this session finds out if the peer supports classes.
    decides: bool,
    /// A connection that was begun in advance.
    spare: Option<Spare>,
    /// Requests another session instead of this one.
    renew: Option<Renew>,
    up: Box<dyn Fn() + Send + Sync>,
    /// Told why nobody has answered so far.
    silent: Box<dyn Fn(&ContactFailure) + Send + Sync>,
}

impl Dial {
    async fn run(mut self, shared: &Arc<Shared>) -> Result<Ended, ContactFailure> {
        let defaults = shared.session();
        let offers = !self.decides || shared.offering.lock().unwrap().has_items();
        let class = self.class.filter(|_| offers);
        let class = class.map(|class| (class, self.standby));
        let (spare, renew) = (self.spare.take(), self.renew.take());
        let contact = attempts::dial(shared, class, spare, |failure| (self.silent)(failure));
        let Some(contact) = shared.stop.run_until_cancelled(contact).await else {
            return Err(ContactFailure::Stopped);
        };
        let (contact, core) = contact?;
        self.await_classes(shared).await?;
        let tells_items = self.decides && self.class.is_some();
        let begun = now();
        let knows_items = Arc::new(AtomicBool::new(false));
        let answered = knows_items.clone();
        let deciding = shared.clone();
        let on_up: OnUp = Box::new(move |established| {
            answered.store(established.class.is_some(), Ordering::Relaxed);
            self.on_up(&deciding, established)
        });
        let key = contact.exported_key();
        let around = Surroundings {
            blocked: Some(shared.blocked.clone()),
            renew,
            ..Surroundings::new(&defaults, shared.node.clone(), key, on_up)
        };
        let tcp = contact.tcp();
        // With MPTCP, other subflows may have other addresses.
        let local = tcp.local_addr().ok().filter(|_| !is_mptcp(tcp.as_fd()));
        let lost = async move {
            match local {
                Some(local) => address::gone(local).await,
                None => pending().await,
            }
        };
        let ended = task::run(contact, core, around, &shared.registry, lost).await;
        if tells_items && !shared.stop.is_cancelled() {
            note_end(shared, knows_items.load(Ordering::Relaxed), now() - begun);
        }
        Ok(ended)
    }

    /// If nobody answered, every class has dialled: the first session shows whether this one is
    /// needed.
    async fn await_classes(&self, shared: &Shared) -> Result<(), ContactFailure> {
        if self.decides {
            return Ok(());
        }
        let mut known = shared.peer_has_classes.subscribe();
        let known = timeout(CLASSES_TIME, known.wait_for(Option::is_some));
        let Some(known) = shared.stop.run_until_cancelled(known).await else {
            return Err(ContactFailure::Stopped);
        };
        match known {
            Ok(Ok(known)) if *known == Some(true) => Ok(()),
            Ok(_) => Err(ContactFailure::OneSession),
            Err(_) => Err(ContactFailure::TimedOut),
        }
    }

    fn on_up(&self, shared: &Shared, established: &Established) -> Result<(), String> {
        let has_classes = established.class.is_some();
        if self.decides {
            shared.peer_has_classes.send_if_modified(|known| {
                let changed = *known != Some(has_classes);
                *known = Some(has_classes);
                changed
            });
        } else if !has_classes {
            return Err("the peer does not know classes and has its one session".into());
        }
        // The node suspends the session if the link is blocked for it, too.
        shared.blocked.send_replace(false);
        (self.up)();
        Ok(())
    }
}
