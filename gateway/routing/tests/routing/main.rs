//! Contact plans, the routes through them, and where bundles go next.

mod forwarding;
mod plans;
mod routes;
