//! Bundles as coded datagrams, both ways.

use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn::SendDatagramError;
use tokio::sync::Notify;
use tokio::time::{Instant as TokioInstant, MissedTickBehavior, interval_at, sleep_until};
use underpass_cla::{CodedFigures, Down, Outcome, Refusal, Transfer};
use underpass_coded::{Arrived, Receiver, Sender, Violation};

use super::Link;
use crate::coding::KnownLosses;
use crate::defaults::SessionDefaults;
use crate::incoming::{Place, Room};
use crate::outgoing::{self, Name};
use crate::wire::{Hello, Message};

/// How often to check for bundles that never complete.
const LOOK_EACH: Duration = Duration::from_secs(10);
/// A block leaves within this part of a round trip, so that its repair arrives long before an
/// answer to a request would.
const BLOCKS_PER_WINDOW: u64 = 5;
/// Shorter blocks would have more repair than others for the same risk.
const LEAST_BLOCK_SYMBOLS: u64 = 16;

/// A session's part in coding.
pub(super) struct Coded {
    /// Present if bundles of its class are sent as symbols and the peer supports them.
    sender: Option<Mutex<Sender>>,
    /// Where the peer knows symbols.
    receiver: Option<Mutex<Receiver>>,
    /// Part of the peer's room, for the bundles that come as symbols. The receiver's lock is taken
    /// before this one.
    place: Mutex<Place>,
    /// Notifies that the receiver's next deadline has changed.
    told: Notify,
    peer: String,
    known_losses: Arc<KnownLosses>,
}

impl Coded {
    pub(super) fn new(peer: &Hello, defaults: &SessionDefaults, room: &Arc<Room>) -> Coded {
        let known_losses = defaults.known_losses.clone();
        let protection = defaults.coding(peer.class).protection();
        let protection = protection.filter(|_| peer.coded);
        let receiver = Receiver::new(defaults.receive_window_bytes);
        Coded {
            sender: protection.map(|protection| {
                let losses = known_losses.of(&peer.node_id);
                Mutex::new(Sender::new(protection, losses))
            }),
            receiver: peer.coded.then(|| Mutex::new(receiver)),
            place: Mutex::new(room.begin()),
            told: Notify::new(),
            peer: peer.node_id.clone(),
            known_losses,
        }
    }

    /// The message that tells the peer that symbols are accepted here.
    pub(super) fn open(&self) -> Option<underpass_coded::Message> {
        self.receiver().map(|receiver| receiver.open())
    }

    pub(super) fn figures(&self) -> CodedFigures {
        let sent = self.sender().map(|sender| sender.figures());
        let received = self.receiver().map(|receiver| receiver.figures());
        let (sent, received) = (sent.unwrap_or_default(), received.unwrap_or_default());
        CodedFigures {
            symbols_sent: sent.symbols,
            repair_symbols_sent: sent.repair_symbols,
            asked_symbols_sent: sent.asked_symbols,
            symbols_recovered: received.recovered_symbols,
        }
    }

    /// Whether a bundle that comes as symbols has begun and not ended.
    pub(super) fn has_begun(&self) -> bool {
        self.receiver()
            .is_some_and(|receiver| receiver.bundle_bytes() > 0)
    }

    /// Whether the peer owes the rest of a bundle that comes as symbols.
    pub(super) fn is_owed(&self) -> bool {
        self.receiver().is_some_and(|receiver| receiver.is_owed())
    }

    /// Whether this code, not QUIC, retransmits lost datagrams.
    pub(super) fn sends(&self) -> bool {
        self.sender.is_some()
    }

    pub(super) fn sender(&self) -> Option<MutexGuard<'_, Sender>> {
        self.sender.as_ref().map(|sender| sender.lock().unwrap())
    }

    fn receiver(&self) -> Option<MutexGuard<'_, Receiver>> {
        let receiver = self.receiver.as_ref();
        receiver.map(|receiver| receiver.lock().unwrap())
    }

    /// Takes room for a bundle.
    fn grow(&self, bytes: u64) -> Result<(), Refusal> {
        let grown = self.place.lock().unwrap().grow(bytes);
        grown.then_some(()).ok_or(Refusal::NoResources)
    }

    /// Frees the room of bundles that are no longer in transfer.
    fn shrink(&self, receiver: &Receiver) {
        let mut place = self.place.lock().unwrap();
        place.shrink(receiver.bundle_bytes());
    }
}

impl Link {
    /// Whether the next bundle can be sent as symbols, and its class is configured so.
    pub(super) fn codes(&self, bytes: u64) -> bool {
        let Some(mut sender) = self.coded.sender() else {
            return false;
        };
        let most = self.connection.max_datagram_size().unwrap_or(0);
        sender.set_datagram_bytes(most);
        let window = self.flow.window(Instant::now()) / BLOCKS_PER_WINDOW;
        let symbols = window / most.max(1) as u64;
        let symbols = u16::try_from(symbols.max(LEAST_BLOCK_SYMBOLS)).unwrap_or(u16::MAX);
        sender.set_block_symbols(symbols);
        sender.has_room(bytes)
    }

    /// Cuts a bundle into symbols, which leave by [`Link::send_symbols`].
    pub(super) fn cut(&self, transfer: Transfer) {
        if let Some(mut sender) = self.coded.sender() {
            let number = sender.push(transfer.chunks);
            self.outgoing().begin(Name::Coded(number));
        }
    }

    /// Sends the symbols that are due.
    pub(super) async fn send_symbols(&self) -> Result<(), Down> {
        loop {
            let polled = self.coded.sender().map(|mut sender| {
                let datagram = sender.poll_datagram(Instant::now());
                let messages: Vec<_> = std::iter::from_fn(|| sender.poll_message()).collect();
                (datagram, messages)
            });
            let Some((datagram, messages)) = polled else {
                return Ok(());
            };
            for message in messages {
                self.send(Message::Coded(message)).await;
            }
            let Some(datagram) = datagram else {
                return Ok(());
            };
            self.await_datagram(datagram.bytes.len()).await;
            self.send_datagram(datagram.bytes).await?;
            self.outgoing().wrote(datagram.new_bytes);
            self.tell_ready();
        }
    }

    async fn send_datagram(&self, datagram: Bytes) -> Result<(), Down> {
        match self.connection.send_datagram_wait(datagram).await {
            Ok(()) => Ok(()),
            Err(SendDatagramError::ConnectionLost(error)) => Err(self.down(&error)),
            // The path's MTU has become smaller: bundles in transfer are cut again.
            Err(_) => {
                if let Some(mut sender) = self.coded.sender() {
                    let most = self.connection.max_datagram_size();
                    sender.set_datagram_bytes(most.unwrap_or(0));
                }
                Ok(())
            }
        }
    }

    /// When symbols become due although nothing happens.
    pub(super) async fn symbols_due(&self) {
        let at = self.coded.sender().and_then(|sender| sender.poll_timeout());
        match at {
            Some(at) => sleep_until(at.into()).await,
            None => pending().await,
        }
    }

    /// Takes the peer's symbols until one is invalid or the connection ends.
    pub(super) async fn receive_symbols(&self) -> Down {
        if self.coded.receiver.is_none() {
            return pending().await;
        }
        let mut look = interval_at(TokioInstant::now() + LOOK_EACH, LOOK_EACH);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let at = self.coded.receiver().and_then(|of| of.poll_timeout());
            let due = async {
                match at {
                    Some(at) => sleep_until(at.into()).await,
                    None => pending().await,
                }
            };
            let done = tokio::select! {
                biased;
                datagram = self.connection.read_datagram() => match datagram {
                    Ok(datagram) => {
                        let bytes = datagram.len() as u64;
                        self.flow.received(Instant::now(), bytes);
                        self.at_receiver(|receiver, admit| {
                            receiver.on_datagram(Instant::now(), &datagram, admit)
                        })
                    }
                    Err(error) => return self.down(&error),
                },
                () = due => self.at_receiver(|receiver, admit| {
                    receiver.handle_timeout(Instant::now(), admit)
                }),
                () = self.coded.told.notified() => Ok(()),
                _ = look.tick() => self.at_receiver(|receiver, _| {
                    // Nothing comes while the link is blocked.
                    if !self.flow.is_blocked() {
                        receiver.look_for_stale();
                    }
                    Ok(())
                }),
            };
            if let Err(violation) = done {
                return Down::Protocol(violation.to_string());
            }
            self.take_arrived().await;
        }
    }

    fn at_receiver(
        &self,
        act: impl FnOnce(&mut Receiver, underpass_coded::Admit<'_>) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        let Some(mut receiver) = self.coded.receiver() else {
            return Ok(());
        };
        let done = act(&mut receiver, &mut |length| {
            if length > self.whole_mru_bytes {
                return Err(Refusal::NotAcceptable);
            }
            self.node.admit(self.id(), Some(length))?;
            self.coded.grow(length)
        });
        self.coded.shrink(&receiver);
        done
    }

    /// Hands whole bundles to the node, and tells the peer.
    async fn take_arrived(&self) {
        loop {
            let arrived = self.coded.receiver().and_then(|mut of| of.poll_arrived());
            let Some(Arrived { bundle, bytes }) = arrived else {
                break;
            };
            let verdict = self.node.received(self.id(), bytes);
            if let Some(mut receiver) = self.coded.receiver() {
                receiver.judge(bundle, verdict);
                self.coded.shrink(&receiver);
            }
        }
        loop {
            let message = self.coded.receiver().and_then(|mut of| of.poll_message());
            let Some(message) = message else {
                return;
            };
            self.send(Message::Coded(message)).await;
        }
    }

    /// Acts on what the peer says beside datagrams.
    pub(super) fn heard_of_coded(
        &self,
        message: underpass_coded::Message,
    ) -> Result<Option<Down>, outgoing::Violation> {
        use underpass_coded::Message as Coded;
        match message {
            Coded::Sent {
                block,
                symbols,
                datagrams,
            } => {
                let mut receiver = self.coded.receiver();
                let receiver = receiver.as_mut().ok_or(outgoing::Violation::NotCoded)?;
                receiver.on_sent(Instant::now(), block, symbols, datagrams)?;
                self.coded.told.notify_one();
            }
            Coded::Taken { bundle } => self.coded_ended(bundle, Outcome::Acknowledged)?,
            Coded::Refused { bundle, refusal } => {
                self.coded_ended(bundle, Outcome::Refused(refusal))?;
            }
            Coded::Open {
                version,
                room_bytes,
            } => {
                // If no bundle is sent as symbols, these are useless.
                if let Some(mut sender) = self.coded.sender() {
                    sender.opened(version, room_bytes);
                }
            }
            Coded::Wanted {
                block,
                datagrams,
                count,
                missing,
            } => {
                let mut sender = self.coded.sender();
                let sender = sender.as_mut().ok_or(outgoing::Violation::NotCoded)?;
                sender.wanted(block, datagrams, count, &missing)?;
                self.writable.notify_waiters();
            }
            Coded::Losses(losses) => {
                let mut sender = self.coded.sender();
                let sender = sender.as_mut().ok_or(outgoing::Violation::NotCoded)?;
                sender.observe(losses)?;
                let known = sender.losses();
                self.coded.known_losses.set(&self.coded.peer, known);
            }
        }
        Ok(None)
    }

    fn coded_ended(&self, bundle: u64, outcome: Outcome) -> Result<(), outgoing::Violation> {
        let unsent_bytes = {
            let mut sender = self.coded.sender();
            let sender = sender.as_mut().ok_or(outgoing::Violation::NotCoded)?;
            sender.ended(bundle)?
        };
        if unsent_bytes > 0 {
            // They no longer wait, so there may be room for the next bundle.
            self.outgoing().wrote(unsent_bytes);
            self.writable.notify_waiters();
        }
        self.bundle_ended(Name::Coded(bundle), outcome)
    }
}
