/** What a link did, as the columns of a chart: times in s, and a number or nothing for each. */

import type { RateSample } from "../fleet/rate-history";

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
