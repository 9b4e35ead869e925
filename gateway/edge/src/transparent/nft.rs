//! Runs nft(8).

use std::io::{self, Write};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

/// Most checks whether a change is in force: 2 s in all.
const LOOKS: u32 = 100;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Runs `input` as one transaction.
pub(super) fn run(input: &str) -> io::Result<()> {
    feed(&["-f", "-"], input)
}

/// Checks `input` against grammar and kernel, and changes nothing.
pub(super) fn check(input: &str) -> io::Result<()> {
    feed(&["-c", "-f", "-"], input)
}

fn feed(arguments: &[&str], input: &str) -> io::Result<()> {
    let mut child = Command::new("nft")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("cannot run nft: {error}")))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    succeeded("nft", child.wait_with_output()?).map(|_| ())
}

/// Runs nft with `arguments` and gives what it prints.
pub(super) fn query(arguments: &[&str]) -> io::Result<String> {
    succeeded("nft", Command::new("nft").args(arguments).output()?)
}

/// What a program printed, or its complaint as an error.
pub(super) fn succeeded(program: &str, output: Output) -> io::Result<String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let text: String = complaint.trim().chars().take(500).collect();
    Err(io::Error::other(format!("{program}: {text}")))
}

/// An nft process that owns a table for as long as it lives. Its input ends
/// when this node does, so the table ends with the node.
pub(super) struct Owner {
    child: Child,
    input: ChildStdin,
}

impl Owner {
    pub fn start() -> io::Result<Owner> {
        let mut child = Command::new("nft")
            .arg("-i")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("cannot run nft: {error}")))?;
        let input = child.stdin.take();
        let input = input.ok_or_else(|| io::Error::other("nft has no input"))?;
        Ok(Owner { child, input })
    }

    /// Runs one line as a transaction and waits until `chain` of `table`
    /// shows that it is in force.
    pub fn run(&mut self, line: &str, table: &str, chain: &str) -> io::Result<()> {
        writeln!(self.input, "{line}")?;
        self.input.flush()?;
        for _ in 0..LOOKS {
            if query(&["list", "chain", "inet", table, chain]).is_ok() {
                return Ok(());
            }
            if !self.lives() {
                return Err(io::Error::other(
                    "the nft process that owns the rules has ended",
                ));
            }
            thread::sleep(BETWEEN_LOOKS);
        }
        Err(io::Error::other(format!(
            "nft did not put {chain} of {table} in force"
        )))
    }

    /// Whether the process, and so the table, is still there.
    pub fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
