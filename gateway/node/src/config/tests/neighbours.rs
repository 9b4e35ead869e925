//! Paths, terminals, and the routes through them.

use super::*;

#[test]
fn a_path_of_a_terminal_is_told_by_its_listener() {
    let config = parse(&format!("{HUB}[[terminal.path]]\nlistener = \"lte\"\n")).unwrap();
    let hops: Vec<AcceptedHop> = config.accepted_hops().collect();
    let names: Vec<&str> = hops.iter().map(|hop| hop.name.as_str()).collect();
    assert_eq!(names, ["terminal-10", "terminal-10-lte"]);
    for (listener, own) in [("beam", 0), ("lte", 1)] {
        let by = hops.iter().filter(|hop| hop.comes_by(listener));
        let by: Vec<&str> = by.map(|hop| hop.name.as_str()).collect();
        assert_eq!(by, [names[own]]);
    }
    for (path, problem) in [
        ("listener = \"dsl\"", "there is no [[listener]] \"dsl\""),
        (
            "listener = \"lte\"\n[[terminal.path]]\nlistener = \"lte\"",
            "\"terminal-10-lte\" is there twice",
        ),
        (
            "listener = \"lte\"\n[[terminal.path]]\nlistener = \"beam\"",
            "every listener is that of a [[terminal.path]]",
        ),
        ("listener = \"lte\"\nsend_rate_bps = 1", "send_rate_bps"),
    ] {
        let text = format!("{HUB}[[terminal.path]]\n{path}\n");
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains(problem), "{problem} is missing in:\n{error}");
    }
}

#[test]
fn a_relay_may_forward_to_a_neighbour_without_custody() {
    let relay = |via: u64| {
        format!(
            r#"
[node]
number = 5
role = "relay"
[tls]
plain = true
[[path]]
name = "hub"
neighbour = 1
remote = "10.9.0.1:4556"
[[path]]
name = "other"
neighbour = 2
remote = "10.9.0.2:4556"
[[route]]
node = 1
via = {via}
custody = false
"#
        )
    };
    assert!(!parse(&relay(1)).unwrap().routes[0].custody.is_taken());
    let error = parse(&relay(2)).unwrap_err().to_string();
    assert!(error.contains("reached directly"), "{error}");
}

#[test]
fn a_network_is_of_one_path_or_terminal() {
    let hub = |eleventh: &str| {
        format!(
            r#"
node = {{ number = 1, role = "hub" }}
tls = {{ plain = true }}
listener = [{{ name = "beam", listen = "[::]:4556" }}]
terminal = [
    {{ node = 10, networks = ["10.1.0.0/16", "10.1.2.0/24", "fd00:1::/48"] }},
    {{ node = 11, networks = [{eleventh}] }},
]
[[path]]
name = "other"
neighbour = 2
remote = "10.9.0.2:4556"
networks = ["10.3.0.0/16"]
"#
        )
    };
    parse(&hub(r#""10.2.0.0/16", "fd00:2::/48""#)).unwrap();
    for (network, part) in [
        ("10.1.0.0/16", "10.1.0.0/16 of terminal 10"),
        ("10.1.9.0/24", "10.1.0.0/16 of terminal 10"),
        ("10.0.0.0/8", "10.3.0.0/16 of path \"other\""),
        ("fd00:1:0:5::/64", "fd00:1::/48 of terminal 10"),
    ] {
        let error = parse(&hub(&format!("{network:?}"))).unwrap_err();
        let error = error.to_string();
        let told = format!("terminal 11: networks: {network} overlaps with {part}");
        assert!(error.contains(&told), "{told} is missing in:\n{error}");
    }
}

#[test]
fn each_wrong_route_is_told_once() {
    let routes: String = [(5, 7), (2, 9), (6, 1), (6, 1)]
        .map(|(node, via)| format!("\n[[route]]\nnode = {node}\nvia = {via}\n"))
        .concat();
    let error = parse(&format!("{TERMINAL}{routes}"))
        .unwrap_err()
        .to_string();
    let told: Vec<&str> = error
        .lines()
        .filter(|line| line.contains("route"))
        .collect();
    assert_eq!(told.len(), 3, "{error}");
    for (line, part) in told.iter().zip(["node 7", "this node", "twice"]) {
        assert!(line.contains(part), "{error}");
    }
}

#[test]
fn a_path_over_quic_needs_certificates_and_packets_of_some_size() {
    let quic = format!("{TERMINAL}convergence_layer = \"quic\"\n");
    let error = parse(&quic).unwrap_err().to_string();
    assert!(error.contains("there is no plain QUIC"), "{error}");
    let certified = quic.replace("plain = true", "pki_dir = \"pki\"");
    let config = parse(&certified).unwrap();
    assert!(config.has_quic());
    assert_eq!(config.paths[0].convergence_layer, ConvergenceLayer::Quic);
    let error = parse(&format!("{certified}mtu_bytes = 1200\n")).unwrap_err();
    assert!(error.to_string().contains("mtu_bytes"), "{error}");
    let error = parse(&certified.replace("\"quic\"", "\"sctp\"")).unwrap_err();
    assert!(error.to_string().contains("`tcpcl`, `quic`"), "{error}");
}

#[test]
fn a_neighbour_needs_a_path_by_which_something_is_sent() {
    let receives = "direction = \"receive\"\n";
    let alone = parse(&format!("{TERMINAL}{receives}")).unwrap_err();
    assert!(
        alone.to_string().contains("neighbour 1: all paths"),
        "{alone}"
    );
    let other = "[[path]]\nname = \"lte\"\nneighbour = 1\nremote = \"10.8.0.1:4556\"\n";
    let config = parse(&format!("{TERMINAL}{receives}{other}")).unwrap();
    let directions = config.paths.iter().map(|path| path.direction);
    let expected = [PathDirection::Receive, PathDirection::Both];
    assert!(directions.eq(expected), "{:?}", config.paths);
    let hub = parse(&format!("{HUB}{receives}")).unwrap_err();
    assert!(hub.to_string().contains("neighbour 10: all paths"), "{hub}");
    let hub = format!("{HUB}[[terminal.path]]\nlistener = \"lte\"\n{receives}");
    let hub = parse(&hub).unwrap();
    let accepted: Vec<PathDirection> = hub.accepted_hops().map(|hop| hop.direction).collect();
    assert_eq!(accepted, [PathDirection::Both, PathDirection::Receive]);
    let send = parse(&format!("{TERMINAL}direction = \"send\"\n")).unwrap_err();
    assert!(send.to_string().contains("`both` or `receive`"), "{send}");
}

#[test]
fn a_path_that_changes_its_convergence_layer_is_another_way() {
    let certified = TERMINAL.replace("plain = true", "pki_dir = \"pki\"");
    let tcp = parse(&certified).unwrap();
    let quic = parse(&format!("{certified}convergence_layer = \"quic\"\n")).unwrap();
    assert!(!tcp.paths[0].is_same_way(&quic.paths[0]));
    assert!(!tcp.has_quic());
}

#[test]
fn beacons_leave_quic_its_port() {
    assert_eq!(ConvergenceLayer::Tcpcl.beacon_port(4556), 4556);
    assert_eq!(ConvergenceLayer::Quic.beacon_port(4556), 4557);
}

#[test]
fn what_authenticates_nobody_is_for_one_neighbour_at_one_address() {
    let plain = TERMINAL.replace("plain = true", "");
    for layer in ["stcp", "mtcp", "udp", "ltp"] {
        let layer = format!("convergence_layer = \"{layer}\"\n");
        let whole = format!("{plain}{layer}listen = \"10.9.0.2:4556\"\n");
        let config = parse(&whole).unwrap();
        assert!(config.paths[0].convergence_layer.is_bare());
        assert!(!config.has_quic());
        let refused = |text: &str, part: &str| {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{part} is missing in:\n{error}");
        };
        refused(&format!("{plain}{layer}"), "needs listen");
        refused(
            &whole.replace("10.9.0.1:", "0.0.0.0:"),
            "address of one host",
        );
        refused(
            &whole.replace("10.9.0.2:4556", "10.9.0.2:0"),
            "needs a port",
        );
        let second = whole.split_once("[[path]]").unwrap().1;
        let second = second.replace("\"sat\"", "\"other\"");
        refused(
            &format!("{whole}[[path]]{second}"),
            "listen is that of path",
        );
        let listener = "[[listener]]\nname = \"in\"\nlisten = \"[::]:4556\"\n";
        let terminal = "[[terminal]]\nnode = 3\n";
        refused(
            &format!("{TERMINAL}{listener}{layer}{terminal}"),
            "authenticate nobody",
        );
    }
    let ecla = "convergence_layer = \"ecla\"\nannounces = [21]\n";
    // It is dialled and does not listen.
    assert!(parse(&format!("{plain}{ecla}")).is_ok());
    for layer in ["udp", "ltp"] {
        let rateless = plain.replace("send_rate_bps = 2_000_000\n", "");
        let text =
            format!("{rateless}convergence_layer = \"{layer}\"\nlisten = \"10.9.0.2:4556\"\n");
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains("needs send_rate_bps"), "{error}");
    }
    let error = parse(&format!("{TERMINAL}listen = \"10.9.0.2:4556\"\n")).unwrap_err();
    assert!(error.to_string().contains("listen is for"), "{error}");
    for (layer, taken) in [("ltp", true), ("udp", false), ("stcp", false)] {
        let text = format!(
            "{plain}convergence_layer = \"{layer}\"\nlisten = \"10.9.0.2:4556\"\ngreen = true\n"
        );
        match parse(&text) {
            Ok(config) => assert!(taken && config.paths[0].green),
            Err(error) => assert!(!taken && error.to_string().contains("green"), "{error}"),
        }
    }
}

#[test]
fn a_meter_names_classes_that_there_are_and_a_day_that_every_month_has() {
    let with = |keys: &str| {
        parse(&format!(
            "{HUB}[[terminal.path]]\nlistener = \"lte\"\n{keys}\n"
        ))
    };
    let meter = |keys: &str| {
        with(&format!("[terminal.path.meter]\n{keys}"))
            .unwrap()
            .terminals[0]
            .paths[0]
            .meter
            .clone()
            .unwrap()
    };
    assert_eq!(
        meter("budget_bytes = 2_000_000_000\nbeyond = [\"signalling\"]"),
        MeterSettings {
            budget_bytes: Some(2_000_000_000),
            period: BudgetPeriod::Month,
            first_day: 1,
            beyond: vec!["signalling".to_owned()],
        }
    );
    assert_eq!(meter("period = \"once\"").budget_bytes, None);
    for (keys, problem) in [
        ("budget_bytes = 0", "must be 1 to 1000000000000000"),
        ("first_day = 29", "must be 1 to 28"),
        (
            "period = \"day\"\nfirst_day = 3",
            "of no use without period",
        ),
        ("period = \"week\"", "unknown variant"),
        ("beyond = [\"bulk\"]", "of no use without budget_bytes"),
        (
            "budget_bytes = 5\nbeyond = [\"gold\"]",
            "there is no class \"gold\"",
        ),
        (
            "budget_bytes = 5\nbeyond = [\"bulk\", \"bulk\"]",
            "\"bulk\" is there twice",
        ),
    ] {
        let error = with(&format!("[terminal.path.meter]\n{keys}")).unwrap_err();
        let error = error.to_string();
        assert!(error.contains(problem), "{problem} is missing in:\n{error}");
    }
}

#[test]
fn metered_paths_have_a_longer_keepalive_where_beacons_watch_them() {
    let watched = "[beacons]\nkey_file = \"/beacons.key\"\n";
    let keepalives = |text: &str| {
        let config = parse(&format!("{TERMINAL}{text}")).unwrap();
        [false, true].map(|is_metered| config.keepalive_s(is_metered))
    };
    assert_eq!(keepalives(""), [30, 30]);
    assert_eq!(keepalives(watched), [30, 150]);
    for (tcp, expected) in [
        ("metered_keepalive_s = 240", [30, 240]),
        ("keepalive_s = 200", [200, 200]),
        ("keepalive_s = 0", [0, 0]),
    ] {
        assert_eq!(keepalives(&format!("{watched}[tcp]\n{tcp}\n")), expected);
    }
    for keepalive_s in [14, 601] {
        let text = format!("{TERMINAL}[tcp]\nmetered_keepalive_s = {keepalive_s}\n");
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains("must be 15 to 600"), "{error}");
    }
}
