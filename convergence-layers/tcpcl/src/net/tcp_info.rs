//! What the kernel knows of a connection.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use underpass_cla::PathFigures;

use super::socket::get;

/// `struct tcp_info` of linux/tcp.h up to `tcpi_rcv_ooopack` (Linux 5.4).
/// The kernel fills as much of it as it knows.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TcpInfo {
    state: u8,
    ca_state: u8,
    retransmits: u8,
    probes: u8,
    backoff: u8,
    options: u8,
    window_scales: u8,
    delivery_rate_flags: u8,
    rto_us: u32,
    ato_us: u32,
    snd_mss: u32,
    rcv_mss: u32,
    unacked: u32,
    sacked: u32,
    lost: u32,
    retrans: u32,
    fackets: u32,
    last_data_sent: u32,
    last_ack_sent: u32,
    last_data_recv: u32,
    last_ack_recv: u32,
    pmtu: u32,
    rcv_ssthresh: u32,
    rtt_us: u32,
    rttvar_us: u32,
    snd_ssthresh: u32,
    snd_cwnd: u32,
    advmss: u32,
    reordering: u32,
    rcv_rtt_us: u32,
    rcv_space: u32,
    total_retrans: u32,
    pacing_rate: u64,
    max_pacing_rate: u64,
    bytes_acked: u64,
    bytes_received: u64,
    segs_out: u32,
    segs_in: u32,
    notsent_bytes: u32,
    min_rtt_us: u32,
    data_segs_in: u32,
    data_segs_out: u32,
    delivery_rate: u64,
    busy_time: u64,
    rwnd_limited: u64,
    sndbuf_limited: u64,
    delivered: u32,
    delivered_ce: u32,
    bytes_sent: u64,
    bytes_retrans: u64,
    dsack_dups: u32,
    reord_seen: u32,
    rcv_ooopack: u32,
    snd_wnd: u32,
}

const OPTION_TIMESTAMPS: u8 = 1;

impl TcpInfo {
    /// Asks the kernel.
    pub(super) fn of(fd: BorrowedFd<'_>) -> io::Result<Self> {
        get(fd, libc::IPPROTO_TCP, libc::TCP_INFO, Self::default())
    }

    /// Payload of a full segment, bytes, its TCP options left out.
    pub(super) fn mss_bytes(&self) -> u32 {
        self.snd_mss
    }

    /// Whether each segment carries timestamps.
    pub(super) fn has_timestamps(&self) -> bool {
        self.options & OPTION_TIMESTAMPS != 0
    }

    /// Bytes that the peer's TCP has not acknowledged, sent or not.
    fn unacknowledged_bytes(&self) -> u64 {
        let unsent = u64::from(self.notsent_bytes);
        if self.unacked == 0 {
            return unsent;
        }
        // The kernel counts a SYN or FIN as a byte acknowledged.
        let once = self.bytes_sent.saturating_sub(self.bytes_retrans);
        unsent + once.saturating_sub(self.bytes_acked).max(1)
    }

    /// The figures as the node wants them.
    pub(super) fn figures(&self) -> PathFigures {
        let min_rtt = match self.min_rtt_us {
            u32::MAX => 0,
            known => known,
        };
        let mss = u64::from(self.snd_mss);
        let left = self.unacked.saturating_sub(self.sacked + self.lost);
        PathFigures {
            rtt: Duration::from_micros(self.rtt_us.into()),
            min_rtt: Duration::from_micros(min_rtt.into()),
            delivery_rate_bps: self.delivery_rate.saturating_mul(8),
            cwnd_bytes: u64::from(self.snd_cwnd) * u64::from(self.snd_mss),
            in_flight_bytes: self.unacknowledged_bytes(),
            unsent_bytes: self.notsent_bytes.into(),
            sent_bytes: self.bytes_sent,
            retransmitted_bytes: self.bytes_retrans,
            delivered_bytes: self.bytes_acked + u64::from(self.sacked) * mss,
            // RFC 6675's pipe, as the kernel counts it.
            on_their_way_bytes: u64::from(left + self.retrans) * mss,
            lost_bytes: u64::from(self.lost.saturating_sub(self.retrans)) * mss,
            segment_bytes: self.snd_mss,
            segments_sent: self.segs_out.into(),
            data_segments_sent: self.data_segs_out.into(),
            received_bytes: self.bytes_received,
            out_of_order_segments: self.rcv_ooopack.into(),
            heard_ago: Some(Duration::from_millis(
                self.last_data_recv.min(self.last_ack_recv).into(),
            )),
            still: false,
            ..PathFigures::default()
        }
    }
}

/// Bytes that the peer's TCP has not acknowledged, sent or not (SIOCOUTQ, the
/// same number as TIOCOUTQ).
pub(super) fn unacknowledged_bytes(fd: BorrowedFd<'_>) -> io::Result<u64> {
    queued_bytes(fd, libc::TIOCOUTQ)
}

/// Bytes that were not sent (linux/sockios.h: SIOCOUTQNSD).
pub(super) fn unsent_bytes(fd: BorrowedFd<'_>) -> io::Result<u64> {
    const SIOCOUTQNSD: libc::Ioctl = 0x894B;
    queued_bytes(fd, SIOCOUTQNSD)
}

fn queued_bytes(fd: BorrowedFd<'_>, request: libc::Ioctl) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: both requests write one int.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw mut bytes) };
    if result == 0 {
        Ok(u64::try_from(bytes).unwrap_or(0))
    } else {
        Err(io::Error::last_os_error())
    }
}
