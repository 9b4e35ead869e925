//! The running edge.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::classify::Classifier;
use crate::config::EdgeConfig;
use crate::dial::Dialler;
use crate::direct::DirectOutlet;
use crate::listen::{Clients, Listener, Ways};
use crate::stream::Outlet;
use crate::switch::Switch;

/// Why an edge cannot start.
#[derive(Debug, Error)]
pub enum EdgeError {
    /// Two listeners have one name.
    #[error("two listeners are named {0:?}")]
    Name(String),
    /// A listening socket could not be set up.
    #[error("cannot listen on {address} for {listener:?}: {source}")]
    Listen {
        /// The listener.
        listener: String,
        /// Its address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// All listeners of a node, accepting.
#[derive(Debug)]
pub struct Edge {
    stop: CancellationToken,
    connections: TaskTracker,
    addresses: Vec<(String, SocketAddr)>,
    switch: Arc<RwLock<Switch>>,
}

impl Edge {
    /// Binds every listener of `config` and serves them on the current tokio
    /// runtime; connections get their class from `classifier` and leave
    /// through `outlet`, or from this node itself where a rule says `direct`.
    ///
    /// # Errors
    /// When a listener cannot be bound; none is then left listening.
    pub fn start(
        config: &EdgeConfig,
        classifier: Classifier,
        outlet: Arc<dyn Outlet>,
    ) -> Result<Edge, EdgeError> {
        let dialler = Arc::new(Dialler::new(config.dial.clone()));
        let switch = Arc::<RwLock<Switch>>::default();
        let ways = Ways {
            peer: outlet,
            direct: Arc::new(DirectOutlet::new(dialler)),
            switch: switch.clone(),
        };
        let classifier = Arc::new(classifier);
        let mut listeners = Vec::new();
        let mut addresses: Vec<(String, SocketAddr)> = Vec::new();
        for listener in &config.listener {
            let name = listener.name.clone();
            if addresses.iter().any(|(known, _)| *known == name) {
                return Err(EdgeError::Name(name));
            }
            let networks = listener.client_networks.as_ref();
            let clients = Clients::new(networks.unwrap_or(&config.client_networks).clone());
            let bound = Listener::bind(listener.clone(), clients, ways.clone(), classifier.clone())
                .and_then(|bound| Ok((bound.local_addr()?, bound)));
            let (address, bound) = bound.map_err(|source| EdgeError::Listen {
                listener: name.clone(),
                address: listener.address,
                source,
            })?;
            addresses.push((name, address));
            listeners.push(bound);
        }
        let edge = Edge {
            stop: CancellationToken::new(),
            connections: TaskTracker::new(),
            addresses,
            switch,
        };
        for listener in listeners {
            tokio::spawn(listener.serve(edge.stop.clone(), edge.connections.clone()));
        }
        Ok(edge)
    }

    /// Names and addresses of the listeners, with the ports that the system
    /// chose where the configuration says 0.
    pub fn addresses(&self) -> &[(String, SocketAddr)] {
        &self.addresses
    }

    /// Connections that are open.
    pub fn open_connections(&self) -> usize {
        self.connections.len()
    }

    /// What the proxies do not take in at present.
    pub fn switch(&self) -> Switch {
        let switch = self.switch.read();
        switch.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes what SOCKS5 and HTTP listeners take in. New connections that
    /// they do not take in leave from this node itself; those that are open
    /// live on.
    pub fn set_switch(&self, switch: Switch) {
        *self.switch.write().unwrap_or_else(PoisonError::into_inner) = switch;
    }

    /// Stops accepting and waits until the last open connection has ended.
    pub async fn drain(&self) {
        self.stop.cancel();
        self.connections.close();
        self.connections.wait().await;
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
