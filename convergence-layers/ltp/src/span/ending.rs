//! The end of a span with blocks under way, and what the next span with the same peer has to do
//! about them.

use super::Span;
use crate::segment::Reason;

/// Most sessions of an earlier span that are refused: as many as a node may be configured to have
/// with a neighbour.
const REFUSED: usize = 1 << 16;

impl Span {
    /// Cancels all blocks under way, since the span ends. [`Span::poll_transmit`] then has what the
    /// peer is to be told once.
    ///
    /// Returns the numbers of the peer's sessions whose blocks the client has not taken. The next
    /// span has to [refuse](Span::refuse) them: the peer adds up all reports of a session
    /// (RFC 5326, 6.12), so a span that received only the rest of such a block would make the peer
    /// believe that all of it had arrived.
    pub fn end(&mut self) -> Vec<u64> {
        let sending = self.sending.iter();
        let sending = sending.filter(|(_, sending)| sending.cancelling.is_none());
        let sending: Vec<u64> = sending.map(|(number, _)| *number).collect();
        for number in sending {
            self.cancel_sending(number, Reason::Client);
        }
        let unfinished = self.receiving.iter();
        let unfinished = unfinished.filter(|(_, receiving)| !receiving.is_taken());
        let unfinished: Vec<u64> = unfinished.map(|(number, _)| *number).collect();
        for number in &unfinished {
            let receiving = self.receiving.get(number);
            if receiving.is_some_and(|receiving| receiving.cancelling.is_none()) {
                self.cancel_reception(*number, Reason::System);
            }
        }
        unfinished
    }

    /// Cancels sessions of the peer, by their numbers, whose blocks an earlier span with it has not
    /// received to the end ([`Span::end`]). The peer has to send these blocks in other sessions.
    /// Of more than 65536 the rest is left out.
    pub fn refuse(&mut self, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers.into_iter().take(REFUSED) {
            if !self.receiving.contains_key(&number) {
                self.refuse_session(number, Reason::System);
            }
        }
    }
}
