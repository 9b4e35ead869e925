/**
 * The rates of past and present plans over time: each plan is in force until a newer one begins.
 * Pure; times are ms since the epoch.
 */

import type { Plan, SegmentState } from "../api/types";

export interface Piece {
  fromMs: number;
  toMs: number;
  /** Of the beam's capacity, bit/s: a terminal's own rate is this times its efficiency. */
  capacityBps: number;
  state: SegmentState;
}

export interface Composed {
  /** By terminal, in order of time. */
  pieces: Map<number, Piece[]>;
  /** What the beam carries. */
  capacity: { fromMs: number; toMs: number; rateBps: number }[];
  /** When terminals were observed to be blocked, if that is known apart from the plan. */
  blocked?: Map<number, [number, number][]>;
}

export function compose(plans: Pick<Plan, "start" | "end" | "capacity" | "lines">[], fromMs: number, toMs: number): Composed {
  const pieces = new Map<number, Piece[]>();
  const capacity: Composed["capacity"] = [];
  const sorted = [...plans].sort((a, b) => Date.parse(a.start) - Date.parse(b.start));
  sorted.forEach((plan, index) => {
    const next = sorted[index + 1];
    const start = Math.max(fromMs, Date.parse(plan.start));
    const end = Math.min(toMs, Date.parse(plan.end), next ? Date.parse(next.start) : Infinity);
    if (start >= end) return;
    plan.capacity.forEach((step, at) => {
      const after = plan.capacity[at + 1];
      const from = Math.max(start, Date.parse(step.from));
      const to = Math.min(end, after ? Date.parse(after.from) : Infinity);
      if (from < to) capacity.push({ fromMs: from, toMs: to, rateBps: step.rate_bps });
    });
    for (const line of plan.lines) {
      const clipped: Piece[] = [];
      for (const segment of line.segments) {
        const from = Math.max(start, Date.parse(segment.start));
        const to = Math.min(end, Date.parse(segment.end));
        if (from >= to) continue;
        const capacityBps = segment.rate_bps / line.efficiency;
        clipped.push({ fromMs: from, toMs: to, capacityBps, state: segment.state });
      }
      for (const node of line.terminals) {
        const known = pieces.get(node);
        if (known) known.push(...clipped);
        else pieces.set(node, [...clipped]);
      }
    }
  });
  return { pieces, capacity };
}

export interface Band {
  /** Undefined: all others together. */
  node: number | undefined;
  fromMs: number;
  toMs: number;
  lowBps: number;
  highBps: number;
  state: SegmentState;
}

/**
 * Stacks the terminals' parts, lowest first. The `first` ones are bands of their own, all others
 * one band.
 */
export function stack({ pieces }: Composed, first: number[]): Band[] {
  const times = [...new Set([...pieces.values()].flatMap((all) => all.flatMap((one) => [one.fromMs, one.toMs])))];
  times.sort((a, b) => a - b);
  const own = new Set(first);
  const others = [...pieces.keys()].filter((node) => !own.has(node));
  const cursor = new Map<number, number>();
  const bands: Band[] = [];
  const at = (node: number, fromMs: number): Piece | undefined => {
    const all = pieces.get(node) ?? [];
    let index = cursor.get(node) ?? 0;
    while (index < all.length && (all[index] as Piece).toMs <= fromMs) index += 1;
    cursor.set(node, index);
    const piece = all[index];
    return piece && piece.fromMs <= fromMs ? piece : undefined;
  };
  for (let index = 0; index + 1 < times.length; index++) {
    const [fromMs, toMs] = [times[index] as number, times[index + 1] as number];
    let low = 0;
    for (const node of first) {
      const piece = at(node, fromMs);
      if (!piece) continue;
      const high = low + piece.capacityBps;
      bands.push({ node, fromMs, toMs, lowBps: low, highBps: high, state: piece.state });
      low = high;
    }
    const rest = others.reduce((sum, node) => sum + (at(node, fromMs)?.capacityBps ?? 0), 0);
    if (rest > 0) bands.push({ node: undefined, fromMs, toMs, lowBps: low, highBps: low + rest, state: "fair" });
  }
  return bands;
}

/** The terminals with their own bands: first those with a blockage or loan, then by number. */
export function ofInterest({ pieces, blocked }: Composed, most: number): number[] {
  const eventful = (all: Piece[]) => all.filter((one) => one.state !== "fair").length;
  const isBlocked = (node: number, all: Piece[]) => Number(blocked?.has(node) || all.some((one) => one.state === "blocked"));
  return [...pieces.entries()]
    .sort(([a, x], [b, y]) => isBlocked(b, y) - isBlocked(a, x) || Math.sign(eventful(y)) - Math.sign(eventful(x)) || a - b)
    .slice(0, most)
    .map(([node]) => node);
}
