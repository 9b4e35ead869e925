//! Bundles that are too long for memory, as they come in: decoded, and their security blocks
//! judged.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use underpass_payloads::PayloadFile;

use super::receive::{Decoded, Decoder, Encapsulated};
use super::security::{Following, Insecure};
use crate::wire::{Bundle, DecodeError, Long, LongDecoder};

/// A bundle that comes in piece by piece.
#[derive(Debug)]
pub struct LongDecoding {
    by: Decoder,
    decoder: LongDecoder,
    /// What judges the bundle whose payload is given back, once all before that has come.
    security: Option<Result<Option<Box<dyn Following>>, Insecure>>,
}

/// A bundle that has come in piece by piece, and whether it is secured as required.
#[derive(Debug)]
pub struct LongDecoded {
    long: Long,
    /// Whether the bundle is; for a BPDU for this node the one in it.
    secured: Result<(), Insecure>,
    followed: bool,
    /// Whether such a BPDU itself is.
    bpdu: Result<(), Insecure>,
}

impl Decoder {
    /// A decoder for a bundle that comes in piece by piece, since it is too long for memory.
    pub fn long(&self) -> LongDecoding {
        let name = self.names.node();
        LongDecoding {
            by: self.clone(),
            decoder: LongDecoder::new(self.node, name, self.limits, self.codes),
            security: None,
        }
    }

    /// Begins to judge a bundle of which all but the payload has come.
    fn follow(
        &self,
        bundle: &Bundle,
        payload_bytes: u64,
    ) -> Result<Option<Box<dyn Following>>, Insecure> {
        let here = self.is_here(&bundle.primary.destination);
        let security = self.security.as_ref();
        security.map_or(Ok(None), |s| s.follow(bundle, payload_bytes, here))
    }

    /// Judges a bundle for this node whose payload is on disk, and has no other handle; it is of no
    /// use afterwards unless the bundle is secured as required. All of it is read, and if it is to
    /// be decrypted, changed in place once its tag is verified.
    ///
    /// # Errors
    /// When the disk fails. What is returned says whether the bundle is secured as required.
    pub(super) fn judge_file(&self, bundle: &mut Bundle) -> io::Result<Result<(), Insecure>> {
        let judged = self.read_file(bundle);
        if !matches!(judged, Ok(Ok(()))) {
            // As in `LongDecoding::finish`.
            bundle.file = None;
        }
        judged
    }

    fn read_file(&self, bundle: &mut Bundle) -> io::Result<Result<(), Insecure>> {
        let mut following = match self.follow(bundle, bundle.payload_bytes()) {
            Ok(Some(following)) => following,
            Ok(None) => return Ok(Ok(())),
            Err(why) => return Ok(Err(why)),
        };
        if let Some(file) = &bundle.file {
            file.each_piece(|piece| following.take(piece))?;
        }
        following.finish(bundle)
    }

    /// Whether a long BPDU for this node is secured as required. Its payload, which security blocks
    /// would cover, is not kept as it came, so none may be required.
    fn judge_bpdu(&self, bpdu: &Bundle) -> Result<(), Insecure> {
        let (source, destination) = (&bpdu.primary.source, &bpdu.primary.destination);
        let security = self.security.as_ref();
        match security.is_some_and(|s| s.secures(source, destination, false)) {
            true => Err(Insecure::Missing),
            false => Ok(()),
        }
    }
}

impl LongDecoding {
    /// The bundle without its payload, and the payload's bytes, once all before the payload that is
    /// given back has come. For a BPDU it is the bundle in it.
    pub fn opened(&self) -> Option<(&Bundle, u64)> {
        self.decoder.opened()
    }

    /// Whether that bundle is secured as required, as far as this is known before its payload.
    ///
    /// # Errors
    /// When it is not.
    pub fn secured(&self) -> Result<(), Insecure> {
        match &self.security {
            Some(Err(why)) => Err(*why),
            _ => Ok(()),
        }
    }

    /// Takes the next piece of the bundle, and gives back the part of it that is payload.
    ///
    /// # Errors
    /// When the bundle is malformed.
    pub fn take(&mut self, piece: Bytes) -> Result<Bytes, DecodeError> {
        let part = self.decoder.take(piece)?;
        if self.security.is_none()
            && let Some((bundle, payload_bytes)) = self.decoder.opened()
        {
            self.security = Some(self.by.follow(bundle, payload_bytes));
        }
        if let Some(Ok(Some(following))) = &mut self.security {
            following.take(&part);
        }
        Ok(part)
    }

    /// The bundle, of which all has come, with its payload unless that is of no use; or why it is
    /// malformed, or not all there. Waits for the disk if the payload is to be decrypted, or is of
    /// no use. The file has to have no other handle.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn finish(self, file: Arc<PayloadFile>) -> io::Result<Result<LongDecoded, DecodeError>> {
        let mut long = match self.decoder.finish(file) {
            Ok(long) => long,
            Err(malformed) => return Ok(Err(malformed)),
        };
        let bpdu = match &long.inside {
            Some(_) => self.by.judge_bpdu(&long.bundle),
            None => Ok(()),
        };
        let bundle = match &mut long.inside {
            Some((_, inside)) => inside,
            None => &mut long.bundle,
        };
        let (secured, followed) = match self.security {
            Some(Ok(Some(following))) => (following.finish(bundle)?, true),
            Some(Ok(None)) => (Ok(()), false),
            Some(Err(why)) => (Err(why), false),
            // Nothing that is whole is left unopened.
            None => (Err(Insecure::Missing), false),
        };
        if secured.is_err() || bpdu.is_err() {
            // The disk takes a while to free it, for which no agent should have to wait.
            bundle.file = None;
        }
        Ok(Ok(LongDecoded {
            long,
            secured,
            followed,
            bpdu,
        }))
    }
}

impl Decoded {
    /// A bundle of so many bytes that [`Decoder::long`] has decoded.
    pub fn long(bytes: u64, outcome: Result<LongDecoded, DecodeError>) -> Decoded {
        let of = |outcome, secured, followed, encapsulated| Decoded {
            bytes,
            outcome,
            secured,
            followed,
            encapsulated,
        };
        let decoded = match outcome {
            Ok(decoded) => decoded,
            Err(error) => return of(Err(error), Ok(()), false, None),
        };
        let LongDecoded {
            long: Long { bundle, inside },
            secured,
            followed,
            bpdu,
        } = decoded;
        let Some((head, inside)) = inside else {
            return of(Ok(bundle), secured, followed, None);
        };
        let inside = Encapsulated {
            transmission: head.transmission,
            bundle: of(Ok(inside), secured, followed, None),
        };
        of(Ok(bundle), bpdu, false, Some(Box::new(inside)))
    }
}
