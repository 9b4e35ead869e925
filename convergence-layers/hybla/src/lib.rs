//! TCP Hybla for kernels that lack it, and a congestion control that knows its allocated rate.
//!
//! Both are BPF programs of the kernel's `tcp_congestion_ops`, compiled when this crate is
//! built, carried in it, and registered by [`Loader`] under the names of [`Control`]. Any
//! process on the kernel may then choose them by `TCP_CONGESTION`.
//!
//! - `hybla_bpf` is TCP Hybla (Caini and Firrincieli, 2004) with packet pacing and Hoe's
//!   estimate of the first ssthresh.
//! - `hybla_dama` takes the allocated rate from `SO_MAX_PACING_RATE` (payload, bytes per second):
//!   it paces at that rate from the first segment, and keeps the window above the allocation's
//!   bandwidth-delay product despite losses. Without that option it is `hybla_bpf`.
//!
//! A registration lives as long as the [`Loader`] that made it, and no longer than its
//! process; connections that use the control keep it until they end. Nothing is pinned.
//! `docs/congestion-control.md` has the equations and the limits.

pub mod arithmetic;
mod choice;
mod control;
mod loader;

pub use choice::{Choice, Refused, available};
pub use control::{Control, UnusableError, usable};
pub use loader::{LoadError, Loader};
