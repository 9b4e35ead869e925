//! The echo service: it sends each bundle back to its source.
//!
//! It never answers the null endpoint, its own node or another echo, so that no bundle
//! circles for ever. Each node gets a limited rate of answers. A name of the dtn scheme
//! proves nothing, so a bundle from one is answered only if the routes to that name lead
//! back to the neighbour that the bundle came from; all names behind one neighbour share
//! one limit.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use underpass_bundle::wire::{Eid, ipn_parts};
use underpass_bundle::{Delivery, ECHO_NAME, NeighbourId, Send};

/// Nodes whose answers are counted. A node that has been silent for a second makes room
/// for another.
const MOST_NODES: usize = 4096;

/// Answers bundles to one service.
#[derive(Debug)]
pub struct Echo {
    node: u64,
    service: u64,
    per_s: u32,
    nodes: HashMap<Asker, Allowance>,
}

/// The askers whose answers are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Asker {
    /// A node, by its number.
    Node(u64),
    /// All nodes of the dtn scheme behind a neighbour.
    NamedBehind(NeighbourId),
}

/// A token bucket that holds at most the answers of one second.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    answers: f64,
    at: Instant,
}

impl Echo {
    /// The echo at a service of a node. It answers each other node at most `per_s` times
    /// a second.
    pub fn new(node: u64, service: u64, per_s: u32) -> Echo {
        Echo {
            node,
            service,
            per_s,
            nodes: HashMap::new(),
        }
    }

    /// The answer to a bundle, if it gets one; it is sent from the endpoint that the
    /// bundle was sent to. `back` is the next hop to the bundle's source by the routes of
    /// the dtn scheme.
    pub fn answer(
        &mut self,
        now: Instant,
        bundle: Delivery,
        back: Option<NeighbourId>,
    ) -> Option<Send> {
        let asker = self.asker(&bundle, back)?;
        if bundle.left.is_zero() || !self.allows(now, asker) {
            return None;
        }
        Some(Send {
            lifetime: Some(bundle.left),
            ..Send::new(
                bundle.source,
                bundle.service,
                bundle.class,
                vec![bundle.payload],
            )
        })
    }

    fn asker(&self, bundle: &Delivery, back: Option<NeighbourId>) -> Option<Asker> {
        if let Eid::Dtn(_, address) = &bundle.source {
            // Without a service it is an administrative endpoint; with "~" it is a group.
            let service = address.service_name()?;
            let from = bundle.from.filter(|from| back == Some(*from))?;
            let loops = service == ECHO_NAME || service.starts_with('~');
            return (!loops).then_some(Asker::NamedBehind(from));
        }
        let (node, service) = ipn_parts(&bundle.source)?;
        let loops = node == self.node || service == 0 || service == self.service;
        (!loops).then_some(Asker::Node(node))
    }

    fn allows(&mut self, now: Instant, node: Asker) -> bool {
        let most = f64::from(self.per_s);
        if !self.nodes.contains_key(&node) && self.nodes.len() >= MOST_NODES {
            // Their buckets are full again, so dropping them changes nothing.
            let second = Duration::from_secs(1);
            self.nodes
                .retain(|_, of| now.saturating_duration_since(of.at) < second);
            if self.nodes.len() >= MOST_NODES {
                return false;
            }
        }
        let full = Allowance {
            answers: most,
            at: now,
        };
        let allowance = self.nodes.entry(node).or_insert(full);
        let passed = now.saturating_duration_since(allowance.at).as_secs_f64();
        allowance.answers = (allowance.answers + passed * most).min(most);
        allowance.at = now;
        let allowed = allowance.answers >= 1.0;
        if allowed {
            allowance.answers -= 1.0;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use underpass_bundle::named_service;
    use underpass_bundle::wire::{Eid, ipn};

    use super::*;
    use crate::service::tests::delivery;

    #[test]
    fn an_echo_goes_back_with_what_is_left_of_the_lifetime() {
        let mut echo = Echo::new(1, 7, 10);
        let bundle = delivery(ipn(10, 40), 0, b"ping");
        let left = bundle.left;
        let bundle = Delivery {
            service: 7,
            ..bundle
        };
        let answer = echo.answer(Instant::now(), bundle, None).unwrap();
        assert_eq!(answer.destination, ipn(10, 40));
        assert_eq!(answer.service, 7);
        assert_eq!(answer.lifetime, Some(left));
        assert_eq!(answer.payload.concat(), b"ping");
    }

    #[test]
    fn nobody_itself_and_other_echoes_get_no_answer() {
        let mut echo = Echo::new(1, 7, 10);
        for source in [Eid::none(), ipn(0, 5), ipn(1, 40), ipn(10, 7), ipn(10, 0)] {
            let bundle = delivery(source.clone(), 0, b"ping");
            let answer = echo.answer(Instant::now(), bundle, None);
            assert!(answer.is_none(), "{source}");
        }
    }

    #[test]
    fn a_flood_is_answered_at_its_rate_and_others_beside_it() {
        let mut echo = Echo::new(1, 7, 10);
        let now = Instant::now();
        let mut answered = 0;
        for step in 0..1_000 {
            let bundle = delivery(ipn(10, 40), 0, b"ping");
            let at = now + Duration::from_millis(step);
            answered += u32::from(echo.answer(at, bundle, None).is_some());
        }
        // A full bucket of one second, and the answers of the second that passes.
        assert!((19..=20).contains(&answered), "{answered}");
        let other = delivery(ipn(11, 40), 0, b"ping");
        assert!(echo.answer(now, other, None).is_some());
    }

    #[test]
    fn a_name_is_answered_by_its_name_and_only_where_its_ping_came_from() {
        let mut echo = Echo::new(1, 7, 10);
        let (near, far) = (NeighbourId(5), NeighbourId(6));
        let mut answer = |source: &str, from, back| {
            let bundle = Delivery {
                service: named_service("echo"),
                from,
                ..delivery(Eid::with_dtn(source).unwrap(), 0, b"ping")
            };
            echo.answer(Instant::now(), bundle, back)
        };
        let asked = answer("//rover/ping", Some(near), Some(near)).unwrap();
        assert_eq!(asked.service, named_service("echo"));
        assert_eq!(asked.destination, Eid::with_dtn("//rover/ping").unwrap());
        for (source, from, back) in [
            ("//rover/ping", Some(near), Some(far)),
            ("//rover/ping", Some(near), None),
            ("//rover/ping", None, None),
            ("//rover/", Some(near), Some(near)),
            ("//rover/echo", Some(near), Some(near)),
            ("//rover/~all", Some(near), Some(near)),
        ] {
            assert!(answer(source, from, back).is_none(), "{source} {from:?}");
        }
        let many = (0..100).filter(|number| {
            let source = format!("//rover-{number}/ping");
            answer(&source, Some(near), Some(near)).is_some()
        });
        assert!(many.count() <= 10, "other names are no other node");
    }

    #[test]
    fn nodes_without_end_cost_no_memory_without_end() {
        let mut echo = Echo::new(1, 7, 10);
        let now = Instant::now();
        for node in 0..2 * MOST_NODES as u64 {
            echo.allows(now, Asker::Node(100 + node));
        }
        assert_eq!(echo.nodes.len(), MOST_NODES);
        assert!(echo.allows(now + Duration::from_secs(2), Asker::Node(1 << 40)));
        assert_eq!(echo.nodes.len(), 1);
    }
}
