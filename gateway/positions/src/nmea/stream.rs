//! Sentences as a receiver sends them: by serial line, TCP or datagrams.

use std::time::{Duration, Instant};

use super::reader::Reader;
use super::sentence::MAX_SENTENCE;
use crate::feed::{Counts, Event, Feed, FeedError};
use crate::lines::{Line, Lines};

/// A log's own words before a sentence have room, too.
const LINE_BYTES: usize = 2 * MAX_SENTENCE;
/// The sentences of an epoch come in one go, so after this pause its fix is
/// made without waiting a second for the next epoch to begin. A byte of the
/// slowest usual line, 4800 baud, takes 2 ms.
const PAUSE: Duration = Duration::from_millis(100);
/// If a receiver's sentences come at intervals, the pause grows up to this.
const LONGEST_PAUSE: Duration = Duration::from_millis(800);
/// A receiver that is silent for this long is gone, or its line is.
const SILENCE: Duration = Duration::from_secs(20);

/// A receiver's sentences.
#[derive(Debug)]
pub struct Stream {
    lines: Lines,
    reader: Reader,
    heard: Instant,
    /// What ends an epoch.
    pause: Duration,
}

impl Stream {
    /// Sentences from `now` on; days before `not_before_ms`, UTC, ms since
    /// 1970, are those of a receiver that lost count of its weeks.
    pub fn new(now: Instant, not_before_ms: u64) -> Stream {
        Stream {
            lines: Lines::new(LINE_BYTES),
            reader: Reader::new(not_before_ms),
            heard: now,
            pause: PAUSE,
        }
    }

    /// Takes a datagram: its last line ends where it does.
    pub fn datagram(&mut self, now: Instant, bytes: &[u8]) -> Vec<Event> {
        self.push(now, bytes);
        let reader = &mut self.reader;
        self.lines.end(|line| give(reader, line));
        self.take()
    }

    fn push(&mut self, now: Instant, bytes: &[u8]) {
        self.heard = now;
        let reader = &mut self.reader;
        self.lines.push(bytes, |line| give(reader, line));
    }

    fn take(&mut self) -> Vec<Event> {
        if self.reader.take_late() {
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        }
        self.reader.take()
    }
}

fn give(reader: &mut Reader, line: Line<'_>) {
    match line {
        Line::Whole(line) => reader.line(line),
        Line::Overlong => reader.overlong(),
    }
}

impl Feed for Stream {
    fn open(&mut self, now: Instant) {
        self.lines = Lines::new(LINE_BYTES);
        self.reader.restart();
        (self.heard, self.pause) = (now, PAUSE);
    }

    fn receive(&mut self, now: Instant, bytes: &[u8]) -> Result<Vec<Event>, FeedError> {
        self.push(now, bytes);
        Ok(self.take())
    }

    fn deadline(&self) -> Instant {
        match self.reader.is_open() {
            true => self.heard + self.pause,
            false => self.heard + SILENCE,
        }
    }

    fn elapse(&mut self, now: Instant) -> Result<Vec<Event>, FeedError> {
        let quiet = now.saturating_duration_since(self.heard);
        if quiet >= SILENCE {
            return Err(FeedError::Silent(SILENCE));
        }
        if quiet >= self.pause {
            self.reader.finish();
        }
        Ok(self.reader.take())
    }

    fn poll_transmit(&mut self) -> Option<String> {
        None
    }

    fn counts(&self) -> Counts {
        self.reader.counts()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fix::Fix;

    const MS: Duration = Duration::from_millis(1);

    fn sentence(body: &str) -> String {
        let sum = body.bytes().fold(0, |sum, byte| sum ^ byte);
        format!("${body}*{sum:02X}\r\n")
    }

    fn rmc(clock: &str) -> String {
        sentence(&format!(
            "GPRMC,{clock},A,4619.0000,N,00655.5000,E,10.0,90.0,010626,,,A"
        ))
    }

    fn fixes(events: Vec<Event>) -> Vec<Fix> {
        let fix = |event| match event {
            Event::Fix(fix) => Some(fix),
            _ => None,
        };
        events.into_iter().filter_map(fix).collect()
    }

    #[test]
    fn a_fix_does_not_wait_for_the_next_epoch() {
        let now = Instant::now();
        let mut stream = Stream::new(now, 0);
        assert_eq!(stream.deadline(), now + SILENCE);
        let said = rmc("120000.00");
        assert!(stream.receive(now, said.as_bytes()).unwrap().is_empty());
        assert_eq!(stream.deadline(), now + PAUSE);
        let made = fixes(stream.elapse(now + PAUSE).unwrap());
        assert_eq!(made.len(), 1);
        // Later sentences of this epoch do not make a second fix.
        let late = sentence("GNVTG,90.0,T,,M,10.0,N,18.5,K,A") + &said;
        assert!(
            stream
                .receive(now + PAUSE, late.as_bytes())
                .unwrap()
                .is_empty()
        );
        assert!(stream.elapse(now + 2 * PAUSE).unwrap().is_empty());
        assert_eq!(stream.deadline(), now + PAUSE + SILENCE);
    }

    #[test]
    fn a_slow_line_does_not_part_an_epoch() {
        let now = Instant::now();
        let mut stream = Stream::new(now, 0);
        let said = rmc("120000.00") + &sentence("GNVTG,90.0,T,,M,10.0,N,36.0,K,A");
        let mut at = now;
        for byte in said.bytes() {
            at += 2 * MS;
            assert!(stream.receive(at, &[byte]).unwrap().is_empty());
            assert!(stream.deadline() > at + 2 * MS);
        }
        let [fix] = fixes(stream.elapse(at + PAUSE).unwrap())[..] else {
            panic!("one fix");
        };
        assert_eq!(fix.speed_mps, Some(10.0));
    }

    #[test]
    fn a_receiver_whose_sentences_come_apart_is_waited_for() {
        let now = Instant::now();
        let mut stream = Stream::new(now, 0);
        let mut speeds = vec![];
        for second in 0..4 {
            let began = now + second * 1000 * MS;
            let place = "4619.0000,N,00655.5000,E,1,09,1.5,372.0,M,49.5,M,,";
            let first = sentence(&format!("GPGGA,12000{second}.00,{place}"));
            let then = rmc(&format!("12000{second}.00"));
            let mut made = stream.receive(began, first.as_bytes()).unwrap();
            let between = began + 150 * MS;
            if stream.deadline() < between {
                made.extend(stream.elapse(stream.deadline()).unwrap());
            }
            made.extend(stream.receive(between, then.as_bytes()).unwrap());
            if stream.deadline() < began + 1000 * MS {
                made.extend(stream.elapse(stream.deadline()).unwrap());
            }
            speeds.extend(fixes(made).iter().map(|fix| fix.speed_mps.is_some()));
        }
        assert_eq!(speeds, [false, true, true, true]);
    }

    #[test]
    fn a_silent_receiver_is_given_up() {
        let now = Instant::now();
        let mut stream = Stream::new(now, 0);
        let gone = stream.elapse(now + SILENCE);
        assert_eq!(gone, Err(FeedError::Silent(SILENCE)));
        stream.open(now + SILENCE);
        assert_eq!(stream.deadline(), now + 2 * SILENCE);
    }

    #[test]
    fn what_a_break_left_of_a_sentence_spoils_only_itself() {
        let now = Instant::now();
        let mut stream = Stream::new(now, 0);
        let said = rmc("120000.00");
        stream.receive(now, &said.as_bytes()[..30]).unwrap();
        stream.open(now);
        stream.receive(now, &said.as_bytes()[30..]).unwrap();
        stream.receive(now, said.as_bytes()).unwrap();
        assert_eq!(fixes(stream.elapse(now + PAUSE).unwrap()).len(), 1);
        assert_eq!(stream.counts().spoilt, 1);
    }

    #[test]
    fn a_datagrams_last_line_needs_no_end() {
        let now = Instant::now();
        let mut stream = Stream::new(now, 0);
        let said = rmc("120000.00");
        assert!(stream.datagram(now, said.trim_end().as_bytes()).is_empty());
        let next = rmc("120001.00");
        assert_eq!(fixes(stream.datagram(now, next.as_bytes())).len(), 1);
    }

    proptest! {
        #[test]
        fn garbage_between_sentences_costs_no_fix(
            garbage in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 5),
        ) {
            let now = Instant::now();
            let mut stream = Stream::new(now, 0);
            let mut made = 0;
            for (second, mut noise) in garbage.into_iter().enumerate() {
                // A valid sentence in the noise would be accepted.
                noise.retain(|byte| *byte != b'$');
                noise.push(b'\n');
                stream.receive(now, &noise).unwrap();
                let said = rmc(&format!("12000{second}.00"));
                made += fixes(stream.receive(now, said.as_bytes()).unwrap()).len();
            }
            made += fixes(stream.elapse(now + PAUSE).unwrap()).len();
            prop_assert_eq!(made, 5);
        }

        #[test]
        fn bytes_in_any_pieces_make_the_same_fixes(
            cuts in prop::collection::vec(1usize..200, 0..20),
        ) {
            let said: String = (10..40).map(|second| rmc(&format!("1200{second}.00"))).collect();
            let now = Instant::now();
            let mut stream = Stream::new(now, 0);
            let (mut rest, mut made) = (said.as_bytes(), vec![]);
            for cut in cuts {
                let (piece, left) = rest.split_at(cut.min(rest.len()));
                made.extend(fixes(stream.receive(now, piece).unwrap()));
                rest = left;
            }
            made.extend(fixes(stream.receive(now, rest).unwrap()));
            made.extend(fixes(stream.elapse(now + PAUSE).unwrap()));
            prop_assert_eq!(made.len(), 30);
        }
    }
}
