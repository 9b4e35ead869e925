//! The benchmarks' traces in a node's conditions: bundles over TCP, a modem whose buffer
//! does not shrink with its rate, and nothing told beforehand.

use super::*;

/// The properties of one direction of a link, from a time on, s.
#[derive(Clone, Copy)]
struct Step {
    at_s: f64,
    bps: f64,
    delay_s: f64,
    loss: f64,
}

/// The forward link of a trace file.
#[derive(Clone)]
struct Trace {
    steps: Vec<Step>,
    seconds: f64,
}

impl Trace {
    fn parse(text: &str) -> Trace {
        let file: serde_json::Value = serde_json::from_str(text).unwrap();
        let steps = file["forward"].as_array().unwrap().iter();
        Trace {
            steps: steps
                .map(|step| Step {
                    at_s: step["at_s"].as_f64().unwrap(),
                    bps: step["rate_bps"].as_f64().unwrap(),
                    delay_s: step["delay_ms"].as_f64().unwrap() / 1e3,
                    loss: step["loss"]["probability"].as_f64().unwrap(),
                })
                .collect(),
            seconds: file["duration_s"].as_f64().unwrap(),
        }
    }

    fn index(&self, t: f64) -> usize {
        let next = self.steps.partition_point(|step| step.at_s <= t + 1e-6);
        next.saturating_sub(1)
    }

    fn at(&self, t: f64) -> Step {
        self.steps[self.index(t)]
    }

    fn best_bps(&self) -> f64 {
        self.steps.iter().map(|step| step.bps).fold(0.0, f64::max)
    }

    /// The rise of the delay within the last `span_s`, s.
    fn longer(&self, t: f64, span_s: f64) -> f64 {
        (self.at(t).delay_s - self.at((t - span_s).max(0.0)).delay_s).max(0.0)
    }

    /// The link of this trace, with a buffer of `buffer_s` at its best rate, s.
    fn link(&self, buffer_s: f64) -> Link {
        let of = || self.clone();
        let (rate, there, back, loss) = (of(), of(), of(), of());
        let (told_back, told_there) = (of(), of());
        let rtt_s = 2.0 * self.steps[0].delay_s;
        Link {
            there: Box::new(move |t| there.at(t).delay_s),
            back: Box::new(move |t| back.at(t).delay_s),
            loss: Box::new(move |t| loss.at(t).loss),
            queue_bits: Some(buffer_s * self.best_bps()),
            // A longer way looks like a queue until five beacons have shown otherwise.
            told_back: Some(Box::new(move |t| told_back.longer(t, 0.75))),
            tells_there: Some(Box::new(move |t, late| late + told_there.longer(t, 0.75))),
            tcp: Some(rtt_s),
            as_in_a_node: true,
            ..Link::new(move |t| rate.at(t).bps, rtt_s)
        }
    }

    /// The runs of an oracle that knows the link late, and of a sender that is told
    /// nothing.
    fn run(&self, name: &str, buffer_s: f64) -> [Course; 2] {
        let knowing = Link {
            tcp: None,
            ..self.link(buffer_s)
        };
        let late_s = 2.0 * self.steps[0].delay_s + 0.2;
        let oracle = run(&knowing, &Sender::Oracle(late_s), self.seconds, EACH_MS);
        let first = Sender::Found(Limits::default());
        let course = run(&self.link(buffer_s), &first, self.seconds, EACH_MS);
        show(&format!("{name}, oracle"), &oracle, 1.0, self.seconds);
        show(name, &course, 1.0, self.seconds);
        [oracle, course]
    }
}

#[test]
fn a_leo_service_is_followed_as_well_as_by_somebody_who_knows_it() {
    let trace = Trace::parse(include_str!("../../../../tests/traces/files/leo.json"));
    let [oracle, course] = trace.run("leo trace", 0.2);
    for slot in 0..20 {
        let (from, to) = (15.0 * f64::from(slot), 15.0 * f64::from(slot + 1));
        let step = trace.at(from + 2.0);
        let name = format!(
            "  {:.1} Mbit/s, {:.0} ms",
            step.bps / 1e6,
            2e3 * step.delay_s
        );
        show(&name, &course, from.max(1.0), to);
    }
    let seconds = trace.seconds;
    assert!(course.used(1.0, seconds) > oracle.used(1.0, seconds) - 0.04);
    assert!(course.queue(0.95, 1.0, seconds) < oracle.queue(0.95, 1.0, seconds) + 0.02);
}

/// Another satellite is farther away and carries less. Beacons show its queue later than
/// round trips do; but round trips include the longer way.
#[test]
fn a_step_down_is_found_at_once_though_the_way_becomes_longer() {
    const AT_S: f64 = 10.0;
    for (before, after) in [
        ((61e6, 0.033), (11e6, 0.048)),
        ((61e6, 0.033), (20e6, 0.058)),
        ((48e6, 0.053), (15e6, 0.045)),
        ((65e6, 0.03), (30e6, 0.06)),
    ] {
        let step = |at_s: f64, (bps, rtt_s): (f64, f64)| Step {
            at_s,
            bps,
            delay_s: rtt_s / 2.0,
            loss: 0.01,
        };
        let trace = Trace {
            steps: vec![step(0.0, before), step(AT_S, after)],
            seconds: AT_S + 5.0,
        };
        let [_, course] = trace.run(&format!("{before:?} to {after:?}"), 0.2);
        let found = course.steps[(AT_S * 1e3) as usize..].iter();
        let found = found.map(|step| step.3.unwrap_or(f64::INFINITY));
        let took_s = 1e-3 * found.take_while(|bps| *bps > 1.2 * after.0).count() as f64;
        println!("  found in {took_s:.3} s");
        assert!(took_s < after.1 + 0.2);
    }
}

#[test]
fn a_geo_fade_is_followed_down_and_up_through_tcp() {
    let trace = Trace::parse(include_str!("../../../../tests/traces/files/geo-fade.json"));
    let [_, course] = trace.run("geo fade", 1.0);
    for from in (0..12).map(|part| 10.0 * f64::from(part)) {
        show(&format!("  {from} s"), &course, from.max(1.0), from + 10.0);
    }
    assert!(course.used(1.0, trace.seconds) > 0.93);
    assert!(course.queue(0.95, 1.0, trace.seconds) < 0.1);
}
