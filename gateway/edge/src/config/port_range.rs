//! A port, or a range of ports.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};
use thiserror::Error;

/// Ports from `first` to `last`, both included. In TOML `443` or
/// `"5000-5100"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// Lowest port.
    pub first: u16,
    /// Highest port.
    pub last: u16,
}

impl PortRange {
    /// Whether `port` is in the range.
    pub fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

/// A text that is no port and no range of ports.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("expected a port (443) or a range of ports (5000-5100)")]
pub struct NoPortRange;

impl FromStr for PortRange {
    type Err = NoPortRange;

    fn from_str(text: &str) -> Result<PortRange, NoPortRange> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.trim().parse().map_err(|_| NoPortRange);
        let (first, last) = (port(first)?, port(last)?);
        if first > last {
            return Err(NoPortRange);
        }
        Ok(PortRange { first, last })
    }
}

impl Serialize for PortRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PortRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PortRange, D::Error> {
        deserializer.deserialize_any(PortRangeVisitor)
    }
}

struct PortRangeVisitor;

impl Visitor<'_> for PortRangeVisitor {
    type Value = PortRange;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a port (443) or a range of ports (\"5000-5100\")")
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<PortRange, E> {
        let port = u16::try_from(value)
            .map_err(|_| E::invalid_value(de::Unexpected::Signed(value), &self))?;
        Ok(PortRange {
            first: port,
            last: port,
        })
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<PortRange, E> {
        let signed = i64::try_from(value)
            .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(value), &self))?;
        self.visit_i64(signed)
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<PortRange, E> {
        let range = value.parse();
        range.map_err(|_| E::invalid_value(de::Unexpected::Str(value), &self))
    }
}
