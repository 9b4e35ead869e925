//! Long bundles, which go to disk as they arrive.

use std::future::poll_fn;

use underpass_cla::Refusal;
use underpass_payloads::{Limits, Payloads};

use super::*;

/// In these tests bundles longer than this are long, bytes.
const LONG_BYTES: u64 = 200;

pub(super) fn payloads() -> (tempfile::TempDir, Arc<Payloads>) {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = Limits {
        quota_bytes: 1 << 20,
        payload_bytes: 1 << 20,
        leave_free_bytes: 0,
    };
    let payloads = Payloads::open(folder.path(), limits).expect("unnamed files");
    (folder, payloads)
}

#[tokio::test]
async fn nothing_is_written_of_a_long_bundle_that_would_be_deleted() {
    let (_folder, payloads) = payloads();
    let (shell, _inbound) = shell(&hub(&[10]), 1);
    shell.attach_payloads(payloads.clone(), LONG_BYTES);
    let (id, _) = session(&shell, 0, 10);
    // The service takes messages; payloads on disk are only for applications.
    let raw = bundle_of(10, &[7; 1_000]);
    let intake = shell.intake(id, raw.len() as u64).expect("there is room");
    let mut intake = intake.expect("it is long");
    assert_eq!(payloads.used().0, 1);
    poll_fn(|cx| intake.poll_ready(cx)).await.expect("room");
    intake.take(raw.slice(..300));
    // Only a few pieces may wait for the thread.
    let mut verdict = Ok(());
    for _ in 0..4 {
        verdict = poll_fn(|cx| intake.poll_ready(cx)).await;
        if verdict.is_err() {
            break;
        }
        intake.take(Bytes::new());
    }
    assert_eq!(verdict, Err(Refusal::NotAcceptable));
    drop(intake);
    assert_eq!(payloads.used(), (0, 0));
}

#[test]
fn what_waits_until_it_is_known_what_it_is_counts_for_its_neighbour() {
    let (_folder, payloads) = payloads();
    let (shell, _inbound) = shell(&hub(&[10]), 1);
    let (id, _) = session(&shell, 0, 10);
    let refused = shell.spool(id).err();
    assert_eq!(refused, Some(Refusal::NoResources), "there is no folder");
    shell.attach_payloads(payloads.clone(), LONG_BYTES);
    let spool = shell.spool(id).expect("there is room");
    // A neighbour gets at most a third, so that its bundles leave others as much as they
    // take.
    let third = (1 << 20) / 3;
    let bytes = vec![7; third as usize];
    spool.write_at(&bytes, 0).expect("there is room");
    assert!(spool.write_at(&[7], third).is_err());
    assert!(payloads.reserve(10, third).is_ok());
    assert!(payloads.reserve(10, third + 2).is_err());
    assert!(payloads.reserve(11, 1 << 18).is_ok());
    drop(spool);
    assert_eq!(payloads.used(), (0, 0));
}
