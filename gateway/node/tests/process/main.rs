//! Claims about the running program: what it leaves on disk, who may ask it what, what it
//! may do, and what it can do without.

mod confinement;
mod count_of_starts;
mod echo;
mod log;
mod named;
mod node;
mod receive;
mod state;
mod top;
mod upgrade;
mod upgrade_addresses;
mod upgrade_neighbours;
mod upgrade_quic;
