//! The Bundle Protocol's bytes: RFC 9171 and CCSDS 734.6.

mod bibe;
mod bundle;
mod cbor;
mod content;
mod crc;
mod custody;
mod eid;
mod extensions;
mod inspect;
mod long;
mod primary;
mod record;
mod seal;

pub use bibe::{BIBE_SIGNAL_RECORD, BPDU_RECORD, BibeSignal};
pub(crate) use bibe::{BPDU_TAIL, BpduHead, MAX_BPDU_HEAD_BYTES, read_bpdu, write_bpdu_header};
pub use bundle::block_type;
pub use bundle::{
    Bundle, DecodeError, DecodeLimits, Extension, MAX_BLOCKS, MAX_HEADER_BYTES, Malformed, decode,
};
pub use cbor::{ARRAY, BYTES, CborError, Head, Reader, TEXT, UNSIGNED, write_head};
pub use content::Content;
pub use crc::CrcKind;
pub use custody::{CodePoints, Creb, Cteb, CustodyDialect};
pub use eid::{
    Eid, MOST_NAME_BYTES, ipn, ipn_parts, is_null, is_taken, names_node, read_eid, write_eid,
};
pub(crate) use extensions::{targets, whole};
pub use inspect::{Block, Inspection, inspect};
pub use long::{Long, LongDecoder};
pub(crate) use primary::{decode_primary, decode_primary_again};
pub use record::{
    ACCEPTED, Disposition, MAX_RECORD_BYTES, REFUSED, Record, Sequence, SequenceName,
    decode_record, encode_signal, encode_status_report,
};
pub use seal::encode_primary;
pub(crate) use seal::{
    HopBlocks, is_order_block, is_replicated, is_security, order_block, primary_of_whole,
    seal_fragment, seal_payload, seal_payload_of, seal_payload_part, seal_primary, write_header,
    write_trailer,
};
