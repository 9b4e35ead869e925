//! The client against a small control service in this process.

mod plans;
mod reports;
mod service;
