/** What a link did, as the columns of a chart: times in s, and a number or nothing for each. */

import type { Carried } from "../api/types";
import type { RateSample } from "../fleet/rate-history";

/** Each is of 10 s: where two are further apart, nothing was known in between. */
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

/** What was measured over time, the oldest first; where nothing was known for long, nothing is drawn. */
export function carriedColumns(kept: readonly Carried[]): Columns {
  const times: number[] = [];
  const capacities: (number | null)[] = [];
  for (const { start, capacity_bps } of kept) {
    const time = Date.parse(start) / 1000;
    const before = times.at(-1);
    if (time === before) {
      // Another path's, to which the link has changed in these 10 s.
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

/** The least efficiency that was told; nothing where none was. */
export function leastEfficiency(kept: readonly Carried[]): number | undefined {
  const told = kept.flatMap(({ efficiency }) => (typeof efficiency === "number" ? [efficiency] : []));
  return told.length === 0 ? undefined : told.reduce((least, one) => Math.min(least, one));
}

/** Bytes that wait. */
export function backlogColumns(samples: readonly RateSample[]): Columns {
  return [samples.map((one) => one.timeMs / 1000), samples.map((one) => one.backloggedBytes)];
}

/** When the link was not up, s: from the first report that says so to the first that does not. */
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
