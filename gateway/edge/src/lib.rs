//! The edge of a node: takes clients' TCP and HTTP in and opens streams to
//! the peer; at the other end it dials origins.
//!
//! A byte's way in: [`config`] → `listen` (who may enter) → `socks5`, `http`
//! or `transparent` (where to) → [`classify`] (in which class) → [`relay`]
//! over a [`stream::Conduit`], on which [`flows`] are watched. Its way out: [`dial`] → [`relay`].
//! [`direct`] joins both ends in one node, without bundles.

mod account;
pub mod classify;
pub mod config;
mod credentials;
pub mod dial;
pub mod direct;
mod edge;
pub mod flows;
pub mod http;
mod listen;
pub mod order;
pub mod password;
pub mod relay;
pub mod socks5;
pub mod speed;
pub mod stream;
mod switch;
pub mod throttle;
pub mod traces;
pub mod transparent;
mod words;

pub use account::{Accounts, Ended};
pub use credentials::UserError;
pub use edge::{Edge, EdgeError, Prepared};
pub use switch::Switch;
