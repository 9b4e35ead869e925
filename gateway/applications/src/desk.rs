//! Decides which client gets which bundle next: the state of the desk at which
//! applications fetch their bundles, without I/O or clock.
//!
//! The desk knows bundles only by their number in the mailbox, and keeps them in the
//! order in which they came. A client may have a bounded number of unacknowledged
//! bundles. If it disconnects, these wait again, in their old order.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use crate::wire::ErrorCode;

/// The id of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u64);

/// Bundles that a client may have before it acknowledges the first.
const MOST_UNACKNOWLEDGED: usize = 16;

/// The most bytes of these bundles, beyond one bundle.
const MOST_UNACKNOWLEDGED_BYTES: u64 = 1 << 20;

/// Services that one client may have.
const MOST_SERVICES: usize = 16;

/// A bundle in the mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its number in the mailbox; later bundles have higher numbers.
    pub number: u64,
    /// The service that it is for.
    pub service: u64,
    /// The length of its payload, bytes.
    pub bytes: u64,
    /// When its lifetime ends, on the mailbox's clock, ms.
    pub expires_ms: u64,
}

/// What the caller has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Deliver a bundle to a client.
    Deliver {
        /// The client.
        client: ClientId,
        /// The bundle's number.
        number: u64,
    },
    /// Forget a bundle.
    Forget {
        /// Its number.
        number: u64,
        /// Whether its lifetime has ended; otherwise it was acknowledged.
        expired: bool,
    },
}

/// Why a client does not get a service.
pub type Taken = ErrorCode;

#[derive(Debug, Default)]
struct Endpoint {
    client: Option<ClientId>,
    waiting: BTreeMap<u64, u64>,
}

#[derive(Debug, Default)]
struct Client {
    services: BTreeSet<u64>,
    /// Services that may have a bundle for it, in round-robin order.
    turns: VecDeque<u64>,
    unacknowledged: BTreeSet<u64>,
    unacknowledged_bytes: u64,
}

impl Client {
    fn takes(&self, bytes: u64) -> bool {
        let first = self.unacknowledged.is_empty();
        let most = MOST_UNACKNOWLEDGED_BYTES;
        self.unacknowledged.len() < MOST_UNACKNOWLEDGED
            && (first || self.unacknowledged_bytes + bytes <= most)
    }
}

/// The state of the desk.
#[derive(Debug, Default)]
pub struct Desk {
    items: HashMap<u64, (Item, Option<ClientId>)>,
    endpoints: BTreeMap<u64, Endpoint>,
    clients: HashMap<ClientId, Client>,
    expiries: BTreeSet<(u64, u64)>,
    outputs: VecDeque<Output>,
}

impl Desk {
    /// The next thing that the caller has to do.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Desk::expire`] is to be called, on the mailbox's clock, ms.
    pub fn next_expiry_ms(&self) -> Option<u64> {
        self.expiries.first().map(|(at, _)| *at)
    }

    /// The number of bundles in the mailbox.
    pub fn count(&self) -> usize {
        self.items.len()
    }

    /// Adds a bundle that is in the mailbox now.
    pub fn arrived(&mut self, item: Item) {
        let Item {
            number, service, ..
        } = item;
        self.keep(item);
        let endpoint = self.endpoints.entry(service).or_default();
        endpoint.waiting.insert(number, item.bytes);
        if let Some(client) = endpoint.client {
            self.take_turn(client, service);
            self.serve(client);
        }
    }

    /// Adds a bundle of the mailbox that cannot be delivered (its payload's file is
    /// missing). It stays until its lifetime ends, since the file may come back.
    pub fn keep(&mut self, item: Item) {
        self.items.insert(item.number, (item, None));
        self.expiries.insert((item.expires_ms, item.number));
    }

    /// Adds a client.
    pub fn connect(&mut self, client: ClientId) {
        self.clients.entry(client).or_default();
    }

    /// Removes a client: its unacknowledged bundles wait again.
    pub fn disconnect(&mut self, client: ClientId) {
        let Some(gone) = self.clients.remove(&client) else {
            return;
        };
        for number in gone.unacknowledged {
            if let Some((item, with)) = self.items.get_mut(&number) {
                *with = None;
                let endpoint = self.endpoints.entry(item.service).or_default();
                endpoint.waiting.insert(number, item.bytes);
            }
        }
        for service in gone.services {
            if let Some(endpoint) = self.endpoints.get_mut(&service) {
                endpoint.client = None;
            }
            self.forget_empty(service);
        }
    }

    /// Whether no client has a service and no bundle waits for it.
    pub fn is_free(&self, service: u64) -> bool {
        !self.endpoints.contains_key(&service)
    }

    /// Gives a client a service, and the bundles that wait for it.
    ///
    /// # Errors
    /// When another client has it, or this one has too many.
    pub fn register(&mut self, client: ClientId, service: u64) -> Result<(), Taken> {
        let Some(of_client) = self.clients.get_mut(&client) else {
            return Err(ErrorCode::Closing);
        };
        if of_client.services.contains(&service) {
            return Ok(());
        }
        let endpoint = self.endpoints.get(&service);
        if endpoint.is_some_and(|endpoint| endpoint.client.is_some()) {
            return Err(ErrorCode::Taken);
        }
        if of_client.services.len() >= MOST_SERVICES {
            return Err(ErrorCode::TooMany);
        }
        of_client.services.insert(service);
        self.endpoints.entry(service).or_default().client = Some(client);
        self.take_turn(client, service);
        self.serve(client);
        Ok(())
    }

    /// The client that has a service.
    pub fn client_of(&self, service: u64) -> Option<ClientId> {
        self.endpoints.get(&service)?.client
    }

    /// Takes a client's acknowledgement of a bundle. It is ignored if the client was not
    /// given that bundle, or if the bundle's lifetime has ended.
    pub fn acknowledge(&mut self, client: ClientId, number: u64) {
        let item = self.items.get(&number);
        if item.is_some_and(|(_, with)| *with == Some(client)) {
            self.remove(number, false);
        }
    }

    /// Forgets the bundles whose lifetime has ended.
    pub fn expire(&mut self, now_ms: u64) {
        while let Some((at, number)) = self.expiries.first().copied() {
            if at > now_ms {
                break;
            }
            self.remove(number, true);
        }
    }

    fn remove(&mut self, number: u64, expired: bool) {
        let Some((item, with)) = self.items.remove(&number) else {
            return;
        };
        self.expiries.remove(&(item.expires_ms, number));
        if let Some(endpoint) = self.endpoints.get_mut(&item.service) {
            endpoint.waiting.remove(&number);
        }
        self.outputs.push_back(Output::Forget { number, expired });
        match with {
            Some(client) => {
                if let Some(with) = self.clients.get_mut(&client) {
                    with.unacknowledged.remove(&number);
                    with.unacknowledged_bytes -= item.bytes;
                }
                self.serve(client);
            }
            None => self.forget_empty(item.service),
        }
    }

    fn forget_empty(&mut self, service: u64) {
        let endpoint = self.endpoints.get(&service);
        if endpoint.is_some_and(|e| e.client.is_none() && e.waiting.is_empty()) {
            self.endpoints.remove(&service);
        }
    }

    fn take_turn(&mut self, client: ClientId, service: u64) {
        if let Some(client) = self.clients.get_mut(&client)
            && !client.turns.contains(&service)
        {
            client.turns.push_back(service);
        }
    }

    /// Delivers to a client as many bundles as it may have, one of each service in turn.
    fn serve(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        while let Some(service) = client.turns.front().copied() {
            let endpoint = self.endpoints.get_mut(&service);
            let first = endpoint.and_then(|endpoint| endpoint.waiting.first_entry());
            let Some(first) = first else {
                client.turns.pop_front();
                continue;
            };
            let (number, bytes) = (*first.key(), *first.get());
            if !client.takes(bytes) {
                return;
            }
            first.remove();
            client.turns.rotate_left(1);
            client.unacknowledged.insert(number);
            client.unacknowledged_bytes += bytes;
            if let Some((_, with)) = self.items.get_mut(&number) {
                *with = Some(id);
            }
            let client = id;
            self.outputs.push_back(Output::Deliver { client, number });
        }
    }
}

#[cfg(test)]
mod tests;
