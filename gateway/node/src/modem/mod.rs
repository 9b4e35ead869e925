//! Modems that speak OpenAMIP: their lock shows a blockage at once.
//!
//! OpenAMIP joins a modem and its antenna's controller: lines of ASCII over TCP, which the modem
//! opens. The node stands between the two, passes everything on unchanged, and reads the modem's
//! `L` lines. `docs/operation.md` says which parts of the protocol this code relies on, and their
//! sources.

mod lock;
mod relay;

pub use relay::{ModemError, listen, serve};
