//! Applies a node's security rules to its bundles.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use bp7::primary::PrimaryBlock;
use bytes::Bytes;
use underpass_bundle::wire::{Bundle, Eid, Extension, ipn};
use underpass_bundle::{Insecure, Secured, Security};

use crate::Failure;
use crate::acceptance::{accept, reveal, verify_in_transit};
use crate::counters::{Counts, Operation, Outcome};
use crate::keys::Key;
use crate::rules::{Active, Rule, find};
use crate::sourcing::secure;

/// Secures a node's bundles, and refuses bundles that are not secured as its rules
/// require. The first rule that matches a bundle's source and destination decides:
///
/// - Bundles that begin at this node get the blocks for which the rule has keys.
/// - Bundles that end here must have these blocks, which are verified and removed.
/// - Bundles that pass are left alone, unless the rule asks to verify integrity in
///   transit. No block of another node is changed or removed.
/// - Fragments cannot be verified: they are refused where the rule would verify them, and bundles
///   that this node secures must not be fragmented.
#[derive(Debug)]
pub struct Guard {
    /// This node as security source.
    source: Eid,
    rules: RwLock<Arc<Vec<Active>>>,
    /// The number of rules: a node without any takes no lock for its bundles.
    in_force: AtomicUsize,
    counts: Counts,
}

impl Guard {
    /// The guard of the node with `ipn` node number `node`.
    ///
    /// # Errors
    /// As [`Guard::replace`].
    pub fn new(node: u64, rules: Vec<Rule>) -> Result<Guard, Failure> {
        let guard = Guard {
            source: ipn(node, 0),
            rules: RwLock::default(),
            in_force: AtomicUsize::new(0),
            counts: Counts::default(),
        };
        guard.replace(rules)?;
        Ok(guard)
    }

    /// Replaces the rules in force.
    ///
    /// # Errors
    /// When a confidentiality key is not an AES key of 16 or 32 bytes. The old rules stay
    /// in force then.
    pub fn replace(&self, rules: Vec<Rule>) -> Result<(), Failure> {
        let active = rules.into_iter().map(Active::new);
        let active: Vec<Active> = active.collect::<Result<_, _>>()?;
        let count = active.len();
        // No code that holds the lock can panic half-way.
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(active);
        self.in_force.store(count, Ordering::Release);
        Ok(())
    }

    /// The outcomes of all operations.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The number of rules in force.
    pub fn rules_in_force(&self) -> usize {
        self.in_force.load(Ordering::Acquire)
    }

    /// The rules, if there are any.
    fn rules(&self) -> Option<Arc<Vec<Active>>> {
        if self.rules_in_force() == 0 {
            return None;
        }
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&rules))
    }

    fn count_all(&self, rule: &Rule, outcome: Outcome) {
        for (used, operation) in [
            (rule.signs(), Operation::Integrity),
            (rule.encrypts(), Operation::Confidentiality),
        ] {
            if used {
                self.counts.count(operation, outcome);
            }
        }
    }
}

impl Security for Guard {
    fn is_used(&self) -> bool {
        self.rules_in_force() > 0
    }

    fn secures(&self, source: &Eid, destination: &Eid) -> bool {
        let rules = self.rules();
        let active = rules
            .as_ref()
            .and_then(|rules| find(rules, source, destination));
        active.is_some_and(|active| active.rule.signs() || active.rule.encrypts())
    }

    fn secure(
        &self,
        primary: &mut PrimaryBlock,
        first_number: u64,
        payload: &[Bytes],
    ) -> Option<Secured> {
        let rules = self.rules()?;
        let active = find(&rules, &primary.source, &primary.destination)?;
        if !active.rule.signs() && !active.rule.encrypts() {
            return None;
        }
        let secured = secure(active, &self.source, primary, first_number, payload)
            .expect("a payload is far smaller than AES-GCM allows");
        self.count_all(&active.rule, Outcome::Added);
        Some(secured)
    }

    fn reveal(&self, primary: &[u8], others: &[Extension], payload: &[u8]) -> Option<Bytes> {
        let rules = self.rules()?;
        let keys = rules
            .iter()
            .flat_map(|active| &active.rule.confidentiality_keys);
        let keys: Vec<Key> = keys.cloned().collect();
        reveal(&keys, primary, others, payload).map(Bytes::from)
    }

    fn accept(&self, bundle: &mut Bundle, here: bool) -> Result<(), Insecure> {
        let Some(rules) = self.rules() else {
            return Ok(());
        };
        let primary = &bundle.primary;
        let Some(Active { rule, .. }) = find(&rules, &primary.source, &primary.destination) else {
            return Ok(());
        };
        if !(rule.signs() || rule.encrypts()) || !(here || rule.verify_in_transit) {
            return Ok(());
        }
        let accepted = match here {
            true => accept(rule, bundle),
            false => verify_in_transit(rule, bundle),
        };
        match accepted {
            Ok(()) if here => self.count_all(rule, Outcome::Verified),
            Ok(()) => self.counts.count(Operation::Integrity, Outcome::Verified),
            Err((operation, why)) => {
                self.counts.count(operation, Outcome::from(why));
                return Err(why);
            }
        }
        Ok(())
    }
}

impl From<Insecure> for Outcome {
    fn from(why: Insecure) -> Outcome {
        match why {
            Insecure::Missing => Outcome::Missing,
            Insecure::Failed => Outcome::Failed,
            Insecure::Unknown => Outcome::Unknown,
            Insecure::Conflicting => Outcome::Conflicting,
            Insecure::Malformed => Outcome::Malformed,
        }
    }
}
