//! How many connections to origins there are for each peer.
//!
//! The stream layer bounds the streams that are open. A connection may outlive
//! its stream, as long as its origin takes what came before the end: it counts
//! until it is closed, or a peer with an origin of its own could have any number.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock};

use underpass_edge::stream::{Failure, FailureCode};

use crate::config::Config;

/// The connections of all peers.
#[derive(Debug)]
pub(super) struct Origins {
    most: RwLock<Most>,
    taken: Mutex<HashMap<u64, usize>>,
}

/// How many a peer may have.
#[derive(Debug)]
struct Most {
    usual: usize,
    /// Of peers that have a limit of their own.
    own: HashMap<u64, usize>,
}

impl Most {
    fn of(config: &Config) -> Most {
        let own = config.terminals.iter().filter_map(|terminal| {
            let most = terminal.dial.as_ref()?.max_connections?;
            Some((terminal.node, most))
        });
        Most {
            usual: config.streams.max_streams,
            own: own.collect(),
        }
    }

    fn of_peer(&self, peer: u64) -> usize {
        self.own.get(&peer).copied().unwrap_or(self.usual)
    }
}

/// The place of one connection, which is free when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    origins: Arc<Origins>,
    peer: u64,
}

impl Origins {
    /// As many for each peer as it may have streams, or as the configuration says.
    pub fn of(config: &Config) -> Arc<Origins> {
        Arc::new(Origins {
            most: RwLock::new(Most::of(config)),
            taken: Mutex::default(),
        })
    }

    /// Allows as many as another configuration says; those beyond stay.
    pub fn set(&self, config: &Config) {
        *self.most.write().unwrap() = Most::of(config);
    }

    /// A place for one more.
    ///
    /// # Errors
    /// When the peer has as many as it may.
    pub fn take(self: &Arc<Self>, peer: u64) -> Result<Place, Failure> {
        let most = self.most.read().unwrap().of_peer(peer);
        let mut taken = self.taken.lock().unwrap();
        let own = taken.get(&peer).copied().unwrap_or(0);
        if own >= most {
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
            most: RwLock::new(Most {
                usual: 2,
                own: HashMap::from([(12, 1)]),
            }),
            taken: Mutex::default(),
        });
        let mut places: Vec<Place> = (0..2).map(|_| origins.take(10).unwrap()).collect();
        let refused = origins.take(10).expect_err("it has two");
        assert_eq!(refused.code, FailureCode::Exhausted);
        let other = origins.take(11);
        assert!(other.is_ok());
        let limited = origins.take(12);
        assert!(limited.is_ok());
        assert!(origins.take(12).is_err(), "it may have one");
        places.pop();
        assert!(origins.take(10).is_ok());
        drop((places, other, limited));
        assert!(origins.taken.lock().unwrap().is_empty(), "nothing is left");
    }
}
