//! The configuration file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::beam::{CapacityProfile, Interval, LinkProfile, ProfileError, Trace};
use crate::trace::{TraceConfig, TraceError};

/// Most terminals that one beam takes.
pub const MAX_TERMINALS: usize = 1000;

/// Longest time for which work is gathered, µs.
const MAX_GATHER_US: u64 = 10_000;

/// A beam with its devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Path of the control socket.
    pub socket: PathBuf,
    /// Seed of every random pattern.
    #[serde(default)]
    pub seed: u64,
    /// Whether to ask for real-time scheduling, so that other work on the
    /// machine does not make packets late.
    #[serde(default = "yes")]
    pub realtime: bool,
    /// How long work is gathered before it is done, in µs: a packet may be this late at entry and
    /// at exit, which saves processor time.
    #[serde(default = "tenth_of_a_millisecond")]
    pub gather_us: u64,
    /// Record of packets.
    pub pcap: Option<PcapConfig>,
    /// The shared capacity.
    #[serde(default)]
    pub beam: BeamConfig,
    /// The device of the hub.
    pub hub: DeviceConfig,
    /// The terminals.
    #[serde(default, rename = "terminal")]
    pub terminals: Vec<TerminalConfig>,
}

fn tenth_of_a_millisecond() -> u64 {
    100
}

fn yes() -> bool {
    true
}

/// The shared capacity in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BeamConfig {
    /// Hub to terminals.
    pub forward: CapacityProfile,
    /// Terminals to hub.
    #[serde(rename = "return")]
    pub ret: CapacityProfile,
}

/// A TUN device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceConfig {
    /// Network namespace: a name as `ip netns` has it, or a path such as
    /// `/proc/123/ns/net`. The one `satlink` runs in if left out.
    pub netns: Option<String>,
    /// Name of the device, made at start and gone at the end.
    pub device: String,
    /// Its addresses with prefix length.
    #[serde(default)]
    pub addresses: Vec<IpNet>,
    /// Destinations routed through it.
    #[serde(default)]
    pub routes: Vec<IpNet>,
    /// MTU in bytes.
    #[serde(default = "ethernet_mtu")]
    pub mtu: u16,
}

fn ethernet_mtu() -> u16 {
    1500
}

/// A terminal: its device, its links, its blockages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalConfig {
    /// Its name in control and statistics.
    pub name: String,
    /// See [`DeviceConfig::netns`].
    pub netns: Option<String>,
    /// See [`DeviceConfig::device`].
    pub device: String,
    /// See [`DeviceConfig::addresses`].
    #[serde(default)]
    pub addresses: Vec<IpNet>,
    /// See [`DeviceConfig::routes`].
    #[serde(default)]
    pub routes: Vec<IpNet>,
    /// See [`DeviceConfig::mtu`].
    #[serde(default = "ethernet_mtu")]
    pub mtu: u16,
    /// Networks behind the terminal besides its own addresses: packets from
    /// the hub to these go to this terminal, by the longest prefix.
    #[serde(default)]
    pub prefixes: Vec<IpNet>,
    /// Hub to terminal.
    #[serde(default)]
    pub forward: LinkProfile,
    /// Terminal to hub.
    #[serde(default, rename = "return")]
    pub ret: LinkProfile,
    /// Blockages relative to the epoch.
    #[serde(default, rename = "blockage")]
    pub blockages: Vec<BlockageConfig>,
    /// File of a trace that its links follow from the epoch on.
    pub trace: Option<PathBuf>,
}

/// A blockage relative to the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockageConfig {
    /// When it begins, in s after the epoch.
    pub start_s: f64,
    /// How long it lasts, in s.
    pub duration_s: f64,
}

/// A record of packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PcapConfig {
    /// File to write; an existing one is replaced.
    pub file: PathBuf,
    /// Where on their way packets are recorded.
    #[serde(default)]
    pub at: PcapPoint,
    /// Bytes kept of each packet.
    #[serde(default = "headers")]
    pub snap_bytes: u32,
}

fn headers() -> u32 {
    128
}

/// Where packets are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PcapPoint {
    /// As they come in, dropped ones included.
    #[default]
    Entry,
    /// As they come out.
    Exit,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ConfigError {
    #[error("{path}: {source}")]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    /// It is not the TOML wanted; the message has line and key.
    #[error("{path}: {source}")]
    Parse {
        path: PathBuf,
        source: Box<toml::de::Error>,
    },
    /// A link has a value that cannot be.
    #[error("{place}: {source}")]
    Profile { place: String, source: ProfileError },
    /// A terminal's trace cannot be used.
    #[error("{place}: {source}")]
    Trace { place: String, source: TraceError },
    /// Something else is wrong.
    #[error("{place}: {problem}")]
    Invalid {
        /// The table or key.
        place: String,
        problem: String,
    },
}

impl Config {
    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        let config: Config = toml::from_str(&text).map_err(|source| ConfigError::Parse {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
        config.validate()?;
        Ok(config)
    }

    /// Checks what the types cannot.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.terminals.is_empty() || self.terminals.len() > MAX_TERMINALS {
            let problem = format!("from 1 to {MAX_TERMINALS} are wanted");
            return Err(invalid("[[terminal]]", problem));
        }
        if self.gather_us > MAX_GATHER_US {
            let problem = format!("{} is above {MAX_GATHER_US}", self.gather_us);
            return Err(invalid("gather_us", problem));
        }
        for (table, capacity) in [
            ("beam.forward", &self.beam.forward),
            ("beam.return", &self.beam.ret),
        ] {
            capacity.validate().map_err(in_table(table))?;
        }
        check_device("hub", &self.hub)?;
        let mut names = BTreeMap::new();
        let mut prefixes = BTreeMap::new();
        for terminal in &self.terminals {
            terminal.validate()?;
            let place = format!("terminal {:?}", terminal.name);
            if names.insert(&terminal.name, ()).is_some() {
                return Err(invalid(place, "name: used twice".into()));
            }
            for prefix in terminal.reached_by() {
                if let Some(other) = prefixes.insert(prefix, &terminal.name) {
                    let problem = format!("prefixes: {prefix} also belongs to {other:?}");
                    return Err(invalid(place, problem));
                }
            }
        }
        Ok(())
    }
}

impl TerminalConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        let place = format!("terminal {:?}", self.name);
        if self.name.is_empty() {
            return Err(invalid(place, "name: empty".into()));
        }
        check_device(&place, &self.device_config())?;
        self.forward
            .validate()
            .map_err(in_table(format!("{place}, forward")))?;
        self.ret
            .validate()
            .map_err(in_table(format!("{place}, return")))?;
        if self.trace.is_some() && !self.blockages.is_empty() {
            let problem = "blockage: a trace has blockages of its own".into();
            return Err(invalid(place, problem));
        }
        self.load_trace().map_err(|source| ConfigError::Trace {
            place: place.clone(),
            source,
        })?;
        for blockage in &self.blockages {
            blockage
                .interval()
                .map_err(|problem| invalid(format!("{place}, blockage"), problem))?;
        }
        Ok(())
    }

    /// Reads the trace that it follows.
    pub fn load_trace(&self) -> Result<Option<Trace>, TraceError> {
        let load = |path: &PathBuf| TraceConfig::load(path)?.trace();
        self.trace.as_ref().map(load).transpose()
    }

    /// Destinations that the beam directs to this terminal.
    pub fn reached_by(&self) -> impl Iterator<Item = IpNet> + '_ {
        let own = self.addresses.iter().map(|net| IpNet::from(net.addr()));
        own.chain(self.prefixes.iter().map(IpNet::trunc))
    }

    /// Its device alone.
    pub fn device_config(&self) -> DeviceConfig {
        DeviceConfig {
            netns: self.netns.clone(),
            device: self.device.clone(),
            addresses: self.addresses.clone(),
            routes: self.routes.clone(),
            mtu: self.mtu,
        }
    }
}

impl BlockageConfig {
    /// The same in nanoseconds, or what is wrong with it.
    pub fn interval(&self) -> Result<Interval, String> {
        Ok(Interval {
            start: nanos_from_seconds("start_s", self.start_s)?,
            duration: nanos_from_seconds("duration_s", self.duration_s)?,
        })
    }
}

/// Seconds as nanoseconds, or what is wrong with the value of `key`.
pub fn nanos_from_seconds(key: &str, seconds: f64) -> Result<u64, String> {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .and_then(|duration| u64::try_from(duration.as_nanos()).ok())
        .ok_or_else(|| format!("{key}: {seconds} is not a time in s from 0 up"))
}

fn check_device(place: &str, config: &DeviceConfig) -> Result<(), ConfigError> {
    let DeviceConfig { device, mtu, .. } = config;
    // The kernel takes names of up to IFNAMSIZ - 1 bytes.
    if device.is_empty()
        || device.len() >= libc::IFNAMSIZ
        || !device
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b'%')
    {
        let problem = format!("device: {device:?} is not a device name of 1 to 15 characters");
        return Err(invalid(place, problem));
    }
    if *mtu < 576 {
        return Err(invalid(place, format!("mtu: {mtu} is below 576")));
    }
    let ipv4 = config
        .addresses
        .iter()
        .filter(|address| matches!(address, IpNet::V4(_)));
    if ipv4.count() > 1 {
        let problem = "addresses: only one IPv4 address is supported".into();
        return Err(invalid(place, problem));
    }
    Ok(())
}

fn in_table(place: impl Into<String>) -> impl FnOnce(ProfileError) -> ConfigError {
    let place = place.into();
    move |source| ConfigError::Profile { place, source }
}

fn invalid(place: impl Into<String>, problem: String) -> ConfigError {
    ConfigError::Invalid {
        place: place.into(),
        problem,
    }
}
