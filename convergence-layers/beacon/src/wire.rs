//! The datagram, but for its authentication.

use std::time::Duration;

/// A datagram's length, bytes. There is only one.
pub const BEACON_BYTES: usize = 42;

/// What is authenticated: all before the tag, bytes.
pub(crate) const HEAD_BYTES: usize = 26;

const FLAG_DEAF: u8 = 1;
const FLAG_WANTS: u8 = 2;
/// The six bits above the flags give the lateness of the peer's beacons.
const LATE_SHIFT: u32 = 2;
/// The steps per doubling of the lateness, from 1 ms on.
const STEPS_PER_DOUBLING: f64 = 5.0;
const MOST_STEPS: u8 = 63;

/// The first byte of a beacon.
const BEACON: u8 = 0xb1;
/// The first byte of a beacon whose sender lets the link rest. Builds that do not
/// know it drop the datagram.
const RESTING: u8 = 0xb3;

/// The kind of a datagram, in its first byte. None of these bytes begins a bundle (0x9f) or a
/// message of UDPCL, which by custom uses the same port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A beacon.
    Beacon,
    /// A beacon returned to its sender by a node that does not know its key.
    KeyUnknown,
}

impl Kind {
    /// The first byte of a datagram. That of a beacon also says whether its sender lets the link
    /// rest.
    pub fn byte(self) -> u8 {
        match self {
            Kind::Beacon => BEACON,
            Kind::KeyUnknown => 0xb2,
        }
    }
}

/// Names a key without telling it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyId(pub [u8; 8]);

/// Numbers the beacons of a node, also over restarts; a later one has the greater number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sequence {
    /// Of the sender: greater at each start of the node, and when the counter begins again.
    pub incarnation: u64,
    /// Milliseconds of that run when it was sent, or one more than the last number, if that is
    /// greater.
    pub counter: u32,
}

impl Sequence {
    /// The next number; every number has one.
    pub fn next(self) -> Sequence {
        match self.counter.checked_add(1) {
            Some(counter) => Sequence { counter, ..self },
            None => Sequence {
                incarnation: self.incarnation.saturating_add(1),
                counter: 0,
            },
        }
    }
}

/// How late a peer's last beacon was, accurate to a seventh: from 1 ms, which means not late, to
/// 5.4 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late(u8);

impl Late {
    /// The step that is nearest.
    pub fn of(late: Duration) -> Late {
        let doublings = (late.as_secs_f64() * 1e3).max(1.0).log2();
        Late(1 + ((doublings * STEPS_PER_DOUBLING).round() as u8).min(MOST_STEPS - 1))
    }

    /// How late that is.
    pub fn get(self) -> Duration {
        match self.0 {
            1 => Duration::ZERO,
            step => {
                let doublings = f64::from(step - 1) / STEPS_PER_DOUBLING;
                Duration::from_secs_f64(doublings.exp2() / 1e3)
            }
        }
    }

    fn from_bits(bits: u8) -> Option<Late> {
        (bits > 0).then_some(Late(bits))
    }
}

/// A beacon's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beacon {
    /// The sender has heard nothing for a round trip: it waits for an answer.
    pub deaf: bool,
    /// The sender sends much and wants to know how long the peer's beacons take: the peer should
    /// send them beside other traffic, too.
    pub wants: bool,
    /// The sender lets the link rest: rare beacons are no blockage for it, and its own are rare
    /// while the peer says the same. Unknown for a returned beacon.
    pub rests: bool,
    /// How late the peer's last beacon came, if that is known.
    pub late: Option<Late>,
    /// The key that authenticates the beacon.
    pub key: KeyId,
    /// The sender's ipn node number.
    pub node: u32,
    /// The beacon's number.
    pub sequence: Sequence,
}

impl Beacon {
    /// The authenticated part of the datagram.
    pub(crate) fn head(&self) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[0] = match self.rests {
            true => RESTING,
            false => BEACON,
        };
        let late = self.late.map_or(0, |late| late.0 << LATE_SHIFT);
        head[1] = (u8::from(self.deaf) * FLAG_DEAF) | (u8::from(self.wants) * FLAG_WANTS) | late;
        head[2..10].copy_from_slice(&self.key.0);
        head[10..14].copy_from_slice(&self.node.to_be_bytes());
        head[14..22].copy_from_slice(&self.sequence.incarnation.to_be_bytes());
        head[22..26].copy_from_slice(&self.sequence.counter.to_be_bytes());
        head
    }

    /// Parses a datagram, which is not authenticated yet; `None` if it is no datagram of this
    /// protocol.
    pub fn parse(datagram: &[u8]) -> Option<(Kind, Beacon)> {
        let datagram: &[u8; BEACON_BYTES] = datagram.try_into().ok()?;
        let rests = datagram[0] == RESTING;
        let kind = [Kind::Beacon, Kind::KeyUnknown]
            .into_iter()
            .find(|kind| kind.byte() == datagram[0])
            .or(rests.then_some(Kind::Beacon))?;
        let beacon = Beacon {
            rests,
            deaf: datagram[1] & FLAG_DEAF != 0,
            wants: datagram[1] & FLAG_WANTS != 0,
            late: Late::from_bits(datagram[1] >> LATE_SHIFT),
            key: KeyId(field(datagram, 2)),
            node: u32::from_be_bytes(field(datagram, 10)),
            sequence: Sequence {
                incarnation: u64::from_be_bytes(field(datagram, 14)),
                counter: u32::from_be_bytes(field(datagram, 22)),
            },
        };
        Some((kind, beacon))
    }
}

/// The possible first bytes at sealing of a datagram that begins with this one: a returned beacon
/// does not show whether it let the link rest.
pub(crate) fn sealed_under(first: u8) -> &'static [u8] {
    match first {
        RESTING => &[RESTING],
        BEACON => &[BEACON],
        _ => &[BEACON, RESTING],
    }
}

/// The `N` bytes at `at`; fields lie inside the datagram by its layout.
fn field<const N: usize>(datagram: &[u8; BEACON_BYTES], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&datagram[at..at + N]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_told_to_a_seventh() {
        for ms in (2..5_400).step_by(7) {
            let told = Late::of(Duration::from_millis(ms)).get().as_secs_f64() * 1e3;
            assert!((told / ms as f64 - 1.0).abs() < 0.08, "{ms}: {told}");
        }
        assert_eq!(Late::of(Duration::ZERO).get(), Duration::ZERO);
        assert!(Late::of(Duration::MAX).get() > Duration::from_secs(5));
    }

    #[test]
    fn each_of_the_bits_is_read_as_it_is_written() {
        for bits in 1..=MOST_STEPS {
            let late = Late::from_bits(bits).unwrap();
            assert_eq!(Late::of(late.get()), late);
        }
        assert_eq!(Late::from_bits(0), None);
    }
}
