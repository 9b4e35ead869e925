//! The private session extension that names class, incarnation and standby
//! (docs/tcpcl-extensions.md).

use bytes::{BufMut, Bytes, BytesMut};
use underpass_cla::Class;

use crate::wire::{ExtensionItem, ExtensionList};

/// Type of the extension, in the range for private use (RFC 9174, 9.3).
pub const LABEL_EXTENSION: u16 = 0x8755;

const FORMAT: u8 = 1;
const STANDBY: u8 = 0x01;
const RESUMES: u8 = 0x02;
const VALUE_BYTES: usize = 11;

/// What a session is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The class it carries.
    pub class: Class,
    /// Whether it is set up as a standby.
    pub standby: bool,
    /// The sender's incarnation: another value means another process, which
    /// remembers nothing of earlier sessions.
    pub incarnation: u64,
    /// Whether the sender stores the received parts of broken transfers.
    pub resumes: bool,
}

impl Label {
    /// The extension item, not critical: a peer that does not know it goes on
    /// without.
    pub fn to_item(self) -> ExtensionItem {
        let mut value = BytesMut::with_capacity(VALUE_BYTES);
        value.put_u8(FORMAT);
        value.put_u8(self.class.0);
        let standby = if self.standby { STANDBY } else { 0 };
        let resumes = if self.resumes { RESUMES } else { 0 };
        value.put_u8(standby | resumes);
        value.put_u64(self.incarnation);
        ExtensionItem {
            flags: 0,
            kind: LABEL_EXTENSION,
            value: value.freeze(),
        }
    }

    /// The label in `extensions`. One of an unknown format is as good as none;
    /// bytes behind the known ones are left to later revisions.
    pub fn find(extensions: &ExtensionList) -> Option<Self> {
        extensions
            .0
            .iter()
            .find(|item| item.kind == LABEL_EXTENSION)
            .and_then(|item| Self::from_value(&item.value))
    }

    fn from_value(value: &Bytes) -> Option<Self> {
        let (fixed, _) = value.split_first_chunk::<VALUE_BYTES>()?;
        let [format, class, flags, incarnation @ ..] = *fixed;
        (format == FORMAT).then(|| Self {
            class: Class(class),
            standby: flags & STANDBY != 0,
            incarnation: u64::from_be_bytes(incarnation),
            resumes: flags & RESUMES != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABEL: Label = Label {
        class: Class(3),
        standby: true,
        incarnation: 0x0102_0304_0506_0708,
        resumes: true,
    };

    #[test]
    fn the_value_is_as_documented() {
        assert_eq!(LABEL.to_item().value[..], [1, 3, 3, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(!LABEL.to_item().is_critical());
        assert_eq!(
            Label::find(&ExtensionList(vec![LABEL.to_item()])),
            Some(LABEL)
        );
    }

    #[test]
    fn later_formats_count_as_none_and_longer_values_are_read() {
        let mut item = LABEL.to_item();
        item.value = Bytes::from([&item.value[..], &[9, 9]].concat());
        assert_eq!(Label::find(&ExtensionList(vec![item.clone()])), Some(LABEL));
        item.value = Bytes::from_static(&[2, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Label::find(&ExtensionList(vec![item.clone()])), None);
        item.value = Bytes::from_static(&[1, 3]);
        assert_eq!(Label::find(&ExtensionList(vec![item])), None);
    }
}
