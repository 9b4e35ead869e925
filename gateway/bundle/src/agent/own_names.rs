//! The name that this node has in the dtn scheme besides its number, and its services under that
//! name.
//!
//! A service with a name has no number in the ipn scheme. Inside the node it still has a number,
//! computed from its name: it is the same in every run, above all numbers of ipn services, and
//! exact in a double. In the ipn scheme it belongs to no service.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::config::Config;
use crate::wire::{Eid, ipn, ipn_parts};

/// The lowest number of a service that has a name.
const FIRST: u64 = 1 << 52;
/// The number of no service: nothing is delivered to it.
const NO_SERVICE: u64 = u64::MAX;
/// The administrative endpoint, which is also the node ID.
const ADMIN: &str = "";

/// The number by which a service with a name is known inside the node (FNV-1a).
/// Two names can have the same one, which a configuration must rule out.
pub fn named_service(name: &str) -> u64 {
    let hash = name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    });
    FIRST | hash & (FIRST - 1)
}

/// Whether a service is known by its name alone.
pub fn is_named_service(service: u64) -> bool {
    service >= FIRST
}

/// This node's endpoints of the dtn scheme. They are shared by everything that decodes or handles
/// its bundles, and may change while the node runs.
#[derive(Debug, Default)]
pub struct OwnNames(RwLock<Option<Arc<Named>>>);

#[derive(Debug, PartialEq, Eq)]
struct Named {
    node: String,
    /// Of services, by their numbers.
    services: BTreeMap<u64, String>,
}

impl OwnNames {
    /// A node of this name, with services of these names.
    pub fn new(node: &str, services: impl IntoIterator<Item = String>) -> OwnNames {
        let services = services.into_iter().chain([ADMIN.to_owned()]);
        let named = Named {
            node: node.to_owned(),
            services: services.map(|name| (named_service(&name), name)).collect(),
        };
        OwnNames(RwLock::new(Some(Arc::new(named))))
    }

    /// Replaces the node's names by those of `other`.
    pub fn replace(&self, other: &OwnNames) {
        let named = other.named();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = named;
    }

    fn named(&self) -> Option<Arc<Named>> {
        // Nothing that runs with the lock can panic half-way.
        let named = self.0.read().unwrap_or_else(PoisonError::into_inner);
        named.clone()
    }

    pub(super) fn node(&self) -> Option<String> {
        self.named().map(|named| named.node.clone())
    }

    /// The service that an endpoint of the dtn scheme is of, if that is this node's.
    fn service_of(&self, endpoint: &Eid) -> Option<u64> {
        let Eid::Dtn(_, address) = endpoint else {
            return None;
        };
        let named = self.named().filter(|own| own.node == address.node_name())?;
        let name = address.service_name().unwrap_or(ADMIN);
        let number = named_service(name);
        let is_known = named.services.get(&number).is_some_and(|own| own == name);
        Some(if is_known { number } else { NO_SERVICE })
    }

    fn endpoint(&self, service: u64) -> Option<Eid> {
        let named = self.named()?;
        let name = named.services.get(&service)?;
        Eid::with_dtn(&format!("//{}/{name}", named.node)).ok()
    }
}

/// The service of a node's endpoint, by its number or its names; `None` if the endpoint is another
/// node's.
pub(super) fn service_of(node: u64, names: &OwnNames, endpoint: &Eid) -> Option<u64> {
    match ipn_parts(endpoint) {
        Some((of, service)) if of == node => Some(match is_named_service(service) {
            true => NO_SERVICE,
            false => service,
        }),
        Some(_) => None,
        None => names.service_of(endpoint),
    }
}

impl Config {
    /// The service of this node to which an endpoint belongs, in either scheme; `None` if it is
    /// another node's.
    pub fn own_service(&self, endpoint: &Eid) -> Option<u64> {
        service_of(self.node, &self.names, endpoint)
    }

    /// A service's endpoint; `None` if the service has a name and the node has none any more.
    pub fn endpoint(&self, service: u64) -> Option<Eid> {
        match is_named_service(service) {
            true => self.names.endpoint(service),
            false => Some(ipn(self.node, service)),
        }
    }

    /// The service that reports of this node come from: in the scheme of the
    /// endpoint that they go to, if the node has a name there.
    pub(super) fn reporter_to(&self, endpoint: &Eid) -> u64 {
        let by_name = named_service(ADMIN);
        match endpoint {
            Eid::Dtn(..) if self.names.endpoint(by_name).is_some() => by_name,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let mut config = Config::new(7, 1);
        let services = ["echo", "in/box"].map(str::to_owned);
        config.names = Arc::new(OwnNames::new("edge-7", services));
        config
    }

    fn dtn(endpoint: &str) -> Eid {
        Eid::with_dtn(endpoint).unwrap()
    }

    #[test]
    fn a_service_has_one_endpoint_and_an_endpoint_one_service() {
        let config = config();
        for name in ["", "echo", "in/box"] {
            let endpoint = dtn(&format!("//edge-7/{name}"));
            let service = config.own_service(&endpoint).unwrap();
            assert!(is_named_service(service) && service < 1 << 53, "{name}");
            assert_eq!(config.endpoint(service), Some(endpoint));
        }
        assert_eq!(config.own_service(&ipn(7, 40)), Some(40));
        assert_eq!(config.endpoint(40), Some(ipn(7, 40)));
    }

    #[test]
    fn other_nodes_endpoints_are_none_of_its_own_and_unknown_ones_are_of_no_service() {
        let config = config();
        for other in [
            ipn(8, 40),
            dtn("//edge-70/echo"),
            dtn("//Edge-7/echo"),
            Eid::none(),
        ] {
            assert_eq!(config.own_service(&other), None, "{other}");
        }
        let by_number = ipn(7, named_service("echo"));
        for unknown in [
            dtn("//edge-7/echo/"),
            dtn("//edge-7/~echo"),
            dtn("//edge-7//echo"),
            by_number,
        ] {
            let service = config.own_service(&unknown);
            assert_eq!(service, Some(NO_SERVICE), "{unknown}");
            assert!(!config.delivers(NO_SERVICE));
        }
    }

    #[test]
    fn a_name_that_is_taken_away_is_nobodys() {
        let config = config();
        config.names.replace(&OwnNames::default());
        assert_eq!(config.own_service(&dtn("//edge-7/echo")), None);
        assert_eq!(config.endpoint(named_service("echo")), None);
        assert_eq!(config.reporter_to(&dtn("//rover/")), 0);
    }
}
