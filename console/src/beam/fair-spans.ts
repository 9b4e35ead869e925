/** Over which times the service is asked how fair a beam was, and how much of one is settled. */

import type { Fairness } from "../api/types";
import { seconds } from "../shell/format";

/** Terminals times periods: what one question may cost the service. */
const MOST_CELLS = 100_000;
const PERIOD_MS = 10_000;
/** The periods that a time touches beyond what it lasts: one begins before it, and the clocks differ. */
const MORE = 2;
const SPANS: readonly [string, number][] = [
  ["10 minutes", 600_000],
  ...[2, 12, 24].map((hours): [string, number] => [`${hours} h`, hours * 3_600_000]),
];

/** Those that can be asked for of so many terminals; where even the shortest cannot, one that can. */
export function fairSpans(terminals: number): readonly [string, number][] {
  const longestMs = (Math.floor(MOST_CELLS / Math.max(1, terminals)) - MORE) * PERIOD_MS;
  const offered = SPANS.filter(([, ms]) => ms <= longestMs);
  const shortMs = Math.max(PERIOD_MS, longestMs);
  return offered.length > 0 ? offered : [[seconds(shortMs), shortMs]];
}

/**
 * For how long of a time it is known what was planned and fair, s: as far as that is settled. Undefined
 * where nothing of it is.
 */
export function settledS({ since, until }: Fairness, settledUntil: string | null | undefined): number | undefined {
  if (!settledUntil) return undefined;
  const ms = Math.min(Date.parse(until), Date.parse(settledUntil)) - Date.parse(since);
  return ms > 0 ? ms / 1000 : undefined;
}
