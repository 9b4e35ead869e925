//! The private transfer extension by which a broken transfer continues from its middle on another
//! session (docs/tcpcl-extensions.md).

use bytes::{BufMut, Bytes, BytesMut};

use crate::wire::{CRITICAL, ExtensionItem};

/// Type of the extension, in the range for private use (RFC 9174, 9.4).
pub const RESUMPTION_EXTENSION: u16 = 0x8756;

const FORMAT: u8 = 1;
const VALUE_BYTES: usize = 17;

/// Names the bytes of a transfer, and the offset at which it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumption {
    /// The sender's name for the encoded bundle, unique in its incarnation.
    pub key: u64,
    /// Bytes of it that are left out, since the receiver has them.
    pub offset: u64,
}

impl Resumption {
    /// The extension item. It is critical only if bytes are left out: a peer that does not know it
    /// would take the rest for the whole.
    pub fn to_item(self) -> ExtensionItem {
        let mut value = BytesMut::with_capacity(VALUE_BYTES);
        value.put_u8(FORMAT);
        value.put_u64(self.key);
        value.put_u64(self.offset);
        ExtensionItem {
            flags: if self.offset > 0 { CRITICAL } else { 0 },
            kind: RESUMPTION_EXTENSION,
            value: value.freeze(),
        }
    }

    /// Reads the value of an item; `None` if its format is unknown. Further bytes after the known
    /// ones are reserved for later revisions.
    pub fn from_value(value: &Bytes) -> Option<Self> {
        let (fixed, _) = value.split_first_chunk::<VALUE_BYTES>()?;
        let (format, numbers) = fixed.split_first()?;
        let (key, offset) = numbers.split_first_chunk::<8>()?;
        (*format == FORMAT).then_some(Self {
            key: u64::from_be_bytes(*key),
            offset: u64::from_be_bytes(offset.try_into().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_item_is_as_documented() {
        let resumption = Resumption {
            key: 0x0102_0304_0506_0708,
            offset: 0x1_0000,
        };
        let item = resumption.to_item();
        assert_eq!(
            item.value[..],
            [1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 1, 0, 0]
        );
        assert!(item.is_critical());
        assert_eq!(Resumption::from_value(&item.value), Some(resumption));
        let named = Resumption {
            offset: 0,
            ..resumption
        };
        assert!(!named.to_item().is_critical());
    }

    #[test]
    fn other_formats_and_short_values_are_unknown() {
        let mut value = Resumption { key: 1, offset: 2 }.to_item().value.to_vec();
        assert_eq!(Resumption::from_value(&value[..16].to_vec().into()), None);
        value[0] = 2;
        assert_eq!(Resumption::from_value(&value.into()), None);
    }
}
