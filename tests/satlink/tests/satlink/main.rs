//! The beam in virtual time, and what its files and requests may say.

mod beam;
mod changing;
mod config;
mod control;
mod packets;
mod traces;
