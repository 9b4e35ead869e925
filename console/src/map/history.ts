/** A vehicle's past track: read for a span of time, then extended by what is new. */

import type { Client } from "../api/client";
import { timeOf } from "../api/time";
import type { Blockage, Position } from "../api/types";
import { Track, type TrackPart, trackParts } from "./track";

const HOUR_MS = 3_600_000;
/** How far back, ms; `undefined`: all that the service has. */
export type Span = number | undefined;
/** The user's choices; the first is the default. */
export const SPANS: readonly [string, Span][] = [
  ["2 h", 2 * HOUR_MS],
  ["12 h", 12 * HOUR_MS],
  ["24 h", 24 * HOUR_MS],
  ["all that is kept", undefined],
];
/** Spans up to this length are read with every fix. */
const WHOLE_MS = 2 * HOUR_MS;
/** A longer span is read as a line of about so many fixes. */
const MOST_POINTS = 3_000;
/** Most fixes in one read; the next read gets those after them. */
const MOST_FIXES = 20_000;
/** Most blockages drawn, the newest. */
const MOST_BLOCKAGES = 2_000;
/** The service lists blockages by their entries: those that began this long before the span are read, too. */
const LONGEST_MS = 24 * HOUR_MS;
/** For each direction of a path, only the last blockage that began before the span may continue in it. */
const MOST_BEFORE = 20;
/** How soon a span is read again: a short one soon, a long one when the change is large enough to see. */
const SOONEST_MS = 5_000;
const READS_IN_SPAN = 1_440;
const LATEST_MS = 120_000;

/** How far apart the fixes of a span are read, s; 0: all of them. */
export function apartOf(spanMs: number): number {
  return spanMs <= WHOLE_MS ? 0 : Math.ceil(spanMs / 1000 / MOST_POINTS);
}

export class History {
  private track = new Track();
  private fromMs: number | undefined;
  private apartS: number | undefined;

  constructor(
    private readonly client: Client,
    readonly node: number,
    private readonly span: Span,
    private readonly signal: AbortSignal,
  ) {}

  /** How long after a read the next one is due. */
  get everyMs(): number {
    return Math.min(LATEST_MS, Math.max(SOONEST_MS, (this.span ?? Infinity) / READS_IN_SPAN));
  }

  /** Reads the missing part; returns the whole track. */
  async read(nowMs: number): Promise<TrackPart[]> {
    const fromMs = this.span === undefined ? await this.oldest(nowMs) : nowMs - this.span;
    this.thin(apartOf(nowMs - fromMs));
    const path = `v1/terminals/${this.node}/positions?since=${timeOf(this.missingFrom(fromMs, nowMs))}${this.apartS ? `&apart_s=${this.apartS}` : ""}`;
    const blocked = `v1/blockages?terminal=${this.node}&state=observed&order=newest`;
    const [fixes, before, within] = await Promise.all([
      this.client.all<Position>(path, "positions", this.signal, MOST_FIXES),
      this.client.all<Blockage>(`${blocked}&since=${timeOf(fromMs - LONGEST_MS)}&until=${timeOf(fromMs)}`, "blockages", this.signal, MOST_BEFORE),
      this.client.all<Blockage>(`${blocked}&since=${timeOf(fromMs)}`, "blockages", this.signal, MOST_BLOCKAGES),
    ]);
    this.track.add(fixes, nowMs);
    return trackParts(this.track.from(fromMs), [...within, ...before]);
  }

  private async oldest(nowMs: number): Promise<number> {
    if (this.fromMs === undefined) {
      const path = `v1/terminals/${this.node}/positions?limit=1`;
      const { positions } = await this.client.get<{ positions: Position[] }>(path, this.signal);
      this.fromMs = positions[0] && Date.parse(positions[0].time);
    }
    // A vehicle without a fix yet is asked for again with the next read.
    return this.fromMs ?? nowMs;
  }

  /** A span without a limit grows for days: it is read anew, thinner, before it has more than twice the fixes. */
  private thin(apartS: number): void {
    if (this.apartS !== undefined && apartS <= 2 * Math.max(1, this.apartS)) return;
    this.apartS = apartS;
    this.track = new Track();
  }

  /** Returns a multiple of the interval, so that a repeated read brings the same fixes. */
  private missingFrom(fromMs: number, nowMs: number): number {
    const apartMs = 1000 * (this.apartS || 1);
    return Math.floor(this.track.missingFrom(fromMs, nowMs) / apartMs) * apartMs;
  }
}
