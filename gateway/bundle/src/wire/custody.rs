//! The custody blocks of CCSDS 734.6 and the code points of its dialects.

use super::bibe::BIBE_SIGNAL_RECORD;
use super::cbor::{ARRAY, CborError, Reader, UNSIGNED, write_head};
use super::eid::{Eid, is_taken, read_eid, write_eid};
use super::extensions::whole;

/// How a peer's implementation writes custody blocks and signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CustodyDialect {
    /// ION-DTN 4.1.4 and later: blocks 13 and 14, records 13 and 14, an array
    /// of sequences per map value.
    #[default]
    Ion,
    /// bplib 7.0.2: blocks 15 and 16, records 4 and 3, one sequence per map
    /// value.
    Bplib,
    /// ION-DTN 4.1.3: no block, but bundles in bundles (BIBE), and record 8. Only the target of a
    /// signal has this dialect: no block is ever sent in it.
    Bibe,
}

/// Code points of one dialect; IANA has assigned none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodePoints {
    /// The shape of signals' map values.
    pub dialect: CustodyDialect,
    /// Block type of the custody transfer extension block.
    pub cteb_block: u64,
    /// Block type of the compressed reporting extension block.
    pub creb_block: u64,
    /// Administrative record type of the compressed custody signal.
    pub ccs_record: u64,
    /// Administrative record type of the compressed reporting signal.
    pub crs_record: u64,
}

impl Default for CodePoints {
    fn default() -> Self {
        CodePoints::of(CustodyDialect::default())
    }
}

impl CodePoints {
    /// The code points that a dialect's implementation uses.
    pub const fn of(dialect: CustodyDialect) -> CodePoints {
        let [cteb_block, creb_block, ccs_record, crs_record] = match dialect {
            CustodyDialect::Ion => [13, 14, 13, 14],
            CustodyDialect::Bplib => [15, 16, 4, 3],
            CustodyDialect::Bibe => [13, 14, BIBE_SIGNAL_RECORD, 14],
        };
        CodePoints {
            dialect,
            cteb_block,
            creb_block,
            ccs_record,
            crs_record,
        }
    }

    /// These code points, and the others that are understood on receipt. If two dialects give a
    /// number different meanings, the earlier one counts.
    pub(crate) fn accepted(&self) -> [CodePoints; 3] {
        [
            *self,
            CodePoints::of(CustodyDialect::Ion),
            CodePoints::of(CustodyDialect::Bplib),
        ]
    }

    /// The block as a CTEB, if its type is one and its content fits: HDTN
    /// uses type 13 for priority, with another content, which is no error.
    pub(crate) fn read_cteb(&self, kind: u64, data: &[u8]) -> Option<Cteb> {
        let codes = self
            .accepted()
            .into_iter()
            .find(|codes| codes.cteb_block == kind)?;
        let cteb = whole(data, |reader| Cteb::read(reader, codes.dialect)).ok();
        cteb.filter(|cteb| is_taken(&cteb.custodian))
    }

    pub(crate) fn read_creb(&self, kind: u64, data: &[u8]) -> Option<Creb> {
        self.accepted()
            .into_iter()
            .find(|codes| codes.creb_block == kind)?;
        let creb = whole(data, Creb::read).ok();
        let named = |creb: &Creb| {
            let names = [&creb.block_source, &creb.report_to];
            names.into_iter().flatten().all(is_taken)
        };
        creb.filter(named)
    }
}

/// Custody transfer extension block: the custodian, and the name under which the next custodian is
/// to signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cteb {
    /// Number of the bundle in its sequence.
    pub number: u64,
    /// The custodian's name for the sequence.
    pub sequence: u64,
    /// Administrative endpoint of the present custodian.
    pub custodian: Eid,
    /// The dialect it came in, in which it is answered.
    pub dialect: CustodyDialect,
}

impl Cteb {
    pub(crate) fn read(
        reader: &mut Reader<'_>,
        dialect: CustodyDialect,
    ) -> Result<Cteb, CborError> {
        let length = reader.array()?;
        let number = reader.unsigned()?;
        let sequence = reader.unsigned()?;
        let custodian = read_eid(reader)?;
        reader.array_end(length, 3)?;
        Ok(Cteb {
            number,
            sequence,
            custodian,
            dialect,
        })
    }

    /// The block's content.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        write_head(&mut out, ARRAY, 3);
        write_head(&mut out, UNSIGNED, self.number);
        write_head(&mut out, UNSIGNED, self.sequence);
        write_eid(&mut out, &self.custodian);
        out
    }
}

/// Compressed reporting extension block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Creb {
    /// Number of the bundle in its sequence.
    pub number: u64,
    /// The block source's name for the sequence; 0 if left out.
    pub sequence: u64,
    /// Which events to report, bits 0 to 5: received, forwarded, delivered,
    /// deleted, custody accepted, custody refused.
    pub requests: u64,
    /// Node that added the block, if not the bundle's source.
    pub block_source: Option<Eid>,
    /// Where reports go, if not to the bundle's report-to endpoint.
    pub report_to: Option<Eid>,
}

impl Creb {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Creb, CborError> {
        let length = reader.array()?;
        let mut creb = Creb {
            number: reader.unsigned()?,
            sequence: 0,
            requests: 0,
            block_source: None,
            report_to: None,
        };
        let mut taken = 1;
        while reader.more(length, taken)? {
            match taken {
                1 => creb.sequence = reader.unsigned()?,
                2 => creb.requests = reader.unsigned()?,
                3 => creb.block_source = Some(read_eid(reader)?),
                4 => creb.report_to = Some(read_eid(reader)?),
                _ => return Err(CborError::WrongCount),
            }
            taken += 1;
        }
        Ok(creb)
    }

    /// The block's content, trailing elements without information left out.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let count = match self {
            Creb {
                report_to: Some(_), ..
            } => 5,
            Creb {
                block_source: Some(_),
                ..
            } => 4,
            Creb { requests: 1.., .. } => 3,
            Creb { sequence: 1.., .. } => 2,
            _ => 1,
        };
        let mut out = Vec::with_capacity(48);
        write_head(&mut out, ARRAY, count);
        write_head(&mut out, UNSIGNED, self.number);
        if count > 1 {
            write_head(&mut out, UNSIGNED, self.sequence);
        }
        if count > 2 {
            write_head(&mut out, UNSIGNED, self.requests);
        }
        if count > 3 {
            write_eid(&mut out, self.block_source.as_ref().unwrap_or(&Eid::none()));
        }
        if let Some(report_to) = &self.report_to {
            write_eid(&mut out, report_to);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::eid::ipn;
    use super::*;

    #[test]
    fn a_cteb_is_three_elements() {
        let cteb = Cteb {
            number: 300,
            sequence: 2,
            custodian: ipn(5, 0),
            dialect: CustodyDialect::Ion,
        };
        let data = cteb.encode();
        assert_eq!(
            data,
            [0x83, 0x19, 0x01, 0x2C, 0x02, 0x82, 0x02, 0x82, 0x05, 0x00]
        );
        assert_eq!(CodePoints::default().read_cteb(13, &data), Some(cteb));
    }

    #[test]
    fn a_custodian_whose_name_is_not_taken_is_none() {
        for (name, taken) in [
            ("//node/".to_owned(), true),
            ("//node/\u{1b}".to_owned(), false),
            (format!("//{}/", "n".repeat(252)), true),
            (format!("//{}/", "n".repeat(253)), false),
        ] {
            let cteb = Cteb {
                number: 300,
                sequence: 2,
                custodian: Eid::with_dtn(&name).unwrap(),
                dialect: CustodyDialect::Ion,
            };
            let read = CodePoints::default().read_cteb(13, &cteb.encode());
            assert_eq!(read.is_some(), taken, "{name:?}");
        }
    }

    #[test]
    fn bplibs_block_numbers_are_read_as_bplibs() {
        let codes = CodePoints::default();
        let data = [0x83, 0x01, 0x02, 0x82, 0x02, 0x82, 0x05, 0x00];
        let cteb = codes.read_cteb(15, &data).unwrap();
        assert_eq!(cteb.dialect, CustodyDialect::Bplib);
    }

    #[test]
    fn another_content_in_block_13_is_no_cteb() {
        assert_eq!(
            CodePoints::default().read_cteb(13, &[0x82, 0x01, 0x02]),
            None
        );
    }

    #[test]
    fn a_creb_leaves_out_what_says_nothing() {
        let mut creb = Creb {
            number: 7,
            sequence: 0,
            requests: 0,
            block_source: None,
            report_to: None,
        };
        assert_eq!(creb.encode(), [0x81, 0x07]);
        creb.report_to = Some(ipn(9, 0));
        let data = creb.encode();
        let read = CodePoints::default().read_creb(14, &data).unwrap();
        assert_eq!(read.report_to, creb.report_to);
        assert_eq!(read.block_source, Some(Eid::none()));
    }
}
