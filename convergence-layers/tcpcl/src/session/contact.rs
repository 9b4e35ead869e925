//! Contact header and SESS_INIT: how a session comes up (RFC 9174, 4.1–4.7).

use std::time::Instant;

use underpass_cla::Down;

use super::core::Phase;
use super::keepalive::Keepalive;
use super::outgoing::Outgoing;
use super::{Established, Event, Label, Role, SessionCore, same_node};
use crate::wire::{
    CONTACT_HEADER_BYTES, ContactError, ContactHeader, ExtensionList, SessInit, TermReason,
};

/// Each segment costs a header, an acknowledgement, and work at both ends: a peer with a smaller
/// limit could cause that cost for every byte.
const LEAST_SEGMENT_MRU_BYTES: u64 = 64;

impl SessionCore {
    pub(super) fn emit_contact(&mut self) {
        let header = ContactHeader {
            can_tls: self.config.tls,
        };
        header.emit(&mut self.control);
    }

    pub(super) fn contact(&mut self, now: Instant, input: &[u8]) -> usize {
        let Some((bytes, _)) = input.split_first_chunk::<CONTACT_HEADER_BYTES>() else {
            if !ContactHeader::may_begin_with(input) {
                self.contact_failed(ContactError::Magic);
            }
            return 0;
        };
        match ContactHeader::parse(bytes) {
            Ok(header) => self.contact_made(now, header),
            Err(error) => self.contact_failed(error),
        }
        CONTACT_HEADER_BYTES
    }

    fn contact_made(&mut self, now: Instant, header: ContactHeader) {
        if self.config.role == Role::Passive {
            self.emit_contact();
        }
        if !self.config.tls {
            self.begin_init(now);
        } else if header.can_tls {
            self.phase = Phase::Tls;
            self.events.push_back(Event::StartTls);
        } else {
            self.fail_contact("the peer offers no TLS, which is required here");
        }
    }

    fn contact_failed(&mut self, error: ContactError) {
        // A peer that does not speak TCPCL gets no answer (RFC 9174, 4.3).
        if let ContactError::Version(_) = error {
            if self.config.role == Role::Passive {
                self.emit_contact();
            }
            self.term(TermReason::VersionMismatch);
        }
        self.shut(Down::Protocol(error.to_string()));
    }

    /// The TLS handshake succeeded; the peer's certificate names `node_ids`.
    pub fn tls_established(&mut self, now: Instant, node_ids: Vec<String>) {
        if self.phase == Phase::Tls {
            self.certified = Some(node_ids);
            self.begin_init(now);
        }
    }

    fn begin_init(&mut self, now: Instant) {
        self.phase = Phase::Init;
        self.keepalive.heard(now);
        if self.config.role == Role::Active {
            let label = self.config.class.map(|(class, standby)| Label {
                class,
                standby,
                incarnation: self.config.incarnation,
                resumes: self.config.resumption,
                alone_ms: self.alone_ms(now),
            });
            self.emit_init(label);
        }
    }

    /// For how long no process of the previous run has been left, ms.
    fn alone_ms(&self, now: Instant) -> Option<u64> {
        let alone = now.saturating_duration_since(self.config.alone_since?);
        u64::try_from(alone.as_millis()).ok()
    }

    fn emit_init(&mut self, label: Option<Label>) {
        let init = SessInit {
            keepalive_s: self.config.keepalive_s,
            segment_mru_bytes: self.config.segment_mru_bytes,
            transfer_mru_bytes: self.config.transfer_mru_bytes,
            node_id: self.config.node_id.clone(),
            extensions: Ok(ExtensionList(
                label.map(Label::to_item).into_iter().collect(),
            )),
        };
        init.emit(&mut self.control);
    }

    pub(super) fn init(&mut self, now: Instant, init: &SessInit) {
        let extensions = match self.check_init(init) {
            Ok(extensions) => extensions,
            Err(problem) => return self.fail_contact(&problem),
        };
        let theirs = Label::find(extensions);
        if self.config.role == Role::Passive
            && let Some(keepalive_s) = self.config.keepalives_of.get(&init.node_id)
        {
            self.config.keepalive_s = *keepalive_s;
        }
        let label = match self.config.role {
            Role::Active => {
                theirs.filter(|label| self.config.class == Some((label.class, label.standby)))
            }
            Role::Passive => {
                let answer = theirs.map(|label| Label {
                    incarnation: self.config.incarnation,
                    resumes: self.config.resumption,
                    alone_ms: self.alone_ms(now),
                    ..label
                });
                self.emit_init(answer);
                theirs
            }
        };
        self.phase = Phase::Established;
        self.phase_deadline = None;
        let (ours_s, theirs_s) = (self.config.keepalive_s, init.keepalive_s);
        self.keepalive = Keepalive::new(ours_s, theirs_s, label.is_some(), now);
        let segment_bytes = self.config.segment_bytes.min(init.segment_mru_bytes);
        let resumes = label.is_some_and(|label| label.resumes);
        let known = self.config.peer_transfer_mru_bytes;
        let transfer_mru_bytes = known.unwrap_or(init.transfer_mru_bytes);
        self.outgoing = Outgoing::new(segment_bytes, transfer_mru_bytes, resumes);
        let unfinished = self.config.unfinished.of(&init.node_id);
        self.incoming.count_with(unfinished);
        if label.is_some() && self.config.resumption {
            self.incoming.know_resumption();
        }
        self.events.push_back(Event::Established(Established {
            peer_node_id: init.node_id.clone(),
            class: label.map(|label| label.class),
            standby: label.is_some_and(|label| label.standby),
            incarnation: label.map(|label| label.incarnation),
            former_over_by: label.and_then(|label| label.former_over_by(now)),
            resumes,
            transfer_mru_bytes,
            keepalive_s: ours_s.min(theirs_s),
        }));
    }

    fn check_init<'a>(&self, init: &'a SessInit) -> Result<&'a ExtensionList, String> {
        let extensions = init.extensions.as_ref().map_err(ToString::to_string)?;
        let unknown = |item: &&crate::wire::ExtensionItem| {
            item.is_critical() && item.kind != super::LABEL_EXTENSION
        };
        if let Some(item) = extensions.0.iter().find(unknown) {
            return Err(format!(
                "critical session extension {:#06x} is unknown",
                item.kind
            ));
        }
        if init.segment_mru_bytes < LEAST_SEGMENT_MRU_BYTES {
            return Err(format!(
                "the peer takes segments of {} bytes at most, which is too little",
                init.segment_mru_bytes
            ));
        }
        let peer = &init.node_id;
        if let Some(certified) = &self.certified
            && !certified.iter().any(|id| same_node(id, peer))
        {
            return Err(format!(
                "the peer calls itself {peer:?}, which its certificate does not name"
            ));
        }
        if let Some(accepted) = &self.config.accepted_peers
            // A hub accepts many: most peers are found without parsing their numbers.
            && !accepted.contains(peer)
            && !accepted.iter().any(|id| same_node(id, peer))
        {
            return Err(format!("node {peer:?} is not expected here"));
        }
        Ok(extensions)
    }

    pub(super) fn fail_contact(&mut self, problem: &str) {
        self.term(TermReason::ContactFailure);
        self.shut(Down::Protocol(problem.to_owned()));
    }
}
