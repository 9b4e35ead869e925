//! The source of objects' sizes that the edge asks.

use std::sync::Arc;

use underpass_cdni::{Client, ConfigError};
use underpass_edge::flows::{Flows, ObjectSizes};

use crate::config::CdniConfig;

/// Asks a client's metadata.
#[derive(Debug)]
struct Metadata(Arc<Client>);

impl ObjectSizes for Metadata {
    fn size_bytes(&self, host: &str, target: &str) -> Option<u64> {
        self.0.size_bytes(host, target)
    }
}

/// Lets flows use the source that the configuration names. Returns its client, which has to run.
///
/// # Errors
/// When its address or certificates cannot be used.
pub fn start(config: &CdniConfig, flows: &Flows) -> Result<Arc<Client>, ConfigError> {
    let client = Arc::new(Client::new(&config.client())?);
    flows.ask(Arc::new(Metadata(client.clone())));
    Ok(client)
}
