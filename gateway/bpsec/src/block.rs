//! The abstract security block (RFC 9172 §3.6).

use thiserror::Error;
use underpass_bundle::wire::{
    ARRAY, BYTES, CborError, Eid, Reader, UNSIGNED, read_eid, write_eid, write_head,
};

/// The most targets of a security block.
pub const MAX_TARGETS: usize = 16;
/// The most parameters of a security block, and the most results for one target.
pub const MAX_PARAMETERS: usize = 16;

/// Security context flag: parameters are present (RFC 9172 §3.6).
const PARAMETERS_PRESENT: u64 = 1;
/// The major type of a negative integer.
const NEGATIVE: u8 = 1;

/// BIB-HMAC-SHA2 (RFC 9173 §3.2).
pub const BIB_HMAC_SHA2: i128 = 1;
/// BCB-AES-GCM (RFC 9173 §4.2).
pub const BCB_AES_GCM: i128 = 2;

/// Why bytes are not an abstract security block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BlockError {
    /// The bytes are not well-formed, or do not have the structure of RFC 9172 §3.6.
    #[error("malformed CBOR: {0}")]
    Cbor(#[from] CborError),
    /// No target, or more than [`MAX_TARGETS`].
    #[error("a security block must have 1 to {MAX_TARGETS} targets")]
    TargetCount,
    /// A target is named twice.
    #[error("block {0} is a target twice")]
    RepeatedTarget(u64),
    /// More than [`MAX_PARAMETERS`] parameters or results.
    #[error("more than {MAX_PARAMETERS} parameters or results")]
    TooMany,
    /// A parameter or result occurs twice.
    #[error("parameter or result {0} is there twice")]
    Repeated(u64),
    /// The numbers of results and targets differ.
    #[error("there is not one set of results for each target")]
    ResultCount,
}

/// A value of a parameter or result, as the contexts of RFC 9173 define them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Unsigned(u64),
    /// Bytes.
    Bytes(Vec<u8>),
}

/// Parameters or results: number and value.
pub type Values = Vec<(u64, Value)>;

/// The part of a security block behind its security source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opaque {
    /// For a known context: parameters, and results by target.
    Read {
        /// Security context parameters.
        parameters: Values,
        /// Results, in the order of the targets.
        results: Vec<Values>,
    },
    /// For an unknown context, which alone defines them: the bytes as they came.
    Unread(Vec<u8>),
}

/// The content of a security block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecurityBlock {
    /// Numbers of the blocks that it secures.
    pub targets: Vec<u64>,
    /// Security context.
    pub context: i128,
    /// The security source, which has added the block.
    pub source: Eid,
    /// Parameters and results.
    pub rest: Opaque,
}

impl SecurityBlock {
    /// A block of a context of RFC 9173.
    pub fn new(
        targets: Vec<u64>,
        context: i128,
        source: Eid,
        parameters: Values,
        results: Vec<Values>,
    ) -> SecurityBlock {
        SecurityBlock {
            targets,
            context,
            source,
            rest: Opaque::Read {
                parameters,
                results,
            },
        }
    }

    /// Parses the content of a security block. Memory use is bounded by the content's
    /// length.
    ///
    /// # Errors
    /// When the content does not have the form of RFC 9172 §3.6, or is too large.
    pub fn parse(content: &[u8]) -> Result<SecurityBlock, BlockError> {
        let mut reader = Reader::new(content);
        let targets = read_targets(&mut reader)?;
        let context = reader.integer()?;
        let flags = reader.unsigned()?;
        let source = read_eid(&mut reader)?;
        let rest = match context {
            BIB_HMAC_SHA2 | BCB_AES_GCM => {
                let parameters = match flags & PARAMETERS_PRESENT {
                    0 => Values::new(),
                    _ => read_values(&mut reader)?,
                };
                let results = read_results(&mut reader)?;
                if results.len() != targets.len() {
                    return Err(BlockError::ResultCount);
                }
                reader.end()?;
                Opaque::Read {
                    parameters,
                    results,
                }
            }
            _ => Opaque::Unread(content[reader.position()..].to_vec()),
        };
        Ok(SecurityBlock {
            targets,
            context,
            source,
            rest,
        })
    }

    /// The content in deterministic encoding (RFC 8949 §4.2). Blocks of unknown contexts
    /// are never encoded.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(160);
        write_head(&mut out, ARRAY, self.targets.len() as u64);
        for target in &self.targets {
            write_head(&mut out, UNSIGNED, *target);
        }
        let (major, argument) = match self.context {
            negative @ ..0 => (NEGATIVE, -1 - negative),
            context => (UNSIGNED, context),
        };
        write_head(&mut out, major, u64::try_from(argument).unwrap_or(u64::MAX));
        match &self.rest {
            Opaque::Read {
                parameters,
                results,
            } => {
                let present = u64::from(!parameters.is_empty());
                write_head(&mut out, UNSIGNED, present * PARAMETERS_PRESENT);
                write_eid(&mut out, &self.source);
                if !parameters.is_empty() {
                    write_values(&mut out, parameters);
                }
                write_head(&mut out, ARRAY, results.len() as u64);
                for result in results {
                    write_values(&mut out, result);
                }
            }
            Opaque::Unread(rest) => {
                write_head(&mut out, UNSIGNED, 0);
                write_eid(&mut out, &self.source);
                out.extend(rest);
            }
        }
        out
    }

    /// The parameters; none for an unknown context.
    pub fn parameters(&self) -> &[(u64, Value)] {
        match &self.rest {
            Opaque::Read { parameters, .. } => parameters,
            Opaque::Unread(_) => &[],
        }
    }

    /// The results for a target, by its index among the targets.
    pub fn results(&self, place: usize) -> &[(u64, Value)] {
        match &self.rest {
            Opaque::Read { results, .. } => results.get(place).map_or(&[], |result| result),
            Opaque::Unread(_) => &[],
        }
    }
}

/// A parameter's number, if the parameter is present.
///
/// # Errors
/// When it is not a number.
pub(crate) fn number(values: &[(u64, Value)], id: u64) -> Result<Option<u64>, crate::Failure> {
    match find(values, id) {
        None => Ok(None),
        Some(Value::Unsigned(number)) => Ok(Some(*number)),
        Some(Value::Bytes(_)) => Err(crate::Failure::Malformed),
    }
}

/// The bytes of a parameter or result, if it is present.
///
/// # Errors
/// When it is a number.
pub(crate) fn bytes(values: &[(u64, Value)], id: u64) -> Result<Option<&[u8]>, crate::Failure> {
    match find(values, id) {
        None => Ok(None),
        Some(Value::Bytes(bytes)) => Ok(Some(bytes)),
        Some(Value::Unsigned(_)) => Err(crate::Failure::Malformed),
    }
}

fn find(values: &[(u64, Value)], id: u64) -> Option<&Value> {
    let found = values.iter().find(|(number, _)| *number == id);
    found.map(|(_, value)| value)
}

fn read_targets(reader: &mut Reader<'_>) -> Result<Vec<u64>, BlockError> {
    let length = reader.array()?;
    let mut targets = Vec::new();
    while reader.more(length, targets.len() as u64)? {
        if targets.len() == MAX_TARGETS {
            return Err(BlockError::TargetCount);
        }
        let target = reader.unsigned()?;
        if targets.contains(&target) {
            return Err(BlockError::RepeatedTarget(target));
        }
        targets.push(target);
    }
    match targets.is_empty() {
        true => Err(BlockError::TargetCount),
        false => Ok(targets),
    }
}

fn read_results(reader: &mut Reader<'_>) -> Result<Vec<Values>, BlockError> {
    let length = reader.array()?;
    let mut results = Vec::new();
    while reader.more(length, results.len() as u64)? {
        if results.len() == MAX_TARGETS {
            return Err(BlockError::ResultCount);
        }
        results.push(read_values(reader)?);
    }
    Ok(results)
}

fn read_values(reader: &mut Reader<'_>) -> Result<Values, BlockError> {
    let length = reader.array()?;
    let mut values = Values::new();
    while reader.more(length, values.len() as u64)? {
        if values.len() == MAX_PARAMETERS {
            return Err(BlockError::TooMany);
        }
        let pair = reader.array()?;
        let id = reader.unsigned()?;
        if values.iter().any(|(other, _)| *other == id) {
            return Err(BlockError::Repeated(id));
        }
        let value = match reader.peek_major()? {
            BYTES => Value::Bytes(reader.byte_string()?.to_vec()),
            _ => Value::Unsigned(reader.unsigned()?),
        };
        reader.array_end(pair, 2)?;
        values.push((id, value));
    }
    Ok(values)
}

fn write_values(out: &mut Vec<u8>, values: &[(u64, Value)]) {
    write_head(out, ARRAY, values.len() as u64);
    for (id, value) in values {
        write_head(out, ARRAY, 2);
        write_head(out, UNSIGNED, *id);
        match value {
            Value::Unsigned(number) => write_head(out, UNSIGNED, *number),
            Value::Bytes(bytes) => {
                write_head(out, BYTES, bytes.len() as u64);
                out.extend(bytes);
            }
        }
    }
}
