//! A record of packets, as the pcap file format has it
//! (draft-ietf-opsawg-pcap), with nanoseconds and bare IP packets.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::time::Duration;

use crate::config::PcapConfig;

const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const LINKTYPE_RAW: u32 = 101;

/// Writes packets to a pcap file.
#[derive(Debug)]
pub struct PcapWriter<W: Write> {
    output: W,
    snap_bytes: u32,
}

impl PcapWriter<BufWriter<File>> {
    /// Begins the configured file.
    pub fn create(config: &PcapConfig) -> io::Result<Self> {
        let file = BufWriter::with_capacity(1 << 20, File::create(&config.file)?);
        Self::new(file, config.snap_bytes)
    }
}

impl<W: Write> PcapWriter<W> {
    /// Writes the file's header; packets are cut to `snap_bytes`.
    pub fn new(mut output: W, snap_bytes: u32) -> io::Result<Self> {
        output.write_all(&MAGIC_NANOSECONDS.to_le_bytes())?;
        for version in [2u16, 4] {
            output.write_all(&version.to_le_bytes())?;
        }
        for field in [0, 0, snap_bytes, LINKTYPE_RAW] {
            output.write_all(&field.to_le_bytes())?;
        }
        Ok(PcapWriter { output, snap_bytes })
    }

    /// Records a packet at a time since the Unix epoch.
    pub fn record(&mut self, at: Duration, packet: &[u8]) -> io::Result<()> {
        let kept = packet.len().min(self.snap_bytes as usize);
        let fields = [
            at.as_secs() as u32,
            at.subsec_nanos(),
            kept as u32,
            packet.len() as u32,
        ];
        for field in fields {
            self.output.write_all(&field.to_le_bytes())?;
        }
        self.output.write_all(&packet[..kept])
    }

    /// Writes out what is buffered.
    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_has_header_time_lengths_and_cut_packet() {
        let mut bytes = Vec::new();
        let mut writer = PcapWriter::new(&mut bytes, 4).unwrap();
        writer
            .record(Duration::new(0x0102_0304, 5), &[0x45, 1, 2, 3, 4, 5])
            .unwrap();
        let header = [
            0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 101, 0, 0, 0,
        ];
        assert_eq!(bytes[..24], header);
        let record = [
            4, 3, 2, 1, 5, 0, 0, 0, 4, 0, 0, 0, 6, 0, 0, 0, 0x45, 1, 2, 3,
        ];
        assert_eq!(bytes[24..], record);
    }
}
