//! What a terminal asks of its authority through the hop: its next
//! certificate, and the revocation list.
//!
//! A terminal sends its hub a [`Question`] at each interval, as a bundle under
//! custody. The hub answers by its own revocation list, and passes a request for
//! a certificate on to the control service ([`Desk`]); an [`Answer`] comes back
//! the same way.
//!
//! Nothing of it is stored on the way. A question is repeated until it is
//! answered, so none is lost; and the authority gives the same key the same
//! certificate until half of its time is over, so none is doubled, however often
//! a question comes. Everything that counts is signed: the request by the key of
//! the node's present certificate, certificate and list by the authority. So a
//! node on the way can hold an answer back, and do nothing else.

mod desk;
mod message;

pub use desk::{Desk, Pending, TooOften};
pub use message::{
    Answer, Certificate, MAX_ANSWER_BYTES, MAX_QUESTION_BYTES, MAX_REASON_CHARS, MessageError,
    Question, SERVICE,
};
