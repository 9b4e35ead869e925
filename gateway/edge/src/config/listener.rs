//! `[[edge.listener]]`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde::Deserialize;

/// What a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ListenerProtocol {
    /// SOCKS5 with CONNECT.
    Socks5,
    /// HTTP CONNECT and forward proxy.
    Http,
    /// Connections that the interception rules divert here (TPROXY).
    Transparent,
}

/// When a SOCKS5 or CONNECT client is told that it is connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// At once, without a satellite round trip; a dial that fails becomes a
    /// reset. What this node itself knows not to be dialled is refused.
    #[default]
    AtOnce,
    /// After the origin has answered, with the true reply.
    AfterDial,
}

/// A user of a SOCKS5 or HTTP listener.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// User name, without a colon. Required.
    pub name: String,
    /// Hash of the password, of argon2id in a PHC string. This or one of the
    /// following is required.
    #[serde(default)]
    pub password_hash: Option<String>,
    /// File with the password, or its hash, in its first line.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// The password itself.
    #[serde(default)]
    pub password: Option<String>,
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("User")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// `[[edge.listener]]`: one listening address.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenerConfig {
    /// Name in rules, logs and metrics; unique. Required.
    pub name: String,
    /// `socks5`, `http` or `transparent`. Required.
    pub protocol: ListenerProtocol,
    /// Address and port. `[::]` takes IPv4 clients in too. Required.
    pub address: SocketAddr,
    /// Interface that the listener is bound to. Default: every interface.
    #[serde(default)]
    pub interface: Option<String>,
    /// `at-once` or `after-dial`, for SOCKS5 and CONNECT. Default `at-once`.
    #[serde(default)]
    pub answer: Answer,
    /// Networks whose clients may enter. Default: `client_networks` of
    /// `[edge]`.
    #[serde(default)]
    pub client_networks: Option<Vec<IpNet>>,
    /// Users who may enter, by SOCKS5 user/password or HTTP Basic. Default:
    /// none, and no password is asked for.
    #[serde(default)]
    pub users: Vec<User>,
    /// Connections at once; further ones wait to be accepted. A client address
    /// has at most 256 and half of the others. Default 20000.
    #[serde(default = "default_max_connections")]
    pub max_connections: usize,
    /// Time for the SOCKS5 handshake or an HTTP request head, in seconds.
    /// Default 10.
    #[serde(default = "default_handshake_timeout_s")]
    pub handshake_timeout_s: f64,
    /// Congestion controls for the client leg, by preference: the first that
    /// the kernel has. Default: the kernel's.
    #[serde(default)]
    pub congestion_control: Vec<String>,
}

fn default_max_connections() -> usize {
    20_000
}

fn default_handshake_timeout_s() -> f64 {
    10.0
}

impl ListenerConfig {
    /// The handshake's time limit.
    pub fn handshake_timeout(&self) -> Duration {
        Duration::try_from_secs_f64(self.handshake_timeout_s).unwrap_or(Duration::from_secs(10))
    }
}
