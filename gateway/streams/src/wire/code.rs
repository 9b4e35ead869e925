//! Why a stream was reset.

use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// Why a stream was reset. The numbers are sent on the wire; unknown ones are kept.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ResetCode {
            $($(#[$doc])* $name,)*
            /// A code this version does not know.
            Other(u64),
        }

        impl ResetCode {
            /// The number on the wire.
            pub fn number(self) -> u64 {
                match self {
                    $(Self::$name => $code,)*
                    Self::Other(number) => number,
                }
            }

            /// The code of a number from the wire.
            pub fn from_number(number: u64) -> Self {
                match number {
                    $($code => Self::$name,)*
                    _ => Self::Other(number),
                }
            }
        }

        impl fmt::Display for ResetCode {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name => f.write_str($text),)*
                    Self::Other(number) => write!(f, "reset with code {number}"),
                }
            }
        }
    };
}

codes! {
    /// The TCP connection at the other end was reset.
    Aborted = 0, "the connection was reset";
    /// The origin refused the connection.
    Refused = 1, "connection refused";
    /// No route to the origin.
    Unreachable = 2, "host or network unreachable";
    /// The origin did not answer in time.
    TimedOut = 3, "connection timed out";
    /// The origin's name does not resolve.
    UnknownHost = 4, "unknown host";
    /// The peer's rules forbid this destination.
    Forbidden = 5, "destination forbidden";
    /// The peer does not reach this address family.
    FamilyUnavailable = 6, "address family not reachable";
    /// The peer has as many streams as it takes.
    Busy = 7, "too many streams";
    /// Custody gave up a payload of the stream: bytes are missing for good.
    Expired = 8, "a bundle of the stream expired";
    /// The peer restarted and has forgotten the stream. Made locally.
    Restarted = 9, "the peer node restarted";
    /// More bytes than the credit allowed, or more gaps than are kept.
    FlowControl = 10, "credit exceeded";
    /// A frame that contradicts earlier ones of the stream.
    Protocol = 11, "stream protocol violated";
    /// The application is no longer interested.
    Cancelled = 12, "cancelled";
    /// The peer node is shutting down.
    ShuttingDown = 13, "the peer node is shutting down";
    /// An error inside the peer node.
    Internal = 14, "internal error";
}
