//! A reader over bytes that may end in the middle of a message.

/// Reads big-endian fields; `None` means that more bytes are needed.
pub(super) struct Cursor<'a> {
    input: &'a [u8],
    taken: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        Self { input, taken: 0 }
    }

    /// Bytes read so far.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.taken.checked_add(count)?;
        let slice = self.input.get(self.taken..end)?;
        self.taken = end;
        Some(slice)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}
