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
    assert_eq!(config.paths[0].rtt_ms, 600);
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
fn an_api_on_tcp_needs_a_token() {
    let text = format!("{TERMINAL}\n[api]\nlisten = \"127.0.0.1:8470\"\n");
    let error = parse(&text).unwrap_err().to_string();
    assert!(error.contains("token_file"), "{error}");
}

#[test]
fn the_examples_are_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            Config::load(&path).unwrap();
            seen += 1;
        }
    }
    assert!(seen >= 3, "only {seen} examples");
}
