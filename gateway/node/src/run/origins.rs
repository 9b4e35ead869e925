//! How many connections to origins there are for each peer.
//!
//! The stream layer bounds the streams that are open. A connection may outlive
//! its stream, as long as its origin takes what came before the end: it counts
//! until it is closed, or a peer with an origin of its own could have any number.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use underpass_edge::stream::{Failure, FailureCode};

use crate::config::Config;

/// The connections of all peers.
#[derive(Debug)]
pub(super) struct Origins {
    most: AtomicUsize,
    taken: Mutex<HashMap<u64, usize>>,
}

/// The place of one connection, which is free when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    origins: Arc<Origins>,
    peer: u64,
}

impl Origins {
    /// As many for each peer as it may have streams.
    pub fn of(config: &Config) -> Arc<Origins> {
        Arc::new(Origins {
            most: AtomicUsize::new(config.streams.max_streams),
            taken: Mutex::default(),
        })
    }

    /// Allows as many as another configuration says; those beyond stay.
    pub fn set(&self, config: &Config) {
        self.most
            .store(config.streams.max_streams, Ordering::Relaxed);
    }

    /// A place for one more.
    ///
    /// # Errors
    /// When the peer has as many as it may.
    pub fn take(self: &Arc<Self>, peer: u64) -> Result<Place, Failure> {
        let mut taken = self.taken.lock().unwrap();
        let own = taken.get(&peer).copied().unwrap_or(0);
        if own >= self.most.load(Ordering::Relaxed) {
            let text = format!("node {peer} has {own} connections already");
            return Err(Failure::new(FailureCode::Exhausted, text));
        }
        taken.insert(peer, own + 1);
        drop(taken);
        Ok(Place {
            origins: self.clone(),
            peer,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.origins.taken.lock().unwrap();
        if let Some(own) = taken.get_mut(&self.peer) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_so_many_until_they_are_closed_and_takes_none_from_another() {
        let origins = Arc::new(Origins {
            most: AtomicUsize::new(2),
            taken: Mutex::default(),
        });
        let mut places: Vec<Place> = (0..2).map(|_| origins.take(10).unwrap()).collect();
        let refused = origins.take(10).expect_err("it has two");
        assert_eq!(refused.code, FailureCode::Exhausted);
        let other = origins.take(11);
        assert!(other.is_ok());
        places.pop();
        assert!(origins.take(10).is_ok());
        drop((places, other));
        assert!(origins.taken.lock().unwrap().is_empty(), "nothing is left");
    }
}
