//! Bundles recorded from ION-DTN, HDTN, Hardy and dtn7-rs.

use std::fs;
use std::time::{Duration, Instant};

use bytes::Bytes;
use skipped::recorded::{bytes_of, folder};
use underpass_bundle::wire::{
    Bundle, CodePoints, DecodeLimits, Eid, Record, decode, decode_record, ipn_parts,
};
use underpass_bundle::{Agent, Config, NeighbourId, Route};
use underpass_cla::Class;

/// All recorded bare bundles, with their file names.
fn bundles() -> Vec<(String, Bytes)> {
    let mut bundles = Vec::new();
    for implementation in ["ion", "hdtn", "hardy", "dtn7-rs"] {
        let Some(folder) = folder() else {
            return bundles;
        };
        for entry in fs::read_dir(folder.join(implementation)).unwrap() {
            let path = entry.unwrap().path();
            let raw = Bytes::from(bytes_of(&path));
            // A bare bundle begins with the head of its array; no stream begins like
            // that.
            if raw.first() == Some(&0x9F) {
                let name = path.file_name().unwrap().to_string_lossy();
                bundles.push((format!("{implementation}/{name}"), raw));
            }
        }
    }
    assert!(bundles.len() >= 30, "only {} bundles", bundles.len());
    bundles
}

fn read(name: &str, raw: &Bytes) -> Bundle {
    let decoded = decode(raw, &DecodeLimits::default(), &CodePoints::default());
    decoded.unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn every_recorded_bundle_decodes() {
    for (name, raw) in bundles() {
        let bundle = read(&name, &raw);
        assert!(raw.as_ptr_range().contains(&bundle.payload.as_ptr()));
        if name.ends_with("-20.hex") && !name.contains("bibe") && !name.contains("ltp") {
            assert_eq!(&bundle.payload[..], b"20 byte test payload", "{name}");
        }
        if bundle.is_administrative() {
            let record = decode_record(&bundle.payload, &CodePoints::default()).unwrap();
            match name.contains("report") {
                true => assert!(matches!(record, Record::Status(_)), "{name}: {record:?}"),
                false => assert!(
                    matches!(record, Record::Other(7) | Record::Bibe(_)),
                    "{name}: {record:?}"
                ),
            }
        }
    }
}

#[test]
fn a_changed_bit_under_a_crc_is_noticed() {
    for (name, raw) in bundles() {
        if !name.starts_with("hdtn/") {
            continue;
        }
        for bit in 0..raw.len() * 8 {
            let mut changed = raw.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            let changed = Bytes::from(changed);
            let same = |bundle: &Bundle| {
                let whole = read(&name, &raw);
                bundle.primary == whole.primary && bundle.payload == whole.payload
            };
            let decoded = decode(&changed, &DecodeLimits::default(), &CodePoints::default());
            // All of HDTN's blocks have CRCs. Only the outer array's head and break have
            // none, and none of their bits may change the content.
            assert!(decoded.as_ref().map_or(true, same), "{name}, bit {bit}");
        }
    }
}

#[test]
fn recorded_bundles_pass_through_a_relay_unharmed() {
    let now = Instant::now();
    for (name, raw) in bundles() {
        let bundle = read(&name, &raw);
        let Some((node, _)) = ipn_parts(&bundle.primary.destination) else {
            continue;
        };
        // A node's report to itself, which another node has sent back.
        if ipn_parts(&bundle.primary.source).is_some_and(|(source, _)| source == node) {
            continue;
        }
        let mut config = Config::new(9999, 1);
        let route = |nodes, neighbour| Route {
            nodes,
            neighbour: NeighbourId(neighbour),
            take_custody: true,
        };
        config.routes = vec![route(node..=node, 8888), route(1..=9998, 7777)];
        config.status_reports_per_s = 0;
        let mut agent = Agent::new(config);
        agent
            .receive(now, NeighbourId(7777), Class(1), raw)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let later = now + Duration::from_millis(250);
        let offer = agent
            .next_for(later, NeighbourId(8888), Class(1), u64::MAX)
            .unwrap_or_else(|| panic!("{name} is not forwarded"));
        let passed = read(&name, &offer.chunks.concat().into());
        assert_eq!(passed.primary, bundle.primary, "{name}");
        assert_eq!(passed.primary_raw, bundle.primary_raw, "{name}");
        assert_eq!(passed.payload, bundle.payload, "{name}");
        assert_eq!(passed.others, bundle.others, "{name}");
        let age = bundle.age_ms.map_or(0, |(_, age)| age);
        assert_eq!(passed.age_ms.unwrap().1, age + 250, "{name}");
        let previous: Option<(u64, Eid)> = passed.previous_node.clone();
        assert_eq!(previous.unwrap().1.to_string(), "ipn:9999.0");
        let hops = |bundle: &Bundle| bundle.hop_count.map(|(_, limit, count)| (limit, count));
        let expected = hops(&bundle).map(|(limit, count)| (limit, count + 1));
        assert_eq!(hops(&passed), expected, "{name}");
    }
}
