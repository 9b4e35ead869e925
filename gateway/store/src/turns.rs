//! Which shard's work comes next when several have some.

/// Shares out bytes of work, so that no shard waits for all the work of another.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turns {
    /// The shard that is first next time, if it has work.
    next: usize,
}

impl Turns {
    /// Shares `most` bytes out among the shards that have work, in ascending order: first equal
    /// parts, then what some of them have not needed. `take` does a shard's work until it has done
    /// so many bytes or has no more, and returns the bytes. Its last piece may exceed them; shards
    /// that then get nothing are first next time.
    pub fn share(&mut self, busy: &[usize], most: u64, mut take: impl FnMut(usize, u64) -> u64) {
        let (before, after) = busy.split_at(busy.partition_point(|shard| *shard < self.next));
        let part = (most / busy.len().max(1) as u64).max(1);
        let mut taken = 0;
        for shard in after.iter().chain(before) {
            if taken >= most {
                return;
            }
            taken += take(*shard, part);
            self.next = shard + 1;
        }
        for shard in after.iter().chain(before) {
            if taken >= most {
                return;
            }
            taken += take(*shard, most - taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each shard gets of 100 bytes; `work` has the pieces of each shard.
    fn share(turns: &mut Turns, work: &mut [Vec<u64>]) -> Vec<u64> {
        let busy: Vec<usize> = (0..work.len()).filter(|s| !work[*s].is_empty()).collect();
        let mut got = vec![0; work.len()];
        turns.share(&busy, 100, |shard, most| {
            let mut bytes = 0;
            while bytes < most
                && let Some(piece) = work[shard].pop()
            {
                bytes += piece;
            }
            got[shard] += bytes;
            bytes
        });
        got
    }

    #[test]
    fn a_lone_shard_gets_all() {
        let mut work = [vec![], vec![10; 50], vec![]];
        assert_eq!(share(&mut Turns::default(), &mut work), [0, 100, 0]);
    }

    #[test]
    fn what_one_does_not_need_goes_to_the_others() {
        let mut work = [vec![10; 50], vec![10], vec![10; 4]];
        assert_eq!(share(&mut Turns::default(), &mut work), [50, 10, 40]);
    }

    #[test]
    fn who_got_nothing_because_of_a_large_piece_is_first_next_time() {
        let mut turns = Turns::default();
        let mut work = [vec![500; 9], vec![10; 50], vec![500; 9]];
        let got: Vec<Vec<u64>> = (0..4).map(|_| share(&mut turns, &mut work)).collect();
        let expected = [[500, 0, 0], [0, 40, 500], [500, 0, 0], [0, 40, 500]];
        assert_eq!(got, expected);
    }
}
