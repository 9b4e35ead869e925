//! TUN devices in network namespaces.

mod interface;
mod namespace;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use crate::config::DeviceConfig;

/// Packets that the kernel keeps for a reader that is late. It is large, since an overflow here
/// would be a drop that the emulation does not intend.
const TX_QUEUE_PACKETS: u32 = 50_000;

/// Why a device cannot be made.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum TunError {
    #[error("network namespace {path}: {source}")]
    Namespace { path: PathBuf, source: io::Error },
    #[error("device {device}: cannot {step}: {source}{}", advice(source))]
    Step {
        device: String,
        step: String,
        source: io::Error,
    },
}

fn advice(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => " (root or CAP_NET_ADMIN and CAP_SYS_ADMIN needed)",
        Some(libc::EBUSY) => " (the name is taken)",
        Some(libc::ENODEV | libc::ENOENT) => " (is the tun module loaded?)",
        _ => "",
    }
}

/// A TUN device; it vanishes when dropped.
#[derive(Debug)]
pub struct Tun {
    file: File,
    counters: File,
    name: String,
}

impl Tun {
    /// Makes a device in its namespace, up, with its addresses and routes.
    pub fn create(config: &DeviceConfig) -> Result<Self, TunError> {
        namespace::within(config.netns.as_deref(), || Self::create_here(config))?
    }

    fn create_here(config: &DeviceConfig) -> Result<Self, TunError> {
        let failed = |step: &str| {
            let (device, step) = (config.device.clone(), step.to_owned());
            move |source| TunError::Step {
                device,
                step,
                source,
            }
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")
            .map_err(failed("open /dev/net/tun"))?;
        let interface =
            interface::Interface::attach(&file, &config.device).map_err(failed("make it"))?;
        interface
            .set_tx_queue(TX_QUEUE_PACKETS)
            .map_err(failed("set its queue"))?;
        interface
            .set_mtu(config.mtu)
            .map_err(failed("set its MTU"))?;
        interface.set_up().map_err(failed("set it up"))?;
        for address in &config.addresses {
            interface
                .add_address(*address)
                .map_err(failed(&format!("add address {address}")))?;
        }
        for route in &config.routes {
            interface
                .add_route(*route)
                .map_err(failed(&format!("add route {route}")))?;
        }
        // An open file of /proc stays with the namespace it was opened in.
        let counters = File::open("/proc/thread-self/net/dev").map_err(failed("count"))?;
        Ok(Tun {
            file,
            counters,
            name: config.device.clone(),
        })
    }

    /// Reads one packet; `None` when there is none.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match nix::unistd::read(&self.file, buffer) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Hands one packet to the namespace's network stack.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        nix::unistd::write(&self.file, packet)?;
        Ok(())
    }

    /// Packets that the kernel dropped because they were not read in time.
    pub fn dropped(&self) -> io::Result<u64> {
        let mut text = Vec::new();
        let mut part = [0; 4096];
        // The kernel gives whole lines, as many as fit, from an offset on.
        loop {
            let length = self.counters.read_at(&mut part, text.len() as u64)?;
            if length == 0 {
                break;
            }
            text.extend_from_slice(&part[..length]);
        }
        let text = String::from_utf8_lossy(&text);
        Ok(tx_dropped(&text, &self.name).unwrap_or(0))
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for Tun {
    fn as_raw_fd(&self) -> i32 {
        self.file.as_raw_fd()
    }
}

/// The transmit drops of a device in the text of `/proc/net/dev`: the fourth
/// of its transmit columns, after eight for receive.
fn tx_dropped(text: &str, device: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (name, columns) = line.split_once(':')?;
        if name.trim() != device {
            return None;
        }
        columns.split_whitespace().nth(11)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transmit_drops_are_found_by_device() {
        let text = "Inter-|   Receive                            |  Transmit\n \
                    face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop\n\
                    lo: 1 1 0 9 0 0 0 0 1 1 0 0 0 0 0 0\n  sat0: 5 1 0 0 0 0 0 0 7 2 0 42 0 0 0 0\n";
        assert_eq!(tx_dropped(text, "sat0"), Some(42));
        assert_eq!(tx_dropped(text, "sat1"), None);
    }
}
