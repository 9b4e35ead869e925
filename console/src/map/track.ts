/** A vehicle's way as it drove, cut where it was blocked. */

import type { Blockage, Position } from "../api/types";
import type { Degrees } from "./road-ahead";

/** A fix may come this much later than a newer one. */
const LATE_MS = 120_000;
/** In a longer gap there may be fixes that waited for the link, and arrive after newer ones. */
const GAP_MS = 10_000;
/** How long to wait for them after the first fix behind the gap; by then even the longest span is read again. */
const FILLED_WITHIN_MS = 150_000;

export interface TrackPart {
  blocked: boolean;
  line: Degrees[];
}

/** The fixes of a vehicle as they are read, again and again. No I/O and no clock. */
export class Track {
  private readonly fixes = new Map<number, Position>();
  private newestMs = -Infinity;
  /** Where the last gap begins, and until when it is read again. */
  private gap = { fromMs: Infinity, untilMs: -Infinity };

  /** Takes in the fixes that were read at `nowMs`. */
  add(positions: Position[], nowMs: number): void {
    const beforeMs = this.newestMs;
    let nextMs = Infinity;
    for (const one of positions) {
      const ms = Date.parse(one.time);
      this.fixes.set(ms, one);
      this.newestMs = Math.max(this.newestMs, ms);
      if (ms > beforeMs) nextMs = Math.min(nextMs, ms);
    }
    const gapMs = nextMs - beforeMs;
    if (Number.isFinite(gapMs) && gapMs > GAP_MS && nowMs > this.gap.untilMs) {
      this.gap = { fromMs: beforeMs, untilMs: nowMs + FILLED_WITHIN_MS };
    }
  }

  /** Returns from when on to read so that late fixes are found, too; no earlier than `fromMs`. */
  missingFrom(fromMs: number, nowMs: number): number {
    const lateMs = this.newestMs - LATE_MS;
    return Math.max(fromMs, nowMs > this.gap.untilMs ? lateMs : Math.min(lateMs, this.gap.fromMs));
  }

  /** Returns the fixes from `fromMs` on, in order of time; forgets older ones. */
  from(fromMs: number): Position[] {
    for (const ms of this.fixes.keys()) {
      if (ms < fromMs) this.fixes.delete(ms);
    }
    return [...this.fixes].sort(([a], [b]) => a - b).map(([, one]) => one);
  }
}

/** Cuts a track, in order of time, at the entries and exits of observed blockages. */
export function trackParts(track: Position[], observed: Blockage[]): TrackPart[] {
  const spans = observed.map((one) => [
    Date.parse(one.entry),
    one.exit ? Date.parse(one.exit) : Infinity,
  ] as const);
  const parts: TrackPart[] = [];
  let before: (Position & { ms: number }) | undefined;
  for (const position of track) {
    const ms = Date.parse(position.time);
    const here: Degrees = [position.longitude, position.latitude];
    if (before) {
      // A step that touches a blockage counts as blocked: inside one there are no fixes.
      const [from, to] = [before.ms, ms];
      const blocked = spans.some(([entry, exit]) => entry < to && exit > from);
      const last = parts.at(-1);
      if (last?.blocked === blocked) last.line.push(here);
      else parts.push({ blocked, line: [[before.longitude, before.latitude], here] });
    }
    before = { ...position, ms };
  }
  return parts;
}
