use super::*;

fn payloads(quota_bytes: u64, payload_bytes: u64) -> (tempfile::TempDir, Arc<Payloads>) {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits {
        quota_bytes,
        payload_bytes,
        leave_free_bytes: 0,
    };
    let payloads = Payloads::open(&folder.path().join("payloads"), limits).unwrap();
    (folder, payloads)
}

fn begin(payloads: &Arc<Payloads>, owner: u64, bytes: u64) -> Result<Writer, Refused> {
    payloads.reserve(owner, bytes)?.begin(bytes)
}

fn names(payloads: &Payloads) -> Vec<String> {
    let entries = std::fs::read_dir(&payloads.folder).unwrap();
    let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
    names.collect()
}

fn written(payloads: &Arc<Payloads>, owner: u64, bytes: &[u8]) -> Arc<PayloadFile> {
    let mut writer = begin(payloads, owner, bytes.len() as u64).unwrap();
    for piece in bytes.chunks(7) {
        writer.write(piece).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn a_payload_reads_back_and_its_room_is_free_again() {
    let (_folder, payloads) = payloads(1000, 500);
    let content = b"a payload of some length";
    let file = written(&payloads, 1, content);
    assert_eq!(payloads.used(), (1, content.len() as u64));
    assert_eq!(file.crc32c(), crc32c::crc32c(content));
    let mut end = [0; 6];
    file.read_at(&mut end, 18).unwrap();
    assert_eq!(&end, b"length");
    assert!(file.read_at(&mut end, 19).is_err());
    drop(file);
    assert_eq!(payloads.used(), (0, 0));
    assert!(names(&payloads).is_empty());
}

#[test]
fn a_part_has_its_bytes_and_no_name_and_keeps_the_file_until_it_is_gone() {
    let (_folder, payloads) = payloads(1000, 500);
    let content = b"a payload of some length";
    let file = written(&payloads, 1, content);
    let part = file.part(2, 15).part(8, 7);
    drop(file);
    assert_eq!(payloads.used(), (1, content.len() as u64));
    let mut bytes = [0; 7];
    part.read_at(&mut bytes, 0).unwrap();
    assert_eq!((&bytes, part.len()), (b"of some", 7));
    assert!(
        part.read_at(&mut bytes, 1).is_err(),
        "there is more of the file"
    );
    assert!(part.save(1).is_err());
    assert!(names(&payloads).is_empty());
    drop(part);
    assert_eq!(payloads.used(), (0, 0));
}

#[test]
fn a_payload_comes_in_pieces_that_fit_memory() {
    let (_folder, payloads) = payloads(2 << 20, 1 << 20);
    let content: Vec<u8> = (0..600_000_u32).map(|i| (i % 251) as u8).collect();
    let mut writer = begin(&payloads, 1, content.len() as u64).unwrap();
    writer.write(&content).unwrap();
    let file = writer.finish().unwrap();
    let pieces = |file: &PayloadFile| {
        let mut pieces = Vec::new();
        let read = file.each_piece(|piece| pieces.push(piece.to_vec()));
        read.unwrap();
        pieces
    };
    let whole = pieces(&file);
    assert!(whole.concat() == content);
    assert!(whole.iter().all(|piece| piece.len() <= 256 << 10));
    assert!(pieces(&file.part(10, 300_000)).concat() == content[10..300_010]);
    assert!(pieces(&file.part(5, 0)).is_empty());
}

fn read(file: &PayloadFile) -> Vec<u8> {
    let mut content = Vec::new();
    let all = file.each_piece(|piece| content.extend_from_slice(piece));
    all.unwrap();
    content
}

#[test]
fn a_payload_is_changed_in_pieces_that_fit_memory_in_place_or_in_a_copy() {
    let (_folder, payloads) = payloads(2 << 20, 1 << 20);
    let content: Vec<u8> = (0..600_000_u32).map(|i| (i % 251) as u8).collect();
    let file = written(&payloads, 1, &content);
    let mut longest = 0_usize;
    let mut turn_over = |piece: &mut [u8]| {
        longest = longest.max(piece.len());
        piece.iter_mut().for_each(|byte| *byte = !*byte);
    };
    let turned: Vec<u8> = content.iter().map(|byte| !byte).collect();
    let copy = file.changed_copy(&mut turn_over).unwrap();
    assert!(read(&copy) == turned && read(&file) == content);
    assert_eq!(copy.crc32c(), crc32c::crc32c(&turned));
    assert_eq!(payloads.used(), (2, 1_200_000));
    drop(copy);
    let file = file.changed(599_984, &mut turn_over).unwrap();
    assert!(read(&file) == turned[..599_984]);
    assert_eq!(file.crc32c(), crc32c::crc32c(&turned[..599_984]));
    assert_eq!(payloads.used(), (1, 599_984), "the rest has its room back");
    assert!(longest < 300_000);
    file.save(1).unwrap();
    let name = names(&payloads).pop().unwrap();
    let saved = std::fs::metadata(payloads.folder.join(name)).unwrap();
    assert_eq!(saved.len(), 599_984);
}

#[test]
fn what_others_may_read_is_not_changed_in_place() {
    let (_folder, payloads) = payloads(1_000, 500);
    let begin = || written(&payloads, 1, b"a payload");
    let changed = |file: Arc<PayloadFile>, bytes| file.changed(bytes, |piece| piece.fill(0));
    let file = begin();
    assert!(changed(file.clone(), 9).is_err());
    let part = file.part(0, 9);
    assert!(changed(file, 9).is_err());
    assert!(changed(part.clone(), 9).is_err());
    assert_eq!(read(&part), b"a payload");
    assert!(changed(part, 9).is_err());
    let saved = begin();
    saved.save(1).unwrap();
    assert!(changed(saved, 9).is_err());
    assert!(changed(begin(), 10).is_err(), "there are only nine bytes");
    assert_eq!(payloads.used(), (0, 0));
}

#[test]
fn a_changed_copy_counts_for_the_owner_and_needs_room() {
    let (_folder, payloads) = payloads(1_000, 500);
    let file = written(&payloads, 1, &[7; 334]);
    // The owner would have more than is left to others.
    let refused = file.changed_copy(|_| ()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::QuotaExceeded);
    assert_eq!(payloads.used(), (1, 334));
    let file = written(&payloads, 2, &[7; 200]);
    let copy = file.changed_copy(|_| ()).unwrap();
    drop(file);
    assert_eq!(read(&copy), [7; 200]);
    assert_eq!(payloads.used(), (2, 534));
}

#[test]
fn who_fills_the_quota_leaves_room_for_the_others() {
    let (_folder, payloads) = payloads(1000, 500);
    let first = begin(&payloads, 1, 500).unwrap();
    assert!(matches!(begin(&payloads, 1, 1), Err(Refused::Quota)));
    let other = begin(&payloads, 2, 250).unwrap();
    assert!(matches!(begin(&payloads, 3, 251), Err(Refused::Quota)));
    drop((first, other));
    assert!(begin(&payloads, 1, 500).is_ok());
    assert!(matches!(
        begin(&payloads, 1, 501),
        Err(Refused::TooLong { .. })
    ));
}

#[test]
fn a_neighbour_that_begins_all_it_can_leaves_the_others_threads_and_descriptors() {
    let (_folder, payloads) = payloads(1000, 500);
    let all = |owner| std::iter::from_fn(move || Some(owner));
    let begun: Vec<_> = all(1)
        .map_while(|owner| begin(&payloads, owner, 0).ok())
        .collect();
    assert_eq!(begun.len(), MOST_INCOMPLETE / 2);
    assert!(begin(&payloads, 2, 0).is_ok());
    let mut complete: Vec<_> = begun
        .into_iter()
        .map(|writer| writer.finish().unwrap())
        .collect();
    // A complete payload has no thread any more, but is still an open file.
    let more = all(1).map_while(|owner| begin(&payloads, owner, 0).ok());
    complete.extend(more.map(|writer| writer.finish().unwrap()));
    assert_eq!(complete.len(), MOST_PAYLOADS / 2);
    assert!(begin(&payloads, 2, 0).is_ok());
    drop(complete);
    assert_eq!(payloads.used(), (0, 0));
    assert_eq!(payloads.lock().all.incomplete, 0);
}

#[test]
fn what_custody_may_need_of_the_disk_is_left_however_many_come() {
    let (folder, open) = payloads(u64::MAX, u64::MAX);
    let disk = fstatvfs(File::open(folder.path()).unwrap()).unwrap();
    let free = disk.blocks_available() * disk.fragment_size();
    let limits = Limits {
        leave_free_bytes: free,
        ..open.limits
    };
    // Other programs may free some of the disk meanwhile.
    let payloads = Payloads::open(&open.folder, limits).unwrap();
    let refused = begin(&payloads, 1, 1 << 40);
    assert!(matches!(refused, Err(Refused::Disk(_))), "{refused:?}");
    assert!(begin(&open, 1, 1 << 16).is_ok());
}

#[test]
fn what_is_saved_outlives_the_process_and_nothing_else_does() {
    let (_folder, payloads) = payloads(1000, 500);
    let kept = written(&payloads, 1, b"kept");
    let name = kept.name().to_owned();
    kept.save(1).unwrap();
    kept.save(1).unwrap();
    let forgotten = written(&payloads, 1, b"forgotten");
    forgotten.save(2).unwrap();
    let _nameless = written(&payloads, 1, b"nameless");
    assert_eq!(names(&payloads).len(), 2);
    let folder = payloads.folder.join("lost+found");
    std::fs::create_dir(&folder).unwrap();
    // The next process.
    let next = Payloads::open(&payloads.folder, payloads.limits).unwrap();
    next.keep_only(&[name.clone()].into()).unwrap();
    std::fs::remove_dir(&folder).unwrap();
    assert_eq!(names(&payloads), std::slice::from_ref(&name));
    let file = next.take_up(&name, 1, 4, 1).unwrap();
    assert_eq!(next.used(), (1, 4));
    let mut all = [0; 4];
    file.read_at(&mut all, 0).unwrap();
    assert_eq!(&all, b"kept");
    assert!(next.take_up(&name, 1, 5, 1).is_err(), "another length");
    assert!(next.take_up(forgotten.name(), 1, 9, 2).is_err());
    // Payloads named in this run stay, even if the list leaves them out.
    next.keep_only(&BTreeSet::new()).unwrap();
    assert_eq!(names(&payloads).len(), 1);
    file.delete(1).unwrap();
    assert!(names(&payloads).is_empty());
}

#[test]
fn a_payload_of_two_records_goes_with_the_second() {
    let (_folder, payloads) = payloads(1000, 500);
    let file = written(&payloads, 1, b"both");
    file.save(1).unwrap();
    file.save(2).unwrap();
    file.delete(1).unwrap();
    file.delete(1).unwrap();
    assert_eq!(names(&payloads).len(), 1);
    let next = Payloads::open(&payloads.folder, payloads.limits).unwrap();
    let first = next.take_up(file.name(), 1, 4, 1).unwrap();
    let second = next.take_up(file.name(), 1, 4, 2).unwrap();
    assert_eq!(next.used(), (1, 4), "its room counts once");
    first.delete(1).unwrap();
    assert_eq!(names(&payloads).len(), 1);
    second.delete(2).unwrap();
    assert!(names(&payloads).is_empty());
}

#[test]
fn a_name_that_leads_out_of_the_folder_is_none() {
    let (folder, payloads) = payloads(1000, 500);
    std::fs::write(folder.path().join("mine"), b"mine").unwrap();
    for name in [
        "../mine",
        "mine",
        "",
        "0123456789abcde/",
        "0123456789abcdeg",
    ] {
        assert!(payloads.take_up(name, 1, 4, 1).is_err(), "{name}");
    }
    assert_eq!(payloads.used(), (0, 0));
}

#[test]
fn a_payload_has_the_announced_length_or_is_none() {
    let (_folder, payloads) = payloads(1000, 500);
    let mut short = begin(&payloads, 1, 10).unwrap();
    short.write(b"nine byte").unwrap();
    assert!(short.finish().is_err());
    let mut long = begin(&payloads, 1, 10).unwrap();
    long.write(b"nine byte").unwrap();
    assert!(long.write(b"s.").is_err());
    drop(long);
    assert_eq!(payloads.used(), (0, 0));
}

#[test]
fn a_disk_without_room_refuses_before_the_first_byte() {
    let (_folder, payloads) = payloads(u64::MAX, u64::MAX);
    // 4 EiB is more than any disk has.
    let refused = begin(&payloads, 1, 1 << 62);
    assert!(matches!(refused, Err(Refused::Disk(_))), "{refused:?}");
    assert_eq!(payloads.used(), (0, 0));
}
