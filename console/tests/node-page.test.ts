// The page that a node itself serves: its files need no build, and are tested with the console's.

import { describe, expect, test } from "vitest";

import { expected, rate, size, span } from "../../gateway/node/src/api/page/figures.js";
import { isRunning, rows, said } from "../../gateway/node/src/api/page/speed.js";

const NOW_MS = Date.parse("2030-05-01T12:00:00Z");

function link(planned: [number, number][], plan_contradicted = false) {
  const at = (seconds: number) => new Date(NOW_MS + seconds * 1000).toISOString();
  return {
    blocked_by: null,
    blocked_s: null,
    silence_s: 0,
    planned: planned.map(([entry_s, exit_s]) => ({ entry: at(entry_s), exit: at(exit_s) })),
    plan_contradicted,
  };
}

describe("a blockage", () => {
  test("in force has an expected end, if it is planned", () => {
    expect(expected(true, link([[-12, 23]]), NOW_MS)).toBe("ends in 23 s");
    expect(expected(true, link([]), NOW_MS)).toBe("its end is not known");
    expect(expected(true, link([[10, 20]]), NOW_MS)).toBe("its end is not known");
  });

  test("to come is told with its length", () => {
    expect(expected(false, link([[65, 125]]), NOW_MS)).toBe("in 1 min 5 s, for 1 min 0 s");
    expect(expected(false, link([]), NOW_MS)).toBeNull();
  });

  test("that is over is not told", () => {
    expect(expected(false, link([[-9, -1], [30, 40]]), NOW_MS)).toBe("in 30 s, for 10 s");
  });

  test("in which the peer is heard is told as wrong", () => {
    expect(expected(false, link([[-5, 5]], true), NOW_MS)).toContain("is heard");
  });
});

test("figures have the unit that suits them, as on the command line", () => {
  expect(size(999)).toBe("999 B");
  expect(size(999_960)).toBe("1.0 MB");
  expect(rate(140_000_000)).toBe("140.0 Mbit/s");
  expect(span(59.9)).toBe("59 s");
  expect(span(7_260)).toBe("2 h 1 min");
});

describe("a speed test", () => {
  const began = {
    state: "idle" as const,
    began: "2030-05-01T12:00:00Z",
    class: "normal",
    seconds: 8,
    idle: null,
    down: null,
    up: null,
    failure: null,
  };
  const taken = { least_ms: 576.2, median_ms: 580.4, most_ms: 814 };

  test("shows what it has so far", () => {
    expect(isRunning(began)).toBe(true);
    expect(rows(began)).toEqual([]);
    const down = { bps: 2_980_000, round_trips: null };
    const report = { ...began, state: "up" as const, idle: taken, down };
    expect(said(report)).toBe("Upload, 8 s …");
    expect(rows(report)).toEqual([
      ["none", "-", "580 ms", "576 ms", "814 ms"],
      ["download", rate(2_980_000), "-", "-", "-"],
    ]);
  });

  test("says why it was not finished", () => {
    const failed = { ...began, state: "failed" as const, failure: "the peer has reset it" };
    expect(isRunning(failed)).toBe(false);
    expect(said(failed)).toBe("Not finished: the peer has reset it");
  });
});
