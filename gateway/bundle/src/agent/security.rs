//! The interface by which the agent secures bundles end to end (RFC 9172): security blocks are
//! added where a bundle begins, and judged where one comes in.

use std::fmt;
use std::io;
use std::sync::Arc;

use bp7::primary::PrimaryBlock;
use bytes::Bytes;
use thiserror::Error;
use underpass_payloads::PayloadFile;

use super::event::DeleteReason;
use crate::wire::{Bundle, Content, Eid, Extension};

/// Why a bundle is not secured as it has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Insecure {
    /// An operation that is required is not there.
    #[error("a required security operation is missing")]
    Missing,
    /// An operation does not belong to these bytes and a known key.
    #[error("a security operation failed")]
    Failed,
    /// An operation is of a kind that is not supported.
    #[error("a security operation is of an unknown kind")]
    Unknown,
    /// Two operations contradict each other, or one is on a block that it must
    /// not be on.
    #[error("security operations conflict")]
    Conflicting,
    /// A security block cannot be read.
    #[error("a security block is malformed")]
    Malformed,
}

impl From<Insecure> for DeleteReason {
    fn from(why: Insecure) -> DeleteReason {
        match why {
            Insecure::Missing => DeleteReason::MissingSecurity,
            Insecure::Failed => DeleteReason::FailedSecurity,
            Insecure::Unknown => DeleteReason::UnknownSecurity,
            Insecure::Conflicting => DeleteReason::ConflictingSecurity,
            Insecure::Malformed => DeleteReason::BlockUnintelligible,
        }
    }
}

/// A bundle that was secured.
#[derive(Clone, Debug)]
pub struct Secured {
    /// The primary block, encoded; without a CRC if it is a target.
    pub primary: Bytes,
    /// The security blocks.
    pub blocks: Vec<Extension>,
    /// The payload, as long as before, if it was encrypted.
    pub encrypted: Option<Encrypted>,
}

/// A payload that was encrypted: it is where it was before.
#[derive(Clone, Debug)]
pub enum Encrypted {
    /// In memory.
    Here(Bytes),
    /// In a file of its own.
    OnDisk(Arc<PayloadFile>),
}

/// Adds and judges security blocks. All agents of a node share one; it keeps
/// what it needs to itself.
pub trait Security: fmt::Debug + Send + Sync {
    /// Whether a bundle between these endpoints has to be secured where it begins and ends, or
    /// where it `passes`.
    fn secures(&self, source: &Eid, destination: &Eid, passes: bool) -> bool;

    /// Whether a bundle between these endpoints is encrypted where it begins, and decrypted where
    /// it ends.
    fn encrypts(&self, source: &Eid, destination: &Eid) -> bool;

    /// Secures a bundle that begins at this node, if the rules ask for it: its blocks are numbered
    /// from `first_number`. A payload block that was secured has no CRC. Flags of the primary block
    /// may change. Waits for the disk if the payload is there.
    ///
    /// # Errors
    /// When the payload cannot be read, or is to be encrypted and is too long for that or has no
    /// room for that on the disk.
    fn secure(
        &self,
        primary: &mut PrimaryBlock,
        first_number: u64,
        payload: Content<'_>,
    ) -> io::Result<Option<Secured>>;

    /// The plain payload of a bundle that [`Security::secure`] has encrypted; `None` if it is not
    /// encrypted or its key is gone.
    fn reveal(&self, primary: &[u8], others: &[Extension], payload: &[u8]) -> Option<Bytes>;

    /// Judges a bundle that came in. If it is for this node (`here`), it is decrypted and its
    /// security blocks are removed; a fragment stays as it is until its bundle is whole.
    ///
    /// # Errors
    /// When it is not secured as it has to be: nothing of it may be used.
    fn accept(&self, bundle: &mut Bundle, here: bool) -> Result<(), Insecure>;

    /// As [`Security::accept`], for a bundle of which all but the payload has come, which is too
    /// long for memory: by the blocks before that, and by what is returned, if there is more to
    /// judge. A fragment for this node is judged once its bundle is whole.
    ///
    /// # Errors
    /// As there.
    fn follow(
        &self,
        bundle: &Bundle,
        payload_bytes: u64,
        here: bool,
    ) -> Result<Option<Box<dyn Following>>, Insecure>;
}

/// Judges a bundle as its payload comes.
pub trait Following: fmt::Debug + Send {
    /// Takes the next piece of the payload.
    fn take(&mut self, piece: &[u8]);

    /// Judges the bundle, of which all has come: its payload is on disk, and has no other handle.
    /// If it is for this node, it is decrypted and its security blocks are removed. Waits for the
    /// disk if it is to be decrypted.
    ///
    /// # Errors
    /// When the disk fails. What is returned is as with [`Security::accept`]. In both cases the
    /// payload is of no use.
    fn finish(self: Box<Self>, bundle: &mut Bundle) -> io::Result<Result<(), Insecure>>;
}
