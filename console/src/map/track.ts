/** A vehicle's way as it drove, cut where it was blocked. */

import type { Blockage, Position } from "../api/types";
import type { Degrees } from "./road-ahead";

/** How much later than a newer fix an older one may come. */
const LATE_MS = 120_000;
/** Of a longer time without a fix, there may be some that waited for the link: they come behind newer ones. */
const GAP_MS = 10_000;
/** So long they are waited for, from the first fix behind the gap on; the longest span is read again by then. */
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

  /** Takes in what has been read at a time. */
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

  /** From when on to read, if fixes from a time on are wanted: late fixes are found, too. */
  missingFrom(fromMs: number, nowMs: number): number {
    const lateMs = this.newestMs - LATE_MS;
    return Math.max(fromMs, nowMs > this.gap.untilMs ? lateMs : Math.min(lateMs, this.gap.fromMs));
  }

  /** In order of time, from a time on; what is older is forgotten. */
  from(fromMs: number): Position[] {
    for (const ms of this.fixes.keys()) {
      if (ms < fromMs) this.fixes.delete(ms);
    }
    return [...this.fixes].sort(([a], [b]) => a - b).map(([, one]) => one);
  }
}

/** Cuts a track, in order of time, at the entries and exits of what was observed. */
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
      // A step that touches a blockage is blocked: in it there are no fixes.
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
