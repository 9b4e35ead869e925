//! Two nodes, a relay between them and whoever writes as he likes: what the
//! rules of [`Guard`](underpass_bpsec::Guard) let pass.

mod accepted;
mod nodes;
mod recorded;
mod refused;
mod rotated;
