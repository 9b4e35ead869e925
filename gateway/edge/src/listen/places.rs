//! Bounds the connections at the same time, per listener and per client.
//!
//! Each client has a guaranteed number, and beyond that no more than it leaves free. So a client
//! that opens as many as it can leaves half of them to others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use underpass_customer::customer;

/// Connections that a client has however many others have.
const GUARANTEED: usize = 256;

/// The places of one listener, whose number may change.
#[derive(Debug)]
pub(super) struct Places {
    most: AtomicUsize,
    taken: AtomicUsize,
    changed: Notify,
    /// What each client has, by address or IPv6 network.
    clients: Mutex<HashMap<IpAddr, usize>>,
}

/// The place of one connection; dropping this frees it.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    client: Option<IpAddr>,
}

impl Places {
    pub fn new(most: usize) -> Arc<Places> {
        Arc::new(Places {
            most: AtomicUsize::new(most),
            taken: AtomicUsize::new(0),
            changed: Notify::new(),
            clients: Mutex::default(),
        })
    }

    /// Allows this many from now on. Connections beyond that stay, and no new ones are accepted
    /// until enough have ended.
    pub fn set_most(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Waits until there is a place, and takes it. For one task at a time: the
    /// one that accepts.
    pub async fn take(self: &Arc<Self>) -> Place {
        while self.taken.load(Ordering::Relaxed) >= self.most.load(Ordering::Relaxed) {
            self.changed.notified().await;
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        Place {
            places: self.clone(),
            client: None,
        }
    }

    /// Takes the place of a connection that is open already, whether one is
    /// free or not.
    pub fn take_open(self: &Arc<Self>, client: IpAddr) -> Place {
        let client = customer(client);
        self.taken.fetch_add(1, Ordering::Relaxed);
        *self.clients.lock().unwrap().entry(client).or_default() += 1;
        Place {
            places: self.clone(),
            client: Some(client),
        }
    }
}

impl Place {
    /// The place for a client's connection, unless it has too many.
    pub fn of(mut self, client: IpAddr) -> Option<Place> {
        let client = customer(client);
        let taken = self.places.taken.load(Ordering::Relaxed);
        let free = self
            .places
            .most
            .load(Ordering::Relaxed)
            .saturating_sub(taken);
        let mut clients = self.places.clients.lock().unwrap();
        let own = clients.get(&client).copied().unwrap_or(0);
        let admitted = own < GUARANTEED || own - GUARANTEED < free;
        if admitted {
            clients.insert(client, own + 1);
            self.client = Some(client);
        }
        drop(clients);
        admitted.then_some(self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(client) = self.client {
            let mut clients = self.places.clients.lock().unwrap();
            if let Some(own) = clients.get_mut(&client) {
                *own -= 1;
                if *own == 0 {
                    clients.remove(&client);
                }
            }
        }
        self.places.taken.fetch_sub(1, Ordering::Relaxed);
        self.places.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    async fn is_full(places: &Arc<Places>) -> bool {
        timeout(Duration::from_millis(10), places.take())
            .await
            .is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn places_that_are_taken_away_stay_until_their_connections_end() {
        let places = Places::new(2);
        let (one, two) = (places.take().await, places.take().await);
        assert!(is_full(&places).await);
        places.set_most(1);
        drop(one);
        assert!(is_full(&places).await);
        drop(two);
        let one = places.take().await;
        assert!(is_full(&places).await);
        places.set_most(2);
        assert!(!is_full(&places).await);
        drop(one);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_opens_all_it_can_leaves_places_to_the_others() {
        let places = Places::new(2_000);
        let greedy: IpAddr = "2001:db8::1".parse().unwrap();
        // All addresses of its network count as one client.
        let also: IpAddr = "2001:db8::2".parse().unwrap();
        let mut taken = Vec::new();
        while let Some(place) = places.take().await.of(greedy) {
            taken.push(place);
        }
        assert!(places.take().await.of(also).is_none());
        assert_eq!(taken.len(), GUARANTEED + (2_000 - GUARANTEED) / 2);
        let other: IpAddr = "192.0.2.1".parse().unwrap();
        let mut others = Vec::new();
        while let Some(place) = places.take().await.of(other) {
            others.push(place);
        }
        assert!(others.len() >= GUARANTEED);
        assert!(!is_full(&places).await);
        // Freed places are available to every client.
        drop(taken);
        others.push(places.take().await.of(other).unwrap());
        others.clear();
        assert!(places.clients.lock().unwrap().is_empty());
        assert_eq!(places.taken.load(Ordering::Relaxed), 0);
    }
}
