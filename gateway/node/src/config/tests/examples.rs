//! The examples are valid, as they are and in full, and complete.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::Config;

fn examples() -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let paths = std::fs::read_dir(folder).unwrap();
    let paths = paths.map(|entry| entry.unwrap().path());
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        (path, text)
    };
    let is_toml = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "toml");
    paths.filter(is_toml).map(read).collect()
}

/// An example with its commented-out lines in force: prose has a space after its "#",
/// keys and tables have none.
fn in_full(text: &str) -> String {
    let lines = text.lines().map(|line| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with([' ', '#']) => rest,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_examples_are_valid() {
    let examples = examples();
    assert!(examples.len() >= 4, "only {} examples", examples.len());
    for (path, text) in examples {
        Config::parse(&text, &path).unwrap();
    }
}

/// The examples in full, with a contact plan in a folder.
fn examples_in_full(folder: &Path) -> Vec<(PathBuf, String)> {
    let plan = folder.join("contacts.ionrc");
    std::fs::write(&plan, "# no contacts\n").unwrap();
    let there = |text: &str| text.replace("/etc/underpass/contacts.ionrc", plan.to_str().unwrap());
    let all = examples().into_iter();
    all.map(|(path, text)| (path, there(&in_full(&text))))
        .collect()
}

#[test]
fn what_the_examples_comment_out_is_valid_too() {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in examples_in_full(folder.path()) {
        Config::parse(&text, &path).unwrap();
    }
}

/// The keys of a table, as its error for an unknown key lists them; none if `header` is
/// not a table. `above` are the headers that contain it.
fn keys_of(above: &str, header: &str) -> Option<Vec<String>> {
    let text = format!("{above}{header}\nunknown_key = 1\n");
    let error = toml::from_str::<Config>(&text).unwrap_err();
    let list = error
        .message()
        .strip_prefix("unknown field `unknown_key`, expected ")?;
    Some(
        list.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect(),
    )
}

/// Every key of the configuration with a value, including its tables' names.
fn keys(above: &str, table: &str, names: Vec<String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for name in names {
        let full = if table.is_empty() {
            name
        } else {
            format!("{table}.{name}")
        };
        let headers = [format!("[{full}]"), format!("[[{full}]]")];
        let inner = headers
            .iter()
            .find_map(|header| Some((header, keys_of(above, header)?)));
        match inner {
            Some((header, names)) => {
                found.extend(keys(&format!("{above}{header}\n"), &full, names));
            }
            None => {
                found.insert(full);
            }
        }
    }
    found
}

#[test]
fn every_key_is_in_the_example_of_a_terminal_or_hub() {
    let known = keys("", "", keys_of("", "").unwrap());
    for sample in ["node.number", "edge.listener.users.name", "edge.rule.dscp"] {
        assert!(known.contains(sample), "{sample} is not in {known:?}");
    }
    let mut shown = BTreeSet::new();
    for (path, text) in examples() {
        if path.ends_with("terminal.toml") || path.ends_with("hub.toml") {
            let mut table = String::new();
            for line in in_full(&text).lines() {
                // "##" marks an alternative.
                let line = line.trim_start_matches("##");
                if line.starts_with('[') {
                    table = line.trim_matches(['[', ']']).to_owned();
                } else if let Some((key, _)) = line.split_once(" = ")
                    && !line.starts_with('#')
                {
                    shown.insert(format!("{table}.{key}"));
                }
            }
        }
    }
    let missing: Vec<_> = known.difference(&shown).collect();
    assert!(missing.is_empty(), "no example shows {missing:?}");
}

#[test]
fn every_number_of_the_examples_has_an_upper_bound() {
    // Numbers of nodes, and sizes that a rule may give but no object has.
    let nodes = ["node", "via"];
    let sizes = [
        "after_bytes",
        "max_size_bytes",
        "min_content_length_bytes",
        "min_size_bytes",
    ];
    let folder = tempfile::tempdir().unwrap();
    let mut tried = 0;
    for (path, text) in examples_in_full(folder.path()) {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let Some((key, value)) = line.split_once(" = ") else {
                continue;
            };
            let is_number = value.replace('_', "").parse::<i64>().is_ok();
            let is_free = nodes.contains(&key) || sizes.contains(&key);
            if !is_number || line.starts_with('#') || is_free {
                continue;
            }
            let other = format!("{key} = {}", i64::MAX);
            let text = [&lines[..at], &[&other], &lines[at + 1..]].concat();
            let told = Config::parse(&text.join("\n"), &path).map(drop);
            let told = told.expect_err(line).to_string();
            assert!(told.contains(key), "{}: {line}: {told}", path.display());
            tried += 1;
        }
    }
    assert!(tried > 100, "{tried}");
}
