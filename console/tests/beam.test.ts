import { describe, expect, test } from "vitest";
import type { Line, Plan, Segment } from "../src/api/types";
import { movedBy } from "../src/beam/blockage-bar";
import { compose, ofInterest, stack } from "../src/beam/composed";
import { fairSpans, settledS } from "../src/beam/fair-spans";
import { contradiction, reasons, segmentAt } from "../src/beam/reasons";
import { at, link, START_MS } from "./made";

const segment = (from: number, to: number, rate: number, state: Segment["state"] = "fair"): Segment => ({
  start: at(from), end: at(to), rate_bps: rate, state,
});
const line = (terminals: number[], segments: Segment[], efficiency = 1): Line => ({
  terminals, guaranteed_bps: 0, efficiency, segments,
});
const plan = (version: number, from: number, to: number, lines: Line[]): Plan => ({
  beam: "east", link: "forward", plan: version, issued: at(from), start: at(from), end: at(to), reason: "first",
  capacity: [{ from: at(from), rate_bps: 8000 }], lines,
});

const first = plan(1, 0, 100, [line([11, 12], [segment(0, 100, 4000)])]);
const second = plan(2, 20, 120, [
  line([11], [segment(20, 50, 6000, "borrowing"), segment(50, 120, 0, "blocked")]),
  line([12], [segment(20, 50, 1000, "lending"), segment(50, 120, 4000, "repaid")], 0.5),
]);

describe("plans over time", () => {
  test("each holds until a newer one begins, whatever the order they came in", () => {
    for (const plans of [[first, second], [second, first]]) {
      const composed = compose(plans, START_MS, START_MS + 90_000);
      const pieces = composed.pieces.get(11) ?? [];
      expect(pieces.map((one) => [(one.fromMs - START_MS) / 1000, (one.toMs - START_MS) / 1000, one.state])).toEqual([
        [0, 20, "fair"],
        [20, 50, "borrowing"],
        [50, 90, "blocked"],
      ]);
      expect(composed.capacity).toHaveLength(2);
    }
  });

  test("bands are capacity, not the terminals' own bits, and never overlap", () => {
    const bands = stack(compose([first, second], START_MS, START_MS + 120_000), [11, 12]);
    const then = bands.filter((one) => one.fromMs === START_MS + 20_000);
    expect(then.map((one) => [one.node, one.lowBps, one.highBps])).toEqual([
      [11, 0, 6000],
      [12, 6000, 8000],
    ]);
    for (const one of bands) expect(one.highBps).toBeLessThanOrEqual(8000);
  });

  test("who has no band of its own is in one with all others", () => {
    const composed = compose([first], START_MS, START_MS + 100_000);
    const bands = stack(composed, [11]);
    expect(bands.map((one) => [one.node, one.highBps - one.lowBps])).toEqual([
      [11, 4000],
      [undefined, 4000],
    ]);
  });

  test("who is blocked comes first", () => {
    expect(ofInterest(compose([first, second], START_MS, START_MS + 120_000), 1)).toEqual([11]);
  });
});

describe("why a terminal has its rate", () => {
  const borrowing: Segment = {
    ...segment(20, 50, 6_000_000, "borrowing"),
    bits: 180_000_000, fair_bits: 60_000_000, borrowed_bits: 120_000_000, lent_bits: 0, repaid_bits: 0, repaying_bits: 0,
  };
  const own = line([11], [borrowing, segment(50, 90, 0, "blocked")]);

  test("the segment that holds now is found, up to its end", () => {
    expect(segmentAt(own, START_MS + 49_999)?.state).toBe("borrowing");
    expect(segmentAt(own, START_MS + 50_000)?.state).toBe("blocked");
    expect(segmentAt(own, START_MS + 90_000)).toBeUndefined();
  });

  test("says rate, fair share, the blockage ahead, and what moves", () => {
    const said = reasons(own, borrowing, START_MS + 30_000).join("\n");
    expect(said).toContain("Its rate is 6 Mbit/s, for 20.0 s more; its fair share would be 2 Mbit/s.");
    expect(said).toContain("It will be blocked in 20.0 s for 40.0 s");
    expect(said).toContain("it borrows from the others: 120 Mbit, or 4 Mbit/s.");
    expect(said).not.toContain("lends to");
  });

  test("and whether the link is other than planned, as far as that is known", () => {
    const blocked = segment(50, 90, 0, "blocked");
    const then = (s: number, state: "up" | "blocked" | "down", of = blocked) => contradiction(of, link(11, s, { state }), START_MS + 1000 * (s + 1));
    expect(then(60, "up")).toContain("has the link blocked, and the link is up");
    expect(then(60, "blocked")).toBeUndefined();
    expect(then(30, "blocked", borrowing)).toContain("has a rate for the link, and the link is blocked");
    expect(then(30, "up", borrowing)).toBeUndefined();
    expect(then(30, "down", borrowing)).toBeUndefined();
    // During maintenance a link that is up gets no rate.
    expect(then(60, "up", segment(50, 90, 0))).toBeUndefined();
    // The last report before the entry, and an old one.
    expect(then(49, "up")).toBeUndefined();
    expect(then(52, "up")).toBeUndefined();
    expect(contradiction(blocked, link(11, 60), START_MS + 86_000)).toBeUndefined();
    expect(contradiction(blocked, undefined, START_MS + 60_000)).toBeUndefined();
  });
});

describe("a blockage that is dragged", () => {
  const span = { startS: 30, endS: 60 };
  test("moves as a whole, or by an end, in whole seconds", () => {
    expect(movedBy(span, "all", 10.4, 120)).toEqual({ startS: 40, endS: 70 });
    expect(movedBy(span, "start", -10, 120)).toEqual({ startS: 20, endS: 60 });
    expect(movedBy(span, "end", 10, 120)).toEqual({ startS: 30, endS: 70 });
  });
  test("never leaves the line, and never ends before it begins", () => {
    expect(movedBy(span, "all", -99, 120)).toEqual({ startS: 0, endS: 30 });
    expect(movedBy(span, "all", 99, 120)).toEqual({ startS: 90, endS: 120 });
    expect(movedBy(span, "start", 99, 120)).toEqual({ startS: 59, endS: 60 });
    expect(movedBy(span, "end", -99, 120)).toEqual({ startS: 30, endS: 31 });
    // By the keys Home and End.
    expect(movedBy(span, "start", -Infinity, 120)).toEqual({ startS: 0, endS: 60 });
    expect(movedBy(span, "end", Infinity, 120)).toEqual({ startS: 30, endS: 120 });
  });
});

describe("fairness", () => {
  const texts = (terminals: number) => fairSpans(terminals).map(([text]) => text);

  test("is asked for over times that the service answers for so many terminals", () => {
    for (const terminals of [0, 1, 4, 11, 12, 138, 139, 1000, 1613, 5000, 40_000]) {
      for (const [, ms] of fairSpans(terminals)) {
        // Whole periods that overlap the span.
        expect(terminals * (ms / 10_000 + 1)).toBeLessThanOrEqual(100_000);
        expect(ms % 10_000).toBe(0);
      }
    }
  });

  test("is offered over all times of a small beam, and over one of any", () => {
    expect(texts(4)).toEqual(["10 minutes", "2 h", "12 h", "24 h"]);
    expect(texts(100)).toEqual(["10 minutes", "2 h"]);
    expect(texts(1000)).toEqual(["10 minutes"]);
    expect(texts(5000)).toEqual(["3 min 0 s"]);
  });

  test("has planned and fair rates over what is settled, and none where nothing is", () => {
    const over = { since: at(0), until: at(600), links: [] };
    expect(settledS(over, at(480))).toBe(480);
    expect(settledS(over, at(900))).toBe(600);
    expect(settledS(over, at(0))).toBeUndefined();
    expect(settledS(over, null)).toBeUndefined();
  });
});
