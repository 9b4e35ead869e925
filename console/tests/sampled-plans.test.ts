import { describe, expect, test } from "vitest";
import { ApiError, type Client } from "../src/api/client";
import type { Blockage, Plan } from "../src/api/types";
import { ofInterest } from "../src/beam/composed";
import { momentsOf, SampledPlans, standing } from "../src/beam/sampled-plans";
import { at, expected, START_MS } from "./made";

const HOUR_MS = 3_600_000;
const plan = (fromS: number): Plan => ({
  beam: "east", link: "forward", plan: fromS, issued: at(fromS), start: at(fromS), end: at(fromS + 300), reason: "first",
  capacity: [{ from: at(fromS), rate_bps: 8000 }, { from: at(fromS + 50), rate_bps: 6000 }],
  lines: [{
    terminals: [11], guaranteed_bps: 0, efficiency: 1,
    segments: [
      { start: at(fromS), end: at(fromS + 50), rate_bps: 8000, state: "fair" },
      { start: at(fromS + 50), end: at(fromS + 300), rate_bps: 6000, state: "borrowing" },
    ],
  }],
});

test("a plan stands with what it gives at a moment until the next one", () => {
  const held = standing(plan(0), START_MS + 60_000, START_MS + 1_500_000);
  expect([held.start, held.end]).toEqual([at(60), at(1500)]);
  expect(held.capacity).toEqual([{ from: at(60), rate_bps: 6000 }]);
  expect(held.lines[0]?.segments).toEqual([{ start: at(60), end: at(1500), rate_bps: 6000, state: "borrowing" }]);
  // The plan gives nothing beyond its end.
  expect(standing(plan(0), START_MS + 300_000, START_MS + 400_000).lines[0]?.segments).toEqual([]);
});

test("the moments of a later window are those of the former one, and new ones", () => {
  const [first, second] = [momentsOf(1000, 7000, 1500), momentsOf(2000, 8000, 1500)];
  expect([first, second]).toEqual([[1500, 3000, 4500, 6000], [3000, 4500, 6000, 7500]]);
});

describe("the past of a beam", () => {
  const { signal } = new AbortController();
  const now = START_MS + 24 * HOUR_MS;
  const seen = (members: Partial<Blockage>) => expected(12, 100, 130, { state: "observed", source: "probing", link: "forward", ...members });

  test("is a bounded number of plans, read once each, and every blockage", async () => {
    const asked: string[] = [];
    const client = {
      async get(path: string): Promise<Plan> {
        asked.push(path);
        const ms = Date.parse(new URLSearchParams(path.split("?")[1]).get("at") ?? "");
        if (ms < START_MS + 12 * HOUR_MS) throw new ApiError("there was none", 404, 0);
        return plan((ms - START_MS) / 1000);
      },
      async all(): Promise<Blockage[]> {
        return [seen({}), seen({ entry: at(200), exit: null }), seen({ link: "return" })];
      },
    };
    const sampled = new SampledPlans(client as unknown as Client, "east", "forward", 24 * HOUR_MS);
    const composed = await sampled.read(now, signal);
    expect(asked.length).toBeLessThanOrEqual(61);
    const pieces = composed.pieces.get(11) ?? [];
    expect(pieces[0]?.fromMs).toBe(START_MS + 12 * HOUR_MS);
    pieces.forEach((one, index) => index > 0 && expect(one.fromMs).toBe(pieces[index - 1]?.toMs));
    expect(pieces.at(-1)?.toMs).toBe(now);
    expect(composed.blocked?.get(12)).toEqual([[START_MS + 100_000, START_MS + 130_000], [START_MS + 200_000, now]]);
    const before = asked.length;
    await sampled.read(now + sampled.everyMs, signal);
    expect(asked.length).toBe(before + 1);
    // The blocked terminal comes first.
    composed.pieces.set(12, []);
    expect(ofInterest(composed, 1)).toEqual([12]);
  });

  test("has blockages that began before it, none that ended before it, and says from when on it has all", async () => {
    let all: Blockage[] = [
      seen({ entry: at(-3600), exit: at(23 * 3600) }),
      seen({ terminal: 13, entry: at(-3600), exit: at(60) }),
      seen({ terminal: 14, entry: at(-7200), exit: null }),
    ];
    let since = 0;
    const client = {
      get: () => Promise.reject(new ApiError("there was none", 404, 0)),
      async all(path: string): Promise<Blockage[]> {
        since = Date.parse(new URLSearchParams(path.split("?")[1]).get("since") ?? "");
        return all;
      },
    };
    const sampled = new SampledPlans(client as unknown as Client, "east", "forward", 2 * HOUR_MS);
    const { blocked } = await sampled.read(now, signal);
    expect(since).toBeLessThanOrEqual(START_MS - 2 * HOUR_MS);
    expect(blocked?.get(12)).toEqual([[START_MS - HOUR_MS, now - HOUR_MS]]);
    expect(blocked?.get(13)).toBeUndefined();
    expect(blocked?.get(14)).toEqual([[START_MS - 2 * HOUR_MS, now]]);
    expect(sampled.blockedFromMs).toBeUndefined();
    all = Array.from({ length: 2000 }, (_, index) => seen({ entry: at(86_400 - index), exit: null }));
    await sampled.read(now, signal);
    expect(sampled.blockedFromMs).toBe(now - 1999_000);
  });

  test("is not shown with holes where the service refuses", async () => {
    const client = { get: () => Promise.reject(new ApiError("too many requests", 429, 1000)), all: async () => [] };
    const sampled = new SampledPlans(client as unknown as Client, "east", "forward", 2 * HOUR_MS);
    await expect(sampled.read(now, signal)).rejects.toThrow("too many requests");
  });
});
