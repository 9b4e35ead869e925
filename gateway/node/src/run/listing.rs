//! A hub's terminals, as the control service lists them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;
use underpass_control_client::{Service, ServiceError};

use super::reload::{ReloadError, Reloader};
use crate::config::{Config, ListedTerminal, Listing};
use crate::state_files;

/// How often the list is asked for.
const INTERVAL: Duration = Duration::from_secs(10);

/// How often the list is requested while the node cannot apply it.
const REFUSED_INTERVAL: Duration = Duration::from_secs(60);

/// The largest list: of some 50,000 terminals.
const MAX_LIST_BYTES: usize = 8 << 20;

/// Why the list is not taken over.
#[derive(Debug, Error)]
enum ListError {
    #[error("the control service: {0}")]
    Service(#[from] ServiceError),
    #[error("the answer is not understood: {0}")]
    Answer(#[from] serde_json::Error),
    #[error("the list cannot be written down: {0}")]
    Number(#[from] toml::ser::Error),
    #[error("{path}: {source}")]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("the node cannot take the terminals over: {0}")]
    Reload(#[from] ReloadError),
    #[error("the reload was cut short: {0}")]
    CutShort(#[from] tokio::task::JoinError),
}

/// The service's answer. Further fields of a later service are ignored, and are not written to the
/// file.
#[derive(Deserialize)]
struct Answer {
    terminals: Vec<Told>,
}

#[derive(Deserialize)]
struct Told {
    node: u64,
    weight: u32,
    send_rate_bps: Option<u64>,
    receive_rate_bps: Option<u64>,
}

/// Takes over what the service lists.
pub(super) struct ListFollower {
    node: u64,
    file: PathBuf,
    control: Arc<Service>,
    reloader: Arc<Reloader>,
    /// Of the list that is in force.
    tag: Option<hyper::header::HeaderValue>,
}

impl ListFollower {
    /// As configured; none if terminals come only from the configuration file.
    pub fn of(
        config: &Config,
        control: Option<Arc<Service>>,
        reloader: &Arc<Reloader>,
    ) -> Option<ListFollower> {
        config
            .control
            .as_ref()
            .filter(|control| control.terminals)?;
        Some(ListFollower {
            node: config.node.number,
            file: Listing::file(&config.node.state_dir),
            control: control?,
            reloader: reloader.clone(),
            tag: None,
        })
    }

    /// Follows the list until dropped. While the service is away, the last list
    /// stays in force.
    pub async fn run(mut self) {
        let mut is_well = true;
        let mut pause = INTERVAL.mul_f64(0.1 * fastrand::f64());
        loop {
            tokio::time::sleep(pause).await;
            let taken = self.take().await;
            pause = match &taken {
                Err(ListError::Reload(_)) => REFUSED_INTERVAL,
                _ => INTERVAL,
            };
            pause = pause.mul_f64(0.9 + 0.2 * fastrand::f64());
            match &taken {
                Err(error) if is_well => {
                    tracing::warn!(%error, "this hub's terminals are not kept up to date");
                }
                Ok(()) if !is_well => tracing::info!("this hub's terminals are up to date"),
                _ => {}
            }
            is_well = taken.is_ok();
        }
    }

    async fn take(&mut self) -> Result<(), ListError> {
        let path = format!("/v1/gateways/{}/terminals", self.node);
        let answer = self.control.get(&path, self.tag.as_ref(), MAX_LIST_BYTES);
        let Some((body, tag)) = answer.await? else {
            return Ok(());
        };
        let answer: Answer = serde_json::from_slice(&body)?;
        let terminals = answer.terminals.into_iter().map(|told| ListedTerminal {
            node: told.node,
            weight: told.weight,
            send_rate_bps: told.send_rate_bps,
            receive_rate_bps: told.receive_rate_bps,
        });
        let listing = Listing {
            terminals: terminals.collect(),
        };
        self.replace(&listing.text()?).await?;
        self.tag = tag;
        Ok(())
    }

    /// Lets the node run with another list: with all of it, or with the previous one.
    async fn replace(&self, text: &str) -> Result<(), ListError> {
        let before = match std::fs::read_to_string(&self.file) {
            Ok(before) => Some(before),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(source) => return Err(self.failed(source)),
        };
        if before.as_deref() == Some(text) {
            return Ok(());
        }
        let write = |text: &str| {
            let written = state_files::replace(&self.file, text.as_bytes());
            written.map_err(|source| self.failed(source))
        };
        write(text)?;
        let reloaded = self.reloader.reload().await?;
        if let Err(error) = reloaded {
            match &before {
                Some(before) => write(before)?,
                None => std::fs::remove_file(&self.file).map_err(|source| self.failed(source))?,
            }
            return Err(error.into());
        }
        Ok(())
    }

    fn failed(&self, source: std::io::Error) -> ListError {
        ListError::File {
            path: self.file.clone(),
            source,
        }
    }
}
