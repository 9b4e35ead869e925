//! Decides by a contact plan where bundles go next, as time goes on, links are blocked
//! and queues fill.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::contact::{Contact, Node};
use crate::router::{ContactId, Route, Router};
use crate::speakers::speakers;

/// An interval in which nothing can be sent to a neighbour; ms since the Unix
/// epoch, the end excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Its start.
    pub from_ms: u64,
    /// Its end.
    pub until_ms: u64,
}

/// The present route to a node, and its first hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// The neighbour that the node's bundles are sent to.
    pub via: Node,
    /// The route that was found.
    pub route: Route,
}

/// Where bundles go next, and which neighbours may send bundles of which source.
#[derive(Debug, Default)]
pub struct Table {
    /// By size of bundle and destination; nodes of the plan without a route at present are
    /// absent.
    pub next: BTreeMap<u64, BTreeMap<Node, NextHop>>,
    /// By source, for each node of the plan: the neighbours from which its bundles can
    /// come.
    pub speakers: Arc<HashMap<Node, BTreeSet<Node>>>,
    /// For each neighbour that the plan has contacts to: whether a contact is open now.
    pub open: BTreeMap<Node, bool>,
}

impl Table {
    /// Where the smallest bundles go next.
    pub fn of_smallest(&self) -> Option<&BTreeMap<Node, NextHop>> {
        self.next.values().next()
    }

    /// The contacts behind a neighbour on the route of bundles that go by it: that of their size,
    /// or of the largest size below.
    fn behind(&self, (node, via, bytes): Way) -> &[ContactId] {
        let tables = self.next.range(..=bytes).rev();
        let mut hops = tables.filter_map(|(_, next)| next.get(&node));
        let hop = hops.find(|hop| hop.via == via);
        let contacts = hop.map_or(&[][..], |hop| hop.route.contacts.as_slice());
        contacts.get(1..).unwrap_or_default()
    }

    fn hop(&self, node: Node, bytes: u64) -> Option<&NextHop> {
        self.next.get(&bytes)?.get(&node)
    }

    fn via(&self, node: Node, bytes: u64) -> Option<Node> {
        self.hop(node, bytes).map(|hop| hop.via)
    }
}

/// What has changed.
#[derive(Debug)]
pub struct Change {
    /// The table that is in force now.
    pub table: Arc<Table>,
    /// Neighbours to which nothing can be sent for now: bundles that wait for them may
    /// have another route.
    pub lost: BTreeSet<Node>,
    /// Destinations, each with a size of bundle: bundles that have a better route now, those
    /// that already wait included.
    pub moved: BTreeSet<(Node, u64)>,
}

/// A contact of the own node, and the pieces of it that blockages leave.
#[derive(Debug)]
struct Own {
    contact: Contact,
    pieces: Vec<(ContactId, Contact)>,
}

/// Bundles that go one way: their destination, the neighbour, and the size that they count as,
/// bytes.
type Way = (Node, Node, u64);

/// What bundles of one way were last booked in further on.
#[derive(Debug)]
struct Onward {
    contacts: Vec<ContactId>,
    bytes: u64,
}

/// Decides by a contact plan where bundles go next.
///
/// A pure state machine: each call brings the time with blockages or backlogs, and
/// returns what has changed.
#[derive(Debug)]
pub struct Forwarding {
    router: Router,
    own: Node,
    /// The size of the smallest bundles for which routes are sought, bytes.
    smallest: u64,
    /// All sizes for which routes are sought, and when each was last asked for, ms.
    sizes: BTreeMap<u64, u64>,
    /// By neighbour, in order of their starts.
    contacts: BTreeMap<Node, Vec<Own>>,
    destinations: BTreeSet<Node>,
    /// Nodes that the plan has contacts to from here and that are not neighbours.
    strangers: BTreeSet<Node>,
    blocked: BTreeMap<Node, Vec<Blocked>>,
    /// The bytes booked for a neighbour, and since when.
    booked: BTreeMap<Node, (u64, u64)>,
    /// No more than have open contacts further on.
    onward: BTreeMap<Way, Onward>,
    /// The contacts behind the neighbours with all that is booked in them. The router learns of
    /// it in steps.
    behind: BTreeMap<ContactId, Contact>,
    usable: BTreeSet<Node>,
    table: Arc<Table>,
    contacts_in_all: usize,
}

/// Backlogs below this do not change routes, bytes.
const LEAST_BACKLOG_BYTES: u64 = 64 << 10;

/// How long routes are sought for a size of bundle after it was last asked for, ms. Otherwise one
/// large bundle would cost searches as long as the plan is followed.
const SIZE_KEPT_MS: u64 = 600_000;

impl Forwarding {
    /// Follows a plan at node `own`, which has sessions with `neighbours`. Routes are
    /// sought for a bundle of `bytes`, and for the larger ones of [`Forwarding::seek_for`].
    pub fn new(
        own: Node,
        plan: Vec<Contact>,
        neighbours: &BTreeSet<Node>,
        bytes: u64,
    ) -> Forwarding {
        let contacts_in_all = plan.len();
        let table = Table {
            speakers: Arc::new(speakers(own, &plan)),
            ..Table::default()
        };
        let mut router = Router::new(own);
        let mut contacts: BTreeMap<Node, Vec<Own>> = BTreeMap::new();
        let (mut destinations, mut strangers) = (BTreeSet::new(), BTreeSet::new());
        for contact in plan {
            destinations.extend([contact.from, contact.to]);
            if contact.from != own {
                router.add(contact);
            } else if neighbours.contains(&contact.to) {
                let pieces = vec![(router.add(contact.clone()), contact.clone())];
                let of_neighbour = contacts.entry(contact.to).or_default();
                of_neighbour.push(Own { contact, pieces });
            } else {
                strangers.insert(contact.to);
            }
        }
        destinations.remove(&own);
        for of_neighbour in contacts.values_mut() {
            of_neighbour.sort_by_key(|own| own.contact.start_ms);
        }
        Forwarding {
            router,
            own,
            smallest: bytes,
            sizes: BTreeMap::from([(bytes, 0)]),
            contacts,
            destinations,
            strangers,
            blocked: BTreeMap::new(),
            booked: BTreeMap::new(),
            onward: BTreeMap::new(),
            behind: BTreeMap::new(),
            usable: BTreeSet::new(),
            table: Arc::new(table),
            contacts_in_all,
        }
    }

    /// From the next [`Forwarding::advance`] on, also seeks routes for bundles of these sizes,
    /// bytes: only contacts into which such a bundle still fits count (CCSDS 734.3-B-1). Each
    /// size costs as much as the first one, so there should be few; one that was not asked for
    /// in the last ten minutes is forgotten. Smaller sizes than the first one have its routes.
    pub fn seek_for(&mut self, now_ms: u64, sizes: &BTreeSet<u64>) {
        let larger = sizes.iter().filter(|size| **size > self.smallest);
        self.sizes.extend(larger.map(|size| (*size, now_ms)));
        let (smallest, router) = (self.smallest, &mut self.router);
        self.sizes.retain(|size, asked_ms| {
            // The clock may have been set back.
            *asked_ms = now_ms.min(*asked_ms);
            let keep = *size == smallest || now_ms - *asked_ms < SIZE_KEPT_MS;
            if !keep {
                router.forget_size(*size);
            }
            keep
        });
    }

    /// The table that is in force now.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The node that it decides for.
    pub fn own(&self) -> Node {
        self.own
    }

    /// The number of contacts of the plan.
    pub fn contacts(&self) -> usize {
        self.contacts_in_all
    }

    /// The nodes of the plan other than this one.
    pub fn destinations(&self) -> &BTreeSet<Node> {
        &self.destinations
    }

    /// Nodes that the plan has contacts to from here and that are not neighbours: their
    /// contacts are not used.
    pub fn strangers(&self) -> &BTreeSet<Node> {
        &self.strangers
    }

    /// The number of searches for routes so far.
    pub fn searches(&self) -> u64 {
        self.router.searches()
    }

    /// The contacts of a route that are still in the plan, without the part before `now_ms` of
    /// those that bytes are booked in.
    pub fn contacts_of(&self, route: &Route, now_ms: u64) -> Vec<Contact> {
        let contacts = route.contacts.iter();
        let contacts = contacts.filter_map(|id| self.router.contact(*id));
        let left = contacts.map(|contact| match contact.booked_bytes {
            0 => contact.clone(),
            _ => Contact {
                start_ms: contact.start_ms.max(now_ms.min(contact.end_ms)),
                booked_bytes: contact.waiting_bytes(now_ms),
                ..contact.clone()
            },
        });
        left.collect()
    }

    /// The next time at which a contact of this node begins or ends.
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        let all = self.contacts.values().flatten();
        let times = all.flat_map(|own| [own.contact.start_ms, own.contact.end_ms]);
        times.filter(|at| *at > now_ms).min()
    }

    /// Takes the time and the blockages of the links to all neighbours, predicted ones
    /// included. The blockages of each neighbour must be in order and disjoint.
    pub fn advance(
        &mut self,
        now_ms: u64,
        blocked: &BTreeMap<Node, Vec<Blocked>>,
    ) -> Option<Change> {
        let none = Vec::new();
        let before = self.table.clone();
        let mut own_changed = false;
        let neighbours: Vec<Node> = self.contacts.keys().copied().collect();
        for neighbour in &neighbours {
            let of_neighbour = blocked.get(neighbour).unwrap_or(&none);
            if self.blocked.get(neighbour).unwrap_or(&none) != of_neighbour {
                own_changed = true;
                self.blocked.insert(*neighbour, of_neighbour.clone());
                self.cut(*neighbour);
            }
        }
        let is_usable = |neighbour: &Node| self.is_usable(*neighbour, now_ms);
        let usable: BTreeSet<Node> = neighbours.iter().copied().filter(is_usable).collect();
        let lost: BTreeSet<Node> = self.usable.difference(&usable).copied().collect();
        own_changed |= self.usable != usable;
        self.usable = usable;
        let mut change = self.update(now_ms);
        if let Some(change) = &mut change {
            // If nothing but the time has changed, the booked backlog may seem to have
            // been sent. Waiting bundles then leave only a route that leads nowhere any
            // more.
            change.moved.retain(|(node, bytes)| {
                let way = before.hop(*node, *bytes);
                own_changed || way.is_none_or(|way| !self.still_leads(way, *bytes, now_ms))
            });
            change.lost = lost;
        } else if !lost.is_empty() {
            change = Some(Change {
                table: self.table.clone(),
                lost,
                moved: BTreeSet::new(),
            });
        }
        change
    }

    /// Takes the bytes that wait for each neighbour: new bundles are sent after them.
    /// Bundles that already wait stay where they are.
    ///
    /// `given` has, by destination, neighbour and the size that the bundles count as, the bytes
    /// that were given to the neighbour's queue since the last call; negative if more were taken
    /// out of it without being forwarded. They are booked in the further contacts of the present
    /// route of bundles of that size (CCSDS 734.3-B-1).
    pub fn book(
        &mut self,
        now_ms: u64,
        backlog: &BTreeMap<Node, u64>,
        given: &BTreeMap<Way, i64>,
    ) -> Option<Change> {
        let neighbours: Vec<Node> = self.contacts.keys().copied().collect();
        let mut changed = self.book_onward(now_ms, given);
        for neighbour in neighbours {
            // Powers of two are near enough, and change the plan seldom.
            let bytes = backlog.get(&neighbour).copied().unwrap_or(0);
            let bytes = match bytes < LEAST_BACKLOG_BYTES {
                true => 0,
                false => 1 << bytes.ilog2(),
            };
            let before = self.booked.get(&neighbour).copied();
            let stale = |(_, since_ms): (u64, u64)| self.is_stale(neighbour, since_ms, now_ms);
            let same = match before {
                None => bytes == 0,
                Some(booked) => booked.0 == bytes && !stale(booked),
            };
            if same {
                continue;
            }
            match bytes {
                0 => self.booked.remove(&neighbour),
                bytes => self.booked.insert(neighbour, (bytes, now_ms)),
            };
            self.cut(neighbour);
            changed = true;
        }
        let mut change = changed.then(|| self.update(now_ms))??;
        change.moved.clear();
        Some(change)
    }

    /// Books in the contacts behind the neighbours. Returns whether anything has changed.
    fn book_onward(&mut self, now_ms: u64, given: &BTreeMap<Way, i64>) -> bool {
        let router = &self.router;
        let lasts = |id: &ContactId| router.contact(*id).is_some_and(|one| now_ms < one.end_ms);
        self.onward
            .retain(|_, onward| onward.contacts.iter().any(lasts));
        // Each contact is changed once, however many nodes are behind it.
        let mut changes: BTreeMap<ContactId, i64> = BTreeMap::new();
        let mut change = |contacts: &[ContactId], bytes: i64| {
            for id in contacts {
                let of_contact = changes.entry(*id).or_default();
                *of_contact = of_contact.saturating_add(bytes);
            }
        };
        for (way, bytes) in given {
            if *bytes < 0 {
                let Some(onward) = self.onward.get_mut(way) else {
                    continue;
                };
                let back = onward.bytes.min(bytes.unsigned_abs());
                if back == 0 {
                    continue;
                }
                onward.bytes -= back;
                change(
                    onward.contacts.as_slice(),
                    -i64::try_from(back).unwrap_or(i64::MAX),
                );
                continue;
            }
            let contacts = self.table.behind(*way);
            if contacts.is_empty() || *bytes == 0 {
                continue;
            }
            change(contacts, *bytes);
            let onward = self.onward.entry(*way).or_insert_with(|| Onward {
                contacts: contacts.to_vec(),
                bytes: 0,
            });
            if onward.contacts != contacts {
                onward.contacts = contacts.to_vec();
                onward.bytes = 0;
            }
            onward.bytes = onward.bytes.saturating_add(bytes.unsigned_abs());
        }
        self.behind.retain(|_, contact| now_ms < contact.end_ms);
        let mut changed = false;
        for (id, bytes) in changes {
            changed |= self.book_behind(id, bytes, now_ms);
        }
        changed
    }

    /// Books bytes in one contact behind the neighbours. Returns whether the routes may change.
    ///
    /// Less than the contact carries in a second, or than the smallest bundle that routes are
    /// sought for, is told to the router only together with later bytes: otherwise steady traffic
    /// would have routes sought anew at each call.
    fn book_behind(&mut self, id: ContactId, bytes: i64, now_ms: u64) -> bool {
        let Some(known) = self.router.contact(id) else {
            return false;
        };
        let booked = self.behind.entry(id).or_insert_with(|| known.clone());
        booked.book(bytes, now_ms);
        let waiting = [known, &*booked].map(|contact| contact.waiting_bytes(now_ms));
        let step = self
            .smallest
            .min(LEAST_BACKLOG_BYTES)
            .max(known.rate_bytes_per_s);
        if waiting[0].abs_diff(waiting[1]) < step {
            return false;
        }
        let booked_bytes = booked.booked_bytes;
        self.router
            .change(id, |contact| contact.booked_bytes = booked_bytes)
    }

    /// Whether a route still leads a bundle of `bytes` to its destination.
    fn still_leads(&self, way: &NextHop, bytes: u64, now_ms: u64) -> bool {
        let mut contacts = way.route.contacts.iter();
        let arrival = contacts.try_fold(now_ms, |ready_ms, id| {
            let contact = self.router.contact(*id)?;
            contact.arrival_ms(ready_ms, bytes)
        });
        arrival.is_some()
    }

    /// Whether the backlog booked at `since_ms` would have been sent by now, or the clock
    /// was set back since: the contacts would begin at `since_ms` at the earliest.
    fn is_stale(&self, neighbour: Node, since_ms: u64, now_ms: u64) -> bool {
        let contacts = self.contacts.get(&neighbour).into_iter().flatten();
        let mut pieces = contacts.flat_map(|own| &own.pieces);
        let booked = |(_, piece): &(ContactId, Contact)| {
            let sent = piece.arrival_ms(since_ms, 0);
            piece.booked_bytes > 0 && sent.is_none_or(|at| at <= now_ms + piece.owlt_ms)
        };
        now_ms < since_ms || now_ms > since_ms && pieces.any(booked)
    }

    fn is_usable(&self, neighbour: Node, now_ms: u64) -> bool {
        let contacts = self.contacts.get(&neighbour).into_iter().flatten();
        let is_in = |from_ms: u64, until_ms: u64| from_ms <= now_ms && now_ms < until_ms;
        let blocked = self.blocked.get(&neighbour).into_iter().flatten();
        let mut open = contacts.map(|own| &own.contact);
        let mut blocked = blocked.filter(|blocked| is_in(blocked.from_ms, blocked.until_ms));
        open.any(|contact| is_in(contact.start_ms, contact.end_ms)) && blocked.next().is_none()
    }

    /// Tells the router what blockages and bookings leave of the contacts to a neighbour.
    fn cut(&mut self, neighbour: Node) {
        let blocked = self.blocked.get(&neighbour).map_or(&[][..], Vec::as_slice);
        let (mut left, since_ms) = self.booked.get(&neighbour).copied().unwrap_or_default();
        for own in self.contacts.get_mut(&neighbour).into_iter().flatten() {
            let mut pieces = pieces_of(&own.contact, blocked);
            for piece in &mut pieces {
                if left > 0 && piece.end_ms > since_ms {
                    piece.start_ms = piece.start_ms.max(since_ms);
                    piece.booked_bytes = left.min(piece.volume_bytes_until(piece.end_ms));
                    left -= piece.booked_bytes;
                }
            }
            let mut pieces = pieces.into_iter();
            let mut kept = Vec::new();
            for (id, before) in own.pieces.drain(..) {
                let Some(piece) = pieces.next() else {
                    self.router.remove(id);
                    continue;
                };
                if piece != before {
                    self.router.change(id, |contact| *contact = piece.clone());
                }
                kept.push((id, piece));
            }
            kept.extend(pieces.map(|piece| (self.router.add(piece.clone()), piece)));
            own.pieces = kept;
        }
    }

    /// Finds those routes again that may have changed.
    fn update(&mut self, now_ms: u64) -> Option<Change> {
        let mut next = BTreeMap::new();
        for bytes in self.sizes.keys() {
            let mut of_size = BTreeMap::new();
            for node in &self.destinations {
                if let Some(route) = self.router.route(*node, *bytes, now_ms) {
                    let via = route.entry;
                    of_size.insert(*node, NextHop { via, route });
                }
            }
            next.insert(*bytes, of_size);
        }
        let is_open = |own: &Own| own.contact.start_ms <= now_ms && now_ms < own.contact.end_ms;
        let open = self.contacts.iter();
        let open = open.map(|(neighbour, contacts)| (*neighbour, contacts.iter().any(is_open)));
        let open: BTreeMap<Node, bool> = open.collect();
        let speakers = self.table.speakers.clone();
        let table = Table {
            next,
            speakers,
            open,
        };
        let sizes = self.sizes.keys().copied();
        let all = sizes.flat_map(|bytes| self.destinations.iter().map(move |node| (*node, bytes)));
        let moved: BTreeSet<(Node, u64)> = all
            .filter(|(node, bytes)| table.via(*node, *bytes) != self.table.via(*node, *bytes))
            .collect();
        // A table that is not kept up any more must not stay in use.
        let mut before = self.table.next.keys();
        let forgotten = before.any(|bytes| !table.next.contains_key(bytes));
        let same = moved.is_empty() && !forgotten && table.open == self.table.open;
        // Arrival times change as time goes on; that alone changes no route's first hop.
        self.table = Arc::new(table);
        (!same).then(|| Change {
            table: self.table.clone(),
            lost: BTreeSet::new(),
            moved,
        })
    }
}

/// The pieces of a contact that blockages leave.
fn pieces_of(contact: &Contact, blocked: &[Blocked]) -> Vec<Contact> {
    let mut pieces = Vec::new();
    let mut rest = contact.clone();
    for Blocked { from_ms, until_ms } in blocked {
        if *until_ms <= rest.start_ms || *from_ms >= rest.end_ms {
            continue;
        }
        if rest.start_ms < *from_ms {
            let end_ms = *from_ms;
            pieces.push(Contact {
                end_ms,
                ..rest.clone()
            });
        }
        rest.start_ms = *until_ms;
        if rest.start_ms >= rest.end_ms {
            return pieces;
        }
    }
    pieces.push(rest);
    pieces
}
