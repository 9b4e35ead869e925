//! The session's state and its interface to the shell.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use underpass_cla::{Down, Refusal, Transfer};

use super::incoming::{Action, Incoming};
use super::keepalive::{Due, Keepalive, KeepaliveCount};
use super::outgoing::{Outgoing, Wanted};
use super::{Event, Role, SessionConfig};
use crate::wire::{
    Decoder, Frame, RefuseReason, RejectReason, TermReason, XferAck, emit_ack, emit_keepalive,
    emit_refuse, emit_reject, emit_term,
};

/// Most bytes that may wait to be sent beside transfers. Reading never stops because of them, since
/// that could deadlock both peers; a peer that lets this much pile up reads nothing at all.
const MAX_CONTROL_BYTES: usize = 1 << 20;

/// The longest wait for a contact header (RFC 9174, 4.1).
const MAX_CONTACT_TIME: Duration = Duration::from_secs(60);

/// How far the session has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waits for the peer's contact header.
    Contact,
    /// The shell shakes hands.
    Tls,
    /// Waits for the peer's SESS_INIT.
    Init,
    /// Transfers both ways.
    Established,
    /// A SESS_TERM was sent or received: transfers in progress finish.
    Ending,
    /// Over.
    Closed,
}

/// One end of a session.
#[derive(Debug)]
pub struct SessionCore {
    pub(super) config: SessionConfig,
    pub(super) phase: Phase,
    pub(super) decoder: Decoder,
    pub(super) control: BytesMut,
    pub(super) events: VecDeque<Event>,
    pub(super) outgoing: Outgoing,
    pub(super) incoming: Incoming,
    pub(super) keepalive: Keepalive,
    pub(super) keepalives: KeepaliveCount,
    /// Node ids of the peer's certificate, under TLS.
    pub(super) certified: Option<Vec<String>>,
    /// When the present phase has lasted too long.
    pub(super) phase_deadline: Option<Instant>,
    pub(super) term_sent: bool,
    pub(super) term_received: bool,
    head: BytesMut,
}

impl SessionCore {
    /// A session on a connection that is there since `now`.
    pub fn new(config: SessionConfig, now: Instant) -> Self {
        let mut session = Self {
            phase: Phase::Contact,
            decoder: Decoder::new(config.limits),
            control: BytesMut::new(),
            events: VecDeque::new(),
            outgoing: Outgoing::new(config.segment_bytes, 0, false),
            incoming: Incoming::new(
                config.segment_mru_bytes,
                config.transfer_mru_bytes,
                config.whole_mru_bytes,
            ),
            keepalive: Keepalive::new(0, 0, false, now),
            keepalives: KeepaliveCount::default(),
            certified: None,
            phase_deadline: Some(now + config.contact_timeout.min(MAX_CONTACT_TIME)),
            term_sent: false,
            term_received: false,
            head: BytesMut::new(),
            config,
        };
        if session.config.role == Role::Active {
            session.emit_contact();
        }
        session
    }

    /// Takes bytes from the peer and returns how many; the rest must be given again. It takes none
    /// while an answer, the TLS handshake or [`Self::take_piece`] is awaited. Bytes after SESS_INIT
    /// need another call, so that the shell learns of the session before anything that comes on it.
    pub fn handle_input(&mut self, now: Instant, input: &[u8]) -> usize {
        if !input.is_empty() {
            self.heard(now);
        }
        let mut taken = 0;
        while !self.is_held_up() {
            let rest = &input[taken..];
            let was_up = self.phase != Phase::Init;
            let step = match self.phase {
                Phase::Contact => self.contact(now, rest),
                Phase::Tls => 0,
                Phase::Closed => rest.len(),
                Phase::Init | Phase::Established | Phase::Ending => self.frame(now, rest),
            };
            if step == 0 {
                break;
            }
            taken += step;
            if !was_up && self.phase == Phase::Established {
                break;
            }
        }
        self.look_at_transfers(now);
        taken
    }

    fn frame(&mut self, now: Instant, input: &[u8]) -> usize {
        match self.decoder.next(input) {
            Ok(Some((frame, taken))) => {
                self.message(now, frame);
                taken
            }
            Ok(None) => 0,
            Err(error) => {
                self.undecodable(error);
                input.len()
            }
        }
    }

    /// Where segment data may be written directly, and how much of it at most; `None` if the next
    /// bytes are not worth it. The caller must report what was written by [`Self::handle_direct`].
    pub fn direct_buffer(&mut self) -> Option<(&mut BytesMut, usize)> {
        const WORTH_IT: u64 = 16 << 10;
        let left = self.decoder.data_left();
        if left < WORTH_IT || self.phase == Phase::Closed {
            return None;
        }
        let buffer = self.incoming.buffer(left)?;
        let room = buffer.capacity() - buffer.len();
        let room = room.min(usize::try_from(left).unwrap_or(usize::MAX));
        Some((buffer, room))
    }

    /// `bytes` of segment data were appended to [`Self::direct_buffer`].
    pub fn handle_direct(&mut self, now: Instant, bytes: usize) {
        self.heard(now);
        self.decoder.skip_data(bytes as u64);
        if self.decoder.data_left() == 0 {
            let action = self.incoming.segment_end();
            self.act(action);
        }
        self.look_at_transfers(now);
    }

    /// How much is worth reading at once for [`Self::handle_input`]. After a long segment that is
    /// little: the data of the next one should be written directly, and would otherwise be copied.
    pub fn most_to_read(&self) -> usize {
        const HEADS_BYTES: u64 = 4 << 10;
        if !self.incoming.has_long_segments() {
            return usize::MAX;
        }
        let most = self.decoder.data_left().saturating_add(HEADS_BYTES);
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// The keepalive depends on whether a transfer is in progress.
    fn look_at_transfers(&mut self, now: Instant) {
        let busy = !self.outgoing.none_begun() || !self.incoming.is_idle();
        self.keepalive.set_busy(now, busy);
    }

    fn heard(&mut self, now: Instant) {
        self.keepalive.heard(now);
        if self.phase == Phase::Ending {
            self.phase_deadline = Some(now + self.config.ending_timeout);
        }
    }

    /// Whether the rest of a bundle is to come from the peer.
    pub fn is_receiving(&self) -> bool {
        self.incoming.is_receiving()
    }

    /// Whether nothing is taken from the peer until this end has done something.
    pub fn is_held_up(&self) -> bool {
        self.incoming.is_asking() || self.incoming.has_piece()
    }

    /// Answers [`Event::Admit`] of a whole bundle: it is passed on in pieces. [`Event::Received`]
    /// has the last one.
    pub fn take_apart(&mut self) {
        if self.phase == Phase::Closed {
            return;
        }
        let admitted = self.incoming.take_apart();
        self.answered(admitted);
    }

    /// Whether a piece waits of a bundle that is taken apart.
    pub fn has_piece(&self) -> bool {
        self.incoming.has_piece()
    }

    /// The next piece of a bundle that is taken apart. It may be refused at any
    /// time by [`Self::answer`].
    pub fn take_piece(&mut self) -> Option<Bytes> {
        self.incoming.take_piece()
    }

    /// The part of a payload on disk to read next, if any.
    pub fn wanted(&self) -> Option<Wanted> {
        self.outgoing.wanted()
    }

    /// Takes the part that [`Self::wanted`] named; bytes that are no longer needed are ignored.
    pub fn supply(&mut self, wanted: &Wanted, bytes: Bytes) {
        self.outgoing.supply(wanted, bytes);
    }

    /// A payload cannot be read: its bundle is given up, and the session ends, since a transfer
    /// cannot be withdrawn.
    pub fn cannot_supply(&mut self, wanted: &Wanted, reason: &str) {
        if self.outgoing.spoil(wanted, &mut self.events) {
            self.connection_lost(reason);
        }
    }

    /// The next piece of output, in the order of the stream; none also while
    /// [`Self::wanted`] is.
    pub fn poll_output(&mut self, now: Instant) -> Option<Bytes> {
        let piece = if !self.control.is_empty() && self.outgoing.at_boundary() {
            Some(self.control.split().freeze())
        } else if self.phase == Phase::Closed {
            None
        } else {
            self.outgoing.poll(&mut self.head)
        };
        self.look_at_transfers(now);
        match piece {
            Some(_) => self.keepalive.sent(now),
            None => self.finish_ending(),
        }
        piece
    }

    /// What happened, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Self::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::Contact | Phase::Tls | Phase::Init => self.phase_deadline,
            Phase::Established => self.keepalive.deadline(),
            Phase::Ending => [self.keepalive.deadline(), self.phase_deadline]
                .into_iter()
                .flatten()
                .min(),
            Phase::Closed => None,
        }
    }

    /// Does what is due at `now`. While this end itself takes nothing from the peer, the peer's
    /// silence means nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.is_held_up() {
            self.heard(now);
        }
        let late = self.phase_deadline.is_some_and(|deadline| now >= deadline);
        match self.phase {
            Phase::Contact | Phase::Tls => {
                if late {
                    self.shut(Down::Broken("the contact timed out".into()));
                }
            }
            Phase::Init => {
                if late {
                    self.term(TermReason::ContactFailure);
                    self.shut(Down::Broken("the peer sent no SESS_INIT in time".into()));
                }
            }
            Phase::Established | Phase::Ending => match self.keepalive.due(now) {
                Due::PeerSilent => {
                    self.term(TermReason::IdleTimeout);
                    self.shut(Down::Broken("the peer fell silent".into()));
                }
                _ if late && self.phase == Phase::Ending => {
                    self.shut(Down::Broken("the peer did not end the session".into()));
                }
                Due::Send => self.show_life(now),
                Due::Nothing => {}
            },
            Phase::Closed => {}
        }
    }

    /// Takes a bundle; it is sent after those before it.
    pub fn offer(&mut self, transfer: Transfer) {
        if self.phase == Phase::Established {
            self.outgoing.offer(transfer, &mut self.events);
        } else {
            self.events.push_back(Event::Finished {
                key: transfer.key,
                outcome: underpass_cla::Outcome::Broken { acknowledged: 0 },
            });
        }
    }

    /// Whether a bundle offered now would be next to go out.
    pub fn can_take(&self) -> bool {
        self.phase == Phase::Established && self.outgoing.all_sent()
    }

    /// Answers [`Event::Admit`] or [`Event::Received`], or refuses a bundle that
    /// is taken apart.
    pub fn answer(&mut self, answer: Result<(), Refusal>) {
        if self.phase == Phase::Closed {
            return;
        }
        let admitted = self.incoming.answer(answer);
        self.answered(admitted);
    }

    /// Answers an [`Event::Admit`] that names an offset: `partial` are the first bytes of the
    /// bundle, as far as they are here. If they do not reach the offset, the peer is asked to begin
    /// again.
    pub fn resume(&mut self, partial: Option<BytesMut>) {
        if self.phase == Phase::Closed {
            return;
        }
        let admitted = self.incoming.resume(partial);
        self.answered(admitted);
    }

    fn answered(&mut self, admitted: Action) {
        self.act(admitted);
        // A segment without data ends where it begins.
        if self.decoder.data_left() == 0 && self.incoming.is_open() {
            let action = self.incoming.segment_end();
            self.act(action);
        }
    }

    /// Suspends keepalives while the link is known to be blocked.
    pub fn suspend(&mut self, now: Instant, suspended: bool) {
        self.keepalive.suspend(now, suspended);
    }

    /// Sends a keepalive at once, which the peer's transport acknowledges, if keepalives
    /// are agreed on.
    pub fn ask(&mut self, now: Instant) {
        let up = matches!(self.phase, Phase::Established | Phase::Ending);
        if up && self.keepalive.is_agreed() {
            self.show_life(now);
        }
    }

    /// Sends a keepalive, unless something else is about to be sent.
    fn show_life(&mut self, now: Instant) {
        if self.control.is_empty() {
            emit_keepalive(&mut self.control);
            self.keepalives.sent += 1;
        }
        self.keepalive.sent(now);
    }

    /// The keepalives until now.
    pub fn keepalives(&self) -> KeepaliveCount {
        self.keepalives
    }

    /// Ends the session in order.
    pub fn close(&mut self, now: Instant, reason: TermReason) {
        match self.phase {
            Phase::Established => {
                self.term(reason);
                self.begin_ending(now);
            }
            Phase::Contact | Phase::Tls | Phase::Init => self.shut(Down::Closed),
            Phase::Ending | Phase::Closed => {}
        }
    }

    /// The connection is gone, or is to be gone.
    pub fn connection_lost(&mut self, reason: &str) {
        let orderly = self.term_sent && self.term_received && self.outgoing.none_begun();
        self.control.clear();
        self.shut(if orderly {
            Down::Closed
        } else {
            Down::Broken(reason.to_owned())
        });
    }

    /// Whether the session is over.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Sends SESS_TERM of our own, once.
    pub(super) fn term(&mut self, reason: TermReason) {
        if !self.term_sent {
            self.term_sent = true;
            emit_term(false, reason, &mut self.control);
        }
    }

    pub(super) fn begin_ending(&mut self, now: Instant) {
        self.phase = Phase::Ending;
        self.phase_deadline = Some(now + self.config.ending_timeout);
        self.outgoing.drop_waiting(&mut self.events);
    }

    /// Both sides know of the end and nothing is in progress.
    fn finish_ending(&mut self) {
        let done = self.phase == Phase::Ending
            && self.term_sent
            && self.term_received
            && self.control.is_empty()
            && self.outgoing.none_begun()
            && self.incoming.is_idle();
        if done {
            self.shut(Down::Closed);
        }
    }

    pub(super) fn shut(&mut self, down: Down) {
        if self.phase == Phase::Closed {
            return;
        }
        if !self.outgoing.at_boundary() {
            // A message in the middle of a segment would be read as its data.
            self.control.clear();
        }
        self.phase = Phase::Closed;
        self.outgoing.fail(&mut self.events);
        self.events
            .retain(|event| !matches!(event, Event::Admit { .. } | Event::Received(_)));
        if let Some((key, received)) = self.incoming.give_up() {
            self.events.push_back(Event::Partial { key, received });
        }
        self.events.push_back(Event::Closed(down));
    }

    pub(super) fn reject(&mut self, reason: RejectReason, rejected: u8) {
        emit_reject(reason, rejected, &mut self.control);
        self.bound_control();
    }

    pub(super) fn act(&mut self, action: Action) {
        match action {
            Action::Nothing => {}
            Action::Admit { length, resumption } => {
                self.events.push_back(Event::Admit { length, resumption });
            }
            Action::Deliver(bundle) => self.events.push_back(Event::Received(bundle)),
            Action::Ack {
                flags,
                id,
                received,
            } => {
                let ack = XferAck {
                    flags,
                    transfer_id: id,
                    acknowledged: received,
                };
                emit_ack(&ack, &mut self.control);
                self.bound_control();
            }
            Action::Refuse { id, reason } => self.refuse(id, reason),
            Action::Unexpected => {
                self.reject(RejectReason::Unexpected, crate::wire::code::XFER_SEGMENT);
            }
        }
    }

    fn refuse(&mut self, id: u64, reason: RefuseReason) {
        emit_refuse(id, reason, &mut self.control);
        self.bound_control();
    }

    fn bound_control(&mut self) {
        if self.control.len() > MAX_CONTROL_BYTES {
            self.control.clear();
            self.shut(Down::Protocol(
                "the peer does not read what answers its messages".into(),
            ));
        }
    }

    /// Whether `frame` may end a segment: the data of the current one is
    /// complete.
    pub(super) fn after_segment_bytes(&mut self, frame: &Frame<'_>) {
        let of_segment = matches!(frame, Frame::Segment(_) | Frame::Data(_));
        if of_segment && self.decoder.data_left() == 0 && !self.incoming.is_asking() {
            let action = self.incoming.segment_end();
            self.act(action);
        }
    }
}
