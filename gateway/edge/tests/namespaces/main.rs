//! Interception in network namespaces: client, gateway and origin, with the
//! edge as a process of its own in the gateway's. Needs root, ip(8), nft(8).

mod gateway;
mod transparent;
mod world;
