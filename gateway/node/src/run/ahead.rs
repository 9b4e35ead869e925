//! Checks that the next process of a node makes while the previous one still has the node: taken
//! addresses, unusable files. Found only later, such a problem would end the node.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{RunError, bare_sessions, beacons, entrance};
use crate::accounts::Accounts;
use crate::api;
use crate::config::Config;
use crate::modem;
use crate::upgrade::Sockets;

/// Binds every address that the previous process has not bound, and tries the files that are read
/// again once this process has the node. `up` are the paths on demand that are up.
///
/// # Errors
/// What would prevent this process from taking over.
pub(super) fn bind(
    config: &Config,
    up: &BTreeSet<String>,
    sockets: &Arc<Sockets>,
) -> Result<(), RunError> {
    config.classifier()?;
    entrance::bind(config, sockets)?;
    beacons::bind_all(config, up, sockets)?;
    bare_sessions::bind_all(config, up, sockets)?;
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
