/** A vehicle's way as it drove, cut where it was blocked. */

import type { Blockage, Position } from "../api/types";
import type { Degrees } from "./road-ahead";

/** A fix may come so much later than one that is newer. */
const LATE_MS = 120_000;

export interface TrackPart {
  blocked: boolean;
  line: Degrees[];
}

/** The fixes of a vehicle as they are read, again and again. No I/O and no clock. */
export class Track {
  private readonly fixes = new Map<number, Position>();
  private newestMs = -Infinity;

  add(positions: Position[]): void {
    for (const one of positions) {
      const ms = Date.parse(one.time);
      this.fixes.set(ms, one);
      this.newestMs = Math.max(this.newestMs, ms);
    }
  }

  /** From when on it has to be read, of what is wanted from a time on: what came late is found, too. */
  missingFrom(fromMs: number): number {
    return Math.max(fromMs, this.newestMs - LATE_MS);
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
