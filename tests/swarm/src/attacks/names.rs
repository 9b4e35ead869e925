//! Bundles that speak in another's name.

use underpass_bundle::wire::{
    ACCEPTED, CodePoints, Disposition, Sequence, SequenceName, encode_signal,
};

use super::{Attacker, Build, Expected, STREAMS};
use crate::forge::{Custodian, Endpoint, Forged, FrameBuilder};

const PLANS: u64 = underpass_plans::SERVICE;
const REPORTS: u64 = underpass_reports::SERVICE;
const YEAR_MS: u64 = 365 * 86_400_000;

pub const ALL: &[(&str, Expected, Build)] = &[
    ("source-hub", Expected::Forged, source_hub),
    ("source-victim", Expected::Forged, source_victim),
    ("plan", Expected::Forged, plan),
    ("incarnation", Expected::Forged, incarnation),
    ("report-of-another", Expected::Forged, report_of_another),
    ("custodian", Expected::Forged, custodian),
    ("signal-of-another", Expected::Forged, signal_of_another),
    ("signal-for-others", Expected::Harmless, signal_for_others),
    ("report-to", Expected::Harmless, report_to),
    ("nobody", Expected::Harmless, nobody),
    ("dtn-name", Expected::Harmless, dtn_name),
    ("relayed", Expected::Forged, relayed),
    ("year", Expected::Harmless, year),
    ("node-zero", Expected::Harmless, node_zero),
    ("allocator", Expected::Forged, allocator),
    ("three-elements", Expected::Forged, three_elements),
    ("broken-bytes", Expected::Refused, broken_bytes),
];

impl Attacker {
    fn forged(&self, source: Endpoint, destination: Endpoint) -> Forged {
        Forged::new(source, destination, self.next())
    }

    /// A payload of streams from a run that would end all earlier ones.
    fn later_run(&self) -> Vec<u8> {
        let mut payload = FrameBuilder::new(u64::MAX - 1, self.line.hub_run());
        payload.hello(1, 1 << 20).finish()
    }
}

fn source_hub(at: &Attacker) -> Vec<Forged> {
    let cast = &at.cast;
    let hub = || Endpoint::Ipn(cast.hub_node, STREAMS);
    vec![
        at.forged(hub(), hub()),
        at.forged(hub(), Endpoint::Ipn(cast.victim, STREAMS)),
    ]
}

fn source_victim(at: &Attacker) -> Vec<Forged> {
    let cast = &at.cast;
    let source = Endpoint::Ipn(cast.victim, STREAMS);
    let payload = FrameBuilder::new(1, at.line.hub_run()).finish();
    vec![
        at.forged(source, Endpoint::Ipn(cast.hub_node, STREAMS))
            .payload(payload),
    ]
}

/// What a terminal would take for its hub's plan, if it came through.
fn plan(at: &Attacker) -> Vec<Forged> {
    let source = Endpoint::Ipn(at.cast.hub_node, PLANS);
    vec![
        at.forged(source, Endpoint::Ipn(at.cast.victim, PLANS))
            .payload(r#"{"beam":"beam","version":9007199254740991,"intervals":[]}"#),
    ]
}

/// Would end the victim's streams as those of a former run.
fn incarnation(at: &Attacker) -> Vec<Forged> {
    let cast = &at.cast;
    let to = |source, destination| {
        let bundle = at.forged(
            Endpoint::Ipn(source, STREAMS),
            Endpoint::Ipn(destination, STREAMS),
        );
        bundle.payload(at.later_run())
    };
    vec![
        to(cast.victim, cast.hub_node),
        to(cast.hub_node, cast.victim),
    ]
}

fn report_of_another(at: &Attacker) -> Vec<Forged> {
    let cast = &at.cast;
    let source = Endpoint::Ipn(cast.victim, REPORTS);
    vec![at.forged(source, Endpoint::Ipn(cast.hub_node, REPORTS))]
}

fn custodian(at: &Attacker) -> Vec<Forged> {
    let with = |endpoint| {
        at.to_hub(STREAMS, FrameBuilder::new(at.cast.run, 0).finish())
            .custodian(Custodian {
                endpoint,
                sequence: 7,
                number: at.next(),
            })
    };
    vec![
        with(Endpoint::Ipn(at.cast.victim, 0)),
        with(Endpoint::Ipn(at.cast.hub_node, 0)),
    ]
}

/// Signals that whatever the hub sent is in somebody's custody: of every
/// sequence by which it named its bundles to this terminal, and of the
/// unnamed ones of all nodes.
fn signals(at: &Attacker) -> Vec<Vec<u8>> {
    let cast = &at.cast;
    let endpoints = [cast.hub_node, cast.node, cast.victim]
        .map(|node| SequenceName::Endpoint(underpass_bundle::wire::ipn(node, 0)));
    let mut ids: Vec<u64> = at.line.custody().into_iter().map(|(id, _)| id).collect();
    ids.sort_unstable();
    ids.dedup();
    // Numbers next to its own may be the victim's.
    let near = ids
        .iter()
        .flat_map(|id| (-4..=4).map(|off| id.wrapping_add_signed(off)));
    let near = near.filter(|id| *id != 0).map(SequenceName::Id);
    let sequences = near.chain(endpoints).map(|name| Sequence {
        name,
        first: 0,
        runs: vec![1 << 40],
    });
    let codes = CodePoints::default();
    let disposition = Disposition {
        code: ACCEPTED,
        sequences: sequences.collect(),
    };
    encode_signal(codes.ccs_record, codes.dialect, &[disposition])
}

fn signal_from(at: &Attacker, node: u64) -> Vec<Forged> {
    let destination = || Endpoint::Ipn(at.cast.hub_node, 0);
    let signals = signals(at).into_iter();
    let bundles = signals.map(|signal| {
        let bundle = at.forged(Endpoint::Ipn(node, 0), destination());
        bundle.payload(signal).administrative()
    });
    bundles.collect()
}

fn signal_of_another(at: &Attacker) -> Vec<Forged> {
    signal_from(at, at.cast.victim)
}

/// In its own name, about bundles that were never sent to it.
fn signal_for_others(at: &Attacker) -> Vec<Forged> {
    signal_from(at, at.cast.node)
}

/// The hub would have to write to the victim on this terminal's behalf.
fn report_to(at: &Attacker) -> Vec<Forged> {
    let victim = || Endpoint::Ipn(at.cast.victim, STREAMS);
    vec![
        at.to_hub(99, "who wants this").report_to(victim()),
        at.to_streams(FrameBuilder::new(at.cast.run, at.line.hub_run()).finish())
            .report_to(victim()),
    ]
}

fn nobody(at: &Attacker) -> Vec<Forged> {
    let hub = at.cast.hub_node;
    vec![
        at.forged(Endpoint::None, Endpoint::Ipn(hub, 99)),
        at.forged(Endpoint::None, Endpoint::Ipn(hub, STREAMS))
            .payload(at.later_run()),
    ]
}

fn dtn_name(at: &Attacker) -> Vec<Forged> {
    let destination = Endpoint::Ipn(at.cast.hub_node, STREAMS);
    vec![
        at.forged(Endpoint::Dtn("//victim/"), destination)
            .payload(at.later_run()),
    ]
}

fn relayed(at: &Attacker) -> Vec<Forged> {
    let source = Endpoint::Ipn(at.cast.node, STREAMS);
    let destination = Endpoint::Ipn(at.cast.victim, STREAMS);
    let payload = FrameBuilder::new(at.cast.run, 0).finish();
    vec![at.forged(source, destination).payload(payload)]
}

/// To a terminal that is switched off, and that it is relayed to.
fn year(at: &Attacker) -> Vec<Forged> {
    let source = Endpoint::Ipn(at.cast.node, 99);
    let destination = Endpoint::Ipn(at.cast.absent, 99);
    vec![
        at.forged(source, destination)
            .lifetime_ms(YEAR_MS)
            .custodian(Custodian {
                endpoint: Endpoint::Ipn(at.cast.node, 0),
                sequence: 7,
                number: at.next(),
            }),
    ]
}

/// No node has the number 0: whatever the service, it names nobody.
fn node_zero(at: &Attacker) -> Vec<Forged> {
    let hub = || Endpoint::Ipn(at.cast.hub_node, STREAMS);
    vec![
        at.forged(Endpoint::Ipn(0, STREAMS), hub())
            .payload(at.later_run()),
    ]
}

/// The numbers of the hub and the victim, by another allocator: other nodes,
/// and not this terminal.
fn allocator(at: &Attacker) -> Vec<Forged> {
    let hub = || Endpoint::Ipn(at.cast.hub_node, STREAMS);
    let of = |node| at.forged(Endpoint::Allocated(977_000, node, STREAMS), hub());
    vec![of(at.cast.hub_node), of(at.cast.victim), of(at.cast.node)]
}

/// The hub and the victim, by the longer form of their names.
fn three_elements(at: &Attacker) -> Vec<Forged> {
    let hub = || Endpoint::Ipn(at.cast.hub_node, STREAMS);
    let of = |node| at.forged(Endpoint::Allocated(0, node, STREAMS), hub());
    vec![of(at.cast.hub_node), of(at.cast.victim)]
}

/// No endpoint has such an allocator.
fn broken_bytes(at: &Attacker) -> Vec<Forged> {
    let hub = || Endpoint::Ipn(at.cast.hub_node, STREAMS);
    let node = at.cast.node;
    vec![
        at.forged(Endpoint::Allocated(1 << 40, node, STREAMS), hub()),
        at.forged(Endpoint::Dtn("victim"), hub()),
    ]
}
