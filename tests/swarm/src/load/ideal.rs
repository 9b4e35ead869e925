//! An ideal fair queue: how a sender that knows everything would deliver the same chunks.
//!
//! A fluid model (generalised processor sharing: Parekh and Gallager 1993). The
//! terminals with something to send share the rate in equal parts, bit by bit,
//! and each one's chunks leave in the order in which they were offered. A
//! blocked terminal is not served, and its part goes to the others. Virtual time
//! is the bits that a terminal with a backlog has been served; a chunk has left
//! when it reaches the chunk's tag.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A chunk that is offered to the queue.
#[derive(Clone, Copy, Debug)]
pub struct Offered {
    /// Whose it is.
    pub terminal: usize,
    pub at_ns: u64,
    pub bytes: u64,
}

/// A time in which a terminal is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    pub terminal: usize,
    pub from_ns: u64,
    /// Until when, ns; `u64::MAX` where no end is known.
    pub until_ns: u64,
}

/// When each chunk has left, ns; `None` where its terminal stays blocked.
/// `offered` is in the order of time, and no terminal is blocked twice at once.
pub fn departures(
    rate_bps: f64,
    terminals: usize,
    offered: &[Offered],
    blocked: &[Blocked],
) -> Vec<Option<u64>> {
    let mut changes: Vec<(u64, usize, bool)> = Vec::with_capacity(2 * blocked.len());
    for blockage in blocked {
        changes.push((blockage.from_ns, blockage.terminal, true));
        changes.push((blockage.until_ns, blockage.terminal, false));
    }
    // An end goes before a beginning at the same time.
    changes.sort_unstable();
    let mut changes = changes.into_iter().peekable();
    let mut queue = FluidQueue::new(rate_bps, terminals, offered.len());
    for (number, chunk) in offered.iter().enumerate() {
        while let Some((at, terminal, blocks)) = changes.next_if(|(at, ..)| *at <= chunk.at_ns) {
            queue.advance(at);
            queue.set_blocked(terminal, blocks);
        }
        queue.advance(chunk.at_ns);
        queue.offer(number, chunk);
    }
    for (at, terminal, blocks) in changes.filter(|(at, ..)| *at < u64::MAX) {
        queue.advance(at);
        queue.set_blocked(terminal, blocks);
    }
    queue.advance(u64::MAX);
    queue.left
}

#[derive(Clone, Debug, Default)]
struct Share {
    /// Chunks with their tags.
    queue: VecDeque<(usize, f64)>,
    /// Virtual time at which it was blocked.
    blocked: Option<f64>,
    /// Counts the changes that have made earlier entries in the order invalid.
    version: u64,
}

/// The head of a terminal's queue, by its tag.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Head {
    tag: f64,
    terminal: usize,
    version: u64,
}

impl Eq for Head {}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let tags = self.tag.total_cmp(&other.tag);
        tags.then(self.terminal.cmp(&other.terminal))
            .then(self.version.cmp(&other.version))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

struct FluidQueue {
    bits_per_ns: f64,
    now_ns: f64,
    /// Bits that a terminal with a backlog all the time would have been served.
    virtual_now: f64,
    /// Terminals with a backlog that are not blocked.
    active: usize,
    shares: Vec<Share>,
    heads: BinaryHeap<Reverse<Head>>,
    left: Vec<Option<u64>>,
}

impl FluidQueue {
    fn new(rate_bps: f64, terminals: usize, chunks: usize) -> FluidQueue {
        FluidQueue {
            bits_per_ns: rate_bps / 1e9,
            now_ns: 0.0,
            virtual_now: 0.0,
            active: 0,
            shares: vec![Share::default(); terminals],
            heads: BinaryHeap::new(),
            left: vec![None; chunks],
        }
    }

    /// Serves until `to_ns`, or until nothing can be served.
    fn advance(&mut self, to_ns: u64) {
        while let Some(&Reverse(head)) = self.heads.peek() {
            let share = &mut self.shares[head.terminal];
            if share.version != head.version {
                self.heads.pop();
                continue;
            }
            let ns_per_bit = self.active as f64 / self.bits_per_ns;
            let at_ns = self.now_ns + (head.tag - self.virtual_now).max(0.0) * ns_per_bit;
            if at_ns > to_ns as f64 {
                break;
            }
            self.heads.pop();
            self.now_ns = at_ns;
            self.virtual_now = self.virtual_now.max(head.tag);
            if let Some((number, _)) = share.queue.pop_front() {
                self.left[number] = Some(at_ns.round() as u64);
            }
            if share.queue.is_empty() {
                self.active -= 1;
            }
            self.list(head.terminal);
        }
        // At the end of time there is nothing left that could be served.
        if to_ns < u64::MAX {
            if self.active > 0 {
                let served = (to_ns as f64 - self.now_ns).max(0.0) * self.bits_per_ns;
                self.virtual_now += served / self.active as f64;
            }
            self.now_ns = self.now_ns.max(to_ns as f64);
        }
    }

    fn offer(&mut self, number: usize, chunk: &Offered) {
        let share = &mut self.shares[chunk.terminal];
        let own_now = share.blocked.unwrap_or(self.virtual_now);
        let begins = share.queue.back().map_or(own_now, |(_, tag)| *tag);
        let tag = begins.max(own_now) + chunk.bytes as f64 * 8.0;
        share.queue.push_back((number, tag));
        if share.queue.len() == 1 && share.blocked.is_none() {
            self.active += 1;
            self.list(chunk.terminal);
        }
    }

    fn set_blocked(&mut self, terminal: usize, blocks: bool) {
        let share = &mut self.shares[terminal];
        let waits = !share.queue.is_empty();
        match (share.blocked, blocks) {
            (None, true) => {
                share.blocked = Some(self.virtual_now);
                share.version += 1;
                self.active -= usize::from(waits);
            }
            (Some(since), false) => {
                share.blocked = None;
                let missed = self.virtual_now - since;
                for (_, tag) in &mut share.queue {
                    *tag += missed;
                }
                self.active += usize::from(waits);
                self.list(terminal);
            }
            _ => {}
        }
    }

    /// Lists the head of a terminal's queue in the order.
    fn list(&mut self, terminal: usize) {
        let share = &self.shares[terminal];
        if let (Some((_, tag)), None) = (share.queue.front(), share.blocked) {
            self.heads.push(Reverse(Head {
                tag: *tag,
                terminal,
                version: share.version,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 8 kbit/s: a byte in a millisecond.
    const RATE: f64 = 8e3;
    const MS: u64 = 1_000_000;

    fn chunk(terminal: usize, at_ms: u64, bytes: u64) -> Offered {
        Offered {
            terminal,
            at_ns: at_ms * MS,
            bytes,
        }
    }

    fn blocked(terminal: usize, from_ms: u64, until_ms: u64) -> Blocked {
        Blocked {
            terminal,
            from_ns: from_ms * MS,
            until_ns: until_ms.saturating_mul(MS),
        }
    }

    fn left_ms(offered: &[Offered], blocked: &[Blocked]) -> Vec<Option<u64>> {
        let left = departures(RATE, 3, offered, blocked);
        left.into_iter().map(|at| at.map(|ns| ns / MS)).collect()
    }

    #[test]
    fn one_terminal_has_the_whole_rate_and_keeps_its_order() {
        let offered = [chunk(0, 5, 10), chunk(0, 6, 10), chunk(0, 100, 10)];
        let left = left_ms(&offered, &[]);
        assert_eq!(left, [Some(15), Some(25), Some(110)]);
    }

    #[test]
    fn terminals_share_equally_bit_by_bit() {
        // Both have half until the short one is through at 20; the other, 10 of
        // its 30 left then, has all the rate for the rest.
        let offered = [chunk(0, 0, 30), chunk(1, 0, 10)];
        assert_eq!(left_ms(&offered, &[]), [Some(40), Some(20)]);
    }

    #[test]
    fn who_comes_later_does_not_wait_for_the_backlog_of_others() {
        let offered = [chunk(0, 0, 1000), chunk(1, 100, 10)];
        assert_eq!(left_ms(&offered, &[]), [Some(1010), Some(120)]);
    }

    #[test]
    fn a_blocked_terminal_is_not_served_and_others_have_its_part() {
        // Of the first one's 20, 5 have left when it is blocked at 10.
        let offered = [chunk(0, 0, 20), chunk(1, 0, 20)];
        let left = left_ms(&offered, &[blocked(0, 10, 100)]);
        assert_eq!(left, [Some(115), Some(25)]);
    }

    #[test]
    fn what_was_offered_in_a_blockage_shares_from_its_end() {
        let offered = [chunk(0, 20, 10), chunk(0, 30, 10), chunk(1, 100, 100)];
        let left = left_ms(&offered, &[blocked(0, 10, 100)]);
        assert_eq!(left, [Some(120), Some(140), Some(220)]);
    }

    #[test]
    fn a_blockage_without_an_end_keeps_its_chunks() {
        let offered = [chunk(0, 20, 10), chunk(1, 20, 10)];
        let left = left_ms(&offered, &[blocked(0, 10, u64::MAX)]);
        assert_eq!(left, [None, Some(30)]);
    }

    #[test]
    fn blockages_in_turn_and_idle_ones_change_nothing_else() {
        let offered = [chunk(0, 0, 30), chunk(2, 200, 5)];
        let times = [blocked(0, 10, 20), blocked(0, 20, 40), blocked(1, 0, 500)];
        assert_eq!(left_ms(&offered, &times), [Some(60), Some(205)]);
    }

    #[test]
    fn nothing_is_lost_and_the_rate_is_kept_to() {
        let mut offered = Vec::new();
        let mut random = fastrand::Rng::with_seed(7);
        for at_ms in 0..2_000 {
            offered.push(chunk(random.usize(0..3), at_ms, random.u64(1..4)));
        }
        let times = [blocked(0, 300, 900), blocked(2, 500, 1_000)];
        let left = departures(RATE, 3, &offered, &times);
        let last = left.iter().map(|at| at.expect("it leaves")).max();
        let bytes: u64 = offered.iter().map(|chunk| chunk.bytes).sum();
        assert!(last >= Some(bytes * MS - 1), "{last:?} for {bytes} bytes");
        for (chunk, at) in offered.iter().zip(&left) {
            let alone = chunk.at_ns + chunk.bytes * MS;
            assert!(*at >= Some(alone - 1), "{chunk:?}");
        }
        for terminal in 0..3 {
            let own = offered.iter().zip(&left);
            let own: Vec<_> = own.filter(|(c, _)| c.terminal == terminal).collect();
            assert!(own.is_sorted_by_key(|(_, at)| **at));
        }
    }
}
