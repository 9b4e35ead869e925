//! What all kinds of sources have in common.

use std::time::{Duration, Instant};

use thiserror::Error;

use crate::fix::Fix;

/// What a source has said.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Where the receiver is.
    Fix(Fix),
    /// The receiver does not know where it is.
    NoFix,
    /// A problem, in words for the operator; the source continues.
    Trouble(String),
}

/// Why a connection to a source is to be given up, and made anew.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FeedError {
    /// Nothing has come for long.
    #[error("nothing heard for {} s", .0.as_secs())]
    Silent(Duration),
    /// gpsd speaks another protocol.
    #[error("gpsd speaks version {0} of its protocol, not 3")]
    Version(u64),
}

/// Counts of a source's sentences or objects by outcome, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sound sentences or objects.
    pub sentences: u64,
    /// Fixes made of them.
    pub fixes: u64,
    /// Lines that are no sound sentence or object.
    pub spoilt: u64,
    /// Well-formed ones with impossible fields, and fixes whose time goes back.
    pub rejected: u64,
    /// Epochs without a fix.
    pub without_fix: u64,
}

/// One source's side of the conversation, as a state machine.
pub trait Feed {
    /// A connection begins; nothing of an earlier one counts any more.
    fn open(&mut self, now: Instant);

    /// Takes what has come.
    ///
    /// # Errors
    /// When the connection is to be given up.
    fn receive(&mut self, now: Instant, bytes: &[u8]) -> Result<Vec<Event>, FeedError>;

    /// When to call [`Feed::elapse`], if nothing comes.
    fn deadline(&self) -> Instant;

    /// The deadline has come.
    ///
    /// # Errors
    /// When the connection is to be given up.
    fn elapse(&mut self, now: Instant) -> Result<Vec<Event>, FeedError>;

    /// What to send to the source next, if anything.
    fn poll_transmit(&mut self) -> Option<String>;

    /// What became of its sentences.
    fn counts(&self) -> Counts;
}
