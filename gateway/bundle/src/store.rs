//! Where payloads wait.

use std::collections::HashMap;

use bytes::Bytes;
use thiserror::Error;

use crate::agent::BundleId;

/// The store cannot keep another bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the bundle store cannot keep the bundle")]
pub struct StoreError;

/// Keeps payloads from acceptance to release. The agent keeps all else in
/// memory and rebuilds headers at each transmission.
pub trait Store: Send {
    /// Keeps a payload. When it returns, the payload is as safe as the store
    /// makes it: custody is signalled only after that.
    fn put(&mut self, id: BundleId, payload: Vec<Bytes>) -> Result<(), StoreError>;

    /// Appends a payload's pieces to `chunks`, by reference; false if the
    /// store does not have it.
    fn append_to(&self, id: BundleId, chunks: &mut Vec<Bytes>) -> bool;

    /// Forgets a payload and returns its pieces.
    fn remove(&mut self, id: BundleId) -> Vec<Bytes>;
}

/// A store in memory: it lives as long as the process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    payloads: HashMap<BundleId, Vec<Bytes>>,
}

impl Store for MemoryStore {
    fn put(&mut self, id: BundleId, payload: Vec<Bytes>) -> Result<(), StoreError> {
        self.payloads.insert(id, payload);
        Ok(())
    }

    fn append_to(&self, id: BundleId, chunks: &mut Vec<Bytes>) -> bool {
        match self.payloads.get(&id) {
            Some(pieces) => {
                chunks.extend(pieces.iter().cloned());
                true
            }
            None => false,
        }
    }

    fn remove(&mut self, id: BundleId) -> Vec<Bytes> {
        self.payloads.remove(&id).unwrap_or_default()
    }
}
