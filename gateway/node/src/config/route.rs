//! Where bundles and streams go.

use std::ops::RangeInclusive;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, de};

use super::node::is_node_name;

/// A static route for bundles to a node that is no neighbour; or, with itself
/// as `via`, to a neighbour for which no custody is taken. A route to one node
/// comes before the contact plan; one to several comes after it and after the
/// neighbours themselves.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// The destination's ipn node number.
    #[serde(default)]
    pub node: Option<u64>,
    /// Instead of it, the destinations' node ids; or those of the dtn scheme, to which
    /// no other route leads.
    #[serde(default)]
    pub nodes: Option<NodePattern>,
    /// The neighbour that its bundles are given to.
    pub via: u64,
    /// Whether this node takes custody of what it forwards there: true, false, or
    /// "bibe" for custody by bundles in bundles, which then holds for all that goes
    /// to the neighbour under custody. Default true.
    #[serde(default)]
    pub custody: RouteCustody,
}

/// How custody of what goes by a route is signalled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RouteCustody {
    /// Custody is not taken.
    None,
    /// By custody blocks and compressed signals (CCSDS 734.6).
    #[default]
    Blocks,
    /// By bundles in bundles, as ION-DTN 4.1.3 does.
    Bibe,
}

impl RouteCustody {
    pub fn is_taken(self) -> bool {
        self != RouteCustody::None
    }
}

impl<'de> Deserialize<'de> for RouteCustody {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<RouteCustody, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Taken(bool),
            By(String),
        }
        match Written::deserialize(source) {
            Ok(Written::Taken(false)) => Ok(RouteCustody::None),
            Ok(Written::Taken(true)) => Ok(RouteCustody::Blocks),
            Ok(Written::By(name)) if name == "bibe" => Ok(RouteCustody::Bibe),
            _ => Err(de::Error::custom("custody must be true, false or \"bibe\"")),
        }
    }
}

/// Two neighbours whose bundles for each other, or for what lies behind, this
/// node forwards.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayConfig {
    /// Their ipn node numbers; both ways.
    pub between: [u64; 2],
}

/// Nodes by an EID pattern (draft-ietf-dtn-eid-pattern) of all services:
/// `ipn:**`, or `ipn:NODES.*`, `ipn:ALLOCATOR.NODES.*` with a number, `*`, or
/// ranges as in `[20-39,50]` for the nodes; of the dtn scheme `dtn://NAME/**`, or
/// `dtn:**` for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodePattern {
    /// The nodes' numbers, as RFC 9758 has them in 64 bits.
    Numbers(Vec<RangeInclusive<u64>>),
    /// The node of the dtn scheme that has this name.
    Name(String),
    /// All of the dtn scheme.
    AllNames,
}

/// Ranges of one pattern at most.
const MOST_RANGES: usize = 1_000;

impl NodePattern {
    /// The nodes' numbers; none of the dtn scheme.
    pub fn numbers(&self) -> &[RangeInclusive<u64>] {
        match self {
            NodePattern::Numbers(ranges) => ranges,
            NodePattern::Name(_) | NodePattern::AllNames => &[],
        }
    }

    fn parse(text: &str) -> Result<NodePattern, String> {
        let unknown = || {
            format!(
                "{text:?} is no pattern of nodes: it must be like \"ipn:20.*\", \
                 \"ipn:[20-39,50].*\", \"ipn:0.[20-39].*\", \"ipn:**\", \"dtn://node1/**\" or \
                 \"dtn:**\""
            )
        };
        if text == "dtn:**" {
            return Ok(NodePattern::AllNames);
        }
        if let Some(named) = text.strip_prefix("dtn://") {
            let name = named.strip_suffix("/**").ok_or_else(unknown)?;
            return match is_node_name(name) {
                true => Ok(NodePattern::Name(name.to_owned())),
                false => Err(unknown()),
            };
        }
        let fields = text.strip_prefix("ipn:").ok_or_else(unknown)?;
        if fields == "**" {
            return Ok(NodePattern::Numbers(vec![1..=u64::MAX]));
        }
        let fields: Vec<&str> = fields.split('.').collect();
        let (allocator, nodes) = match fields[..] {
            [nodes, "*"] => (0, nodes),
            [allocator, nodes, "*"] => (allocator.parse().map_err(|_| unknown())?, nodes),
            _ => return Err(unknown()),
        };
        let number = |text: &str| text.parse::<u32>().map_err(|_| unknown());
        let listed = nodes.strip_prefix('[').and_then(|n| n.strip_suffix(']'));
        let mut ranges = Vec::new();
        match listed {
            None if nodes == "*" => ranges.push((1, u32::MAX)),
            None => ranges.push((number(nodes)?, number(nodes)?)),
            Some(listed) => {
                for range in listed.split(',') {
                    let (first, last) = range.split_once('-').unwrap_or((range, range));
                    let (first, last) = (number(first)?, number(last)?);
                    if first > last {
                        return Err(format!("{text:?}: {range} ends before it begins"));
                    }
                    ranges.push((first, last));
                }
            }
        }
        if ranges.len() > MOST_RANGES {
            return Err(format!("{text:?} has more than {MOST_RANGES} ranges"));
        }
        let allocator: u32 = allocator;
        let whole = |node: u32| u64::from(allocator) << 32 | u64::from(node);
        let ranges = ranges.into_iter();
        let ranges = ranges.map(|(first, last)| whole(first)..=whole(last));
        Ok(NodePattern::Numbers(ranges.collect()))
    }
}

impl<'de> Deserialize<'de> for NodePattern {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<NodePattern, D::Error> {
        let text = String::deserialize(source)?;
        NodePattern::parse(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_names_nodes_by_ranges() {
        let of = |text: &str| NodePattern::parse(text).map(|pattern| pattern.numbers().to_vec());
        assert_eq!(of("ipn:**"), Ok(vec![1..=u64::MAX]));
        assert_eq!(of("ipn:*.*"), Ok(vec![1..=u64::from(u32::MAX)]));
        assert_eq!(of("ipn:7.*"), Ok(vec![7..=7]));
        assert_eq!(of("ipn:0.[20-39,50].*"), Ok(vec![20..=39, 50..=50]));
        assert_eq!(of("ipn:2.[1-3].*"), Ok(vec![2 << 32 | 1..=2 << 32 | 3]));
    }

    #[test]
    fn a_pattern_names_nodes_of_the_dtn_scheme() {
        let of = NodePattern::parse;
        assert_eq!(
            of("dtn://node-1/**"),
            Ok(NodePattern::Name("node-1".into()))
        );
        assert_eq!(of("dtn:**"), Ok(NodePattern::AllNames));
        assert!(of("dtn:**").is_ok_and(|pattern| pattern.numbers().is_empty()));
        // Names may be as long as bundles can carry them.
        for (length, is_taken) in [(252, true), (253, false)] {
            let name = "n".repeat(length);
            let pattern = of(&format!("dtn://{name}/**"));
            assert_eq!(pattern.is_ok(), is_taken, "{length}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_told() {
        for text in [
            "20",
            "dtn:*",
            "dtn://node1/",
            "dtn://node1/in",
            "dtn:///**",
            "dtn://node*/**",
            "dtn://a/b/**",
            "ipn:20",
            "ipn:20.1",
            "ipn:[20-].*",
            "ipn:[20-39.*",
            "ipn:[39-20].*",
            "ipn:4294967296.*",
            "ipn:1.2.3.*",
            "ipn:[].*",
            "ipn:-1.*",
        ] {
            let error = NodePattern::parse(text).expect_err(text);
            assert!(error.contains(text), "{error}");
        }
    }
}

/// Which node the connections to some destinations go to.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutletConfig {
    /// The edge node that dials these destinations.
    pub node: u64,
    /// Destination networks; the longest prefix wins. Empty: all
    /// destinations, and all names. Default empty.
    #[serde(default)]
    pub destinations: Vec<IpNet>,
}
