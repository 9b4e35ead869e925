//! How many contacts each source has open.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use underpass_customer::customer;

/// Bounds the contacts that are no sessions yet of each source. Only sources with a contact are known,
/// so there are no more than contacts.
#[derive(Clone, Debug)]
pub struct Sources {
    most: usize,
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One contact of a source, until it is dropped.
#[derive(Debug)]
pub struct SourcePlace {
    sources: Sources,
    source: IpAddr,
}

impl Sources {
    /// At most so many contacts for each source.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            open: Arc::default(),
        }
    }

    /// One more contact from `address`, unless there are too many.
    pub fn enter(&self, address: IpAddr) -> Option<SourcePlace> {
        let source = customer(address);
        let mut open = self.open.lock().unwrap();
        let count = open.entry(source).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(SourcePlace {
            sources: self.clone(),
            source,
        })
    }
}

impl Drop for SourcePlace {
    fn drop(&mut self) {
        let mut open = self.sources.open.lock().unwrap();
        if let Some(count) = open.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_has_its_own_bound_and_leaves_no_trace() {
        let sources = Sources::new(2);
        let enter = |text: &str| sources.enter(text.parse().expect("an address"));
        let (first, _second) = (enter("192.0.2.1"), enter("::ffff:192.0.2.1"));
        assert!(first.is_some() && enter("192.0.2.1").is_none());
        let others = [
            enter("192.0.2.2"),
            enter("2001:db8::1"),
            enter("2001:db8::2"),
        ];
        assert!(others.iter().all(Option::is_some));
        assert!(enter("2001:db8::3").is_none() && enter("2001:db8:0:1::3").is_some());
        drop(first);
        assert!(enter("192.0.2.1").is_some());
        drop((others, _second));
        assert!(sources.open.lock().expect("no panic").is_empty());
    }
}
