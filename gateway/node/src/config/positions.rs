//! Where this node learns its position.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde::Deserialize;
use underpass_positions::Fix;

/// Rates of a serial line that the system knows, bit/s.
const BAUDS: [u32; 10] = [
    1_200, 2_400, 4_800, 9_600, 19_200, 38_400, 57_600, 115_200, 230_400, 460_800,
];
/// The standard's own.
const BAUD: u32 = 4_800;
const GPSD: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 2947);
const INTERVALS_MS: RangeInclusive<u64> = 100..=3_600_000;
const INTERVAL_MS: u64 = 1_000;
/// A fixed position need not be reported each second.
const FIXED_INTERVAL_MS: u64 = 60_000;

/// `[positions]`: the receiver, and how often a position is reported.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Table")]
pub struct PositionsConfig {
    /// What tells the position.
    pub source: Source,
    /// Between two reports at least.
    pub interval: Duration,
    /// The receiver replays a recorded drive: its times are moved to now.
    pub replay: bool,
}

/// What tells the position.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A gpsd.
    Gpsd {
        /// Where it listens.
        address: SocketAddr,
        /// Which of its receivers; none is any.
        device: Option<String>,
    },
    /// A receiver at a serial line, NMEA 0183.
    Serial {
        /// The line's file.
        device: PathBuf,
        /// Its rate, bit/s.
        baud: u32,
    },
    /// A server of NMEA 0183 over TCP.
    Tcp {
        /// Where it listens.
        address: SocketAddr,
    },
    /// NMEA 0183 in datagrams to this node.
    Udp {
        /// The local address.
        listen: SocketAddr,
        /// Who may send them; none is everybody who reaches `listen`.
        senders: Option<Vec<IpNet>>,
    },
    /// A place that does not change.
    Fixed(Fix),
}

impl Source {
    /// gpsd, nmea or fixed.
    pub fn kind(&self) -> &'static str {
        match self {
            Source::Gpsd { .. } => "gpsd",
            Source::Serial { .. } | Source::Tcp { .. } | Source::Udp { .. } => "nmea",
            Source::Fixed(_) => "fixed",
        }
    }
}

/// Where it is.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Gpsd {
                address,
                device: Some(device),
            } => write!(f, "{address} {device}"),
            Source::Gpsd { address, .. } | Source::Tcp { address } => address.fmt(f),
            Source::Serial { device, .. } => device.display().fmt(f),
            Source::Udp { listen, .. } => write!(f, "udp {listen}"),
            Source::Fixed(_) => f.write_str("configuration"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Gpsd,
    Nmea,
    Fixed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    source: Kind,
    interval_ms: Option<u64>,
    #[serde(default)]
    replay: bool,
    address: Option<SocketAddr>,
    device: Option<PathBuf>,
    baud: Option<u32>,
    listen: Option<SocketAddr>,
    senders: Option<Vec<IpNet>>,
    longitude: Option<f64>,
    latitude: Option<f64>,
    altitude_m: Option<f64>,
}

impl TryFrom<Table> for PositionsConfig {
    type Error = String;

    fn try_from(table: Table) -> Result<PositionsConfig, String> {
        let default = match table.source {
            Kind::Fixed => FIXED_INTERVAL_MS,
            Kind::Gpsd | Kind::Nmea => INTERVAL_MS,
        };
        let interval_ms = table.interval_ms.unwrap_or(default);
        if !INTERVALS_MS.contains(&interval_ms) {
            return Err("interval_ms: must be 100 to 3600000".to_owned());
        }
        table.check_keys()?;
        Ok(PositionsConfig {
            interval: Duration::from_millis(interval_ms),
            replay: table.replay,
            source: table.source()?,
        })
    }
}

impl Table {
    /// A key of another source would have no effect.
    fn check_keys(&self) -> Result<(), String> {
        let (kind, keys): (_, &[&str]) = match self.source {
            Kind::Gpsd => ("gpsd", &["address", "device", "replay"]),
            Kind::Nmea => (
                "nmea",
                &["address", "device", "baud", "listen", "senders", "replay"],
            ),
            Kind::Fixed => ("fixed", &["longitude", "latitude", "altitude_m"]),
        };
        let present = [
            ("address", self.address.is_some()),
            ("device", self.device.is_some()),
            ("baud", self.baud.is_some()),
            ("listen", self.listen.is_some()),
            ("senders", self.senders.is_some()),
            ("longitude", self.longitude.is_some()),
            ("latitude", self.latitude.is_some()),
            ("altitude_m", self.altitude_m.is_some()),
            ("replay", self.replay),
        ];
        let foreign = |(key, is_there): &&(&str, bool)| *is_there && !keys.contains(key);
        match present.iter().find(foreign) {
            Some((key, _)) => Err(format!("{key}: not for source = \"{kind}\"")),
            None => Ok(()),
        }
    }

    fn source(self) -> Result<Source, String> {
        match self.source {
            Kind::Gpsd => {
                let device = self.device.map(|path| path.into_os_string().into_string());
                let device = device.transpose().map_err(|_| "device: no text")?;
                let address = self.address.unwrap_or(GPSD);
                Ok(Source::Gpsd { address, device })
            }
            Kind::Nmea => self.nmea(),
            Kind::Fixed => self.fixed(),
        }
    }

    fn nmea(self) -> Result<Source, String> {
        if self.baud.is_some() && self.device.is_none() {
            return Err("baud: only with device".to_owned());
        }
        if self.senders.is_some() && self.listen.is_none() {
            return Err("senders: only with listen".to_owned());
        }
        match (self.device, self.address, self.listen) {
            (Some(device), None, None) => {
                let baud = self.baud.unwrap_or(BAUD);
                match BAUDS.contains(&baud) {
                    true => Ok(Source::Serial { device, baud }),
                    false => Err(format!("baud: must be one of {BAUDS:?}")),
                }
            }
            (None, Some(address), None) => Ok(Source::Tcp { address }),
            (None, None, Some(listen)) => {
                // Anybody who can send a datagram could put the vehicle anywhere.
                match listen.ip().is_loopback() || self.senders.is_some() {
                    true => Ok(Source::Udp {
                        listen,
                        senders: self.senders,
                    }),
                    false => Err("listen: beyond loopback, name the senders".to_owned()),
                }
            }
            _ => {
                Err("nmea: set one of device (serial line), address (TCP), listen (UDP)".to_owned())
            }
        }
    }

    fn fixed(self) -> Result<Source, String> {
        let place = self.longitude.zip(self.latitude);
        let (longitude, latitude) = place.ok_or("fixed: longitude and latitude are missing")?;
        let fix = Fix {
            longitude,
            latitude,
            altitude_m: self.altitude_m,
            ..Fix::default()
        };
        let fix = fix.checked().map_err(|error| error.to_string())?;
        match fix.altitude_m == self.altitude_m {
            true => Ok(Source::Fixed(fix)),
            false => Err("altitude_m: must be -1000 to 30000".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<PositionsConfig, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn every_kind_of_source_needs_little() {
        let source = |text: &str| parse(text).unwrap().source;
        assert_eq!(source("source = \"gpsd\"").to_string(), "127.0.0.1:2947");
        assert_eq!(
            source("source = \"nmea\"\ndevice = \"/dev/ttyUSB0\""),
            Source::Serial {
                device: "/dev/ttyUSB0".into(),
                baud: 4_800,
            }
        );
        let tcp = source("source = \"nmea\"\naddress = \"192.168.1.20:10110\"");
        assert_eq!(tcp.to_string(), "192.168.1.20:10110");
        let udp = source("source = \"nmea\"\nlisten = \"127.0.0.1:10110\"");
        assert_eq!(
            (udp.kind(), udp.to_string().as_str()),
            ("nmea", "udp 127.0.0.1:10110")
        );
        let fixed = parse("source = \"fixed\"\nlongitude = 8.7\nlatitude = 50.1").unwrap();
        assert_eq!(fixed.interval, Duration::from_secs(60));
        assert!(matches!(fixed.source, Source::Fixed(fix) if fix.latitude == 50.1));
    }

    #[test]
    fn what_does_not_fit_together_is_told() {
        for (text, about) in [
            ("source = \"galileo\"", "unknown variant"),
            ("source = \"gpsd\"\nbaud = 9600", "baud: not for source"),
            ("source = \"gpsd\"\ninterval_ms = 5", "interval_ms"),
            ("source = \"nmea\"", "set one of device"),
            (
                "source = \"nmea\"\ndevice = \"/dev/a\"\naddress = \"[::1]:1\"",
                "set one of",
            ),
            (
                "source = \"nmea\"\ndevice = \"/dev/a\"\nbaud = 9601",
                "baud: must be one of",
            ),
            (
                "source = \"nmea\"\naddress = \"[::1]:1\"\nbaud = 9600",
                "only with device",
            ),
            (
                "source = \"nmea\"\naddress = \"[::1]:1\"\nsenders = []",
                "only with listen",
            ),
            (
                "source = \"nmea\"\nlisten = \"[::]:10110\"",
                "name the senders",
            ),
            ("source = \"fixed\"\nlongitude = 8.7", "are missing"),
            (
                "source = \"fixed\"\nlongitude = 8.7\nlatitude = 91.0",
                "no place on Earth",
            ),
            (
                "source = \"fixed\"\nlongitude = 8.7\nlatitude = 50.1\nreplay = true",
                "replay: not",
            ),
            (
                "source = \"fixed\"\nlongitude = 8.7\nlatitude = 50.1\naltitude_m = 1e6",
                "altitude_m",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(about), "{text}: {error}");
        }
    }
}
