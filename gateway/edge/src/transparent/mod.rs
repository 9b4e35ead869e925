//! Transparent interception: connections that the kernel diverts (TPROXY).

mod server;

pub(crate) use server::serve;
