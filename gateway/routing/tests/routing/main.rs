//! Contact plans, routes by them, and where bundles go next.

mod forwarding;
mod plans;
mod routes;
