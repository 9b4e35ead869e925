/** Blockages in words: the time until entry, and the time left. Times are the service's. */

import type { Blockage } from "../api/types";
import type { Vehicle } from "./fleet";

export interface Ahead {
  blockage: Blockage;
  entryMs: number;
  exitMs: number;
  /** How long until it begins; below 0 inside. */
  inMs: number;
  /** How long it lasts still, or will last. */
  forMs: number;
}

/** The planner ignores blockages of less confidence. */
const LEAST_CONFIDENCE = 0.5;

/** A vehicle's next expected blockage, or the one that it is expected to be in now. */
export function nextBlockage(vehicle: Vehicle, nowMs: number): Ahead | undefined {
  let next: Ahead | undefined;
  for (const blockage of vehicle.expected.values()) {
    const entryMs = Date.parse(blockage.entry);
    const exitMs = blockage.exit ? Date.parse(blockage.exit) : entryMs;
    const isSure = (blockage.confidence ?? 1) >= LEAST_CONFIDENCE;
    if (!isSure || exitMs <= nowMs || (next && next.entryMs <= entryMs)) continue;
    const forMs = exitMs - Math.max(entryMs, nowMs);
    next = { blockage, entryMs, exitMs, inMs: entryMs - nowMs, forMs };
  }
  return next;
}

/** "in 0:42 for 51 s", or "for 12 s more". */
export function countdown(ahead: Ahead): string {
  const forS = `${Math.round(ahead.forMs / 1000)} s`;
  return ahead.inMs > 0 ? `in ${minutes(ahead.inMs)} for ${forS}` : `for ${forS} more`;
}

function minutes(ms: number): string {
  const s = Math.ceil(ms / 1000);
  return `${Math.floor(s / 60)}:${String(s % 60).padStart(2, "0")}`;
}
