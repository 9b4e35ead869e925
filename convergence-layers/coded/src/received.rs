//! A block at the receiver.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::Violation;
use crate::code::decode;

/// What a symbol costs beside its bytes.
const SYMBOL_COST: usize = 64;

/// A block that is not complete.
#[derive(Debug, Default)]
pub(crate) struct Block {
    /// The number of its own symbols, once that is known.
    symbols: Option<u16>,
    /// Its own symbols that have come; empty once they were freed.
    own: BTreeMap<u16, Box<[u8]>>,
    repair: BTreeMap<u16, Box<[u8]>>,
    /// Bytes of its repair symbols.
    code_bytes: Option<usize>,
    longest_own: usize,
    /// Whether its symbols were freed, so that repair is useless.
    let_go: bool,
    /// Memory that its symbols take, bytes.
    pub(crate) kept_bytes: usize,
    /// The SENT to be answered, and when.
    pub(crate) answer: Option<(Instant, u64)>,
    /// Whether symbols of it were asked for.
    pub(crate) asked: bool,
    pub(crate) age: u8,
}

impl Block {
    /// Sets the number of its own symbols; an error if that is impossible.
    pub(crate) fn set_symbols(&mut self, symbols: u16) -> Result<(), Violation> {
        let highest = self.own.keys().next_back();
        let beyond = highest.is_some_and(|highest| *highest >= symbols);
        if beyond || self.symbols.is_some_and(|known| known != symbols) {
            return Err(Violation::Contradiction);
        }
        self.symbols = Some(symbols);
        Ok(())
    }

    /// Whether the sender has reported that all of its own symbols have left.
    pub(crate) fn has_left(&self) -> bool {
        self.symbols.is_some()
    }

    /// One of its own symbols has come. Returns whether it is the first with its number.
    pub(crate) fn add_own(&mut self, number: u16, body: &[u8]) -> Result<bool, Violation> {
        if self.symbols.is_some_and(|symbols| number >= symbols)
            || self.code_bytes.is_some_and(|bytes| body.len() > bytes)
        {
            return Err(Violation::Contradiction);
        }
        if self.own.contains_key(&number) {
            return Ok(false);
        }
        self.age = 0;
        self.longest_own = self.longest_own.max(body.len());
        let kept = if self.let_go { &[][..] } else { body };
        self.kept_bytes += kept.len() + SYMBOL_COST;
        self.own.insert(number, kept.into());
        Ok(true)
    }

    /// A repair symbol has come.
    pub(crate) fn add_repair(
        &mut self,
        number: u16,
        symbols: u16,
        code: &[u8],
    ) -> Result<(), Violation> {
        self.set_symbols(symbols)?;
        if self.code_bytes.is_some_and(|bytes| bytes != code.len()) || self.longest_own > code.len()
        {
            return Err(Violation::Contradiction);
        }
        self.code_bytes = Some(code.len());
        self.age = 0;
        if self.let_go || self.repair.contains_key(&number) {
            return Ok(());
        }
        self.kept_bytes += code.len() + SYMBOL_COST;
        self.repair.insert(number, code.into());
        Ok(())
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.symbols
            .is_some_and(|symbols| self.own.len() == usize::from(symbols))
    }

    /// Whether repair can give what is missing.
    pub(crate) fn is_decodable(&self) -> bool {
        let have = self.own.len() + self.repair.len();
        !self.is_complete()
            && !self.let_go
            && self
                .symbols
                .is_some_and(|symbols| have >= usize::from(symbols))
    }

    /// The bodies that are missing, padded.
    pub(crate) fn decode(&self) -> Result<Vec<(u16, Vec<u8>)>, Violation> {
        let (Some(symbols), Some(bytes)) = (self.symbols, self.code_bytes) else {
            return Ok(Vec::new());
        };
        let own = self.own.iter().map(|(number, body)| (*number, &body[..]));
        let repair = self.repair.iter();
        let missing = usize::from(symbols) - self.own.len();
        let repair = repair.take(missing);
        let repair = repair.map(|(number, code)| (*number, &code[..]));
        decode(symbols, bytes, own, repair).ok_or(Violation::Contradiction)
    }

    /// The missing symbols, and how many of them suffice.
    pub(crate) fn wants(&self) -> Option<(u16, u16, Vec<u16>)> {
        let symbols = self.symbols?;
        let missing: Vec<u16> = (0..symbols)
            .filter(|number| !self.own.contains_key(number))
            .collect();
        let count = missing.len().saturating_sub(self.repair.len());
        // Unusable repair does not count.
        let count = if count == 0 { missing.len() } else { count };
        let count = u16::try_from(count).ok()?;
        (count > 0).then_some((symbols, count, missing))
    }

    /// Frees the memory of the symbols; the bundles have their bytes.
    pub(crate) fn let_go(&mut self) {
        self.let_go = true;
        self.repair.clear();
        for body in self.own.values_mut() {
            *body = Box::default();
        }
        self.kept_bytes = self.own.len() * SYMBOL_COST;
    }

    pub(crate) fn has_let_go(&self) -> bool {
        self.let_go
    }
}
