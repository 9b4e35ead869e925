//! What is asked of this hub by way of the control service: which streams a terminal
//! has. They end here, so the satellite carries nothing of it; one question is
//! answered after the other, each by a look at that terminal's streams.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use underpass_cla::Class;
use underpass_control_client::Service as ControlService;

use super::background;
use crate::config::Current;
use crate::shell::{ListedStream, PeerStreams, Shell};

/// A larger question is none.
const MOST_QUESTION_BYTES: usize = 1024;
/// Questions that wait; a later one is not answered.
const WAITING: usize = 16;
/// The service takes no more streams, paths of each, and characters of a name.
const MOST_STREAMS: usize = 200;
const MOST_PATHS: usize = 4;
const MOST_NAME: usize = 64;
/// The service says no more of an answer.
const MOST_ANSWERED_BYTES: usize = 1024;

/// Why a question is not answered.
#[derive(Debug, Error)]
pub(super) enum QuestionError {
    #[error("it has {0} bytes")]
    Size(usize),
    #[error(transparent)]
    Malformed(#[from] serde_json::Error),
    #[error("others wait already")]
    TooMany,
}

/// Which streams somebody wants to see.
#[derive(Debug, Deserialize)]
struct Question {
    question: String,
    terminal: u64,
    limit: usize,
}

#[derive(Debug, Serialize)]
struct Answer<'a> {
    question: &'a str,
    open: usize,
    streams: Vec<Row>,
}

/// A stream as the service is told of it.
#[derive(Debug, Serialize)]
struct Row {
    id: u64,
    epoch: u64,
    target: Option<String>,
    class: String,
    state: &'static str,
    paths: Vec<String>,
    age_ms: u64,
    forward_bytes: u64,
    return_bytes: u64,
    waiting_bytes: u64,
    unread_bytes: u64,
}

/// Takes questions, which a task answers.
#[derive(Debug)]
pub(super) struct Questions(mpsc::Sender<Question>);

impl Questions {
    /// Takes them from now on; they are answered until the task is dropped.
    pub fn start(
        current: &Arc<Current>,
        shell: &Arc<Shell>,
        control: Arc<ControlService>,
    ) -> (Questions, AbortOnDropHandle<()>) {
        let (sender, waiting) = mpsc::channel(WAITING);
        let answering = answer_all(current.clone(), shell.clone(), control, waiting);
        (Questions(sender), background(answering))
    }

    /// Takes a question, as its document.
    ///
    /// # Errors
    /// When it is none, or too many wait.
    pub fn take(&self, document: &[u8]) -> Result<(), QuestionError> {
        if document.len() > MOST_QUESTION_BYTES {
            return Err(QuestionError::Size(document.len()));
        }
        let question = serde_json::from_slice(document)?;
        let taken = self.0.try_send(question);
        taken.map_err(|_| QuestionError::TooMany)
    }
}

async fn answer_all(
    current: Arc<Current>,
    shell: Arc<Shell>,
    control: Arc<ControlService>,
    mut waiting: mpsc::Receiver<Question>,
) {
    while let Some(asked) = waiting.recv().await {
        let terminal = asked.terminal;
        let streams = shell.streams_with(terminal, asked.limit.min(MOST_STREAMS));
        let config = current.get();
        let path = format!("/v1/gateways/{}/streams", config.node.number);
        let classes = config.classes.iter().map(|class| class.name.clone());
        let classes: Vec<String> = classes.collect();
        let body = match serde_json::to_string(&answer(&classes, &asked, streams)) {
            Ok(body) => body,
            Err(error) => {
                tracing::error!(terminal, %error, "streams not told");
                continue;
            }
        };
        if let Err(error) = control.post(&path, body, MOST_ANSWERED_BYTES).await {
            // Whoever asked is told so by the service.
            tracing::info!(terminal, %error, "streams not told");
        }
    }
}

/// The answer; `classes` are named in the order of their numbers.
fn answer<'a>(classes: &[String], asked: &'a Question, streams: PeerStreams) -> Answer<'a> {
    let PeerStreams {
        open,
        largest,
        paths,
    } = streams;
    let rows = largest.into_iter().map(|of| row(classes, &paths, of));
    Answer {
        question: &asked.question,
        open,
        streams: rows.collect(),
    }
}

fn row(classes: &[String], paths: &BTreeMap<Class, Vec<String>>, of: ListedStream) -> Row {
    let info = of.info;
    let class = classes.get(usize::from(info.class.0)).cloned();
    let class = class.unwrap_or_else(|| info.class.to_string());
    let paths = paths.get(&info.class).into_iter().flatten();
    let age = info.opened_at.elapsed().as_millis();
    Row {
        id: info.id.0,
        epoch: of.epoch.0,
        target: of.target,
        class: shortened(&class),
        state: info.state.name(),
        paths: paths.take(MOST_PATHS).map(|path| shortened(path)).collect(),
        age_ms: u64::try_from(age).unwrap_or(u64::MAX),
        forward_bytes: info.sent_bytes,
        return_bytes: info.read_bytes,
        waiting_bytes: info.send_buffered_bytes,
        unread_bytes: info.unread_bytes,
    }
}

fn shortened(name: &str) -> String {
    name.chars().take(MOST_NAME).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use serde_json::json;
    use underpass_streams::{Epoch, StreamId, StreamInfo, StreamState};

    use super::*;

    fn questions() -> (Questions, mpsc::Receiver<Question>) {
        let (sender, waiting) = mpsc::channel(WAITING);
        (Questions(sender), waiting)
    }

    #[test]
    fn what_is_no_question_is_not_taken_and_too_many_are_refused() {
        let (questions, _waiting) = questions();
        let question = r#"{"question":"6b1f0c9a5e7d2c44","terminal":10,"limit":100,"later":1}"#;
        for wrong in ["", "{}", r#"{"question":1,"terminal":10,"limit":1}"#] {
            let refused = questions.take(wrong.as_bytes()).unwrap_err();
            assert!(matches!(refused, QuestionError::Malformed(_)), "{refused}");
        }
        let long = format!("{question}{}", " ".repeat(MOST_QUESTION_BYTES));
        let refused = questions.take(long.as_bytes()).unwrap_err();
        assert!(matches!(refused, QuestionError::Size(_)), "{refused}");
        for _ in 0..WAITING {
            questions.take(question.as_bytes()).expect("room");
        }
        let refused = questions.take(question.as_bytes()).unwrap_err();
        assert!(matches!(refused, QuestionError::TooMany), "{refused}");
    }

    #[test]
    fn an_answer_is_as_the_service_takes_it() {
        let info = StreamInfo {
            id: StreamId(7),
            class: Class(0),
            state: StreamState::HalfClosedRemote,
            opened_at: Instant::now(),
            sent_bytes: 1_000,
            read_bytes: 20,
            send_buffered_bytes: 3,
            unread_bytes: 4,
        };
        let streams = PeerStreams {
            open: 9,
            largest: vec![ListedStream {
                epoch: Epoch(2),
                info,
                target: Some("example.org:443".to_owned()),
            }],
            paths: BTreeMap::from([(Class(0), vec!["terminal-10".to_owned(); 20])]),
        };
        let asked = Question {
            question: "6b1f0c9a5e7d2c44".to_owned(),
            terminal: 10,
            limit: 1,
        };
        let classes = ["interactive".to_owned()];
        let answer = serde_json::to_value(answer(&classes, &asked, streams)).unwrap();
        let row = &answer["streams"][0];
        assert_eq!(answer["question"], asked.question);
        assert_eq!(answer["open"], 9);
        assert_eq!(row["id"], 7);
        assert_eq!(row["epoch"], 2);
        assert_eq!(row["target"], "example.org:443");
        assert_eq!(row["class"], "interactive");
        assert_eq!(row["state"], "half-closed-remote");
        assert_eq!(row["paths"], json!(vec!["terminal-10"; MOST_PATHS]));
        assert_eq!(row["forward_bytes"], 1_000);
        assert_eq!(row["return_bytes"], 20);
        assert_eq!(row["waiting_bytes"], 3);
        assert_eq!(row["unread_bytes"], 4);
    }
}
