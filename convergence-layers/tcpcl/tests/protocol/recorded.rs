//! Sessions recorded from other implementations.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use underpass_cla::Down;
use underpass_tcpcl::session::{Event, Role, SessionConfig, SessionCore};

use crate::describe::describe;

/// The recordings, or `None` where they are not at hand.
#[track_caller]
fn vectors() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors");
    let folder = std::env::var_os("UNDERPASS_VECTORS").map_or(beside, PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    skipped::because(format!("no recorded sessions at {}", folder.display()));
    None
}

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

fn bytes_of(file: &Path) -> Vec<u8> {
    let text = fs::read_to_string(file).expect("a text file");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let digits: Vec<u8> = lines.flat_map(str::bytes).collect();
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("hex digits");
        u8::from_str_radix(pair, 16).expect("hex digits")
    };
    digits.chunks(2).map(byte).collect()
}

/// What the list beside the recordings says of a file.
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
    let Some(folder) = vectors() else { return };
    let readme = fs::read_to_string(folder.join("README.md")).expect("the list");
    for (file, bytes) in recordings(&folder) {
        let (words, left) = describe(&bytes, true);
        assert_eq!(left, 0, "{}", file.display());
        assert_eq!(words, listed(&readme, &file), "{}", file.display());
    }
}

#[test]
fn a_session_takes_every_recorded_stream() {
    let Some(folder) = vectors() else { return };
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

/// Bundles received from a recorded peer, and how the session ended by itself.
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
