//! The custody store on a disk.

use std::fmt;

use prometheus_client::registry::Unit;

use super::super::ApiState;
use super::families::Families;

type Row = (&'static str, &'static str, u64);

pub fn encode(state: &ApiState, families: &mut Families<'_>) -> fmt::Result {
    let Some(figures) = state.custody.monitor().map(|disk| disk.figures()) else {
        return Ok(());
    };
    let sizes: [Row; 4] = [
        ("disk_log", "Files of the custody store", figures.log_bytes),
        (
            "disk_live",
            "Bundles in these files that are kept",
            figures.live_bytes,
        ),
        (
            "disk_uncommitted",
            "Payload in memory that is not on the disk yet",
            figures.uncommitted_bytes,
        ),
        (
            "disk_resident",
            "Payload in memory that is on the disk too",
            figures.resident_bytes,
        ),
    ];
    for (name, help, bytes) in sizes {
        families.gauge((name, Unit::Bytes), help, [(vec![], bytes)])?;
    }
    families.gauge(
        "disk_stalled",
        "Whether nothing can be written",
        [(vec![], u64::from(figures.stalled.is_some()))],
    )?;
    families.counter(
        ("disk_committed", Unit::Bytes),
        "Bundles written to the custody store",
        [(vec![], figures.committed_bytes)],
    )?;
    let counts: [Row; 7] = [
        (
            "disk_committed_bundles",
            "Bundles written to the custody store",
            figures.committed_bundles,
        ),
        (
            "disk_commits",
            "Times that the disk made something durable",
            figures.commits,
        ),
        (
            "disk_loaded_bundles",
            "Payloads read from the custody store",
            figures.loaded_bundles,
        ),
        (
            "disk_restored_bundles",
            "Bundles restored at the start",
            figures.restored_bundles,
        ),
        (
            "disk_damaged_at_start",
            "Damaged places found in the custody store at the start",
            figures.damaged_at_start,
        ),
        (
            "disk_lost_bundles",
            "Bundles found damaged since the start",
            figures.lost_bundles,
        ),
        (
            "disk_failed_segments",
            "Files of the custody store that the disk could not read, and that are emptied",
            figures.failed_segments,
        ),
    ];
    for (name, help, count) in counts {
        families.counter(name, help, [(vec![], count)])?;
    }
    Ok(())
}

/// Payloads that are too long for memory.
pub fn encode_payloads(state: &ApiState, families: &mut Families<'_>) -> fmt::Result {
    let Some(payloads) = state.payloads() else {
        return Ok(());
    };
    families.gauge(
        "long_payloads",
        "Payloads on the disk, those that are coming in included",
        [(vec![], payloads.count as u64)],
    )?;
    families.gauge(
        ("long_payload", Unit::Bytes),
        "Room that payloads on the disk have, those that are coming in included",
        [(vec![], payloads.bytes)],
    )
}
