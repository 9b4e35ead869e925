use proptest::prelude::*;

use super::*;

const ONE: ClientId = ClientId(1);
const TWO: ClientId = ClientId(2);

fn item(number: u64, service: u64) -> Item {
    Item {
        number,
        service,
        bytes: 100,
        expires_ms: 1_000 + number,
    }
}

#[test]
fn what_cannot_be_given_to_anybody_is_forgotten_at_its_end() {
    let mut desk = Desk::default();
    desk.keep(item(5, 9));
    desk.connect(ONE);
    desk.register(ONE, 9).unwrap();
    assert_eq!(delivered(&mut desk), []);
    assert_eq!(desk.next_expiry_ms(), Some(1_005));
    desk.expire(1_005);
    let forgotten = Output::Forget {
        number: 5,
        expired: true,
    };
    assert_eq!(desk.poll(), Some(forgotten));
    assert_eq!(desk.count(), 0);
}

fn delivered(desk: &mut Desk) -> Vec<(ClientId, u64)> {
    let outputs = std::iter::from_fn(|| desk.poll());
    let delivered = outputs.filter_map(|output| match output {
        Output::Deliver { client, number } => Some((client, number)),
        Output::Forget { .. } => None,
    });
    delivered.collect()
}

#[test]
fn what_came_before_its_application_is_delivered_in_order() {
    let mut desk = Desk::default();
    for number in [1, 2, 3] {
        desk.arrived(item(number, 40));
    }
    assert_eq!(desk.poll(), None);
    desk.connect(ONE);
    assert_eq!(desk.register(ONE, 40), Ok(()));
    assert_eq!(delivered(&mut desk), [(ONE, 1), (ONE, 2), (ONE, 3)]);
}

#[test]
fn what_a_client_has_not_acknowledged_goes_to_the_next() {
    let mut desk = Desk::default();
    desk.connect(ONE);
    desk.connect(TWO);
    desk.register(ONE, 40).unwrap();
    for number in [1, 2, 3] {
        desk.arrived(item(number, 40));
    }
    assert_eq!(delivered(&mut desk).len(), 3);
    // An acknowledgement by another client is ignored.
    desk.acknowledge(TWO, 1);
    desk.acknowledge(ONE, 2);
    assert_eq!(
        desk.poll(),
        Some(Output::Forget {
            number: 2,
            expired: false
        })
    );
    assert_eq!(desk.register(TWO, 40), Err(ErrorCode::Taken));
    desk.disconnect(ONE);
    assert_eq!(desk.register(TWO, 40), Ok(()));
    assert_eq!(delivered(&mut desk), [(TWO, 1), (TWO, 3)]);
}

#[test]
fn a_client_that_acknowledges_nothing_gets_no_more_than_its_window() {
    let mut desk = Desk::default();
    desk.connect(ONE);
    desk.register(ONE, 40).unwrap();
    for number in 0..100 {
        desk.arrived(item(number, 40));
    }
    assert_eq!(delivered(&mut desk).len(), MOST_UNACKNOWLEDGED);
    desk.acknowledge(ONE, 0);
    assert_eq!(delivered(&mut desk), [(ONE, MOST_UNACKNOWLEDGED as u64)]);
    let mut desk = Desk::default();
    desk.connect(ONE);
    desk.register(ONE, 40).unwrap();
    for number in 0..4 {
        let bytes = MOST_UNACKNOWLEDGED_BYTES * 2;
        let large = Item {
            bytes,
            ..item(number, 40)
        };
        desk.arrived(large);
    }
    assert_eq!(delivered(&mut desk), [(ONE, 0)]);
}

#[test]
fn a_service_that_is_flooded_does_not_hold_up_another() {
    let mut desk = Desk::default();
    for number in 0..100 {
        desk.arrived(item(number, 40));
    }
    desk.arrived(item(100, 41));
    desk.connect(ONE);
    desk.register(ONE, 40).unwrap();
    assert_eq!(delivered(&mut desk).len(), MOST_UNACKNOWLEDGED);
    desk.register(ONE, 41).unwrap();
    desk.acknowledge(ONE, 0);
    desk.acknowledge(ONE, 1);
    let delivered = delivered(&mut desk);
    assert!(delivered.contains(&(ONE, 100)), "{delivered:?}");
}

#[test]
fn what_outlives_its_lifetime_is_forgotten_wherever_it_is() {
    let mut desk = Desk::default();
    desk.connect(ONE);
    desk.register(ONE, 40).unwrap();
    desk.arrived(item(1, 40));
    desk.arrived(item(2, 41));
    assert_eq!(desk.next_expiry_ms(), Some(1_001));
    desk.expire(1_000);
    assert_eq!(desk.count(), 2);
    desk.expire(1_002);
    assert_eq!(desk.count(), 0);
    assert!(desk.is_free(41));
    // The client does not know yet that the lifetime has ended.
    desk.acknowledge(ONE, 1);
    assert_eq!(desk.next_expiry_ms(), None);
}

#[test]
fn one_client_cannot_take_all_services() {
    let mut desk = Desk::default();
    desk.connect(ONE);
    let taken = (1..100).filter(|service| desk.register(ONE, *service).is_ok());
    assert_eq!(taken.count(), MOST_SERVICES);
}

proptest! {
    /// Whatever clients do, each bundle ends exactly once, is given to the
    /// client of its service alone, and never to two at once.
    #[test]
    fn every_bundle_is_kept_until_it_is_acknowledged_or_expires(
        steps in prop::collection::vec((0u8..6, 0u64..4, 0u64..3), 1..200)
    ) {
        let mut desk = Desk::default();
        let mut next = 0;
        let mut with: HashMap<u64, ClientId> = HashMap::new();
        let mut ended = BTreeSet::new();
        for (what, who, service) in steps {
            let client = ClientId(who);
            match what {
                0 => { desk.arrived(item(next, service)); next += 1; }
                1 => desk.connect(client),
                2 => { desk.disconnect(client); with.retain(|_, c| *c != client); }
                3 => drop(desk.register(client, service)),
                4 => {
                    let of_client = with.iter().find(|(_, c)| **c == client);
                    if let Some(number) = of_client.map(|(number, _)| *number) {
                        desk.acknowledge(client, number);
                    }
                }
                _ => desk.expire(1_000 + who),
            }
            while let Some(output) = desk.poll() {
                match output {
                    Output::Deliver { client, number } => {
                        prop_assert!(!ended.contains(&number));
                        prop_assert_eq!(with.insert(number, client), None);
                    }
                    Output::Forget { number, .. } => {
                        with.remove(&number);
                        prop_assert!(ended.insert(number));
                    }
                }
            }
        }
        prop_assert_eq!(desk.count() as u64 + ended.len() as u64, next);
        desk.expire(u64::MAX);
        prop_assert_eq!(desk.count(), 0);
    }
}
