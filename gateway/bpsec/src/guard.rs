//! Applies a node's security rules to its bundles.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use bp7::primary::PrimaryBlock;
use bytes::Bytes;
use underpass_bundle::wire::{Bundle, Content, Eid, Extension, ipn};
use underpass_bundle::{Following, Insecure, Secured, Security};

use crate::Failure;
use crate::acceptance::{
    OnPayload, Refused, accept, follow, remove_security, reveal, verify_in_transit,
};
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
/// - Fragments cannot be verified. Where bundles end, they are judged once they are whole; where
///   the rule would verify them in transit, they are refused. Bundles that this node secures must
///   not be fragmented.
#[derive(Debug)]
pub struct Guard {
    /// This node as security source.
    source: Eid,
    rules: RwLock<Arc<Vec<Active>>>,
    /// The number of rules: a node without any takes no lock for its bundles.
    in_force: AtomicUsize,
    counts: Arc<Counts>,
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
            counts: Arc::default(),
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

    /// The rule for bundles between these endpoints, if there is one.
    fn with_rule<R>(
        &self,
        (source, destination): (&Eid, &Eid),
        call: impl FnOnce(&Active) -> R,
    ) -> Option<R> {
        let rules = self.rules()?;
        find(&rules, source, destination).map(call)
    }

    fn count_all(&self, rule: &Rule, at_end: bool, outcome: Outcome) {
        for operation in operations(rule, at_end) {
            self.counts.count(operation, outcome);
        }
    }
}

/// The operations that a rule requires where bundles begin or end (`at_end`), or that it has
/// verified where they pass.
fn operations(rule: &Rule, at_end: bool) -> impl Iterator<Item = Operation> {
    let of_rule = move |operation: &Operation| match operation {
        Operation::Integrity => rule.signs() || !at_end,
        Operation::Confidentiality => rule.encrypts() && at_end,
    };
    Operation::ALL.into_iter().filter(of_rule)
}

/// Whether a bundle is a fragment that is judged with its bundle, once that is whole. Under custody
/// it is not: nobody has proved who its custodian is.
fn is_judged_whole(bundle: &Bundle, here: bool) -> bool {
    here && bundle.primary.has_fragmentation() && bundle.cteb.is_none()
}

/// Notes why a bundle is refused.
fn refuse(counts: &Counts, (operation, why): Refused) -> Insecure {
    counts.count(operation, Outcome::from(why));
    why
}

impl Security for Guard {
    fn secures(&self, source: &Eid, destination: &Eid, passes: bool) -> bool {
        let required = self.with_rule((source, destination), |active| {
            active.rule.is_required(!passes)
        });
        required == Some(true)
    }

    fn encrypts(&self, source: &Eid, destination: &Eid) -> bool {
        let encrypts = |active: &Active| active.rule.encrypts();
        self.with_rule((source, destination), encrypts) == Some(true)
    }

    fn secure(
        &self,
        primary: &mut PrimaryBlock,
        first_number: u64,
        payload: Content<'_>,
    ) -> io::Result<Option<Secured>> {
        let Some(rules) = self.rules() else {
            return Ok(None);
        };
        let active = find(&rules, &primary.source, &primary.destination);
        let Some(active) = active.filter(|active| active.rule.is_required(true)) else {
            return Ok(None);
        };
        let secured = secure(active, &self.source, primary, first_number, payload)?;
        self.count_all(&active.rule, true, Outcome::Added);
        Ok(Some(secured))
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
        if !rule.is_required(here) || is_judged_whole(bundle, here) {
            return Ok(());
        }
        let accepted = match here {
            true => accept(rule, bundle),
            false => verify_in_transit(rule, bundle),
        };
        match accepted {
            Ok(()) => self.count_all(rule, here, Outcome::Verified),
            Err(refused) => return Err(refuse(&self.counts, refused)),
        }
        Ok(())
    }

    fn follow(
        &self,
        bundle: &Bundle,
        payload_bytes: u64,
        here: bool,
    ) -> Result<Option<Box<dyn Following>>, Insecure> {
        let Some(rules) = self.rules() else {
            return Ok(None);
        };
        let primary = &bundle.primary;
        let found = find(&rules, &primary.source, &primary.destination);
        let Some(Active { rule, .. }) = found.filter(|active| active.rule.is_required(here)) else {
            return Ok(None);
        };
        if is_judged_whole(bundle, here) {
            return Ok(None);
        }
        let on_payload = follow(rule, bundle, payload_bytes, here);
        let on_payload = on_payload.map_err(|refused| refuse(&self.counts, refused))?;
        Ok(Some(Box::new(Followed {
            on_payload,
            operations: operations(rule, here).collect(),
            here,
            counts: self.counts.clone(),
        })))
    }
}

/// A bundle whose payload comes.
#[derive(Debug)]
struct Followed {
    on_payload: OnPayload,
    /// What is verified if its payload is as it should be.
    operations: Vec<Operation>,
    here: bool,
    counts: Arc<Counts>,
}

impl Following for Followed {
    fn take(&mut self, piece: &[u8]) {
        self.on_payload.take(piece);
    }

    fn finish(self: Box<Self>, bundle: &mut Bundle) -> io::Result<Result<(), Insecure>> {
        if let Err(refused) = self.on_payload.finish(bundle)? {
            return Ok(Err(refuse(&self.counts, refused)));
        }
        for operation in self.operations {
            self.counts.count(operation, Outcome::Verified);
        }
        if self.here {
            remove_security(bundle);
        }
        Ok(Ok(()))
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
