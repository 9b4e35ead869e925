//! Claims about the running program: what it leaves on the disk, who may ask
//! it what, what it may do.

mod confinement;
mod node;
mod state;
