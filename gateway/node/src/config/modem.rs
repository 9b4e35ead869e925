//! Modems that report their lock.

use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;

/// A modem that speaks OpenAMIP with its antenna's controller.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModemConfig {
    /// The [[path]] that goes over it.
    pub path: String,
    /// Address at which the modem is to find its antenna: this node.
    pub listen: SocketAddr,
    /// Addresses that the modem may connect from.
    pub from: Vec<IpAddr>,
    /// The antenna's controller, to which everything is passed on.
    pub antenna: SocketAddr,
}
