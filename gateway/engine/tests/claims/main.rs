//! What an engine promises, one claim at a time.

mod bench;
mod bounded;
mod contacts;
mod custody;
mod doubts;
mod draining;
mod durable;
mod flows;
mod half_close;
mod handing_over;
mod lines;
mod links;
mod measured;
mod metered;
mod migrating;
mod on_demand;
mod paths;
mod plans;
mod reading_on;
mod reconfiguring;
mod restarts;
mod scheduling;
mod services;
mod shares;
mod standing;
mod takeover;
