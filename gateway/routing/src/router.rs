//! Routes through a contact plan, and the plan's changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::arrivals::Arrivals;
use crate::contact::{Contact, Node};
use crate::graph::Graph;
use crate::search::Search;

/// Identifies a contact for the life of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContactId(pub u64);

/// A route through the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Its contacts, in order.
    pub contacts: Vec<ContactId>,
    /// The neighbour that is its first hop.
    pub entry: Node,
    /// When the last byte arrives, ms.
    pub arrival_ms: u64,
    /// When the first of its contacts ends, ms.
    pub termination_ms: u64,
}

/// The question that a route answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Asked {
    bytes: u64,
    to: Node,
}

/// A route that was found, and the time for which it was sought.
#[derive(Debug)]
struct Known {
    at_ms: u64,
    route: Option<Route>,
}

impl Known {
    /// When the bundle arrives, ms; never without a route.
    fn arrival_ms(&self) -> u64 {
        let route = self.route.as_ref();
        route.map_or(u64::MAX, |route| route.arrival_ms)
    }
}

/// When the bundles of the known routes are ready at the earliest, and arrive at the latest, ms.
struct Span {
    at_ms: u64,
    last_ms: u64,
}

/// The most routes that are kept; others are sought anew each time.
const KNOWN_ROUTES: usize = 100_000;

/// The arrivals that the next searches share, as long as the plan is unchanged.
#[derive(Debug)]
struct Shared {
    bytes: u64,
    at_ms: u64,
    arrivals: Arrivals,
}

/// Finds routes from one node (Schedule-Aware Bundle Routing, CCSDS 734.3-B-1). Routes
/// are kept. After a change of the plan, only those routes are sought again that use the
/// contact, or that a new or better contact could beat.
#[derive(Debug)]
pub struct Router {
    own: Node,
    contacts: HashMap<ContactId, Contact>,
    graph: Graph,
    next_id: u64,
    known: BTreeMap<Asked, Known>,
    /// The routes that use a contact.
    users: HashMap<ContactId, BTreeSet<Asked>>,
    shared: Option<Shared>,
    searches: u64,
}

impl Router {
    /// A router at node `own`, with an empty plan.
    pub fn new(own: Node) -> Router {
        Router {
            own,
            contacts: HashMap::new(),
            graph: Graph::default(),
            next_id: 0,
            known: BTreeMap::new(),
            users: HashMap::new(),
            shared: None,
            searches: 0,
        }
    }

    /// Adds a contact.
    pub fn add(&mut self, contact: Contact) -> ContactId {
        let id = ContactId(self.next_id);
        self.next_id += 1;
        self.put(id, contact);
        id
    }

    /// Removes a contact from the plan, and returns it.
    pub fn remove(&mut self, id: ContactId) -> Option<Contact> {
        let contact = self.contacts.remove(&id)?;
        self.graph.remove(id, &contact);
        self.shared = None;
        for asked in self.users.remove(&id).unwrap_or_default() {
            self.forget(asked);
        }
        Some(contact)
    }

    /// Changes a contact's times, rate or booked bytes; false if there is no such
    /// contact.
    pub fn change(&mut self, id: ContactId, change: impl FnOnce(&mut Contact)) -> bool {
        let Some(before) = self.remove(id) else {
            return false;
        };
        let mut contact = before.clone();
        change(&mut contact);
        if contact.is_no_better_than(&before) {
            self.insert(id, &contact);
            self.contacts.insert(id, contact);
        } else {
            self.put(id, contact);
        }
        true
    }

    /// A contact of the plan.
    pub fn contact(&self, id: ContactId) -> Option<&Contact> {
        self.contacts.get(&id)
    }

    /// The best route for `bytes` that are ready at `at_ms`: the one that arrives first;
    /// of those, the one with the fewest hops; of those, the one whose first contact to
    /// end ends last; of those, the one whose first hop has the smallest number
    /// (CCSDS 734.3-B-1). None if no route has enough time.
    pub fn route(&mut self, to: Node, bytes: u64, at_ms: u64) -> Option<Route> {
        let asked = Asked { to, bytes };
        if let Some(known) = self.known.get(&asked)
            && self.still_holds(known, bytes, at_ms)
        {
            return known.route.clone();
        }
        self.forget(asked);
        self.searches += 1;
        let route = self.search(to, bytes, at_ms);
        if self.known.len() < KNOWN_ROUTES {
            for id in route.iter().flat_map(|route| &route.contacts) {
                self.users.entry(*id).or_default().insert(asked);
            }
            let known = Known {
                at_ms,
                route: route.clone(),
            };
            self.known.insert(asked, known);
        }
        route
    }

    /// Forgets the routes for bundles of a size that is not asked for any more: routes of each
    /// size cost a search when a contact is added or becomes better.
    pub fn forget_size(&mut self, bytes: u64) {
        let of_size: Vec<Asked> = self.of_size(bytes).map(|(asked, _)| *asked).collect();
        for asked in of_size {
            self.forget(asked);
        }
    }

    /// The number of searches so far.
    pub fn searches(&self) -> u64 {
        self.searches
    }

    /// A route that was the best from an earlier time on is the best now if it still
    /// arrives as early as then. No other route has become better meanwhile, and its own
    /// hops and end are unchanged.
    fn still_holds(&self, known: &Known, bytes: u64, at_ms: u64) -> bool {
        let Some(route) = &known.route else {
            return known.at_ms <= at_ms;
        };
        let mut ready_ms = at_ms;
        for id in &route.contacts {
            let contact = self.contacts.get(id);
            let arrival = contact.and_then(|contact| contact.arrival_ms(ready_ms, bytes));
            let Some(arrival) = arrival else {
                return false;
            };
            ready_ms = arrival;
        }
        known.at_ms <= at_ms && ready_ms == route.arrival_ms
    }

    fn search(&mut self, to: Node, bytes: u64, at_ms: u64) -> Option<Route> {
        let [from, to] = [self.own, to].map(|node| self.graph.place(node));
        let (from, to) = from.zip(to)?;
        let shared = self.shared.take();
        let shared = shared.filter(|shared| (shared.bytes, shared.at_ms) == (bytes, at_ms));
        let shared = shared.unwrap_or_else(|| Shared {
            bytes,
            at_ms,
            arrivals: Arrivals::new(&self.graph, from, bytes, at_ms, u64::MAX),
        });
        let search = Search {
            graph: &self.graph,
            arrivals: &shared.arrivals,
            from,
            bytes,
            at_ms,
        };
        let route = search.best(to);
        self.shared = Some(shared);
        route
    }

    /// Adds a contact, or replaces one by a better one. Known routes are forgotten if
    /// their destination can be reached through this contact at least as early.
    fn put(&mut self, id: ContactId, contact: Contact) {
        self.insert(id, &contact);
        self.contacts.insert(id, contact);
        let Some(contact) = self.contacts.get(&id) else {
            return;
        };
        let Some(place) = self.graph.place(contact.to) else {
            return;
        };
        let mut beaten: Vec<Asked> = Vec::new();
        for (bytes, Span { at_ms, last_ms }) in self.spans() {
            let Some(arrival) = contact.arrival_ms(at_ms, bytes) else {
                continue;
            };
            let behind = Arrivals::new(&self.graph, place, bytes, arrival, last_ms);
            let of_size = self.of_size(bytes).filter(|(asked, known)| {
                let place = self.graph.place(asked.to);
                let earliest = place.and_then(|place| behind.at(place));
                earliest.is_some_and(|(earliest, _)| earliest <= known.arrival_ms())
            });
            beaten.extend(of_size.map(|(asked, _)| *asked));
        }
        for asked in beaten {
            self.forget(asked);
        }
    }

    /// The known routes for bundles of a size.
    fn of_size(&self, bytes: u64) -> impl Iterator<Item = (&Asked, &Known)> {
        let ends = [0, Node::MAX].map(|to| Asked { bytes, to });
        self.known.range(ends[0]..=ends[1])
    }

    /// By size of bundle, the times of the known routes. A bundle that is ready at the earliest
    /// of them arrives no later than any that the routes of its size were sought for.
    fn spans(&self) -> BTreeMap<u64, Span> {
        let mut spans: BTreeMap<u64, Span> = BTreeMap::new();
        for (asked, known) in &self.known {
            let last_ms = known.arrival_ms();
            let at_ms = known.at_ms;
            let span = spans.entry(asked.bytes);
            let span = span.or_insert(Span { at_ms, last_ms });
            span.at_ms = span.at_ms.min(at_ms);
            span.last_ms = span.last_ms.max(last_ms);
        }
        spans
    }

    fn insert(&mut self, id: ContactId, contact: &Contact) {
        self.graph.insert(id, contact);
        self.shared = None;
    }

    fn forget(&mut self, asked: Asked) {
        let Some(known) = self.known.remove(&asked) else {
            return;
        };
        for id in known.route.into_iter().flat_map(|route| route.contacts) {
            if let Some(users) = self.users.get_mut(&id) {
                users.remove(&asked);
                if users.is_empty() {
                    self.users.remove(&id);
                }
            }
        }
    }
}
