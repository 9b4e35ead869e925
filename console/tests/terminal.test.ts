import { describe, expect, test } from "vitest";
import { ruleOf, ruleText } from "../src/alerts/rule-text";
import type { AlertRule, OpenStream, StreamList } from "../src/api/types";
import type { Vehicle } from "../src/fleet/fleet";
import { lastHeard } from "../src/terminal/heard";
import { leftOver, verdict } from "../src/terminal/left-over";
import { lifetime } from "../src/terminal/lifetime";
import { carriedColumns, leastEfficiency } from "../src/terminal/series";
import { listed, standing } from "../src/terminal/stream-text";
import { link, START_MS } from "./made";

const none = { expected: new Map() };

describe("what was last heard of a terminal", () => {
  test("is its own word, however much later its gateway speaks of it", () => {
    const vehicle = { node: 11, ...none, forward: link(11, 100), return: link(11, 10, { link: "return", node: 11 }) };
    const heard = lastHeard(vehicle, START_MS + 100_000);
    expect(heard?.receivedMs).toBe(START_MS + 10_000);
    expect(heard?.silent).toBe(true);
    expect(lastHeard(vehicle, START_MS + 35_000)?.silent).toBe(false);
    expect(lastHeard({ node: 11, ...none, forward: link(11, 100) }, START_MS)).toBeUndefined();
  });
});

describe("what is left over of a terminal", () => {
  const figures = { queue_ms: 0, loss: 0, stored_bundles: 0, stored_bytes: 0, classes: [] };
  const quiet = { figures, streams: 0 };
  const seen = (forward: object, back: object) => ({
    node: 11, ...none, forward: link(11, 100, forward), return: link(11, 100, { link: "return", ...back }),
  });
  const said = (vehicle: Vehicle, s = 101) => verdict(leftOver(vehicle, START_MS + 1000 * s));

  test("is nothing only if both directions have just said so", () => {
    expect(said(seen(quiet, quiet))).toContain("it may be taken away");
    expect(said(seen(quiet, quiet), 200)).toContain("forward and return link: something may wait");
    expect(said({ node: 11, ...none, return: link(11, 100, { link: "return", ...quiet }) })).toContain("its forward link");
  });

  test("is what waits, and what is in custody, in either direction", () => {
    expect(said(seen(quiet, { ...quiet, backlogged_bytes: 20_000 }))).toBe("Still waiting: 20 kB from it.");
    const kept = { ...quiet, figures: { ...figures, stored_bundles: 3 } };
    expect(said(seen(kept, quiet))).toBe("Still waiting: 3 bundles in custody to it.");
    const one = { ...quiet, figures: { ...figures, stored_bundles: 1 } };
    expect(said(seen(quiet, one))).toBe("Still waiting: 1 bundle in custody from it.");
  });

  test("has connections that would end", () => {
    expect(said(seen(quiet, { ...quiet, streams: 2 }))).toContain("2 connections are open and idle");
  });
});

describe("a stream", () => {
  const stream = (more: Partial<OpenStream> = {}): OpenStream => ({
    id: 7, epoch: 0, target: "example.org:443", class: "bulk", state: "open", paths: ["satellite"],
    age_ms: 12_000, forward_bytes: 1_000_000, return_bytes: 2_000, waiting_bytes: 0, unread_bytes: 0, ...more,
  });
  const list = (open: number, count: number): StreamList => ({
    terminal: 11, gateway: 1, time: new Date(START_MS).toISOString(), open,
    streams: Array.from({ length: count }, (_, id) => stream({ id })),
  });

  test("says what it waits for before how far it is", () => {
    expect(standing(stream())).toBe("open");
    expect(standing(stream({ state: "draining" }))).toBe("closing");
    expect(standing(stream({ state: "half-closed-local", waiting_bytes: 65_536 }))).toBe("waits, 65.5 kB to be sent");
    expect(standing(stream({ paths: [], waiting_bytes: 65_536 }))).toBe("blocked, 65.5 kB to be sent");
    expect(standing(stream({ paths: [] }))).toBe("open");
    expect(standing(stream({ unread_bytes: 4_000 }))).toBe("its server has 4 kB to read");
  });

  test("is one of those that are listed, and the rest are counted", () => {
    expect(listed(list(0, 0))).toBe("No stream is open.");
    expect(listed(list(1, 1))).toBe("One stream.");
    expect(listed(list(3, 3))).toBe("All 3 streams, the largest first.");
    expect(listed(list(340, 100))).toContain("100 of 340 streams");
  });
});

describe("a certificate", () => {
  const end = START_MS + 10 * 86_400_000;
  test("says how long it is good for", () => {
    expect(lifetime(end, START_MS)).toMatch(/^ends \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, 10 days left$/);
    expect(lifetime(end, end - 86_400_000)).toMatch(/, 24 hours left$/);
    expect(lifetime(end, end - 1)).toMatch(/, less than two hours left$/);
    expect(lifetime(end, end)).toMatch(/^ended /);
  });
});

describe("what a link was measured to carry", () => {
  const at = (s: number, capacity_bps: number | null, efficiency: number | null = null) => ({
    start: new Date(START_MS + 1000 * s).toISOString(), capacity_bps, efficiency,
  });
  const s0 = START_MS / 1000;
  test("has a gap where nothing was known for long", () => {
    expect(carriedColumns([at(0, 5), at(10, 6), at(600, 7)])).toEqual([[s0, s0 + 10, s0 + 25, s0 + 600], [5, 6, null, 7]]);
    expect(carriedColumns([at(0, 5), at(10, null)])).toEqual([[s0, s0 + 10], [5, null]]);
    expect(carriedColumns([])).toEqual([[], []]);
  });
  test("has one value for a time in which the path changed", () => {
    expect(carriedColumns([at(0, 5), at(0, 6), at(10, null), at(10, 7)])).toEqual([[s0, s0 + 10], [5, 7]]);
  });
  test("tells the least efficiency, if any was told", () => {
    expect(leastEfficiency([at(0, 5, 0.8), at(10, 5, 0.6), at(20, 5)])).toBe(0.6);
    expect(leastEfficiency([at(0, 5)])).toBeUndefined();
  });
});

describe("a rule", () => {
  const rule = (more: Partial<AlertRule>): AlertRule => ({
    id: 1, name: "x", kind: "unheard", for_s: 0, keep_firing_for_s: 60, revision: 1, ...more,
  });
  test("has its limit in the unit of its kind", () => {
    expect(ruleOf({ name: "x", kind: "certificate", limit: "30" })).toEqual({ name: "x", kind: "certificate", limit_s: 2_592_000 });
    expect(ruleOf({ name: "x", kind: "debt", limit: "0.5", for_s: "0", keep_firing_for_s: "5" })).toEqual({
      name: "x", kind: "debt", limit_s: 0.5, for_s: 0, keep_firing_for_s: 5,
    });
    expect(ruleOf({ name: "x", kind: "version", version: "1.2" })).toEqual({ name: "x", kind: "version", version: "1.2" });
  });
  test("is said in words", () => {
    expect(ruleText(rule({ kind: "certificate", limit_s: 2_592_000 }))).toContain("30 days, all beams");
    expect(ruleText(rule({ kind: "certificate", limit_s: 86_400 }))).toContain("1 day, all beams");
    expect(ruleText(rule({ kind: "version", version: "1.2", beam: "east" }))).toContain("1.2, beam east");
    expect(ruleText(rule({ limit_s: 5, for_s: 10 }))).toContain("5 s, all beams; fires after 10 s, is resolved after 60 s");
  });
});
