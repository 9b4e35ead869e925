//! The configuration in force.

use std::sync::{Arc, RwLock};

use super::Config;

/// The configuration in force, which a reload replaces.
#[derive(Debug)]
pub struct Current(RwLock<Arc<Config>>);

impl Current {
    /// The one that the node starts with.
    pub fn new(config: Config) -> Arc<Current> {
        Arc::new(Current(RwLock::new(Arc::new(config))))
    }

    /// What holds now.
    pub fn get(&self) -> Arc<Config> {
        self.0.read().unwrap().clone()
    }

    pub fn set(&self, config: Arc<Config>) {
        *self.0.write().unwrap() = config;
    }
}
