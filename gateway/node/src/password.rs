//! `underpass hash-password`.

use std::io::{self, IsTerminal, Write};

use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use thiserror::Error;
use underpass_edge::password::{CREDENTIAL_BYTES, HashError, hash};

use crate::client::{self, ClientError};

/// Why there is no hash.
#[derive(Debug, Error)]
pub enum PasswordError {
    #[error("cannot read the password: {0}")]
    Read(#[from] io::Error),
    #[error("a password must have 1 to 255 bytes")]
    Length,
    #[error("the hash {0}")]
    Hash(#[from] HashError),
    #[error(transparent)]
    Print(#[from] ClientError),
}

/// Reads a line from standard input, without echo on a terminal, and prints its hash.
///
/// # Errors
/// When it is no password.
pub fn print_hash() -> Result<(), PasswordError> {
    let password = read()?;
    let password = password.trim_end_matches(['\r', '\n']);
    if !CREDENTIAL_BYTES.contains(&password.len()) {
        return Err(PasswordError::Length);
    }
    let hash = hash(password.as_bytes())?;
    Ok(client::print(&format!("{hash}\n"))?)
}

fn read() -> io::Result<String> {
    let stdin = io::stdin();
    let mut line = String::new();
    if !stdin.is_terminal() {
        stdin.read_line(&mut line)?;
        return Ok(line);
    }
    eprint!("Password: ");
    io::stderr().flush()?;
    let shown = tcgetattr(&stdin)?;
    let mut hidden: Termios = shown.clone();
    hidden.local_flags.remove(LocalFlags::ECHO);
    tcsetattr(&stdin, SetArg::TCSANOW, &hidden)?;
    let read = stdin.read_line(&mut line);
    tcsetattr(&stdin, SetArg::TCSANOW, &shown)?;
    eprintln!();
    read.map(|_| line)
}
