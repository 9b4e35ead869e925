//! Session and transfer extension items (RFC 9174, 4.8 and 5.2.5).

use bytes::{BufMut, Bytes};
use thiserror::Error;

use super::cursor::Cursor;

/// Item flag: the receiver must understand the item.
pub const CRITICAL: u8 = 0x01;

/// One extension item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtensionItem {
    /// Item flags; only [`CRITICAL`] is defined.
    pub flags: u8,
    /// Item type, in the registry of sessions or that of transfers.
    pub kind: u16,
    /// The value, whose form the type defines.
    pub value: Bytes,
}

impl ExtensionItem {
    /// Whether a receiver that does not know the item must give up.
    pub fn is_critical(&self) -> bool {
        self.flags & CRITICAL != 0
    }
}

/// The items do not fill their list exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an extension item does not fit into its list")]
pub struct MalformedExtensions;

/// A list of extension items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtensionList(pub Vec<ExtensionItem>);

impl ExtensionList {
    /// Parses the items of a whole list, without its length field.
    pub fn parse(bytes: &[u8]) -> Result<Self, MalformedExtensions> {
        let mut cursor = Cursor::new(bytes);
        let mut items = Vec::new();
        while cursor.taken() < bytes.len() {
            items.push(parse_item(&mut cursor).ok_or(MalformedExtensions)?);
        }
        Ok(Self(items))
    }

    /// Appends the list with its length field to `out`.
    pub fn emit(&self, out: &mut impl BufMut) {
        out.put_u32(self.encoded_len() as u32);
        for item in &self.0 {
            out.put_u8(item.flags);
            out.put_u16(item.kind);
            out.put_u16(item.value.len() as u16);
            out.put_slice(&item.value);
        }
    }

    /// Bytes of all items, without the length field.
    pub fn encoded_len(&self) -> usize {
        self.0.iter().map(|item| 5 + item.value.len()).sum()
    }
}

fn parse_item(cursor: &mut Cursor<'_>) -> Option<ExtensionItem> {
    let flags = cursor.u8()?;
    let kind = cursor.u16()?;
    let length = cursor.u16()?;
    let value = Bytes::copy_from_slice(cursor.bytes(usize::from(length))?);
    Some(ExtensionItem { flags, kind, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_reads_back_as_it_was_written() {
        let list = ExtensionList(vec![
            ExtensionItem {
                flags: CRITICAL,
                kind: 1,
                value: Bytes::from_static(&[0, 0, 0, 0, 0, 0, 0xc3, 0x60]),
            },
            ExtensionItem {
                flags: 0,
                kind: 0x8001,
                value: Bytes::new(),
            },
        ]);
        let mut bytes = Vec::new();
        list.emit(&mut bytes);
        assert_eq!(bytes[..4], 18u32.to_be_bytes());
        assert_eq!(ExtensionList::parse(&bytes[4..]), Ok(list));
    }

    #[test]
    fn an_item_longer_than_its_list_is_malformed() {
        assert_eq!(
            ExtensionList::parse(&[0, 0, 1, 0, 2, 9]),
            Err(MalformedExtensions)
        );
        assert_eq!(ExtensionList::parse(&[0, 0]), Err(MalformedExtensions));
    }
}
