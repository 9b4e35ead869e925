//! The stream of plans.

use std::sync::Arc;

use hyper::StatusCode;
use underpass_control_client::{Follower, State};

use crate::service::{Control, Plans, until};

const FIRST: &str = "\
: the newest first\n\n\
id: east.forward.1\nevent: plan\ndata: {\"plan\":1}\n\n\
id: east.forward.2\nevent: plan\ndata: {\"plan\":2}\n\n\
id: east.forward.3\nevent: plan\ndata: {\"plan\":3}";

const SECOND: &str =
    "id: east.forward.3\nevent: plan\ndata: {\"plan\":3}\n\nevent: cut\ndata: bye\n\n";

#[tokio::test]
async fn after_a_cut_the_stream_goes_on_where_it_was() {
    let control = Control::start();
    control.state().scripts = vec![FIRST, SECOND];
    let plans = Arc::new(Plans::default());
    let follower = Follower::start(1, control.service(), plans.clone());
    until(|| control.state().streams.len() == 3).await;
    let taken = plans.0.lock().unwrap().clone();
    assert_eq!(taken, [r#"{"plan":1}"#, r#"{"plan":2}"#, r#"{"plan":3}"#]);
    let asked = control.state().streams.clone();
    let id = |id: &str| Some(id.to_owned());
    // The third event was cut off, and its id with it.
    assert_eq!(asked, [None, id("east.forward.2"), id("east.forward.3")]);
    until(|| follower.following().contact().state == State::Well).await;
}

#[tokio::test]
async fn a_service_that_lets_nobody_in_is_told() {
    let control = Control::start();
    control.state().status = Some(StatusCode::FORBIDDEN);
    let follower = Follower::start(1, control.service(), Arc::new(Plans::default()));
    until(|| follower.following().contact().state == State::Denied).await;
    let error = follower.following().contact().error.unwrap();
    assert!(error.starts_with("403"), "{error}");
}

#[tokio::test]
async fn an_event_that_is_too_large_is_passed_over_and_the_stream_goes_on() {
    let control = Control::start();
    let large = "x".repeat(10 << 20);
    let script = format!(
        "id: east.forward.1\nevent: plan\ndata: {large}\n\n\
         id: east.forward.2\nevent: plan\ndata: {{\"plan\":2}}\n\n"
    );
    let script: &'static str = Box::leak(script.into_boxed_str());
    control.state().scripts = vec![script];
    let plans = Arc::new(Plans::default());
    let follower = Follower::start(1, control.service(), plans.clone());
    until(|| control.state().streams.len() == 2).await;
    assert_eq!(*plans.0.lock().unwrap(), [r#"{"plan":2}"#]);
    assert_eq!(follower.following().passed_over(), 1);
    let asked = control.state().streams.clone();
    assert_eq!(asked, [None, Some("east.forward.2".to_owned())]);
}

#[tokio::test]
async fn a_question_comes_between_plans_and_moves_no_id() {
    let control = Control::start();
    let script = "id: east.forward.1\nevent: plan\ndata: {\"plan\":1}\n\n\
         event: streams\ndata: {\"terminal\":10}\n\n\
         event: of-a-later-version\ndata: {}\n\n";
    control.state().scripts = vec![script];
    let plans = Arc::new(Plans::default());
    let _follower = Follower::start(1, control.service(), plans.clone());
    until(|| control.state().streams.len() == 2).await;
    let taken = plans.0.lock().unwrap().clone();
    assert_eq!(taken, [r#"{"plan":1}"#, r#"{"terminal":10}"#]);
    let asked = control.state().streams.clone();
    assert_eq!(asked, [None, Some("east.forward.1".to_owned())]);
}
