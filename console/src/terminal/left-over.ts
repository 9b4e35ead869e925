/** What still waits to be sent to or from a terminal, which decides whether it may be taken away. */

import type { LinkName } from "../api/types";
import { SILENT_AFTER_MS, type Vehicle } from "../fleet/fleet";
import { counted } from "../shell/counted";
import { bytes } from "../shell/format";

const LINKS: LinkName[] = ["forward", "return"];
const WAY = { forward: "to it", return: "from it" } as const;

export interface LeftOver {
  /** What waits, in words; empty if nothing does. */
  waiting: string[];
  /** Open connections: the larger of both directions' counts. */
  streams: number;
  /** Links without a recent report. */
  unknown: LinkName[];
}

export function leftOver(vehicle: Vehicle, nowMs: number): LeftOver {
  const found: LeftOver = { waiting: [], streams: 0, unknown: [] };
  for (const link of LINKS) {
    const state = vehicle[link];
    if (!state || nowMs - Date.parse(state.received) > SILENT_AFTER_MS) {
      found.unknown.push(link);
      continue;
    }
    const bundles = state.figures?.stored_bundles ?? 0;
    if (state.backlogged_bytes > 0) found.waiting.push(`${bytes(state.backlogged_bytes)} ${WAY[link]}`);
    if (bundles > 0) found.waiting.push(`${counted(bundles, "bundle")} in custody ${WAY[link]}`);
    found.streams = Math.max(found.streams, state.streams);
  }
  return found;
}

/** Says whether the terminal may be taken away, or what speaks against that. */
export function verdict({ waiting, streams, unknown }: LeftOver): string {
  if (waiting.length > 0) return `Still waiting: ${waiting.join(", ")}.`;
  if (unknown.length > 0) return `Nothing new is known of its ${unknown.join(" and ")} link: something may wait there.`;
  const idle = streams === 1 ? "One connection is open and idle: it would end." : `${streams} connections are open and idle: they would end.`;
  return streams > 0 ? `Nothing waits. ${idle}` : "Nothing waits, and no connection is open: it may be taken away.";
}
