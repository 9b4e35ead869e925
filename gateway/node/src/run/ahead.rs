//! What the next process of a node finds out while the one before still has it:
//! addresses that are taken, files that cannot be used. Found out later, that
//! would end the node.

use std::collections::BTreeSet;

use super::{RunError, beacons, entrance};
use crate::accounts::Accounts;
use crate::api;
use crate::config::Config;
use crate::modem;
use crate::upgrade::Sockets;

/// Binds every address that the process before has not, and reads what is read
/// again once the node is this process'. `up` are the paths on demand that are up.
///
/// # Errors
/// What would keep this process from going on.
pub(super) fn bind(
    config: &Config,
    up: &BTreeSet<String>,
    sockets: &Sockets,
) -> Result<(), RunError> {
    config.classifier()?;
    entrance::bind(config, sockets)?;
    beacons::bind_all(config, up, sockets)?;
    for modem in &config.modems {
        modem::listen(modem, sockets)?;
    }
    if let Some(applications) = &config.applications {
        api::unix_socket("applications.socket", &applications.socket, sockets)?;
    }
    api::bind(&config.api, sockets)?;
    Accounts::new(config).map_err(RunError::AccessLog)?;
    if let Some(source) = &config.cdni {
        underpass_cdni::Client::new(&source.client())?;
    }
    Ok(())
}
