//! This node as verifier and security acceptor: what a rule requires of a received
//! bundle.

use std::io;

use bytes::Bytes;
use underpass_bundle::Insecure;
use underpass_bundle::wire::{Bundle, CborError, Content, Extension, Reader, block_type};

use crate::block::{BCB_AES_GCM, BIB_HMAC_SHA2, SecurityBlock};
use crate::canonical::canonical;
use crate::counters::Operation::{self, Confidentiality, Integrity};
use crate::keys::Key;
use crate::rules::Rule;
use crate::scope::{Header, Target};
use crate::{Failure, confidentiality, integrity};

const PRIMARY: u64 = 0;
const PAYLOAD: u64 = 1;

/// The operation for which a bundle is refused, and why.
pub(crate) type Refused = (Operation, Insecure);

impl From<Failure> for Insecure {
    fn from(failure: Failure) -> Insecure {
        match failure {
            Failure::Failed | Failure::Unread => Insecure::Failed,
            Failure::Unknown => Insecure::Unknown,
            Failure::Malformed => Insecure::Malformed,
        }
    }
}

/// A security block with its header.
struct Found {
    header: Header,
    block: SecurityBlock,
}

/// The security blocks of a bundle.
struct Blocks {
    /// BIBs that are not encrypted.
    bibs: Vec<Found>,
    bcbs: Vec<Found>,
    /// The primary block in deterministic encoding.
    primary: Vec<u8>,
    payload: Header,
}

/// Applies a rule where a bundle ends: decrypts the payload, verifies integrity, and
/// removes the security blocks.
///
/// # Errors
/// When the bundle is not as the rule requires; the bundle must not be used then.
pub(crate) fn accept(rule: &Rule, bundle: &mut Bundle) -> Result<(), Refused> {
    refuse_fragment(rule, bundle)?;
    let mut blocks = Blocks::read(bundle)?;
    if rule.encrypts() {
        blocks.decrypt(&rule.confidentiality_keys, bundle)?;
    }
    if rule.signs() {
        blocks.verify(rule, &bundle.payload)?;
    }
    remove_security(bundle);
    Ok(())
}

/// Removes the security blocks of a bundle that ends here.
pub(crate) fn remove_security(bundle: &mut Bundle) {
    bundle.others.retain(|block| !is_security(block));
}

/// The operations on a payload that is still to come.
#[derive(Debug, Default)]
pub(crate) struct OnPayload {
    /// Decrypts it, if it ends here encrypted.
    opening: Option<confidentiality::Running>,
    /// Verifies it once it is decrypted, if it is signed.
    verifying: Option<integrity::Running>,
}

impl OnPayload {
    /// Takes the next piece of the payload.
    pub fn take(&mut self, piece: &[u8]) {
        match (&mut self.opening, &mut self.verifying) {
            (Some(opening), _) => opening.take(piece),
            (None, Some(verifying)) => verifying.take(piece),
            (None, None) => {}
        }
    }

    /// Decrypts the payload in place, if it is to be, and verifies it. Waits for the disk.
    ///
    /// # Errors
    /// When the disk fails; what is returned, when the payload is another one.
    pub fn finish(mut self, bundle: &mut Bundle) -> io::Result<Result<(), Refused>> {
        if let Some(opening) = self.opening.take() {
            let plain_bytes = opening.plain_bytes();
            let (mut decrypting, file) = match (opening.finish(), bundle.file.take()) {
                (Ok(decrypting), Some(file)) => (decrypting, file),
                (Err(failure), _) => return Ok(Err((Confidentiality, failure.into()))),
                (_, None) => return Err(io::ErrorKind::NotFound.into()),
            };
            let plain = file.changed(plain_bytes, |piece| {
                decrypting.apply(piece);
                self.take(piece);
            })?;
            bundle.file = Some(plain);
            bundle.encrypted = false;
        }
        let verified = self.verifying.map_or(Ok(()), integrity::Running::finish);
        Ok(verified.map_err(|failure| (Integrity, failure.into())))
    }
}

/// Begins to apply a rule to a bundle of which all but the payload has come.
///
/// # Errors
/// When the bundle is not as the rule requires.
pub(crate) fn follow(
    rule: &Rule,
    bundle: &Bundle,
    payload_bytes: u64,
    here: bool,
) -> Result<OnPayload, Refused> {
    refuse_fragment(rule, bundle)?;
    let mut blocks = Blocks::read(bundle)?;
    let (mut on_payload, mut plain_bytes) = (OnPayload::default(), payload_bytes);
    if rule.encrypts() && here {
        let opening = blocks.begin_to_decrypt(&rule.confidentiality_keys, bundle, payload_bytes)?;
        plain_bytes = opening.plain_bytes();
        on_payload.opening = Some(opening);
    } else if rule.encrypts() && !blocks.encrypts(PAYLOAD) {
        return Err((Confidentiality, Insecure::Missing));
    }
    if rule.signs() {
        on_payload.verifying = blocks.verify_all_but_payload(rule, plain_bytes)?;
    }
    Ok(on_payload)
}

/// Verifies the integrity of a bundle that passes this node; the bundle stays as it is.
///
/// # Errors
/// When the bundle is not as the rule requires.
pub(crate) fn verify_in_transit(rule: &Rule, bundle: &Bundle) -> Result<(), Refused> {
    refuse_fragment(rule, bundle)?;
    let blocks = Blocks::read(bundle)?;
    if rule.encrypts() && !blocks.encrypts(PAYLOAD) {
        return Err((Confidentiality, Insecure::Missing));
    }
    match rule.signs() {
        true => blocks.verify(rule, &bundle.payload),
        false => Ok(()),
    }
}

/// Refuses fragments. A fragment has no results of its own (RFC 9172 §5.2), so anybody
/// may have made it, even one with a custody signal in it.
fn refuse_fragment(rule: &Rule, bundle: &Bundle) -> Result<(), Refused> {
    let operation = match rule.signs() {
        true => Integrity,
        false => Confidentiality,
    };
    match bundle.primary.has_fragmentation() {
        true => Err((operation, Insecure::Missing)),
        false => Ok(()),
    }
}

/// Decrypts the payload of a bundle that this node has encrypted itself.
pub(crate) fn reveal(
    keys: &[Key],
    primary: &[u8],
    others: &[Extension],
    payload: &[u8],
) -> Option<Vec<u8>> {
    let bcb = others.iter().find(|block| block.kind == block_type::BCB)?;
    let found = Found::read(bcb).ok()?;
    let place = found.place_of(PAYLOAD)?;
    let target = crate::sourcing::PAYLOAD;
    let block = &found.block;
    confidentiality::decrypt(block, place, keys, primary, target, found.header, payload).ok()
}

fn unopened(failure: Failure) -> Refused {
    (Confidentiality, failure.into())
}

fn is_security(block: &Extension) -> bool {
    matches!(block.kind, block_type::BIB | block_type::BCB)
}

impl Found {
    fn read(extension: &Extension) -> Result<Found, Insecure> {
        let content = extension.content().map_err(|_| Insecure::Malformed)?;
        Found::parse(extension, &content)
    }

    fn parse(extension: &Extension, content: &[u8]) -> Result<Found, Insecure> {
        let block = SecurityBlock::parse(content).map_err(|_| Insecure::Malformed)?;
        Ok(Found {
            header: Header {
                kind: extension.kind,
                number: extension.number,
                flags: extension.flags,
            },
            block,
        })
    }

    fn place_of(&self, target: u64) -> Option<usize> {
        self.block
            .targets
            .iter()
            .position(|number| *number == target)
    }
}

impl Blocks {
    fn read(bundle: &Bundle) -> Result<Blocks, Refused> {
        let of_kind = |kind| bundle.others.iter().filter(move |block| block.kind == kind);
        let bcbs = of_kind(block_type::BCB).map(Found::read);
        let bcbs: Vec<Found> = bcbs
            .collect::<Result<_, _>>()
            .map_err(|why| (Confidentiality, why))?;
        let encrypted = |number| bcbs.iter().any(|bcb| bcb.place_of(number).is_some());
        let bibs = of_kind(block_type::BIB).filter(|block| !encrypted(block.number));
        let bibs: Vec<Found> = bibs
            .map(Found::read)
            .collect::<Result<_, _>>()
            .map_err(|why| (Integrity, why))?;
        let malformed = |_: CborError| (Integrity, Insecure::Malformed);
        let blocks = Blocks {
            bibs,
            bcbs,
            primary: canonical(&bundle.primary_raw).map_err(malformed)?,
            payload: payload_header(&bundle.payload_head).map_err(malformed)?,
        };
        blocks.check_targets(bundle)?;
        Ok(blocks)
    }

    /// Checks the targets: no block is the target of two operations of one kind; a BIB
    /// has no security block as a target, and a BCB neither another BCB nor the primary
    /// block (RFC 9172 §3.2, §3.7 and §3.8).
    fn check_targets(&self, bundle: &Bundle) -> Result<(), Refused> {
        let kind_of = |number| {
            let block = bundle.others.iter().find(|block| block.number == number);
            block.map(|block| block.kind)
        };
        for (operation, found) in [(Integrity, &self.bibs), (Confidentiality, &self.bcbs)] {
            let mut seen: Vec<u64> = Vec::new();
            for target in found.iter().flat_map(|found| &found.block.targets) {
                let allowed = match (operation, kind_of(*target)) {
                    (_, Some(block_type::BCB)) | (Integrity, Some(block_type::BIB)) => false,
                    (Confidentiality, _) => *target != PRIMARY,
                    (Integrity, _) => true,
                };
                if !allowed || seen.contains(target) {
                    return Err((operation, Insecure::Conflicting));
                }
                seen.push(*target);
            }
        }
        Ok(())
    }

    fn encrypts(&self, target: u64) -> bool {
        self.bcbs.iter().any(|bcb| bcb.place_of(target).is_some())
    }

    /// Decrypts the payload and the encrypted BIBs.
    fn decrypt(&mut self, keys: &[Key], bundle: &mut Bundle) -> Result<(), Refused> {
        let (bcb, place) = self.on_payload()?;
        let payload = self.open((bcb, place), keys, self.payload, &bundle.payload)?;
        self.decrypt_bibs(keys, bundle)?;
        bundle.payload = Bytes::from(payload);
        bundle.encrypted = false;
        Ok(())
    }

    /// Begins to decrypt a payload that is still to come, and decrypts the encrypted BIBs.
    fn begin_to_decrypt(
        &mut self,
        keys: &[Key],
        bundle: &Bundle,
        payload_bytes: u64,
    ) -> Result<confidentiality::Running, Refused> {
        let (Found { header, block }, place) = self.on_payload()?;
        let target = (self.payload, payload_bytes);
        let begun =
            confidentiality::Running::begin((block, place), keys, &self.primary, target, *header);
        let begun = begun.map_err(unopened)?;
        self.decrypt_bibs(keys, bundle)?;
        Ok(begun)
    }

    /// The BCB on the payload, and the payload's place among its targets.
    fn on_payload(&self) -> Result<(&Found, usize), Refused> {
        let found = self
            .bcbs
            .iter()
            .find_map(|bcb| Some((bcb, bcb.place_of(PAYLOAD)?)));
        let (bcb, place) = found.ok_or((Confidentiality, Insecure::Missing))?;
        if bcb.block.context != BCB_AES_GCM {
            return Err((Confidentiality, Insecure::Unknown));
        }
        let scope = confidentiality::scope(&bcb.block).map_err(unopened)?;
        match scope.has_primary() {
            true => Ok((bcb, place)),
            false => Err((Confidentiality, Insecure::Missing)),
        }
    }

    /// Decrypts a target that is in memory.
    fn open(
        &self,
        (Found { header, block }, place): (&Found, usize),
        keys: &[Key],
        target: Header,
        content: &[u8],
    ) -> Result<Vec<u8>, Refused> {
        let primary = &self.primary;
        let opened =
            confidentiality::decrypt(block, place, keys, primary, target, *header, content);
        opened.map_err(unopened)
    }

    /// Decrypts the encrypted BIBs; from then on the payload counts as decrypted, too.
    fn decrypt_bibs(&mut self, keys: &[Key], bundle: &Bundle) -> Result<(), Refused> {
        let mut opened = Vec::new();
        for bib in bundle
            .others
            .iter()
            .filter(|other| other.kind == block_type::BIB)
        {
            let number = bib.number;
            let by = self
                .bcbs
                .iter()
                .filter(|bcb| bcb.block.context == BCB_AES_GCM);
            let mut by = by.filter_map(|bcb| Some((bcb, bcb.place_of(number)?)));
            let Some(by) = by.next() else {
                continue;
            };
            let target = Header {
                kind: bib.kind,
                number,
                flags: bib.flags,
            };
            let malformed = |_| (Integrity, Insecure::Malformed);
            let content = bib.content().map_err(malformed)?;
            let content = self.open(by, keys, target, &content)?;
            opened.push(Found::parse(bib, &content).map_err(|why| (Integrity, why))?);
        }
        self.bibs.extend(opened);
        self.bcbs.retain(|bcb| bcb.place_of(PAYLOAD).is_none());
        self.check_targets(bundle)
    }

    /// Verifies all operations on primary block and payload.
    fn verify(&self, rule: &Rule, payload: &Bytes) -> Result<(), Refused> {
        let pieces = Content::Here(std::slice::from_ref(payload));
        let target = Target::Block(self.payload, pieces);
        self.verify_each(rule, |Found { header, block }, place| {
            let keys = &rule.integrity_keys;
            integrity::verify(block, place, keys, &self.primary, &target, *header)
        })
    }

    /// The same for a payload that is still to come; returns the operation on it.
    fn verify_all_but_payload(
        &self,
        rule: &Rule,
        bytes: u64,
    ) -> Result<Option<integrity::Running>, Refused> {
        let mut running = None;
        self.verify_each(rule, |Found { header, block }, place| {
            let (keys, target) = (&rule.integrity_keys, (self.payload, bytes));
            let primary = &self.primary;
            let begun = integrity::Running::begin((block, place), keys, primary, target, *header)?;
            running = Some(begun);
            Ok(())
        })?;
        Ok(running)
    }

    /// Verifies all operations on the primary block, and has each on the payload verified. At
    /// least one of them must be on the payload and cover the primary block too: otherwise the
    /// payload could come from another bundle. An encrypted payload is authenticated by its
    /// encryption, so an operation on the primary block is enough there.
    fn verify_each(
        &self,
        rule: &Rule,
        mut on_payload: impl FnMut(&Found, usize) -> Result<(), Failure>,
    ) -> Result<(), Refused> {
        let refused = |failure: Failure| (Integrity, Insecure::from(failure));
        let keys = &rule.integrity_keys;
        let (mut primary, mut bound) = (false, false);
        for found in &self.bibs {
            let Found { header, block } = found;
            for (place, number) in block.targets.iter().enumerate() {
                let of_payload = match *number {
                    PRIMARY => false,
                    PAYLOAD if !self.encrypts(PAYLOAD) => true,
                    _ => continue,
                };
                if block.context != BIB_HMAC_SHA2 {
                    return Err((Integrity, Insecure::Unknown));
                }
                let verified = match of_payload {
                    true => on_payload(found, place),
                    false => {
                        let target = Target::Primary;
                        integrity::verify(block, place, keys, &self.primary, &target, *header)
                    }
                };
                verified.map_err(refused)?;
                match of_payload {
                    true => bound = integrity::scope(block).map_err(refused)?.has_primary(),
                    false => primary = true,
                }
            }
        }
        match bound || primary && rule.encrypts() {
            true => Ok(()),
            false => Err((Integrity, Insecure::Missing)),
        }
    }
}

/// The header of the payload block, read from the block's first bytes.
fn payload_header(head: &[u8]) -> Result<Header, CborError> {
    let mut reader = Reader::new(head);
    reader.array()?;
    Ok(Header {
        kind: reader.unsigned()?,
        number: reader.unsigned()?,
        flags: reader.unsigned()?,
    })
}
