//! Packets that are told apart by number, and what comes out of a beam.

use satlink::beam::{Arrival, Beam, Nanos};

/// A packet whose first bytes are its number.
pub fn packet(number: u32, bytes: usize) -> Vec<u8> {
    let mut packet = vec![0; bytes];
    packet[..4].copy_from_slice(&number.to_be_bytes());
    packet
}

/// The number of a packet that has arrived.
pub fn number(arrival: &Arrival) -> u32 {
    u32::from_be_bytes(*arrival.packet.first_chunk().unwrap())
}

/// All that has arrived by a time.
pub fn arrivals(beam: &mut Beam, until: Nanos) -> Vec<Arrival> {
    std::iter::from_fn(|| beam.poll(until)).collect()
}
