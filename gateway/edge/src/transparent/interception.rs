//! Interception as the node uses it.

use std::collections::{BTreeMap, HashMap};
use std::io;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::nft::{self, Owner};
use super::routing;
use super::ruleset::{Beyond, Ruleset, hop_counter};
use crate::config::{Fail, InterceptionConfig};
use crate::dial::Families;
use crate::switch::Switch;

/// Why interception cannot be set up or changed.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum InterceptionError {
    #[error("interception.name {0:?} must be 1 to 32 letters, digits or underscores")]
    Name(String),
    #[error("interception.interfaces: {0:?} is no interface name")]
    Interface(String),
    /// A mark or table of zero, which would mean every packet.
    #[error("interception.mark and interception.routing_table must not be 0")]
    Zero,
    #[error("cannot {what}: {source}")]
    System {
        what: &'static str,
        source: io::Error,
    },
}

/// Bytes of clients' traffic that was routed as plain IP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlainBytes {
    /// From clients.
    pub up: u64,
    /// To clients.
    pub down: u64,
    /// Bytes to the networks of each hop, by its number; none for a hop without networks.
    pub to_hops: BTreeMap<u64, Option<u64>>,
}

impl PlainBytes {
    /// Bytes that this node has routed over the hop of this number; none if not known.
    pub fn to_hop(&self, number: u64) -> Option<u64> {
        match *self.to_hops.get(&number)? {
            // With a single hop, all of it went there.
            None if self.to_hops.len() == 1 => Some(self.up),
            counted => counted,
        }
    }
}

/// The rules of a running node. They are removed when this is dropped, and
/// when the process dies in any other way. All calls block for some
/// milliseconds.
pub struct Interception {
    config: InterceptionConfig,
    port: Option<u16>,
    hops: BTreeMap<u64, Beyond>,
    table: String,
    owner: Owner,
    revision: u64,
}

impl Interception {
    /// Installs the rules after removing those that a former run of the same name has left. `port`
    /// is the transparent listener's; without one, only the answers of origins to sockets with a
    /// client's address are diverted (`origin_source = "client"`). The far end reaches `families`;
    /// connections of other families are rejected at once. Traffic that is routed to the networks
    /// of each of `hops` is counted.
    ///
    /// # Errors
    /// When the configuration is not sound, or nft or ip fail: both programs
    /// and CAP_NET_ADMIN are needed.
    pub fn install(
        config: InterceptionConfig,
        port: Option<u16>,
        switch: &Switch,
        families: Families,
        hops: BTreeMap<u64, Beyond>,
    ) -> Result<Interception, InterceptionError> {
        validate(&config)?;
        let table = format!("underpass_{}", config.name);
        let rules = Ruleset {
            config: &config,
            port,
            switch,
            families,
            hops: &hops,
        };
        let line = rules.table(&table, "flags owner;", 0);
        // nft reports no errors in the owner's input, so the rules are checked here.
        nft::check(&rules.table(&format!("{table}_check"), "", 0))
            .map_err(system("check the interception rules"))?;
        clear(&config, &table);
        let closed = format!("{table}_closed");
        if config.fail == Fail::Closed {
            nft::run(&rules.closed_table(&closed)).map_err(system("install the closed rules"))?;
        }
        for six in [false, true] {
            if serves(&config, port, six) {
                routing::install(&config, six).map_err(system("install the routing rule"))?;
            }
        }
        let mut owner = Owner::start().map_err(system("install the interception rules"))?;
        owner
            .run(&line, &table, "revision_0")
            .map_err(system("install the interception rules"))?;
        Ok(Interception {
            config,
            port,
            hops,
            table,
            owner,
            revision: 0,
        })
    }

    /// Changes what is taken in, and the families that the far end reaches, in one transaction.
    /// Open connections continue.
    ///
    /// # Errors
    /// When nft refuses; the rules in force then stay.
    pub fn set(&mut self, switch: &Switch, families: Families) -> Result<(), InterceptionError> {
        let hops = self.hops.clone();
        self.set_with_hops(switch, families, hops)
    }

    /// As [`Interception::set`], with other hops. Hops that keep their places keep their counters.
    ///
    /// # Errors
    /// When nft refuses; the rules in force then stay.
    pub fn set_with_hops(
        &mut self,
        switch: &Switch,
        families: Families,
        hops: BTreeMap<u64, Beyond>,
    ) -> Result<(), InterceptionError> {
        let rules = Ruleset {
            config: &self.config,
            port: self.port,
            switch,
            families,
            hops: &hops,
        };
        let (table, old, new) = (&self.table, self.revision, self.revision + 1);
        nft::check(&rules.table(&format!("{table}_check"), "", new))
            .map_err(system("check the interception rules"))?;
        let line = format!(
            "flush table inet {table}; delete chain inet {table} revision_{old}; {}",
            rules.table(table, "flags owner;", new)
        );
        self.owner
            .run(&line, table, &format!("revision_{new}"))
            .map_err(system("change the interception rules"))?;
        let closed = format!("{table}_closed");
        let rules_closed = rules.closed_table(&closed);
        self.revision = new;
        self.hops = hops;
        if self.config.fail == Fail::Closed {
            let text = format!("flush table inet {closed}; {rules_closed}");
            nft::run(&text).map_err(system("change the closed rules"))?;
        }
        Ok(())
    }

    /// Whether the rules are still in force.
    pub fn is_in_force(&mut self) -> bool {
        self.owner.lives()
    }

    /// Bytes of clients' traffic that was routed as plain IP since the rules
    /// were installed.
    ///
    /// # Errors
    /// When nft fails.
    pub fn plain_ip_bytes(&self) -> Result<PlainBytes, InterceptionError> {
        // All at once: a hub may have hundreds.
        let text = nft::query(&["list", "counters", "table", "inet", &self.table])
            .map_err(system("read the counters"))?;
        let counts = byte_counts(&text);
        let count = |name: &str| {
            let count = counts.get(name).copied();
            count
                .ok_or_else(|| io::Error::other(format!("no byte count of {name}")))
                .map_err(system("read the counters"))
        };
        let hops = self.hops.iter();
        Ok(PlainBytes {
            up: count("plain_up")?,
            down: count("plain_down")?,
            to_hops: hops
                .map(|(number, hop)| {
                    let counted = !hop.networks.is_empty();
                    let bytes = counted.then(|| count(&hop_counter(*number)));
                    Ok((*number, bytes.transpose()?))
                })
                .collect::<Result<_, _>>()?,
        })
    }
}

impl Drop for Interception {
    fn drop(&mut self) {
        // The owner's end, right after this, removes the table.
        for six in [false, true] {
            routing::remove(&self.config, six);
        }
        if self.config.fail == Fail::Closed {
            delete(&format!("{}_closed", self.table));
        }
    }
}

fn validate(config: &InterceptionConfig) -> Result<(), InterceptionError> {
    let word = |text: &str, most: usize, more: &[u8]| {
        !text.is_empty()
            && text.len() <= most
            && text
                .bytes()
                .all(|octet| octet.is_ascii_alphanumeric() || more.contains(&octet))
    };
    if !word(&config.name, 32, b"_") {
        return Err(InterceptionError::Name(config.name.clone()));
    }
    // The names become part of nft's input.
    if let Some(wrong) = config.interfaces.iter().find(|i| !word(i, 15, b"_-.@:")) {
        return Err(InterceptionError::Interface(wrong.clone()));
    }
    if config.mark == 0 || config.routing_table == 0 {
        return Err(InterceptionError::Zero);
    }
    Ok(())
}

fn serves(config: &InterceptionConfig, port: Option<u16>, six: bool) -> bool {
    let mut networks = config.client_networks.iter();
    port.is_none() || networks.any(|net| net.addr().is_ipv6() == six)
}

/// Removes what a former run has left.
fn clear(config: &InterceptionConfig, table: &str) {
    delete(table);
    delete(&format!("{table}_closed"));
    for six in [false, true] {
        routing::remove(config, six);
    }
}

fn delete(table: &str) {
    // Mostly it is not there, which is what is wanted.
    let _ = nft::query(&["delete", "table", "inet", table]);
}

fn system(what: &'static str) -> impl Fn(io::Error) -> InterceptionError {
    move |source| InterceptionError::System { what, source }
}

/// The counts of "counter NAME { packets 5 bytes 300 }", by name.
fn byte_counts(text: &str) -> HashMap<&str, u64> {
    let mut counts = HashMap::new();
    let mut words = text.split_whitespace();
    let mut name = "";
    while let Some(word) = words.next() {
        match word {
            "counter" => name = words.next().unwrap_or_default(),
            "bytes" => {
                let count = words.next().and_then(|count| count.parse().ok());
                counts.extend(count.map(|count| (name, count)));
            }
            _ => {}
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_hop_without_networks_has_all_that_clients_send() {
        let to_hop = |to_hops: &[Option<u64>], number| {
            let (up, down) = (7, 9);
            let to_hops = (0..).zip(to_hops.iter().copied()).collect();
            PlainBytes { up, down, to_hops }.to_hop(number)
        };
        assert_eq!(to_hop(&[None], 0), Some(7));
        assert_eq!(to_hop(&[Some(3)], 0), Some(3));
        assert_eq!(to_hop(&[None, Some(3)], 0), None);
        assert_eq!(to_hop(&[None, Some(3)], 1), Some(3));
        assert_eq!(to_hop(&[], 0), None);
    }

    #[test]
    fn the_counters_of_a_table_are_told_apart() {
        let text = "table inet underpass_node {\n\
                    \tcounter plain_up {\n\t\tpackets 5 bytes 300\n\t}\n\
                    \tcounter plain_to_1 {\n\t\tpackets 0 bytes 0\n\t}\n}\n";
        let wanted = HashMap::from([("plain_up", 300), ("plain_to_1", 0)]);
        assert_eq!(byte_counts(text), wanted);
    }
}
