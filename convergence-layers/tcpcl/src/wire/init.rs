//! SESS_INIT (RFC 9174, 4.6).

use bytes::BufMut;

use super::{ExtensionList, MalformedExtensions, code};

/// The parameters that one side announces for the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessInit {
    /// Keepalive interval, s; 0 means that the sender wants none.
    pub keepalive_s: u16,
    /// The largest segment the sender takes, bytes of data.
    pub segment_mru_bytes: u64,
    /// The largest transfer the sender takes, bytes.
    pub transfer_mru_bytes: u64,
    /// The sender's node id.
    pub node_id: String,
    /// Session extensions; the session answers malformed ones.
    pub extensions: Result<ExtensionList, MalformedExtensions>,
}

impl SessInit {
    /// Appends the message to `out`. Malformed extensions are left out, since
    /// there is nothing to write.
    pub fn emit(&self, out: &mut impl BufMut) {
        out.put_u8(code::SESS_INIT);
        out.put_u16(self.keepalive_s);
        out.put_u64(self.segment_mru_bytes);
        out.put_u64(self.transfer_mru_bytes);
        out.put_u16(self.node_id.len() as u16);
        out.put_slice(self.node_id.as_bytes());
        match &self.extensions {
            Ok(list) => list.emit(out),
            Err(MalformedExtensions) => out.put_u32(0),
        }
    }
}
