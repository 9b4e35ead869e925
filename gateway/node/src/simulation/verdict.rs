//! Whether what was seen through the gateways may be seen over plain TCP.

use std::collections::BTreeSet;
use std::fmt::Debug;

use super::application::{End, Seen};

/// The faults of a run of one script, if any. If `excused`, faults that a killed node explains do
/// not count.
pub fn against(seen: &[Option<Seen>; 2], reference: &[[Seen; 2]], excused: bool) -> Vec<String> {
    let mut faults = Vec::new();
    for side in 0..2 {
        let name = ["client", "origin"][side];
        let mut fault = |what: String| faults.push(format!("{name}: {what}"));
        if let (Some(own), other) = (&seen[side], &seen[1 - side]) {
            unsafe_bytes(own, other.as_ref(), &mut fault);
        }
        if excused {
            continue;
        }
        let plain: Vec<&Seen> = reference.iter().map(|both| &both[side]).collect();
        match &seen[side] {
            Some(own) => unlike(own, &plain, &mut fault),
            None => unseen(seen[1 - side].as_ref(), &mut fault),
        }
    }
    faults
}

/// What no delay, loss or restart excuses.
fn unsafe_bytes(own: &Seen, other: Option<&Seen>, fault: &mut impl FnMut(String)) {
    if let Some(offset) = own.wrong {
        fault(format!("wrong bytes from {offset} on"));
    }
    let (written, finished) = other.map_or((0, false), |other| (other.written, other.finished));
    if own.read > written {
        fault(format!("{} bytes read of {written} sent", own.read));
    }
    if own.end == End::Finished && !(finished && own.read == written) {
        fault(format!(
            "an end in order after {} bytes, where {written} were sent and the end was {}",
            own.read,
            if finished { "in order" } else { "none" }
        ));
    }
}

/// Finds what plain TCP shows with none of the delays and buffers.
fn unlike(own: &Seen, plain: &[&Seen], fault: &mut impl FnMut(String)) {
    among("end", own, plain, |seen| seen.end, fault);
    // A RST may always come too late to refuse bytes.
    if own.refused {
        among("refused", own, plain, |seen| seen.refused, fault);
    }
    among("gave up", own, plain, |seen| seen.gave_up, fault);
    let read: BTreeSet<u64> = plain.iter().map(|seen| seen.read).collect();
    let least = read.first().copied().unwrap_or_default();
    let most = read.last().copied().unwrap_or_default();
    // Before a reset, more may be delivered than over plain TCP.
    if own.read < least || own.end != End::Reset && own.read > most {
        fault(format!("{} bytes read, over plain TCP {read:?}", own.read));
    }
}

fn among<T: Ord + Debug>(
    what: &str,
    own: &Seen,
    plain: &[&Seen],
    of: impl Fn(&Seen) -> T,
    fault: &mut impl FnMut(String),
) {
    let allowed: BTreeSet<T> = plain.iter().map(|seen| of(seen)).collect();
    let own = of(own);
    if !allowed.contains(&own) {
        fault(format!("{what} is {own:?}, over plain TCP {allowed:?}"));
    }
}

/// The origin has had no connection at all: allowed only if its client aborted before the far node
/// had connected.
fn unseen(client: Option<&Seen>, fault: &mut impl FnMut(String)) {
    if client.is_none_or(|client| client.finished) {
        fault("never connected".to_owned());
    }
}
