//! Packets that wait, by flow.

use std::collections::{BTreeMap, VecDeque};

use super::Packet;
use super::queue::Queued;

/// Bytes that a flow may send in its turn: a packet of maximum size.
const QUANTUM_BYTES: u64 = 1500;

/// What packets of one flow share: protocol, addresses, ports.
pub(super) type FlowKey = Vec<u8>;

/// The flow of an IP packet. Packets without ports (fragments, other protocols) are classified by
/// addresses and protocol; all packets that are not IP form one flow.
pub(super) fn flow_of(packet: &Packet) -> FlowKey {
    let (protocol, addresses, transport) = match packet.first().map(|byte| byte >> 4) {
        Some(4) if packet.len() >= 20 => {
            let header = usize::from(packet[0] & 0x0f) * 4;
            let fragment = packet[6] & 0x3f != 0 || packet[7] != 0;
            (packet[9], 12..20, (!fragment).then_some(header))
        }
        Some(6) if packet.len() >= 40 => (packet[6], 8..40, Some(40)),
        _ => return FlowKey::new(),
    };
    let mut key = vec![protocol];
    key.extend_from_slice(&packet[addresses]);
    let has_ports = matches!(i32::from(protocol), libc::IPPROTO_TCP | libc::IPPROTO_UDP);
    if let Some(ports) = transport
        .filter(|_| has_ports)
        .and_then(|at| packet.get(at..at + 4))
    {
        key.extend_from_slice(ports);
    }
    key
}

/// Packets in order, with their bytes counted.
#[derive(Debug, Default)]
struct Fifo {
    packets: VecDeque<Queued>,
    bytes: u64,
    /// Bytes that its turn leaves it.
    deficit: u64,
}

/// Flows that take turns: deficit round robin (Shreedhar, Varghese: *Efficient fair queueing using
/// deficit round robin*, SIGCOMM 1995). One flow alone is first in, first out.
#[derive(Debug, Default)]
pub(super) struct Flows {
    flows: BTreeMap<FlowKey, Fifo>,
    turns: VecDeque<FlowKey>,
    bytes: u64,
    packets: u64,
}

impl Flows {
    pub(super) fn push(&mut self, key: FlowKey, queued: Queued) {
        let bytes = queued.packet.len() as u64;
        (self.bytes, self.packets) = (self.bytes + bytes, self.packets + 1);
        let turns = &mut self.turns;
        let flow = self.flows.entry(key).or_insert_with_key(|key| {
            turns.push_back(key.clone());
            Fifo {
                deficit: QUANTUM_BYTES,
                ..Fifo::default()
            }
        });
        flow.bytes += bytes;
        flow.packets.push_back(queued);
    }

    /// Takes the packet whose turn it is.
    pub(super) fn pop(&mut self) -> Option<Queued> {
        loop {
            let key = self.turns.front()?;
            let flow = self.flows.get_mut(key)?;
            let bytes = flow.packets.front()?.packet.len() as u64;
            if bytes <= flow.deficit || self.turns.len() == 1 {
                flow.deficit = flow.deficit.saturating_sub(bytes);
                let queued = flow.packets.pop_front()?;
                flow.bytes -= bytes;
                (self.bytes, self.packets) = (self.bytes - bytes, self.packets - 1);
                if flow.packets.is_empty() {
                    self.flows.remove(key);
                    self.turns.pop_front();
                }
                return Some(queued);
            }
            flow.deficit += QUANTUM_BYTES;
            self.turns.rotate_left(1);
        }
    }

    /// Takes the newest packet of the longest flow (McKenney: *Stochastic fairness queueing*,
    /// INFOCOM 1990): a full buffer costs the flow that fills it.
    pub(super) fn steal(&mut self) -> Option<Queued> {
        let (key, flow) = self.flows.iter_mut().max_by_key(|(_, flow)| flow.bytes)?;
        let queued = flow.packets.pop_back()?;
        let bytes = queued.packet.len() as u64;
        flow.bytes -= bytes;
        (self.bytes, self.packets) = (self.bytes - bytes, self.packets - 1);
        if flow.packets.is_empty() {
            let key = key.clone();
            self.flows.remove(&key);
            self.turns.retain(|one| *one != key);
        }
        Some(queued)
    }

    /// The head of the flow whose turn it is.
    pub(super) fn head(&self) -> Option<&Queued> {
        self.flows.get(self.turns.front()?)?.packets.front()
    }

    /// The packet that has waited longest.
    pub(super) fn oldest(&self) -> Option<&Queued> {
        let heads = self.flows.values().filter_map(|flow| flow.packets.front());
        heads.min_by_key(|queued| queued.sequence)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn packets(&self) -> u64 {
        self.packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv4(protocol: i32, source_port: u16) -> Packet {
        let mut packet = vec![0; 100];
        packet[0] = 0x45;
        packet[9] = protocol as u8;
        packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        packet[20..22].copy_from_slice(&source_port.to_be_bytes());
        packet.into()
    }

    #[test]
    fn flows_are_told_apart_by_protocol_and_port() {
        let udp = ipv4(libc::IPPROTO_UDP, 1);
        assert_eq!(flow_of(&udp), flow_of(&ipv4(libc::IPPROTO_UDP, 1)));
        assert_ne!(flow_of(&udp), flow_of(&ipv4(libc::IPPROTO_UDP, 2)));
        assert_ne!(flow_of(&udp), flow_of(&ipv4(libc::IPPROTO_TCP, 1)));
        let icmp = flow_of(&ipv4(libc::IPPROTO_ICMP, 1));
        assert_eq!(icmp, flow_of(&ipv4(libc::IPPROTO_ICMP, 2)));
    }

    #[test]
    fn fragments_of_a_packet_are_one_flow() {
        let fragment = |offset: u16| {
            let mut packet = ipv4(libc::IPPROTO_UDP, 7 + offset).to_vec();
            (packet[6], packet[7]) = (if offset == 0 { 0x20 } else { 0 }, offset as u8);
            flow_of(&packet.into())
        };
        assert_eq!(fragment(0), fragment(100));
    }

    #[test]
    fn a_header_cut_short_is_no_panic() {
        for length in 0..60 {
            for first in [0x45, 0x4f, 0x60, 0x00] {
                let mut packet = vec![libc::IPPROTO_TCP as u8; length];
                if let Some(byte) = packet.first_mut() {
                    *byte = first;
                }
                flow_of(&packet.into());
            }
        }
    }

    #[test]
    fn flows_share_by_bytes_whatever_their_packets() {
        let mut flows = Flows::default();
        for sequence in 0..300 {
            let queued = |bytes| Queued {
                packet: vec![0; bytes].into(),
                enqueued: 0,
                sequence,
            };
            flows.push(vec![1], queued(1500));
            flows.push(vec![2], queued(500));
        }
        let sizes: Vec<usize> = (0..120)
            .map(|_| flows.pop().unwrap().packet.len())
            .collect();
        let large: usize = sizes.iter().filter(|size| **size == 1500).sum();
        let small: usize = sizes.iter().filter(|size| **size == 500).sum();
        assert!(large.abs_diff(small) <= 1500, "{large} {small}");
    }
}
