/** The spans for which the fairness of a beam can be asked, and how much of one is settled. */

import type { Fairness } from "../api/types";
import { seconds } from "../shell/format";

/** Terminals times periods: what one question may cost the service. */
const MOST_CELLS = 100_000;
const PERIOD_MS = 10_000;
/** Further periods that a span touches: one begins before it, and the clocks differ. */
const MORE = 2;
const SPANS: readonly [string, number][] = [
  ["10 minutes", 600_000],
  ...[2, 12, 24].map((hours): [string, number] => [`${hours} h`, hours * 3_600_000]),
];

/** The spans that can be asked for with this many terminals; a shorter one if none of them can. */
export function fairSpans(terminals: number): readonly [string, number][] {
  const longestMs = (Math.floor(MOST_CELLS / Math.max(1, terminals)) - MORE) * PERIOD_MS;
  const offered = SPANS.filter(([, ms]) => ms <= longestMs);
  const shortMs = Math.max(PERIOD_MS, longestMs);
  return offered.length > 0 ? offered : [[seconds(shortMs), shortMs]];
}

/**
 * The part of a span, s, for which planned and fair amounts are known, since it is settled. Undefined
 * if none of it is.
 */
export function settledS({ since, until }: Fairness, settledUntil: string | null | undefined): number | undefined {
  if (!settledUntil) return undefined;
  const ms = Math.min(Date.parse(until), Date.parse(settledUntil)) - Date.parse(since);
  return ms > 0 ? ms / 1000 : undefined;
}
