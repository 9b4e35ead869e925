//! Segments, as RFC 5326, 3 has them on the wire.

use thiserror::Error;

use crate::sdnv;

/// The most claims that are read of one report: a datagram of 64 KiB could hold far more than any
/// reasonable sender puts there.
pub const MOST_CLAIMS: usize = 1024;

/// Why bytes are no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// A length or number exceeds the available bytes, or 64 bits.
    #[error("the segment is cut short")]
    Short,
    /// Only version 0 is known.
    #[error("the version is not 0")]
    Version,
    /// A reserved segment type.
    #[error("segment type {0} is not defined")]
    Type(u8),
    /// A checkpoint or report without a serial number, or a report of nothing.
    #[error("a field has a value that it must not have")]
    Value,
    /// The claims of a report are out of order, beyond its bounds or too many.
    #[error("the claims do not fit the report")]
    Claims,
}

/// Who sends the block, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId {
    /// The engine that sends the block.
    pub originator: u64,
    /// The session's number at that engine.
    pub number: u64,
}

/// Why a session is cancelled (RFC 5326, 3.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The client cancelled it.
    Client,
    /// There is no such client service.
    Unreachable,
    /// A segment was sent again too often without an answer.
    Retransmissions,
    /// Red data above green data.
    Miscolored,
    /// The engine has no room, or the block is impossible.
    System,
    /// Too many rounds of retransmission.
    Cycles,
    /// A code that is reserved.
    Other(u8),
}

impl Reason {
    fn code(self) -> u8 {
        match self {
            Reason::Client => 0,
            Reason::Unreachable => 1,
            Reason::Retransmissions => 2,
            Reason::Miscolored => 3,
            Reason::System => 4,
            Reason::Cycles => 5,
            Reason::Other(code) => code,
        }
    }

    fn from_code(code: u8) -> Reason {
        match code {
            0 => Reason::Client,
            1 => Reason::Unreachable,
            2 => Reason::Retransmissions,
            3 => Reason::Miscolored,
            4 => Reason::System,
            5 => Reason::Cycles,
            code => Reason::Other(code),
        }
    }
}

/// A checkpoint's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its serial number, not 0.
    pub serial: u64,
    /// The report that it answers; 0 if none.
    pub report: u64,
}

/// A data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// The client service; 1 is the Bundle Protocol.
    pub service: u64,
    /// Its place in the block, bytes.
    pub offset: u64,
    /// Its part of the block.
    pub bytes: &'a [u8],
    /// Red data is retransmitted until it has arrived, green data is not.
    pub red: bool,
    /// What asks for a report, in red data only.
    pub checkpoint: Option<Checkpoint>,
    /// The red part ends here.
    pub ends_red: bool,
    /// The block ends here.
    pub ends_block: bool,
}

impl Data<'_> {
    fn code(&self) -> u8 {
        match (self.red, self.checkpoint.is_some()) {
            (true, false) => 0,
            (true, true) if self.ends_red && self.ends_block => 3,
            (true, true) if self.ends_red => 2,
            (true, true) => 1,
            (false, _) if self.ends_block => 7,
            (false, _) => 4,
        }
    }
}

/// A report: which bytes between its bounds have arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its serial number, not 0.
    pub serial: u64,
    /// The checkpoint that asked for it; 0 if none did.
    pub checkpoint: u64,
    /// It reports on the block from here, bytes,
    pub lower: u64,
    /// and up to here.
    pub upper: u64,
    /// First byte in the block, and first byte that is not claimed any more;
    /// ascending, without overlaps.
    pub claims: Vec<(u64, u64)>,
}

/// What a segment says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A part of the block.
    Data(Data<'a>),
    /// What is there of the red part.
    Report(Report),
    /// The report of this serial number has come.
    ReportAck(u64),
    /// The sender cancels the session.
    CancelBySender(Reason),
    /// The receiver knows.
    CancelAckToSender,
    /// The receiver cancels the session.
    CancelByReceiver(Reason),
    /// The sender knows.
    CancelAckToReceiver,
}

/// A segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Its session.
    pub session: SessionId,
    /// What it says.
    pub body: Body<'a>,
}

impl<'a> Segment<'a> {
    /// Takes a segment off the front: datagrams may hold several. Extensions (RFC 5327's among
    /// them) are skipped.
    ///
    /// # Errors
    /// If the bytes are no segment; the rest of the datagram is then useless.
    pub fn take(input: &mut &'a [u8]) -> Result<Segment<'a>, Malformed> {
        let control = byte(input)?;
        if control >> 4 != 0 {
            return Err(Malformed::Version);
        }
        let session = SessionId {
            originator: number(input)?,
            number: number(input)?,
        };
        let extensions = byte(input)?;
        skip_extensions(input, extensions >> 4)?;
        let body = match control & 0x0f {
            code @ (0..=4 | 7) => Body::Data(take_data(input, code)?),
            8 => Body::Report(take_report(input)?),
            9 => Body::ReportAck(number(input)?),
            12 => Body::CancelBySender(Reason::from_code(byte(input)?)),
            13 => Body::CancelAckToSender,
            14 => Body::CancelByReceiver(Reason::from_code(byte(input)?)),
            15 => Body::CancelAckToReceiver,
            code => return Err(Malformed::Type(code)),
        };
        skip_extensions(input, extensions & 0x0f)?;
        Ok(Segment { session, body })
    }

    /// Appends the segment, without extensions.
    pub fn put(&self, out: &mut Vec<u8>) {
        match &self.body {
            Body::Data(data) => {
                put_data_head(self.session, data, data.bytes.len(), out);
                out.extend_from_slice(data.bytes);
            }
            Body::Report(report) => {
                put_head(8, self.session, out);
                put_report(report, out);
            }
            Body::ReportAck(serial) => {
                put_head(9, self.session, out);
                sdnv::put(*serial, out);
            }
            Body::CancelBySender(reason) => {
                put_head(12, self.session, out);
                out.push(reason.code());
            }
            Body::CancelAckToSender => put_head(13, self.session, out),
            Body::CancelByReceiver(reason) => {
                put_head(14, self.session, out);
                out.push(reason.code());
            }
            Body::CancelAckToReceiver => put_head(15, self.session, out),
        }
    }
}

/// Appends all of a data segment but its `length` bytes of data, which follow.
pub(crate) fn put_data_head(session: SessionId, data: &Data<'_>, length: usize, out: &mut Vec<u8>) {
    put_head(data.code(), session, out);
    for value in [data.service, data.offset, length as u64] {
        sdnv::put(value, out);
    }
    if let Some(checkpoint) = data.checkpoint {
        sdnv::put(checkpoint.serial, out);
        sdnv::put(checkpoint.report, out);
    }
}

fn put_head(code: u8, session: SessionId, out: &mut Vec<u8>) {
    out.push(code);
    sdnv::put(session.originator, out);
    sdnv::put(session.number, out);
    out.push(0);
}

fn put_report(report: &Report, out: &mut Vec<u8>) {
    let count = report.claims.len() as u64;
    for value in [
        report.serial,
        report.checkpoint,
        report.upper,
        report.lower,
        count,
    ] {
        sdnv::put(value, out);
    }
    for (start, end) in &report.claims {
        sdnv::put(start - report.lower, out);
        sdnv::put(end - start, out);
    }
}

fn byte(input: &mut &[u8]) -> Result<u8, Malformed> {
    let (first, rest) = input.split_first().ok_or(Malformed::Short)?;
    *input = rest;
    Ok(*first)
}

fn number(input: &mut &[u8]) -> Result<u64, Malformed> {
    sdnv::take(input).ok_or(Malformed::Short)
}

fn bytes<'a>(input: &mut &'a [u8], length: u64) -> Result<&'a [u8], Malformed> {
    let length = usize::try_from(length).map_err(|_| Malformed::Short)?;
    let (taken, rest) = input.split_at_checked(length).ok_or(Malformed::Short)?;
    *input = rest;
    Ok(taken)
}

fn skip_extensions(input: &mut &[u8], count: u8) -> Result<(), Malformed> {
    for _ in 0..count {
        byte(input)?;
        let length = number(input)?;
        bytes(input, length)?;
    }
    Ok(())
}

fn take_data<'a>(input: &mut &'a [u8], code: u8) -> Result<Data<'a>, Malformed> {
    let (service, offset, length) = (number(input)?, number(input)?, number(input)?);
    let mut checkpoint = None;
    if (1..=3).contains(&code) {
        let (serial, report) = (number(input)?, number(input)?);
        if serial == 0 {
            return Err(Malformed::Value);
        }
        checkpoint = Some(Checkpoint { serial, report });
    }
    let bytes = bytes(input, length)?;
    if offset.checked_add(length).is_none() {
        return Err(Malformed::Value);
    }
    Ok(Data {
        service,
        offset,
        bytes,
        red: code <= 3,
        checkpoint,
        ends_red: code == 2 || code == 3,
        ends_block: code == 3 || code == 7,
    })
}

fn take_report(input: &mut &[u8]) -> Result<Report, Malformed> {
    let (serial, checkpoint) = (number(input)?, number(input)?);
    let (upper, lower, count) = (number(input)?, number(input)?, number(input)?);
    if serial == 0 || lower >= upper {
        return Err(Malformed::Value);
    }
    // Each claim has two bytes at least, so no more memory is taken than came.
    let count = usize::try_from(count).map_err(|_| Malformed::Claims)?;
    if count > MOST_CLAIMS || count > input.len() / 2 {
        return Err(Malformed::Claims);
    }
    let mut claims = Vec::with_capacity(count);
    let mut end = lower;
    for _ in 0..count {
        let (offset, length) = (number(input)?, number(input)?);
        let start = lower.checked_add(offset).ok_or(Malformed::Claims)?;
        let next = start.checked_add(length).ok_or(Malformed::Claims)?;
        if start < end || length == 0 || next > upper {
            return Err(Malformed::Claims);
        }
        claims.push((start, next));
        end = next;
    }
    Ok(Report {
        serial,
        checkpoint,
        lower,
        upper,
        claims,
    })
}
