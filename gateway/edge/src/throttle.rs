//! Bounds how often a client may fail to authenticate.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use underpass_customer::customer;

/// Failures that a client may have at once.
const BURST: u32 = 10;
/// One more is allowed each.
const INTERVAL: Duration = Duration::from_secs(6);
/// Most clients that are remembered.
const CLIENTS: usize = 4096;

/// Counts failures per [`customer`]. After [`BURST`] of them a customer is refused, even with the
/// right password, until an [`INTERVAL`] has passed. It has no clock: every call gives the time.
#[derive(Debug, Default)]
pub struct Throttle {
    /// The time until which the failures of each client count: that of a leaky bucket (ITU-T I.371,
    /// the generic cell rate algorithm).
    clients: HashMap<IpAddr, Instant>,
    /// The same for all clients beyond [`CLIENTS`] together.
    others: Option<Instant>,
    swept: Option<Instant>,
}

impl Throttle {
    /// How long `client` is still refused; none if it may try.
    pub fn refused_for(&self, client: IpAddr, now: Instant) -> Option<Duration> {
        let until = match self.clients.get(&customer(client)) {
            Some(until) => Some(*until),
            None if self.clients.len() >= CLIENTS => self.others,
            None => None,
        };
        let left = until?.saturating_duration_since(now);
        // One more failure must fit.
        let wait = (left + INTERVAL).saturating_sub(INTERVAL * BURST);
        (!wait.is_zero()).then_some(wait)
    }

    /// `client` has failed.
    pub fn failed(&mut self, client: IpAddr, now: Instant) {
        let client = customer(client);
        if self.clients.len() >= CLIENTS && !self.clients.contains_key(&client) {
            self.sweep(now);
        }
        let until = if self.clients.len() < CLIENTS || self.clients.contains_key(&client) {
            self.clients.entry(client).or_insert(now)
        } else {
            self.others.get_or_insert(now)
        };
        let most = now + INTERVAL * BURST;
        *until = ((*until).max(now) + INTERVAL).min(most);
    }

    /// Forgets clients whose failures no longer count. It visits all of them, so it runs at most
    /// once in an interval.
    fn sweep(&mut self, now: Instant) {
        if self.swept.is_none_or(|swept| now >= swept + INTERVAL) {
            self.clients.retain(|_, until| *until > now);
            self.swept = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn fail(throttle: &mut Throttle, client: IpAddr, times: u32, now: Instant) {
        for _ in 0..times {
            throttle.failed(client, now);
        }
    }

    #[test]
    fn who_fails_too_often_is_refused_and_may_try_again_later() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        let guesser = ip("192.0.2.1");
        fail(&mut throttle, guesser, BURST - 1, now);
        assert_eq!(throttle.refused_for(guesser, now), None);
        throttle.failed(guesser, now);
        assert_eq!(throttle.refused_for(guesser, now), Some(INTERVAL));
        assert_eq!(throttle.refused_for(ip("192.0.2.2"), now), None);
        // Attempts while refused do not extend the refusal.
        fail(&mut throttle, guesser, 1000, now);
        assert_eq!(throttle.refused_for(guesser, now), Some(INTERVAL));
        let later = now + INTERVAL;
        assert_eq!(throttle.refused_for(guesser, later), None);
        throttle.failed(guesser, later);
        assert_eq!(throttle.refused_for(guesser, later), Some(INTERVAL));
    }

    #[test]
    fn in_the_long_run_one_failure_fits_in_each_interval() {
        let (mut throttle, start) = (Throttle::default(), Instant::now());
        let guesser = ip("192.0.2.1");
        let mut tried = 0;
        for second in 0..3600 {
            let now = start + Duration::from_secs(second);
            if throttle.refused_for(guesser, now).is_none() {
                throttle.failed(guesser, now);
                tried += 1;
            }
        }
        assert!((600..=600 + BURST).contains(&tried), "{tried}");
    }

    #[test]
    fn a_customers_ipv6_addresses_are_one_client_and_mapped_ones_ipv4() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        for host in 0..u128::from(BURST) {
            let address = Ipv6Addr::from_bits(0x2001_0db8 << 96 | host);
            throttle.failed(address.into(), now);
        }
        assert!(throttle.refused_for(ip("2001:db8::ffff"), now).is_some());
        assert!(throttle.refused_for(ip("2001:db8:0:1::1"), now).is_none());
        fail(&mut throttle, ip("::ffff:192.0.2.1"), BURST, now);
        assert!(throttle.refused_for(ip("192.0.2.1"), now).is_some());
    }

    #[test]
    fn a_flood_of_addresses_takes_bounded_memory_and_is_refused_as_one() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        let address = |number: u32| IpAddr::from(number.to_be_bytes());
        for number in 0..100_000 {
            throttle.failed(address(number), now);
        }
        assert_eq!(throttle.clients.len(), CLIENTS);
        assert!(throttle.refused_for(address(200_000), now).is_some());
        // A client that was known before has its own count.
        assert!(throttle.refused_for(address(0), now).is_none());
        let later = now + INTERVAL * BURST;
        throttle.failed(address(200_000), later);
        assert_eq!(throttle.clients.len(), 1);
        assert!(throttle.refused_for(address(200_001), later).is_none());
    }
}
