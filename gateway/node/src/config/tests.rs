mod examples;

use std::path::Path;

use super::*;

const TERMINAL: &str = r#"
[node]
number = 2
role = "terminal"

[tls]
plain = true

[[path]]
name = "sat"
neighbour = 1
remote = "10.9.0.1:4556"
send_rate_bps = 2_000_000
receive_rate_bps = 40_000_000
"#;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("node.toml"))
}

#[test]
fn a_terminal_needs_little() {
    let config = parse(TERMINAL).unwrap();
    assert_eq!(config.node.role, Role::Terminal);
    assert_eq!(config.neighbours(), BTreeSet::from([1]));
    assert_eq!(config.classes.len(), 4);
    assert_eq!(config.paths[0].rtt(), link::GUESSED_RTT);
}

#[test]
fn an_unknown_key_is_named_with_its_line() {
    let text = format!("{TERMINAL}\nsend_rate = 5\n");
    let error = parse(&text).unwrap_err().to_string();
    assert!(error.contains("send_rate"), "{error}");
    assert!(error.contains("line"), "{error}");
}

#[test]
fn every_problem_is_told_at_once() {
    let text = r#"
[node]
number = 0
role = "hub"

[[listener]]
name = "sat"
listen = "[::]:4556"

[[outlet]]
node = 7
"#;
    let error = parse(text).unwrap_err().to_string();
    for part in ["node.number", "[[terminal]]", "outlet to node 7", "tls:"] {
        assert!(error.contains(part), "{part} is missing in:\n{error}");
    }
}

#[test]
fn an_api_on_tcp_needs_tokens_and_beyond_loopback_tls() {
    let token = "[[api.token]]\nname = \"a\"\nrole = \"read\"\nfile = \"/token\"";
    let hash = "ab".repeat(32);
    let valid = [
        format!("[api]\nlisten = \"127.0.0.1:8470\"\n{token}"),
        format!("[api]\nlisten = \"[::1]:8470\"\n{token}"),
        format!("[api]\nlisten = \"192.0.2.1:8470\"\nplain = true\n{token}"),
        format!(
            "[api]\nlisten = \"0.0.0.0:8470\"\ncertificate_file = \"/c\"\nkey_file = \"/k\"\n{token}"
        ),
        format!(
            "[api]\nlisten = \"127.0.0.1:8470\"\n{token}\n\
             [[api.token]]\nname = \"b\"\nrole = \"metrics\"\nsha256 = \"{hash}\""
        ),
    ];
    for text in valid {
        parse(&format!("{TERMINAL}\n{text}")).unwrap();
    }
    let other = |entry: &str| format!("[api]\nlisten = \"127.0.0.1:8470\"\n[[api.token]]\n{entry}");
    let invalid = [
        (
            "[api]\nlisten = \"127.0.0.1:8470\"".to_owned(),
            "needs an [[api.token]]",
        ),
        (token.to_owned(), "needs api.listen"),
        (
            format!("[api]\nlisten = \"192.0.2.1:8470\"\n{token}"),
            "without TLS",
        ),
        (
            format!("[api]\nlisten = \"[::]:8470\"\n{token}"),
            "without TLS",
        ),
        (
            format!("[api]\nlisten = \"127.0.0.1:8470\"\nkey_file = \"/k\"\n{token}"),
            "need each other",
        ),
        (
            other("name = \"a\"\nrole = \"read\""),
            "either sha256 or file",
        ),
        (
            other("name = \"a\"\nrole = \"read\"\nsha256 = \"abcd\""),
            "64 hexadecimal digits",
        ),
        (
            other(&format!(
                "name = \"a\"\nrole = \"read\"\nsha256 = \"{}\"",
                "é".repeat(32)
            )),
            "64 hexadecimal digits",
        ),
        (
            other("name = \"a\"\nrole = \"root\"\nfile = \"/t\""),
            "root",
        ),
    ];
    for (text, part) in invalid {
        let error = parse(&format!("{TERMINAL}\n{text}"))
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{part} is missing in:\n{error}");
    }
}

#[test]
fn every_problem_of_the_edge_is_told_at_once() {
    let text = format!(
        r#"{TERMINAL}
[streams]
default_class = "usual"
[tcp]
backoff_min_s = -1.0
[log]
level = "info,=loud"
[[listener]]
name = "a"
listen = "[::]:4556"
[edge]
client_networks = ["10.0.0.0/8"]
[[edge.listener]]
name = "in"
protocol = "socks5"
address = "[::]:1080"
max_connections = 0
[[edge.listener]]
name = "in"
protocol = "transparent"
address = "[::]:1080"
handshake_timeout_s = nan
client_networks = []
users = [{{ name = "a:b", password = "" }}]
[[edge.rule]]
class = "urgent"
listeners = ["out"]
dscp = [64]
ports = []
[edge.dial]
connect_timeout_s = 0.0
families = []
"#
    );
    let error = parse(&text).unwrap_err().to_string();
    for part in [
        "streams.default_class: there is no class \"usual\"",
        "backoff_min_s",
        "log.level",
        "needs the [[terminal]]s",
        "max_connections",
        "\"in\" is there twice",
        "another listener has [::]:1080",
        "handshake_timeout_s",
        "nobody may enter",
        "cannot ask for users",
        "colon",
        "1 to 255 bytes",
        "no class \"urgent\"",
        "no listener \"out\"",
        "dscp 64",
        "ports is empty",
        "connect_timeout_s",
        "families is empty",
        "[edge.interception]",
    ] {
        assert!(error.contains(part), "{part} is missing in:\n{error}");
    }
}

#[test]
fn a_users_password_is_kept_in_one_way() {
    let hash = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHQ\
                $CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
    let with = |keys: &str| {
        parse(&format!(
            "{TERMINAL}[edge]\nclient_networks = [\"10.0.0.0/8\"]\n[[edge.listener]]\n\
             name = \"in\"\nprotocol = \"socks5\"\naddress = \"[::]:1080\"\n\
             users = [{{ name = \"a\", {keys} }}]\n"
        ))
    };
    with(&format!("password_hash = \"{hash}\"")).unwrap();
    with("password_file = \"/etc/underpass/a.password\"").unwrap();
    with("password = \"a\"").unwrap();
    let both = format!("password = \"a\", password_hash = \"{hash}\"");
    for (keys, part) in [
        (&*both, "needs one of"),
        ("password_hash = \"secret\"", "underpass hash-password"),
        (
            &*format!("password_hash = \"{}\"", hash.replace("19456", "9999999")),
            "256 MiB",
        ),
    ] {
        let error = with(keys).unwrap_err().to_string();
        assert!(error.contains(part), "{part} is missing in:\n{error}");
    }
}

#[test]
fn a_node_alone_needs_neither_paths_nor_certificates() {
    let text = r#"
node = { number = 1, role = "hub" }
[edge]
client_networks = ["10.0.0.0/8"]
[[edge.listener]]
name = "in"
protocol = "http"
address = "[::]:3128"
"#;
    parse(text).unwrap();
}

#[test]
fn rules_of_bundle_security_must_be_complete() {
    let rule =
        |keys: &str, rule: &str| format!("{TERMINAL}\n[bpsec]\n{keys}\n[[bpsec.rule]]\n{rule}");
    let folder = "keys_dir = \"/keys\"";
    parse(&rule(
        folder,
        "integrity_keys = [\"a\"]\nverify = \"transit\"",
    ))
    .unwrap();
    parse(&rule("", "source = \"ipn:5.*\"")).unwrap();
    for (keys, entry, told) in [
        (
            "",
            "integrity_keys = [\"a\"]",
            "integrity_keys needs bpsec.keys_dir",
        ),
        (
            folder,
            "integrity_keys = [\"../a\"]",
            "an id has 1 to 64 letters",
        ),
        (
            folder,
            "integrity_keys = [\"\"]",
            "an id has 1 to 64 letters",
        ),
        (
            folder,
            "source = \"ipn:5\"",
            "rule 1: source = \"ipn:5\": must be",
        ),
        (folder, "verify = \"transit\"", "needs integrity_keys"),
        (folder, "integrity_hash = \"md5\"", "unknown variant `md5`"),
        (
            folder,
            "integrity_keys = [\"a\", \"b\", \"c\", \"d\", \"e\"]",
            "at most 4 keys",
        ),
        (
            folder,
            "integrity_keys = [\"a\"]\nconfidentiality_keys = [\"a\"]",
            "each needs its own",
        ),
    ] {
        let error = parse(&rule(keys, entry)).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
}

#[test]
fn positions_need_somebody_to_be_told() {
    let positions = "\n[positions]\nsource = \"gpsd\"\n";
    let error = parse(&format!("{TERMINAL}{positions}")).unwrap_err();
    assert!(error.to_string().contains("[positions] needs [reports]"));
    parse(&format!("{TERMINAL}\n[reports]\nto = 1\n{positions}")).unwrap();
    let wrong = format!("{TERMINAL}{positions}baud = 4800\n");
    let error = parse(&wrong).unwrap_err().to_string();
    assert!(error.contains("baud: not for source = \"gpsd\""), "{error}");
}

const HUB: &str = r#"
[node]
number = 1
role = "hub"

[tls]
plain = true

[[listener]]
name = "beam"
listen = "[::]:4556"

[[listener]]
name = "lte"
listen = "[::]:4566"

[[terminal]]
node = 10
"#;

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
fn policies_name_paths_that_there_are() {
    let with = |keys: &str| {
        let class = "[[class]]\nname = \"signalling\"\npriority = 0\n[[class]]\n\
                     name = \"normal\"\npriority = 1\n";
        parse(&format!("{HUB}{class}{keys}\n"))
    };
    let config = with("policy = \"failover\"\npaths = [\"lte\", \"beam\"]").unwrap();
    assert_eq!(config.classes[1].policy, PathPolicy::Failover);
    let minfct = with("policy = \"minfct\"\nestimate = \"new-connection\"").unwrap();
    assert_eq!(minfct.classes[1].policy, PathPolicy::MinFct);
    assert_eq!(minfct.classes[1].estimate, FlowEstimate::NewConnection);
    let keys = "policy = \"migrate\"\n[class.migrate]\nby_rule = false\nafter_s = 2.5";
    let moves = with(keys).unwrap().classes[1].migrate;
    assert_eq!((moves.by_rule, moves.after_s), (false, 2.5));
    for (keys, problem) in [
        (
            "paths = [\"dsl\"]",
            "there is no [[path]] or [[listener]] \"dsl\"",
        ),
        ("paths = [\"lte\", \"lte\"]", "one is there twice"),
        ("policy = \"pinned\"", "needs one path"),
        (
            "policy = \"pinned\"\npaths = [\"lte\", \"beam\"]",
            "needs one path",
        ),
        ("policy = \"fastest\"", "unknown variant"),
        (
            "estimate = \"new-connection\"",
            "estimate is of no use without policy = \"minfct\"",
        ),
        (
            "policy = \"minfct\"\nestimate = \"paper\"",
            "unknown variant",
        ),
        (
            "policy = \"minfct\"\npaths = [\"a\", \"b\", \"c\", \"d\", \"e\"]",
            "takes 4 paths at most",
        ),
        (
            "policy = \"migrate\"\n[class.migrate]\nafter_s = nan",
            "migrate.after_s = NaN: must be 0.5 to 3600",
        ),
        (
            "policy = \"migrate\"\n[class.migrate]\nroom_part = 1.5",
            "migrate.room_part = 1.5: must be 0.001 to 1",
        ),
        (
            "[class.migrate]\nafter_s = 1.0",
            "of no use without policy = \"migrate\"",
        ),
    ] {
        let error = with(keys).unwrap_err().to_string();
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
fn control_service_is_a_hubs_and_has_an_address_that_can_be_used() {
    let with = |url: &str| {
        format!(
            r#"{TERMINAL}
[control]
url = "{url}"
token_file = "control.token"
ca_file = "ca.pem"
interval_ms = 10
timeout_s = 0
spool_bytes = 1000
"#
        )
    };
    let error = parse(&with("http://node@control.example")).unwrap_err();
    let error = error.to_string();
    for part in [
        "[control] is for hubs",
        "no token may stand before the host",
        "only https has certificates",
        "control.interval_ms",
        "control.timeout_s",
        "control.spool_bytes",
    ] {
        assert!(error.contains(part), "{part} is missing in:\n{error}");
    }
    for wrong in [
        "control.example",
        "ftp://a",
        "https://a?b=c",
        "https://a#b",
        "/v1",
        "",
    ] {
        let error = parse(&with(wrong)).unwrap_err().to_string();
        assert!(error.contains("control.url"), "{wrong}: {error}");
    }
}

#[test]
fn token_that_all_can_read_on_the_way_is_noticed() {
    let exposed = |url: &str| {
        let text = format!("url = {url:?}\ntoken_file = \"t\"");
        let control: ControlConfig = toml::from_str(&text).unwrap();
        control.is_exposed()
    };
    for url in [
        "http://localhost:8480",
        "http://[::1]:8480",
        "http://127.0.0.2/",
        "https://a",
    ] {
        assert!(!exposed(url), "{url}");
    }
    for url in ["http://control.example:8480", "http://10.0.0.1"] {
        assert!(exposed(url), "{url}");
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
        assert!(config.has_own_ports() && !config.has_quic());
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
    for layer in ["udp", "ltp"] {
        let rateless = plain.replace("send_rate_bps = 2_000_000\n", "");
        let text =
            format!("{rateless}convergence_layer = \"{layer}\"\nlisten = \"10.9.0.2:4556\"\n");
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains("needs send_rate_bps"), "{error}");
    }
    let error = parse(&format!("{TERMINAL}listen = \"10.9.0.2:4556\"\n")).unwrap_err();
    assert!(error.to_string().contains("listen is for"), "{error}");
}

#[test]
fn rules_that_contradict_themselves_or_each_other_are_refused() {
    let with = |rules: &str| parse(&format!("{HUB}{rules}\n"));
    let rules = "[[edge.rule]]\nname = \"video\"\nhosts = [\"*.cdn.example\"]\n\
                 content_types = [\"video/*\"]\nmin_size_bytes = 1\nmax_size_bytes = 1\n\
                 class = \"bulk\"\n[[edge.rule]]\nclass = \"normal\"\n\
                 [[edge.rule]]\nafter_bytes = 1000000\nclass = \"bulk\"";
    assert_eq!(with(rules).unwrap().edge.rule.len(), 3);
    for (rules, problem) in [
        (
            "[[edge.rule]]\nclass = \"normal\"\n[[edge.rule]]\nports = [22]\nclass = \"bulk\"",
            "edge.rule 2: rule 1 before it matches every connection",
        ),
        (
            "[[edge.rule]]\nmin_size_bytes = 9\nmax_size_bytes = 8\nclass = \"bulk\"",
            "min_size_bytes is above max_size_bytes",
        ),
        (
            "[[edge.rule]]\nafter_bytes = 0\nclass = \"bulk\"",
            "after_bytes must be at least 1",
        ),
        (
            "[[edge.rule]]\nafter_bytes = 9\ndirect = true\nclass = \"bulk\"",
            "direct is decided before a flow begins",
        ),
        (
            "[[edge.rule]]\nhosts = []\nclass = \"bulk\"",
            "hosts is empty, so that nothing matches",
        ),
        (
            "[[edge.rule]]\nhosts = [\"a b\"]\nclass = \"bulk\"",
            "stands for all below it",
        ),
        (
            "[[edge.rule]]\ncontent_types = [\"video\"]\nclass = \"bulk\"",
            "a content type is such as",
        ),
        (
            "[[edge.rule]]\nname = \"a\"\nports = [1]\nclass = \"bulk\"\n\
             [[edge.rule]]\nname = \"a\"\nports = [2]\nclass = \"bulk\"",
            "edge.rule \"a\" is there twice",
        ),
        (
            "[[edge.rule]]\nname = \"\"\nclass = \"bulk\"",
            "a name has 1 to 64 bytes",
        ),
    ] {
        let error = with(rules).unwrap_err().to_string();
        assert!(error.contains(problem), "{problem} is missing in:\n{error}");
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
