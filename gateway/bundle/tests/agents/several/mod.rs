//! A node of several agents, each with a part of the neighbours.

mod ahead;
mod disk;
mod hub;
mod names;
mod relayed;
mod rerouted;
mod schedules;
mod shares;
mod terminals;
