import { expect, test } from "vitest";
import { ServerClock } from "../src/clock/server-clock";

const OFFSET = 1_795_000_000_123;

/** An answer whose time, in whole seconds, was taken halfway between request and receipt. */
function answer(clock: ServerClock, askedAt: number, rtt: number, offset = OFFSET): void {
  const stamped = offset + askedAt + rtt / 2;
  clock.observe(Math.floor(stamped / 1000) * 1000, 1000, askedAt, askedAt + rtt);
}

test("answers with whole seconds narrow the time down to about a round trip", () => {
  const clock = new ServerClock();
  expect(clock.known).toBe(false);
  for (let count = 0; count < 60; count++) answer(clock, 1370 * count, 20 + (count % 7));
  expect(Math.abs(clock.at(0) - OFFSET)).toBeLessThanOrEqual(clock.uncertaintyMs);
  expect(clock.uncertaintyMs).toBeLessThan(40);
});

test("the time lies within the bounds whatever part of the way is slow", () => {
  for (const part of [0, 0.2, 0.9, 1]) {
    const clock = new ServerClock();
    for (let count = 0; count < 50; count++) {
      const askedAt = 733 * count;
      const stamped = OFFSET + askedAt + 600 * part;
      clock.observe(Math.floor(stamped / 1000) * 1000, 1000, askedAt, askedAt + 600);
    }
    expect(Math.abs(clock.at(0) - OFFSET)).toBeLessThanOrEqual(clock.uncertaintyMs);
  }
});

test("after a clock has been set, the newest answer counts", () => {
  const clock = new ServerClock();
  for (let count = 0; count < 9; count++) answer(clock, 500 * count, 20);
  answer(clock, 10_000, 20, OFFSET + 7_200_000);
  expect(Math.abs(clock.at(0) - OFFSET - 7_200_000)).toBeLessThan(600);
});

test("a time in an event is a lower bound, and a wrong one moves the clock no further than answers allow", () => {
  const clock = new ServerClock();
  answer(clock, 0, 20);
  const before = clock.uncertaintyMs;
  clock.observePast(OFFSET + 1000, 1005);
  expect(clock.uncertaintyMs).toBeLessThan(before);
  clock.observePast(OFFSET + 1e9, 1010);
  expect(Math.abs(clock.at(0) - OFFSET)).toBeLessThan(1100);
  clock.observePast(NaN, 2000);
  clock.observe(NaN, 1000, 0, 1);
  expect(clock.known).toBe(true);
});
