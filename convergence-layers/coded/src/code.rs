//! The code: Reed–Solomon over GF(2^16), systematic.
//!
//! Any `symbols` of a block's own and repair symbols give the block. The code depends only on the
//! number of the block's own symbols, so more repair can be made at any time.

use bytes::Bytes;
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

/// Repair symbols that a block of few has.
const LEAST_MOST_REPAIR: u16 = 8;

/// The most repair symbols of a block of `symbols` symbols: a quarter, as a power of two, since
/// both sides have to know the code's parameters.
pub(crate) fn most_repair(symbols: u16) -> u16 {
    symbols
        .div_ceil(4)
        .next_power_of_two()
        .max(LEAST_MOST_REPAIR)
}

/// The repair symbols `range` over `bodies`, padded to `bytes` each.
pub(crate) fn encode(bodies: &[Bytes], bytes: usize, range: std::ops::Range<u16>) -> Vec<Bytes> {
    if let [only] = bodies {
        // The code over one symbol is the symbol.
        return range.map(|_| padded(only, bytes).into()).collect();
    }
    let Ok(symbols) = u16::try_from(bodies.len()) else {
        return Vec::new();
    };
    let most = usize::from(most_repair(symbols));
    // Its parameters are within the code's bounds, and every body fits.
    let mut encoder =
        ReedSolomonEncoder::new(bodies.len(), most, bytes).expect("the code takes every block");
    for body in bodies {
        encoder
            .add_original_shard(padded(body, bytes))
            .expect("a block has so many symbols");
    }
    let coded = encoder.encode().expect("all symbols are there");
    let repair = range.filter_map(|number| coded.recovery(number.into()));
    repair.map(Bytes::copy_from_slice).collect()
}

/// The missing bodies of a block, padded. `own` and `repair` are symbols of the block with their
/// numbers, together enough of them. `None` if they do not belong to one block.
pub(crate) fn decode<'a>(
    symbols: u16,
    bytes: usize,
    own: impl Iterator<Item = (u16, &'a [u8])>,
    mut repair: impl Iterator<Item = (u16, &'a [u8])>,
) -> Option<Vec<(u16, Vec<u8>)>> {
    if symbols == 1 {
        let (_, code) = repair.next()?;
        return Some(vec![(0, code.to_vec())]);
    }
    let most = usize::from(most_repair(symbols));
    let mut decoder = ReedSolomonDecoder::new(symbols.into(), most, bytes).ok()?;
    for (number, body) in own {
        let body = padded(body, bytes);
        decoder.add_original_shard(number.into(), body).ok()?;
    }
    for (number, code) in repair {
        decoder.add_recovery_shard(number.into(), code).ok()?;
    }
    let decoded = decoder.decode().ok()?;
    let restored = decoded.restored_original_iter();
    let restored = restored.map(|(number, body)| Some((u16::try_from(number).ok()?, body.into())));
    restored.collect()
}

fn padded(body: &[u8], bytes: usize) -> Vec<u8> {
    let mut padded = Vec::with_capacity(bytes);
    padded.extend_from_slice(body);
    padded.resize(bytes, 0);
    padded
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bodies(count: u16) -> Vec<Bytes> {
        let body = |number: u16| vec![(number % 251) as u8 + 1; 40 + usize::from(number % 7)];
        (0..count).map(|number| body(number).into()).collect()
    }

    #[test]
    fn a_block_may_have_a_quarter_of_repair() {
        let most = [1, 3, 32, 33, 1000, 1024].map(most_repair);
        assert_eq!(most, [8, 8, 8, 16, 256, 256]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn any_symbols_as_many_as_the_block_has_give_it(
            symbols in 1u16..300,
            seed: u64,
        ) {
            let own = bodies(symbols);
            let most = most_repair(symbols);
            // In two portions, since more may be requested later.
            let mut repair = encode(&own, 46, 0..most / 2);
            repair.extend(encode(&own, 46, most / 2..most));
            prop_assert_eq!(repair.len(), usize::from(most));
            let mut random = fastrand::Rng::with_seed(seed);
            let lost = random.u16(1..=symbols.min(most));
            let mut numbers: Vec<u16> = (0..symbols).collect();
            random.shuffle(&mut numbers);
            let (lost, kept) = numbers.split_at(lost.into());
            let mut stand_ins: Vec<u16> = (0..most).collect();
            random.shuffle(&mut stand_ins);
            let stand_ins = &stand_ins[..lost.len()];
            let decoded = decode(
                symbols,
                46,
                kept.iter().map(|&number| (number, &own[usize::from(number)][..])),
                stand_ins.iter().map(|&number| (number, &repair[usize::from(number)][..])),
            )
            .expect("enough symbols");
            for &number in lost {
                let body = decoded.iter().find(|(found, _)| *found == number);
                let expected = padded(&own[usize::from(number)], 46);
                prop_assert_eq!(body.map(|(_, body)| body), Some(&expected));
            }
        }
    }
}
