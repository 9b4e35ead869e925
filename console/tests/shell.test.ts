import { expect, test } from "vitest";
import { grown, mayHaveOlder } from "../src/shell/newest";
import { utcOn } from "../src/shell/dates";
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

test("long times are told in hours and days, and what came too early with its sign", () => {
  expect([7_199_000, 7_200_000, 43_200_000, 30 * 86_400_000 + 14_400_000].map(seconds)).toEqual([
    "119 min 59 s", "2 h 0 min", "12 h 0 min", "30 d 4 h",
  ]);
  expect([-250_000, -12_340, -20].map(seconds)).toEqual(["-4 min 10 s", "-12.3 s", "0.0 s"]);
});

test("what was on another day has its date", () => {
  const now = Date.parse("2026-11-28T00:10:00Z");
  expect([utcOn(now - 60_000, now), utcOn(now - 900_000, now), utcOn(Number.NaN, now)]).toEqual([
    "00:09:00", "2026-11-27 23:55:00", "–",
  ]);
});

test("what cannot be a token is not sent", () => {
  expect(flawOf("upc_aZ09-_")).toBeUndefined();
  for (const token of ["", "a b", "a\nb", "ü", "x".repeat(201)]) expect(flawOf(token)).toBeDefined();
});

test("a link that is not up is shaded from the first report that says so to the first that does not", () => {
  const sample = (s: number, state: "up" | "blocked") => ({
    timeMs: 1000 * s, state, rateBps: 0, allowedBps: 0, backloggedBytes: 0, capacityBps: 0,
  });
  const states = [sample(1, "up"), sample(2, "blocked"), sample(3, "blocked"), sample(4, "up"), sample(5, "blocked"), sample(6, "blocked")];
  expect(outages(states)).toEqual([[2, 4], [5, 6]]);
});

test("a list grows on demand until the API alone has the rest", () => {
  let most = 30;
  const shown = [most];
  while (mayHaveOlder(most, most)) shown.push((most = grown(most)));
  expect(shown).toEqual([30, 120, 480, 1000]);
  // Fewer than were asked for: there are no others.
  expect(mayHaveOlder(29, 30)).toBe(false);
});
