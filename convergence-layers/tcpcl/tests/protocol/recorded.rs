//! Sessions recorded from other implementations.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use skipped::recorded::{bytes_of, folder};
use underpass_cla::Down;
use underpass_tcpcl::session::{Event, Role, SessionConfig, SessionCore};

use crate::describe::describe;
use crate::peer::AgainstPeer;

fn recordings(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for sender in fs::read_dir(folder).expect("a folder").flatten() {
        let Ok(files) = fs::read_dir(sender.path()) else {
            continue;
        };
        for file in files.flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            if name.starts_with("tcpclv4-") && name.ends_with(".hex") {
                found.insert(file.path(), bytes_of(&file.path()));
            }
        }
    }
    assert!(found.len() >= 19, "the recordings are there");
    found
}

/// The lines about a file in the list beside the recordings.
fn listed(readme: &str, file: &Path) -> Vec<String> {
    let sender = file.parent().and_then(Path::file_name).expect("a folder");
    let section = format!("## {}/", sender.to_string_lossy());
    let name = file.file_name().expect("a name").to_string_lossy();
    let row = readme
        .lines()
        .skip_while(|line| **line != section)
        .find(|line| line.starts_with(&format!("| `{name}`")))
        .expect("a row");
    let (_, words) = row.split_once("contact v4").expect("the messages");
    let end = words.find(" — ").or(words.find(" |")).expect("an end");
    format!("contact v4{}", &words[..end])
        .split(" · ")
        .map(|word| word.trim().to_owned())
        .collect()
}

#[test]
fn recorded_streams_parse_to_the_last_byte_and_to_what_is_listed() {
    let Some(folder) = folder() else { return };
    let readme = fs::read_to_string(folder.join("README.md")).expect("the list");
    for (file, bytes) in recordings(&folder) {
        let (words, left) = describe(&bytes, true);
        assert_eq!(left, 0, "{}", file.display());
        assert_eq!(words, listed(&readme, &file), "{}", file.display());
    }
}

#[test]
fn a_session_takes_every_recorded_stream() {
    let Some(folder) = folder() else { return };
    for (file, bytes) in recordings(&folder) {
        let name = file.display();
        let active = name.to_string().contains("-active");
        let role = if active { Role::Passive } else { Role::Active };
        let (bundles, down) = play(role, &bytes);
        let (words, _) = describe(&bytes, true);
        let ends =
            |word: &&String| word.starts_with("SEG flags 1") || word.starts_with("SEG flags 3");
        assert_eq!(bundles, words.iter().filter(ends).count(), "{name}");
        assert!(!matches!(down, Some(Down::Protocol(_))), "{name}: {down:?}");
    }
}

#[test]
fn a_recorded_session_of_version_3_is_refused_for_its_version() {
    let Some(folder) = folder() else { return };
    for side in ["1-active", "1-passive", "2-active", "2-passive"] {
        let bytes = bytes_of(&folder.join(format!("ion/tcpclv3-connection{side}.hex")));
        for role in [Role::Active, Role::Passive] {
            let (bundles, down) = play(role, &bytes);
            assert_eq!(bundles, 0, "{side}");
            let Some(Down::Protocol(why)) = &down else {
                panic!("{side}: {down:?}");
            };
            assert!(why.contains("version 3"), "{side}: {why}");
        }
    }
}

/// Both ends of the sessions s1 to s4: the bytes of each, and in words what the other end
/// answered.
fn conversations(folder: &Path) -> Vec<(String, Role, Vec<u8>, Vec<String>)> {
    let recordings = recordings(folder);
    let mut found = Vec::new();
    for session in ["s1", "s2", "s3", "s4"] {
        for (said, answered, role) in [
            ("active", "passive", Role::Passive),
            ("passive", "active", Role::Active),
        ] {
            let side = |side: &str| {
                let name = format!("tcpclv4-{session}-{side}.hex");
                let mut files = recordings.iter();
                let found = files.find(|(file, _)| file.ends_with(&name));
                found.expect("both ends are there").1.clone()
            };
            let (words, _) = describe(&side(answered), true);
            found.push((format!("{session} {said}"), role, side(said), words));
        }
    }
    found
}

/// The messages in words that begin with `kind`.
fn only(words: &[String], kind: &str) -> Vec<String> {
    let mut words = words.to_vec();
    words.retain(|word| word.starts_with(kind));
    words
}

#[test]
fn we_acknowledge_as_the_recorded_other_end_did() {
    let Some(folder) = folder() else { return };
    for (name, role, bytes, other) in conversations(&folder) {
        let mut session = AgainstPeer::connected(SessionConfig::new(role, "ipn:99.0"));
        session.hear(&bytes);
        let (words, _) = describe(&session.output(), true);
        let expected = only(&other, "ACK");
        assert!(!expected.is_empty(), "{name}");
        assert_eq!(only(&words, "ACK"), expected, "{name}");
    }
}

#[test]
fn we_cut_a_bundle_as_hdtn_did_for_the_same_peer() {
    let Some(folder) = folder() else { return };
    let mut compared = 0;
    for (name, role, bytes, other) in conversations(&folder) {
        let theirs: Vec<String> = only(&other, "SEG")
            .into_iter()
            .filter(|word| word.contains(" id 0 "))
            .collect();
        // Hardy does not announce the length of a transfer.
        if !theirs.iter().any(|word| word.contains("extlen")) {
            continue;
        }
        let length = |word: &String| {
            word.rsplit(' ')
                .next()
                .and_then(|at| at.parse::<usize>().ok())
        };
        let whole: usize = theirs.iter().filter_map(length).sum();
        let mut session = AgainstPeer::connected(SessionConfig::new(role, "ipn:99.0"));
        session.hear(&bytes[..opening_bytes(&bytes)]);
        session.offer(1, whole);
        let (words, _) = describe(&session.output(), true);
        // HDTN sends that item as critical; we do not.
        let expected: Vec<String> = theirs
            .iter()
            .map(|word| word.replace("extlen 13 01", "extlen 13 00"))
            .collect();
        assert_eq!(only(&words, "SEG"), expected, "{name}");
        compared += 1;
    }
    assert_eq!(compared, 2);
}

/// The length of the contact header and SESS_INIT at the start of a stream.
fn opening_bytes(bytes: &[u8]) -> usize {
    // SESS_INIT: type, keepalive, two MRUs, the node id with its length, no items.
    const CONTACT: usize = 6;
    const FIXED: usize = 1 + 2 + 8 + 8;
    let at = CONTACT + FIXED;
    let node_id = usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    let end = at + 2 + node_id + 4;
    assert_eq!(bytes[end - 4..end], [0; 4], "no extension items");
    end
}

/// The number of bundles received from a recorded peer, and how the session ended by
/// itself.
fn play(role: Role, bytes: &[u8]) -> (usize, Option<Down>) {
    let now = Instant::now();
    let mut core = SessionCore::new(SessionConfig::new(role, "ipn:99.0"), now);
    let (mut taken, mut bundles, mut down) = (0, 0, None);
    loop {
        let step = core.handle_input(now, &bytes[taken..]);
        taken += step;
        while core.poll_output(now).is_some() {}
        let mut answered = false;
        while let Some(event) = core.poll_event() {
            match event {
                Event::Admit { .. } => {}
                Event::Received(_) => bundles += 1,
                Event::Closed(why) => {
                    down = Some(why);
                    continue;
                }
                _ => continue,
            }
            core.answer(Ok(()));
            answered = true;
        }
        if step == 0 && !answered {
            break;
        }
    }
    assert_eq!(taken, bytes.len(), "all bytes are taken");
    (bundles, down)
}
