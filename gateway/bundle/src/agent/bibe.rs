//! Custody by bundles in bundles (BIBE), as ION-DTN 4.1.3 has it.
//!
//! To a neighbour of this kind a bundle under custody goes inside another one, the BPDU, to the
//! neighbour's administrative endpoint. Its transmission has a number, which the neighbour's signal
//! names. All else is as with a custody block: the same timers, retransmissions and rules of who
//! may signal. An incoming BPDU is opened, and the bundle in it is judged and taken like any other
//! of that neighbour; the sender of the BPDU is its custodian.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use bp7::flags::BundleControlFlags as Flags;
use bytes::Bytes;

use super::Agent;
use super::authority::Forgery;
use super::config::NeighbourId;
use super::deliver::MAX_WAITING_EVENTS;
use super::event::{Event, Reject};
use super::neighbour::Neighbour;
use super::passing::Message;
use super::receive::{Arrival, Encapsulated};
use super::stored::BlockNumbers;
use crate::wire::{
    BPDU_TAIL, BibeSignal, BpduHead, Cteb, CustodyDialect, Eid, HopBlocks, MAX_BPDU_HEAD_BYTES,
    ipn, is_null, seal_primary, write_bpdu_header,
};

/// ION stores transmission numbers in 32 bits, and 0 asks for no custody: they count from 1 to this
/// and begin again.
const TRANSMISSIONS: u64 = u32::MAX as u64;

/// The most bytes that a BPDU adds: the primary block, the blocks of a hop, and the record's head
/// before the bundle in it.
pub(super) const BPDU_BYTES: u64 = 320 + MAX_BPDU_HEAD_BYTES as u64;

/// The deadline for a signal that a BPDU names, after it is sent. This is the least custody timer,
/// not the present one: ION signals up to its own margin before the deadline, and the timer follows
/// what was measured.
const DEADLINE: Duration = Duration::from_secs(2);

/// The sequence under which custody taken by BIBE is remembered, since its numbers differ from
/// those of custody blocks.
const SEQUENCE: u64 = u64::MAX;

/// 1 January 2000 in s since 1970: where DTN time begins.
const DTN_EPOCH_UNIX_S: u64 = 946_684_800;

impl Neighbour {
    /// The number of a transmission of the bundle with this number. The numbers start at a value
    /// from the custody sequence's name, so those of another run differ.
    fn transmission(&self, number: u64) -> u64 {
        self.sequence.wrapping_add(number) % TRANSMISSIONS + 1
    }

    /// The number of the last bundle that had this transmission number; `None` if none had it.
    fn number_of(&self, transmission: u64) -> Option<u64> {
        let last = self.next_number.checked_sub(1)?;
        if !(1..=TRANSMISSIONS).contains(&transmission) {
            return None;
        }
        let back = (self.transmission(last) + TRANSMISSIONS - transmission) % TRANSMISSIONS;
        last.checked_sub(back)
    }

    /// The bundles' numbers for a run of transmissions; `None` if some of them have not been sent.
    fn numbers_of(&self, (first, count): (u64, u64)) -> Option<RangeInclusive<u64>> {
        let first = self.number_of(first)?;
        let last = first.checked_add(count.checked_sub(1)?)?;
        (last < self.next_number).then_some(first..=last)
    }
}

impl Agent {
    /// Sets the neighbours to which bundles under custody go by BIBE, from their
    /// next transmissions on.
    pub fn set_bibe(&mut self, neighbours: BTreeSet<NeighbourId>) {
        self.config.bibe = neighbours;
    }

    /// Sets the neighbours for which this node acts as custodian ([`super::Config::served`]), for
    /// bundles that come and go from now on.
    pub fn set_served(&mut self, neighbours: BTreeSet<NeighbourId>) {
        self.config.served = neighbours;
    }

    /// Puts the pieces of a bundle, without its header, into a BPDU to a
    /// neighbour: the header of both, and what follows the bundle.
    pub(super) fn encapsulate(
        &mut self,
        now: Instant,
        via: NeighbourId,
        number: u64,
        (header, behind_bytes): (&Bytes, u64),
        lifetime: Duration,
    ) -> Bytes {
        let transmission = self.neighbour(via).transmission(number);
        let time_ms = self.timestamps.dtn_time_ms(now);
        let deadline_s = match time_ms {
            0 => 0,
            time_ms => DTN_EPOCH_UNIX_S + (time_ms / 1000) + DEADLINE.as_secs(),
        };
        let (_, primary_raw) = seal_primary(
            ipn(via.0, 0),
            self.admin.clone(),
            Eid::none(),
            self.timestamps.next(now, 0),
            lifetime,
            Flags::BUNDLE_ADMINISTRATIVE_RECORD_PAYLOAD.bits(),
        );
        let hop = HopBlocks {
            previous_node: (BlockNumbers::OWN.previous_node, &self.admin),
            age_ms: (BlockNumbers::OWN.age, 0),
            hop_count: Some((BlockNumbers::OWN.hop_count, self.config.hop_limit, 0)),
            cteb: None,
            creb: None,
        };
        let head = BpduHead {
            transmission,
            deadline_s,
            bundle_bytes: header.len() as u64 + behind_bytes,
        };
        let before = write_bpdu_header(&self.config.codes, &primary_raw, &hop, &head);
        [before, header.clone()].concat().into()
    }

    /// What follows the last piece of a bundle in a BPDU.
    pub(super) fn end_of_bpdu() -> Bytes {
        Bytes::from_static(BPDU_TAIL)
    }

    /// Takes a BIBE custody signal. Like any other it counts only for bundles that went to the
    /// neighbour it came from, or to the one that wrote it.
    pub(super) fn bibe_signal_came(
        &mut self,
        now: Instant,
        from: NeighbourId,
        source: Option<u64>,
        signal: BibeSignal,
    ) {
        let writer = source.map(NeighbourId);
        let writer = writer.filter(|writer| self.config.bibe.contains(writer));
        let of = writer.unwrap_or(from);
        let shard = self.sharding.shard_of(of);
        match shard == self.sharding.own {
            true => self.take_bibe_signal(now, of, &signal),
            false => self.pass(shard, Message::BibeSignal(of, signal)),
        }
    }

    /// Takes a BIBE custody signal on bundles that were sent to a neighbour. A signal that names a
    /// transmission not sent to that neighbour is a mistake or a lie, and does not count at all.
    pub(super) fn take_bibe_signal(&mut self, now: Instant, of: NeighbourId, signal: &BibeSignal) {
        let neighbour = self.neighbour(of);
        let ranges = signal.runs.iter().map(|run| neighbour.numbers_of(*run));
        let ranges: Option<Vec<RangeInclusive<u64>>> = ranges.collect();
        let Some(ranges) = ranges else {
            if self.events.len() < MAX_WAITING_EVENTS {
                self.events.push_back(Event::Forged {
                    from: of,
                    source: ipn(of.0, 0),
                    forgery: Forgery::Signal,
                });
            }
            return;
        };
        for range in ranges {
            match signal.accepts() {
                true => self.range_accepted(now, of, range),
                false => self.range_refused(now, of, range),
            }
        }
    }

    /// Takes the bundle in a BPDU for this node, as if it had come by itself. The sender of the
    /// BPDU gets its signal once the bundle is safe here. If the bundle has a custodian of its own,
    /// that one keeps it until it gets its own signal, so the BPDU's sender need not wait.
    pub(super) fn take_encapsulated(
        &mut self,
        now: Instant,
        bpdu: &Arrival,
        encapsulated: Encapsulated,
    ) -> Result<(), Reject> {
        let Encapsulated {
            transmission,
            bundle,
        } = encapsulated;
        let sender = &bpdu.bundle.primary.source;
        let asks = transmission > 0 && self.config.accept_custody && !is_null(sender);
        let cteb = asks.then(|| Cteb {
            number: transmission,
            sequence: SEQUENCE,
            custodian: sender.clone(),
            dialect: CustodyDialect::Bibe,
        });
        let beside = cteb.clone().filter(|_| bundle.has_custodian());
        let cteb = cteb.filter(|_| beside.is_none());
        self.receive_whole(now, bpdu.from, bpdu.class, bundle, (true, cteb))?;
        // A relay may have taken custody of the BPDU itself.
        self.signal(now, bpdu, true);
        if let Some(cteb) = beside {
            let way = self.way_back(bpdu.from, &cteb);
            let aggregate = self.config.aggregate;
            self.signals.add(now, aggregate, way, &cteb, true);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transmissions_begin_again_at_one_and_name_the_last_that_had_them() {
        let mut neighbour = Neighbour::new(TRANSMISSIONS - 3);
        assert_eq!(neighbour.number_of(1), None, "nothing was sent");
        neighbour.next_number = 6;
        let sent: Vec<u64> = (0..6)
            .map(|number| neighbour.transmission(number))
            .collect();
        let last = TRANSMISSIONS;
        assert_eq!(sent, [last - 2, last - 1, last, 1, 2, 3]);
        for (number, transmission) in sent.iter().enumerate() {
            assert_eq!(neighbour.number_of(*transmission), Some(number as u64));
        }
        assert_eq!(neighbour.number_of(4), None);
        assert_eq!(neighbour.number_of(0), None);
        assert_eq!(neighbour.number_of(u64::MAX), None);
        neighbour.next_number = TRANSMISSIONS + 10;
        assert_eq!(neighbour.number_of(last - 2), Some(TRANSMISSIONS));
    }

    #[test]
    fn a_run_of_which_something_was_not_sent_is_none() {
        let mut neighbour = Neighbour::new(100);
        neighbour.next_number = 10;
        let first = neighbour.transmission(0);
        assert_eq!(neighbour.numbers_of((first, 10)), Some(0..=9));
        assert_eq!(neighbour.numbers_of((first + 9, 1)), Some(9..=9));
        for lie in [
            (first, 0),
            (first, 11),
            (first - 1, 1),
            (first + 10, 1),
            (first, u64::MAX),
            (1, TRANSMISSIONS),
        ] {
            assert_eq!(neighbour.numbers_of(lie), None, "{lie:?}");
        }
    }
}
