//! A terminal requests two things from its authority through the hop: its next certificate, and the
//! revocation list.
//!
//! A terminal sends its hub a [`Question`] at each interval, as a bundle under custody. The hub
//! answers from its own revocation list, and passes a request for a certificate on to the control
//! service ([`Desk`]); an [`Answer`] comes back the same way.
//!
//! Nothing of it is stored on the way. A question is repeated until it is answered, so none is
//! lost. The authority gives the same key the same certificate until half of its time is over, so
//! repeated questions create no second certificate. Everything important is signed: the request by
//! the key of the node's present certificate, certificate and list by the authority. So a node on
//! the way can withhold an answer, but nothing else.

mod desk;
mod message;

pub use desk::{Desk, Pending, TooOften};
pub use message::{
    Answer, Certificate, MAX_ANSWER_BYTES, MAX_QUESTION_BYTES, MAX_REASON_CHARS, MessageError,
    Question, SERVICE,
};
