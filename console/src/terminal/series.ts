/** A link's history as columns of a chart: times in s, and for each a number or nothing. */

import type { Carried } from "../api/types";
import type { RateSample } from "../fleet/rate-history";

/** Each record covers 10 s; a longer distance between two is a gap without measurements. */
const APART_S = 30;

export type Columns = [number[], ...(number | null)[][]];

/** Sent, allowed and measured rates, bit/s. */
export function rateColumns(samples: readonly RateSample[]): Columns {
  return [
    samples.map((one) => one.timeMs / 1000),
    samples.map((one) => one.rateBps ?? null),
    samples.map((one) => one.allowedBps ?? null),
    samples.map((one) => one.capacityBps ?? null),
  ];
}

/** Measured capacities over time, the oldest first; long gaps are not drawn. */
export function carriedColumns(kept: readonly Carried[]): Columns {
  const times: number[] = [];
  const capacities: (number | null)[] = [];
  for (const { start, capacity_bps } of kept) {
    const time = Date.parse(start) / 1000;
    const before = times.at(-1);
    if (time === before) {
      // The record of another path, to which the link changed within these 10 s.
      capacities[capacities.length - 1] ??= capacity_bps ?? null;
      continue;
    }
    if (before !== undefined && time - before > APART_S) {
      times.push(before + APART_S / 2);
      capacities.push(null);
    }
    times.push(time);
    capacities.push(capacity_bps ?? null);
  }
  return [times, capacities];
}

/** Returns the least efficiency reported; nothing if none was. */
export function leastEfficiency(kept: readonly Carried[]): number | undefined {
  const told = kept.flatMap(({ efficiency }) => (typeof efficiency === "number" ? [efficiency] : []));
  return told.length === 0 ? undefined : told.reduce((least, one) => Math.min(least, one));
}

/** Backlog, bytes. */
export function backlogColumns(samples: readonly RateSample[]): Columns {
  return [samples.map((one) => one.timeMs / 1000), samples.map((one) => one.backloggedBytes)];
}

/** Spans in which the link was not up, s: from the first such report to the next report of "up". */
export function outages(samples: readonly RateSample[]): [number, number][] {
  const found: [number, number][] = [];
  let since: number | undefined;
  for (const { timeMs, state } of samples) {
    if (state !== "up") since ??= timeMs / 1000;
    else if (since !== undefined) {
      found.push([since, timeMs / 1000]);
      since = undefined;
    }
  }
  const last = samples.at(-1);
  if (since !== undefined && last) found.push([since, last.timeMs / 1000]);
  return found;
}
