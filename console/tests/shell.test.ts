import { expect, test } from "vitest";
import { bits, bps, seconds, utc } from "../src/shell/format";
import { hashOf, routeOf } from "../src/shell/route";
import { flawOf } from "../src/shell/session";
import { outages } from "../src/terminal/series";

test("an address leads back to where it was made, whatever is in a name", () => {
  for (const of of ["east", "a/b?c#d", "100 %", "<b>"]) {
    const route = routeOf(hashOf("beams", of, { link: "return" }));
    expect([route.page, route.of, route.query.get("link")]).toEqual(["beams", of, "return"]);
  }
  expect(routeOf("")).toMatchObject({ page: "map", of: undefined });
  expect(routeOf("#/beams/%E0%A4%A").of).toBe("%E0%A4%A");
});

test("figures have three digits and their unit", () => {
  expect([bps(1_234_567), bps(0), bps(undefined), bits(3_400_000), bps(999)]).toEqual([
    "1.23 Mbit/s", "0 bit/s", "–", "3.4 Mbit", "999 bit/s",
  ]);
  expect([seconds(12_340), seconds(250_000), utc(Number.NaN)]).toEqual(["12.3 s", "4 min 10 s", "–"]);
});

test("what cannot be a token is not sent", () => {
  expect(flawOf("upc_aZ09-_")).toBeUndefined();
  for (const token of ["", "a b", "a\nb", "ü", "x".repeat(201)]) expect(flawOf(token)).toBeDefined();
});

test("a link that is not up is shaded from the first report that says so to the first that does not", () => {
  const sample = (s: number, state: "up" | "blocked") => ({
    timeMs: 1000 * s, state, rateBps: 0, allowedBps: 0, backloggedBytes: 0, streams: 0, capacityBps: 0,
  });
  const states = [sample(1, "up"), sample(2, "blocked"), sample(3, "blocked"), sample(4, "up"), sample(5, "blocked"), sample(6, "blocked")];
  expect(outages(states)).toEqual([[2, 4], [5, 6]]);
});
