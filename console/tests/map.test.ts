import { describe, expect, test } from "vitest";
import type { Obstruction, Road } from "../src/api/types";
import { inOrder, titleOf } from "../src/map/in-view";
import { mercator, Motion, STRIDE } from "../src/map/motion";
import { Pace } from "../src/map/pace";
import { distance, roadAhead } from "../src/map/road-ahead";
import { Track, trackParts } from "../src/map/track";
import { at, position, START_MS } from "./made";

/** A place so many metres east of one in Bern, on the same parallel. */
function east(metres: number) {
  return mercator(7.44 + metres / (111_320 * Math.cos((46.95 * Math.PI) / 180)), 46.95);
}

const METRE = east(1).x - east(0).x;

describe("the pace of drawing", () => {
  const FRAME_MS = 1000 / 60;

  /** The share of a page's frames lost to draws of this length and to the frames that show them. */
  function lostPart(tookMs: number): number {
    const pace = new Pace();
    for (let draw = 0; draw < 100; draw++) pace.took(tookMs);
    return (tookMs + FRAME_MS) / (tookMs + pace.restMs);
  }

  test("what is drawn within half a frame is drawn without a rest", () => {
    const pace = new Pace();
    for (let draw = 0; draw < 100; draw++) pace.took(5);
    expect(pace.restMs).toBe(0);
  });

  test("slow draws cost the page less than a tenth of its frames", () => {
    for (const tookMs of [14, 17, 20, 25, 30, 40]) expect(lostPart(tookMs)).toBeLessThan(0.1);
  });

  test("however slow a draw is, the next one comes within a second of its end", () => {
    const pace = new Pace();
    for (let draw = 0; draw < 100; draw++) pace.took(5_000);
    expect(pace.restMs).toBeLessThan(1000);
  });

  test("a machine that gets quicker is soon drawn for as one", () => {
    const pace = new Pace();
    for (let draw = 0; draw < 100; draw++) pace.took(200);
    for (let draw = 0; draw < 12; draw++) pace.took(4);
    expect(pace.restMs).toBeLessThan(100);
  });
});

describe("vehicles in motion", () => {
  test("a vehicle glides to its newest fix and never leaps on the way", () => {
    const motion = new Motion(0);
    let last = Number.NaN;
    for (let now = 0; now <= 20_000; now += 50) {
      if (now % 1000 === 0) motion.fix(11, east(20 * (now / 1000)), 90, now, now);
      const x = (motion.placeOf(11, now) as { x: number }).x;
      // 20 m/s is a metre in 50 ms.
      if (!Number.isNaN(last)) {
        expect(x).toBeGreaterThanOrEqual(last - METRE / 100);
        expect(x - last).toBeLessThan(1.1 * METRE);
      }
      last = x;
    }
    expect(Math.abs(last - east(380).x)).toBeLessThan(2 * METRE);
  });

  test("places are exact to a centimetre, though the GPU has 32 bits", () => {
    const motion = new Motion(0);
    motion.fix(11, east(0), undefined, 0, 0);
    const shown = motion.placeOf(11, 10_000);
    expect(Math.abs((shown?.x ?? 0) - east(0).x)).toBeLessThan(METRE / 100);
    expect(Math.abs((shown?.y ?? 0) - east(0).y)).toBeLessThan(METRE / 100);
  });

  test("who is far from the last fix is shown there at once; an older fix changes nothing", () => {
    const motion = new Motion(0);
    motion.fix(11, east(0), 0, 1000, 0);
    motion.fix(11, east(50_000), 0, 2000, 10);
    expect(motion.placeOf(11, 10)?.x).toBeCloseTo(east(50_000).x, 10);
    motion.fix(11, east(0), 0, 1500, 20);
    expect(motion.placeOf(11, 5000)?.x).toBeCloseTo(east(50_000).x, 10);
  });

  test("the fastest glide is known, and none once all are at rest", () => {
    const motion = new Motion(0);
    for (const [node, metres] of [[11, 5], [12, 20]] as const) {
      motion.fix(node, east(0), 90, 0, 0);
      motion.fix(node, east(metres), 90, 1000, 1000);
    }
    // 20 m in a second, in world widths per ms.
    expect(motion.fastest(1500) / METRE).toBeCloseTo(0.02, 4);
    expect(motion.fastest(2500)).toBe(0);
  });

  test("thousands come and go, and each keeps its own place", () => {
    const motion = new Motion(0);
    for (let node = 1; node <= 5000; node++) motion.fix(node, east(node), 0, 0, 0);
    motion.keep((node) => node % 7 === 0);
    expect(motion.count).toBe(714);
    for (const node of motion.nodes) expect(motion.placeOf(node, 0)?.x).toBeCloseTo(east(node).x, 12);
    expect(motion.placeOf(1, 0)).toBeUndefined();
  });

  test("what has changed is told as a range, and what looks as before is no change", () => {
    const motion = new Motion(0);
    for (let node = 0; node < 100; node++) motion.fix(node, east(node), 0, 0, 0);
    motion.changed = undefined;
    motion.look(40, 0, false);
    expect(motion.changed).toBeUndefined();
    motion.look(40, 1, false);
    motion.fix(43, east(1), 0, 1, 1);
    expect(motion.changed).toEqual([40, 44]);
    expect(motion.data.length % STRIDE).toBe(0);
  });
});

describe("the road ahead", () => {
  const road = (id: string, from: number, to: number, onward: [string, number][], covered = false): Road => ({
    id,
    line: [[7 + from, 46], [7 + (from + to) / 2, 46], [7 + to, 46]],
    covered_by: covered ? "way/3" : null,
    onward,
  });
  const roads = [
    road("way/1", 0, 0.01, [["way/9", 0.1], ["way/2", 0.9]]),
    road("way/2", 0.01, 0.02, [["way/3", 1]]),
    road("way/3", 0.02, 0.03, [["way/4", 1]], true),
    road("way/4", 0.03, 0.04, []),
    road("way/9", 0.01, 0.012, []),
  ];
  const tunnel: Obstruction = {
    type: "Feature",
    id: "way/3",
    geometry: { type: "MultiLineString", coordinates: [(roads[2] as Road).line] },
    properties: { name: "", kind: "tunnel", certainty: 1, source: "map", roads },
  };

  test("follows the likeliest roads from the vehicle to the portal, and the tunnel after it", () => {
    const found = roadAhead(tunnel, [7.002, 46.0001]);
    expect(found?.open[0]?.[0]).toBeCloseTo(7.002, 6);
    expect(found?.open.at(-1)).toEqual([7.02, 46]);
    expect(found?.portal).toEqual([7.02, 46]);
    expect(found?.covered).toEqual([(roads[2] as Road).line]);
    for (const [a, b] of (found?.open ?? []).slice(1).map((b, n) => [found?.open[n], b] as const)) {
      expect(distance(a as [number, number], b)).toBeLessThan(800);
    }
  });

  test("off the known roads, or in a ring of them, there is only the place", () => {
    expect(roadAhead(tunnel, [7, 46.2])).toMatchObject({ open: [], portal: [7.02, 46] });
    const ring = [road("way/1", 0, 0.01, [["way/2", 1]]), road("way/2", 0.01, 0, [["way/1", 1]])];
    const endless = { ...tunnel, properties: { ...tunnel.properties, roads: ring } };
    expect(roadAhead(endless, [7.002, 46])?.open).toEqual([]);
  });
});

test("a track grows by what is read of it anew, and by what came late, and has two hours of fixes", () => {
  const track = new Track();
  const fixes = (from: number, to: number) => Array.from({ length: to - from }, (_, s) => position(11, from + s));
  const nowMs = START_MS + 7_300_000;
  expect(track.missingFrom(START_MS, nowMs)).toBe(START_MS);
  track.add(fixes(0, 7200), nowMs);
  expect(track.missingFrom(START_MS, nowMs)).toBe(START_MS + 7_079_000);
  track.add([...fixes(7205, 7210), ...fixes(7190, 7203)], nowMs);
  const known = track.from(START_MS + 100_000).map(({ time }) => (Date.parse(time) - START_MS) / 1000);
  expect(known).toHaveLength(7103 + 5);
  expect([known[0], known.at(-6), known.at(-1)]).toEqual([100, 7202, 7209]);
  expect(known).toEqual([...known].sort((a, b) => a - b));
});

test("what waited in a blockage of ten minutes joins the track behind it, whatever comes first", () => {
  const track = new Track();
  const fixes = (from: number, to: number) => Array.from({ length: to - from }, (_, s) => position(11, from + s));
  const missing = (s: number) => (track.missingFrom(START_MS, START_MS + 1000 * s) - START_MS) / 1000;
  track.add(fixes(0, 601), START_MS + 601_000);
  track.add([], START_MS + 900_000);
  expect(missing(1200)).toBe(480);
  // The link is back: the newest fix comes first, the others in no order.
  track.add(fixes(1200, 1201), START_MS + 1_201_000);
  expect(missing(1206)).toBe(600);
  track.add([...fixes(1000, 1206), ...fixes(700, 800)], START_MS + 1_206_000);
  expect(missing(1211)).toBe(600);
  track.add(fixes(601, 1322), START_MS + 1_322_000);
  expect(missing(1360)).toBe(1201);
  expect(track.from(START_MS)).toHaveLength(1322);
});

test("a track is red where the vehicle was blocked, across the gap between its fixes", () => {
  const track = [0, 1, 2, 30, 31].map((s) => position(11, s, { longitude: 7 + s / 1000 }));
  const observed = { state: "observed", source: "probing", terminal: 11, entry: at(2.5), exit: at(29) } as const;
  expect(trackParts(track, [observed]).map((part) => [part.blocked, part.line.length])).toEqual([
    [false, 3],
    [true, 2],
    [false, 2],
  ]);
  const lasting = { ...observed, entry: at(30.5), exit: null };
  expect(trackParts(track, [lasting]).at(-1)).toMatchObject({ blocked: true });
});

test("obstructions are listed by name, those without one behind them by id", () => {
  const obstruction = (id: string, name: string): Obstruction => ({
    type: "Feature",
    id,
    geometry: { type: "MultiLineString", coordinates: [] },
    properties: { name, kind: "tunnel", certainty: 1, source: "map" },
  });
  const given = [obstruction("way/9", ""), obstruction("way/3", "Ridge Road"), obstruction("way/2", ""), obstruction("way/4", "A1")];
  expect(inOrder(given).map(titleOf)).toEqual(["A1", "Ridge Road", "way/2", "way/9"]);
  expect(given.map(({ id }) => id)).toEqual(["way/9", "way/3", "way/2", "way/4"]);
});
