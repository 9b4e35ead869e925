//! Who may enter.

use std::net::IpAddr;

use ipnet::IpNet;

/// The client networks of a listener.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    networks: Vec<IpNet>,
}

impl Clients {
    /// Clients of `networks`; of none, nobody.
    pub fn new(networks: Vec<IpNet>) -> Clients {
        Clients { networks }
    }

    /// Whether `address` may enter.
    pub fn admit(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|net| net.contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_enters_unless_configured() {
        assert!(!Clients::default().admit("127.0.0.1".parse().unwrap()));
        let clients = Clients::new(vec!["10.0.0.0/8".parse().unwrap()]);
        assert!(clients.admit("10.2.3.4".parse().unwrap()));
        assert!(clients.admit("::ffff:10.2.3.4".parse().unwrap()));
        assert!(!clients.admit("11.2.3.4".parse().unwrap()));
    }
}
