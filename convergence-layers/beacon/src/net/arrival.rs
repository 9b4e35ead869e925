//! The kernel's time of a datagram's arrival: a busy node reads it later.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant, SystemTime};

use nix::cmsg_space;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg};
use nix::sys::time::TimeSpec;
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// A datagram waits no longer than this.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// How far a clock slewed by 500 ppm moves in 8 s, the longest time between two beacons. A clock
/// that has moved further was set.
const SLEWED: Duration = Duration::from_millis(4);

/// Converts the kernel's time stamps, which use the real-time clock, to instants.
pub(super) struct Arrivals {
    begun: Instant,
    /// The real-time clock's lead over `begun` at the last datagram.
    lead: Option<Duration>,
}

impl Arrivals {
    pub(super) fn new() -> Arrivals {
        Arrivals {
            begun: Instant::now(),
            lead: None,
        }
    }

    /// The next datagram's length, its sender, and when it arrived.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; otherwise those of `recvmsg`.
    pub(super) fn receive(
        &mut self,
        socket: &UdpSocket,
        buffer: &mut [u8],
    ) -> io::Result<(usize, SocketAddr, Instant)> {
        let (length, from, stamp) = socket.try_io(Interest::READABLE, || {
            let mut data = [IoSliceMut::new(buffer)];
            let mut control = cmsg_space!(TimeSpec);
            let fd = socket.as_raw_fd();
            let flags = MsgFlags::empty();
            let received = recvmsg::<SockaddrStorage>(fd, &mut data, Some(&mut control), flags)?;
            let stamp = received.cmsgs()?.find_map(|message| match message {
                ControlMessageOwned::ScmTimestampns(stamp) => Some(Duration::from(stamp)),
                _ => None,
            });
            let from = received.address.and_then(address);
            let from = from.ok_or(io::ErrorKind::InvalidData)?;
            Ok((received.bytes, from, stamp))
        })?;
        let clock = SystemTime::UNIX_EPOCH.elapsed().ok();
        Ok((length, from, self.moment(Instant::now(), clock, stamp)))
    }

    /// The instant of a time stamp that is read at `now`, when the clock shows `clock`. If the
    /// clock may have been set since, the stamp does not count, and this returns `now`.
    fn moment(
        &mut self,
        now: Instant,
        clock: Option<Duration>,
        stamp: Option<Duration>,
    ) -> Instant {
        let lead = clock.and_then(|clock| clock.checked_sub(now - self.begun));
        let before = std::mem::replace(&mut self.lead, lead);
        let waited = clock
            .zip(stamp)
            .and_then(|(clock, stamp)| clock.checked_sub(stamp))
            .filter(|waited| *waited <= LONGEST_WAIT);
        let steady = lead
            .zip(before)
            .is_some_and(|(lead, before)| lead.abs_diff(before) <= SLEWED);
        let waited = waited.filter(|_| steady).unwrap_or_default();
        now.checked_sub(waited).unwrap_or(now)
    }
}

fn address(from: SockaddrStorage) -> Option<SocketAddr> {
    let v4 = from.as_sockaddr_in().map(|&v4| SocketAddr::from(v4));
    v4.or_else(|| from.as_sockaddr_in6().map(|&v6| SocketAddr::from(v6)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_stamp_counts_unless_the_clock_has_been_set_since() {
        let mut arrivals = Arrivals::new();
        let start = arrivals.begun;
        let clock = Duration::from_secs(1_800_000_000);
        let mut late = |at: Duration, clock: Duration, waited: Duration| {
            let now = start + at;
            let stamp = clock.checked_sub(waited);
            now - arrivals.moment(now, Some(clock), stamp)
        };
        // Nothing is known of the clock at first.
        assert_eq!(late(MS, clock + MS, 300 * MS), Duration::ZERO);
        assert_eq!(late(200 * MS, clock + 200 * MS, 150 * MS), 150 * MS);
        // Slewed a little; then set, ahead and back; then steady again.
        assert_eq!(late(400 * MS, clock + 401 * MS, 100 * MS), 100 * MS);
        assert_eq!(late(600 * MS, clock + 1_100 * MS, 500 * MS), Duration::ZERO);
        assert_eq!(late(800 * MS, clock + 800 * MS, 100 * MS), Duration::ZERO);
        assert_eq!(late(900 * MS, clock + 900 * MS, 100 * MS), 100 * MS);
        // The arrival is older than a datagram can be.
        assert_eq!(late(950 * MS, clock + 950 * MS, 5_000 * MS), Duration::ZERO);
        assert_eq!(
            arrivals.moment(start + 960 * MS, None, None),
            start + 960 * MS
        );
    }
}
