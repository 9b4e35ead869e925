//! A value that tasks wait for. Unlike tokio's, it wakes them in order, so that a seed runs in the
//! same way each time.

use std::sync::Mutex;

use tokio::sync::Notify;

/// A value that changes.
pub struct Shared<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Clone> Shared<T> {
    pub fn new(value: T) -> Shared<T> {
        Shared {
            value: Mutex::new(value),
            changed: Notify::new(),
        }
    }

    pub fn get(&self) -> T {
        self.value.lock().unwrap().clone()
    }

    /// Sets it and returns what it was.
    pub fn replace(&self, value: T) -> T {
        let before = std::mem::replace(&mut *self.value.lock().unwrap(), value);
        self.changed.notify_waiters();
        before
    }

    /// Waits until `wanted` makes something of it.
    pub async fn wait_for<R>(&self, wanted: impl Fn(T) -> Option<R>) -> R {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(found) = wanted(self.get()) {
                return found;
            }
            changed.await;
        }
    }
}
