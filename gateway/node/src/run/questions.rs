//! Questions to this hub through the control service: which streams a terminal has. The streams end
//! here, so answering needs no satellite traffic. Questions are answered one after the other, each
//! by one look at that terminal's streams.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio_util::task::AbortOnDropHandle;
use underpass_cla::Class;
use underpass_control_client::Service as ControlService;

use super::background;
use crate::config::Current;
use crate::shell::{ListedStream, PeerStreams, Shell};

/// A larger question is none.
const MOST_QUESTION_BYTES: usize = 1024;
/// Questions that wait; a later one is refused. One process of the service asks no more
/// than 24 at once.
const WAITING: usize = 32;
/// The service takes no more refusals together.
const MOST_REFUSED: usize = 64;
/// The service's limits for streams, paths of each, and characters of a name.
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

/// A stream, in the form for the service.
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

/// Takes questions, which one task answers. Another task refuses those that are too many, so that
/// nobody waits for an answer to them.
#[derive(Debug)]
pub(super) struct Questions {
    waiting: mpsc::Sender<Question>,
    /// By their names, those to be refused.
    refused: mpsc::Sender<String>,
}

impl Questions {
    /// Takes them from now on; they are answered until the tasks are dropped.
    pub fn start(
        current: &Arc<Current>,
        shell: &Arc<Shell>,
        control: Arc<ControlService>,
    ) -> (Questions, [AbortOnDropHandle<()>; 2]) {
        let (questions, waiting, refused) = Questions::queues();
        let answering = answer_all(current.clone(), shell.clone(), control.clone(), waiting);
        let refusing = refuse_all(current.clone(), control, refused);
        (questions, [background(answering), background(refusing)])
    }

    fn queues() -> (Questions, mpsc::Receiver<Question>, mpsc::Receiver<String>) {
        let (waiting, to_answer) = mpsc::channel(WAITING);
        let (refused, to_refuse) = mpsc::channel(MOST_REFUSED);
        (Questions { waiting, refused }, to_answer, to_refuse)
    }

    /// Takes a question, as its document; refuses it if there are too many.
    ///
    /// # Errors
    /// When it is none, or too many wait.
    pub fn take(&self, document: &[u8]) -> Result<(), QuestionError> {
        if document.len() > MOST_QUESTION_BYTES {
            return Err(QuestionError::Size(document.len()));
        }
        let question = serde_json::from_slice(document)?;
        self.waiting.try_send(question).map_err(|refused| {
            let (TrySendError::Full(asked) | TrySendError::Closed(asked)) = refused;
            // If even the refusals are too many, the asker gets no answer.
            let _ = self.refused.try_send(asked.question);
            QuestionError::TooMany
        })
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
            // The service reports the failure to the asker.
            tracing::info!(terminal, %error, "streams not told");
        }
    }
}

/// Sends the refusals; those that have come meanwhile together.
async fn refuse_all(
    current: Arc<Current>,
    control: Arc<ControlService>,
    mut refused: mpsc::Receiver<String>,
) {
    let mut questions = Vec::new();
    while refused.recv_many(&mut questions, MOST_REFUSED).await > 0 {
        let node = current.get().node.number;
        let path = format!("/v1/gateways/{node}/streams/refused");
        let body = json!({ "questions": questions }).to_string();
        if let Err(error) = control.post(&path, body, MOST_ANSWERED_BYTES).await {
            // The service reports the failure to the asker.
            tracing::info!(%error, "questions not refused");
        }
        questions.clear();
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
    let paths = paths.get(&info.queue).into_iter().flatten();
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

    use underpass_streams::{Epoch, StreamId, StreamInfo, StreamState, lane};

    use super::*;

    #[test]
    fn what_is_no_question_is_not_taken_and_too_many_are_refused_by_name() {
        let (questions, mut waiting, mut refused_names) = Questions::queues();
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
        assert!(refused_names.try_recv().is_err(), "there was room");
        let another = question.replace("6b1f", "ffff");
        let refused = questions.take(another.as_bytes()).unwrap_err();
        assert!(matches!(refused, QuestionError::TooMany), "{refused}");
        assert_eq!(refused_names.try_recv().unwrap(), "ffff0c9a5e7d2c44");
        // Questions that waited already still do, and there is room for the next one.
        let first = waiting.try_recv().unwrap();
        assert_eq!(first.question, "6b1f0c9a5e7d2c44");
        questions.take(another.as_bytes()).expect("room");
    }

    #[test]
    fn what_is_refused_takes_no_more_than_its_room() {
        let (questions, _waiting, mut refused_names) = Questions::queues();
        let question = r#"{"question":"6b1f0c9a5e7d2c44","terminal":10,"limit":100}"#;
        for _ in 0..WAITING + 2 * MOST_REFUSED {
            let _ = questions.take(question.as_bytes());
        }
        let mut names = 0;
        while refused_names.try_recv().is_ok() {
            names += 1;
        }
        assert_eq!(names, MOST_REFUSED);
    }

    #[test]
    fn an_answer_is_as_the_service_takes_it() {
        let queue = lane(Class(0), 1).expect("a class with lanes");
        let info = StreamInfo {
            id: StreamId(7),
            class: Class(0),
            queue,
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
            paths: BTreeMap::from([
                (Class(0), vec!["lte".to_owned(), "terminal-10".to_owned()]),
                (queue, vec!["terminal-10".to_owned(); 20]),
            ]),
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
