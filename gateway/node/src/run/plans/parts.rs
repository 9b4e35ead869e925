//! What a hub sends its terminals: for each, the newest part of a plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use underpass_bundle::BundleId;
use underpass_plans::{Plan, Schedule};

use super::TakeError;

/// Beams whose plans are passed on at once.
const BEAMS: usize = 64;

/// The least time between two messages to a terminal. A plan that comes sooner waits, and a newer
/// one replaces it.
const PAUSE: Duration = Duration::from_millis(200);

/// The return links' plans, and what the terminals were sent of them.
#[derive(Debug, Default)]
pub struct Parts {
    beams: BTreeMap<String, Schedule>,
    terminals: BTreeMap<u64, Part>,
}

#[derive(Debug)]
struct Part {
    plan: Arc<Plan>,
    due: bool,
    /// When it was told last, and in which bundle.
    told: Option<(Instant, BundleId)>,
}

#[derive(Debug)]
pub struct DuePart {
    pub terminal: u64,
    pub plan: Arc<Plan>,
    pub before: Option<BundleId>,
}

/// What a terminal is told, for people.
#[derive(Clone, Debug)]
pub struct PartView {
    pub terminal: u64,
    pub plan: Arc<Plan>,
    pub waits: bool,
}

impl Parts {
    /// Takes a plan; its parts go to those of `terminals` that it names.
    ///
    /// # Errors
    /// When it is not newer than the known one, or when there would be too many beams.
    pub fn take(
        &mut self,
        plan: &Arc<Plan>,
        now_ms: u64,
        terminals: &BTreeSet<u64>,
    ) -> Result<(), TakeError> {
        if !self.beams.contains_key(plan.beam()) {
            self.beams.retain(|_, schedule| !schedule.is_stale(now_ms));
            if self.beams.len() >= BEAMS {
                return Err(TakeError::Beams(BEAMS));
            }
        }
        let schedule = self.beams.entry(plan.beam().to_owned()).or_default();
        schedule.take(plan.clone(), now_ms)?;
        let named = terminals.iter().filter(|id| plan.line(**id).is_some());
        for terminal in named {
            let told = self.terminals.get(terminal).and_then(|part| part.told);
            let part = Part {
                plan: plan.clone(),
                due: true,
                told,
            };
            self.terminals.insert(*terminal, part);
        }
        Ok(())
    }

    /// The parts to send now, and when the next is due.
    pub fn due(&self, now: Instant) -> (Vec<DuePart>, Option<Instant>) {
        let (mut parts, mut next) = (Vec::new(), None::<Instant>);
        for (terminal, part) in self.terminals.iter().filter(|(_, part)| part.due) {
            let free_at = part.told.map(|(at, _)| at + PAUSE);
            match free_at.filter(|at| *at > now) {
                Some(at) => next = Some(next.map_or(at, |next| next.min(at))),
                None => parts.push(DuePart {
                    terminal: *terminal,
                    plan: part.plan.clone(),
                    before: part.told.map(|(_, id)| id),
                }),
            }
        }
        (parts, next)
    }

    pub fn told(&mut self, now: Instant, part: &DuePart, bundle: Option<BundleId>) {
        if let Some(known) = self.terminals.get_mut(&part.terminal) {
            known.due &= !Arc::ptr_eq(&known.plan, &part.plan);
            if let Some(bundle) = bundle {
                known.told = Some((now, bundle));
            }
        }
    }

    /// A terminal may have lost what it was told.
    pub fn restarted(&mut self, terminal: u64) {
        if let Some(part) = self.terminals.get_mut(&terminal) {
            part.due = true;
        }
    }

    /// The parts of the terminals; `stored` says whether a bundle waits here.
    pub fn views(&self, stored: impl Fn(BundleId) -> bool) -> Vec<PartView> {
        let parts = self.terminals.iter().map(|(terminal, part)| PartView {
            terminal: *terminal,
            plan: part.plan.clone(),
            waits: part.due || part.told.is_some_and(|(_, id)| stored(id)),
        });
        parts.collect()
    }
}

#[cfg(test)]
mod tests {
    use underpass_plans::Refused;

    use super::*;

    fn plan(beam: &str, version: u64, terminals: &[u64]) -> Arc<Plan> {
        let text = serde_json::json!({
            "version": 1, "beam": beam, "link": "return", "plan": version,
            "issued_ms": version, "start_ms": 1_000, "end_ms": 2_000,
            "capacity": [{"from_ms": 0, "rate_bps": 8_000_000}],
            "lines": [{
                "terminals": terminals, "guaranteed_bps": 100_000,
                "segments": [{
                    "start_ms": 1_000, "end_ms": 2_000, "rate_bps": 200_000, "state": "fair",
                }],
            }],
        });
        Arc::new(Plan::decode(text.to_string().as_bytes()).unwrap())
    }

    fn told(parts: &mut Parts, now: Instant) -> Vec<(u64, u64, Option<BundleId>)> {
        let (due, _) = parts.due(now);
        for part in &due {
            parts.told(now, part, Some(BundleId(part.plan.version())));
        }
        let seen = due.into_iter();
        seen.map(|part| (part.terminal, part.plan.version(), part.before))
            .collect()
    }

    #[test]
    fn each_terminal_of_this_hub_is_told_the_newest_once() {
        let mut parts = Parts::default();
        let here = BTreeSet::from([10, 11]);
        let now = Instant::now();
        parts.take(&plan("east", 1, &[10, 12]), 0, &here).unwrap();
        parts.take(&plan("east", 2, &[10, 12]), 0, &here).unwrap();
        assert_eq!(told(&mut parts, now), [(10, 2, None)]);
        assert_eq!(told(&mut parts, now), []);
        let old = parts.take(&plan("east", 1, &[10, 11]), 0, &here);
        let refused = Refused::Old {
            version: 1,
            known: 2,
        };
        assert!(matches!(old, Err(TakeError::Refused(why)) if why == refused));
        parts.restarted(10);
        let later = now + PAUSE;
        assert_eq!(told(&mut parts, later), [(10, 2, Some(BundleId(2)))]);
    }

    #[test]
    fn plans_in_quick_succession_wait_and_the_last_takes_their_place() {
        let mut parts = Parts::default();
        let here = BTreeSet::from([10]);
        let now = Instant::now();
        parts.take(&plan("east", 1, &[10]), 0, &here).unwrap();
        told(&mut parts, now);
        for version in 2..9 {
            parts.take(&plan("east", version, &[10]), 0, &here).unwrap();
            assert_eq!(told(&mut parts, now + PAUSE / 2), []);
        }
        assert_eq!(parts.due(now).1, Some(now + PAUSE));
        assert_eq!(told(&mut parts, now + PAUSE), [(10, 8, Some(BundleId(1)))]);
    }

    #[test]
    fn beams_are_bounded_and_those_that_are_over_make_room() {
        let mut parts = Parts::default();
        let here = BTreeSet::from([10]);
        for beam in 0..BEAMS {
            let plan = plan(&format!("beam{beam}"), 1, &[10]);
            parts.take(&plan, 1_500, &here).unwrap();
        }
        let more = parts.take(&plan("more", 1, &[10]), 1_500, &here);
        assert!(matches!(more, Err(TakeError::Beams(BEAMS))));
        parts.take(&plan("more", 1, &[10]), 2_000, &here).unwrap();
        assert_eq!(parts.beams.len(), 1);
    }
}
