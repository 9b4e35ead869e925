//! The head of XFER_SEGMENT (RFC 9174, 5.2.2); its data follows.

use bytes::{BufMut, Bytes};

use super::{ExtensionItem, ExtensionList, MalformedExtensions, code, segment_flag};

/// Type of the Transfer Length extension (RFC 9174, 5.2.5.1).
pub const TRANSFER_LENGTH: u16 = 0x0001;

/// What stands before a segment's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// START and END flags.
    pub flags: u8,
    /// The transfer.
    pub transfer_id: u64,
    /// Transfer extensions, only where START is set.
    pub extensions: Result<ExtensionList, MalformedExtensions>,
    /// Bytes of data that follow.
    pub data_bytes: u64,
}

impl SegmentHeader {
    /// Whether the transfer begins here.
    pub fn is_start(&self) -> bool {
        self.flags & segment_flag::START != 0
    }

    /// Whether the transfer ends here.
    pub fn is_end(&self) -> bool {
        self.flags & segment_flag::END != 0
    }
}

/// Appends a segment's head to `out`. `transfer_length` is announced in a
/// first segment that is not also the last, as RFC 9174, 5.2.5.1 asks;
/// `private` stands beside it in a first segment.
pub fn emit_segment_header(
    flags: u8,
    transfer_id: u64,
    transfer_length: u64,
    data_bytes: u64,
    private: Option<ExtensionItem>,
    out: &mut impl BufMut,
) {
    out.put_u8(code::XFER_SEGMENT);
    out.put_u8(flags);
    out.put_u64(transfer_id);
    if flags & segment_flag::START != 0 {
        let mut extensions = ExtensionList::default();
        if flags & segment_flag::END == 0 {
            extensions.0.push(ExtensionItem {
                flags: 0,
                kind: TRANSFER_LENGTH,
                value: Bytes::copy_from_slice(&transfer_length.to_be_bytes()),
            });
        }
        extensions.0.extend(private);
        extensions.emit(out);
    }
    out.put_u64(data_bytes);
}
