//! How many contacts each source has open.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use underpass_customer::customer;

/// Ends a contact that has said nothing; it never blocks.
type Leave = Box<dyn FnOnce() + Send>;

/// Most remembered sources from which peers have proved their identity.
const MOST_KNOWN: usize = 4_096;

/// Bounds the contacts of each source that are not sessions yet. Of sources without a contact it
/// remembers only some, from which peers have proved their identity.
#[derive(Clone, Debug)]
pub struct Sources {
    most: usize,
    of_all: usize,
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    sources: HashMap<IpAddr, Contacts>,
    /// The contacts of all of them.
    contacts: usize,
    next_number: u64,
    known: Known,
}

/// The last sources from which peers have proved their identity.
#[derive(Debug, Default)]
struct Known {
    numbers: HashMap<IpAddr, u64>,
    /// The same, the least recently seen one first.
    in_order: BTreeMap<u64, IpAddr>,
    next_number: u64,
}

impl Known {
    fn contains(&self, source: &IpAddr) -> bool {
        self.numbers.contains_key(source)
    }

    fn insert(&mut self, source: IpAddr) {
        let number = self.next_number;
        self.next_number += 1;
        if let Some(before) = self.numbers.insert(source, number) {
            self.in_order.remove(&before);
        }
        self.in_order.insert(number, source);
        if self.in_order.len() > MOST_KNOWN
            && let Some((_, first)) = self.in_order.pop_first()
        {
            self.numbers.remove(&first);
        }
    }
}

#[derive(Default)]
struct Contacts {
    /// Those that keep their places.
    speaking: usize,
    /// Those that have said nothing yet, in the order in which they came.
    silent: BTreeMap<u64, Leave>,
}

impl Contacts {
    fn len(&self) -> usize {
        self.speaking + self.silent.len()
    }
}

impl fmt::Debug for Contacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contacts")
            .field("speaking", &self.speaking)
            .field("silent", &self.silent.len())
            .finish()
    }
}

/// One contact of a source, until it is dropped.
#[derive(Debug)]
pub struct SourcePlace {
    sources: Sources,
    source: IpAddr,
    /// Its number, while it has said nothing.
    silent: Option<u64>,
}

impl Sources {
    /// At most so many contacts for each source.
    pub fn new(most: usize) -> Self {
        Sources::among(0, most)
    }

    /// The same if all sources together have `of_all` contacts. A source from which a peer has
    /// proved its identity may be an address translator with many peers behind it: it may have
    /// more, but no more than it leaves free.
    pub fn among(of_all: usize, most: usize) -> Self {
        Self {
            most,
            of_all,
            open: Arc::default(),
        }
    }

    /// One more contact from `address`, unless there are too many.
    pub fn enter(&self, address: IpAddr) -> Option<SourcePlace> {
        self.enter_as(address, None)
    }

    /// The same for a contact that has sent nothing yet. Until [`SourcePlace::speaks`], it is told
    /// to `leave` when its source has one contact too many and this one has been silent for the
    /// longest time.
    pub fn enter_silent(
        &self,
        address: IpAddr,
        leave: impl FnOnce() + Send + 'static,
    ) -> Option<SourcePlace> {
        self.enter_as(address, Some(Box::new(leave)))
    }

    /// Tells the contact to leave that has been silent for the longest time at the source with the
    /// most silent ones.
    pub fn make_room(&self) {
        let mut open = self.open.lock().unwrap();
        let open = &mut *open;
        let most = open.sources.values_mut().max_by_key(|contacts| {
            let longest = contacts.silent.keys().next().copied();
            (contacts.silent.len(), Reverse(longest))
        });
        if let Some((_, longest)) = most.and_then(|contacts| contacts.silent.pop_first()) {
            open.contacts -= 1;
            longest();
        }
    }

    fn enter_as(&self, address: IpAddr, leave: Option<Leave>) -> Option<SourcePlace> {
        let source = customer(address);
        let mut open = self.open.lock().unwrap();
        let open = &mut *open;
        let number = open.next_number;
        open.next_number += 1;
        let free = self.of_all.saturating_sub(open.contacts);
        let most = match open.known.contains(&source) {
            true => self.most.max(free),
            false => self.most,
        };
        let contacts = open.sources.entry(source).or_default();
        if contacts.len() >= most {
            let (_, longest) = contacts.silent.pop_first()?;
            open.contacts -= 1;
            longest();
        }
        open.contacts += 1;
        let silent = leave.map(|leave| {
            contacts.silent.insert(number, leave);
            number
        });
        contacts.speaking += usize::from(silent.is_none());
        Some(SourcePlace {
            sources: self.clone(),
            source,
            silent,
        })
    }
}

impl SourcePlace {
    /// The contact is over, and its peer has proved its identity.
    pub fn proved(self) {
        let mut open = self.sources.open.lock().unwrap();
        open.known.insert(self.source);
    }

    /// The contact has sent something, and keeps its place; false if a newer one has it already.
    pub fn speaks(&mut self) -> bool {
        let Some(number) = self.silent else {
            return true;
        };
        let mut open = self.sources.open.lock().unwrap();
        let contacts = open.sources.get_mut(&self.source);
        let kept = contacts.is_some_and(|contacts| {
            let kept = contacts.silent.remove(&number).is_some();
            contacts.speaking += usize::from(kept);
            kept
        });
        if kept {
            self.silent = None;
        }
        kept
    }
}

impl Drop for SourcePlace {
    fn drop(&mut self) {
        let mut open = self.sources.open.lock().unwrap();
        let open = &mut *open;
        if let Some(contacts) = open.sources.get_mut(&self.source) {
            let before = contacts.len();
            match self.silent {
                // A newer contact may have taken its place.
                Some(number) => drop(contacts.silent.remove(&number)),
                None => contacts.speaking -= 1,
            }
            open.contacts -= before - contacts.len();
            if contacts.len() == 0 {
                open.sources.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

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
        assert!(sources.open.lock().expect("no panic").sources.is_empty());
    }

    #[test]
    fn of_silent_contacts_the_oldest_has_its_place_for_the_next() {
        let sources = Sources::new(2);
        let address: IpAddr = "192.0.2.1".parse().expect("an address");
        let (sender, left) = channel();
        let enter = |name: u8| {
            let sender = sender.clone();
            let leave = move || sender.send(name).expect("it is listened to");
            sources.enter_silent(address, leave)
        };
        let left = || left.try_iter().collect::<Vec<u8>>();
        let mut first = enter(1).expect("a place");
        let mut second = enter(2).expect("a place");
        assert!(first.speaks() && left().is_empty());
        let mut third = enter(3).expect("the place of the second");
        assert_eq!(left(), [2]);
        assert!(!second.speaks(), "it has none any more");
        drop(second);
        assert!(third.speaks() && first.speaks());
        // Contacts that have sent something stay.
        assert!(enter(4).is_none() && left().is_empty());
        drop(first);
        let fourth = enter(4).expect("the place of the first");
        assert!(sources.enter(address).is_some());
        assert_eq!(left(), [4]);
        drop((third, fourth));
        let open = sources.open.lock().expect("no panic");
        assert!(open.sources.is_empty() && open.contacts == 0);
    }

    #[test]
    fn who_has_the_most_silent_contacts_makes_room() {
        let sources = Sources::new(4);
        let (sender, left) = channel();
        let enter = |address: &str, name: u8| {
            let sender = sender.clone();
            let leave = move || sender.send(name).expect("it is listened to");
            let address = address.parse().expect("an address");
            sources.enter_silent(address, leave).expect("a place")
        };
        let left = || left.try_iter().collect::<Vec<u8>>();
        let _one = enter("192.0.2.1", 1);
        let many = [2, 3].map(|name| enter("192.0.2.2", name));
        let mut heard = [4, 5, 6].map(|name| enter("192.0.2.3", name));
        assert!(heard.iter_mut().all(SourcePlace::speaks));
        for (gone, most) in [
            (2, "the most silent ones"),
            (1, "as many, for longer"),
            (3, "all"),
        ] {
            sources.make_room();
            assert_eq!(left(), [gone], "{most}");
        }
        sources.make_room();
        assert!(left().is_empty(), "who has spoken stays");
        drop((many, heard, _one));
        let open = sources.open.lock().expect("no panic");
        assert!(open.sources.is_empty() && open.contacts == 0);
    }

    /// As many contacts as a source gets at present, at most `most`.
    fn fill(sources: &Sources, address: &str, most: usize) -> Vec<SourcePlace> {
        let address: IpAddr = address.parse().expect("an address");
        let contacts = std::iter::from_fn(|| sources.enter(address));
        contacts.take(most).collect()
    }

    #[test]
    fn an_address_that_peers_came_from_has_what_it_leaves_free() {
        let sources = Sources::among(32, 8);
        let (nat, stranger) = ("192.0.2.1", "192.0.2.2");
        let mut first = fill(&sources, nat, 99);
        assert_eq!(first.len(), 8, "nobody has come from there yet");
        first.pop().expect("a contact").proved();
        let behind_nat = fill(&sources, nat, 99);
        assert_eq!(first.len() + behind_nat.len(), 16);
        // Unknown sources keep their share.
        let strange = fill(&sources, stranger, 99);
        assert_eq!(strange.len(), 8);
        assert!(fill(&sources, nat, 1).is_empty());
        // Places of others are not free.
        drop((first, behind_nat));
        assert_eq!(fill(&sources, nat, 99).len(), 12);
        // The share is the minimum.
        let others = ["192.0.2.3", "192.0.2.4"].map(|other| fill(&sources, other, 8));
        assert_eq!(others.each_ref().map(Vec::len), [8, 8]);
        assert_eq!(fill(&sources, nat, 99).len(), 8);
    }

    #[test]
    fn a_bounded_number_of_addresses_is_remembered() {
        let mut known = Known::default();
        let address = |number: u32| IpAddr::from(std::net::Ipv4Addr::from_bits(number));
        for number in 0..=MOST_KNOWN as u32 {
            // One of them connects again and again.
            known.insert(address(0));
            known.insert(address(number));
        }
        assert_eq!(known.numbers.len(), MOST_KNOWN);
        assert_eq!(known.in_order.len(), MOST_KNOWN);
        assert!(known.contains(&address(0)) && !known.contains(&address(1)));
    }
}
