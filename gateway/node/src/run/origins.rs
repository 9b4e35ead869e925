//! Bounds the connections to origins of each peer.
//!
//! The stream layer bounds the open streams. A connection may outlive its stream while its origin
//! takes what came before the end. It therefore counts until it is closed; otherwise a peer with an
//! origin of its own could have any number.
//!
//! All peers share the open files. Each has a guaranteed number of connections, and beyond that no
//! more than it leaves free. So a peer that takes as many as it can leaves half of them to others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock};

use underpass_edge::stream::{Failure, FailureCode};

use super::descriptors;
use crate::api::counted;
use crate::config::Config;

/// Connections that a peer has however many others have.
pub(super) const GUARANTEED: usize = 1024;

/// The connections of all peers.
#[derive(Debug)]
pub(super) struct Origins {
    most: RwLock<Most>,
    /// When all peers together have this many, each keeps only its guaranteed number.
    pool: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    of_peers: HashMap<u64, usize>,
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

/// The place of one connection; dropping this frees it.
#[derive(Debug)]
pub(super) struct Place {
    origins: Arc<Origins>,
    peer: u64,
}

impl Origins {
    /// Allows each peer as many as it may have streams, or as configured.
    pub fn of(config: &Config) -> Arc<Origins> {
        Arc::new(Origins {
            most: RwLock::new(Most::of(config)),
            // The rest is for sessions, clients and files.
            pool: usize::try_from(descriptors::limit() / 4 * 3).unwrap_or(usize::MAX),
            taken: Mutex::default(),
        })
    }

    /// Applies the limits of another configuration; connections beyond them stay.
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
        let own = taken.of_peers.get(&peer).copied().unwrap_or(0);
        let free = self.pool.saturating_sub(taken.all);
        let has_share = own < GUARANTEED || own - GUARANTEED < free;
        if own >= most || !has_share {
            let own = counted(own as u64, "connection");
            let text = format!("node {peer} has {own} already, as many as it may");
            return Err(Failure::new(FailureCode::Exhausted, text));
        }
        taken.count(peer);
        drop(taken);
        Ok(self.place(peer))
    }

    /// The place of a connection that exists already: it counts, but is never refused.
    pub fn go_on(self: &Arc<Self>, peer: u64) -> Place {
        self.taken.lock().unwrap().count(peer);
        self.place(peer)
    }

    fn place(self: &Arc<Self>, peer: u64) -> Place {
        Place {
            origins: self.clone(),
            peer,
        }
    }
}

impl Taken {
    fn count(&mut self, peer: u64) {
        *self.of_peers.entry(peer).or_default() += 1;
        self.all += 1;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.origins.taken.lock().unwrap();
        taken.all -= 1;
        if let Some(own) = taken.of_peers.get_mut(&self.peer) {
            *own -= 1;
            if *own == 0 {
                taken.of_peers.remove(&self.peer);
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
            pool: 100,
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
        let taken = origins.taken.lock().unwrap();
        assert!(
            taken.all == 0 && taken.of_peers.is_empty(),
            "nothing is left"
        );
    }

    #[test]
    fn those_that_another_process_had_count_like_others() {
        let origins = Arc::new(Origins {
            most: RwLock::new(Most {
                usual: 2,
                own: HashMap::new(),
            }),
            pool: 100,
            taken: Mutex::default(),
        });
        let held: Vec<Place> = (0..3).map(|_| origins.go_on(10)).collect();
        assert!(origins.take(10).is_err());
        assert!(origins.take(11).is_ok());
        drop(held);
        assert!(origins.take(10).is_ok());
    }

    #[test]
    fn who_takes_all_it_can_leaves_others_theirs() {
        let origins = Arc::new(Origins {
            most: RwLock::new(Most {
                usual: usize::MAX,
                own: HashMap::new(),
            }),
            pool: 3 * GUARANTEED,
            taken: Mutex::default(),
        });
        let all_of = |peer| {
            let places = std::iter::from_fn(|| origins.take(peer).ok());
            places.collect::<Vec<Place>>()
        };
        let greedy = all_of(10);
        assert_eq!(greedy.len(), 2 * GUARANTEED);
        // Every other peer has its guaranteed number, whatever is left.
        let next = all_of(11);
        assert_eq!(next.len(), GUARANTEED);
        assert_eq!(all_of(12).len(), GUARANTEED);
        drop((greedy, next));
    }
}
