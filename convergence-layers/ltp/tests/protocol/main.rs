//! Two engines, without sockets and in virtual time.

mod bounds;
mod cancelling;
mod elsewhere;
mod hostile;
mod keeping;
mod other_engine;
mod recorded;
mod schedules;
mod world;
