//! Status reports, if they are asked for (RFC 9171 §6.1), at a bounded rate: a flood of bundles
//! that ask for them must not become a flood of reports.

use std::time::Instant;

use bp7::administrative_record::{
    BundleStatusItem, DELETED_BUNDLE, DELIVERED_BUNDLE, FORWARDED_BUNDLE,
    MAX_STATUS_INFORMATION_POS, StatusInformationPos, StatusReport,
};
use bp7::flags::{BundleControlFlags as Flags, BundleValidation};
use bp7::primary::PrimaryBlock;
use bytes::Bytes;
use underpass_cla::Class;
use underpass_work::FastMap;

use super::Agent;
use super::config::NeighbourId;
use super::deliver::MAX_WAITING_EVENTS;
use super::event::Event;
use super::originate::Draft;
use super::passing::Message;
use super::stored::StoredBundle;
use crate::wire::{Eid, encode_status_report, ipn_parts, is_null};

/// Allows a number of reports per second to each neighbour, and as many at once: a neighbour that
/// asks for a flood of them takes none from the others.
#[derive(Debug)]
pub(super) struct ReportRate {
    per_second: f64,
    /// By the neighbour that they go to; `None` for this node's own services.
    left: FastMap<Option<NeighbourId>, Left>,
}

/// Reports that may be sent at once.
#[derive(Debug)]
struct Left {
    reports: f64,
    filled: Instant,
}

impl ReportRate {
    pub fn new(per_second: u32) -> Self {
        ReportRate {
            per_second: f64::from(per_second),
            left: FastMap::default(),
        }
    }

    pub fn footprint(&self, tell: &mut dyn FnMut(&'static str, usize)) {
        let ReportRate {
            per_second: _,
            left,
        } = self;
        tell("neighbours with reports", left.len());
    }

    fn allows(&mut self, now: Instant, to: Option<NeighbourId>) -> bool {
        let most = self.per_second;
        let left = self.left.entry(to).or_insert(Left {
            reports: most,
            filled: now,
        });
        let since = now.saturating_duration_since(left.filled).as_secs_f64();
        left.filled = now;
        left.reports = (left.reports + since * most).min(most);
        if left.reports < 1.0 {
            return false;
        }
        left.reports -= 1.0;
        true
    }
}

impl Agent {
    pub(super) fn report_on(
        &mut self,
        now: Instant,
        stored: &StoredBundle,
        status: StatusInformationPos,
        reason: u32,
    ) {
        if stored.reports {
            let (bytes, class) = (stored.bytes, stored.class);
            self.report(now, &stored.primary(), bytes, class, status, reason);
        }
    }

    /// Sends a status report on a bundle, if it asks for one.
    pub(super) fn report(
        &mut self,
        now: Instant,
        subject: &PrimaryBlock,
        payload_bytes: u64,
        class: Class,
        status: StatusInformationPos,
        reason: u32,
    ) {
        let flags = subject.bundle_control_flags;
        let asked = match status {
            FORWARDED_BUNDLE => Flags::BUNDLE_STATUS_REQUEST_FORWARD,
            DELIVERED_BUNDLE => Flags::BUNDLE_STATUS_REQUEST_DELIVERY,
            DELETED_BUNDLE => Flags::BUNDLE_STATUS_REQUEST_DELETION,
            _ => Flags::BUNDLE_STATUS_REQUEST_RECEPTION,
        };
        if flags.contains(asked) {
            self.send_report(now, subject, payload_bytes, class, status, reason);
        }
    }

    /// Sends a status report on any bundle but an administrative record and one
    /// without a source.
    pub(super) fn send_report(
        &mut self,
        now: Instant,
        subject: &PrimaryBlock,
        payload_bytes: u64,
        class: Class,
        status: StatusInformationPos,
        reason: u32,
    ) {
        let flags = subject.bundle_control_flags;
        // A report on a bundle without a source could not identify it (RFC 9171 §4.2.3).
        let nameless = is_null(&subject.source);
        if nameless || flags.contains(Flags::BUNDLE_ADMINISTRATIVE_RECORD_PAYLOAD) {
            return;
        }
        let to = &subject.report_to;
        let own = self.config.own_service(to).is_some();
        let route = match ipn_parts(to) {
            Some((node, _)) => self.route_of_any(node, 0),
            None => self.named_route(to),
        };
        let via = route.map(|(via, _)| via).filter(|_| !own);
        if !own && via.is_none() || !self.reports.allows(now, via) {
            return;
        }
        let timed = flags.contains(Flags::BUNDLE_REQUEST_STATUS_TIME);
        let time = self.timestamps.dtn_time_ms(now);
        let report = status_report(
            subject,
            payload_bytes,
            status,
            reason,
            timed.then_some(time),
        );
        let Some(via) = via else {
            // A report on an own bundle goes to its service here: nobody else may name this node as
            // report-to endpoint.
            if self.events.len() < MAX_WAITING_EVENTS {
                let reporter = self.admin.clone();
                self.events
                    .push_back(Event::StatusReport { reporter, report });
            }
            return;
        };
        let payload = encode_status_report(report);
        let Some(room) = self.reserve(via, payload.len() as u64) else {
            return;
        };
        let draft = Draft {
            service: self.config.reporter_to(to),
            destination: to.clone(),
            report_to: Eid::none(),
            flags: Flags::BUNDLE_ADMINISTRATIVE_RECORD_PAYLOAD,
            class,
            lifetime: self.config.lifetime,
            custody: false,
            file: None,
            signed: None,
            payload: vec![Bytes::from(payload)],
            via,
            own: false,
            label: 0,
            note: None,
            last: false,
        };
        let shard = self.sharding.shard_of(via);
        match shard == self.sharding.own {
            true => drop(self.originate(now, draft, room)),
            false => self.pass(shard, Message::Draft(Box::new(draft), room)),
        }
    }
}

fn status_report(
    subject: &PrimaryBlock,
    payload_bytes: u64,
    status: StatusInformationPos,
    reason: u32,
    time: Option<u64>,
) -> StatusReport {
    let item = |position| BundleStatusItem {
        asserted: position == status,
        time: time.unwrap_or(0),
        status_requested: time.is_some(),
    };
    let fragment = subject.has_fragmentation();
    StatusReport {
        status_information: (0..MAX_STATUS_INFORMATION_POS).map(item).collect(),
        report_reason: reason,
        source_node: subject.source.clone(),
        timestamp: subject.creation_timestamp.clone(),
        frag_offset: if fragment {
            subject.fragmentation_offset
        } else {
            0
        },
        frag_len: if fragment { payload_bytes } else { 0 },
    }
}
