use std::path::Path;
use std::time::Duration;

use super::*;
use crate::folder::Limits;

const LENGTH: usize = 300_000;

fn payloads_with(quota_bytes: u64) -> (tempfile::TempDir, Arc<Payloads>) {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits {
        quota_bytes,
        payload_bytes: 1 << 40,
        leave_free_bytes: 0,
    };
    let payloads = Payloads::open(&folder.path().join("payloads"), limits).unwrap();
    (folder, payloads)
}

fn payloads() -> (tempfile::TempDir, Arc<Payloads>) {
    payloads_with(1 << 20)
}

fn content() -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(7);
    (0..LENGTH).map(|_| random.u8(..)).collect()
}

fn here(bytes: &[u8]) -> Part {
    Part::Here(Bytes::copy_from_slice(bytes))
}

/// The first `count` outcomes, in the order in which they are reported.
fn told(outcomes: &Outcomes, count: usize) -> Vec<(u64, Placed)> {
    let mut all = Vec::new();
    for _ in 0..60_000 {
        all.extend(outcomes.take());
        if all.len() >= count {
            return all;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("of {count} parts {} are in their place", all.len());
}

fn place(assembly: &Assembly, offset: usize, part: Part) -> Placed {
    let outcomes = Outcomes::default();
    let placed = assembly.place(1, offset as u64, part, 5, &outcomes);
    placed.unwrap();
    let (number, placed) = told(&outcomes, 1).remove(0);
    assert_eq!(number, 5);
    placed
}

/// Waits until the thread has deleted what was dropped.
fn becomes_empty(payloads: &Payloads) {
    for _ in 0..60_000 {
        if payloads.used() == (0, 0) {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("{:?} are left", payloads.used());
}

fn read(file: &PayloadFile) -> Vec<u8> {
    let mut all = vec![0; usize::try_from(file.len()).unwrap()];
    file.read_at(&mut all, 0).unwrap();
    all
}

fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

#[test]
fn parts_in_any_order_and_overlapping_make_the_payload() {
    let (_folder, payloads) = payloads();
    let content = content();
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let assembly = payloads.assemble(1, LENGTH as u64).unwrap();
        let outcomes = Outcomes::default();
        let mut parts: Vec<usize> = (0..LENGTH).step_by(10_000).collect();
        random.shuffle(&mut parts);
        for (number, from) in parts.iter().enumerate() {
            // Each is longer than its place.
            let to = (from + 10_000 + random.usize(0..9_000)).min(LENGTH);
            let part = here(&content[*from..to]);
            let sender = random.u64(1..3);
            let placed = assembly.place(sender, *from as u64, part, number as u64, &outcomes);
            placed.unwrap();
        }
        let all = told(&outcomes, parts.len());
        let whole = all.into_iter().find_map(|(_, placed)| match placed {
            Placed::Whole(file) => Some(file),
            Placed::There => None,
            other => panic!("{other:?}"),
        });
        let file = whole.expect("it is whole");
        assert_eq!(payloads.used(), (1, LENGTH as u64), "each byte counts once");
        assert!(read(&file) == content);
        drop((file, assembly));
        becomes_empty(&payloads);
    }
}

#[test]
fn a_part_that_is_a_file_is_copied_and_can_be_saved_as_any_payload() {
    let (_folder, payloads) = payloads();
    let content = content();
    let half = LENGTH / 2;
    let mut writer = payloads.reserve(1, half as u64).unwrap().begin(half as u64);
    writer.as_mut().unwrap().write(&content[half..]).unwrap();
    let second = Part::OnDisk(writer.unwrap().finish().unwrap());
    let assembly = payloads.assemble(1, LENGTH as u64).unwrap();
    assert!(matches!(place(&assembly, half, second), Placed::There));
    let first = place(&assembly, 0, here(&content[..half]));
    let Placed::Whole(file) = first else {
        panic!("{first:?}");
    };
    file.save(3).unwrap();
    assert_eq!(entries(&payloads.folder), 1);
    assert!(read(&file) == content);
    file.delete(3).unwrap();
}

#[test]
fn what_contradicts_is_not_taken_at_all_and_what_repeats_costs_nothing() {
    let (_folder, payloads) = payloads();
    let content = content();
    let assembly = payloads.assemble(1, LENGTH as u64).unwrap();
    place(&assembly, 1_000, here(&content[1_000..2_000]));
    let mut lie = content[..3_000].to_vec();
    lie[1_999] ^= 1;
    let placed = place(&assembly, 0, here(&lie));
    assert!(matches!(placed, Placed::Contradicts), "{placed:?}");
    assert_eq!(payloads.used(), (1, 1_000));
    for _ in 0..3 {
        let again = place(&assembly, 1_500, here(&content[1_500..2_000]));
        assert!(matches!(again, Placed::There));
    }
    assert_eq!(payloads.used(), (1, 1_000));
    // Nothing of the contradicting part was written, not even where it was alone.
    place(&assembly, 0, here(&content[..1_500]));
    let rest = place(&assembly, 1_500, here(&content[1_500..]));
    let Placed::Whole(file) = rest else {
        panic!("{rest:?}");
    };
    let again = place(&assembly, 0, here(&content[..500]));
    assert!(matches!(again, Placed::There), "{again:?}");
    assert_eq!(payloads.used(), (1, LENGTH as u64));
    assert!(read(&file) == content);
}

#[test]
fn a_length_that_is_only_said_takes_nothing_and_bytes_count_for_who_has_sent_them() {
    let (_folder, payloads) = payloads_with(10_000);
    let said = 1 << 20;
    let assembly = payloads.assemble(1, said).unwrap();
    assert_eq!(payloads.used(), (1, 0));
    place(&assembly, 1 << 19, here(&[7; 5_000]));
    assert_eq!(payloads.used(), (1, 5_000));
    let outcomes = Outcomes::default();
    // A sender that has half of the quota gets no more, but another sender does.
    let more = assembly.place(1, 0, here(&[7; 3_000]), 1, &outcomes);
    assert!(matches!(more, Err(Refused::Quota)), "{more:?}");
    assembly
        .place(2, 0, here(&[7; 3_000]), 1, &outcomes)
        .unwrap();
    told(&outcomes, 1);
    let outside = assembly.place(2, said, here(b"x"), 1, &outcomes);
    assert!(matches!(outside, Err(Refused::TooLong { .. })));
    drop(assembly);
    becomes_empty(&payloads);
    assert_eq!(entries(&payloads.folder), 0);
}

#[test]
fn who_begins_all_it_can_leaves_the_others_some_and_transfers_most() {
    let (_folder, payloads) = payloads();
    let all = |owner| std::iter::from_fn(move || Some(owner));
    let begin = |owner| payloads.assemble(owner, 1_000).ok();
    let first: Vec<Assembly> = all(1).map_while(begin).collect();
    assert_eq!(first.len(), 8);
    let second: Vec<Assembly> = all(2).map_while(begin).collect();
    assert_eq!(second.len(), 4);
    let transfers = all(1).map_while(|owner| payloads.reserve(owner, 10).ok());
    assert!(transfers.collect::<Vec<_>>().len() > 10);
    drop((first, second));
    becomes_empty(&payloads);
    assert!(begin(1).is_some(), "its places are free again");
}

#[test]
fn a_place_is_free_at_once_though_the_thread_waits_for_the_disk() {
    let (_folder, payloads) = payloads();
    let begin = || payloads.assemble(1, 1_000).ok();
    let mut all: Vec<Assembly> = std::iter::from_fn(begin).collect();
    let slow = all.pop().expect("some were begun");
    assert!(!slow.is_being_written());
    let disk = locked(&slow.0.written);
    slow.place(1, 0, here(b"x"), 1, &Outcomes::default())
        .unwrap();
    assert!(slow.is_being_written());
    drop(all.pop());
    let another = begin();
    assert!(another.is_some(), "it takes the place of the last one");
    assert!(begin().is_none());
    drop(disk);
    drop((slow, all, another));
    becomes_empty(&payloads);
}

#[test]
fn nobody_waits_until_the_disk_has_freed_a_whole_payload() {
    let (_folder, payloads) = payloads();
    let assembly = payloads.assemble(1, LENGTH as u64).unwrap();
    let Placed::Whole(file) = place(&assembly, 0, here(&content())) else {
        panic!("it is not whole");
    };
    let slow = payloads.assemble(1, 1_000).unwrap();
    let disk = locked(&slow.0.written);
    slow.place(1, 0, here(b"x"), 1, &Outcomes::default())
        .unwrap();
    file.forget();
    assert!(payloads.used().1 > LENGTH as u64, "the thread is to do it");
    drop(disk);
    drop((slow, assembly));
    becomes_empty(&payloads);
}

#[test]
fn parts_that_never_meet_are_bounded() {
    let (_folder, payloads) = payloads();
    let assembly = payloads.assemble(1, 1 << 20).unwrap();
    let outcomes = Outcomes::default();
    for number in 0..MOST_RANGES as u64 + 10 {
        let placed = assembly.place(1, 2 * number, here(b"x"), number, &outcomes);
        placed.unwrap();
    }
    let all = told(&outcomes, MOST_RANGES + 10);
    let refused = |(_, placed): &&(u64, Placed)| matches!(placed, Placed::Refused(_));
    assert_eq!(all.iter().filter(refused).count(), 10);
    assert_eq!(payloads.used(), (1, MOST_RANGES as u64));
    // A part that touches other ranges needs no range of its own.
    assert!(matches!(place(&assembly, 1, here(b"y")), Placed::There));
}
