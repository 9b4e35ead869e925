//! The private session extension that names class, incarnation and standby
//! (docs/tcpcl-extensions.md).

use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use underpass_cla::Class;

use crate::wire::{ExtensionItem, ExtensionList};

/// Type of the extension, in the range for private use (RFC 9174, 9.3).
pub const LABEL_EXTENSION: u16 = 0x8755;

const FORMAT: u8 = 1;
const STANDBY: u8 = 0x01;
const RESUMES: u8 = 0x02;
const VALUE_BYTES: usize = 11;
const ALONE_BYTES: usize = 8;

/// Longer durations are not used: the error of the clocks grows with them.
const MOST_ALONE: Duration = Duration::from_secs(60);
/// Two clocks differ by less than this part (1/n) of what they measure, even while both are being
/// corrected: chrony slews by up to a twelfth.
const CLOCKS_APART: u32 = 4;

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
    /// For how long no process of the run with the next lower incarnation has been
    /// left, ms, if the sender knows.
    pub alone_ms: Option<u64>,
}

impl Label {
    /// The extension item, not critical: a peer that does not know it ignores it.
    pub fn to_item(self) -> ExtensionItem {
        let mut value = BytesMut::with_capacity(VALUE_BYTES + ALONE_BYTES);
        value.put_u8(FORMAT);
        value.put_u8(self.class.0);
        let standby = if self.standby { STANDBY } else { 0 };
        let resumes = if self.resumes { RESUMES } else { 0 };
        value.put_u8(standby | resumes);
        value.put_u64(self.incarnation);
        if let Some(alone_ms) = self.alone_ms {
            value.put_u64(alone_ms);
        }
        ExtensionItem {
            flags: 0,
            kind: LABEL_EXTENSION,
            value: value.freeze(),
        }
    }

    /// The label in `extensions`. One of an unknown format counts as none; further bytes after the
    /// known ones are reserved for later revisions.
    pub fn find(extensions: &ExtensionList) -> Option<Self> {
        extensions
            .0
            .iter()
            .find(|item| item.kind == LABEL_EXTENSION)
            .and_then(|item| Self::from_value(&item.value))
    }

    fn from_value(value: &Bytes) -> Option<Self> {
        let (fixed, rest) = value.split_first_chunk::<VALUE_BYTES>()?;
        let [format, class, flags, incarnation @ ..] = *fixed;
        (format == FORMAT).then(|| Self {
            class: Class(class),
            standby: flags & STANDBY != 0,
            incarnation: u64::from_be_bytes(incarnation),
            resumes: flags & RESUMES != 0,
            alone_ms: rest
                .first_chunk::<ALONE_BYTES>()
                .map(|bytes| u64::from_be_bytes(*bytes)),
        })
    }

    /// A time at which no process of the previous run (the next lower incarnation) was left, from a
    /// label that has arrived by `now`. The label was sent earlier, so the true time is no later.
    pub fn former_over_by(self, now: Instant) -> Option<Instant> {
        let alone = Duration::from_millis(self.alone_ms?).min(MOST_ALONE);
        now.checked_sub(alone - alone / CLOCKS_APART)
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
        alone_ms: None,
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
    fn for_how_long_the_sender_is_alone_follows() {
        let label = Label {
            alone_ms: Some(0x0a0b),
            ..LABEL
        };
        let mut item = label.to_item();
        assert_eq!(item.value[11..], [0, 0, 0, 0, 0, 0, 10, 11]);
        let find = |item: &ExtensionItem| Label::find(&ExtensionList(vec![item.clone()]));
        assert_eq!(find(&item), Some(label));
        item.value = Bytes::from([&item.value[..], &[9]].concat());
        assert_eq!(find(&item), Some(label));
        item.value.truncate(18);
        assert_eq!(find(&item), Some(LABEL), "half a number is none");
    }

    #[test]
    fn no_run_is_reckoned_to_have_been_over_earlier_than_it_was() {
        let now = Instant::now() + 2 * MOST_ALONE;
        let former_over_by = |alone_ms| Label { alone_ms, ..LABEL }.former_over_by(now);
        assert_eq!(former_over_by(None), None);
        assert_eq!(former_over_by(Some(0)), Some(now));
        let surely = Duration::from_millis(1500);
        assert_eq!(former_over_by(Some(2000)), Some(now - surely));
        let most = Some(now - Duration::from_secs(45));
        for much in [60_000, 60_001, u64::MAX] {
            assert_eq!(former_over_by(Some(much)), most);
        }
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
