//! Transparent interception while the node runs: on and off, and the families
//! that the far node reaches.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use underpass_edge::config::ListenerProtocol;
use underpass_edge::dial::Families;
use underpass_edge::transparent::{Beyond, Interception, InterceptionError, PlainBytes};
use underpass_edge::{Edge, Switch};
use underpass_engine::HopId;

use crate::config::Config;

/// How often the rules and their counters are looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// The interception rules of this node. Calls block for some milliseconds.
pub struct Interceptor {
    state: Mutex<State>,
    plain: Mutex<PlainBytes>,
}

struct State {
    rules: Interception,
    switch: Switch,
    families: Families,
}

impl Interceptor {
    /// Installs the rules, if the configuration asks for any; `edge` listens.
    ///
    /// # Errors
    /// When nft or ip fail.
    pub fn start(
        config: &Config,
        edge: &Edge,
    ) -> Result<Option<Arc<Interceptor>>, InterceptionError> {
        let Some(wanted) = &config.edge.interception else {
            return Ok(None);
        };
        let mut listeners = config.edge.listener.iter();
        let transparent = listeners.find(|l| l.protocol == ListenerProtocol::Transparent);
        let port = transparent.and_then(|listener| {
            let mut addresses = edge.addresses().iter();
            addresses.find(|(name, _)| *name == listener.name)
        });
        let switch = Switch::default();
        let port = port.map(|(_, address)| address.port());
        let families = Families::BOTH;
        let hops = beyond_hops(config);
        let rules = Interception::install(wanted.clone(), port, &switch, families, hops)?;
        let plain = Mutex::new(rules.plain_ip_bytes()?);
        Ok(Some(Arc::new(Interceptor {
            state: Mutex::new(State {
                rules,
                switch,
                families,
            }),
            plain,
        })))
    }

    /// What is switched off at present.
    pub fn switch(&self) -> Switch {
        self.state().switch.clone()
    }

    /// The families that the far node reaches.
    pub fn families(&self) -> Families {
        self.state().families
    }

    /// Whether the kernel has the rules still.
    pub fn is_in_force(&self) -> bool {
        self.state().rules.is_in_force()
    }

    /// Changes what is taken in; connections that are open live on.
    ///
    /// # Errors
    /// When nft refuses; what was in force then stays.
    pub fn change(&self, change: impl FnOnce(&mut Switch)) -> Result<(), InterceptionError> {
        let mut state = self.state();
        let (mut switch, families) = (state.switch.clone(), state.families);
        change(&mut switch);
        state.set(switch, families)
    }

    /// Bytes of clients' traffic routed as plain IP, as last looked at.
    pub fn plain_ip_bytes(&self) -> PlainBytes {
        self.plain().clone()
    }

    /// Bytes of plain IP that this node has routed over a hop, as last looked
    /// at; none where that is not known.
    pub fn plain_ip_bytes_to(&self, hop: HopId) -> Option<u64> {
        self.plain().to_hop(usize::try_from(hop.0).ok()?)
    }

    fn plain(&self) -> MutexGuard<'_, PlainBytes> {
        self.plain.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self, families: Families) {
        let mut state = self.state();
        let switch = state.switch.clone();
        let followed = state.set(switch, families);
        let bytes = state.rules.plain_ip_bytes();
        drop(state);
        if let Err(error) = followed {
            tracing::error!(%error, "the families that the far node reaches are not followed");
        }
        match bytes {
            Ok(bytes) => *self.plain() = bytes,
            Err(error) => tracing::warn!(%error, "plain IP is not measured"),
        }
    }
}

/// What lies beyond each hop, in the order of the engine's numbers.
fn beyond_hops(config: &Config) -> Vec<Beyond> {
    let paths = config.paths.iter().map(|path| Beyond {
        networks: path.networks.clone(),
        // It may lead to everywhere, which this node's clients are part of.
        from_clients: true,
    });
    let terminals = config.terminals.iter().map(|terminal| Beyond {
        networks: terminal.networks.clone(),
        from_clients: false,
    });
    paths.chain(terminals).collect()
}

impl State {
    fn set(&mut self, switch: Switch, families: Families) -> Result<(), InterceptionError> {
        if (&switch, families) != (&self.switch, self.families) {
            self.rules.set(&switch, families)?;
            self.switch = switch;
            self.families = families;
        }
        Ok(())
    }
}

/// Follows the families that `reached` tells and reads the counters, once a
/// second. Runs until dropped.
pub async fn watch(
    interceptor: Arc<Interceptor>,
    reached: impl Fn() -> Families + Send + Sync + 'static,
) {
    let mut ticks = tokio::time::interval(INTERVAL);
    loop {
        ticks.tick().await;
        let families = reached();
        let interceptor = interceptor.clone();
        let look = tokio::task::spawn_blocking(move || interceptor.look(families));
        if look.await.is_err() {
            tracing::error!("interception is not watched any more");
            return;
        }
    }
}
