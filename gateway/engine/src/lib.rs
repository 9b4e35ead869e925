//! The node without its sockets: streams, bundle node, custody and link
//! scheduler put together into one state machine.
//!
//! The way of a byte through an [`Engine`]: an edge writes it to a stream
//! ([`Engine::write`]); when the scheduler grants a leaf (a hop and a class)
//! whose session is ready, bytes of that class are sealed into a bundle, as
//! late as possible, and offered to the session ([`Action::Offer`]). At the
//! other node [`Engine::receive`] takes custody, delivers the payload to its
//! stream, and the edge reads the byte ([`Engine::read`]).
//!
//! The engine owns no socket, clock or task: every call says what time it is,
//! [`Engine::poll_action`] says what is to be done outside, and
//! [`Engine::next_timeout`] when to call [`Engine::handle_timeout`]. So whole
//! networks of engines run in virtual time.

mod ahead;
mod applications;
mod bringing_up;
mod budget;
mod choosing;
mod completing;
mod config;
mod contacts;
mod control;
mod doubt;
mod engine;
mod footprint;
mod handover;
mod hop;
mod ingress;
mod lag;
mod lanes;
mod leaves;
mod link;
mod links;
mod measured;
mod migration;
mod on_demand;
mod paths;
mod peers;
mod planned;
mod policy;
mod pump;
mod reconfigure;
mod restored;
mod services;
mod sessions;
mod shards;
mod snapshot;
mod standing;
mod steering;
mod streams;
mod takeover;
mod transfers;
mod trying;
mod unanswered;
mod ways;
mod without_room;

pub use applications::SentBundle;
pub use bringing_up::{LONGEST_NAME, ON_DEMAND_SERVICE};
pub use budget::{MeterConfig, MeterSnapshot, Period, Spent};
pub use completing::{ComparedPath, FlowChoice, FlowPath};
pub use config::{EngineConfig, HopConfig, PlanLine, RouteEntry, window_bytes};
pub use contacts::Contacts;
pub use engine::{Action, Engine, EngineError, STREAM_SERVICE};
pub use handover::{NodeState, TakeOverError};
pub use hop::{HopId, HopTraffic};
pub use link::{
    LinkChange, MAX_PLANNED, PlannedBlockage, REST_INTERVAL, REST_SILENCE, SILENCE, Sign, Source,
};
pub use links::LinkSnapshot;
pub use measured::{MeasuredLink, Sending};
pub use migration::{MigrationRule, MoveReason};
pub use on_demand::{Need, OnDemand, OnDemandSnapshot, PathChange, Released};
pub use planned::{HopPlan, PlanChange, PlanSnapshot};
pub use policy::{MeteredUse, PathUse, Policy};
pub use services::Message;
pub use snapshot::{
    ClassDemand, HopDemand, HopSnapshot, SessionPlace, SessionSnapshot, StreamTotals,
};
pub use steering::{MigrateError, Migration, TunnelSnapshot};
pub use streams::StreamKey;
pub use underpass_completion::{Competition, Estimate, PathState};
