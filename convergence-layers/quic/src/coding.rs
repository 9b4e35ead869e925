//! Which bundles are sent as coded datagrams, and what is known of losses beforehand.

use std::collections::BTreeMap;
use std::sync::Mutex;

use underpass_coded::Protection;
use underpass_coded::parity::LossEstimate;

/// How the bundles of a class are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coding {
    /// A stream for each.
    #[default]
    Never,
    /// As symbols, with repair for the last round trip of an object.
    Tail,
    /// As symbols, with repair for all.
    Always,
}

impl Coding {
    pub(crate) fn protection(self) -> Option<Protection> {
        match self {
            Coding::Never => None,
            Coding::Tail => Some(Protection::Tail),
            Coding::Always => Some(Protection::Always),
        }
    }
}

/// The losses towards each peer, as its sessions have measured them: the next session begins with
/// these.
#[derive(Debug, Default)]
pub struct KnownLosses(Mutex<BTreeMap<String, LossEstimate>>);

impl KnownLosses {
    pub(crate) fn of(&self, peer: &str) -> LossEstimate {
        let known = self.0.lock().unwrap();
        known.get(peer).copied().unwrap_or_default().counted_anew()
    }

    pub(crate) fn set(&self, peer: &str, losses: LossEstimate) {
        let mut known = self.0.lock().unwrap();
        match known.get_mut(peer) {
            Some(known) => *known = losses,
            None => drop(known.insert(peer.to_owned(), losses)),
        }
    }
}
