//! Finds, among many items, those with something to do. A message about one item, or its timer,
//! does not cause a visit of others.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::net::IpAddr;

use underpass_customer::customer;
use underpass_work::{count, each};

use crate::node::Limits;

/// Whose an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Party {
    /// A node.
    Peer(u64),
    /// A client of this node, by its [`customer`].
    Client(IpAddr),
}

impl Party {
    /// The client at an address.
    pub fn client(address: IpAddr) -> Party {
        Party::Client(customer(address))
    }
}

/// What a party has here, including bytes that are still to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub items: usize,
    pub request_bytes: u64,
    pub response_bytes: u64,
}

/// What an item needs, as far as others have to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wants {
    /// Whose it is.
    pub party: Party,
    /// Bytes of its request, while that is kept.
    pub request_bytes: u64,
    /// Bytes of its response, while that is kept.
    pub response_bytes: u64,
    /// The node at the other end.
    pub peer: u64,
    /// Its place in the order in which items came.
    pub number: u64,
    /// Whether it has an object that the peer does not have yet.
    pub sends: bool,
    /// Whether it has a notice that the peer does not have yet.
    pub has_word: bool,
    /// That word is to be said now.
    pub says: bool,
    /// It waits for an exchange with its origin.
    pub waits: bool,
    /// It has one.
    pub running: bool,
    /// Bytes of its object that have not come yet.
    pub awaited_bytes: u64,
    /// When time changes something, ms.
    pub due_ms: Option<u64>,
}

impl Wants {
    /// It keeps these bytes of a request, and there is nothing to do for it.
    pub fn nothing(party: Party, request_bytes: u64) -> Wants {
        Wants {
            party,
            request_bytes,
            response_bytes: 0,
            peer: 0,
            number: 0,
            sends: false,
            has_word: false,
            says: false,
            waits: false,
            running: false,
            awaited_bytes: 0,
            due_ms: None,
        }
    }
}

/// What is kept in an [`Agenda`].
pub(crate) trait Item {
    fn wants(&self, limits: &Limits) -> Wants;
}

/// Items of one kind, by peer, in the order in which they came.
#[derive(Debug)]
struct ByPeer<K>(BTreeMap<u64, BTreeMap<u64, K>>);

impl<K: Copy> ByPeer<K> {
    fn set(&mut self, wants: &Wants, key: K, is_in: bool) {
        let Wants { peer, number, .. } = *wants;
        if is_in {
            self.0.entry(peer).or_default().insert(number, key);
        } else if let Some(items) = self.0.get_mut(&peer) {
            items.remove(&number);
            if items.is_empty() {
                self.0.remove(&peer);
            }
        }
    }

    fn of(&self, peer: u64) -> impl Iterator<Item = K> {
        each(self.0.get(&peer).into_iter().flat_map(BTreeMap::values)).copied()
    }
}

/// Items by their keys, and what there is to do.
#[derive(Debug)]
pub(crate) struct Agenda<K, T> {
    items: HashMap<K, T>,
    /// What the items needed at the last check.
    known: HashMap<K, Wants>,
    /// Those that may want something else by now.
    changed: BTreeSet<K>,
    /// Their peers, since [`Agenda::take_touched`].
    touched: BTreeSet<u64>,
    sending: ByPeer<K>,
    with_word: ByPeer<K>,
    saying: ByPeer<K>,
    waiting: ByPeer<K>,
    running: HashMap<u64, usize>,
    due: BTreeSet<(u64, K)>,
    awaited_bytes: u64,
    held: HashMap<Party, Held>,
    request_bytes: u64,
}

impl<K: Copy + Ord + Hash, T: Item> Agenda<K, T> {
    /// Nothing to do.
    pub fn new() -> Self {
        Agenda {
            items: HashMap::new(),
            known: HashMap::new(),
            changed: BTreeSet::new(),
            touched: BTreeSet::new(),
            sending: ByPeer(BTreeMap::new()),
            with_word: ByPeer(BTreeMap::new()),
            saying: ByPeer(BTreeMap::new()),
            waiting: ByPeer(BTreeMap::new()),
            running: HashMap::new(),
            due: BTreeSet::new(),
            awaited_bytes: 0,
            held: HashMap::new(),
            request_bytes: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn contains_key(&self, key: &K) -> bool {
        self.items.contains_key(key)
    }

    pub fn get(&self, key: &K) -> Option<&T> {
        self.items.get(key)
    }

    /// The item, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut T> {
        count();
        let item = self.items.get_mut(key)?;
        self.changed.insert(*key);
        Some(item)
    }

    /// All items, in no order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        each(self.items.values())
    }

    pub fn insert(&mut self, key: K, item: T) {
        self.items.insert(key, item);
        self.changed.insert(key);
    }

    pub fn remove(&mut self, key: &K) -> Option<T> {
        let item = self.items.remove(key)?;
        self.changed.insert(*key);
        Some(item)
    }

    /// Visits the items that have changed. The other methods reflect the last refresh.
    pub fn refresh(&mut self, limits: &Limits) {
        for key in each(std::mem::take(&mut self.changed)) {
            let wants = self.items.get(&key).map(|item| item.wants(limits));
            let before = match wants {
                Some(wants) => self.known.insert(key, wants),
                None => self.known.remove(&key),
            };
            if let Some(before) = before {
                self.note(key, &before, false);
            }
            if let Some(wants) = wants {
                self.note(key, &wants, true);
            }
        }
    }

    fn note(&mut self, key: K, wants: &Wants, is_in: bool) {
        self.touched.insert(wants.peer);
        for (set, wanted) in [
            (&mut self.sending, wants.sends),
            (&mut self.with_word, wants.has_word),
            (&mut self.saying, wants.says),
            (&mut self.waiting, wants.waits),
        ] {
            if wanted {
                set.set(wants, key, is_in);
            }
        }
        if let Some(due_ms) = wants.due_ms {
            match is_in {
                true => self.due.insert((due_ms, key)),
                false => self.due.remove(&(due_ms, key)),
            };
        }
        let running = self.running.entry(wants.peer).or_default();
        let held = self.held.entry(wants.party).or_default();
        if is_in {
            *running += usize::from(wants.running);
            self.awaited_bytes += wants.awaited_bytes;
            self.request_bytes += wants.request_bytes;
            held.items += 1;
            held.request_bytes += wants.request_bytes;
            held.response_bytes += wants.response_bytes;
        } else {
            *running -= usize::from(wants.running);
            self.awaited_bytes -= wants.awaited_bytes;
            self.request_bytes -= wants.request_bytes;
            held.items -= 1;
            held.request_bytes -= wants.request_bytes;
            held.response_bytes -= wants.response_bytes;
        }
        if *running == 0 {
            self.running.remove(&wants.peer);
        }
        if held.items == 0 {
            self.held.remove(&wants.party);
        }
    }

    /// Something about the peer has changed.
    pub fn touch(&mut self, peer: u64) {
        self.touched.insert(peer);
    }

    /// The peers about whose items something has changed since the last call.
    pub fn take_touched(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.touched)
    }

    /// The first items with an object for the peer.
    pub fn sending(&self, peer: u64, most: usize) -> Vec<K> {
        self.sending.of(peer).take(most).collect()
    }

    /// The items with something to say to the peer now.
    pub fn saying(&self, peer: u64) -> Vec<K> {
        self.saying.of(peer).collect()
    }

    /// The items that the peer has not acknowledged all of.
    pub fn unacknowledged(&self, peer: u64) -> Vec<K> {
        self.sending
            .of(peer)
            .chain(self.with_word.of(peer))
            .collect()
    }

    /// The first of the peer's items that wait for an exchange: as many as may start so that at
    /// most `most` run.
    pub fn startable(&self, peer: u64, most: usize) -> Vec<K> {
        let running = self.running.get(&peer).copied().unwrap_or(0);
        let free = most.saturating_sub(running);
        self.waiting.of(peer).take(free).collect()
    }

    /// Bytes still missing of objects that have begun to come.
    pub fn awaited_bytes(&self) -> u64 {
        self.awaited_bytes
    }

    /// What a party has of all this.
    pub fn held(&self, party: Party) -> Held {
        self.held.get(&party).copied().unwrap_or_default()
    }

    /// Bytes of all requests that are kept.
    pub fn request_bytes(&self) -> u64 {
        self.request_bytes
    }

    /// The items whose time has come.
    pub fn due(&self, now_ms: u64) -> Vec<K> {
        let due = self.due.iter().take_while(|(due_ms, _)| *due_ms <= now_ms);
        each(due).map(|(_, key)| *key).collect()
    }

    /// When the next item's time comes, ms.
    pub fn next_due_ms(&self, limits: &Limits) -> Option<u64> {
        let changed = each(&self.changed).filter_map(|key| self.items.get(key));
        let changed = changed.filter_map(|item| item.wants(limits).due_ms);
        let known = self.due.first().map(|(due_ms, _)| *due_ms);
        known.into_iter().chain(changed).min()
    }
}
