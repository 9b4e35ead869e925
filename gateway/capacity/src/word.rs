//! Turns the modem's word about its coding into a capacity, by what was measured under its word
//! before.

/// How many bits a unit of the link's capacity carries by the modem's word, and the capacities
/// measured since that word.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Word {
    efficiency: Option<f64>,
    /// The least and the greatest of these, bit/s.
    measured: Option<(f64, f64)>,
}

impl Word {
    /// Takes a measured capacity of the link, bit/s.
    pub fn see(&mut self, capacity: f64) {
        let (least, most) = self.measured.unwrap_or((capacity, capacity));
        self.measured = Some((least.min(capacity), most.max(capacity)));
    }

    /// Takes the modem's word. Returns what the link carries by it, bit/s, where that differs from
    /// `capacity`, the present estimate, or the ceiling of a link that is known to carry no less.
    ///
    /// A word may come late, when the change has been measured already. So a lower word is applied
    /// to the greatest capacity measured under the word before, and a higher one to the least.
    pub fn say(&mut self, efficiency: Option<f64>, capacity: Option<f64>) -> Option<f64> {
        if self.efficiency == efficiency {
            return None;
        }
        let before = std::mem::replace(&mut self.efficiency, efficiency);
        let (least, most) = self.measured.take()?;
        let part = efficiency? / before?;
        let capacity = capacity?;
        let by_word = match part < 1.0 {
            true => capacity.min(most * part),
            false => capacity.max(least * part),
        };
        self.see(by_word);
        (by_word != capacity).then_some(by_word)
    }

    /// What was measured does not count any more.
    pub fn forget(&mut self) {
        self.measured = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A modem whose word was 1, and the capacities measured since.
    fn measured(bps: &[f64]) -> Word {
        let mut word = Word::default();
        assert_eq!(word.say(Some(1.0), Some(8e6)), None);
        for bps in bps {
            word.see(*bps);
        }
        word
    }

    #[test]
    fn the_link_carries_as_much_less_or_more_as_the_modem_says() {
        let mut word = measured(&[8e6]);
        assert_eq!(word.say(Some(0.25), Some(8e6)), Some(2e6));
        assert_eq!(word.say(Some(0.25), Some(2e6)), None);
        assert_eq!(word.say(Some(0.5), Some(2e6)), Some(4e6));
        assert_eq!(word.say(Some(1.0), Some(4e6)), Some(8e6));
    }

    #[test]
    fn a_late_word_of_what_was_measured_meanwhile_changes_nothing() {
        let mut word = measured(&[8e6, 2e6]);
        assert_eq!(word.say(Some(0.25), Some(2e6)), None);
        word.see(4e6);
        word.see(8e6);
        assert_eq!(word.say(Some(1.0), Some(8e6)), None);
    }

    #[test]
    fn a_first_word_and_one_of_a_link_that_was_not_measured_tell_no_capacity() {
        let mut word = Word::default();
        word.see(8e6);
        assert_eq!(word.say(Some(0.5), Some(8e6)), None);
        // Nothing was measured since the last word.
        assert_eq!(word.say(Some(1.0), Some(8e6)), None);
        word.see(8e6);
        assert_eq!(word.say(Some(0.5), None), None);
        word.see(8e6);
        assert_eq!(word.say(None, Some(8e6)), None);
    }
}
