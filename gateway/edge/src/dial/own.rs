//! The addresses of this host.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;

/// How long a look at the interfaces holds.
const FRESH: Duration = Duration::from_secs(1);

type Look = fn() -> HashSet<IpAddr>;

/// The addresses of this host's interfaces, as of a moment ago.
#[derive(Clone, Debug)]
pub(super) struct OwnAddresses {
    look: Look,
    seen: Arc<Mutex<Option<Seen>>>,
}

#[derive(Debug)]
struct Seen {
    at: Instant,
    addresses: HashSet<IpAddr>,
}

impl OwnAddresses {
    /// Those of the system's interfaces.
    pub fn of_system() -> OwnAddresses {
        OwnAddresses::told_by(of_interfaces)
    }

    /// Those that `look` returns.
    pub fn told_by(look: Look) -> OwnAddresses {
        OwnAddresses {
            look,
            seen: Arc::default(),
        }
    }

    /// Whether `address` is one of them.
    pub fn contain(&self, address: IpAddr) -> bool {
        let mut seen = self.seen.lock().unwrap();
        let last = seen.take().filter(|seen| seen.at.elapsed() < FRESH);
        let now = last.unwrap_or_else(|| Seen {
            at: Instant::now(),
            addresses: (self.look)(),
        });
        seen.insert(now).addresses.contains(&address)
    }
}

fn of_interfaces() -> HashSet<IpAddr> {
    let interfaces = getifaddrs().into_iter().flatten();
    let addresses = interfaces.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| v4.ip().into());
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| v6.ip().into()))
    });
    addresses.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_own_addresses_are_seen_and_others_are_not() {
        let own = OwnAddresses::of_system();
        assert!(own.contain("127.0.0.1".parse().unwrap()));
        assert!(!own.contain("192.0.2.1".parse().unwrap()));
    }
}
