//! The configuration as it is written: one file, the fragments in the folder
//! `conf.d` beside it, and the terminals that the control service lists, merged to
//! one table.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::{ConfigError, Listing};

/// The folder of fragments, beside the main file.
pub const FRAGMENTS: &str = "conf.d";

#[derive(Clone, Debug)]
struct File {
    path: PathBuf,
    text: String,
    /// Where its text begins in the numbering of all files' bytes.
    base: usize,
}

/// What a configuration was read from. Fragments are taken in the order of
/// their names: tables are joined, arrays of tables appended; whatever else is
/// given twice is an error.
#[derive(Clone, Debug)]
pub struct Document {
    files: Vec<File>,
    table: toml::Table,
}

impl Document {
    /// Reads a file and its fragments.
    ///
    /// # Errors
    /// When one cannot be read or is no TOML, or two contradict each other.
    pub fn read(path: &Path) -> Result<Document, ConfigError> {
        let (path, text) = read(path)?;
        Document::beside(&path, text)
    }

    /// The text of a main file that is not written yet, with the existing fragments.
    ///
    /// # Errors
    /// As for [`Document::read`].
    pub fn beside(path: &Path, text: String) -> Result<Document, ConfigError> {
        let mut texts = vec![(path.to_owned(), text)];
        for fragment in fragments(path)? {
            texts.push(read(&fragment)?);
        }
        let written = Document::merge(texts.clone())?;
        let Some(file) = Listing::file_of(&written.table) else {
            return Ok(written);
        };
        let listed = match std::fs::read_to_string(&file) {
            Ok(text) => Document::merge(vec![(file.clone(), text)])?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(written),
            Err(error) => return Err(unreadable(&file, error)),
        };
        let listing: Listing = listed.parse()?;
        let text = listing.beside(&written.table).text();
        texts.push((file, text.expect("it has been read from TOML")));
        Document::merge(texts)
    }

    /// A document of texts, the main file's first.
    pub fn merge(texts: Vec<(PathBuf, String)>) -> Result<Document, ConfigError> {
        let mut files = Vec::new();
        let mut base = 0;
        for (path, text) in texts {
            let end = base + text.len() + 1;
            files.push(File { path, text, base });
            base = end;
        }
        let mut document = Document {
            files,
            table: toml::Table::new(),
        };
        document.table = document.parse()?;
        Ok(document)
    }

    /// What is written in all files together.
    pub fn table(&self) -> &toml::Table {
        &self.table
    }

    /// The main file.
    pub fn path(&self) -> &Path {
        self.files.first().map_or(Path::new(""), |file| &file.path)
    }

    /// The document as a value.
    ///
    /// # Errors
    /// For an unknown or malformed key, with its file and line.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        // Each file is parsed after as many blanks as the earlier files have bytes, so that each
        // place in the texts has a unique number.
        let padded: Vec<String> = self
            .files
            .iter()
            .map(|file| format!("{}{}", " ".repeat(file.base), file.text))
            .collect();
        let mut merged: Option<Spanned<DeTable<'_>>> = None;
        for text in &padded {
            let parsed = DeTable::parse(text).map_err(|error| self.located(&error))?;
            merged = Some(match merged {
                None => parsed,
                Some(mut merged) => {
                    let joined = join(merged.get_mut(), parsed.into_inner(), "");
                    joined.map_err(|twice| self.contradiction(&twice))?;
                    merged
                }
            });
        }
        let merged = merged.unwrap_or_else(|| Spanned::new(0..0, DeTable::new()));
        T::deserialize(Deserializer::from(merged)).map_err(|error| self.located(&error))
    }

    fn contradiction(&self, twice: &Twice) -> ConfigError {
        let [first, second] =
            [&twice.first, &twice.second].map(|span| Box::new(self.place(span.start)));
        ConfigError::Twice {
            key: twice.key.clone(),
            first,
            second,
        }
    }

    fn located(&self, error: &toml::de::Error) -> ConfigError {
        let message = error.message().to_owned();
        let place = match error.span() {
            Some(span) => self.place(span.start),
            // A missing key has no place in any file.
            None => Place {
                path: self.path().to_owned(),
                line: None,
            },
        };
        ConfigError::Parse { place, message }
    }

    /// The place of a byte in the numbering of all files.
    fn place(&self, at: usize) -> Place {
        let behind = self.files.partition_point(|file| file.base <= at);
        let Some(file) = self.files.get(behind.saturating_sub(1)) else {
            return Place::default();
        };
        let before = file.text.get(..at - file.base).unwrap_or(&file.text);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let text = file.text.lines().nth(line - 1).unwrap_or_default();
        Place {
            path: file.path.clone(),
            line: Some((line, text.trim().to_owned())),
        }
    }
}

/// A place in a configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    path: PathBuf,
    /// Its number and text.
    line: Option<(usize, String)>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        match &self.line {
            Some((number, text)) => write!(f, " line {number} ({text})"),
            None => Ok(()),
        }
    }
}

/// A key with two values.
#[derive(Debug)]
struct Twice {
    key: String,
    first: Range<usize>,
    second: Range<usize>,
}

/// Joins the tables of two files. `at` is where they are, as a prefix of keys.
fn join<'a>(into: &mut DeTable<'a>, from: DeTable<'a>, at: &str) -> Result<(), Twice> {
    for (name, value) in from {
        let key = format!("{at}{}", name.get_ref());
        let Some(first) = into.get_mut(&name) else {
            into.insert(name, value);
            continue;
        };
        let (span, second) = (first.span(), value.span());
        match (first.get_mut(), value.into_inner()) {
            (DeValue::Table(first), DeValue::Table(second)) => {
                join(first, second, &format!("{key}."))?;
            }
            (DeValue::Array(first), DeValue::Array(second))
                if first.iter().chain(second.iter()).all(is_table) =>
            {
                second.into_iter().for_each(|table| first.push(table));
            }
            _ => {
                return Err(Twice {
                    key,
                    first: span,
                    second,
                });
            }
        }
    }
    Ok(())
}

fn is_table(value: &Spanned<DeValue<'_>>) -> bool {
    value.get_ref().is_table()
}

fn read(path: &Path) -> Result<(PathBuf, String), ConfigError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok((path.to_owned(), text)),
        Err(source) => Err(unreadable(path, source)),
    }
}

fn unreadable(path: &Path, source: std::io::Error) -> ConfigError {
    ConfigError::Read {
        path: path.to_owned(),
        source,
    }
}

/// The fragments of a file, by name. Files that an editor leaves (hidden files, other endings) are
/// not fragments.
fn fragments(path: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let folder = path.with_file_name(FRAGMENTS);
    let failed = |source| unreadable(&folder, source);
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.extension().is_some_and(|ending| ending == "toml") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merge(texts: &[(&str, &str)]) -> Result<Document, ConfigError> {
        let texts = texts.iter();
        Document::merge(
            texts
                .map(|(path, text)| (path.into(), (*text).to_owned()))
                .collect(),
        )
    }

    #[test]
    fn fragments_join_tables_and_append_arrays_of_tables() {
        let document = merge(&[
            (
                "node.toml",
                "[edge]\nclient_networks = [\"10.0.0.0/8\"]\n[[terminal]]\nnode = 10\n",
            ),
            (
                "a.toml",
                "[edge.dial]\nconnect_timeout_s = 5.0\n[[terminal]]\nnode = 11\n",
            ),
            (
                "b.toml",
                "log = { level = \"debug\" }\nterminal = [{ node = 12 }]\n",
            ),
        ]);
        let table = document.unwrap().table().clone();
        let expected: toml::Table = toml::from_str(
            "[edge]\nclient_networks = [\"10.0.0.0/8\"]\ndial.connect_timeout_s = 5.0\n\
             [log]\nlevel = \"debug\"\n[[terminal]]\nnode = 10\n[[terminal]]\nnode = 11\n[[terminal]]\nnode = 12\n",
        )
        .unwrap();
        assert_eq!(table, expected);
    }

    #[test]
    fn what_is_given_twice_names_both_places() {
        for (first, second, key) in [
            (
                "[log]\nlevel = \"info\"\n",
                "\n[log]\nlevel = \"debug\"\n",
                "log.level",
            ),
            (
                "edge.client_networks = [\"10.0.0.0/8\"]",
                "edge.client_networks = []",
                "edge.client_networks",
            ),
            (
                "[edge]\nrule = 1",
                "[edge]\n[edge.rule]\nx = 1",
                "edge.rule",
            ),
        ] {
            let error = merge(&[("node.toml", first), ("conf.d/x.toml", second)]).unwrap_err();
            let error = error.to_string();
            for part in [key, "node.toml", "conf.d/x.toml", "line"] {
                assert!(error.contains(part), "{part} is missing in: {error}");
            }
        }
    }

    #[test]
    fn an_error_is_found_in_its_own_file() {
        let error = merge(&[
            ("node.toml", "a = 1\nb = 2\n"),
            ("x.toml", "c = 3\nd = = 4\n"),
        ]);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("x.toml line 2 (d = = 4)"), "{error}");
    }

    #[test]
    fn fragments_are_read_by_name_and_leftovers_of_editors_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let main = dir.path().join("node.toml");
        std::fs::write(&main, "a = [{ n = 0 }]\n").unwrap();
        let folder = dir.path().join("conf.d");
        std::fs::create_dir(&folder).unwrap();
        for (name, n) in [
            ("20.toml", 2),
            ("10.toml", 1),
            (".30.toml", 3),
            ("40.toml~", 4),
        ] {
            std::fs::write(folder.join(name), format!("[[a]]\nn = {n}\n")).unwrap();
        }
        let table = Document::read(&main).unwrap().table().clone();
        let expected: toml::Table =
            toml::from_str("a = [{ n = 0 }, { n = 1 }, { n = 2 }]").unwrap();
        assert_eq!(table, expected);
    }

    #[test]
    fn terminals_that_the_service_lists_come_beside_those_written_by_hand() {
        let dir = tempfile::tempdir().unwrap();
        let main = dir.path().join("node.toml");
        let state = dir.path().join("state");
        std::fs::create_dir(&state).unwrap();
        let text = |takes: bool| {
            let dir = state.display();
            format!(
                "node.state_dir = \"{dir}\"\ncontrol.terminals = {takes}\n\
                 [[terminal]]\nnode = 10\nrtt_ms = 700\n"
            )
        };
        let nodes = |takes: bool| -> Vec<i64> {
            let document = Document::beside(&main, text(takes)).unwrap();
            let terminals = document.table()["terminal"].as_array().unwrap().clone();
            let node = |one: &toml::Value| one["node"].as_integer().unwrap();
            terminals.iter().map(node).collect()
        };
        assert_eq!(nodes(true), [10], "there is no list yet");
        let listed = |node| crate::config::ListedTerminal {
            node,
            weight: 2,
            send_rate_bps: None,
            receive_rate_bps: Some(1_000_000),
        };
        let listing = Listing {
            terminals: vec![listed(10), listed(11)],
        };
        let file = Listing::file(&state);
        std::fs::write(&file, listing.text().unwrap()).unwrap();
        assert_eq!(nodes(true), [10, 11]);
        assert_eq!(nodes(false), [10]);
        // That file may contain only terminals.
        for wrong in [
            "[api]\nlisten = \"0.0.0.0:80\"\n",
            "[[terminal]]\nnode = 12\n",
        ] {
            std::fs::write(&file, wrong).unwrap();
            let error = Document::beside(&main, text(true)).unwrap_err().to_string();
            assert!(error.contains("terminals.toml"), "{error}");
        }
    }
}
