//! `satlink` emulates a satellite beam between network namespaces.
//!
//! [`beam`] is the emulation: a state machine in virtual time, without I/O.
//! [`emulator`] runs it between the TUN devices of [`tun`], and [`control`]
//! changes and observes it while it runs.

pub mod beam;
pub mod config;
pub mod control;
pub mod emulator;
pub mod pcap;
pub mod selftest;
pub mod trace;
pub mod tun;
