//! Bundles of this node whose payload is on disk and has to be secured. All of it is read for that,
//! so it is done between two calls of the agent.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use bp7::flags::BundleControlFlags as Flags;
use bp7::primary::PrimaryBlock;
use underpass_payloads::PayloadFile;

use super::Agent;
use super::event::{Send, SendError};
use super::originate::{MAX_LIFETIME, report_flags};
use super::security::{Secured, Security};
use super::stored::BlockNumbers;
use crate::wire::{Content, Eid, is_null, seal_primary};

/// The number of the first security block of a bundle that begins here.
pub(super) const FIRST_SECURITY_NUMBER: u64 = BlockNumbers::NEXT + 1;

/// The primary block of a bundle that has to be secured.
#[derive(Debug)]
pub struct Unsigned {
    security: Arc<dyn Security>,
    primary: PrimaryBlock,
    since: Instant,
}

/// The same, secured.
#[derive(Clone, Debug)]
pub struct Signed {
    pub(super) primary: PrimaryBlock,
    pub(super) secured: Secured,
    /// When the bundle was created.
    pub(super) since: Instant,
}

impl Unsigned {
    /// Secures the bundle with this payload; `None` if that is no longer asked for. If it is
    /// encrypted, another file is written, which needs room beside this one. Waits for the disk.
    ///
    /// # Errors
    /// When the disk fails, or there is no room for the encrypted payload.
    pub fn sign(mut self, file: &PayloadFile) -> io::Result<Option<Signed>> {
        let (primary, payload) = (&mut self.primary, Content::OnDisk(file));
        let secured = self
            .security
            .secure(primary, FIRST_SECURITY_NUMBER, payload)?;
        Ok(secured.map(|secured| Signed {
            primary: self.primary,
            secured,
            since: self.since,
        }))
    }
}

impl Agent {
    /// Begins a bundle whose payload is on disk, if it has to be secured; `None` if not. Once
    /// [`Unsigned::sign`] has done that, [`Agent::send_signed`] sends it.
    ///
    /// # Errors
    /// When it cannot be sent so.
    pub fn draft_file(&mut self, now: Instant, send: &Send) -> Result<Option<Unsigned>, SendError> {
        if is_null(&send.destination) {
            return Err(SendError::Destination);
        }
        if self.config.own_service(&send.destination).is_some() {
            return Err(SendError::OnDisk);
        }
        let source = self.config.endpoint(send.service);
        let source = source.ok_or(SendError::Source)?;
        let Some(security) = self.config.security.clone() else {
            return Ok(None);
        };
        if !security.secures(&source, &send.destination, false) {
            return Ok(None);
        }
        let (report_to, reports) = match &send.reports {
            Some(request) => (request.to.clone(), report_flags(request)),
            None => (Eid::none(), Flags::empty()),
        };
        let lifetime = send.lifetime.unwrap_or(self.config.lifetime);
        let (primary, _) = seal_primary(
            send.destination.clone(),
            source,
            report_to,
            self.timestamps.next(now, send.service),
            lifetime.min(MAX_LIFETIME),
            reports.bits(),
        );
        Ok(Some(Unsigned {
            security,
            primary,
            since: now,
        }))
    }

    /// Whether a bundle of this node with a payload on disk lacks what it has to be secured by.
    pub(super) fn lacks_security(
        &self,
        source: &Eid,
        destination: &Eid,
        signed: Option<&Signed>,
    ) -> bool {
        let Some(security) = &self.config.security else {
            return false;
        };
        match signed {
            Some(signed) => {
                let encrypted = signed.secured.encrypted.is_some();
                !encrypted && security.encrypts(source, destination)
            }
            None => security.secures(source, destination, false),
        }
    }
}
