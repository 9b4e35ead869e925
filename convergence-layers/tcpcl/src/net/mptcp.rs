//! Multipath TCP (RFC 8684) as Linux has it: one connection over several subflows, each a TCP
//! connection with its own figures.

use std::io;
use std::mem;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use socket2::SockRef;
use underpass_cla::PathFigures;

use super::socket::get;
use super::tcp_info::{TcpInfo, unacknowledged_bytes, unsent_bytes};

/// The level of MPTCP's own options (linux/socket.h).
const SOL_MPTCP: libc::c_int = 284;
/// The `struct tcp_info` of each subflow (linux/mptcp.h).
const MPTCP_TCPINFO: libc::c_int = 2;
/// The kernel's own path manager makes eight subflows beside the first at most
/// (MPTCP_PM_ADDR_MAX).
const MOST_SUBFLOWS: usize = 9;

/// `struct mptcp_subflow_data` of linux/mptcp.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct SubflowData {
    size_subflow_data: u32,
    num_subflows: u32,
    size_kernel: u32,
    size_user: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Answer {
    data: SubflowData,
    subflows: [TcpInfo; MOST_SUBFLOWS],
}

/// Whether a socket is an MPTCP socket. One accepted from a peer without MPTCP is plain TCP; a
/// dialled one stays an MPTCP socket and falls back to TCP internally.
pub(super) fn is_mptcp(fd: BorrowedFd<'_>) -> bool {
    SockRef::from(&fd)
        .protocol()
        .is_ok_and(|protocol| protocol == Some(socket2::Protocol::MPTCP))
}

/// The subflows of a connection.
///
/// # Errors
/// `EOPNOTSUPP` where it is plain TCP, or has fallen back to it.
pub(super) fn subflows(fd: BorrowedFd<'_>) -> io::Result<Vec<TcpInfo>> {
    let mut answer = Answer::default();
    answer.data.size_subflow_data = mem::size_of::<SubflowData>() as u32;
    answer.data.size_user = mem::size_of::<TcpInfo>() as u32;
    let answer = get(fd, SOL_MPTCP, MPTCP_TCPINFO, answer)?;
    let count = usize::try_from(answer.data.num_subflows).unwrap_or(MOST_SUBFLOWS);
    Ok(answer.subflows[..count.min(MOST_SUBFLOWS)].to_vec())
}

/// The figures of a connection from those of its subflows.
#[derive(Debug, Default)]
pub(super) struct Subflows {
    sent_bytes: Total,
    retransmitted_bytes: Total,
    delivered_bytes: Total,
    received_bytes: Total,
    segments_sent: Total,
    data_segments_sent: Total,
    out_of_order_segments: Total,
}

/// A count over all subflows, including ended ones: the kernel reports only the present ones.
#[derive(Debug, Default)]
struct Total {
    gone: u64,
    last: u64,
}

impl Total {
    /// The total, given the count of the present subflows.
    fn with(&mut self, there: u64) -> u64 {
        self.gone += self.last.saturating_sub(there);
        self.last = there;
        self.gone + there
    }
}

impl Subflows {
    pub(super) fn figures(&mut self, fd: BorrowedFd<'_>, subflows: &[TcpInfo]) -> PathFigures {
        let each: Vec<PathFigures> = subflows.iter().map(|info| info.figures()).collect();
        let mut figures = self.sum(&each);
        figures.in_flight_bytes = unacknowledged_bytes(fd).unwrap_or(0);
        figures.unsent_bytes = unsent_bytes(fd).unwrap_or(0);
        figures
    }

    fn sum(&mut self, each: &[PathFigures]) -> PathFigures {
        let sum = |figure: fn(&PathFigures) -> u64| each.iter().map(figure).sum::<u64>();
        let known = || each.iter().filter(|of| !of.min_rtt.is_zero());
        // The base round trip is that of the quickest subflow, and the queue is the longest one of
        // any subflow: longer base round trips of others are no queue.
        let min_rtt = known().map(|of| of.min_rtt).min().unwrap_or_default();
        let queue = known().map(|of| of.rtt.saturating_sub(of.min_rtt)).max();
        PathFigures {
            rtt: min_rtt + queue.unwrap_or(Duration::ZERO),
            min_rtt,
            delivery_rate_bps: sum(|of| of.delivery_rate_bps),
            cwnd_bytes: sum(|of| of.cwnd_bytes),
            on_their_way_bytes: sum(|of| of.on_their_way_bytes),
            lost_bytes: sum(|of| of.lost_bytes),
            sent_bytes: self.sent_bytes.with(sum(|of| of.sent_bytes)),
            retransmitted_bytes: (self.retransmitted_bytes).with(sum(|of| of.retransmitted_bytes)),
            delivered_bytes: self.delivered_bytes.with(sum(|of| of.delivered_bytes)),
            received_bytes: self.received_bytes.with(sum(|of| of.received_bytes)),
            segments_sent: self.segments_sent.with(sum(|of| of.segments_sent)),
            data_segments_sent: self
                .data_segments_sent
                .with(sum(|of| of.data_segments_sent)),
            out_of_order_segments: (self.out_of_order_segments)
                .with(sum(|of| of.out_of_order_segments)),
            segment_bytes: each.iter().map(|of| of.segment_bytes).max().unwrap_or(0),
            heard_ago: each.iter().filter_map(|of| of.heard_ago).min(),
            subflows: Some(u32::try_from(each.len()).unwrap_or(u32::MAX)),
            ..PathFigures::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subflow(min_rtt_ms: u64, rtt_ms: u64, sent_bytes: u64) -> PathFigures {
        PathFigures {
            min_rtt: Duration::from_millis(min_rtt_ms),
            rtt: Duration::from_millis(rtt_ms),
            sent_bytes,
            ..PathFigures::default()
        }
    }

    #[test]
    fn the_long_way_of_one_subflow_is_no_queue() {
        let figures = Subflows::default().sum(&[subflow(30, 35, 0), subflow(600, 620, 0)]);
        assert_eq!(figures.min_rtt, Duration::from_millis(30));
        assert_eq!(figures.rtt, Duration::from_millis(50));
        assert_eq!(figures.subflows, Some(2));
        // A subflow that is being set up has no round trip yet.
        let figures = Subflows::default().sum(&[subflow(30, 35, 0), subflow(0, 0, 0)]);
        assert_eq!(figures.min_rtt, Duration::from_millis(30));
    }

    #[test]
    fn counts_keep_what_a_subflow_had_that_is_gone() {
        let mut subflows = Subflows::default();
        let both = [subflow(30, 30, 700), subflow(600, 600, 300)];
        assert_eq!(subflows.sum(&both).sent_bytes, 1_000);
        assert_eq!(subflows.sum(&both[1..]).sent_bytes, 1_000);
        assert_eq!(subflows.sum(&[subflow(600, 600, 500)]).sent_bytes, 1_200);
        assert_eq!(subflows.sum(&[]).sent_bytes, 1_200);
    }
}
