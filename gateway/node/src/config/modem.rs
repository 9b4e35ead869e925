//! Modems that tell of their lock.

use std::net::SocketAddr;

use serde::Deserialize;

/// A modem that speaks OpenAMIP with its antenna's controller.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModemConfig {
    /// The [[path]] that goes over it.
    pub path: String,
    /// Address at which the modem is to find its antenna: this node.
    pub listen: SocketAddr,
    /// The antenna's controller, to which everything is passed on.
    pub antenna: SocketAddr,
}
