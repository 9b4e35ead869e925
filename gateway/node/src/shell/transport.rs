//! What the transports of all sessions have moved since the start, including ended ones: a
//! session's own counts end with it.

use std::collections::{BTreeMap, HashMap};

use underpass_cla::{Class, CodedFigures, LtpFigures, PathFigures, SessionId};
use underpass_engine::HopId;

use super::{SessionReading, Shell};

/// Payload of the transports on one hop in one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransportTotals {
    /// Bytes sent, retransmissions included.
    pub sent_bytes: u64,
    pub retransmitted_bytes: u64,
    pub received_bytes: u64,
    /// What coding has done.
    pub coded: CodedFigures,
    /// What LTP has given up and refused; what is in progress is not summed.
    pub ltp: LtpFigures,
    /// Whether a session of LTP was among them.
    pub speaks_ltp: bool,
    /// Bytes sent, including headers of TCP and IP, and pure ACKs.
    pub sent_ip_bytes: u64,
}

/// What selective acknowledgement adds to a segment if there are holes all the time: three blocks,
/// as many as fit beside timestamps (RFC 2018).
const SACK_BYTES: u64 = 28;

/// A hop and a class; sessions without a class carry all.
type Place = (HopId, Option<Class>);

/// The sums, and how far each session has been added to them.
#[derive(Debug, Default)]
pub(super) struct TransportLedger {
    totals: BTreeMap<Place, TransportTotals>,
    seen: HashMap<SessionId, PathFigures>,
}

impl TransportLedger {
    /// Adds what a session has moved since the last observation. Returns the IP bytes of one of its
    /// pure ACKs.
    pub fn observe(&mut self, reading: &SessionReading) -> u64 {
        let new = reading.figures;
        let old = self.seen.insert(reading.id, new).unwrap_or_default();
        let place = (reading.place.hop, reading.place.class);
        let total = self.totals.entry(place).or_default();
        // A closed socket no longer counts anything: no negative steps.
        let step = |new: u64, old: u64| new.saturating_sub(old);
        total.sent_bytes += step(new.sent_bytes, old.sent_bytes);
        total.retransmitted_bytes += step(new.retransmitted_bytes, old.retransmitted_bytes);
        total.received_bytes += step(new.received_bytes, old.received_bytes);
        let (sum, now, then) = (&mut total.coded, new.coded, old.coded);
        sum.symbols_sent += step(now.symbols_sent, then.symbols_sent);
        sum.repair_symbols_sent += step(now.repair_symbols_sent, then.repair_symbols_sent);
        sum.asked_symbols_sent += step(now.asked_symbols_sent, then.asked_symbols_sent);
        sum.symbols_recovered += step(now.symbols_recovered, then.symbols_recovered);
        total.speaks_ltp |= new.ltp != LtpFigures::default();
        let (sum, now, then) = (&mut total.ltp, new.ltp, old.ltp);
        sum.cancelled_sent_blocks += step(now.cancelled_sent_blocks, then.cancelled_sent_blocks);
        sum.cancelled_received_blocks += step(
            now.cancelled_received_blocks,
            then.cancelled_received_blocks,
        );
        sum.malformed_segments += step(now.malformed_segments, then.malformed_segments);
        sum.foreign_segments += step(now.foreign_segments, then.foreign_segments);
        sum.closed_segments += step(now.closed_segments, then.closed_segments);
        sum.impossible_segments += step(now.impossible_segments, then.impossible_segments);
        sum.no_room_segments += step(now.no_room_segments, then.no_room_segments);
        let segments = step(new.segments_sent, old.segments_sent);
        let sacks = new.out_of_order_segments > old.out_of_order_segments;
        let ack_bytes = reading.place.ack_bytes + if sacks { SACK_BYTES } else { 0 };
        total.sent_ip_bytes += step(new.sent_bytes, old.sent_bytes) + segments * ack_bytes;
        ack_bytes
    }

    /// A session is gone; its share of the sums stays.
    pub fn forget(&mut self, id: SessionId) {
        self.seen.remove(&id);
    }
}

impl Shell {
    /// What the transports have moved since the start, as last observed.
    pub fn transport_totals(&self) -> BTreeMap<Place, TransportTotals> {
        let each = self.numbers();
        each.flat_map(|shard| self.lock(shard).transport.totals.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use underpass_engine::SessionPlace;

    fn reading(id: u64, sent_bytes: u64) -> SessionReading {
        SessionReading {
            id: SessionId(id),
            place: SessionPlace {
                hop: HopId(0),
                class: Some(Class(1)),
                ack_bytes: 52,
                keepalive_bytes: 75,
            },
            ack_bytes: 52,
            figures: PathFigures {
                sent_bytes,
                segments_sent: sent_bytes / 10,
                ..PathFigures::default()
            },
        }
    }

    #[test]
    fn sums_outlive_sessions_and_never_fall() {
        let mut ledger = TransportLedger::default();
        ledger.observe(&reading(1, 100));
        ledger.observe(&reading(1, 150));
        let mut coding = reading(1, 150);
        coding.figures.coded.symbols_recovered = 7;
        coding.figures.ltp.no_room_segments = 5;
        coding.figures.ltp.sending_blocks = 2;
        ledger.observe(&coding);
        ledger.observe(&reading(1, 0));
        ledger.forget(SessionId(1));
        ledger.observe(&reading(2, 30));
        let total = ledger.totals[&(HopId(0), Some(Class(1)))];
        assert_eq!(total.sent_bytes, 180);
        assert_eq!(total.coded.symbols_recovered, 7);
        let refused = LtpFigures {
            no_room_segments: 5,
            ..LtpFigures::default()
        };
        assert_eq!(total.ltp, refused);
        assert!(total.speaks_ltp);
        assert_eq!(total.sent_ip_bytes, 180 + 18 * 52);
    }

    #[test]
    fn acks_are_larger_while_segments_come_out_of_order() {
        let mut ledger = TransportLedger::default();
        let mut one = reading(1, 0);
        assert_eq!(ledger.observe(&one), 52);
        one.figures.out_of_order_segments = 9;
        one.figures.segments_sent = 10;
        assert_eq!(ledger.observe(&one), 80);
        assert_eq!(ledger.observe(&one), 52);
        let total = ledger.totals[&(HopId(0), Some(Class(1)))];
        assert_eq!(total.sent_ip_bytes, 10 * 80);
    }
}
