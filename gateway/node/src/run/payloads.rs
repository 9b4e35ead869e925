//! Payloads that are too long for memory.

use std::sync::Arc;

use underpass_payloads::Payloads;

use super::RunError;
use crate::config::Config;

/// Opens the folder of long payloads, if this node has any.
///
/// # Errors
/// When the folder cannot be used.
pub(super) fn open(config: &Config) -> Result<Option<Arc<Payloads>>, RunError> {
    let Some(limits) = config.long_payloads() else {
        return Ok(None);
    };
    let folder = config.payloads.folder(&config.node.state_dir);
    let payloads = Payloads::open(&folder, limits).map_err(RunError::Payloads)?;
    Ok(Some(payloads))
}
