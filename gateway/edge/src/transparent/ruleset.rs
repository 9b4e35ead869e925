//! The rules, as text for nft(8).

use std::collections::BTreeMap;
use std::fmt::Display;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::config::InterceptionConfig;
use crate::dial::Families;
use crate::switch::Switch;

/// What lies beyond one hop of the node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Beyond {
    /// Networks that are reached by this hop; those of two hops do not
    /// overlap. Without any, the hop has no counter.
    pub networks: Vec<IpNet>,
    /// Whether only packets of the configured clients are counted, in which case the networks may
    /// cover everything.
    pub from_clients: bool,
}

/// Renders the rules of one node.
pub(super) struct Ruleset<'a> {
    pub config: &'a InterceptionConfig,
    /// Port of the transparent listener; without one, only the answers to sockets with a client's
    /// address are diverted.
    pub port: Option<u16>,
    pub switch: &'a Switch,
    /// Address families that the far end reaches; connections of the others
    /// are rejected at once.
    pub families: Families,
    /// The node's hops, each with a counter of the plain IP that is routed to
    /// its networks.
    pub hops: &'a BTreeMap<u64, Beyond>,
}

/// An address family's words in nft, and whether it is IPv6.
const FAMILIES: [(&str, bool); 2] = [("ip", false), ("ip6", true)];

impl Ruleset<'_> {
    /// The whole table, on one line. Its chain `revision_<n>` shows that it is in force.
    pub fn table(&self, table: &str, flags: &str, revision: u64) -> String {
        format!(
            "table inet {table} {{ {flags} \
             counter plain_up {{ }}; counter plain_down {{ }}; {} \
             chain divert {{ type filter hook prerouting priority mangle; policy accept; {} }}; \
             chain forwarded {{ type filter hook forward priority filter; policy accept; {} }}; \
             chain plain {{ type filter hook forward priority filter + 1; policy accept; {} }}; \
             chain revision_{revision} {{ }}; }}",
            self.counters(),
            self.divert(),
            self.forwarded(),
            self.plain(),
        )
    }

    /// The table that rejects what the node would have taken in.
    pub fn closed_table(&self, table: &str) -> String {
        let mut rules = String::new();
        if self.switch.enabled && self.port.is_some() {
            for (family, six) in FAMILIES {
                rules += &self.accept_passed("tcp", family, six);
                if let Some(clients) = self.clients(family, six) {
                    rules += &format!("{clients} {NEW} reject with icmpx admin-prohibited; ");
                }
            }
        }
        format!(
            "table inet {table} {{ \
             chain forwarded {{ type filter hook forward priority filter; policy accept; {rules} }}; }}"
        )
    }

    fn divert(&self) -> String {
        let mark = self.config.mark;
        // First the packets of open sockets, even if diversion is switched off.
        let mut rules =
            format!("meta l4proto tcp socket transparent 1 meta mark set {mark} accept; ");
        let Some(port) = self.port.filter(|_| self.switch.enabled) else {
            return rules;
        };
        // The node's own services, and packets without a single receiver.
        rules += "fib daddr type { local, broadcast, multicast } accept; ";
        for (family, six) in FAMILIES {
            if !self.reached(six) {
                continue;
            }
            rules += &self.accept_passed("tcp", family, six);
            if let Some(clients) = self.clients(family, six) {
                // Only new connections: earlier ones continue to pass.
                rules += &format!(
                    "{clients} {NEW} tproxy {family} to :{port} meta mark set {mark} accept; "
                );
            }
        }
        rules
    }

    fn forwarded(&self) -> String {
        let mut rules = String::new();
        for (family, six) in FAMILIES {
            let Some(clients) = self.clients(family, six) else {
                continue;
            };
            if !self.switch.enabled || self.port.is_none() {
                continue;
            }
            if self.config.reject_quic {
                // Where TCP would not be taken in, QUIC stays allowed.
                rules += &self.accept_passed("udp", family, six);
                rules += &format!("{clients} udp dport 443 reject with icmpx port-unreachable; ");
            }
            if !self.reached(six) {
                rules += &self.accept_passed("tcp", family, six);
                rules += &format!("{clients} {NEW} reject with icmpx no-route; ");
            }
        }
        rules
    }

    /// Counts what passes as plain IP, after the chain that may reject it.
    fn plain(&self) -> String {
        let mut rules = String::new();
        for (family, six) in FAMILIES {
            if let Some(nets) = braces(of_family(&self.config.client_networks, six)) {
                rules += &format!("{family} saddr {nets} counter name plain_up; ");
                rules += &format!("{family} daddr {nets} counter name plain_down; ");
                let sent = self.counter_by_destination(six, true);
                rules += &sent.map_or_else(String::new, |map| {
                    format!("{family} saddr {nets} counter name {family} daddr map {map}; ")
                });
            }
            let sent = self.counter_by_destination(six, false);
            rules += &sent.map_or_else(String::new, |map| {
                format!("counter name {family} daddr map {map}; ")
            });
        }
        rules
    }

    /// Declares the counters of the hops.
    fn counters(&self) -> String {
        let numbered = self.hops.iter();
        numbered
            .filter(|(_, hop)| !hop.networks.is_empty())
            .map(|(number, _)| format!("counter {} {{ }}; ", hop_counter(*number)))
            .collect()
    }

    /// Destination networks with the counters of their hops: one look-up for
    /// a packet, however many hops there are.
    fn counter_by_destination(&self, six: bool, from_clients: bool) -> Option<String> {
        let numbered = self.hops.iter();
        braces(
            numbered
                .filter(|(_, hop)| hop.from_clients == from_clients)
                .flat_map(|(number, hop)| {
                    of_family(&hop.networks, six)
                        .map(move |net| format!("{net} : \"{}\"", hop_counter(*number)))
                }),
        )
    }

    fn reached(&self, six: bool) -> bool {
        if six {
            self.families.ipv6
        } else {
            self.families.ipv4
        }
    }

    /// Matches clients of the family, if there are any.
    fn clients(&self, family: &str, six: bool) -> Option<String> {
        let nets = braces(of_family(&self.config.client_networks, six))?;
        let interfaces = braces(
            self.config
                .interfaces
                .iter()
                .map(|name| format!("\"{name}\"")),
        );
        let interfaces = interfaces.map(|names| format!("iifname {names} "));
        Some(format!(
            "{}{family} saddr {nets}",
            interfaces.unwrap_or_default()
        ))
    }

    /// Accepts what passes as plain IP by configuration or switch, of one
    /// transport protocol, `tcp` or `udp`.
    fn accept_passed(&self, transport: &str, family: &str, six: bool) -> String {
        let mut matches = Vec::new();
        let off = braces(of_family(&self.switch.off_clients, six));
        matches.extend(off.map(|nets| format!("{family} saddr {nets}")));
        for networks in [&self.config.exclude_networks, &self.switch.off_networks] {
            let nets = braces(of_family(networks, six));
            matches.extend(nets.map(|nets| format!("{family} daddr {nets}")));
        }
        for ports in [&self.config.exclude_ports, &self.switch.off_ports] {
            matches.extend(ports.iter().map(|range| format!("th dport {range}")));
        }
        let accept = |matched: String| format!("meta l4proto {transport} {matched} accept; ");
        matches.into_iter().map(accept).collect()
    }
}

/// The counter of what is sent to the hop of this number.
pub(super) fn hop_counter(number: u64) -> String {
    format!("plain_to_{number}")
}

/// The first packet of a connection.
const NEW: &str = "tcp flags & (syn | ack) == syn";

fn is_six(net: &IpNet) -> bool {
    matches!(net, IpNet::V6(_))
}

fn of_family(nets: &[IpNet], six: bool) -> impl Iterator<Item = IpNet> {
    // nft takes no overlapping elements in a set.
    let all: Vec<IpNet> = nets
        .iter()
        .filter(|net| is_six(net) == six)
        .copied()
        .collect();
    IpNet::aggregate(&all).into_iter()
}

fn braces(items: impl Iterator<Item = impl Display>) -> Option<String> {
    let items: Vec<String> = items.map(|item| item.to_string()).collect();
    (!items.is_empty()).then(|| format!("{{ {} }}", items.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules_of(clients: &[&str], hops: &[Beyond]) -> String {
        let config = InterceptionConfig {
            client_networks: nets(clients),
            ..InterceptionConfig::default()
        };
        let rules = Ruleset {
            config: &config,
            port: None,
            switch: &Switch::default(),
            families: Families::BOTH,
            hops: &(0..).zip(hops.iter().cloned()).collect(),
        };
        rules.table("t", "", 0)
    }

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn terminal(networks: &[&str]) -> Beyond {
        Beyond {
            networks: nets(networks),
            from_clients: false,
        }
    }

    #[test]
    fn each_hop_with_networks_has_a_counter_of_what_goes_there() {
        let hops = [
            terminal(&["10.1.0.0/25", "10.1.0.128/25", "fd00:1::/48"]),
            terminal(&[]),
            terminal(&["10.2.0.0/16"]),
        ];
        let text = rules_of(&[], &hops);
        for part in [
            "counter plain_to_0 { };",
            "counter plain_to_2 { };",
            "; counter name ip daddr map { 10.1.0.0/24 : \"plain_to_0\", 10.2.0.0/16 : \"plain_to_2\" };",
            "; counter name ip6 daddr map { fd00:1::/48 : \"plain_to_0\" };",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        assert!(!text.contains("plain_to_1"), "{text}");
    }

    #[test]
    fn a_path_to_everywhere_counts_what_clients_send_and_not_what_they_get() {
        let path = Beyond {
            networks: nets(&["0.0.0.0/0"]),
            from_clients: true,
        };
        let text = rules_of(&["192.168.8.0/24"], &[path]);
        let rule = "ip saddr { 192.168.8.0/24 } \
                    counter name ip daddr map { 0.0.0.0/0 : \"plain_to_0\" };";
        assert!(text.contains(rule), "{text}");
        assert_eq!(text.matches("daddr map").count(), 1, "{text}");
    }

    #[test]
    fn hops_without_networks_leave_the_rules_as_they_are() {
        let text = rules_of(&["192.168.8.0/24"], &[terminal(&[]), terminal(&[])]);
        assert_eq!(text.matches("counter name").count(), 2, "{text}");
        assert!(!text.contains("plain_to"), "{text}");
    }
}
