//! The outcome of each client connection and HTTP exchange, for logs and statistics.

use std::net::SocketAddr;
use std::time::Duration;

use crate::stream::Failure;

/// A connection or an HTTP exchange of a client that is over.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// The listener that took it in.
    pub listener: &'a str,
    /// Who it was of.
    pub client: SocketAddr,
    /// The request's method; `CONNECT` for a connection, however it was asked for.
    pub method: &'a str,
    /// The destination: host and port of a connection, or the URI of an exchange without its query,
    /// which may contain secrets.
    pub target: &'a str,
    /// `HTTP/1.0` or `HTTP/1.1`; `SOCKS/5`, or `TCP` of a diverted connection.
    pub protocol: &'a str,
    /// The status that the client got, or the HTTP status that corresponds to its outcome.
    pub status: u16,
    /// Payload from the client, bytes.
    pub to_peer_bytes: u64,
    /// Payload to the client, bytes.
    pub from_peer_bytes: u64,
    /// From its beginning to its end.
    pub took: Duration,
    /// For an exchange: the time until the head of the response arrived.
    pub answered: Option<Duration>,
    /// Why it did not come about, or broke.
    pub failure: Option<&'a Failure>,
    /// Whether the response broke off.
    pub cut: bool,
}

/// Keeps account. It is called where connections end, and must not wait.
pub trait Accounts: Send + Sync {
    /// One is over.
    fn ended(&self, ended: &Ended<'_>);
}
