/**
 * The road from a vehicle to its expected blockage, along the roads that the service has around each
 * obstruction: from the nearest open road, by the likeliest turns, into the covered one.
 * Places are [longitude, latitude] in degrees.
 */

import type { Obstruction, Road } from "../api/types";

export type Degrees = [number, number];

export interface RoadAhead {
  /** From the vehicle to the portal. */
  open: Degrees[];
  /** The covered parts. */
  covered: Degrees[][];
  portal: Degrees;
}

/** A vehicle further from every road than this is not on any of them. */
const NEAR_M = 60;
const MOST_ROADS = 40;
const METRES_PER_DEGREE = 111_320;

export function roadAhead(obstruction: Obstruction, place: Degrees): RoadAhead | undefined {
  const covered = linesOf(obstruction);
  const roads = new Map((obstruction.properties.roads ?? []).map((road) => [road.id, road]));
  const start = nearest([...roads.values()].filter((road) => !isCovered(road)), place);
  if (start) {
    const open: Degrees[] = [start.at, ...start.road.line.slice(start.segment + 1)];
    let road: Road | undefined = start.road;
    for (let count = 0; road && count < MOST_ROADS; count++) {
      const next = likeliest(road, roads);
      if (next && isCovered(next)) return { open, covered: through(next, roads), portal: next.line[0] as Degrees };
      if (next) open.push(...next.line.slice(1));
      road = next;
    }
  }
  const portal = nearestPlace(covered.flat(), place);
  // The vehicle is off the known roads: only the covered road is drawn, without a way to it.
  return portal && { open: [], covered, portal };
}

function likeliest(road: Road, roads: Map<string, Road>): Road | undefined {
  const [first] = [...road.onward].sort((a, b) => b[1] - a[1]);
  return first && roads.get(first[0]);
}

/** Returns the covered roads from one on, until the road is open. */
function through(first: Road, roads: Map<string, Road>): Degrees[][] {
  const found: Degrees[][] = [];
  let road: Road | undefined = first;
  for (let count = 0; road && isCovered(road) && count < MOST_ROADS; count++) {
    found.push(road.line);
    road = likeliest(road, roads);
  }
  return found;
}

function isCovered(road: Road): boolean {
  return road.covered_by !== null;
}

function linesOf({ geometry }: Obstruction): Degrees[][] {
  return geometry.coordinates;
}

function nearest(
  roads: Road[],
  place: Degrees,
): { road: Road; segment: number; at: Degrees } | undefined {
  let best: { road: Road; segment: number; at: Degrees; metres: number } | undefined;
  for (const road of roads) {
    for (let segment = 0; segment + 1 < road.line.length; segment++) {
      const at = foot(road.line[segment] as Degrees, road.line[segment + 1] as Degrees, place);
      const metres = distance(at, place);
      if (metres < (best?.metres ?? NEAR_M)) best = { road, segment, at, metres };
    }
  }
  return best;
}

function nearestPlace(places: Degrees[], place: Degrees): Degrees | undefined {
  let best: Degrees | undefined;
  for (const one of places) {
    if (!best || distance(one, place) < distance(best, place)) best = one;
  }
  return best;
}

/** Returns a segment's nearest place; degrees of longitude are scaled to the place's latitude. */
function foot(a: Degrees, b: Degrees, place: Degrees): Degrees {
  const scale = Math.cos((place[1] * Math.PI) / 180);
  const [dx, dy] = [(b[0] - a[0]) * scale, b[1] - a[1]];
  const length = dx * dx + dy * dy;
  if (length === 0) return a;
  const along = ((place[0] - a[0]) * scale * dx + (place[1] - a[1]) * dy) / length;
  const part = Math.min(1, Math.max(0, along));
  return [a[0] + part * (b[0] - a[0]), a[1] + part * (b[1] - a[1])];
}

export function distance(a: Degrees, b: Degrees): number {
  const scale = Math.cos((((a[1] + b[1]) / 2) * Math.PI) / 180);
  return METRES_PER_DEGREE * Math.hypot((a[0] - b[0]) * scale, a[1] - b[1]);
}
