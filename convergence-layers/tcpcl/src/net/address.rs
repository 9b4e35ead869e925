//! The address that a session is sent from, which may go away under it.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use tokio::time::sleep;

/// How often it is looked for.
const EVERY: Duration = Duration::from_secs(1);
/// How often in a row it has to be missing: it may come back with a new lease.
const MISSING: u32 = 3;

/// Waits until this machine has been without an address for some seconds. TCP would go on sending
/// from it without an answer, while beacons from the next address show that the link works: the
/// session would stall for the hold time.
pub(super) async fn gone(local: SocketAddr) -> String {
    let mut missing = 0;
    while missing < MISSING {
        sleep(EVERY).await;
        missing = if is_here(local) { 0 } else { missing + 1 };
    }
    format!("this machine has the address {} no longer", local.ip())
}

/// Whether a socket can be bound there; other errors say nothing about the address.
fn is_here(mut local: SocketAddr) -> bool {
    local.set_port(0);
    let bound = UdpSocket::bind(local);
    !bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_address_that_is_not_this_machines_is_gone_and_its_own_is_not() {
        let never = "192.0.2.1:4556".parse().unwrap();
        assert!(gone(never).await.contains("192.0.2.1"));
        let own = "127.0.0.1:4556".parse().unwrap();
        let waits = tokio::time::timeout(Duration::from_secs(60), gone(own));
        assert!(waits.await.is_err());
    }
}
