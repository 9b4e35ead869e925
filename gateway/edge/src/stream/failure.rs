//! Why a stream could not be opened, or broke.

use std::io;

use thiserror::Error;

use crate::words;

/// The kind of a failure. The numbers travel between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FailureCode {
    /// The far socket was reset, or something on the way gave up.
    Reset = 0,
    /// The origin refused the connection.
    Refused = 1,
    /// No route to the origin.
    Unreachable = 2,
    /// The origin did not answer in time.
    TimedOut = 3,
    /// The name does not resolve.
    UnknownHost = 4,
    /// The dialling node does not allow the destination.
    Forbidden = 5,
    /// A limit of the node is reached.
    Exhausted = 6,
    /// The node is shutting down, or has no way to a peer.
    Unavailable = 7,
}

impl FailureCode {
    /// The code of a number from the wire; unknown ones read as `Reset`.
    pub fn from_wire(number: u8) -> FailureCode {
        use FailureCode::*;
        [
            Reset,
            Refused,
            Unreachable,
            TimedOut,
            UnknownHost,
            Forbidden,
            Exhausted,
            Unavailable,
        ]
        .into_iter()
        .find(|code| *code as u8 == number)
        .unwrap_or(Reset)
    }
}

/// A failure with the words that explain it to a person. They say all of it: the code is for
/// programs.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{text}")]
pub struct Failure {
    /// The kind.
    pub code: FailureCode,
    /// What happened, for logs and error pages.
    pub text: String,
}

impl Failure {
    /// A failure of `code`, explained by `text`.
    pub fn new(code: FailureCode, text: impl Into<String>) -> Failure {
        Failure {
            code,
            text: text.into(),
        }
    }

    /// The failure that an error of connect(2) stands for.
    pub fn of_connect(error: &io::Error) -> Failure {
        use io::ErrorKind::*;
        let code = match error.kind() {
            ConnectionRefused => FailureCode::Refused,
            ConnectionReset | ConnectionAborted => FailureCode::Reset,
            TimedOut => FailureCode::TimedOut,
            PermissionDenied => FailureCode::Forbidden,
            _ => match error.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                    FailureCode::Exhausted
                }
                _ => FailureCode::Unreachable,
            },
        };
        Failure::new(code, words::of_connect(error))
    }

    /// The failure that an error on a connected socket stands for; `end` is who is at its other end.
    pub fn of_socket(end: &str, error: &io::Error) -> Failure {
        let code = match error.kind() {
            io::ErrorKind::TimedOut => FailureCode::TimedOut,
            _ => FailureCode::Reset,
        };
        Failure::new(code, words::of_socket(end, error))
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> io::Error {
        io::Error::new(io::ErrorKind::ConnectionAborted, failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_from_the_wire_come_back_as_their_code() {
        for number in 0..8 {
            assert_eq!(FailureCode::from_wire(number) as u8, number);
        }
        assert_eq!(FailureCode::from_wire(200), FailureCode::Reset);
    }
}
