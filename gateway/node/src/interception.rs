//! Transparent interception while the node runs: on and off, and the families
//! that the far node reaches.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use underpass_edge::config::ListenerProtocol;
use underpass_edge::dial::Families;
use underpass_edge::transparent::{Beyond, PlainBytes};
use underpass_edge::{Edge, Switch};
use underpass_engine::HopId;

use crate::config::Config;
use crate::privileged::{Helper, HelperError, Intercept};

/// How often the rules and their counters are looked at.
const INTERVAL: Duration = Duration::from_secs(1);

/// The interception rules of this node. Calls block for some milliseconds.
pub struct Interceptor {
    rules: Arc<Helper>,
    in_force: AtomicBool,
    state: Mutex<State>,
    plain: Mutex<PlainBytes>,
}

struct State {
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
        helper: Option<Arc<Helper>>,
    ) -> Result<Option<Arc<Interceptor>>, HelperError> {
        let Some(wanted) = &config.edge.interception else {
            return Ok(None);
        };
        let rules = helper.ok_or(HelperError::Lost)?;
        let mut listeners = config.edge.listener.iter();
        let transparent = listeners.find(|l| l.protocol == ListenerProtocol::Transparent);
        let port = transparent.and_then(|listener| {
            let mut addresses = edge.addresses().iter();
            addresses.find(|(name, _)| *name == listener.name)
        });
        let switch = Switch::default();
        let port = port.map(|(_, address)| address.port());
        let families = Families::BOTH;
        let numbers = config.hop_names().zip(0..);
        let numbers: BTreeMap<String, u64> = numbers.collect();
        rules.intercept(Intercept {
            config: wanted.clone(),
            port,
            switch: switch.clone(),
            families,
            hops: beyond_hops(config, &numbers),
        })?;
        Interceptor::with(rules, switch, families).map(Some)
    }

    /// Continues with the rules that another process of this node has installed.
    ///
    /// # Errors
    /// When nft fails.
    pub fn go_on(
        config: &Config,
        rules: Arc<Helper>,
        (switch, families): (Switch, Families),
    ) -> Result<Arc<Interceptor>, HelperError> {
        let numbers = config.hop_names().zip(0..);
        let hops = beyond_hops(config, &numbers.collect());
        rules.set_hops(switch.clone(), families, hops)?;
        Interceptor::with(rules, switch, families)
    }

    fn with(
        rules: Arc<Helper>,
        switch: Switch,
        families: Families,
    ) -> Result<Arc<Interceptor>, HelperError> {
        let plain = Mutex::new(rules.count()?);
        Ok(Arc::new(Interceptor {
            rules,
            in_force: AtomicBool::new(true),
            state: Mutex::new(State { switch, families }),
            plain,
        }))
    }

    /// What is switched off at present.
    pub fn switch(&self) -> Switch {
        self.state().switch.clone()
    }

    /// The families that the far node reaches.
    pub fn families(&self) -> Families {
        self.state().families
    }

    /// Whether the kernel still had the rules at the last check.
    pub fn is_in_force(&self) -> bool {
        self.in_force.load(Ordering::Relaxed)
    }

    /// Changes what is taken in; open connections continue.
    ///
    /// # Errors
    /// When nft refuses; what was in force then stays.
    pub fn change(&self, change: impl FnOnce(&mut Switch)) -> Result<(), HelperError> {
        let mut state = self.state();
        let (mut switch, families) = (state.switch.clone(), state.families);
        change(&mut switch);
        state.set(&self.rules, switch, families)
    }

    /// Counts the plain IP to the hops of another configuration, with these numbers.
    ///
    /// # Errors
    /// When nft refuses; what was in force then stays.
    pub fn set_hops(
        &self,
        config: &Config,
        numbers: &BTreeMap<String, u64>,
    ) -> Result<(), HelperError> {
        let hops = beyond_hops(config, numbers);
        // The lock is held all the time, so no switch changes meanwhile.
        let state = self.state();
        self.rules
            .set_hops(state.switch.clone(), state.families, hops)
    }

    /// Bytes of clients' traffic routed as plain IP, at the last check.
    pub fn plain_ip_bytes(&self) -> PlainBytes {
        self.plain().clone()
    }

    /// Bytes of plain IP that this node has routed over a hop, at the last check; none if not
    /// known.
    pub fn plain_ip_bytes_to(&self, hop: HopId) -> Option<u64> {
        self.plain().to_hop(hop.0)
    }

    fn plain(&self) -> MutexGuard<'_, PlainBytes> {
        self.plain.lock().unwrap()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn look(&self, families: Families) {
        let mut state = self.state();
        let switch = state.switch.clone();
        let followed = state.set(&self.rules, switch, families);
        drop(state);
        let in_force = self.rules.is_in_force();
        self.in_force.store(in_force, Ordering::Relaxed);
        let bytes = self.rules.count();
        if let Err(error) = followed {
            tracing::error!(%error, "the families that the far node reaches are not followed");
        }
        match bytes {
            Ok(bytes) => *self.plain() = bytes,
            Err(error) => tracing::warn!(%error, "plain IP is not measured"),
        }
    }
}

impl Drop for Interceptor {
    fn drop(&mut self) {
        let _ = self.rules.release();
    }
}

/// The networks beyond each hop, by the engine's numbers.
fn beyond_hops(config: &Config, numbers: &BTreeMap<String, u64>) -> BTreeMap<u64, Beyond> {
    let paths = config.paths.iter().map(|path| Beyond {
        networks: path.networks.clone(),
        // The hop may lead everywhere, and so also to this node's own clients.
        from_clients: true,
    });
    let terminals = config.terminals.iter().map(|terminal| Beyond {
        networks: terminal.networks.clone(),
        from_clients: false,
    });
    let named = config.hop_names().zip(paths.chain(terminals));
    named
        .filter_map(|(name, beyond)| Some((*numbers.get(&name)?, beyond)))
        .collect()
}

impl State {
    fn set(
        &mut self,
        rules: &Helper,
        switch: Switch,
        families: Families,
    ) -> Result<(), HelperError> {
        if (&switch, families) != (&self.switch, self.families) {
            rules.switch(switch.clone(), families)?;
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
