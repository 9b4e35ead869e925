//! Secured bundles that are too long for memory and were cut on their way: put together on the disk,
//! and judged there once they are whole.

use std::slice;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use underpass_bpsec::{Operation, Outcome, Rule};
use underpass_bundle::wire::{Bundle, CodePoints, DecodeLimits, Extension, Malformed, decode, ipn};
use underpass_bundle::{DeleteReason, Event, Insecure, Reject, Unopened};

use crate::cut::{cut, fragment};
use crate::nodes::*;

/// Longer payloads are put together on the disk.
const ABOVE: u64 = 10_000;
/// More than two of the pieces that are read at once.
const BYTES: usize = 600_000;
/// Where fragments begin.
const PLACES: [usize; 3] = [0, 200_000, 300_001];
/// Longer than any bundle lives.
const AGES: Duration = Duration::from_secs(100 * 24 * 3600);

fn content() -> Vec<u8> {
    (0..BYTES).map(|i| (i % 251) as u8).collect()
}

/// A bundle of the sender.
fn sent(rule: &Rule) -> Bytes {
    let mut sender = Node::new(SENDER, RECEIVER, vec![rule.clone()]);
    sender.sends(RECEIVER, RECEIVER, &content(), None)
}

fn read_whole(raw: &Bytes) -> Bundle {
    decode(raw, &DecodeLimits::default(), &CodePoints::default()).unwrap()
}

/// The same without its security blocks.
fn bare(whole: &Bundle) -> Bundle {
    Bundle {
        others: Vec::new(),
        ..whole.clone()
    }
}

fn insecure(why: Insecure) -> Result<(), Reject> {
    Err(Reject::Insecure(why))
}

/// A receiver that puts long bundles together in a folder.
struct Site {
    receiver: Node,
    folder: Folder,
}

impl Site {
    fn new(rule: &Rule) -> Site {
        let folder = Folder::new();
        let receiver = Node::with_folder(&folder, ABOVE, vec![rule.clone()]);
        Site { receiver, folder }
    }

    fn take(&mut self, fragments: &[Bytes]) {
        for fragment in fragments {
            assert_eq!(self.receiver.takes(SENDER, fragment), Ok(()));
        }
    }

    fn count(&self, wanted: &str) -> usize {
        let mut entries = 0;
        self.receiver.agent.footprint(&mut |name, count| {
            entries += if name == wanted { count } else { 0 };
        });
        entries
    }

    fn incomplete(&self) -> usize {
        self.count("bundles in fragments on disk")
    }

    fn pass(&mut self, time: Duration) {
        self.receiver.now += time;
        self.receiver.agent.handle_timeout(self.receiver.now);
    }

    /// Lets the thread write what has come, and tells the agent.
    fn settle(&mut self) {
        for _ in 0..60_000 {
            if self.count("fragments that are written") == 0 {
                return;
            }
            thread::sleep(Duration::from_millis(1));
            self.pass(Duration::from_millis(5));
        }
        panic!("fragments are not written");
    }

    /// The bundle whose turn it is to be judged.
    fn unjudged(&mut self) -> Option<Unopened> {
        self.settle();
        self.receiver.agent.take_unjudged()
    }

    /// The verdict on a bundle.
    fn open(&mut self, unopened: Unopened) -> Result<(), Reject> {
        let Node { agent, now, .. } = &mut self.receiver;
        let opened = agent.decoder().open_whole(unopened);
        agent.receive_opened(*now, opened)
    }

    /// The verdicts on all bundles that are whole.
    fn judge(&mut self) -> Vec<Result<(), Reject>> {
        let mut verdicts = Vec::new();
        while let Some(unopened) = self.unjudged() {
            verdicts.push(self.open(unopened));
        }
        verdicts
    }

    /// The payloads that are delivered.
    fn payloads(&mut self) -> Vec<Vec<u8>> {
        let delivered = self.receiver.delivered();
        let files = delivered.iter().map(|delivery| delivery.file.as_ref());
        files
            .map(|file| read(file.expect("it is on the disk")))
            .collect()
    }

    /// Why bundles are deleted; nothing is delivered.
    fn deleted(&mut self) -> Vec<DeleteReason> {
        self.settle();
        let events = std::iter::from_fn(|| self.receiver.agent.poll_event());
        let reason = |event| match event {
            Event::Deleted { reason, .. } => Some(reason),
            Event::Deliver(_) => panic!("it is delivered"),
            _ => None,
        };
        events.filter_map(reason).collect()
    }

    /// Waits until the folder is empty.
    fn becomes_empty(&self) {
        for _ in 0..60_000 {
            if self.folder.payloads.used() == (0, 0) {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("{:?} are left", self.folder.payloads.used());
    }
}

#[test]
fn what_was_cut_is_put_together_on_the_disk_and_judged_before_it_is_delivered() {
    for rule in [authenticated(), encrypted(), only_encrypted()] {
        let fragments = cut(&sent(&rule), &PLACES);
        for order in [[0, 1, 2], [2, 0, 1]] {
            let mut site = Site::new(&rule);
            for place in order {
                assert!(site.judge().is_empty());
                site.take(&fragments[place..=place]);
            }
            site.settle();
            assert!(site.receiver.delivered().is_empty());
            for operation in Operation::ALL {
                assert_eq!(site.receiver.count(operation, Outcome::Verified), 0);
            }
            assert_eq!(site.judge(), [Ok(())]);
            for (operation, keys) in [
                (Operation::Integrity, &rule.integrity_keys),
                (Operation::Confidentiality, &rule.confidentiality_keys),
            ] {
                let verified = site.receiver.count(operation, Outcome::Verified);
                assert_eq!(verified, u64::from(!keys.is_empty()));
            }
            assert_eq!(site.folder.payloads.used(), (1, BYTES as u64));
            assert!(site.payloads() == [content()]);
            // A late duplicate begins nothing.
            site.take(&fragments[..1]);
            assert!(site.judge().is_empty());
            assert_eq!(site.incomplete(), 0);
            site.becomes_empty();
        }
    }
}

#[test]
fn fragments_that_are_long_themselves_are_put_together_too() {
    for rule in [authenticated(), encrypted(), only_encrypted()] {
        let mut site = Site::new(&rule);
        for fragment in cut(&sent(&rule), &PLACES) {
            let Site { receiver, folder } = &mut site;
            assert_eq!(receiver.takes_to(folder, SENDER, &fragment), Ok(()));
            site.settle();
        }
        assert_eq!(site.judge(), [Ok(())]);
        assert!(site.payloads() == [content()]);
        site.becomes_empty();
    }
}

#[test]
fn nothing_is_released_of_what_was_changed_in_any_fragment() {
    for rule in [authenticated(), encrypted(), only_encrypted()] {
        let operation = match rule.confidentiality_keys.is_empty() {
            true => Operation::Integrity,
            false => Operation::Confidentiality,
        };
        let good = cut(&sent(&rule), &PLACES);
        for place in 0..PLACES.len() {
            let mut site = Site::new(&rule);
            let mut changed = good[place].to_vec();
            // The last byte of the payload, before the bundle's break.
            let last = changed.len() - 2;
            changed[last] ^= 1;
            let mut fragments = good.clone();
            fragments[place] = changed.into();
            site.take(&fragments);
            assert_eq!(site.judge(), [insecure(Insecure::Failed)]);
            assert_eq!(site.receiver.count(operation, Outcome::Failed), 1);
            for operation in Operation::ALL {
                assert_eq!(site.receiver.count(operation, Outcome::Verified), 0);
            }
            assert_eq!(site.deleted(), [DeleteReason::FailedSecurity]);
            site.becomes_empty();
            // It is forgotten.
            site.take(&good);
            assert_eq!(site.judge(), [Ok(())]);
            assert!(site.payloads() == [content()]);
        }
    }
}

#[test]
fn what_no_key_opens_or_was_not_encrypted_is_not_delivered() {
    for (rule, why) in refused_rules() {
        let mut site = Site::new(&encrypted());
        site.take(&cut(&sent(&rule), &PLACES));
        assert_eq!(site.judge(), [insecure(why)]);
        assert_eq!(site.deleted(), [DeleteReason::from(why)]);
        site.becomes_empty();
    }
}

#[test]
fn of_what_contradicts_the_first_nothing_counts() {
    let (mut site, whole) = (Site::new(&encrypted()), read_whole(&sent(&encrypted())));
    site.take(&[fragment(&whole, 0..200_000, BYTES)]);
    let malformed = Err(Reject::Malformed(Malformed::Fragment));
    for (range, total) in [(200_000..300_000, BYTES + 1), (0..5_000, 9_000)] {
        let lie = fragment(&whole, range, total);
        assert_eq!(site.receiver.takes(SENDER, &lie), malformed);
    }
    let mut lie = bare(&whole);
    let mut payload = lie.payload.to_vec();
    payload[199_999] ^= 1;
    lie.payload = payload.into();
    for range in [190_000..210_000, 0..200_000] {
        site.take(&[fragment(&lie, range, BYTES)]);
        assert_eq!(site.deleted(), [DeleteReason::BlockUnintelligible]);
    }
    // The same bytes without the blocks that secure them.
    site.take(&[fragment(&bare(&whole), 0..200_000, BYTES)]);
    site.take(&[fragment(&whole, 200_000..BYTES, BYTES)]);
    assert_eq!(site.judge(), [Ok(())]);
    assert!(site.payloads() == [content()]);
}

#[test]
fn the_blocks_of_the_fragment_that_came_first_count() {
    let (mut site, whole) = (Site::new(&encrypted()), read_whole(&sent(&encrypted())));
    let good = [0..200_000, 200_000..BYTES].map(|range| fragment(&whole, range, BYTES));
    site.take(&[fragment(&bare(&whole), 0..5, BYTES)]);
    site.take(&good);
    assert_eq!(site.judge(), [insecure(Insecure::Missing)]);
    assert_eq!(site.deleted(), [DeleteReason::MissingSecurity]);
    site.becomes_empty();
    site.take(&good);
    assert_eq!(site.judge(), [Ok(())]);
}

#[test]
fn of_what_does_not_become_whole_nothing_is_left() {
    let mut site = Site::new(&encrypted());
    site.take(&cut(&sent(&encrypted()), &PLACES)[..2]);
    site.settle();
    assert_eq!(site.folder.payloads.used(), (1, PLACES[2] as u64));
    site.pass(Duration::from_secs(3601));
    assert_eq!(site.incomplete(), 0);
    assert!(site.judge().is_empty());
    site.becomes_empty();
}

#[test]
fn what_is_not_judged_before_its_lifetime_ends_is_not_delivered() {
    let fragments = cut(&sent(&encrypted()), &PLACES);
    let mut site = Site::new(&encrypted());
    site.take(&fragments);
    site.settle();
    site.pass(AGES);
    assert!(site.unjudged().is_none());
    assert_eq!(site.deleted(), [DeleteReason::LifetimeExpired]);
    site.becomes_empty();
    site.take(&fragments);
    let unopened = site.unjudged().expect("it is whole");
    site.pass(AGES);
    assert_eq!(site.open(unopened), Ok(()));
    assert_eq!(site.deleted(), [DeleteReason::LifetimeExpired]);
    site.becomes_empty();
}

#[test]
fn whoever_asks_is_told_that_a_lifetime_ended_before_the_verdict() {
    let report_to = Some(ipn(SENDER, SERVICE));
    for taken in [false, true] {
        let mut sender = Node::new(SENDER, RECEIVER, vec![encrypted()]);
        let raw = sender.sends(RECEIVER, RECEIVER, &content(), report_to.clone());
        let mut site = Site::new(&encrypted());
        site.take(&cut(&raw, &PLACES));
        site.settle();
        let unopened = if taken { site.unjudged() } else { None };
        assert_eq!(unopened.is_some(), taken);
        site.pass(AGES);
        if let Some(unopened) = unopened {
            assert_eq!(site.open(unopened), Ok(()));
        }
        // Received, and deleted since its lifetime expired.
        assert_eq!(site.receiver.reports(SENDER), [(0, 0), (3, 1)]);
        site.becomes_empty();
    }
}

#[test]
fn of_a_neighbour_one_is_judged_at_a_time_and_its_duplicates_are_known() {
    let mut sender = Node::new(SENDER, RECEIVER, vec![encrypted()]);
    let both = [(); 2].map(|()| sender.sends(RECEIVER, RECEIVER, &content(), None));
    let mut site = Site::new(&encrypted());
    let both = both.map(|raw| cut(&raw, &PLACES));
    for fragments in &both {
        site.take(fragments);
        site.settle();
    }
    let first = site.unjudged().expect("it is whole");
    assert!(site.unjudged().is_none());
    both.iter().for_each(|fragments| site.take(fragments));
    assert_eq!(site.incomplete(), 0);
    assert_eq!(site.open(first), Ok(()));
    assert_eq!(site.judge(), [Ok(())]);
    assert!(site.payloads() == [content(), content()]);
    site.becomes_empty();
}

#[test]
fn what_is_judged_for_an_agent_that_is_gone_is_lost() {
    let mut sites = [(); 2].map(|()| Site::new(&encrypted()));
    sites[0].take(&cut(&sent(&encrypted()), &PLACES));
    let unopened = sites[0].unjudged().expect("it is whole");
    assert_eq!(sites[1].open(unopened), Err(Reject::NoResources));
    assert!(sites[1].payloads().is_empty());
    sites[0].becomes_empty();
}

#[test]
fn no_ciphertext_is_delivered_when_the_rule_is_gone() {
    let whole = read_whole(&sent(&encrypted()));
    let first = fragment(&whole, 0..200_000, BYTES);
    // A relay may have left the security blocks out of these.
    let others = [200_000..300_000, 300_000..BYTES];
    let others = others.map(|range| fragment(&bare(&whole), range, BYTES));
    for comes_before in [true, false] {
        let mut site = Site::new(&encrypted());
        site.take(&others[..1]);
        site.take(slice::from_ref(&first));
        if comes_before {
            site.take(&others[1..]);
        }
        site.settle();
        site.receiver.guard.replace(Vec::new()).unwrap();
        if !comes_before {
            site.take(&others[1..]);
        }
        let _ = site.judge();
        assert_eq!(site.deleted(), [DeleteReason::BlockUnsupported]);
        site.becomes_empty();
    }
}

#[test]
fn a_long_fragment_under_custody_is_refused() {
    let mut whole = read_whole(&sent(&encrypted()));
    // Number 1 in sequence 2 of the sender, as CCSDS 734.6 has it.
    let content = [0x83, 1, 2, 0x82, 2, 0x82, SENDER as u8, 0];
    whole.others.push(Extension::new(13, 99, 0, &content));
    let first = fragment(&whole, 0..200_000, BYTES);
    let mut site = Site::new(&encrypted());
    let missing = insecure(Insecure::Missing);
    assert_eq!(site.receiver.takes(SENDER, &first), missing);
    let Site { receiver, folder } = &mut site;
    assert_eq!(receiver.takes_to(folder, SENDER, &first), missing);
    assert_eq!(site.incomplete(), 0);
    site.becomes_empty();
}
