//! Two engines, without sockets and in virtual time.

mod bounds;
mod cancelling;
mod elsewhere;
mod hostile;
mod other_engine;
mod recorded;
mod schedules;
mod world;
