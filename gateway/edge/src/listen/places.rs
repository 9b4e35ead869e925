//! How many connections a listener has at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// The places of one listener, whose number may change.
#[derive(Debug)]
pub(super) struct Places {
    most: AtomicUsize,
    taken: AtomicUsize,
    changed: Notify,
}

/// The place of one connection, which is free when this is dropped.
#[derive(Debug)]
pub(super) struct Place(Arc<Places>);

impl Places {
    pub fn new(most: usize) -> Arc<Places> {
        Arc::new(Places {
            most: AtomicUsize::new(most),
            taken: AtomicUsize::new(0),
            changed: Notify::new(),
        })
    }

    /// Allows so many from now on. Connections beyond stay, and no others come
    /// until so many have ended.
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
        Place(self.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
        self.0.changed.notify_one();
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
}
