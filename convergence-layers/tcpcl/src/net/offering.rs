//! Whether a dialled session offers extension items in its SESS_INIT.
//!
//! By RFC 9174 a peer ignores items that it does not know (4.8), but some peers end the session
//! instead. Such a peer is dialled again without any, and gets one session for all classes. A
//! session may end for other reasons, such as a restart, so it takes two in a row, and after each
//! session without items the next one offers them again.

/// What was learned of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offering {
    /// Items are offered; this many sessions in a row have ended because of them.
    Items { ended: u32 },
    /// None are.
    Nothing,
}

/// After this many sessions that the peer has ended, none are offered.
const ENDED_AT_MOST: u32 = 2;

impl Default for Offering {
    fn default() -> Self {
        Offering::Items { ended: 0 }
    }
}

impl Offering {
    /// Whether the next session offers items.
    pub fn has_items(self) -> bool {
        matches!(self, Offering::Items { .. })
    }

    /// The peer has ended a session right after our SESS_INIT. Returns whether that changes what is
    /// offered.
    pub fn refused(&mut self) -> bool {
        let before = self.has_items();
        *self = match *self {
            Offering::Items { ended } if ended + 1 >= ENDED_AT_MOST => Offering::Nothing,
            Offering::Items { ended } => Offering::Items { ended: ended + 1 },
            // So it is not the items.
            Offering::Nothing => Offering::Items { ended: 0 },
        };
        before != self.has_items()
    }

    /// A session has lived, and ended since.
    pub fn ended(&mut self) {
        let ended = match *self {
            Offering::Items { .. } => 0,
            // If it still does not accept items, one more session shows that.
            Offering::Nothing => ENDED_AT_MOST - 1,
        };
        *self = Offering::Items { ended };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_ends_each_session_with_items_gets_one_without() {
        let mut offering = Offering::default();
        assert!(!offering.refused() && offering.has_items());
        assert!(offering.refused() && !offering.has_items());
        // That session lived; the next one shows whether anything has changed.
        offering.ended();
        assert!(offering.has_items());
        assert!(offering.refused() && !offering.has_items());
    }

    #[test]
    fn one_end_at_the_wrong_moment_changes_nothing() {
        let mut offering = Offering::default();
        for _ in 0..10 {
            assert!(!offering.refused());
            assert!(offering.has_items());
            offering.ended();
        }
    }

    #[test]
    fn a_peer_that_ends_every_session_is_offered_items_again() {
        let mut offering = Offering::default();
        let offered = (0..9).map(|_| {
            let had = offering.has_items();
            offering.refused();
            had
        });
        let offered: Vec<bool> = offered.collect();
        assert_eq!(offered, [true, true, false].repeat(3));
    }
}
