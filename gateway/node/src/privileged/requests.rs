//! Requests of the node to the helper, and the answers: each is a line of JSON, in turn.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use underpass_edge::Switch;
use underpass_edge::config::InterceptionConfig;
use underpass_edge::dial::Families;
use underpass_edge::transparent::{Beyond, PlainBytes};

use super::commands::PathCommands;
use crate::config::LogConfig;
use crate::path_manager::Wanted;

/// The longest message, bytes: a hub may have some thousands of networks.
const LONGEST: u64 = 4 << 20;

/// What the helper is for; the first message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Begin {
    pub log: LogConfig,
    /// Whether it installs interception rules.
    pub intercepts: bool,
    /// Whether it loads congestion controls.
    pub loads: bool,
    /// Whether it sets MPTCP endpoints.
    #[serde(default)]
    pub manages_paths: bool,
    /// The programs that bring paths up and release them, by path.
    #[serde(default)]
    pub commands: BTreeMap<String, PathCommands>,
}

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Starts.
    Begin(Begin),
    /// Makes the first possible congestion control of the list usable.
    Choose(Vec<String>),
    /// Installs the interception rules; once.
    Intercept(Box<Intercept>),
    /// Changes what they take in.
    Switch {
        /// What is switched off.
        switch: Switch,
        /// Address families that the far end reaches.
        families: Families,
    },
    /// Changes the hops whose plain IP they count.
    Hops {
        /// What is switched off.
        switch: Switch,
        /// Address families that the far end reaches.
        families: Families,
        /// What lies beyond each hop, by its number.
        hops: BTreeMap<u64, Beyond>,
    },
    /// Whether they are in force.
    InForce,
    /// What they have counted.
    Count,
    /// Removes them.
    Release,
    /// Sets MPTCP endpoints and limits, which end with the helper.
    ManagePaths(Wanted),
    /// Begins to run the program that brings a path up, or releases it.
    Run {
        /// The path's name.
        path: String,
        /// Whether it is brought up.
        raise: bool,
    },
    /// What has become of it.
    Ran {
        /// The path's name.
        path: String,
    },
}

/// What rules are made of.
#[derive(Debug, Serialize, Deserialize)]
pub struct Intercept {
    pub config: InterceptionConfig,
    /// Port of the transparent listener.
    pub port: Option<u16>,
    /// What is switched off.
    pub switch: Switch,
    /// Address families that the far end reaches.
    pub families: Families,
    /// What lies beyond each hop, by its number.
    pub hops: BTreeMap<u64, Beyond>,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    Done,
    /// It runs.
    Running,
    /// The congestion control, and why those before it cannot be used.
    Choice {
        /// Its name; none where none can be had.
        name: Option<String>,
        /// Names and reasons.
        refused: Vec<(String, String)>,
    },
    /// Whether the rules are in force.
    InForce(bool),
    /// What the rules have counted.
    Count(PlainBytes),
    /// What could not be set, for an operator to read.
    ManagedPaths(Vec<String>),
    /// It cannot be done; for an operator to read.
    Failed(String),
}

pub fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Reads one message; none at the end.
pub fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    from.take(LONGEST).read_until(b'\n', &mut line)?;
    match line.strip_suffix(b"\n") {
        None if line.is_empty() => Ok(None),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
        Some(line) => Ok(Some(serde_json::from_slice(line)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_as_it_was_sent_and_half_of_one_is_none() {
        let request = Request::Switch {
            switch: Switch {
                enabled: false,
                off_clients: vec!["10.0.0.0/8".parse().unwrap()],
                off_networks: vec!["2001:db8::/32".parse().unwrap()],
                off_ports: vec!["5000-5100".parse().unwrap()],
            },
            families: Families::BOTH,
        };
        let mut line = Vec::new();
        send(&mut line, &request).unwrap();
        send(&mut line, &Request::Count).unwrap();
        let mut input = &line[..];
        let read: Request = receive(&mut input).unwrap().unwrap();
        assert_eq!(format!("{read:?}"), format!("{request:?}"));
        assert!(matches!(receive(&mut input), Ok(Some(Request::Count))));
        assert!(matches!(receive::<Request>(&mut input), Ok(None)));
        assert!(receive::<Request>(&mut &b"{\"Choose\""[..]).is_err());
        assert!(receive::<Request>(&mut &b"{\"Run\":\"nft\"}\n"[..]).is_err());
    }
}
