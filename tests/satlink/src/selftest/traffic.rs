//! Packets with their time of sending, and the kernel's time of arrival.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, recvmsg, setsockopt,
    sockopt::{RcvBufForce, ReceiveTimestampns},
};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

/// IP bytes of each packet: an IPv4 and a UDP header and the payload.
pub(super) const PACKET_BYTES: usize = 1500;
const PAYLOAD_BYTES: usize = PACKET_BYTES - 28;

/// A packet's time of sending and of arrival, ns.
pub(super) struct Passage {
    pub(super) sent: u64,
    pub(super) arrived: u64,
}

/// Sends packets at a rate, in steps of a millisecond or one packet.
pub(super) fn send(to: SocketAddr, rate_bps: u64, span: Duration) -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(to)?;
    let mut payload = [0; PAYLOAD_BYTES];
    let gap = Duration::from_nanos(PACKET_BYTES as u64 * 8_000_000_000 / rate_bps);
    let begin = Instant::now();
    let mut sent = 0;
    while begin.elapsed() < span {
        while gap * sent <= begin.elapsed() {
            payload[..8]
                .copy_from_slice(&nanos(clock_gettime(ClockId::CLOCK_REALTIME)?).to_be_bytes());
            socket.send(&payload)?;
            sent += 1;
        }
        thread::sleep(gap.max(Duration::from_millis(1)));
    }
    Ok(())
}

/// A socket whose packets the kernel stamps as they arrive, before any wait
/// for the receiving program.
pub(super) fn receiver(port: u16) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(("0.0.0.0", port))?;
    setsockopt(&socket, ReceiveTimestampns, &true)?;
    setsockopt(&socket, RcvBufForce, &(64 << 20))?;
    Ok(socket)
}

/// Receives until nothing has come for `patience`.
pub(super) fn receive(socket: &UdpSocket, patience: Duration) -> io::Result<Vec<Passage>> {
    socket.set_read_timeout(Some(patience))?;
    let mut passages = Vec::new();
    let mut payload = [0; PAYLOAD_BYTES];
    let mut space = nix::cmsg_space!(TimeSpec);
    loop {
        let mut parts = [IoSliceMut::new(&mut payload)];
        let message = match recvmsg::<()>(
            socket.as_raw_fd(),
            &mut parts,
            Some(&mut space),
            MsgFlags::empty(),
        ) {
            Ok(message) => message,
            Err(nix::Error::EAGAIN) => return Ok(passages),
            Err(error) => return Err(error.into()),
        };
        let arrived = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::ScmTimestampns(time) => Some(nanos(time)),
            _ => None,
        });
        let sent = payload
            .first_chunk()
            .map(|bytes| u64::from_be_bytes(*bytes));
        if let (Some(sent), Some(arrived)) = (sent, arrived) {
            passages.push(Passage { sent, arrived });
        }
    }
}

fn nanos(time: TimeSpec) -> u64 {
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}
