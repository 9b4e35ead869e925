//! How long a flow takes on a path (its *flow completion time*), without I/O
//! and clock.
//!
//! A flow is so many bytes that belong together: an HTTP response, or what a stream sends until it
//! pauses. There are two estimates of its completion time: [`of_new_connection`] for a TCP
//! connection that begins with the flow, by the equations of the paper below, and
//! [`of_open_session`] for one of many flows on a session that is up. [`Load`] holds what the
//! competing flows have left, [`Arrivals`] the rate that new flows bring, and [`LossWindow`] the
//! part of its packets that a path loses.
//!
//! The paper: Bouttier et al., *Improving content delivery with size-aware
//! routing in hybrid satellite / terrestrial networks*.

mod arrivals;
mod estimates;
mod load;
mod loss;

pub use arrivals::Arrivals;
pub use estimates::{
    Competition, Estimate, INITIAL_WINDOW_SEGMENTS, PathState, SEGMENT_BYTES, of_new_connection,
    of_open_session,
};
pub use load::Load;
pub use loss::LossWindow;
