//! Modems that speak OpenAMIP: their lock tells of a blockage at once.
//!
//! OpenAMIP joins a modem and its antenna's controller: lines of ASCII over
//! TCP, which the modem opens. The node stands between the two, passes all on
//! as it is, and reads the modem's `L` lines. `docs/operation.md` says what of
//! the protocol is known here, and from where.

mod lock;
mod relay;

pub use relay::{ModemError, listen, serve};
