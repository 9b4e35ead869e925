//! The bytes of a simulated file. Zeros at its end are only counted: a log sets room aside that it
//! never writes, 16 MiB with segments of 64 MiB, and a simulation has many disks.

use super::SECTOR;

static ZEROS: [u8; SECTOR] = [0; SECTOR];

/// Bytes, and the zeros behind them.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    /// Ends with a sector or with the content, so that each sector lies in one piece.
    bytes: Vec<u8>,
    /// With the zeros.
    length: usize,
}

impl Content {
    pub fn len(&self) -> usize {
        self.length
    }

    /// The bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        self.bytes.len()
    }

    /// A sector, or what there is of it.
    pub fn sector(&self, sector: usize) -> &[u8] {
        let start = (sector * SECTOR).min(self.length);
        let end = (start + SECTOR).min(self.length);
        match start < self.bytes.len() {
            true => &self.bytes[start..end],
            false => &ZEROS[..end - start],
        }
    }

    /// The bytes from `start` to `end`, which must be within it.
    pub fn read(&self, start: usize, end: usize) -> Vec<u8> {
        let there = self.bytes.len();
        let mut read = self.bytes[start.min(there)..end.min(there)].to_vec();
        read.resize(end - start, 0);
        read
    }

    /// The first place that has these bytes.
    pub fn find(&self, bytes: &[u8]) -> Option<usize> {
        // Zeros further back are no other place than the first of them.
        let end = self.length.min(self.bytes.len() + bytes.len());
        let there = self.read(0, end);
        let mut windows = there.windows(bytes.len());
        windows.position(|window| window == bytes)
    }

    /// Overwrites bytes, with zeros before them if it is shorter.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        if at >= self.bytes.len() && is_zero(bytes) {
            return self.grow(end);
        }
        self.length = self.length.max(end);
        if self.bytes.len() < at {
            self.bytes.resize(at, 0);
        }
        let over = bytes.len().min(self.bytes.len() - at);
        self.bytes[at..at + over].copy_from_slice(&bytes[..over]);
        self.bytes.extend_from_slice(&bytes[over..]);
        self.fill_sector();
    }

    /// Flips one bit of a byte, which must be within it.
    pub fn flip(&mut self, at: usize, bit: u8) {
        let byte = self.sector(at / SECTOR)[at % SECTOR];
        self.write(at, &[byte ^ bit]);
    }

    /// Appends zeros up to this length.
    pub fn grow(&mut self, length: usize) {
        self.length = self.length.max(length);
        self.fill_sector();
    }

    pub fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
        self.length = self.length.min(length);
    }

    /// Becomes as another content, to which it is equal before `from`.
    pub fn follow(&mut self, other: &Content, from: usize) {
        self.truncate(from);
        if let Some(rest) = other.bytes.get(from..) {
            self.write(from, rest);
        }
        self.grow(other.length);
    }

    fn fill_sector(&mut self) {
        let whole = self.bytes.len().next_multiple_of(SECTOR);
        self.bytes.resize(whole.min(self.length), 0);
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    let mut pieces = bytes.chunks(SECTOR);
    pieces.all(|piece| *piece == ZEROS[..piece.len()])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Deed {
        Write(usize, Vec<u8>),
        Grow(usize),
        Truncate(usize),
        Flip(usize, u8),
        Follow(usize),
    }

    const MOST: usize = 4 * SECTOR;

    fn deed() -> impl Strategy<Value = Deed> {
        let zeros = (0..MOST).prop_map(|length| vec![0u8; length]);
        let others = proptest::collection::vec(0u8..3, 0..MOST);
        let bytes = prop_oneof![zeros, others];
        prop_oneof![
            (0..MOST, bytes).prop_map(|(at, bytes)| Deed::Write(at, bytes)),
            (0..MOST).prop_map(Deed::Grow),
            (0..MOST).prop_map(Deed::Truncate),
            (0..MOST, 0u8..8).prop_map(|(at, bit)| Deed::Flip(at, 1 << bit)),
            (0..MOST).prop_map(Deed::Follow),
        ]
    }

    fn is_like(content: &Content, model: &[u8]) {
        assert_eq!(content.len(), model.len());
        assert_eq!(content.read(0, content.len()), model);
        for sector in 0..=model.len() / SECTOR {
            let start = (sector * SECTOR).min(model.len());
            let end = (start + SECTOR).min(model.len());
            assert_eq!(content.sector(sector), &model[start..end]);
        }
        for bytes in [&[1, 0][..], &[0, 2], &[0, 0], &[2, 1, 0]] {
            let place = model
                .windows(bytes.len())
                .position(|window| window == bytes);
            assert_eq!(content.find(bytes), place);
        }
    }

    proptest! {
        #[test]
        fn zeros_at_the_end_are_like_any_others(deeds in proptest::collection::vec(deed(), 0..12)) {
            let (mut content, mut model) = (Content::default(), Vec::<u8>::new());
            let (mut before, mut model_before) = (content.clone(), model.clone());
            for deed in deeds {
                match deed {
                    Deed::Write(at, bytes) => {
                        let end = at + bytes.len();
                        model.resize(model.len().max(end), 0);
                        model[at..end].copy_from_slice(&bytes);
                        content.write(at, &bytes);
                    }
                    Deed::Grow(length) => {
                        model.resize(model.len().max(length), 0);
                        content.grow(length);
                    }
                    Deed::Truncate(length) => {
                        model.truncate(length);
                        content.truncate(length);
                    }
                    Deed::Flip(at, bit) if at < model.len() => {
                        model[at] ^= bit;
                        content.flip(at, bit);
                    }
                    Deed::Flip(..) => {}
                    Deed::Follow(from) => {
                        let same = before
                            .read(0, before.len())
                            .iter()
                            .zip(&model)
                            .take_while(|(one, other)| one == other)
                            .count();
                        before.follow(&content, from.min(same));
                        model_before = model.clone();
                    }
                }
                is_like(&content, &model);
                is_like(&before, &model_before);
            }
        }
    }

    #[test]
    fn zeros_at_the_end_take_no_memory() {
        let mut content = Content::default();
        content.write(0, &[7; 100]);
        content.grow(1 << 40);
        content.write(1 << 30, &[0; SECTOR]);
        assert_eq!(content.memory(), SECTOR);
        assert_eq!((content.len(), content.find(&[0])), (1 << 40, Some(100)));
        let mut other = Content::default();
        other.follow(&content, 0);
        assert_eq!((other.memory(), other.len()), (SECTOR, 1 << 40));
    }
}
