//! TLS of the sessions, from the files of the private CA.

use thiserror::Error;
use underpass_tcpcl::tls::{ClientTls, ServerTls};

use crate::config::Config;

/// Why certificates cannot be used.
#[derive(Debug, Error)]
pub enum SecurityError {}

/// How sessions are secured.
pub enum Security {
    /// Not at all.
    Plain,
}

impl Security {
    /// Reads what the configuration names.
    pub fn load(_config: &Config) -> Result<Security, SecurityError> {
        Ok(Security::Plain)
    }

    /// For the side that dials.
    pub fn client(&self) -> Option<ClientTls> {
        None
    }

    /// For the side that listens.
    pub fn server(&self) -> Option<ServerTls> {
        None
    }
}
