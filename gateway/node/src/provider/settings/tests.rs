use std::path::PathBuf;

use underpass_engine::PathUse;

use super::*;
use crate::config::{Coded, Config};

const OWN: &str = r#"
    [node]
    number = 10
    role = "terminal"
    [tls]
    plain = true
    [provider]
    may_set = ["class", "path"]
    [[path]]
    name = "satellite"
    neighbour = 1
    remote = "192.0.2.1:4556"
    [path.on_demand]
    idle_s = 60
    raise = ["/usr/bin/modem", "up"]
"#;

fn document(text: &str) -> Document {
    Document::merge(vec![(PathBuf::from("node.toml"), text.to_owned())]).expect("TOML")
}

fn over(own: &str, settings: &str) -> Result<Config, SettingsError> {
    let text = format!(r#"{{"version":1,"settings":7,"node":10,{settings}}}"#);
    let settings = Settings::decode(text.as_bytes())?;
    Ok(Config::of(&settings.over(&document(own))?)?)
}

fn refusal(own: &str, settings: &str) -> String {
    let error = over(own, settings).expect_err("it is refused");
    error.to_string()
}

#[test]
fn policies_migration_rules_and_paths_are_set() {
    let config = over(
        OWN,
        r#""class":[{"name":"bulk","policy":"migrate","paths":["lte","satellite"],
            "migrate":{"after_s":3.0}},{"name":"normal","metered":"never","coded":"never"}],
           "path":[{"name":"lte","neighbour":1,"remote":"198.51.100.1:4566",
            "convergence_layer":"tcpcl","interface":"wwan0","meter":{"budget_bytes":1000000}},
            {"name":"satellite","on_demand":{"idle_s":5.0},"rtt_ms":550}]"#,
    )
    .expect("it fits");
    let bulk = config.classes.iter().find(|class| class.name == "bulk");
    let bulk = bulk.expect("it is a default one");
    assert_eq!(bulk.policy, PathUse::Migrate);
    assert_eq!(bulk.migrate.after_s, 3.0);
    assert_eq!(config.classes.len(), 4);
    let normal = config.classes.iter().find(|class| class.name == "normal");
    assert_eq!(normal.and_then(|class| class.coded), Some(Coded::Never));
    let [satellite, lte] = &config.paths[..] else {
        panic!("two paths");
    };
    assert_eq!((lte.name.as_str(), satellite.rtt_ms), ("lte", Some(550)));
    let on_demand = satellite.on_demand.as_ref().expect("it stays");
    assert_eq!(on_demand.idle_s.0, 5.0);
    assert_eq!(on_demand.raise, ["/usr/bin/modem", "up"]);
}

const HUB: &str = r#"
    [node]
    number = 1
    role = "hub"
    [tls]
    plain = true
    [provider]
    may_set = ["class", "terminal"]
    [[listener]]
    name = "beam"
    listen = "192.0.2.1:4556"
    [[listener]]
    name = "lte"
    listen = "198.51.100.1:4566"
    [[terminal]]
    node = 10
    rtt_ms = 600
    [[terminal.path]]
    listener = "lte"
    rtt_ms = 50
    [[terminal]]
    node = 11
"#;

#[test]
fn a_hubs_terminals_and_their_paths_are_set() {
    let config = over(
        HUB,
        r#""terminal":[{"node":10,"weight":3,"rtt_ms":550,"path":[{"listener":"lte",
            "direction":"receive","meter":{"budget_bytes":1000000}}]},
           {"node":11,"path":[{"listener":"lte","send_rate_bps":9000000}]}]"#,
    )
    .expect("it fits");
    let [ten, eleven] = &config.terminals[..] else {
        panic!("two terminals");
    };
    assert_eq!((ten.weight, ten.rtt_ms), (3, Some(550)));
    let [lte] = &ten.paths[..] else {
        panic!("one path");
    };
    // Keys that are not set do not change.
    assert_eq!((lte.rtt_ms, lte.meter.is_some()), (Some(50), true));
    assert_eq!(eleven.paths[0].send_rate_bps, Some(9_000_000));
}

#[test]
fn what_is_no_hubs_to_be_set_is_refused() {
    let terminal = |keys: &str| refusal(HUB, &format!(r#""terminal":[{{{keys}}}]"#));
    for (keys, said) in [
        (r#""node":12"#, "no terminal 12"),
        (r#""weight":2"#, "needs a node"),
        (r#""node":10,"networks":[]"#, "networks cannot be set"),
        (r#""node":10,"path":3"#, "path cannot be set"),
        (r#""node":10,"path":[{}]"#, "needs a name"),
        (r#""node":10,"path":[{"listener":"moon"}]"#, "moon"),
        (
            r#""node":10,"path":[{"listener":"lte","listen":"[::]:1"}]"#,
            "listen cannot be set",
        ),
        (
            r#""node":10,"direction":"receive","path":[{"listener":"lte","direction":"receive"}]"#,
            "nothing can be sent",
        ),
    ] {
        let told = terminal(keys);
        assert!(told.contains(said), "{keys}: {told}");
    }
    let twice = refusal(HUB, r#""terminal":[{"node":10},{"node":10}]"#);
    assert!(twice.contains("node of its own"), "{twice}");
    let own = HUB.replace(r#", "terminal""#, "");
    let forbidden = refusal(&own, r#""terminal":[{"node":10,"weight":2}]"#);
    assert!(forbidden.contains("may_set"), "{forbidden}");
    // A terminal has no terminals.
    let own = OWN.replace(r#""path"]"#, r#""terminal"]"#);
    let none = refusal(&own, r#""terminal":[{"node":10}]"#);
    assert!(none.contains("no terminal 10"), "{none}");
}

#[test]
fn nothing_set_is_the_nodes_own_configuration() {
    let config = over(OWN, r#""class":[],"path":[]"#).expect("it fits");
    assert_eq!(config.paths.len(), 1);
}

#[test]
fn what_the_node_forbids_stays_forbidden() {
    let bulk = r#""class":[{"name":"bulk","policy":"duplicated"}]"#;
    for own in [
        OWN.replace(r#"["class", "path"]"#, "[]"),
        OWN.replace(r#"["class", "path"]"#, r#"["path"]"#),
        OWN.replace("[provider]", "[log]")
            .replace(r#"may_set = ["class", "path"]"#, ""),
    ] {
        assert!(refusal(&own, bulk).contains("may_set does not name it"));
    }
    let path = |keys: &str| refusal(OWN, &format!(r#""path":[{{{keys}}}]"#));
    for (keys, said) in [
        (
            r#""name":"satellite","remote":"203.0.113.9:1""#,
            "remote cannot be set",
        ),
        (
            r#""name":"satellite","neighbour":2"#,
            "neighbour cannot be set",
        ),
        (r#""name":"satellite","plain":true"#, "plain cannot be set"),
        (
            r#""name":"satellite","on_demand":{"raise":["/bin/sh"]}"#,
            "on_demand.raise cannot be set",
        ),
        (
            r#""name":"b","neighbour":2,"remote":"203.0.113.9:1""#,
            "neighbour must be one",
        ),
        (r#""name":"b""#, "neighbour must be one"),
        (r#""neighbour":1"#, "needs a name"),
    ] {
        let told = path(keys);
        assert!(told.contains(said), "{keys}: {told}");
    }
    let unknown = refusal(OWN, r#""class":[{"name":"gold","policy":"bonded"}]"#);
    assert!(unknown.contains("no class"), "{unknown}");
    let priority = refusal(OWN, r#""class":[{"name":"bulk","priority":0}]"#);
    assert!(priority.contains("priority cannot be set"), "{priority}");
    let twice = r#""class":[{"name":"bulk"},{"name":"bulk"}]"#;
    assert!(refusal(OWN, twice).contains("name of its own"));
    // Settings that fit no configuration at all.
    let nowhere = r#""class":[{"name":"bulk","paths":["moon"]}]"#;
    assert!(refusal(OWN, nowhere).contains("moon"));
}

#[test]
fn nonsense_is_refused_and_what_is_unknown_too() {
    for text in [
        "",
        "[]",
        r#"{"version":2,"settings":1,"node":10,"news":[]}"#,
        r#"{"version":1,"settings":0,"node":10}"#,
        r#"{"version":1,"settings":9007199254740992,"node":10}"#,
        r#"{"version":1,"settings":1,"node":10,"provider":{"may_set":["path"]}}"#,
        r#"{"version":1,"settings":1,"node":10,"class":[{"name":"bulk","weight":null}]}"#,
    ] {
        assert!(Settings::decode(text.as_bytes()).is_err(), "{text}");
    }
    let large = vec![b' '; MAX_BYTES + 1];
    assert!(matches!(
        Settings::decode(&large),
        Err(SettingsError::Large(_))
    ));
}

#[test]
fn they_are_read_as_they_were_written() {
    let class = Table::from_iter([
        ("name".to_owned(), Value::from("bulk")),
        ("weight".to_owned(), Value::from(3)),
    ]);
    let settings = Settings::new(5, 10, vec![class], Vec::new());
    let document = settings.encode().expect("it is small");
    assert_eq!(Settings::decode(&document).expect("it is one"), settings);
}
