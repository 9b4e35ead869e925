use proptest::prelude::*;

use super::*;
use crate::fix::Fix;
use crate::vectors;

const VECTORS: &str = include_str!("../../../../docs/vectors/gpsd.json");

const TPV: &str = r#"{"class":"TPV","device":"/dev/pts/3","status":1,"mode":3,"time":"2026-06-01T12:00:00.000Z","leapseconds":18,"ept":0.005,"lat":46.316666667,"lon":6.925,"altHAE":421.5,"altMSL":372.0,"alt":372.0,"epx":8.0,"epy":6.0,"track":90.0,"magtrack":88.1,"speed":27.5,"climb":0.0,"eps":16.0,"epc":46.0}"#;
const VERSION: &str =
    r#"{"class":"VERSION","release":"3.22","rev":"3.22","proto_major":3,"proto_minor":14}"#;
const GONE: &str = r#"{"class":"DEVICE","path":"/dev/pts/3","activated":0}"#;
const CAME: &str = r#"{"class":"DEVICE","path":"/dev/pts/3","driver":"NMEA0183","activated":"2026-06-01T12:00:00.000Z","flags":1,"native":0,"bps":4800,"parity":"N","stopbits":1,"cycle":1.00}"#;

fn client(device: Option<&str>) -> (Client, Instant) {
    let now = Instant::now();
    let mut client = Client::new(now, device.map(str::to_owned), 0);
    client.open(now);
    (client, now)
}

fn feed(client: &mut Client, now: Instant, line: &str) -> Vec<Event> {
    client
        .receive(now, format!("{line}\r\n").as_bytes())
        .unwrap()
}

#[test]
fn reports_are_read_as_the_vectors_say() {
    vectors::check(VECTORS, |case| {
        let (mut client, now) = client(None);
        let mut events = vec![];
        for line in &case.lines {
            events.extend(feed(&mut client, now, line));
        }
        (events, client.counts())
    });
}

fn trouble(events: &[Event]) -> &str {
    match events {
        [Event::Trouble(text)] => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_tpv_is_a_fix() {
    let (mut client, now) = client(None);
    assert!(feed(&mut client, now, VERSION).is_empty());
    let expected = Fix {
        time_ms: Some(1_780_315_200_000),
        longitude: 6.925,
        latitude: 46.316666667,
        altitude_m: Some(372.0),
        speed_mps: Some(27.5),
        heading_deg: Some(90.0),
        accuracy_m: Some(50f64.sqrt()),
    };
    assert_eq!(feed(&mut client, now, TPV), [Event::Fix(expected)]);
    // Later sentences of a cycle that add to the fix are not a second fix.
    assert!(feed(&mut client, now, TPV).is_empty());
    assert_eq!((client.counts().fixes, client.counts().rejected), (1, 1));
}

#[test]
fn a_course_that_is_none_costs_that_alone() {
    let (mut client, now) = client(None);
    let line = TPV.replace(r#""track":90.0"#, r#""track":361.0"#);
    let events = feed(&mut client, now, &line);
    match events.as_slice() {
        [Event::Fix(fix)] => assert_eq!((fix.heading_deg, fix.speed_mps), (None, Some(27.5))),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_client_asks_to_watch_when_a_connection_begins() {
    let (mut any, now) = client(None);
    let watch = any.poll_transmit().unwrap();
    assert!(
        watch.starts_with("?WATCH={") && watch.ends_with("};\n"),
        "{watch}"
    );
    assert!(watch.contains(r#""enable":true"#) && watch.contains(r#""json":true"#));
    assert!(!watch.contains("device"), "{watch}");
    assert_eq!(any.poll_transmit(), None);
    any.open(now);
    assert_eq!(any.poll_transmit(), Some(watch));
    let (mut one, _) = client(Some("/dev/ttyACM0"));
    assert!(
        one.poll_transmit()
            .unwrap()
            .contains(r#""device":"/dev/ttyACM0""#)
    );
}

#[test]
fn a_loss_of_fix_is_told() {
    let (mut client, now) = client(None);
    for lost in [
        r#"{"class":"TPV","device":"/dev/pts/3","mode":1}"#,
        r#"{"class":"TPV","mode":1,"time":"2026-06-01T12:00:00.000Z","lat":1.0,"lon":2.0}"#,
        r#"{"class":"TPV","mode":3,"time":"2026-06-01T12:00:00.000Z"}"#,
        r#"{"class":"TPV","mode":3,"status":8,"lat":1.0,"lon":2.0}"#,
    ] {
        assert_eq!(feed(&mut client, now, lost), [Event::NoFix], "{lost}");
    }
    assert_eq!(client.counts().without_fix, 4);
}

#[test]
fn what_cannot_be_is_refused_and_counted() {
    let (mut client, now) = client(None);
    for (spoilt, line) in [
        (true, "nonsense"),
        (true, r#"{"class":"TPV","mode":3,"lat":NaN,"lon":2.0}"#),
        (true, r#"{"class":"TPV","mode":3,"lat":"1.0","lon":2.0}"#),
        (true, "[]"),
        (true, r#"{"no":"class"}"#),
        (false, r#"{"class":"TPV","mode":3,"lat":91.0,"lon":2.0}"#),
        (
            false,
            r#"{"class":"TPV","mode":3,"lat":1.0,"lon":2.0,"speed":1000.0}"#,
        ),
        (
            false,
            r#"{"class":"TPV","mode":3,"lat":1.0,"lon":2.0,"time":"now"}"#,
        ),
    ] {
        let before = client.counts();
        assert!(feed(&mut client, now, line).is_empty(), "{line}");
        let after = client.counts();
        assert_eq!(after.spoilt - before.spoilt, u64::from(spoilt), "{line}");
        assert_eq!(
            after.rejected - before.rejected,
            u64::from(!spoilt),
            "{line}"
        );
    }
}

#[test]
fn a_receiver_that_goes_and_none_at_all_are_told() {
    let (mut client, now) = client(None);
    assert!(feed(&mut client, now, CAME).is_empty());
    assert!(trouble(&feed(&mut client, now, GONE)).contains("/dev/pts/3"));
    let none = r#"{"class":"DEVICES","devices":[]}"#;
    assert_eq!(
        trouble(&feed(&mut client, now, none)),
        "gpsd has no receiver"
    );
    let error = r#"{"class":"ERROR","message":"Unrecognized\u0007 request"}"#;
    let told = feed(&mut client, now, error);
    assert_eq!(trouble(&told), "gpsd: Unrecognized request");
}

#[test]
fn of_several_receivers_the_one_that_is_named_counts() {
    let (mut client, now) = client(Some("/dev/ttyACM0"));
    assert!(feed(&mut client, now, TPV).is_empty());
    let named = TPV.replace("/dev/pts/3", "/dev/ttyACM0");
    assert_eq!(feed(&mut client, now, &named).len(), 1);
    assert!(feed(&mut client, now, GONE).is_empty());
    let others = r#"{"class":"DEVICES","devices":[{"path":"/dev/pts/3"}]}"#;
    assert!(trouble(&feed(&mut client, now, others)).ends_with("/dev/ttyACM0"));
}

#[test]
fn another_version_of_the_protocol_is_refused() {
    let (mut client, now) = client(None);
    let later = VERSION.replace("\"proto_major\":3", "\"proto_major\":4");
    let refused = client.receive(now, format!("{later}\n{TPV}\n").as_bytes());
    assert_eq!(refused, Err(FeedError::Version(4)));
}

#[test]
fn a_silent_gpsd_is_asked_once_and_then_given_up() {
    let (mut client, now) = client(None);
    client.poll_transmit();
    assert_eq!(client.deadline(), now + SILENCE);
    assert_eq!(client.elapse(now + SILENCE), Ok(vec![]));
    assert_eq!(client.poll_transmit().as_deref(), Some("?DEVICES;\n"));
    assert_eq!(client.deadline(), now + 2 * SILENCE);
    let answered = now + SILENCE + Duration::from_millis(5);
    feed(&mut client, answered, CAME);
    assert_eq!(client.deadline(), answered + SILENCE);
    client.elapse(answered + SILENCE).unwrap();
    let gone = client.elapse(answered + 2 * SILENCE);
    assert_eq!(gone, Err(FeedError::Silent(2 * SILENCE)));
}

#[test]
fn an_oversized_line_is_passed_over_and_hides_no_later_one() {
    let (mut client, now) = client(None);
    for _ in 0..100 {
        assert_eq!(client.receive(now, &[b'x'; 4096]), Ok(vec![]));
    }
    assert!(feed(&mut client, now, "").is_empty());
    assert_eq!(feed(&mut client, now, TPV).len(), 1);
    assert_eq!(client.counts().spoilt, 1);
}

#[test]
fn a_week_number_that_rolled_over_is_mended() {
    let now = Instant::now();
    let mut client = Client::new(now, None, 1_767_225_600_000);
    let events = feed(&mut client, now, &TPV.replace("2026-06-01", "2006-10-16"));
    let [Event::Fix(fix)] = events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(fix.time_ms, Some(1_780_315_200_000));
}

proptest! {
    #[test]
    fn no_bytes_break_the_client(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        let (mut client, now) = client(None);
        prop_assert!(client.receive(now, &bytes).is_ok());
    }
}
