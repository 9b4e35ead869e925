//! What requests do, and how wrong ones are answered.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use satlink::beam::{Beam, CapacityProfile, Direction, LinkProfile, LossProfile, TerminalProfile};
use satlink::control::{Reply, Request, Server, execute};

const S: u64 = 1_000_000_000;

fn beam() -> Beam {
    let terminal = |name: &str| TerminalProfile {
        name: name.into(),
        forward: LinkProfile::default(),
        ret: LinkProfile::default(),
        blockages: Vec::new(),
    };
    let capacity = CapacityProfile {
        capacity_bps: Some(10_000_000),
        ..CapacityProfile::default()
    };
    Beam::new(0, 0, [capacity; 2], vec![terminal("t1"), terminal("t2")]).unwrap()
}

fn ask(beam: &mut Beam, now: u64, line: &str) -> Result<(), String> {
    let request: Request = serde_json::from_str(line).map_err(|error| error.to_string())?;
    execute(beam, now, request)
}

#[test]
fn set_changes_the_named_keys_alone() {
    let mut beam = beam();
    let change = r#"{"cmd":"set","terminal":"t1","direction":"forward",
        "link":{"rate_bps":5000,"loss":{"model":"independent","probability":0.5}}}"#;
    ask(&mut beam, 0, change).unwrap();
    ask(
        &mut beam,
        0,
        r#"{"cmd":"set","terminal":"t1","link":{"delay_ms":7}}"#,
    )
    .unwrap();
    let profile = beam.link_profile(0, Direction::Forward);
    assert_eq!((profile.rate_bps, profile.delay_ms), (Some(5000), 7.0));
    assert_eq!(profile.loss, LossProfile::Independent { probability: 0.5 });
    assert_eq!(beam.link_profile(0, Direction::Return).delay_ms, 7.0);
    assert_eq!(beam.link_profile(1, Direction::Forward).delay_ms, 0.0);
    ask(
        &mut beam,
        0,
        r#"{"cmd":"set","link":{"loss":null,"rate_bps":null}}"#,
    )
    .unwrap();
    let profile = beam.link_profile(0, Direction::Forward);
    assert_eq!(
        (profile.rate_bps, profile.loss),
        (None, LossProfile::None {})
    );
}

#[test]
fn refused_request_changes_nothing() {
    let mut beam = beam();
    for (line, wanted) in [
        (
            r#"{"cmd":"set","link":{"delay_ms":1,"colour":2}}"#,
            "colour",
        ),
        (r#"{"cmd":"set","link":{"delay_ms":-1}}"#, "delay_ms"),
        (r#"{"cmd":"block","terminal":"t9"}"#, "t1, t2"),
        (r#"{"cmd":"block","terminal":"t1","for_s":-1}"#, "for_s"),
        (r#"{"cmd":"stats","x":1}"#, "x"),
        (r#"{"cmd":"dance"}"#, "dance"),
        (
            r#"{"cmd":"allocate","direction":"forward","rates_bps":{"t1":10000001}}"#,
            "capacity",
        ),
    ] {
        let error = ask(&mut beam, 0, line).unwrap_err();
        assert!(error.contains(wanted), "{error:?} does not say {wanted:?}");
    }
    for terminal in 0..2 {
        assert!(!beam.is_blocked(0, terminal));
        assert_eq!(beam.allocation(terminal, Direction::Forward), None);
        assert_eq!(
            *beam.link_profile(terminal, Direction::Forward),
            LinkProfile::default()
        );
    }
}

#[test]
fn block_without_a_name_is_for_all() {
    let mut beam = beam();
    ask(&mut beam, S, r#"{"cmd":"block","for_s":2.5}"#).unwrap();
    assert!(beam.is_blocked(S, 0) && beam.is_blocked(S, 1));
    assert!(!beam.is_blocked(S + 5 * S / 2, 1));
    ask(&mut beam, 2 * S, r#"{"cmd":"unblock","terminal":"t1"}"#).unwrap();
    assert!(!beam.is_blocked(2 * S, 0) && beam.is_blocked(2 * S, 1));
}

#[test]
fn schedule_and_allocation_count_from_the_epoch() {
    let mut beam = beam();
    ask(&mut beam, 10 * S, r#"{"cmd":"epoch"}"#).unwrap();
    let schedule =
        r#"{"cmd":"schedule","terminal":"t1","blockages":[{"start_s":1,"duration_s":1}]}"#;
    ask(&mut beam, 10 * S, schedule).unwrap();
    assert!(!beam.is_blocked(10 * S, 0) && beam.is_blocked(11 * S, 0));
    let plan = r#"{"cmd":"allocate","direction":"return","rates_bps":{"t1":1000},"at_s":2}"#;
    ask(&mut beam, 10 * S, plan).unwrap();
    assert_eq!(beam.allocation(0, Direction::Return), None);
    assert!(beam.poll(12 * S).is_none());
    assert_eq!(beam.allocation(0, Direction::Return), Some(1000));
    assert_eq!(beam.allocation(1, Direction::Return), Some(0));
    let shared = r#"{"cmd":"set-beam","direction":"return","beam":{"sharing":"first-come"}}"#;
    ask(&mut beam, 12 * S, shared).unwrap();
    assert_eq!(beam.allocation(0, Direction::Return), None);
}

/// Answers every request with its own name, until the server is dropped.
fn serve_one(server: &Server) {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(60) {
        if let Some(command) = server.next_command() {
            command
                .reply
                .send(Reply::refused(format!("{:?}", command.request)))
                .unwrap();
            return;
        }
        thread::yield_now();
    }
    panic!("no request came");
}

fn converse(path: &Path, text: &str) -> BufReader<UnixStream> {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    BufReader::new(stream)
}

fn line(replies: &mut BufReader<UnixStream>) -> String {
    let mut line = String::new();
    replies.read_line(&mut line).unwrap();
    line
}

#[test]
fn bad_line_is_answered_and_the_connection_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let server = Server::listen(&path).unwrap();
    let mut replies = converse(&path, "nonsense\n\n{\"cmd\":\"epoch\"}\n");
    assert!(line(&mut replies).contains("bad request"));
    serve_one(&server);
    assert!(line(&mut replies).contains("Epoch"));
}

#[test]
fn endless_line_is_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let _server = Server::listen(&path).unwrap();
    let mut replies = converse(&path, &" ".repeat(1 << 20));
    assert!(line(&mut replies).contains("too long"));
    assert_eq!(line(&mut replies), "");
}

#[test]
fn socket_is_taken_over_only_from_the_dead() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let server = Server::listen(&path).unwrap();
    assert!(Server::listen(&path).is_err());
    drop(server);
    assert!(!path.exists());
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(
        Server::listen(&path).is_ok(),
        "a file without a listener is replaced"
    );
}
