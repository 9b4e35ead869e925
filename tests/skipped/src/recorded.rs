//! Bytes recorded from other implementations, which are not part of this tree.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Names their folder.
pub const FOLDER: &str = "UNDERPASS_VECTORS";

/// Their folder, which has one for each implementation; `None` where it is not at
/// hand, and then the calling test is skipped.
#[track_caller]
pub fn folder() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors");
    let folder = env::var_os(FOLDER).map_or(beside, PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    crate::because(format!("nothing recorded at {}", folder.display()));
    None
}

/// The bytes in a file: lines of hexadecimal digits, after those that begin with `#`.
///
/// # Panics
/// If that is not what it has.
pub fn bytes_of(file: &Path) -> Vec<u8> {
    let text = fs::read_to_string(file).expect("a text file");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let digits: Vec<u8> = lines.flat_map(str::bytes).collect();
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).expect("hex digits");
        u8::from_str_radix(pair, 16).expect("hex digits")
    };
    digits.chunks(2).map(byte).collect()
}
