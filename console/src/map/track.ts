/** A vehicle's way as it drove, cut where it was blocked. */

import type { Blockage, Position } from "../api/types";
import type { Degrees } from "./road-ahead";

export interface TrackPart {
  blocked: boolean;
  line: Degrees[];
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
