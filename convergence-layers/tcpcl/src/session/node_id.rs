//! Comparison of node ids.

/// Whether two node ids name the same node. `ipn:A.N.S` equals
/// `ipn:(A·2³²+N).S` (RFC 9758, 4.2); all else is compared as text, save that
/// the slash that ends a `dtn:` node id may be left out.
pub fn same_node(a: &str, b: &str) -> bool {
    match (ipn(a), ipn(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a.strip_suffix('/').unwrap_or(a) == b.strip_suffix('/').unwrap_or(b),
    }
}

fn ipn(id: &str) -> Option<(u64, u64)> {
    let mut parts = id.strip_prefix("ipn:")?.split('.');
    let first = number(parts.next()?)?;
    let second = number(parts.next()?)?;
    match (parts.next(), parts.next()) {
        (None, _) => Some((first, second)),
        (Some(service), None) => {
            let allocator = u32::try_from(first).ok()?;
            let node = u32::try_from(second).ok()?;
            Some((
                u64::from(allocator) << 32 | u64::from(node),
                number(service)?,
            ))
        }
        _ => None,
    }
}

/// RFC 9758 allows no leading zeros: otherwise a node would have any number of names.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let exact = digits && (text == "0" || !text.starts_with('0'));
    exact.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::same_node;

    #[test]
    fn the_two_forms_of_ipn_are_equal() {
        assert!(same_node("ipn:10.0", "ipn:0.10.0"));
        assert!(same_node("ipn:4294967297.0", "ipn:1.1.0"));
        assert!(!same_node("ipn:10.0", "ipn:1.10.0"));
        assert!(!same_node("ipn:10.0", "ipn:10.1"));
    }

    #[test]
    fn other_ids_are_compared_as_text() {
        assert!(same_node("dtn://node1/", "dtn://node1"));
        assert!(!same_node("dtn://node1/", "dtn://node2/"));
        for alias in ["ipn:+10.0", "ipn:010.0", "ipn:10.00", "ipn:00.10.0"] {
            assert!(!same_node("ipn:10.0", alias), "{alias}");
        }
    }
}
