//! The link scheduler in virtual time.

mod claims;
mod laws;
mod line;
