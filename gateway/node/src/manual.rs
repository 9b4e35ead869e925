//! Manual pages and shell completions, generated from the definition of the command line so that
//! they always match it.

use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;

/// Prints the completions of the command line for a shell.
///
/// # Errors
/// When standard output takes nothing.
pub fn print_completion(shell: Shell) -> io::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "underpass", &mut script);
    io::stdout().write_all(&script)
}

/// Writes `underpass.1`, and a page such as `underpass-pki-issue.1` for each command
/// below it, into a folder that exists. Commands that only a node itself starts have none.
///
/// # Errors
/// When a page cannot be written.
pub fn write_pages(dir: &Path) -> io::Result<()> {
    clap_mangen::generate_to(Cli::command(), dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn every_command_that_people_use_has_a_page_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        write_pages(dir.path()).unwrap();
        let names = names(dir.path());
        for name in [
            "underpass.1",
            "underpass-upgrade.1",
            "underpass-pki-issue.1",
            "underpass-bp-send.1",
        ] {
            assert!(
                names.iter().any(|one| one == name),
                "{name} is not in {names:?}"
            );
        }
        for hidden in ["helper", "launcher", "manual", "help.1"] {
            assert!(!names.iter().any(|one| one.contains(hidden)), "{names:?}");
        }
    }

    #[test]
    fn a_page_names_the_options_and_hides_what_a_node_alone_uses() {
        let dir = tempfile::tempdir().unwrap();
        write_pages(dir.path()).unwrap();
        let page = std::fs::read_to_string(dir.path().join("underpass-run.1")).unwrap();
        assert!(page.contains("config"), "{page}");
        assert!(page.contains("node.toml"), "{page}");
        assert!(!page.contains("take"), "{page}");
    }
}
