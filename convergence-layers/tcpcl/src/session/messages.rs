//! What each message does.

use std::time::Instant;

use underpass_cla::Down;

use super::SessionCore;
use super::core::Phase;
use super::outgoing::Unexpected;
use crate::wire::{DecodeError, Frame, RejectReason, SegmentHeader, TermReason, code, emit_term};

impl SessionCore {
    pub(super) fn message(&mut self, now: Instant, frame: Frame<'_>) {
        if self.phase == Phase::Init {
            return self.message_before_init(now, &frame);
        }
        match &frame {
            Frame::Segment(header) => self.segment(header),
            Frame::Data(data) => self.incoming.data(data),
            Frame::Ack(ack) => {
                let result = self.outgoing.acknowledged(ack, &mut self.events);
                self.unless_expected(result, code::XFER_ACK);
            }
            Frame::Refuse {
                reason,
                transfer_id,
            } => {
                let ending = self.phase == Phase::Ending;
                let result = self
                    .outgoing
                    .refused(*transfer_id, *reason, ending, &mut self.events);
                self.unless_expected(result, code::XFER_REFUSE);
            }
            Frame::Keepalive => self.keepalives.received += 1,
            Frame::Term { reason, .. } => self.term_received(now, *reason),
            Frame::Reject { rejected, .. } => self.rejected(*rejected),
            Frame::Init(_) => self.reject(RejectReason::Unexpected, code::SESS_INIT),
        }
        self.after_segment_bytes(&frame);
    }

    fn message_before_init(&mut self, now: Instant, frame: &Frame<'_>) {
        match frame {
            Frame::Init(init) => self.init(now, init),
            Frame::Keepalive => {}
            Frame::Term { reason, .. } => self.shut(Down::Protocol(format!(
                "the peer ended the contact ({reason:?}); its log says why"
            ))),
            Frame::Reject { rejected, .. } => self.shut(Down::Protocol(format!(
                "the peer rejected message type {rejected:#04x}"
            ))),
            Frame::Segment(_) => self.too_early(code::XFER_SEGMENT),
            Frame::Data(_) => {}
            Frame::Ack(_) => self.too_early(code::XFER_ACK),
            Frame::Refuse { .. } => self.too_early(code::XFER_REFUSE),
        }
    }

    fn too_early(&mut self, kind: u8) {
        self.reject(RejectReason::Unexpected, kind);
        self.fail_contact("the peer sent transfers before SESS_INIT");
    }

    fn segment(&mut self, header: &SegmentHeader) {
        let action = self.incoming.segment(header, self.phase == Phase::Ending);
        self.act(action);
    }

    fn unless_expected(&mut self, result: Result<(), Unexpected>, kind: u8) {
        if result == Err(Unexpected) {
            self.reject(RejectReason::Unexpected, kind);
        }
    }

    /// Every SESS_TERM but a reply is confirmed, unless we have already sent one (RFC 9174, 6.1).
    fn term_received(&mut self, now: Instant, reason: TermReason) {
        self.term_received = true;
        if !self.term_sent {
            self.term_sent = true;
            emit_term(true, reason, &mut self.control);
        }
        if self.phase == Phase::Established {
            self.begin_ending(now);
        }
    }

    /// A peer that rejects a segment will never acknowledge it, and one that
    /// rejects SESS_TERM will not confirm it; other rejections concern
    /// messages that nothing waits for.
    fn rejected(&mut self, rejected: u8) {
        if rejected == code::XFER_SEGMENT || rejected == code::SESS_TERM {
            self.term(TermReason::Unknown);
            self.shut(Down::Protocol(format!(
                "the peer rejected message type {rejected:#04x}"
            )));
        }
    }

    pub(super) fn undecodable(&mut self, error: DecodeError) {
        let reason = match error {
            DecodeError::UnknownType(kind) => {
                self.reject(RejectReason::TypeUnknown, kind);
                TermReason::Unknown
            }
            DecodeError::ExtensionsTooLong(_) => TermReason::ResourceExhaustion,
            DecodeError::NodeIdTooLong(_) | DecodeError::NodeIdNotUtf8 => {
                TermReason::ContactFailure
            }
        };
        self.term(reason);
        self.shut(Down::Protocol(error.to_string()));
    }
}
