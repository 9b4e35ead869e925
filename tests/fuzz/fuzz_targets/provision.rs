//! Requests of terminals to their authority through a hub, and its answers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use underpass_provision::{Answer, Question};

fuzz_target!(|data: &[u8]| {
    if let Ok(question) = Question::decode(data)
        && let Ok(written) = question.encode()
    {
        assert_eq!(Question::decode(&written).expect("its own bytes"), question);
    }
    if let Ok(answer) = Answer::decode(data)
        && let Ok(written) = answer.encode()
    {
        assert_eq!(Answer::decode(&written).expect("its own bytes"), answer);
    }
});
