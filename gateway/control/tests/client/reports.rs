//! Reports in transit to the service.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use serde_json::{Value, json};
use underpass_control_client::{
    Lane, Poster, PosterConfig, Posting, Service, ServiceConfig, State, Taken, Trust,
};

use crate::service::{Control, T_MS, TOKEN, Told, until};

fn config(control: &Control, durable: bool) -> PosterConfig {
    PosterConfig {
        node: 1,
        interval: Duration::from_millis(100),
        spool_file: durable.then(|| control.file("spool.sqlite")),
        spool_bytes: 64 << 20,
    }
}

fn start(control: &Control, durable: bool) -> (Poster, Arc<Told>) {
    let told = Arc::new(Told::default());
    let service = control.service();
    let poster = Poster::start(&config(control, durable), service, told.clone());
    (poster.unwrap(), told)
}

fn take(posting: &Posting, lane: Lane, number: u64, ticket: Option<u64>) {
    let taken = Taken {
        lane,
        made: Instant::now(),
        report: json!({ "n": number }).to_string().into(),
    };
    posting.take(10, vec![taken], ticket);
}

/// The numbers of the reports that the service has received, sorted.
fn numbers(control: &Control) -> Vec<u64> {
    let reports = control.reports();
    let mut numbers: Vec<u64> = reports.iter().map(|r| r["n"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

#[tokio::test]
async fn reports_arrive_with_their_node_and_age_and_are_released() {
    let control = Control::start();
    let (poster, told) = start(&control, true);
    take(&poster.posting(), Lane::Urgent, 1, Some(77));
    until(|| !told.released.lock().unwrap().is_empty()).await;
    assert_eq!(*told.released.lock().unwrap(), [77]);
    let post = control.state().posts[0].clone();
    assert_eq!((&post["version"], &post["node"]), (&json!(1), &json!(1)));
    assert!(post["sent_ms"].as_u64().unwrap() > 1_700_000_000_000);
    assert_eq!(post["reports"][0]["node"], 10);
    assert!(post["reports"][0]["age_ms"].as_u64().unwrap() < 5000);
    assert_eq!(post["reports"][0]["report"], json!({ "n": 1 }));
    let (at, ms) = told.time.lock().unwrap().unwrap();
    let way_ms = ms - (T_MS + 3);
    assert!(
        at.elapsed() < Duration::from_secs(20) && way_ms < 5000,
        "{way_ms}"
    );
    assert_eq!(poster.posting().contact().state, State::Well);
    assert_eq!(poster.posting().figures().accepted, 1);
}

#[tokio::test]
async fn nothing_is_missing_when_the_service_was_away() {
    let mut control = Control::start();
    let (poster, told) = start(&control, true);
    take(&poster.posting(), Lane::Routine, 0, Some(0));
    until(|| numbers(&control).len() == 1).await;
    control.stop();
    for number in 1..=300 {
        let lane = [Lane::Urgent, Lane::Routine][number as usize % 2];
        take(&poster.posting(), lane, number, Some(number));
    }
    // Custody is released once they are on disk.
    until(|| told.released.lock().unwrap().len() == 301).await;
    // The first post may have met the end of its connection.
    let is_refused = |error: String| error.contains("refused");
    until(|| poster.posting().contact().error.is_some_and(is_refused)).await;
    assert_eq!(poster.posting().contact().state, State::Away);
    assert_eq!(poster.posting().figures().spooled, 300);
    control.restart();
    until(|| numbers(&control) == (0..=300).collect::<Vec<_>>()).await;
    until(|| poster.posting().figures().waiting == 0).await;
}

#[tokio::test]
async fn what_one_run_could_not_post_the_next_one_does() {
    let control = Control::start();
    control.state().status = Some(StatusCode::SERVICE_UNAVAILABLE);
    let (poster, told) = start(&control, true);
    (0..50).for_each(|number| take(&poster.posting(), Lane::Routine, number, Some(number)));
    until(|| control.state().failed > 0).await;
    // At the end all reports are on disk, however recent.
    take(&poster.posting(), Lane::Urgent, 50, Some(50));
    poster.close().await;
    assert_eq!(told.released.lock().unwrap().len(), 51);
    control.state().status = None;
    let (poster, _) = start(&control, true);
    until(|| numbers(&control) == (0..=50).collect::<Vec<_>>()).await;
    until(|| poster.posting().figures().waiting == 0).await;
    poster.close().await;
    // Accepted reports are not kept.
    let (poster, _) = start(&control, true);
    assert_eq!(poster.posting().figures().waiting, 0);
}

#[tokio::test]
async fn a_wrong_token_is_told_and_costs_nothing() {
    let control = Control::start();
    std::fs::write(control.file("token"), "up_wrong").unwrap();
    let (poster, _) = start(&control, false);
    take(&poster.posting(), Lane::Urgent, 1, None);
    until(|| poster.posting().contact().state == State::Denied).await;
    let error = poster.posting().contact().error.unwrap();
    assert_eq!(error, "401 Unauthorized: it is as it is");
    let figures = poster.posting().figures();
    assert_eq!(
        (figures.waiting, figures.refused, figures.dropped),
        (1, 0, 0)
    );
}

#[tokio::test]
async fn a_report_that_spoils_its_post_is_left_out() {
    let control = Control::start();
    control.state().poison = Some(r#"{"n":7}"#.to_owned());
    let (poster, _) = start(&control, false);
    (0..20).for_each(|number| take(&poster.posting(), Lane::Routine, number, None));
    until(|| poster.posting().figures().waiting == 0).await;
    let all_but_one: Vec<u64> = (0..20).filter(|number| *number != 7).collect();
    assert_eq!(numbers(&control), all_but_one);
    assert_eq!(poster.posting().figures().refused, 1);
}

async fn answer(service: ServiceConfig) -> Result<Value, String> {
    let service = Service::new(service).map_err(|error| error.to_string())?;
    let post = json!({ "version": 1, "node": 1, "sent_ms": 1, "reports": [] });
    let answer = service.post("/v1/reports", post.to_string(), 1000).await;
    let answer = answer.map_err(|error| error.to_string())?;
    Ok(serde_json::from_slice(&answer).unwrap())
}

#[tokio::test]
async fn only_a_service_that_a_known_authority_vouches_for_is_trusted() {
    let control = Control::start_tls();
    let trusting = ServiceConfig {
        trust: Trust::File(control.file("ca.pem")),
        ..control.config()
    };
    assert_eq!(answer(trusting.clone()).await.unwrap()["accepted"], 0);
    let elsewhere = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(control.file("other.pem"), elsewhere.cert.pem()).unwrap();
    let other = ServiceConfig {
        trust: Trust::File(control.file("other.pem")),
        ..trusting
    };
    let error = answer(other).await.unwrap_err();
    assert!(error.contains("certificate"), "{error}");
    assert!(!error.contains(TOKEN));
}

#[tokio::test]
async fn an_answer_without_end_is_not_read() {
    let control = Control::start();
    let service = control.service();
    let post = json!({ "version": 1, "node": 1, "sent_ms": 1, "reports": [] });
    let answer = service.post("/v1/reports", post.to_string(), 10).await;
    assert!(
        answer
            .unwrap_err()
            .to_string()
            .contains("more than 10 bytes")
    );
}
