//! A session that is being cancelled (RFC 5326, 6.15 to 6.17).

use std::time::Duration;

use crate::segment::Reason;

/// The cancel segment is repeated until the peer knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cancelling {
    pub(crate) reason: Reason,
    pub(crate) tries: u32,
    /// When it is sent again; none while that waits in the queue.
    pub(crate) due: Option<Duration>,
}

impl Cancelling {
    pub(crate) fn new(reason: Reason) -> Cancelling {
        Cancelling {
            reason,
            tries: 0,
            due: None,
        }
    }
}
