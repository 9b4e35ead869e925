mod examples;
mod neighbours;

use std::path::Path;

use underpass_engine::PathUse;

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

const RELAY: &str = r#"
[node]
number = 5
role = "relay"

[tls]
plain = true

[[path]]
name = "both"
neighbour = 1
remote = "192.0.2.1:4556"

[[listener]]
name = "all"
listen = "0.0.0.0:4556"

[[terminal]]
node = 10
"#;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("node.toml"))
}

/// A relay with these tables in addition to the required ones.
pub(super) fn relay_with(tables: &str) -> Config {
    parse(&format!("{RELAY}{tables}")).unwrap()
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

#[test]
fn policies_name_paths_that_there_are() {
    let with = |keys: &str| {
        let class = "[[class]]\nname = \"signalling\"\npriority = 0\n[[class]]\n\
                     name = \"normal\"\npriority = 1\n";
        parse(&format!("{HUB}{class}{keys}\n"))
    };
    let config = with("policy = \"failover\"\npaths = [\"lte\", \"beam\"]").unwrap();
    assert_eq!(config.classes[1].policy, PathUse::Failover);
    let minfct = with("policy = \"minfct\"\nestimate = \"new-connection\"").unwrap();
    assert_eq!(minfct.classes[1].policy, PathUse::MinFct);
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
fn a_route_to_the_nodes_own_name_is_told() {
    let named = TERMINAL.replacen("role =", "name = \"edge-7\"\nrole =", 1);
    let route = |to: &str| format!("{named}[[route]]\nnodes = \"dtn://{to}/**\"\nvia = 1\n");
    assert!(parse(&route("edge-8")).is_ok());
    let error = parse(&route("edge-7")).unwrap_err().to_string();
    assert!(
        error.contains("dtn://edge-7/ leads to this node"),
        "{error}"
    );
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
