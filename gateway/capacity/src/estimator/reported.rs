//! What the modem's word about its coding changes.

use super::Estimator;
use crate::Reason;
use crate::view::View;

impl Estimator {
    /// Takes the modem's word about its coding: how many bits a unit of the link's capacity
    /// carries; `None` if it says nothing. If the link was measured under the word before, the new
    /// estimate follows from it at once.
    pub fn set_efficiency(&mut self, efficiency: Option<f64>) {
        let ceiling = self.limits.ceiling_bps.map(|bps| bps as f64);
        if let Some(bps) = self.word.say(efficiency, self.capacity.or(ceiling)) {
            self.estimate(bps, Reason::Hint);
            self.keep_below_ceiling();
            self.go_on_as_told();
        }
    }

    /// Notes what the link is measured to carry under the present word. A link that carries its
    /// ceiling has no estimate, and is not known to carry more.
    pub(super) fn see_under_word(&mut self, view: &View) {
        let ceiling = self.limits.ceiling_bps.map(|bps| bps as f64);
        let measured = match (self.capacity, self.reason) {
            (None, _) => ceiling.filter(|bps| view.carries(*bps)),
            (capacity, Reason::Probe | Reason::Limit) => capacity,
            (Some(_), Reason::Hint | Reason::Start) => None,
        };
        if let Some(bps) = measured {
            self.word.see(bps);
        }
    }
}
