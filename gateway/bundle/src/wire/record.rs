//! Administrative records: status reports (RFC 9171 §6.1), compressed custody
//! signals and compressed reporting signals (CCSDS 734.6).

use bp7::administrative_record::{AdministrativeRecord, BundleStatusItem, StatusReport};

use super::bibe::{BIBE_SIGNAL_RECORD, BibeSignal, encode_bibe_signal};
use super::cbor::{ARRAY, CborError, MAP, NEGATIVE, Reader, UNSIGNED, write_head};
use super::custody::{CodePoints, CustodyDialect};
use super::eid::{Eid, read_eid, write_eid};
use super::primary::read_timestamp;

/// Largest administrative record that is read, bytes.
pub const MAX_RECORD_BYTES: usize = 64 * 1024;

const STATUS_REPORT: u64 = 1;

/// Map key of a compressed custody signal: custody was accepted.
pub const ACCEPTED: i64 = 1;
/// Map key of a compressed custody signal: custody was refused.
pub const REFUSED: i64 = -1;

/// The name of a bundle sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SequenceName {
    /// Identifier from the custody or reporting block, not 0.
    Id(u64),
    /// Endpoint that stands for identifier 0.
    Endpoint(Eid),
}

/// Some bundles of one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// The sequence.
    pub name: SequenceName,
    /// Number of the first bundle.
    pub first: u64,
    /// Lengths of runs from `first` on: included, excluded, included, …; an
    /// odd count.
    pub runs: Vec<u64>,
}

impl Sequence {
    /// The included runs as inclusive ranges of numbers.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut next = self.first;
        self.runs
            .iter()
            .enumerate()
            .filter_map(move |(index, run)| {
                let from = next;
                next = next.saturating_add(*run);
                (index % 2 == 0 && *run > 0).then(|| (from, from.saturating_add(run - 1)))
            })
    }
}

/// What a signal says of some sequences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disposition {
    /// [`ACCEPTED`] or [`REFUSED`] in a custody signal; 0 to 5 in a reporting
    /// signal.
    pub code: i64,
    /// The bundles it is said of.
    pub sequences: Vec<Sequence>,
}

/// An administrative record.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A bundle status report.
    Status(StatusReport),
    /// A compressed custody signal.
    Custody(Vec<Disposition>),
    /// A compressed reporting signal.
    Reporting(Vec<Disposition>),
    /// A BIBE custody signal.
    Bibe(BibeSignal),
    /// A record of another type.
    Other(u64),
}

/// Reads an administrative record.
pub fn decode_record(payload: &[u8], codes: &CodePoints) -> Result<Record, CborError> {
    if payload.len() > MAX_RECORD_BYTES {
        return Err(CborError::WrongCount);
    }
    let mut reader = Reader::new(payload);
    let length = reader.array()?;
    let kind = reader.unsigned()?;
    let accepted = codes.accepted();
    let record = if kind == STATUS_REPORT {
        Record::Status(read_status_report(&mut reader)?)
    } else if kind == BIBE_SIGNAL_RECORD {
        Record::Bibe(BibeSignal::read(&mut reader)?)
    } else if reader.peek_major()? != MAP {
        return Ok(Record::Other(kind));
    } else {
        match accepted
            .iter()
            .find(|codes| kind == codes.ccs_record || kind == codes.crs_record)
        {
            Some(codes) if kind == codes.ccs_record => Record::Custody(read_map(&mut reader)?),
            Some(_) => Record::Reporting(read_map(&mut reader)?),
            None => return Ok(Record::Other(kind)),
        }
    };
    reader.array_end(length, 2)?;
    reader.end()?;
    Ok(record)
}

fn read_map(reader: &mut Reader<'_>) -> Result<Vec<Disposition>, CborError> {
    let length = reader.map()?;
    let mut dispositions = Vec::new();
    while reader.more(length, dispositions.len() as u64)? {
        let code = i64::try_from(reader.integer()?).map_err(|_| CborError::Malformed)?;
        let sequences = read_map_value(reader)?;
        dispositions.push(Disposition { code, sequences });
    }
    Ok(dispositions)
}

/// Reads an array of sequences, or one bare sequence as bplib writes it. Both
/// may begin with an array, if a sequence is named by an endpoint; then the
/// second element tells them apart.
fn read_map_value(reader: &mut Reader<'_>) -> Result<Vec<Sequence>, CborError> {
    let mut ahead = *reader;
    if let Ok(sequence) = read_sequence(&mut ahead) {
        *reader = ahead;
        return Ok(vec![sequence]);
    }
    let length = reader.array()?;
    let mut sequences = Vec::new();
    while reader.more(length, sequences.len() as u64)? {
        sequences.push(read_sequence(reader)?);
    }
    Ok(sequences)
}

fn read_sequence(reader: &mut Reader<'_>) -> Result<Sequence, CborError> {
    let length = reader.array()?;
    let name = match reader.peek_major()? {
        ARRAY => SequenceName::Endpoint(read_eid(reader)?),
        _ => SequenceName::Id(reader.unsigned()?),
    };
    let first = reader.unsigned()?;
    let runs = match reader.peek_major()? {
        ARRAY => read_runs(reader)?,
        _ => vec![reader.unsigned()?],
    };
    reader.array_end(length, 3)?;
    // The numbers have to fit: an overflow is no valid sequence.
    runs.iter()
        .try_fold(first, |sum, run| sum.checked_add(*run))
        .ok_or(CborError::Malformed)?;
    Ok(Sequence { name, first, runs })
}

fn read_runs(reader: &mut Reader<'_>) -> Result<Vec<u64>, CborError> {
    let length = reader.array()?;
    let mut runs = Vec::new();
    while reader.more(length, runs.len() as u64)? {
        runs.push(reader.unsigned()?);
    }
    match runs.len() % 2 {
        1 => Ok(runs),
        _ => Err(CborError::WrongCount),
    }
}

/// Encodes a signal as one or more administrative records: bplib's map values
/// hold one sequence, so several sequences need several records.
pub fn encode_signal(
    record_type: u64,
    dialect: CustodyDialect,
    dispositions: &[Disposition],
) -> Vec<Vec<u8>> {
    match dialect {
        CustodyDialect::Ion => vec![encode_array_shape(record_type, dispositions)],
        CustodyDialect::Bplib => encode_single_shape(record_type, dispositions),
        CustodyDialect::Bibe => vec![encode_bibe_signal(dispositions)],
    }
}

fn record_head(record_type: u64, pairs: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    write_head(&mut out, ARRAY, 2);
    write_head(&mut out, UNSIGNED, record_type);
    write_head(&mut out, MAP, pairs as u64);
    out
}

fn encode_array_shape(record_type: u64, dispositions: &[Disposition]) -> Vec<u8> {
    let mut out = record_head(record_type, dispositions.len());
    for disposition in dispositions {
        write_code(&mut out, disposition.code);
        write_head(&mut out, ARRAY, disposition.sequences.len() as u64);
        for sequence in &disposition.sequences {
            write_sequence(&mut out, sequence);
        }
    }
    out
}

fn encode_single_shape(record_type: u64, dispositions: &[Disposition]) -> Vec<Vec<u8>> {
    let records = dispositions.iter().map(|d| d.sequences.len()).max();
    (0..records.unwrap_or(0))
        .map(|index| {
            let pairs: Vec<_> = dispositions
                .iter()
                .filter_map(|d| Some((d.code, d.sequences.get(index)?)))
                .collect();
            let mut out = record_head(record_type, pairs.len());
            for (code, sequence) in pairs {
                write_code(&mut out, code);
                write_sequence(&mut out, sequence);
            }
            out
        })
        .collect()
}

fn write_code(out: &mut Vec<u8>, code: i64) {
    match u64::try_from(code) {
        Ok(code) => write_head(out, UNSIGNED, code),
        Err(_) => write_head(out, NEGATIVE, code.unsigned_abs() - 1),
    }
}

fn write_sequence(out: &mut Vec<u8>, sequence: &Sequence) {
    write_head(out, ARRAY, 3);
    match &sequence.name {
        SequenceName::Id(id) => write_head(out, UNSIGNED, *id),
        SequenceName::Endpoint(eid) => write_eid(out, eid),
    }
    write_head(out, UNSIGNED, sequence.first);
    if let [run] = sequence.runs[..] {
        return write_head(out, UNSIGNED, run);
    }
    write_head(out, ARRAY, sequence.runs.len() as u64);
    for run in &sequence.runs {
        write_head(out, UNSIGNED, *run);
    }
}

/// Encodes a status report as an administrative record.
pub fn encode_status_report(report: StatusReport) -> Vec<u8> {
    let block = AdministrativeRecord::BundleStatusReport(report).to_payload();
    block.payload_data().cloned().unwrap_or_default()
}

fn read_status_report(reader: &mut Reader<'_>) -> Result<StatusReport, CborError> {
    let length = reader.array()?;
    let items = reader.array()?;
    let mut status_information = Vec::with_capacity(4);
    for _ in 0..4 {
        status_information.push(read_status_item(reader)?);
    }
    reader.array_end(items, 4)?;
    let report_reason = u32::try_from(reader.unsigned()?).map_err(|_| CborError::Malformed)?;
    let source_node = read_eid(reader)?;
    let timestamp = read_timestamp(reader)?;
    let (mut frag_offset, mut frag_len) = (0, 0);
    if reader.more(length, 4)? {
        frag_offset = reader.unsigned()?;
        frag_len = reader.unsigned()?;
        reader.array_end(length, 6)?;
    }
    Ok(StatusReport {
        status_information,
        report_reason,
        source_node,
        timestamp,
        frag_offset,
        frag_len,
    })
}

fn read_status_item(reader: &mut Reader<'_>) -> Result<BundleStatusItem, CborError> {
    let length = reader.array()?;
    let asserted = reader.boolean()?;
    let mut item = BundleStatusItem {
        asserted,
        time: 0,
        status_requested: false,
    };
    if reader.more(length, 1)? {
        item.time = reader.unsigned()?;
        item.status_requested = true;
        reader.array_end(length, 2)?;
    }
    Ok(item)
}

#[cfg(test)]
mod tests {
    use super::super::eid::ipn;
    use super::*;

    fn sequence(id: u64, first: u64, runs: &[u64]) -> Sequence {
        Sequence {
            name: SequenceName::Id(id),
            first,
            runs: runs.to_vec(),
        }
    }

    #[test]
    fn bplibs_signal_is_read() {
        let bytes = [
            0x82, 0x04, 0xA2, 0x01, 0x83, 0x01, 0x0C, 0x83, 0x02, 0x04, 0x05, 0x20, 0x83, 0x03,
            0x0C, 0x83, 0x02, 0x04, 0x05,
        ];
        let dispositions = vec![
            Disposition {
                code: ACCEPTED,
                sequences: vec![sequence(1, 12, &[2, 4, 5])],
            },
            Disposition {
                code: REFUSED,
                sequences: vec![sequence(3, 12, &[2, 4, 5])],
            },
        ];
        let record = decode_record(&bytes, &CodePoints::default());
        assert_eq!(record, Ok(Record::Custody(dispositions.clone())));
        assert_eq!(
            encode_signal(4, CustodyDialect::Bplib, &dispositions),
            [bytes.to_vec()]
        );
    }

    #[test]
    fn runs_alternate_between_included_and_excluded() {
        let ranges: Vec<_> = sequence(1, 12, &[2, 4, 5]).ranges().collect();
        assert_eq!(ranges, [(12, 13), (18, 22)]);
    }

    #[test]
    fn a_contiguous_thousand_takes_a_few_bytes() {
        let accepted = [Disposition {
            code: ACCEPTED,
            sequences: vec![sequence(1, 0, &[1000])],
        }];
        let records = encode_signal(13, CustodyDialect::Ion, &accepted);
        assert_eq!(
            records,
            [[
                0x82, 0x0D, 0xA1, 0x01, 0x81, 0x83, 0x01, 0x00, 0x19, 0x03, 0xE8
            ]]
        );
        let record = decode_record(&records[0], &CodePoints::default());
        assert_eq!(record, Ok(Record::Custody(accepted.to_vec())));
    }

    #[test]
    fn sequences_named_by_an_endpoint_are_read_in_both_shapes() {
        let sequences = vec![Sequence {
            name: SequenceName::Endpoint(ipn(9, 0)),
            first: 4,
            runs: vec![1],
        }];
        let said = [Disposition {
            code: REFUSED,
            sequences,
        }];
        for dialect in [CustodyDialect::Ion, CustodyDialect::Bplib] {
            let codes = CodePoints::of(dialect);
            let records = encode_signal(codes.ccs_record, dialect, &said);
            let record = decode_record(&records[0], &CodePoints::default());
            assert_eq!(record, Ok(Record::Custody(said.to_vec())));
        }
    }

    #[test]
    fn runs_that_overflow_are_no_sequence() {
        let said = [Disposition {
            code: ACCEPTED,
            sequences: vec![sequence(1, u64::MAX, &[2])],
        }];
        let records = encode_signal(13, CustodyDialect::Ion, &said);
        assert!(decode_record(&records[0], &CodePoints::default()).is_err());
    }

    #[test]
    fn a_bibe_signal_is_read() {
        let bytes = [0x82, 0x08, 0x82, 0x00, 0x81, 0x82, 0x01, 0x01];
        let record = decode_record(&bytes, &CodePoints::default());
        let signal = BibeSignal {
            disposition: 0,
            runs: vec![(1, 1)],
        };
        assert_eq!(record, Ok(Record::Bibe(signal)));
        for end in 0..bytes.len() {
            assert!(decode_record(&bytes[..end], &CodePoints::default()).is_err());
        }
    }
}
