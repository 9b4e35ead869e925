import { describe, expect, test } from "vitest";
import type { Client } from "../src/api/client";
import type { Blockage, Position } from "../src/api/types";
import { apartOf, History, SPANS } from "../src/map/history";
import { at, position, START_MS } from "./made";

const HOUR_MS = 3_600_000;

/** A fake service with a fix for each second; none yet below 0 h. */
function served(hours: number, blockages: Blockage[] = []) {
  const asked: string[] = [];
  const kept = { hours };
  const client = {
    async all(path: string): Promise<unknown[]> {
      asked.push(path);
      const query = new URLSearchParams(path.split("?")[1]);
      if (!path.includes("/positions")) {
        const [from, until] = [Date.parse(query.get("since") ?? ""), Date.parse(query.get("until") ?? "") || Infinity];
        return blockages.filter(({ entry }) => Date.parse(entry) >= from && Date.parse(entry) < until);
      }
      const apartMs = 1000 * Number(query.get("apart_s") ?? 1);
      const sinceMs = Date.parse(query.get("since") ?? "");
      const found: Position[] = [];
      for (let ms = Math.max(sinceMs, START_MS); ms <= START_MS + kept.hours * HOUR_MS; ms = (Math.floor(ms / apartMs) + 1) * apartMs) {
        found.push(position(11, (ms - START_MS) / 1000, { longitude: 7 + (ms - START_MS) / 1e10 }));
      }
      return found;
    },
    async get(path: string): Promise<unknown> {
      asked.push(path);
      return { positions: kept.hours < 0 ? [] : [position(11, 0)] };
    },
  };
  return { client: client as unknown as Client, asked, kept };
}

describe("the history of a vehicle", () => {
  const { signal } = new AbortController();
  const points = (parts: { line: unknown[] }[]) => parts.reduce((sum, part) => sum + part.line.length, 0);

  test("has every fix of two hours, and a bounded number of any other span", () => {
    expect(SPANS.map(([, span]) => apartOf(span ?? 30 * 24 * HOUR_MS))).toEqual([0, 15, 29, 864]);
  });

  test("is read once, and then what is new, without a fix twice", async () => {
    const { client, asked } = served(24);
    const history = new History(client, 11, 24 * HOUR_MS, signal);
    const now = START_MS + 24 * HOUR_MS;
    const first = points(await history.read(now));
    expect(first).toBeGreaterThan(2900);
    expect(first).toBeLessThanOrEqual(3000);
    expect(points(await history.read(now))).toBe(first);
    const [once, again] = asked.filter((path) => path.includes("apart_s=29")).map((path) => Date.parse(new URLSearchParams(path.split("?")[1]).get("since") ?? ""));
    expect(now - (once ?? 0)).toBeGreaterThanOrEqual(24 * HOUR_MS);
    expect(now - (again ?? 0)).toBeLessThan(200_000);
    expect(history.everyMs).toBe(60_000);
  });

  test("is blocked from its beginning, where a blockage that began before it goes on", async () => {
    const observed = { state: "observed", source: "modem", terminal: 11, link: "forward" } as const;
    const garage: Blockage = { ...observed, entry: at(1800), exit: at(3 * 3600) };
    const { client } = served(4, [garage]);
    const parts = await new History(client, 11, 2 * HOUR_MS, signal).read(START_MS + 4 * HOUR_MS);
    expect(parts.map((part) => part.blocked)).toEqual([true, false]);
  });

  test("of all that is kept begins with the oldest fix, which is asked for once", async () => {
    const { client, asked } = served(100);
    const history = new History(client, 11, undefined, signal);
    const now = START_MS + 100 * HOUR_MS;
    expect(points(await history.read(now))).toBeLessThanOrEqual(3001);
    await history.read(now + 1000);
    expect(asked.filter((path) => path.endsWith("limit=1"))).toHaveLength(1);
    expect(asked.find((path) => path.includes("apart_s"))).toContain("apart_s=120");
    expect(history.everyMs).toBe(120_000);
  });

  test("of all that is kept begins with the first fix of a vehicle that has none yet", async () => {
    const { client, asked, kept } = served(-1);
    const history = new History(client, 11, undefined, signal);
    expect(await history.read(START_MS - HOUR_MS)).toEqual([]);
    kept.hours = 1;
    expect(points(await history.read(START_MS + HOUR_MS))).toBe(3601);
    expect(asked.at(-1)).toContain(encodeURIComponent(at(0)));
  });

  test("of all that is kept stays bounded, however long it is looked at", async () => {
    const { client, asked, kept } = served(0);
    const history = new History(client, 11, undefined, signal);
    for (kept.hours = 1; kept.hours <= 72; kept.hours++) {
      expect(points(await history.read(START_MS + kept.hours * HOUR_MS))).toBeLessThanOrEqual(7201);
    }
    // It is thinned a few times, not at each read.
    const queries = asked.filter((path) => path.includes("/positions?since=")).map((path) => new URLSearchParams(path.split("?")[1]));
    expect(new Set(queries.map((query) => query.get("apart_s"))).size).toBeLessThanOrEqual(6);
  });
});
