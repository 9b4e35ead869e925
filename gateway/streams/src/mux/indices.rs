//! Sets of stream ids, bounded.

use rangemap::RangeInclusiveSet;

/// Indices (id / 2) of streams: a thousand in a row cost as much as one.
pub(super) type Indices = RangeInclusiveSet<u64>;

/// The ranges that a set may have besides one per stream. Each further range is a payload with an
/// OPEN that is still on its way, so only a peer that skips ids on purpose comes near this.
const MAX_RANGES: usize = 65_536;

/// Whether an index may be added: to a full set, only where it makes no
/// further range.
pub(super) fn has_room(indices: &Indices, index: u64) -> bool {
    let touching = index.saturating_sub(1)..=index.saturating_add(1);
    indices.len() < MAX_RANGES || indices.overlaps(&touching)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_set_takes_only_what_makes_no_further_range() {
        let mut indices = Indices::new();
        for index in 0..MAX_RANGES as u64 {
            assert!(has_room(&indices, 4 * index));
            indices.insert(4 * index..=4 * index);
        }
        let admitted = [4, 5, 6, 7].map(|index| has_room(&indices, index));
        assert_eq!(admitted, [true, true, false, true]);
    }
}
