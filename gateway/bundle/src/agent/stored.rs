//! A bundle in the agent's store.

use std::sync::Arc;
use std::time::Instant;

use bp7::flags::{BundleControlFlags, BundleValidation};
use bp7::primary::PrimaryBlock;
use bytes::Bytes;
use underpass_cla::Class;
use underpass_payloads::PayloadFile;

use super::config::NeighbourId;
use super::event::DeleteReason;
use super::fixed::FixedParts;
use crate::wire::{Creb, Cteb, Eid, Extension, decode_primary_again};

/// See [`StoredBundle::resumable`].
const OLDER_PART: u32 = 8;

/// Names a bundle on the wire (RFC 9171 §4.2.7): source, creation time,
/// sequence number, and for a fragment offset and length.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WireName {
    pub group: NameGroup,
    pub sequence: u64,
}

/// What the names of many bundles of one source share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NameGroup {
    pub source: Eid,
    pub time: u64,
    pub fragment: Option<(u64, u64)>,
}

impl WireName {
    pub fn of(primary: &PrimaryBlock, payload_bytes: u64) -> WireName {
        let fragment = primary
            .has_fragmentation()
            .then_some((primary.fragmentation_offset, payload_bytes));
        WireName {
            group: NameGroup {
                source: primary.source.clone(),
                time: primary.creation_timestamp.dtntime(),
                fragment,
            },
            sequence: primary.creation_timestamp.seqno(),
        }
    }
}

/// Numbers of the blocks that this node writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockNumbers {
    pub previous_node: u64,
    pub age: u64,
    pub hop_count: u64,
    pub cteb: u64,
    pub creb: u64,
}

impl BlockNumbers {
    /// Numbers of a bundle that begins here.
    pub const OWN: BlockNumbers = BlockNumbers {
        previous_node: 2,
        age: 3,
        hop_count: 4,
        cteb: 5,
        creb: 6,
    };
    /// The number of a further block of such a bundle.
    pub const NEXT: u64 = 7;

    /// All of them, in the order of the fields.
    pub fn all(self) -> [u64; 5] {
        [
            self.previous_node,
            self.age,
            self.hop_count,
            self.cteb,
            self.creb,
        ]
    }
}

impl From<[u64; 5]> for BlockNumbers {
    fn from([previous_node, age, hop_count, cteb, creb]: [u64; 5]) -> BlockNumbers {
        BlockNumbers {
            previous_node,
            age,
            hop_count,
            cteb,
            creb,
        }
    }
}

/// [`BlockNumbers`] as they are kept: most are small.
#[derive(Clone, Debug)]
pub(crate) enum KeptNumbers {
    Small([u8; 5]),
    Large(Box<BlockNumbers>),
}

impl From<BlockNumbers> for KeptNumbers {
    fn from(numbers: BlockNumbers) -> KeptNumbers {
        let mut small = [0; 5];
        for (small, number) in small.iter_mut().zip(numbers.all()) {
            match u8::try_from(number) {
                Ok(number) => *small = number,
                Err(_) => return KeptNumbers::Large(Box::new(numbers)),
            }
        }
        KeptNumbers::Small(small)
    }
}

impl From<&KeptNumbers> for BlockNumbers {
    fn from(kept: &KeptNumbers) -> BlockNumbers {
        match kept {
            KeptNumbers::Small(small) => small.map(u64::from).into(),
            KeptNumbers::Large(numbers) => **numbers,
        }
    }
}

/// How far a stored bundle has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waiting for earlier bundles to be released.
    AwaitingEarlier,
    /// Waiting to be offered.
    Queued,
    /// Offered to a session under this transfer key.
    InTransmission(u64),
    /// Waiting for a signal, or for the time to try again; the custody timer
    /// runs until then.
    Waiting(Instant),
    /// Not to be offered before its service says so.
    Withheld,
    /// As `Waiting`, while the neighbour is down and the timer stands still.
    Suspended,
    /// Waiting to be passed to the agent that has its neighbour.
    Leaving,
    /// Passed to that agent, which has not answered.
    Passing,
    /// Given up for this reason; its source is told when the payload is here.
    Ending(DeleteReason),
}

/// A service's own numbers about a withheld bundle, by which a later run of the node decides about
/// it.
pub type Note = [u64; 3];

/// A bundle in the agent's store; its payload is with [`crate::Store`] alone.
///
/// A million of them may wait for an absent neighbour. So fields that few of them have are boxed,
/// and the primary block is decoded again when it is needed: decoded, it takes three times its
/// bytes.
#[derive(Debug)]
pub(crate) struct StoredBundle {
    pub fixed: FixedParts,
    pub others: Box<[Extension]>,
    pub numbers: KeptNumbers,
    /// Hop limit and count as they are sent.
    pub hop_count: Option<(u8, u8)>,
    /// Another node's custody that is passed on.
    pub passed_cteb: Option<Box<Cteb>>,
    pub creb: Option<Box<Creb>>,
    /// The payload's bytes.
    pub bytes: u64,
    /// The age at `since`, ms.
    pub age_ms: u64,
    pub since: Instant,
    pub expires: Instant,
    pub class: Class,
    pub neighbour: NeighbourId,
    pub custody: bool,
    /// Whether a service of this node sent it.
    pub own: bool,
    /// Whether it asks for reports to an endpoint that may get them.
    pub reports: bool,
    /// The service's own number for it.
    pub label: u64,
    /// The note of a bundle that was withheld at first.
    pub note: Option<Box<Note>>,
    /// Whether it is of an earlier run of this node and takes turns with all others.
    pub restored: bool,
    /// Its number in the neighbour's custody sequence, once it was offered.
    pub number: Option<u64>,
    pub phase: Phase,
    /// Transfers begun.
    pub transmissions: u32,
    /// Attempts that ended without a signal.
    pub unanswered: u32,
    /// When the CL finished it last.
    pub acknowledged: Option<Instant>,
    /// The encoding under way, or the one that the peer has a part of.
    pub sent: Option<Box<Sent>>,
    /// The payload, if it is a file: then the store has only its name.
    pub file: Option<Arc<PayloadFile>>,
}

/// How a bundle was encoded when a transfer of it began. Another transfer can
/// go on in its middle only with the same bytes.
#[derive(Debug)]
pub(crate) struct Sent {
    /// The first transfer of these bytes.
    pub key: u64,
    pub header: Bytes,
    pub encoded: Instant,
    /// Bytes that the peer's CL has acknowledged.
    pub acknowledged: u64,
}

impl StoredBundle {
    /// A bundle that is stored now with a payload of so many bytes, to be sent for the first time:
    /// it has no age, no custody and no blocks of others, is of no service, and is not to be
    /// reported on.
    pub fn new(
        now: Instant,
        fixed: FixedParts,
        bytes: u64,
        (neighbour, class): (NeighbourId, Class),
        expires: Instant,
    ) -> StoredBundle {
        StoredBundle {
            fixed,
            others: Box::default(),
            numbers: BlockNumbers::OWN.into(),
            hop_count: None,
            passed_cteb: None,
            creb: None,
            bytes,
            age_ms: 0,
            since: now,
            expires,
            class,
            neighbour,
            custody: false,
            own: false,
            reports: false,
            label: 0,
            note: None,
            restored: false,
            number: None,
            phase: Phase::Queued,
            transmissions: 0,
            unanswered: 0,
            acknowledged: None,
            sent: None,
            file: None,
        }
    }

    /// The bytes that it counts against the store's quota: a payload on disk has a quota of its
    /// own.
    pub fn counted_bytes(&self) -> u64 {
        let payload = match self.file {
            Some(_) => 0,
            None => self.bytes,
        };
        payload.saturating_add(excess_bytes(self.fixed.primary(), &self.others))
    }

    pub fn age_ms_at(&self, now: Instant) -> u64 {
        let stored = now.saturating_duration_since(self.since).as_millis();
        self.age_ms
            .saturating_add(u64::try_from(stored).unwrap_or(u64::MAX))
    }

    /// The primary block, without a report-to endpoint that may not get reports.
    pub fn primary(&self) -> PrimaryBlock {
        let mut primary = decode_primary_again(self.fixed.primary());
        if !self.reports {
            primary.report_to = Eid::none();
        }
        primary
    }

    /// Whether it is an administrative record.
    pub fn is_record(&self) -> bool {
        let record = BundleControlFlags::BUNDLE_ADMINISTRATIVE_RECORD_PAYLOAD;
        self.primary().bundle_control_flags.contains(record)
    }

    /// The bundle as another agent of this node is to send it. Its service
    /// stays with this one.
    pub fn to_pass(&self) -> StoredBundle {
        let to = (self.neighbour, self.class);
        let fixed = self.fixed.clone();
        StoredBundle {
            others: self.others.clone(),
            numbers: self.numbers.clone(),
            reports: self.reports,
            hop_count: self.hop_count,
            passed_cteb: self.passed_cteb.clone(),
            creb: self.creb.clone(),
            age_ms: self.age_ms,
            custody: self.custody,
            restored: self.restored,
            file: self.file.clone(),
            ..StoredBundle::new(self.since, fixed, self.bytes, to, self.expires)
        }
    }

    /// Copies the parts that are slices of the received bundle: otherwise they would keep the
    /// payload in memory when it is on disk alone.
    pub fn detach(&mut self) {
        if self.own {
            return;
        }
        for block in self.others.iter_mut() {
            block.raw = Bytes::copy_from_slice(&block.raw);
        }
    }

    /// The encoding that a transfer which begins now can resume. The age in its header is that of
    /// the earlier time; the error at the next node is kept below an eighth of the remaining
    /// lifetime.
    pub fn resumable(&self, now: Instant) -> Option<&Sent> {
        let left = self.expires.saturating_duration_since(now);
        self.sent.as_deref().filter(|sent| {
            let older = now.saturating_duration_since(sent.encoded);
            sent.acknowledged > 0 && older <= left / OLDER_PART
        })
    }
}

/// What a bundle's blocks count in addition to its payload: their bytes above a usual size. Blocks
/// of bundles that this node makes have less, and count nothing.
pub(super) fn excess_bytes(primary: &[u8], others: &[Extension]) -> u64 {
    const USUAL: usize = 2048;
    let others: usize = others.iter().map(|block| block.raw.len()).sum();
    (primary.len() + others).saturating_sub(USUAL) as u64
}

/// What a payload counts against the store's quota: its bytes and the data kept beside it.
pub(crate) fn quota_bytes(payload_bytes: u64) -> u64 {
    const BESIDE: u64 = 1024;
    payload_bytes.saturating_add(BESIDE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_that_waits_takes_less_than_a_quarter_of_a_kibibyte() {
        assert!(size_of::<StoredBundle>() <= 240);
    }

    #[test]
    fn block_numbers_are_kept_as_they_are() {
        for cteb in [0, 5, 255, 256, u64::MAX] {
            let numbers = BlockNumbers {
                cteb,
                ..BlockNumbers::OWN
            };
            assert_eq!(BlockNumbers::from(&KeptNumbers::from(numbers)), numbers);
        }
    }
}
